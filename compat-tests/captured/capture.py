"""Writes `captured/*.txt` again: runs a round of work with each client against Apache Kafka behind a recording proxy.

    captured/capture.py [CLIENT ...]

From the frames that a client sent, the first of each API and version is kept; for Produce, of each codec too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import version as python_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.captured import FOLDER, Captured
from harness.clients import BY_NAME, Client
from harness.clients.base import (
    ADMIN,
    ALTER_CONFIG,
    COOPERATIVE,
    COPY,
    DESCRIBE_CONFIG,
    IDEMPOTENCE,
    KIP848,
    REPLACE_CONFIG,
    STATIC,
    TRANSACTIONS,
    Membership,
)
from harness.kafka_peer import KAFKA_VERSION, ApacheKafka, kafka_jars
from harness.matrix import make_topic, values
from harness.process import free_port
from harness.record import Record
from harness.recorder import Recorder

PRODUCE = 0
LARGEST_FRAME = 4000


def go_version(module: str) -> str:
    listed = subprocess.run(
        ["go", "list", "-m", module], cwd=FOLDER.parent / "go", capture_output=True, text=True, check=True
    )
    return listed.stdout.split()[1]


def node_version(package: str) -> str:
    text = (FOLDER.parent / "node" / "package.json").read_text()
    return text.split(f'"{package}": "')[1].split('"')[0]


VERSIONS = {
    "confluent-kafka": lambda: python_version("confluent-kafka"),
    "kafka-python": lambda: python_version("kafka-python"),
    "aiokafka": lambda: python_version("aiokafka"),
    "kcat": lambda: "1.7.1 with librdkafka 2.0.2",
    "franz-go": lambda: go_version("github.com/twmb/franz-go"),
    "sarama": lambda: go_version("github.com/IBM/sarama"),
    "kafka-go": lambda: go_version("github.com/segmentio/kafka-go"),
    "kafkajs": lambda: node_version("kafkajs"),
    "confluent-kafka-javascript": lambda: node_version("@confluentinc/kafka-javascript"),
    "java": lambda: KAFKA_VERSION,
}


@contextmanager
def recorded_kafka():
    """Kafka that tells clients to come through the recorder, the recorder, and the address to give them."""
    port = free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with tempfile.TemporaryDirectory() as folder:
        kafka = ApacheKafka(Path(folder) / "kafka", settings).start()
        recorder = Recorder(port, kafka.kafka_port)
        try:
            kafka.bootstrap = f"127.0.0.1:{port}"
            yield kafka, recorder
        finally:
            recorder.close()
            kafka.stop()


def group_round(client: Client, bootstrap: str, topic: str, name: str, how: Membership) -> None:
    print(f"{client.name}: a {name} member")
    member = client.join(bootstrap, f"{topic}-{name}", topic, how)
    member.read(10)
    member.commit()
    member.close()


def work(client: Client, kafka, topic: str, recorder: Recorder) -> None:
    """Everything that the client's library can do, once."""
    at = kafka.bootstrap
    if ADMIN in client.features:
        recorder.label = "admin"
        client.create_topic(at, topic, 1, {"retention.ms": "123456"})
    else:
        recorder.label = "unrecorded"
        make_topic(kafka, topic)
    for codec in client.codecs:
        recorder.label = codec
        client.produce(at, topic, [Record(b"value" * 20, b"key", (("name", b"value"),))] * 2, codec=codec)
    recorder.label = "idempotent"
    if IDEMPOTENCE in client.features:
        client.produce(at, topic, values(2), idempotent=True)
    recorder.label = "read"
    client.fetch(at, topic, 10)
    client.offset_at(at, topic, 1_700_000_000_000)
    client.topics(at)
    recorder.label = "group"
    group_round(client, at, topic, "classic", Membership())
    if COOPERATIVE in client.features:
        group_round(client, at, topic, "cooperative", Membership(cooperative=True))
    if STATIC in client.features:
        group_round(client, at, topic, "static", Membership(instance="one"))
    if KIP848 in client.features:
        group_round(client, at, topic, "server-side", Membership(server_side=True))
    recorder.label = "transaction"
    if TRANSACTIONS in client.features:
        client.transact(at, topic, f"{topic}-tx", [(values(2), True), (values(2), False)])
    if COPY in client.features:
        recorder.label = "unrecorded"
        make_topic(kafka, f"{topic}-out")
        recorder.label = "transaction"
        client.copy_in_transaction(at, topic, f"{topic}-out", f"{topic}-copy", f"{topic}-tx", 10, True)
    recorder.label = "admin"
    if DESCRIBE_CONFIG in client.features:
        client.topic_config(at, topic)
    if ALTER_CONFIG in client.features:
        client.alter_topic_config(at, topic, {"retention.ms": "777777"})
    if REPLACE_CONFIG in client.features:
        client.replace_topic_config(at, topic, {"retention.ms": "777777"})
    if ADMIN in client.features:
        client.delete_topic(at, topic)


def java(kafka, topic: str, recorder: Recorder) -> None:
    recorder.label = "java"
    command = [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{kafka_jars()}/*",
        str(FOLDER / "Round.java"),
        kafka.bootstrap,
        topic,
    ]
    subprocess.run(command, check=True)


def write(client: str, frames: list[tuple[str, bytes]]) -> int:
    """Keeps the first frame of each API and version; the number kept."""
    kept: dict[tuple, Captured] = {}
    for label, frame in frames:
        captured = Captured(client, label, frame)
        which = (captured.key, captured.version, *((codec_of(frame),) if captured.key == PRODUCE else ()))
        if label != "unrecorded" and len(frame) <= LARGEST_FRAME:
            kept.setdefault(which, captured)
    lines = [
        f"# {client} {VERSIONS[client]()}, captured by capture.py against Apache Kafka {KAFKA_VERSION}.",
        "# key version what-the-client-did request-without-its-length",
    ]
    for _, captured in sorted(kept.items()):
        lines.append(f"{captured.key} {captured.version} {captured.note} {captured.frame.hex()}")
    (FOLDER / f"{client}.txt").write_text("\n".join(lines) + "\n")
    return len(kept)


def codec_of(frame: bytes) -> int:
    """The attributes of the one batch in a Produce request: its magic byte stands where no name of ours has a 2."""
    for place in range(16, len(frame) - 45):
        size, magic = int.from_bytes(frame[place - 8 : place - 4], "big"), frame[place]
        rest = len(frame) - (place - 4)
        if magic == 2 and 0 <= rest - size <= 3:
            return int.from_bytes(frame[place + 5 : place + 7], "big")
    return -1


def main() -> None:
    wanted = sys.argv[1:] or list(VERSIONS)
    with recorded_kafka() as (kafka, recorder):
        for name in wanted:
            recorder.frames.clear()
            topic = f"captured-{name}"
            if name == "java":
                java(kafka, topic, recorder)
            else:
                work(BY_NAME[name], kafka, topic, recorder)
            print(f"{name}: {write(name, recorder.frames)} frames of {len(recorder.frames)}")


if __name__ == "__main__":
    main()
