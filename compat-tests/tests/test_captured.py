"""What stock clients send, byte for byte (captured/*.txt): every frame gets a well-formed answer of its version."""

from __future__ import annotations

import pytest

from harness.captured import Captured, load_all
from harness.clients import BY_NAME
from harness.wire import RESPONSES, Wire

FRAMES = load_all()
CLIENTS = sorted({frame.client for frame in FRAMES})
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
# kafka-python, whose schemas read the answers, does not know ConsumerGroupHeartbeat and ConsumerGroupDescribe: of these
# the header and the two fields that begin both answers are checked, throttle time (ms) and the first of what follows.
WITHOUT_SCHEMA = {68, 69}


@pytest.fixture(scope="module")
def ranges(broker) -> dict[int, range]:
    """The versions that the broker says it serves, by API key."""
    wire = Wire(broker.kafka_port)
    answer = wire.send(API_VERSIONS, 0, {})
    wire.close()
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}


@pytest.fixture(scope="module", autouse=True)
def topics(broker):
    """The topics that the frames name, so that they are answered with more than that there is none."""
    creator = BY_NAME["confluent-kafka"]
    for client in CLIENTS:
        for name in (f"captured-{client}", f"captured-{client}-out"):
            creator.create_topic(broker.bootstrap, name)


def test_every_api_that_the_clients_used_is_served(ranges):
    """Versions are negotiated: one that Kafka has and this broker has not only means that clients choose an older one."""
    assert not {frame.key for frame in FRAMES} - set(ranges)


def test_api_versions_of_an_unknown_version_is_answered_in_version_0_with_what_is_served(broker, ranges):
    newer = [frame for frame in FRAMES if frame.key == API_VERSIONS and frame.version not in ranges[API_VERSIONS]]
    for captured in newer:
        wire = Wire(broker.kafka_port)
        frame = wire.raw(len(captured.frame).to_bytes(4, "big") + captured.frame)
        wire.close()
        answer = RESPONSES[API_VERSIONS].decode(frame, version=0, header=True)
        assert answer.header.correlation_id == captured.correlation_id
        assert answer.error_code == UNSUPPORTED_VERSION
        (own,) = [api for api in answer.api_keys if api.api_key == API_VERSIONS]
        assert range(own.min_version, own.max_version + 1) == ranges[API_VERSIONS]


def assert_answered(wire: Wire, captured: Captured) -> None:
    frame = wire.raw(len(captured.frame).to_bytes(4, "big") + captured.frame)
    assert int.from_bytes(frame[:4], "big") == captured.correlation_id
    response = RESPONSES.get(captured.key)
    if response is None:
        assert captured.key in WITHOUT_SCHEMA and frame[4] == 0 and len(frame) > 10, frame.hex()
        return
    answer = response.decode(frame, version=captured.version, header=True)
    answer._header = None
    again = bytes(answer.encode(version=captured.version))
    header = 5 if response.flexible_version_q(captured.version) and captured.key != API_VERSIONS else 4
    assert again == frame[header:], f"sent {frame[header:].hex()}, means {again.hex()}"


@pytest.mark.parametrize("client", CLIENTS)
def test_each_captured_frame_is_answered_in_its_version(client, broker, ranges):
    failures = []
    for captured in (frame for frame in FRAMES if frame.client == client):
        if captured.version not in ranges.get(captured.key, ()):
            continue
        wire = Wire(broker.kafka_port)
        try:
            assert_answered(wire, captured)
        except (AssertionError, ConnectionError, TimeoutError, ValueError) as failure:
            failures.append(f"api key {captured.key} version {captured.version} ({captured.note}): {failure!r}")
        finally:
            wire.close()
    assert not failures, "\n".join(failures)
