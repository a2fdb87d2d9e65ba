"""Many of everything: what a broker of many partitions and many clients costs."""

from __future__ import annotations

import socket
import statistics
import struct
import time

import pytest

from harness.wire import Wire

pytestmark = pytest.mark.weir_only

PARTITIONS = 10_000
METADATA_GOAL_MS = 50
CONNECTIONS = 1_000
CONNECTION_GOAL_KB = 16

METADATA, CREATE_TOPICS, API_VERSIONS = 3, 19, 18


def test_metadata_of_ten_thousand_partitions_answers_within_the_goal(start_broker):
    broker = start_broker()
    wire = Wire(broker.kafka_port)
    topics = [
        {"name": f"many-{number}", "num_partitions": PARTITIONS // 10, "replication_factor": 1} for number in range(10)
    ]
    created = wire.send(CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000})
    assert [topic.error_code for topic in created.topics] == [0] * 10

    # Encoded by hand, so that the Python side costs nothing: Metadata v9, all topics.
    body = struct.pack(">hhih1sB", METADATA, 9, 1, 1, b"t", 0) + bytes([0, 0, 0, 0, 0])
    request = struct.pack(">i", len(body)) + body
    times = []
    for _ in range(21):
        started = time.monotonic()
        answer = wire.raw(request)
        times.append((time.monotonic() - started) * 1000)
    assert len(answer) > PARTITIONS * 20
    median = statistics.median(times)
    print(
        f"Metadata for {PARTITIONS} partitions: median {median:.1f} ms, worst {max(times):.1f} ms, goal {METADATA_GOAL_MS}"
    )
    assert median <= METADATA_GOAL_MS


def test_an_idle_connection_costs_little_memory(start_broker):
    broker = start_broker()
    # What the first connections bring up once is not the price of a further one.
    warm = [Wire(broker.kafka_port) for _ in range(50)]
    for wire in warm:
        wire.send(API_VERSIONS, 3, {"client_software_name": "idle", "client_software_version": "1"})
    before = broker.rss_bytes()
    body = struct.pack(">hhih1sB", API_VERSIONS, 3, 7, 1, b"t", 0) + b"\x05idle" + b"\x021" + b"\0"
    request = struct.pack(">i", len(body)) + body
    connections = []
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", broker.kafka_port), 10)
        connection.sendall(request)
        size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        assert len(connection.recv(size, socket.MSG_WAITALL)) == size
        connections.append(connection)
    per_connection = (broker.rss_bytes() - before) / CONNECTIONS / 1024
    print(f"resident memory of an idle connection: {per_connection:.1f} KB, goal {CONNECTION_GOAL_KB}")
    assert per_connection <= CONNECTION_GOAL_KB
    for connection in connections:
        connection.close()
