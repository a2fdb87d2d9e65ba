"""Reading much, fast, and in order: whole topics as streams, and columns as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from .clients import aio
from .clients.base import Refused


def with_librdkafka(
    bootstrap: str,
    topic: str,
    count: int,
    partition: int = 0,
    client_id: str = "reader",
    start: int = 0,
    timeout: float = 60,
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of `count` records through confluent-kafka."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "check.crcs": True,
        "client.id": client_id,
        "auto.offset.reset": "error",
        "queued.min.messages": 200_000,
        "fetch.message.max.bytes": 8_000_000,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        seen = 0
        while seen < count:
            messages = consumer.consume(min(20_000, count - seen), timeout)
            if not messages:
                raise TimeoutError(
                    f"confluent-kafka read {seen} of {count} records of {topic}-{partition}, then none for {timeout:g} s"
                )
            for message in messages:
                if message.error():
                    raise Refused(message.error().str())
                yield message.offset(), message.key(), message.value()
            seen += len(messages)
    finally:
        consumer.close()


def with_aiokafka(
    bootstrap: str, topic: str, count: int, partition: int = 0, timeout: float = 60
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of `count` records through aiokafka, whose protocol code is nobody else's."""

    async def open_consumer():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=8_000_000,
            check_crcs=True,
        )
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, partition)])
        consumer.seek(AioTopicPartition(topic, partition), 0)
        return consumer

    consumer = aio.run(open_consumer())
    try:
        seen = 0
        while seen < count:
            polled = aio.run(consumer.getmany(timeout_ms=int(timeout * 1000), max_records=min(20_000, count - seen)))
            messages = [message for of_partition in polled.values() for message in of_partition]
            if not messages:
                raise TimeoutError(
                    f"aiokafka read {seen} of {count} records of {topic}-{partition}, then none for {timeout:g} s"
                )
            for message in messages:
                yield message.offset, message.key, message.value
            seen += len(messages)
    finally:
        aio.run(consumer.stop())


READERS = {"confluent-kafka": with_librdkafka, "aiokafka": with_aiokafka}


def assert_same_bytes(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, where: str = "") -> None:
    """Both readers get exactly `values`, at offsets 0, 1, 2, ..."""
    for name, reader in READERS.items():
        count = 0
        for offset, _key, value in reader(bootstrap, topic, len(values), partition):
            assert offset == count, f"{where}: {name} got offset {offset} after {count - 1}"
            assert value == values[count], (
                f"{where}: {name} at offset {offset} got\n{value!r}\nproduced was\n{values[count]!r}"
            )
            count += 1
        assert count == len(values)


def read_arrow(
    bootstrap: str,
    topic: str,
    columns: list[str] | None,
    end: int,
    partition: int = 0,
    start: int = 0,
    timeout: float = 30,
) -> pa.Table:
    """Offsets `start..end` of a partition as Arrow, by a stock librdkafka consumer that asks in its client id.

    Each Kafka record is one Arrow batch, and its offset is that of the batch's last row.
    """
    options = "weir.format=arrow" if columns is None else f"weir.columns={','.join(columns)};weir.format=arrow"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "client.id": f"arrow-reader;{options}",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 8_000_000,
        }
    )
    tables, reached = [], start - 1
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while reached < end - 1:
            message = consumer.poll(timeout)
            if message is None:
                raise TimeoutError(f"Arrow batches of {topic}-{partition} ended at offset {reached}, wanted {end - 1}")
            if message.error():
                raise Refused(message.error().str())
            assert message.offset() > reached, f"offset {message.offset()} after {reached}"
            with pa.ipc.open_stream(message.value()) as stream:
                tables.append(stream.read_all())
            reached = message.offset()
    finally:
        consumer.close()
    return pa.concat_tables(tables)
