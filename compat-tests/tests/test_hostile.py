"""Bytes that no client sends: the broker answers or closes, stays small, and goes on serving."""

from __future__ import annotations

import random
import socket
import struct
import zlib

import pytest
import zstandard

from harness.clients import BY_NAME
from harness.record import Record
from harness.wire import record_batch

from .test_semantics import NONE, Wired, framed, header

pytestmark = pytest.mark.weir_only

CLIENT = BY_NAME["confluent-kafka"]
MB = 1 << 20


@pytest.fixture
def wired(start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic)
    return Wired(broker, topic)


def assert_serves(wired: Wired) -> None:
    assert Wired(wired.broker, wired.topic).produce(record_batch(b"still here")).error_code == NONE


@pytest.mark.parametrize(
    ("codec", "compress"),
    ((4, lambda data: zstandard.compress(data, 19)), (1, lambda data: gzip_of(data))),
    ids=("zstd", "gzip"),
)
def test_a_batch_that_would_unpack_to_hundreds_of_megabytes_is_refused_on_the_way(codec, compress, wired):
    before = wired.broker.rss_bytes()
    bomb = record_batch(b"\0" * (400 * MB), attributes=codec, compress=compress)
    assert len(bomb) < MB
    for _ in range(3):
        assert wired.produce(bomb).error_code != NONE
    # One batch may unpack to 128 MB, in a buffer that doubles as it grows.
    assert wired.broker.rss_bytes() - before < 600 * MB
    assert_serves(wired)


def gzip_of(data: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    return squeeze.compress(data) + squeeze.flush()


def send_and_finish(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the broker was quicker to close


def test_random_bytes_and_random_changes_of_real_requests_do_no_harm(wired):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    batch = record_batch(b"a value", b"another", key=b"k")
    topic = struct.pack(">h", len(wired.topic)) + wired.topic.encode()
    real = (
        framed(
            header(0, 7)
            + b"\xff\xff"
            + struct.pack(">hii", -1, 1000, 1)
            + topic
            + struct.pack(">iii", 1, 0, len(batch))
            + batch
        ),
        framed(header(1, 4) + struct.pack(">iiiibi", -1, 10, 1, MB, 0, 1) + topic + struct.pack(">iiqi", 1, 0, 0, MB)),
        framed(header(3, 4) + struct.pack(">i", 1) + topic + b"\x01"),
        framed(
            header(11, 2)
            + b"\x00\x01g"
            + struct.pack(">ii", 10_000, 1000)
            + b"\x00\x00\x00\x01c\x00\x00\x00\x01\x00\x01r\x00\x00\x00\x00"
        ),
        framed(header(19, 2) + struct.pack(">i", 1) + b"\x00\x03new" + struct.pack(">ihiiib", 1, 1, 0, 0, 1000, 1)),
        framed(header(18, 3) + b"\x00\x02c\x021\x00"),
    )
    for number in range(1500):
        if number % 3 == 0:
            data = framed(rng.randbytes(rng.randrange(200)))
        else:
            data = bytearray(rng.choice(real))
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(4, len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", wired.broker.kafka_port), 5) as connection:
            send_and_finish(connection, bytes(data))
    assert_serves(wired)
    assert "panicked" not in wired.broker.log_file.read_text(errors="replace")


def test_every_array_count_of_two_billion_costs_nothing(wired):
    before = wired.broker.rss_bytes()
    for key, version in ((0, 3), (1, 4), (2, 1), (3, 1), (8, 2), (9, 1), (15, 0), (19, 2), (20, 1), (32, 1), (44, 0)):
        for at in range(0, 24, 2):
            body = b"\x00" * at + b"\x7f\xff\xff\xff" + b"\x00" * 40
            with socket.create_connection(("127.0.0.1", wired.broker.kafka_port), 5) as connection:
                send_and_finish(connection, framed(header(key, version) + body))
    assert wired.broker.rss_bytes() - before < 50 * MB
    assert_serves(wired)


def test_five_hundred_idle_connections_are_cheap(wired):
    before = wired.broker.rss_bytes()
    connections = [socket.create_connection(("127.0.0.1", wired.broker.kafka_port), 5) for _ in range(500)]
    for connection in connections:
        connection.sendall(framed(header(3, 1) + b"\x00\x00\x00\x00"))
        connection.recv(4096)
    each = (wired.broker.rss_bytes() - before) / 500
    print(f"{each / 1024:.1f} KiB for an idle connection")
    assert each < 64 * 1024
    for connection in connections:
        connection.close()
    assert_serves(wired)


def test_a_client_that_goes_away_in_the_middle_of_a_frame_leaves_nothing(wired):
    before = wired.broker.rss_bytes()
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", wired.broker.kafka_port), 5) as connection:
            connection.sendall(struct.pack(">i", 50 * MB) + header(0, 7) + b"x" * 1000)
    assert wired.broker.rss_bytes() - before < 100 * MB
    assert CLIENT.produce(wired.broker.bootstrap, wired.topic, [Record(b"x")])
