"""Transactions: the same few calls in each client that has them, and one request at a time on the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioError
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from .process import wait_until
from .wire import Wire, record_batch

NONE, CONCURRENT_TRANSACTIONS, LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR = 0, 51, 14, 15, 16
NOT_LEADER = 6
TRANSACTIONAL = 1 << 4


class Fenced(Exception):
    """Another instance has taken over, or time was up; the client calls it fatal."""


class Producer:
    """A transactional producer of some client library. Calls block until the broker has answered."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000): ...

    def begin(self) -> None: ...

    def send(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None: ...

    def send_offset(self, group: str, topic: str, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentProducer(Producer):
    name = "confluent-kafka"

    def __init__(self, bootstrap, transactional_id, timeout_ms=60_000):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        settings |= {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": min(timeout_ms, 30_000)}
        self.bootstrap = bootstrap
        self.producer = confluent_kafka.Producer({**settings, "log_level": 0})
        self._call(lambda: self.producer.init_transactions(30))

    @staticmethod
    def _call(act):
        while True:
            try:
                return act()
            except confluent_kafka.KafkaException as refused:
                error = refused.args[0]
                if error.fatal() or error.code() == confluent_kafka.KafkaError._FENCED:
                    raise Fenced(error.str()) from refused
                if not error.retriable():
                    raise

    def begin(self):
        self._call(self.producer.begin_transaction)

    def send(self, topic, values, partition=0):
        failed = []
        for value in values:
            self.producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
            )
        self._call(lambda: self.producer.flush(30))
        for error in failed:
            if error.fatal() or error.code() in (
                confluent_kafka.KafkaError._FENCED,
                confluent_kafka.KafkaError._PURGE_QUEUE,
            ):
                raise Fenced(error.str())
            raise confluent_kafka.KafkaException(error)

    def send_offset(self, group, topic, offset):
        # The group's metadata come from a consumer; one that has not joined is in no generation.
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        offsets = [confluent_kafka.TopicPartition(topic, 0, offset)]
        metadata = consumer.consumer_group_metadata()
        self._call(lambda: self.producer.send_offsets_to_transaction(offsets, metadata, 30))
        consumer.close()

    def commit(self):
        self._call(lambda: self.producer.commit_transaction(30))

    def abort(self):
        self._call(lambda: self.producer.abort_transaction(30))

    def close(self):
        self.producer = None


class KafkaPythonProducer(Producer):
    name = "kafka-python"

    def __init__(self, bootstrap, transactional_id, timeout_ms=60_000):
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._call(self.producer.init_transactions)

    @staticmethod
    def _call(act):
        try:
            return act()
        except KafkaError as refused:
            if type(refused).__name__ in ("ProducerFencedError", "InvalidProducerEpochError"):
                raise Fenced(str(refused)) from refused
            raise

    def begin(self):
        self._call(self.producer.begin_transaction)

    def send(self, topic, values, partition=0):
        sent = [self._call(lambda v=value: self.producer.send(topic, v, partition=partition)) for value in values]
        for future in sent:
            self._call(lambda f=future: f.get(30))

    def send_offset(self, group, topic, offset):
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._call(lambda: self.producer.send_offsets_to_transaction(offsets, group))

    def commit(self):
        self._call(self.producer.commit_transaction)

    def abort(self):
        self._call(self.producer.abort_transaction)

    def close(self):
        self.producer.close(timeout=1)


class AioProducer(Producer):
    name = "aiokafka"

    def __init__(self, bootstrap, transactional_id, timeout_ms=60_000):
        self.loop = asyncio.new_event_loop()

        async def start():
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            await producer.start()
            return producer

        self.producer = self._call(start())

    def _call(self, act):
        try:
            return self.loop.run_until_complete(asyncio.wait_for(act, 60))
        except AioError as refused:
            if type(refused).__name__ in ("ProducerFenced", "InvalidProducerEpoch"):
                raise Fenced(str(refused)) from refused
            raise

    def begin(self):
        self._call(self.producer.begin_transaction())

    def send(self, topic, values, partition=0):
        async def all_of_them():
            sent = [await self.producer.send(topic, value, partition=partition) for value in values]
            await asyncio.gather(*sent)

        self._call(all_of_them())

    def send_offset(self, group, topic, offset):
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self._call(self.producer.send_offsets_to_transaction(offsets, group))

    def commit(self):
        self._call(self.producer.commit_transaction())

    def abort(self):
        self._call(self.producer.abort_transaction())

    def close(self):
        self._call(self.producer.stop())
        self.loop.close()


PRODUCERS = (ConfluentProducer, KafkaPythonProducer, AioProducer)


def read_confluent(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    """Everything from the first to the last offset that this isolation may see, which the client must reach by itself."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    values, deadline = [], time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return values
        values.append(message.value())
    raise TimeoutError(f"confluent-kafka did not reach the end of {topic}; it read {values}")


def read_kafka_python(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False, consumer_timeout_ms=30_000
    )
    where = TopicPartition(topic, 0)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    end, values = consumer.end_offsets([where])[where], []
    deadline = time.monotonic() + 30
    while consumer.position(where) < end:
        assert time.monotonic() < deadline, f"kafka-python stays at {consumer.position(where)} of {end}: {values}"
        for records in consumer.poll(500).values():
            values += [record.value for record in records]
    consumer.close()
    return values


def read_aiokafka(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    async def read():
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
        )
        await consumer.start()
        where = aiokafka.TopicPartition(topic, 0)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        end, values = (await consumer.end_offsets([where]))[where], []
        deadline = time.monotonic() + 30
        while await consumer.position(where) < end:
            assert time.monotonic() < deadline, f"aiokafka stays before {end}: {values}"
            for records in (await consumer.getmany(where, timeout_ms=500)).values():
                values += [record.value for record in records]
        await consumer.stop()
        return values

    return asyncio.run(read())


def read_kcat(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    import subprocess

    command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%s\\n"]
    found = subprocess.run(
        [*command, "-X", f"isolation.level={isolation}"], capture_output=True, timeout=30, check=True
    )
    return found.stdout.splitlines()


READERS = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
    "kcat": read_kcat,
}


class Identity(NamedTuple):
    """A producer as the broker knows it."""

    id: int
    epoch: int


class WireProducer:
    """A transactional producer, request by request. `second` speaks the second version of transactions (KIP-890)."""

    def __init__(self, port: int, transactional_id: str, second: bool = True):
        self.wire, self.id, self.second = Wire(port), transactional_id, second
        self.who = Identity(-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000, expected: Identity | None = None, version: int = 5):
        """The answer, once it is not that the coordinator is busy."""
        asked = {"transactional_id": self.id, "transaction_timeout_ms": timeout_ms}
        expected = expected or Identity(-1, -1)
        asked |= {"producer_id": expected.id, "producer_epoch": expected.epoch}

        def settled():
            # Kafka makes the coordinator's topic when it is looked for.
            self.wire.send(10, 3, {"key": self.id, "key_type": 1})
            answer = self.wire.send(22, version, asked)
            busy = (CONCURRENT_TRANSACTIONS, LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR)
            return None if answer.error_code in busy else answer

        answer = wait_until(settled, 30, "the coordinator to be free")
        if answer.error_code == NONE:
            self.who, self.sequences = Identity(answer.producer_id, answer.producer_epoch), {}
        return answer

    def add(self, topic: str, *partitions: int, version: int = 3, who: Identity | None = None) -> int:
        who = who or self.who
        topics = [{"name": topic, "partitions": list(partitions or (0,))}]
        asked = {"v3_and_below_transactional_id": self.id, "v3_and_below_producer_id": who.id}
        asked |= {"v3_and_below_producer_epoch": who.epoch, "v3_and_below_topics": topics}
        answer = self.wire.send(24, version, asked)
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    def verify(self, topic: str, partition: int = 0, version: int = 4) -> int:
        transaction = {"transactional_id": self.id, "producer_id": self.who.id, "producer_epoch": self.who.epoch}
        transaction |= {"verify_only": True, "topics": [{"name": topic, "partitions": [partition]}]}
        answer = self.wire.send(24, version, {"transactions": [transaction]})
        return answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int | None = None,
        who: Identity | None = None,
        attributes: int = TRANSACTIONAL,
        sequence: int | None = None,
    ) -> int:
        """The partition's error code."""
        who, key = who or self.who, (topic, partition)
        first = self.sequences.get(key, 0) if sequence is None else sequence
        batch = record_batch(*values, attributes=attributes, producer=(who.id, who.epoch, first))
        asked = {"transactional_id": self.id if attributes & TRANSACTIONAL else None, "acks": -1, "timeout_ms": 5000}
        asked["topic_data"] = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]

        def answered():
            # A topic that was just made may have no leader yet.
            answer = self.wire.send(0, version or (12 if self.second else 9), asked)
            code = answer.responses[0].partition_responses[0].error_code
            return None if code == NOT_LEADER else (code,)

        (code,) = wait_until(answered, 20, f"{topic} led by somebody")
        if code == NONE:
            self.sequences[key] = first + len(values)
        return code

    def add_offsets(self, group: str, version: int = 3) -> int:
        asked = {"transactional_id": self.id, "producer_id": self.who.id, "producer_epoch": self.who.epoch}
        return self.wire.send(25, version, asked | {"group_id": group}).error_code

    def commit_offset(
        self, group: str, topic: str, offset: int, *, member: str = "", generation: int = -1, version: int | None = None
    ) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        asked = {"transactional_id": self.id, "group_id": group, "member_id": member, "generation_id": generation}
        asked |= {"producer_id": self.who.id, "producer_epoch": self.who.epoch, "group_instance_id": None}
        asked["topics"] = [{"name": topic, "partitions": [partition]}]
        answer = self.wire.send(28, version or (5 if self.second else 3), asked)
        return answer.topics[0].partitions[0].error_code

    def end(self, commit: bool, *, version: int | None = None, who: Identity | None = None):
        """The answer. Under the second version the next epoch is taken over."""
        who, version = who or self.who, version or (5 if self.second else 3)
        asked = {"transactional_id": self.id, "producer_id": who.id, "producer_epoch": who.epoch, "committed": commit}
        answer = self.wire.send(26, version, asked)
        if answer.error_code == NONE and version >= 5:
            self.who, self.sequences = Identity(answer.producer_id, answer.producer_epoch), {}
        return answer

    def describe(self):
        return self.wire.send(65, 0, {"transactional_ids": [self.id]}).transaction_states[0]

    def state(self) -> str:
        return self.describe().transaction_state

    def wait_for(self, state: str) -> None:
        wait_until(lambda: self.state() == state, 20, f"{self.id} {state}, which is {self.state()}")


def end_offset(wire: Wire, topic: str, isolation: int) -> int:
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    asked = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": [partition]}]}
    return wire.send(2, 5, asked).topics[0].partitions[0].offset


def committed_offset(wire: Wire, group: str, topic: str, stable: bool = False):
    """The partition's answer to OffsetFetch."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    asked = {"group_id": group, "topics": topics, "require_stable": stable}
    return wire.send(9, 7, asked).topics[0].partitions[0]


def fetch(wire: Wire, topic: str, offset: int, isolation: int):
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    asked = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    asked |= {"isolation_level": isolation, "topics": [{"topic": topic, "partitions": [partition]}]}
    return wire.send(1, 12, asked).responses[0].partitions[0]
