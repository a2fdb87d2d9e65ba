"""Apache Kafka beside Weir, in one run, on this machine: what a gigabyte costs the broker, and how fast it goes.

    make bench                             # everything
    scripts/bench --only produce-1k,fetch  # some workloads
    scripts/bench --rounds 1 --scale 0.2   # a quick look
    scripts/bench --weir-only              # no Kafka, so no comparison goals

Broker CPU-seconds are the broker process's own (utime + stime of /proc/PID/stat); a GB is 10^9 bytes of values. Rounds
alternate (Kafka, Weir, Kafka, Weir, ...) after a warm-up each, and the median is shown. Kafka runs unsynced, as it does
by default, unless a workload says otherwise; Weir with its default: every acknowledgement synced.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "compat-tests"))

from harness import orders, wide
from harness.broker import Broker
from harness.clients import BY_NAME
from harness.kafka_peer import KAFKA_VERSION, ApacheKafka
from harness.process import wait_until
from harness.wire import Wire

GB = 1e9
ADMIN = BY_NAME["confluent-kafka"]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "weir"
LOAD = CACHE / "bench" / "load"


@dataclass
class Measured:
    """One load on one broker."""

    records: float
    gigabytes: float
    seconds: float
    cpu: float

    @property
    def cpu_per_gb(self) -> float:
        return self.cpu / self.gigabytes

    @property
    def mb_per_s(self) -> float:
        return self.gigabytes * 1000 / self.seconds

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds


def median(runs: list[Measured]) -> Measured:
    return Measured(
        *(statistics.median(getattr(run, name) for run in runs) for name in ("records", "gigabytes", "seconds", "cpu"))
    )


def load(server, verb: str, topic: str, settle: float = 1.0, **options) -> Measured:
    """Run the load generator; the broker's CPU until `settle` seconds after it, so that work put off is counted."""
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    before = server.cpu_seconds()
    done = subprocess.run(
        [str(LOAD), verb, "--bootstrap", server.bootstrap, "--topic", topic, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{server.peer}: load {verb} {topic} failed: {done.stderr}\n{server.log_tail()}")
    time.sleep(settle)
    told = json.loads(done.stdout)
    return Measured(
        told.get("offsets", told["records"]), told["bytes"] / GB, told["seconds"], server.cpu_seconds() - before
    )


_topics = 0


def new_topic(server, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    global _topics
    _topics += 1
    topic = f"bench-{_topics}"
    ADMIN.create_topic(server.bootstrap, topic, partitions, config)
    wait_until(lambda: ADMIN.topics(server.bootstrap).get(topic) == partitions, 60, f"{topic} in the metadata")
    return topic


@dataclass
class Row:
    """One line of the table."""

    workload: str
    figure: str
    goal: str
    met: bool | None


@dataclass
class Bench:
    folder: Path
    rounds: int
    scale: float
    peers: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)

    def bytes(self, gigabytes: float) -> int:
        return int(gigabytes * self.scale * GB)

    def server(self, peer: str, settings: dict[str, str] | None = None):
        folder = self.folder / f"{peer}-{time.monotonic_ns()}"
        if peer == "weir":
            return Broker(folder, {"group.initial.rebalance.delay.ms": "0", **(settings or {})}).start()
        return ApacheKafka(folder, settings).start()

    def alternate(
        self,
        measure: Callable[[object], Measured],
        warm_up: Callable[[object], object],
        kafka: dict[str, str] | None = None,
    ) -> dict[str, Measured]:
        """A B A B: each round measures every peer once, on one long-lived warmed-up process each."""
        servers = {peer: self.server(peer, kafka if peer == "kafka" else None) for peer in self.peers}
        runs: dict[str, list[Measured]] = {peer: [] for peer in self.peers}
        try:
            for server in servers.values():
                warm_up(server)
            for number in range(self.rounds):
                for peer, server in servers.items():
                    run = measure(server)
                    runs[peer].append(run)
                    print(
                        f"    round {number + 1} {peer:5}  {run.cpu_per_gb:6.2f} CPU-s/GB  {run.mb_per_s:7.1f} MB/s  {run.records_per_s:11,.0f} rec/s  RSS {server.rss_bytes() / 1e6:,.0f} MB",
                        flush=True,
                    )
        finally:
            for server in servers.values():
                server.stop()
                shutil.rmtree(server.data, ignore_errors=True)
        return {peer: median(list_) for peer, list_ in runs.items()}

    def add(self, workload: str, figure: str, goal: str, met: bool | None) -> None:
        self.rows.append(Row(workload, figure, goal, met))

    def add_cost(self, workload: str, found: dict[str, Measured], goal: float, of_kafka: float | None) -> None:
        """The row of a workload whose goal is CPU-seconds per GB, absolute and against Kafka."""
        weir = found["weir"]
        figure, wanted, met = (
            f"{weir.cpu_per_gb:.2f} CPU-s/GB, {weir.mb_per_s:.0f} MB/s",
            f"{goal:g}",
            weir.cpu_per_gb <= goal,
        )
        if kafka := found.get("kafka"):
            ratio = weir.cpu_per_gb / kafka.cpu_per_gb
            figure += f" (Kafka {kafka.cpu_per_gb:.2f}, {kafka.mb_per_s:.0f} MB/s: {ratio:.2f}x)"
            if of_kafka is not None:
                wanted += f" and {of_kafka:g}x"
                met = met and ratio <= of_kafka
        self.add(workload, figure, wanted, met)

    # -- workloads --------------------------------------------------------------

    def produce(
        self, name: str, size: int, gigabytes: float, goal: float, of_kafka: float | None, partitions: int = 1
    ) -> None:
        def measure(server):
            return load(
                server,
                "produce",
                new_topic(server, partitions),
                size=size,
                bytes=self.bytes(gigabytes),
                partitions=partitions,
            )

        def warm_up(server):
            load(
                server, "produce", new_topic(server), size=size, bytes=self.bytes(3 if server.peer == "kafka" else 0.5)
            )

        self.add_cost(name, self.alternate(measure, warm_up), goal, of_kafka)

    def produce_1k(self) -> None:
        self.produce("produce, 1 KiB records, 1 MB batches", 1024, 3, 0.6, 0.2)

    def produce_100(self) -> None:
        self.produce("produce, 100 B records, 1 MB batches", 100, 1, 0.9, 0.2)

    def produce_wide(self) -> None:
        self.produce("produce, 1 KiB, over 1,000 partitions", 1024, 2, 0.9, None, partitions=1000)

    def produce_small(self) -> None:
        """Four producers of 16 KiB batches, Kafka synced as well (flush.messages=1)."""
        how = {"size": 1024, "partitions": 16, "producers": 4, "batch_bytes": 16384, "linger_ms": 1}

        def measure(server):
            config = {"flush.messages": "1"} if server.peer == "kafka" else {}
            gigabytes = 0.15 if server.peer == "kafka" else 0.75
            return load(server, "produce", new_topic(server, 16, config), bytes=self.bytes(gigabytes), **how)

        found = self.alternate(
            measure, lambda server: load(server, "produce", new_topic(server, 16), bytes=self.bytes(0.5), **how)
        )
        weir = found["weir"]
        figure, met = f"{weir.records_per_s:,.0f} rec/s at {weir.cpu_per_gb:.2f} CPU-s/GB", None
        if kafka := found.get("kafka"):
            faster, cheaper = weir.records_per_s / kafka.records_per_s, weir.cpu_per_gb / kafka.cpu_per_gb
            figure += f" (Kafka {kafka.records_per_s:,.0f} at {kafka.cpu_per_gb:.2f}: {faster:.1f}x, {cheaper:.2f}x)"
            met = faster >= 5 and cheaper <= 0.2
        self.add("produce, 4 producers, 16 KiB batches, both synced", figure, "5x the records/s at 0.2x the CPU", met)

    def fetch(self) -> None:
        topics: dict[str, str] = {}

        def warm_up(server):
            topics[server.peer] = new_topic(server)
            load(server, "produce", topics[server.peer], size=1024, bytes=self.bytes(3))
            for _ in range(4 if server.peer == "kafka" else 1):
                load(server, "fetch", topics[server.peer])

        found = self.alternate(lambda server: load(server, "fetch", topics[server.peer]), warm_up)
        self.add_cost("fetch, 1 KiB, warm", found, 0.3, None)

    def recovery(self) -> None:
        """kill -9 with 10 GB in 1,000 partitions, then the time to all of them being led again."""
        times = {}
        for peer in self.peers:
            server = self.server(peer)
            topic = new_topic(server, 1000)
            load(server, "produce", topic, size=1024, bytes=self.bytes(10), partitions=1000)
            server.kill()
            started = time.monotonic()
            server.spawn(server.command())
            wait_until(partial(serves, server.kafka_port, topic, 1000), 300, f"{peer} to serve again", pause=0.005)
            times[peer] = time.monotonic() - started
            load(server, "fetch", topic, partitions=1000)
            server.stop()
            shutil.rmtree(server.data, ignore_errors=True)
            print(f"    {peer:5}  {times[peer]:.2f} s", flush=True)
        beside = f" (Kafka {times['kafka']:.1f} s)" if "kafka" in times else ""
        self.add(
            f"kill -9, {10 * self.scale:g} GB in 1,000 partitions, to serving",
            f"{times['weir']:.2f} s{beside}",
            "2 s",
            times["weir"] <= 2,
        )

    # -- tables: Weir alone, Kafka has none -------------------------------------

    def order_lines(self) -> Path:
        path = self.folder / "orders.jsonl"
        if not path.exists():
            path.write_bytes(
                b"".join(
                    value + b"\n"
                    for value in orders.stream(
                        seed=42, count=200_000, styles=(orders.python_default,), irregular_share=0
                    )
                )
            )
        return path

    def weir_alone(
        self,
        measure: Callable[[Broker, str], Measured],
        config: dict[str, str],
        prepare: Callable[[Broker, str], object],
        settings: dict[str, str] | None = None,
    ) -> Measured:
        """The median of the rounds after a first, unmeasured one: pages that the process touches for the first time are
        cleared by the kernel (and on a virtual machine found by its host), which no later round pays for."""
        runs = []
        server = self.server("weir", settings)
        try:
            for number in range(self.rounds + 1):
                topic = new_topic(server, 1, config)
                prepare(server, topic)
                run = measure(server, topic)
                server.seal(topic)  # gives its memory to the next round
                if number == 0:
                    continue
                runs.append(run)
                print(
                    f"    round {number} weir   {run.cpu_per_gb:6.2f} CPU-s/GB  {run.mb_per_s:7.1f} MB/s  {run.records_per_s:11,.0f} rows/s  RSS {server.rss_bytes() / 1e6:,.0f} MB",
                    flush=True,
                )
        finally:
            server.stop()
            shutil.rmtree(server.data, ignore_errors=True)
        return median(runs)

    def json_produce(self) -> None:
        def measure(server, topic):
            return load(server, "produce", topic, settle=0, lines=self.order_lines(), bytes=self.bytes(0.5))

        config = {**orders.TOPIC_CONFIG, "weir.lake.enable": "false", "weir.seal.bytes": str(4 << 30)}
        # Acknowledged is decoded and synced; sealing comes later and is part of `json-replay`'s preparation.
        found = self.weir_alone(measure, config, lambda server, topic: None, {"weir.tail.bytes": str(4 << 30)})
        rate = found.gigabytes * 1000 / found.cpu
        self.add(
            "JSON rows to acknowledged columns",
            f"{rate:.0f} MB of JSON per broker CPU-s, {found.mb_per_s:.0f} MB/s",
            "150",
            rate >= 150,
        )

    def json_replay(self) -> None:
        for keep_raw, goal in (("when-needed", 2.0), ("always", 0.6)):

            def prepare(server, topic):
                load(server, "produce", topic, lines=self.order_lines(), bytes=self.bytes(0.5))
                server.seal(topic)

            config = {**orders.TOPIC_CONFIG, "weir.lake.enable": "false", "weir.value.keep.raw": keep_raw}
            found = self.weir_alone(lambda server, topic: load(server, "fetch", topic), config, prepare)
            self.add_cost(f"sealed JSON replayed as rows, keep.raw={keep_raw}", {"weir": found}, goal, None)

    def columns(self) -> None:
        """Two of twenty columns as Arrow from segments, against the full row: rows per broker-CPU-second."""
        path = self.folder / "wide.jsonl"
        if not path.exists():
            path.write_bytes(b"".join(value + b"\n" for value in wide.stream(seed=42, count=100_000)))

        def prepare(server, topic):
            load(server, "produce", topic, lines=path, bytes=self.bytes(0.5))
            server.seal(topic)

        two_as_arrow = f"bench;weir.columns={wide.TWO};weir.format=arrow"
        rates = {}
        for name, client_id in (("full row", "bench"), ("2 of 20", two_as_arrow)):
            read = partial(load, verb="fetch", client_id=client_id)
            found = self.weir_alone(
                lambda server, topic, read=read: read(server, topic=topic), wide.TOPIC_CONFIG, prepare
            )
            rates[name] = found.records / found.cpu
        ratio = rates["2 of 20"] / rates["full row"]
        figure = f"{rates['2 of 20']:,.0f} rows/CPU-s against {rates['full row']:,.0f}: {ratio:.1f}x"
        self.add("2 of 20 columns as Arrow, from segments", figure, "5x the full row", ratio >= 5)


WORKLOADS: dict[str, Callable[[Bench], None]] = {
    "produce-1k": Bench.produce_1k,
    "produce-100": Bench.produce_100,
    "produce-1000-partitions": Bench.produce_wide,
    "produce-small": Bench.produce_small,
    "fetch": Bench.fetch,
    "recovery": Bench.recovery,
    "json-produce": Bench.json_produce,
    "json-replay": Bench.json_replay,
    "columns": Bench.columns,
}


def serves(port: int, topic: str, partitions: int) -> bool:
    """Whether every partition of the topic tells its end: the broker leads them again, its port is not just open."""
    asked = [{"partition_index": index, "timestamp": -1, "current_leader_epoch": -1} for index in range(partitions)]
    try:
        wire = Wire(port)
        answer = wire.send(2, 5, {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]})
        wire.close()
    except OSError:
        return False
    return all(partition.error_code == 0 and partition.offset > 0 for partition in answer.topics[0].partitions)


def machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, shared by broker and client"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"workloads by name, comma between: {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the bytes of every workload")
    parser.add_argument("--weir-only", action="store_true")
    parser.add_argument("--folder", type=Path, default=CACHE / "bench" / "data", help="on the disk to measure; emptied")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(WORKLOADS)
    if unknown := [name for name in chosen if name not in WORKLOADS]:
        parser.error(f"no workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)

    peers = ("weir",) if arguments.weir_only else ("kafka", "weir")
    bench = Bench(arguments.folder, arguments.rounds, arguments.scale, peers)
    print(
        f"machine: {machine()}\nclient: librdkafka through bench/load.c; Kafka {KAFKA_VERSION}, 1 GiB heap; median of {arguments.rounds}"
    )
    for name in chosen:
        print(f"  {name}", flush=True)
        WORKLOADS[name](bench)
    shutil.rmtree(arguments.folder, ignore_errors=True)

    width = max(len(row.workload) for row in bench.rows)
    print(f"\n{'workload':{width}}  goal met  goal / figure")
    for row in bench.rows:
        verdict = {True: "yes", False: "NO", None: "-"}[row.met]
        print(f"{row.workload:{width}}  {verdict:8}  {row.goal}\n{'':{width}}            {row.figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
