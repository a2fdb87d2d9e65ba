"""Fetch sessions (KIP-227) on a bare socket; Java, sarama and franz-go use them by default. The same on Apache Kafka."""

from __future__ import annotations

import pytest

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.wire import Wire, record_batch

CLIENT = BY_NAME["confluent-kafka"]
FETCH, PRODUCE = 1, 0
NONE, SESSION_ID_NOT_FOUND, INVALID_SESSION_EPOCH = 0, 70, 71


class Session:
    """A consumer's half of a session over `partitions` of one topic."""

    def __init__(self, port: int, topic: str):
        self.wire, self.topic = Wire(port), topic
        self.id, self.epoch = 0, 0

    def fetch(self, offsets: dict[int, int] | None = None, forget: list[int] | None = None, epoch: int | None = None):
        partitions = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
            for index, offset in (offsets or {}).items()
        ]
        asked = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": self.id}
        asked |= {"session_epoch": self.epoch if epoch is None else epoch}
        asked |= {"topics": [{"topic": self.topic, "partitions": partitions}] if partitions else []}
        asked |= {"forgotten_topics_data": [{"topic": self.topic, "partitions": forget}] if forget else []}
        answer = self.wire.send(FETCH, 12, asked)
        if answer.error_code == NONE:
            self.id, self.epoch = answer.session_id, self.epoch + 1
        return answer

    @staticmethod
    def answered(answer) -> dict[int, int]:
        """Partition -> bytes of records."""
        found = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                assert partition.error_code == NONE
                found[partition.partition_index] = len(partition.records or b"")
        return found

    def produce(self, index: int) -> None:
        asked = {"index": index, "records": record_batch(b"row")}
        topics = [{"name": self.topic, "partition_data": [asked]}]
        answer = self.wire.send(PRODUCE, 9, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})
        assert answer.responses[0].partition_responses[0].error_code == NONE


@pytest.fixture
def session(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 3)
    # Kafka leads a new topic a moment after it was made.
    probe = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "session_epoch": -1}
    probe |= {"topics": [{"topic": topic, "partitions": [{"partition": n, "fetch_offset": 0} for n in range(3)]}]}
    wire = Wire(broker.kafka_port)

    def leads():
        return all(partition.error_code == NONE for partition in wire.send(FETCH, 12, probe).responses[0].partitions)

    wait_until(leads, 10, "a leader of every partition")
    return Session(broker.kafka_port, topic)


def test_only_what_changed_is_asked_and_answered(session):
    opened = session.fetch({0: 0, 1: 0, 2: 0})
    assert opened.session_id > 0
    assert session.answered(opened) == {0: 0, 1: 0, 2: 0}
    assert session.answered(session.fetch()) == {}

    session.produce(1)
    news = session.answered(session.fetch())
    assert list(news) == [1] and news[1] > 0
    # Its position moves on; the others are still in the session.
    assert session.answered(session.fetch({1: 1})) == {}
    session.produce(2)
    assert list(session.answered(session.fetch())) == [2]

    assert session.answered(session.fetch({2: 1}, forget=[0])) == {}
    session.produce(0)
    assert session.answered(session.fetch()) == {}, "partition 0 was forgotten"


def test_a_wrong_epoch_or_id_is_an_error_alone_and_a_session_is_closed_by_its_client(session):
    session.fetch({0: 0})
    wrong = session.fetch(epoch=7)
    assert (wrong.error_code, wrong.session_id, len(wrong.responses)) == (INVALID_SESSION_EPOCH, 0, 0)
    assert session.fetch().error_code == NONE, "the session is still there"

    closing = session.fetch({0: 0}, epoch=-1)
    assert (closing.error_code, closing.session_id) == (NONE, 0)
    assert list(session.answered(closing)) == [0], "a last fetch is a full one"
    session.id, session.epoch = 123_456_789, 1
    assert session.fetch().error_code == SESSION_ID_NOT_FOUND
