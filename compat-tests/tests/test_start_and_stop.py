"""Starting, idling and stopping: what an operator notices first."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from harness.broker import Broker
from harness.clients import BY_NAME
from harness.record import Record

pytestmark = pytest.mark.weir_only

START_GOAL_MS = 100
IDLE_RSS_GOAL_MB = 40

# Metadata v0 for all topics: size, key 3, version 0, correlation id, client id "t", zero topics.
METADATA_REQUEST = struct.pack(">hhih1si", 3, 0, 7, 1, b"t", 0)


def first_metadata_answer(port: int) -> None:
    """Ask for Metadata until something answers, on a bare socket so that no client's own start-up is measured."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(struct.pack(">i", len(METADATA_REQUEST)) + METADATA_REQUEST)
                answer = connection.recv(8)
                assert struct.unpack(">i", answer[4:8])[0] == 7
                return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.0005)


def test_start_on_an_empty_folder_answers_metadata_within_the_goal(tmp_path):
    times = []
    for attempt in range(5):
        broker = Broker(tmp_path / f"{attempt}")
        started = time.monotonic()
        broker.spawn(broker.command())
        first_metadata_answer(broker.kafka_port)
        times.append((time.monotonic() - started) * 1000)
        broker.stop()
    best = sorted(times)[len(times) // 2]
    print(
        f"empty start to first Metadata answer: median {best:.0f} ms of {[f'{t:.0f}' for t in times]}, goal {START_GOAL_MS} ms"
    )
    assert best <= START_GOAL_MS


def test_idle_memory_stays_within_the_goal(start_broker):
    broker = start_broker()
    BY_NAME["confluent-kafka"].topics(broker.bootstrap)
    rss = broker.rss_bytes() / (1 << 20)
    print(f"idle resident memory: {rss:.1f} MB, goal {IDLE_RSS_GOAL_MB} MB")
    assert rss <= IDLE_RSS_GOAL_MB


def test_sigterm_exits_with_zero_within_seconds_even_with_clients_connected(start_broker, topic):
    broker = start_broker()
    client = BY_NAME["confluent-kafka"]
    client.create_topic(broker.bootstrap, topic)
    member = client.join(broker.bootstrap, "g", topic)
    member.poll(1)
    started = time.monotonic()
    broker.stop(timeout=10)
    print(f"SIGTERM to exit: {time.monotonic() - started:.2f} s")
    broker.start()
    member.close()


def test_health_and_metrics_answer(start_broker, topic):
    broker = start_broker()
    broker.request("GET", "/health/live")
    broker.request("GET", "/health/ready")
    BY_NAME["confluent-kafka"].create_topic(broker.bootstrap, topic)
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Record(b"x")])
    assert broker.metrics()


def test_an_unknown_setting_is_refused_at_start_by_name(tmp_path):
    broker = Broker(tmp_path, {"weir.tail.byte": "1"})
    with pytest.raises(AssertionError):
        broker.start()
    assert broker.process.returncode == 2, "a usage error"
    assert "`weir.tail.byte`" in broker.log_tail() and "`weir.tail.bytes`" in broker.log_tail()


def test_a_second_broker_on_the_same_folder_is_refused(start_broker, tmp_path):
    start_broker(folder=tmp_path / "one")
    second = Broker(tmp_path / "one")
    second.log_file = tmp_path / "second.log"
    with pytest.raises(AssertionError):
        second.start()
    assert second.process.returncode == 1
    assert str(second.data) in second.log_tail() or "in use" in second.log_tail()
