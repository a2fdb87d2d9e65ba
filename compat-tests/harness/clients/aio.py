"""aiokafka: asyncio, protocol code of its own with older API versions than the others. Driven from one loop thread."""

from __future__ import annotations

import asyncio
import threading

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from ..record import Record
from .base import (
    ALTER_CONFIG,
    CLASSIC,
    COOPERATIVE,
    EVERYTHING,
    KIP848,
    Client,
    GroupMember,
    Membership,
    Refused,
    collect,
)

_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine, timeout: float = 120):
    """Run a coroutine on the shared loop thread: heartbeats go on while the test does something else."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, daemon=True, name="aiokafka").start()
    return asyncio.run_coroutine_threadsafe(coroutine, _loop).result(timeout)


def record_of(message) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp=message.timestamp,
        offset=message.offset,
        partition=message.partition,
    )


async def get_many(consumer: AIOKafkaConsumer, seconds: float) -> list[Record]:
    polled = await consumer.getmany(timeout_ms=int(seconds * 1000), max_records=5000)
    return [record_of(message) for messages in polled.values() for message in messages]


class Taken(ConsumerRebalanceListener):
    """Remembers what was revoked."""

    def __init__(self):
        self.partitions: list[int] = []

    async def on_partitions_revoked(self, revoked):
        self.partitions += [gone.partition for gone in revoked]

    async def on_partitions_assigned(self, assigned):
        pass


class Member(GroupMember):
    def __init__(self, bootstrap: str, group: str, topic: str, how: Membership = CLASSIC, **more):
        self.taken = Taken()

        async def start():
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=how.instance,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=how.session_timeout_ms,
                heartbeat_interval_ms=500,
                fetch_max_wait_ms=100,
                **more,
            )
            consumer.subscribe([topic], listener=self.taken)
            # start() waits for the assignment, which another member's silence can delay: let poll wait instead.
            self.starting = asyncio.ensure_future(consumer.start())
            return consumer

        self.consumer = run(start())

    def poll(self, seconds: float) -> list[Record]:
        async def act():
            await self.starting
            return await get_many(self.consumer, seconds)

        return run(act())

    def assignment(self) -> set[int]:
        async def act():
            return {held.partition for held in self.consumer.assignment()}

        return run(act())

    def revoked(self) -> list[int]:
        return self.taken.partitions

    def commit(self) -> None:
        run(self.consumer.commit())

    def close(self) -> None:
        async def act():
            await self.starting
            await self.consumer.stop()

        run(act())


class AioKafka(Client):
    name = "aiokafka"
    # Its alter_configs is the old, non-incremental AlterConfigs (key 33).
    features = EVERYTHING - {ALTER_CONFIG, COOPERATIVE, KIP848}

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        async def act():
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks="all",
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=5,
                max_request_size=2_000_000,
            )
            await producer.start()
            try:
                waiting = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                return await asyncio.gather(*waiting, return_exceptions=True)
            finally:
                await producer.stop()

        answers = run(act())
        errors = [str(answer) for answer in answers if isinstance(answer, Exception)]
        if errors:
            raise Refused("; ".join(dict.fromkeys(errors)))
        return [answer.offset for answer in answers]

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, read_committed=False, timeout=60):
        async def open_consumer():
            more = {} if client_id is None else {"client_id": client_id}
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=100,
                max_partition_fetch_bytes=4_000_000,
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                **more,
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek(TopicPartition(topic, partition), start)
            return consumer

        consumer = run(open_consumer())
        try:
            return collect(lambda seconds: run(get_many(consumer, seconds)), count, timeout, self.name)
        except KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            run(consumer.stop())

    def join(self, bootstrap, group, topic, how=CLASSIC):
        return Member(bootstrap, group, topic, how)

    @staticmethod
    async def _transactional(bootstrap, transactional_id):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        return producer

    def transact(self, bootstrap, topic, transactional_id, transactions):
        async def act():
            producer = await self._transactional(bootstrap, transactional_id)
            try:
                for records, commit in transactions:
                    await producer.begin_transaction()
                    for record in records:
                        await producer.send_and_wait(topic, record.value, record.key, record.partition)
                    await (producer.commit_transaction() if commit else producer.abort_transaction())
            finally:
                await producer.stop()

        run(act())

    def copy_in_transaction(self, bootstrap, topic, to, group, transactional_id, count, commit):
        member = Member(bootstrap, group, topic, isolation_level="read_committed")
        records = member.read(count)

        async def act():
            producer = await self._transactional(bootstrap, transactional_id)
            try:
                await producer.begin_transaction()
                for record in records:
                    await producer.send_and_wait(to, record.value, record.key)
                consumer = member.consumer
                offsets = {held: await consumer.position(held) for held in consumer.assignment()}
                await producer.send_offsets_to_transaction(offsets, group)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
            finally:
                await producer.stop()

        try:
            run(act())
        finally:
            member.close()

    def offset_at(self, bootstrap, topic, timestamp, partition=0):
        async def act():
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
            await consumer.start()
            try:
                where = TopicPartition(topic, partition)
                return (await consumer.offsets_for_times({where: timestamp}))[where].offset
            finally:
                await consumer.stop()

        return run(act())

    # -- admin ----------------------------------------------------------------

    @staticmethod
    def _with_admin(bootstrap, act):
        async def with_admin():
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                return await act(admin)
            finally:
                await admin.close()

        try:
            return run(with_admin())
        except KafkaError as error:
            raise Refused(str(error)) from error

    def create_topic(self, bootstrap, topic, partitions=1, config=None):
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=config or {})

        async def act(admin):
            answer = await admin.create_topics([wanted])
            _, code, *message = answer.topic_errors[0]
            if code:
                raise Refused(message[0] if message and message[0] else str(for_code(code)))

        self._with_admin(bootstrap, act)

    def delete_topic(self, bootstrap, topic):
        self._with_admin(bootstrap, lambda admin: admin.delete_topics([topic]))

    def topic_config(self, bootstrap, topic):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._with_admin(bootstrap, lambda admin: admin.describe_configs([resource]))
        _code, _message, _type, _name, entries = answer.resources[0]
        return {entry[0]: entry[1] for entry in entries}

    def replace_topic_config(self, bootstrap, topic, config):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)
        (answer,) = self._with_admin(bootstrap, lambda admin: admin.alter_configs([resource]))
        code, message, *_ = answer.resources[0]
        if code:
            raise Refused(message or str(for_code(code)))

    def topics(self, bootstrap):
        listed = self._with_admin(bootstrap, lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in listed}
