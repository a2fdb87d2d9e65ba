"""Consume, transform, produce under transactions, while workers and the broker are killed -9: every input once in the output.

    python eos_chain.py 600                         # seconds
    python eos_chain.py 600 --seed 7                # the same kills again
    python eos_chain.py 600 --protocol consumer     # on a KIP-848 group

A feeder writes numbers into one topic. Workers, each a process of its own, read them as one group, write them to another
topic and commit what they read in the same transaction (KIP-447). A supervisor kills workers and the broker at random
and starts them again. At the end every number that was acknowledged must be in the output, for a reader of committed
records, exactly once.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from harness.broker import Broker
from harness.clients import BY_NAME
from harness.process import wait_until

INPUT, OUTPUT, GROUP = "eos-input", "eos-output", "eos-group"
PARTITIONS, WORKERS, RECORDS_PER_SECOND = 6, 5, 400
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # Everything that can be in the middle of happening should be: short files, a tail that seals all the time.
    "weir.wal.segment.bytes": str(1 << 20),
    "weir.tail.bytes": str(1 << 20),
    "weir.seal.bytes": str(64 << 10),
}


class Violation(AssertionError):
    """An input is missing in the output, or there twice."""


class Worker:
    """One member of the chain, in this process."""

    def __init__(self, bootstrap: str, name: str, protocol: str):
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}
        group = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500} if protocol == "classic" else {}
        self.consumer = Consumer(
            {
                **common,
                **group,
                "group.id": GROUP,
                "group.protocol": protocol,
                # A member that is stuck holds a rebalance up for that long.
                "max.poll.interval.ms": 15_000,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        self.producer = Producer(
            {
                **common,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
                "linger.ms": 5,
            }
        )
        self.retried(lambda: self.producer.init_transactions(10))
        self.consumer.subscribe([INPUT])

    @staticmethod
    def retried(act):
        """Tries again as long as the client says so, but not for ever: librdkafka 2.16 may never send TxnOffsetCommit when
        the broker went away during AddOffsetsToTxn, and calls each time-out retriable. Then another process takes over.
        """
        deadline = time.monotonic() + 30
        while True:
            try:
                return act()
            except KafkaException as refused:
                if not refused.args[0].retriable():
                    raise
                if time.monotonic() > deadline:
                    raise SystemExit(f"gives up: {refused.args[0].str()}") from refused

    def run(self) -> None:
        while True:
            messages = [m for m in self.consumer.consume(100, 0.2) if m.error() is None]
            if not messages:
                continue
            try:
                self.step(messages)
            except KafkaException as refused:
                error = refused.args[0]
                if error.fatal() or error.code() == KafkaError._FENCED:
                    # The supervisor starts another, which takes over.
                    raise
                self.retried(lambda: self.producer.abort_transaction(10))
                self.rewind()

    def step(self, messages) -> None:
        self.producer.begin_transaction()
        positions: dict[tuple[str, int], int] = {}
        for message in messages:
            self.producer.produce(OUTPUT, message.value(), partition=message.partition())
            positions[message.topic(), message.partition()] = message.offset() + 1
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        metadata = self.consumer.consumer_group_metadata()
        self.retried(lambda: self.producer.send_offsets_to_transaction(offsets, metadata, 10))
        self.retried(lambda: self.producer.commit_transaction(10))

    def rewind(self) -> None:
        """What was aborted is read again: from what is committed."""
        held = self.consumer.assignment()
        if not held:
            return
        for partition in self.retried(lambda: self.consumer.committed(held, 10)):
            if partition.offset < 0:
                partition.offset = confluent_kafka.OFFSET_BEGINNING
            try:
                self.consumer.seek(partition)
            except KafkaException:
                # It was taken away meanwhile, with its position.
                pass


class Feeder(threading.Thread):
    """Writes 0, 1, 2, ... with an idempotent producer until told to stop."""

    def __init__(self, bootstrap: str):
        super().__init__(daemon=True)
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        begun, number = time.monotonic(), 0
        while not self.stopping.is_set():
            while number < (time.monotonic() - begun) * RECORDS_PER_SECOND and len(self.producer) < 5000:
                self.producer.produce(
                    INPUT, str(number), partition=number % PARTITIONS, on_delivery=self.delivered(number)
                )
                number += 1
            self.producer.poll(0.01)
        self.producer.flush(60)

    def delivered(self, number: int):
        def callback(error, _message):
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failed.append(f"{number}: {error.str()}")

        return callback


class Crew:
    """The workers' processes."""

    def __init__(self, bootstrap: str, folder: Path, protocol: str):
        self.bootstrap, self.folder, self.protocol = bootstrap, folder, protocol
        self.processes: list[subprocess.Popen | None] = [None] * WORKERS
        self.started = 0

    def start(self, index: int) -> None:
        command = [sys.executable, __file__, "--worker", f"eos-{index}", "--bootstrap", self.bootstrap]
        with open(self.folder / f"worker-{index}.log", "ab") as log:
            command += ["--protocol", self.protocol]
            self.processes[index] = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parent)
        self.started += 1

    def keep_alive(self) -> None:
        for index, process in enumerate(self.processes):
            if process is None or process.poll() is not None:
                self.start(index)

    def kill(self, index: int) -> None:
        process = self.processes[index]
        if process is not None:
            process.kill()
            process.wait()

    def show_where_they_wait(self) -> None:
        """In their logs."""
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGUSR1)
        time.sleep(1)

    def stop(self) -> None:
        for index in range(WORKERS):
            self.kill(index)


def read_output(bootstrap: str, timeout: float) -> Counter:
    """Every value that a reader of committed records finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "eos-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(OUTPUT, p, confluent_kafka.OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found, ended, deadline = Counter(), set(), time.monotonic() + timeout
    while len(ended) < PARTITIONS:
        if time.monotonic() > deadline:
            raise Violation(
                f"a reader of committed records does not reach the end of partitions {set(range(PARTITIONS)) - ended}"
            )
        for message in consumer.consume(1000, 1):
            if message.error() is None:
                ended.discard(message.partition())
                found[int(message.value())] += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def run(folder: Path, seconds: float, seed: int, protocol: str = "classic") -> str:
    """Returns a line that says what was seen; raises `Violation`."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder / "broker", SETTINGS).start()
    crew = Crew(broker.bootstrap, folder, protocol)
    kills = Counter()
    try:
        for topic in (INPUT, OUTPUT):
            BY_NAME["confluent-kafka"].create_topic(broker.bootstrap, topic, PARTITIONS)
        feeder = Feeder(broker.bootstrap)
        feeder.start()
        crew.keep_alive()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.5, 3))
            if rng.random() < 0.3:
                broker.kill_and_restart()
                kills["broker"] += 1
            else:
                crew.kill(rng.randrange(WORKERS))
                kills["workers"] += 1
            crew.keep_alive()
        feeder.stopping.set()
        feeder.join(90)
        if feeder.failed:
            raise Violation(f"the feeder lost {len(feeder.failed)} records, the first is {feeder.failed[0]}")

        def complete():
            crew.keep_alive()
            found = read_output(broker.bootstrap, 60)
            twice = [number for number, count in found.items() if count > 1]
            if twice:
                raise Violation(f"{len(twice)} inputs are in the output more than once, {min(twice)} is the first")
            missing = feeder.acknowledged - set(found)
            return not missing or None

        try:
            wait_until(complete, 120, "the output to be complete", 1)
        except TimeoutError:
            crew.show_where_they_wait()
            found = read_output(broker.bootstrap, 60)
            missing = feeder.acknowledged - set(found)
            raise Violation(f"{len(missing)} inputs are not in the output, {min(missing)} is the first") from None
        crew.stop()
        broker.kill_and_restart()
        found = read_output(broker.bootstrap, 60)
        if set(found) != feeder.acknowledged or max(found.values()) != 1:
            raise Violation("the output is not the same after a restart")
        broker.stop()
    finally:
        crew.stop()
        broker.kill()
    return (
        f"{len(found):,} inputs in {seconds:g} s, each once in the output ({protocol} group); killed -9: broker "
        f"{kills['broker']} times, workers {kills['workers']} times; {crew.started} worker processes in all"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--folder", type=Path, help="where the broker keeps its data; kept afterwards")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        # `kill -USR1` shows where a worker waits.
        faulthandler.register(signal.SIGUSR1)
        Worker(arguments.bootstrap, arguments.worker, arguments.protocol).run()
        return 0
    print(f"exactly once: {arguments.seconds:g} s, seed {arguments.seed}")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="weir-eos-"))
    try:
        print(run(folder, arguments.seconds, arguments.seed, arguments.protocol))
    except Violation as violation:
        print(f"VIOLATION (seed {arguments.seed}, data in {folder}): {violation}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
