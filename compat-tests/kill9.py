"""Kill the broker -9 under load, again and again, and prove that nothing acknowledged was lost or told twice.

    python kill9.py 200                  # cycles
    python kill9.py 200 --seed 7         # the same kill times again

Producers and one consumer live through all the kills. After each restart the consumer reads to the end, and every
record that was acknowledged before must have come, at the offset that the acknowledgement named. At the end the whole
log is read again from offset 0 and must be the same; an idempotent producer's records are there once and in order; the
lake table has each row of the log once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from harness import lake
from harness.broker import Broker
from harness.clients import BY_NAME
from harness.reading import with_librdkafka

PARTITIONS = 3
# Everything that can be in the middle of happening should be, every second: short files, a tail that seals all the time.
SETTINGS = {
    "weir.wal.segment.bytes": str(1 << 20),
    "weir.tail.bytes": str(2 << 20),
    "weir.seal.bytes": str(256 << 10),
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "500",
}
TABLE = "kill9-table"
RAW = "kill9-raw"
TOPICS = {
    TABLE: {
        "weir.schema": "producer STRING NOT NULL, sequence BIGINT NOT NULL, pad STRING",
        "weir.value.format": "json",
        "weir.lake.enable": "true",
        "weir.lake.freshness.ms": "500",
        "local.retention.ms": "2000",
    },
    RAW: {},
}
RECORDS_PER_SECOND = 800

Place = tuple[str, int, int]  # topic, partition, offset
Sent = tuple[str, int]  # producer, sequence


@dataclass
class Acknowledged:
    """What the broker promised: shared by the producers' delivery callbacks."""

    promises: list[tuple[Place, Sent]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def from_number(self, number: int) -> list[tuple[Place, Sent]]:
        """The promises after the first `number`, as of now."""
        with self.lock:
            return self.promises[number:]


class LoadProducer(threading.Thread):
    """Produces numbered records at a steady rate until told to stop; retries are librdkafka's own."""

    def __init__(self, bootstrap: str, name: str, topic: str, idempotent: bool, acknowledged: Acknowledged, seed: int):
        super().__init__(name=name, daemon=True)
        self.topic, self.idempotent, self.acknowledged = topic, idempotent, acknowledged
        self.rng = random.Random(seed)
        self.sent = 0
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "batch.num.messages": 200,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            with self.acknowledged.lock:
                self.acknowledged.errors.append(f"{self.name}: fatal {error.str()}")

    def _delivered(self, sequence: int):
        def callback(error, message):
            with self.acknowledged.lock:
                if error is not None:
                    self.acknowledged.errors.append(f"{self.name}: record {sequence}: {error.str()}")
                else:
                    place = (self.topic, message.partition(), message.offset())
                    self.acknowledged.promises.append((place, (self.name, sequence)))

        return callback

    def run(self) -> None:
        start = time.monotonic()
        while not self.stopping.is_set():
            due = int((time.monotonic() - start) * RECORDS_PER_SECOND)
            while self.sent < due and len(self.producer) < 5_000:
                self._send()
            self.producer.poll(0.01)
        if self.producer.flush(60):
            with self.acknowledged.lock:
                self.acknowledged.errors.append(f"{self.name}: records without an answer after 60 s")

    def _send(self) -> None:
        row = {"producer": self.name, "sequence": self.sent, "pad": "x" * self.rng.randrange(400)}
        # Now and then a spelling that no encoder repeats, so that raw values are killed too.
        separators = (" ,  ", ":") if self.rng.random() < 0.02 else None
        value = json.dumps(row, separators=separators)
        self.producer.produce(
            self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered(self.sent)
        )
        self.sent += 1


class Violation(AssertionError):
    """A promise of the broker was broken."""


class Witness:
    """One consumer that lives through every kill and remembers what it saw."""

    def __init__(self, bootstrap: str):
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "witness",
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.seen: dict[Place, bytes] = {}
        self.next = {(topic, partition): 0 for topic in TOPICS for partition in range(PARTITIONS)}
        self.consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self.next])

    def read_to_end(self, timeout: float = 30) -> None:
        """Read every partition to the high watermark that it has now."""
        ends = {where: self._high_watermark(*where) for where in self.next}
        deadline = time.monotonic() + timeout
        while behind := {where: end for where, end in ends.items() if self.next[where] < end}:
            for message in self.consumer.consume(5_000, 0.1):
                self._take(message)
            if time.monotonic() > deadline:
                stuck = {where: (self.next[where], end) for where, end in behind.items()}
                raise Violation(f"the consumer is stuck, (next offset, high watermark) by partition: {stuck}")

    def _take(self, message) -> None:
        if error := message.error():
            if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                return
            raise Violation(f"the consumer got {error.str()}")
        where = (message.topic(), message.partition())
        if message.offset() < self.next[where]:
            raise Violation(f"{where}: offset {message.offset()} came again, expected {self.next[where]} or more")
        self.seen[(*where, message.offset())] = message.value()
        self.next[where] = message.offset() + 1

    def _high_watermark(self, topic: str, partition: int) -> int:
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.consumer.get_watermark_offsets(TopicPartition(topic, partition), 5)[1]
            except Exception as error:  # the client's connection may still be the dead broker's
                if time.monotonic() > deadline:
                    raise Violation(f"no high watermark of {topic}-{partition} for 30 s: {error}") from error


def sent_of(value: bytes) -> Sent:
    row = json.loads(value)
    return row["producer"], row["sequence"]


def check_acknowledged(promises: list[tuple[Place, Sent]], seen: dict[Place, bytes]) -> None:
    for place, sent in promises:
        value = seen.get(place)
        if value is None:
            raise Violation(f"record {sent} was acknowledged at {place} and is gone")
        if sent_of(value) != sent:
            raise Violation(f"record {sent} was acknowledged at {place}, where {sent_of(value)} is now")


def check_idempotent(producer: LoadProducer, seen: dict[Place, bytes]) -> None:
    """Each sequence once, and in order within its partition."""
    found = defaultdict(list)
    for (topic, partition, offset), value in seen.items():
        name, sequence = sent_of(value)
        if name == producer.name:
            found[topic, partition].append((offset, sequence))
    sequences = []
    for where, pairs in found.items():
        in_log_order = [sequence for _offset, sequence in sorted(pairs)]
        if in_log_order != sorted(set(in_log_order)):
            raise Violation(f"the idempotent producer {producer.name} has repeats or disorder in {where}")
        sequences += in_log_order
    if sorted(sequences) != list(range(producer.sent)):
        raise Violation(
            f"the idempotent producer {producer.name} sent {producer.sent} records, the log has {len(sequences)}"
        )


def check_second_reading(broker: Broker, witness: Witness) -> None:
    """The whole log again from offset 0, now from wherever its records went: the same bytes at the same offsets."""
    for topic, partition in witness.next:
        first = sorted((place[2], value) for place, value in witness.seen.items() if place[:2] == (topic, partition))
        again = [
            (offset, value) for offset, _key, value in with_librdkafka(broker.bootstrap, topic, len(first), partition)
        ]
        if again != first:
            differs = next((pair for pair in zip(first, again) if pair[0] != pair[1]), None)
            raise Violation(f"{topic}-{partition} reads differently the second time, first difference: {differs}")


def check_lake(broker: Broker, witness: Witness) -> None:
    broker.tier(TABLE)
    expected = sorted(place[1:] for place in witness.seen if place[0] == TABLE)
    found = lake.offsets(broker, TABLE)
    if found != expected:
        missing, twice = set(expected) - set(found), len(found) - len(set(found))
        raise Violation(
            f"the lake has {len(found)} rows of {len(expected)}: {len(missing)} missing, {twice} twice; {sorted(missing)[:5]}"
        )
    rows = lake.scan(broker, TABLE, ("producer", "sequence", "_kafka"))
    in_lake = list(zip(rows.column("producer").to_pylist(), rows.column("sequence").to_pylist()))
    in_log = [sent_of(witness.seen[(TABLE, *place)]) for place in expected]
    if in_lake != in_log:
        raise Violation("the lake's rows are not the log's rows")


def describe_reach(broker: Broker) -> str:
    """How far the rows travelled while the broker was killed: a run whose rows never left the tail would prove little."""
    commits = len(lake.load(broker, TABLE).history())
    statuses = [status for topic in TOPICS for status in broker.partitions(topic)]
    only_in_lake = sum(status["local_start"] for status in statuses)
    sealed = sum(status["sealed_end"] for status in statuses)
    return f"{sealed:,} rows sealed, {commits} lake commits, {only_in_lake:,} rows in the lake alone"


def kill_cycle(broker: Broker, rng: random.Random) -> None:
    """Let it work for a moment, kill it, start it; sometimes kill it again in the middle of its recovery."""
    time.sleep(rng.uniform(0.1, 1.2))
    broker.kill()
    while rng.random() < 0.2:
        broker.spawn(broker.command())
        time.sleep(rng.uniform(0.0, 0.2))
        broker.kill()
    broker.start(timeout=60)


def run(folder: Path, cycles: int, seed: int) -> str:
    """The summary of a run that found nothing wrong; raises `Violation` otherwise."""
    rng = random.Random(seed)
    broker = Broker(folder, SETTINGS)
    broker.start()
    admin = BY_NAME["confluent-kafka"]
    for topic, config in TOPICS.items():
        admin.create_topic(broker.bootstrap, topic, PARTITIONS, config)
    acknowledged = Acknowledged()
    producers = [
        LoadProducer(
            broker.bootstrap, f"{topic}-{kind}", topic, kind == "idempotent", acknowledged, rng.randrange(1 << 30)
        )
        for topic in TOPICS
        for kind in ("plain-1", "plain-2", "idempotent")
    ]
    witness = Witness(broker.bootstrap)
    started = time.monotonic()
    try:
        for producer in producers:
            producer.start()
        checked = 0
        for cycle in range(1, cycles + 1):
            kill_cycle(broker, rng)
            promises = acknowledged.from_number(checked)
            witness.read_to_end()
            check_acknowledged(promises, witness.seen)
            checked += len(promises)
            if acknowledged.errors:
                raise Violation(acknowledged.errors[0])
            if cycle % 10 == 0 or cycle == cycles:
                print(f"  kill -9 cycle {cycle}/{cycles}: {checked:,} records acknowledged, all there", flush=True)
        for producer in producers:
            producer.stopping.set()
        for producer in producers:
            producer.join(90)
        if acknowledged.errors:
            raise Violation(acknowledged.errors[0])
        witness.read_to_end()
        check_acknowledged(acknowledged.from_number(0), witness.seen)
        for producer in producers:
            if producer.idempotent:
                check_idempotent(producer, witness.seen)
        check_second_reading(broker, witness)
        check_lake(broker, witness)
        reach = describe_reach(broker)
        broker.stop()
    finally:
        broker.kill()
    seconds = time.monotonic() - started
    return (
        f"{cycles} kill -9 cycles in {seconds:.0f} s: {len(acknowledged.promises):,} records acknowledged, "
        f"{len(witness.seen):,} in the log, none lost, none twice from an idempotent producer, each once in the lake; {reach}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cycles", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--folder", type=Path, help="where the broker keeps its data; kept afterwards")
    arguments = parser.parse_args()
    print(f"kill -9: {arguments.cycles} cycles, seed {arguments.seed}")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="weir-kill9-"))
    try:
        print(run(folder, arguments.cycles, arguments.seed))
    except Violation as violation:
        print(f"VIOLATION (seed {arguments.seed}, data in {folder}): {violation}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
