"""confluent-kafka: librdkafka as its wheel ships it."""

from __future__ import annotations

import warnings

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ..record import Record
from .base import CLASSIC, Client, GroupMember, Membership, Refused, collect


def record_of(message: Message) -> Record:
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple((name, value) for name, value in message.headers() or ()),
        timestamp=message.timestamp()[1],
        offset=message.offset(),
        partition=message.partition(),
    )


def consumer_settings(bootstrap: str, **more) -> dict:
    return {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
        "log_level": 0,
        "fetch.wait.max.ms": 100,
        **more,
    }


def group_settings(group: str, how: Membership) -> dict:
    settings = {"group.id": group}
    if how.instance:
        settings["group.instance.id"] = how.instance
    if how.server_side:
        return {**settings, "group.protocol": "consumer"}
    return {
        **settings,
        "session.timeout.ms": how.session_timeout_ms,
        "heartbeat.interval.ms": 500,
        "partition.assignment.strategy": "cooperative-sticky" if how.cooperative else "range",
    }


class Member(GroupMember):
    def __init__(self, bootstrap: str, group: str, topic: str, how: Membership = CLASSIC):
        self.taken: list[int] = []
        self.consumer = Consumer(consumer_settings(bootstrap, **group_settings(group, how)))
        self.consumer.subscribe([topic], on_revoke=self._revoke)

    def _revoke(self, _consumer, partitions):
        self.taken += [gone.partition for gone in partitions]

    def poll(self, seconds: float) -> list[Record]:
        messages = self.consumer.consume(500, seconds)
        for message in messages:
            if message.error():
                raise Refused(message.error().str())
        return [record_of(message) for message in messages]

    def assignment(self) -> set[int]:
        return {held.partition for held in self.consumer.assignment()}

    def revoked(self) -> list[int]:
        return self.taken

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class Confluent(Client):
    name = "confluent-kafka"

    def __init__(self):
        self._admins: dict[str, AdminClient] = {}

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "message.max.bytes": 2_000_000,
            "message.timeout.ms": 30_000,
            "linger.ms": 5,
        }
        producer = Producer(settings)
        offsets, errors = [-1] * len(records), []

        def delivered(index):
            def callback(error, message):
                if error is not None:
                    errors.append(error.str())
                else:
                    offsets[index] = message.offset()

            return callback

        for index, record in enumerate(records):
            more = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                on_delivery=delivered(index),
                **more,
            )
            producer.poll(0)
        producer.flush(60)
        if errors:
            raise Refused("; ".join(dict.fromkeys(errors)))
        return offsets

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, read_committed=False, timeout=60):
        more = {
            "group.id": "unused",
            "fetch.message.max.bytes": 4_000_000,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        }
        if client_id is not None:
            more["client.id"] = client_id
        consumer = Consumer(consumer_settings(bootstrap, **more))
        try:
            consumer.assign([TopicPartition(topic, partition, start)])

            def poll(seconds):
                messages = consumer.consume(1000, seconds)
                for message in messages:
                    if message.error():
                        raise Refused(message.error().str())
                return [record_of(message) for message in messages]

            return collect(poll, count, timeout, self.name)
        finally:
            consumer.close()

    def join(self, bootstrap, group, topic, how=CLASSIC):
        return Member(bootstrap, group, topic, how)

    @staticmethod
    def _transactional(bootstrap, transactional_id):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
        producer.init_transactions(30)
        return producer

    def transact(self, bootstrap, topic, transactional_id, transactions):
        producer = self._transactional(bootstrap, transactional_id)
        for records, commit in transactions:
            producer.begin_transaction()
            for record in records:
                producer.produce(topic, record.value, record.key, record.partition)
            producer.flush(30)  # so that what is aborted was in the log
            producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    def copy_in_transaction(self, bootstrap, topic, to, group, transactional_id, count, commit):
        producer = self._transactional(bootstrap, transactional_id)
        member = Member(bootstrap, group, topic)
        try:
            producer.begin_transaction()
            for record in member.read(count):
                producer.produce(to, record.value, record.key)
            consumer = member.consumer
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        finally:
            member.close()

    def offset_at(self, bootstrap, topic, timestamp, partition=0):
        consumer = Consumer(consumer_settings(bootstrap, **{"group.id": "unused"}))
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], 10)
            return found.offset
        finally:
            consumer.close()

    # -- admin ----------------------------------------------------------------

    def _admin(self, bootstrap):
        # Kept: a handle that is collected fails the requests it has in flight.
        if bootstrap not in self._admins:
            self._admins[bootstrap] = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        return self._admins[bootstrap]

    @staticmethod
    def _finish(futures):
        for future in futures.values():
            try:
                result = future.result(30)
            except KafkaException as error:
                raise Refused(error.args[0].str()) from error
        return result

    def create_topic(self, bootstrap, topic, partitions=1, config=None):
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
        self._finish(self._admin(bootstrap).create_topics([wanted]))

    def delete_topic(self, bootstrap, topic):
        self._finish(self._admin(bootstrap).delete_topics([topic]))

    def topic_config(self, bootstrap, topic):
        entries = self._finish(self._admin(bootstrap).describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def alter_topic_config(self, bootstrap, topic, config):
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        self._finish(self._admin(bootstrap).incremental_alter_configs([resource]))

    def replace_topic_config(self, bootstrap, topic, config):
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, and what this is about
            self._finish(self._admin(bootstrap).alter_configs([resource]))

    def topics(self, bootstrap):
        listed = self._admin(bootstrap).list_topics(timeout=10).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}
