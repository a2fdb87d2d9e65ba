"""kafka-python: pure Python, its own protocol code. It alone of the Python clients shows each record's own error."""

from __future__ import annotations

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from ..record import Record
from .base import (
    CLASSIC,
    EVERYTHING,
    KIP848,
    NULL_HEADER_VALUE,
    REPLACE_CONFIG,
    Client,
    GroupMember,
    Membership,
    Refused,
    collect,
)


def record_of(message) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp=message.timestamp,
        offset=message.offset,
        partition=message.partition,
    )


def poll_once(consumer: KafkaConsumer, seconds: float) -> list[Record]:
    polled = consumer.poll(timeout_ms=int(seconds * 1000))
    return [record_of(message) for messages in polled.values() for message in messages]


class Taken(ConsumerRebalanceListener):
    """Remembers what was revoked."""

    def __init__(self):
        self.partitions: list[int] = []

    def on_partitions_revoked(self, revoked):
        self.partitions += [gone.partition for gone in revoked]

    def on_partitions_assigned(self, assigned):
        pass


class Member(GroupMember):
    def __init__(self, bootstrap: str, group: str, topic: str, how: Membership = CLASSIC, **more):
        self.taken = Taken()
        assignor = CooperativeStickyAssignor if how.cooperative else RangePartitionAssignor
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_instance_id=how.instance,
            partition_assignment_strategy=(assignor,),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=how.session_timeout_ms,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=100,
            **more,
        )
        self.consumer.subscribe([topic], listener=self.taken)

    def poll(self, seconds: float) -> list[Record]:
        return poll_once(self.consumer, seconds)

    def assignment(self) -> set[int]:
        return {held.partition for held in self.consumer.assignment()}

    def revoked(self) -> list[int]:
        return self.taken.partitions

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class KafkaPython(Client):
    name = "kafka-python"
    # It reads a null header value but refuses to send one; its AlterConfigs first fetches the configs to keep.
    features = EVERYTHING - {NULL_HEADER_VALUE, REPLACE_CONFIG, KIP848}

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=2_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(60)
            offsets, errors = [], []
            for future in futures:
                try:
                    offsets.append(future.get(timeout=30).offset)
                except KafkaError as error:
                    errors.append(str(error))
            if errors:
                raise Refused("; ".join(dict.fromkeys(errors)))
            return offsets
        finally:
            producer.close(timeout=10)

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, read_committed=False, timeout=60):
        more = {} if client_id is None else {"client_id": client_id}
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            max_poll_records=5000,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            max_partition_fetch_bytes=4_000_000,
            **more,
        )
        try:
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek(TopicPartition(topic, partition), start)
            return collect(lambda seconds: poll_once(consumer, seconds), count, timeout, self.name)
        except KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            consumer.close(autocommit=False)

    def join(self, bootstrap, group, topic, how=CLASSIC):
        return Member(bootstrap, group, topic, how)

    @staticmethod
    def _transactional(bootstrap, transactional_id):
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        producer.init_transactions()
        return producer

    def transact(self, bootstrap, topic, transactional_id, transactions):
        producer = self._transactional(bootstrap, transactional_id)
        try:
            for records, commit in transactions:
                producer.begin_transaction()
                for record in records:
                    sent = producer.send(topic, record.value, record.key, partition=record.partition)
                    sent.get(timeout=30)
                producer.commit_transaction() if commit else producer.abort_transaction()
        finally:
            producer.close(timeout=10)

    def copy_in_transaction(self, bootstrap, topic, to, group, transactional_id, count, commit):
        member = Member(bootstrap, group, topic, isolation_level="read_committed")
        producer = self._transactional(bootstrap, transactional_id)
        try:
            producer.begin_transaction()
            for record in member.read(count):
                producer.send(to, record.value, record.key).get(timeout=30)
            consumer = member.consumer
            offsets = {held: OffsetAndMetadata(consumer.position(held), "", -1) for held in consumer.assignment()}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction() if commit else producer.abort_transaction()
        finally:
            producer.close(timeout=10)
            member.close()

    def offset_at(self, bootstrap, topic, timestamp, partition=0):
        consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        try:
            where = TopicPartition(topic, partition)
            return consumer.offsets_for_times({where: timestamp})[where].offset
        finally:
            consumer.close(autocommit=False)

    # -- admin ----------------------------------------------------------------

    @staticmethod
    def _with_admin(bootstrap, act):
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            return act(admin)
        except KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            admin.close()

    def create_topic(self, bootstrap, topic, partitions=1, config=None):
        wanted = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}}

        def act(admin):
            answer = admin.create_topics(wanted, raise_errors=False)["topics"][0]
            if answer["error_code"]:
                raise Refused(answer["error_message"] or f"error {answer['error_code']}")

        self._with_admin(bootstrap, act)

    def delete_topic(self, bootstrap, topic):
        self._with_admin(bootstrap, lambda admin: admin.delete_topics([topic]))

    def topic_config(self, bootstrap, topic):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        answer = self._with_admin(bootstrap, lambda admin: admin.describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in answer["topic"][topic].items()}

    def alter_topic_config(self, bootstrap, topic, config):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=config)
        self._with_admin(bootstrap, lambda admin: admin.alter_configs([resource], incremental=True))

    def topics(self, bootstrap):
        listed = self._with_admin(bootstrap, lambda admin: admin.describe_topics())
        return {topic["name"]: len(topic["partitions"]) for topic in listed}
