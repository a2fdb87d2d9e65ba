"""Both brokers, once, and every scenario on both.

As a program it prints transcripts: `python -m differential.run --peer kafka produce.no_records` (both brokers without
`--peer`; all scenarios without names).
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from harness.broker import Broker
from harness.kafka_peer import ApacheKafka

from . import scenarios
from .compare import differences, listed, prune, stale_clauses, verdict
from .scenario import SCENARIOS, Peer, Performance, Scenario, Transcript, perform

# The same small values on both, so that what takes minutes takes milliseconds.
PLAIN = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
# And a second pair, whose operator changed what can be changed.
CHANGED = {
    **PLAIN,
    "auto.create.topics.enable": "false",
    "connections.max.idle.ms": "6000",
    "delete.topic.enable": "false",
    "fetch.max.bytes": "2000",
    "group.initial.rebalance.delay.ms": "700",
    "group.max.size": "2",
    "log.message.timestamp.type": "LogAppendTime",
    "max.incremental.fetch.session.cache.slots": "0",
    "message.max.bytes": "10000",
    "num.partitions": "4",
    "offset.metadata.max.bytes": "10",
    # Short, and so not for the plain pair: a group between two steps of a scenario is empty, and would be deleted.
    "offsets.retention.check.interval.ms": "300",
    "socket.request.max.bytes": "200000",
    "transaction.max.timeout.ms": "60000",
}
SETTINGS = {"plain": PLAIN, "changed": CHANGED}
# What makes Weir do as Kafka does where its default is kinder.
WEIR_ONLY = {"plain": {}, "changed": {"weir.replication.clamp": "false"}}
# Internal settings of Kafka's: how long its background work waits after start.
KAFKA_ONLY = {"log.initial.task.delay.ms": "0"}
# A scenario mostly waits; more at once would make two cores late.
WORKERS = 6

for _module in pkgutil.iter_modules(scenarios.__path__):
    importlib.import_module(f"{scenarios.__name__}.{_module.name}")


def start_kafka(folder: Path, settings: dict[str, str]) -> ApacheKafka:
    return ApacheKafka(folder, {**settings, **KAFKA_ONLY}, heap="640m").start()


def start_weir(folder: Path, wanted: dict[str, str]) -> tuple[Broker, list[str]]:
    """Weir, and those of the settings that it refuses."""
    refused: list[str] = []
    while True:
        settings = {name: value for name, value in wanted.items() if name not in refused}
        server = Broker(folder / str(len(refused)), settings)
        try:
            return server.start(), sorted(refused)
        except AssertionError:
            # "unknown config `a`: did you mean `b`?": the first one named is the one refused.
            named = re.findall(r"`([a-z.]+)`", server.log_tail())[:1]
            if server.running or not named or named[0] not in settings:
                raise
            refused += named


def kill_and_restart(peer: Peer) -> None:
    peer.server.kill()
    peer.server.start()
    peer.greet()


class Session:
    """The brokers named, and the scenarios' transcripts as they come."""

    def __init__(self, folder: Path, names: list[str], peers: tuple[str, ...] = ("kafka", "weir")):
        self.servers, self.peers, self.names, self.refused = [], {}, peers, set()
        self.pool = ThreadPoolExecutor(WORKERS * len(peers))
        chosen = [SCENARIOS[name] for name in names]
        try:
            starting = {
                (brokers, peer): self.pool.submit(self._start, folder, brokers, peer)
                for brokers in sorted({one.brokers for one in chosen})
                for peer in peers
            }
            self.peers = {which: future.result() for which, future in starting.items()}
            self.transcripts: dict[tuple[str, str], Future[Transcript]] = {}
            self.alone = [one for one in chosen if one.alone]
            self.restarting = [one for one in chosen if one.restarts]
            for one in chosen:
                if not one.alone and not one.restarts:
                    self._submit(one)
        except BaseException:
            self.stop()
            raise

    def _start(self, folder: Path, brokers: str, name: str) -> Peer:
        settings = SETTINGS[brokers]
        if name == "kafka":
            server = start_kafka(folder / f"kafka-{brokers}", settings)
        else:
            server, refused = start_weir(folder / f"weir-{brokers}", {**settings, **WEIR_ONLY[brokers]})
            self.refused |= set(refused)
        self.servers.append(server)
        return Peer(name, server)

    def _submit(self, one: Scenario) -> None:
        for name in self.names:
            self.transcripts[one.id, name] = self.pool.submit(perform, one, self.peers[one.brokers, name])

    def transcript(self, name: str, peer: str) -> Transcript:
        """Waits for it. Scenarios that must be alone run when all the others have ended, and then those with a restart."""
        if (name, peer) not in self.transcripts:
            wait(self.transcripts.values())
            for one in self.alone:
                self._submit(one)
                wait(self.transcripts.values())
            self.alone = []
        if (name, peer) not in self.transcripts:
            self._restart()
        return self.transcripts[name, peer].result()

    def _restart(self) -> None:
        """Every scenario up to its restart, kill -9 of their brokers, and the rest."""
        begun = {
            (one, name): self.pool.submit(Performance, one, self.peers[one.brokers, name])
            for one in self.restarting
            for name in self.names
        }
        wait(begun.values())
        killed = sorted({(one.brokers, name) for one, name in begun})

        def go_on(key: tuple[str, str]) -> None:
            # Each broker's scenarios as soon as it is back: members' sessions do not wait for the slower of the two.
            kill_and_restart(self.peers[key])
            for (one, name), performance in begun.items():
                if (one.brokers, name) == key:
                    self.transcripts[one.id, name] = self.pool.submit(performance.result().go_on)

        for future in [self.pool.submit(go_on, key) for key in killed]:
            future.result()

    def stop(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)
        for server in self.servers:
            server.stop()


def show(transcript: Transcript) -> str:
    lines = [f"  {label}: {json.dumps(value)}" for label, value in transcript.entries]
    if transcript.ended:
        lines.append(f"  ended: {transcript.ended}\n{transcript.trace}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=("kafka", "weir"), help="only this broker: its transcripts")
    parser.add_argument("-v", "--verbose", action="store_true", help="both transcripts")
    parser.add_argument(
        "--rows", action="store_true", help="what is not listed as rows for differences.md, without reasons"
    )
    parser.add_argument("--prune", action="store_true", help="take out of differences.md what is not so any more")
    parser.add_argument("--quiet", action="store_true", help="only what ended early, or differs")
    parser.add_argument("names", nargs="*", help="scenarios, or beginnings of their names; all when none is given")
    asked = parser.parse_args()
    chosen = [name for name in SCENARIOS if not asked.names or any(name.startswith(part) for part in asked.names)]
    peers = (asked.peer,) if asked.peer else ("kafka", "weir")
    bad, begun, stale = 0, time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), chosen, peers)
        started, expected = time.monotonic() - begun, listed()
        try:
            if session.refused:
                print(f"Weir refuses {', '.join(sorted(session.refused))}")
            for name in chosen:
                transcripts = {peer: session.transcript(name, peer) for peer in peers}
                if len(peers) == 1:
                    only = transcripts[peers[0]]
                    bad += only.ended is not None
                    if only.ended or not asked.quiet:
                        print(f"{name}\n{show(only)}")
                    continue
                found = differences(transcripts["kafka"], transcripts["weir"])
                said = verdict(name, found, expected)
                if asked.prune:
                    stale[name] = stale_clauses(name, found, expected)
                if asked.rows:
                    if said:
                        print(f"| `{name}` | {'<br>'.join(found)} | |")
                    continue
                if transcripts["kafka"].ended:
                    said = f"did not run on Apache Kafka: {show(transcripts['kafka'])}"
                bad += said is not None
                if said or not asked.quiet:
                    print(f"{name}: {said or 'the same'}")
                if asked.verbose:
                    print("\n".join(f" {peer}\n{show(transcripts[peer])}" for peer in peers))
        finally:
            session.stop()
    if asked.prune:
        prune(stale)
    print(
        f"{len(chosen)} scenarios, {bad} bad, in {time.monotonic() - begun:.0f} s of which {started:.0f} for starting"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
