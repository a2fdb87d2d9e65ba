"""kafka-python: pure Python, its own protocol code. It alone of the Python clients shows each record's own error."""

from __future__ import annotations

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from ..record import Record
from .base import EVERYTHING, NULL_HEADER_VALUE, REPLACE_CONFIG, Client, GroupMember, Refused, collect


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


class Member(GroupMember):
    def __init__(self, bootstrap: str, group: str, topic: str):
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=100,
        )

    def poll(self, seconds: float) -> list[Record]:
        return poll_once(self.consumer, seconds)

    def assignment(self) -> set[int]:
        return {held.partition for held in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class KafkaPython(Client):
    name = "kafka-python"
    # It reads a null header value but refuses to send one; its AlterConfigs first fetches the configs to keep.
    features = EVERYTHING - {NULL_HEADER_VALUE, REPLACE_CONFIG}

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

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, timeout=60):
        more = {} if client_id is None else {"client_id": client_id}
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            max_poll_records=5000,
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

    def join(self, bootstrap, group, topic):
        return Member(bootstrap, group, topic)

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
