"""The `rdkafka` crate: a small Rust program (compat-tests/rdkafka) that takes the verbs as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

from ..record import Record
from .base import ALTER_CONFIG, EVERYTHING, Client, GroupMember, Refused


def binary() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    target = os.environ.get("CARGO_TARGET_DIR") or f"{cache}/weir/target"
    return Path(target) / "compat-rdkafka" / "release" / "weir-compat-rdkafka"


def encode(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def record_of(wire: dict) -> Record:
    return Record(
        value=decode(wire["value"]),
        key=decode(wire["key"]),
        headers=tuple((name, decode(value)) for name, value in wire["headers"]),
        timestamp=wire["timestamp"],
        offset=wire["offset"],
        partition=wire["partition"],
    )


class Member(GroupMember):
    def __init__(self, client: RustRdkafka, bootstrap: str, group: str, topic: str):
        self.client = client
        self.number = client.ask("join", bootstrap=bootstrap, group=group, topic=topic)

    def poll(self, seconds: float) -> list[Record]:
        return [record_of(wire) for wire in self.client.ask("poll", member=self.number, seconds=seconds)]

    def assignment(self) -> set[int]:
        return set(self.client.ask("assignment", member=self.number))

    def commit(self) -> None:
        self.client.ask("commit", member=self.number)

    def close(self) -> None:
        self.client.ask("close", member=self.number)


class RustRdkafka(Client):
    name = "rdkafka-rust"
    # The crate has only the old, non-incremental AlterConfigs (key 33).
    features = EVERYTHING - {ALTER_CONFIG}

    def __init__(self):
        self.process: subprocess.Popen | None = None

    def ask(self, verb: str, **arguments):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([str(binary())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["ok"]

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        wire = [
            {
                "key": encode(record.key),
                "value": encode(record.value),
                "headers": [(name, encode(value)) for name, value in record.headers],
                "timestamp": record.timestamp,
                "partition": record.partition,
            }
            for record in records
        ]
        return self.ask("produce", bootstrap=bootstrap, topic=topic, records=wire, codec=codec, idempotent=idempotent)

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, timeout=60):
        answer = self.ask(
            "fetch",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            start=start,
            count=count,
            client_id=client_id,
            timeout=timeout,
        )
        return [record_of(wire) for wire in answer]

    def join(self, bootstrap, group, topic):
        return Member(self, bootstrap, group, topic)

    def offset_at(self, bootstrap, topic, timestamp, partition=0):
        return self.ask("offset_at", bootstrap=bootstrap, topic=topic, partition=partition, timestamp=timestamp)

    def create_topic(self, bootstrap, topic, partitions=1, config=None):
        self.ask("create_topic", bootstrap=bootstrap, topic=topic, partitions=partitions, config=config or {})

    def delete_topic(self, bootstrap, topic):
        self.ask("delete_topic", bootstrap=bootstrap, topic=topic)

    def topic_config(self, bootstrap, topic):
        return self.ask("topic_config", bootstrap=bootstrap, topic=topic)

    def replace_topic_config(self, bootstrap, topic, config):
        self.ask("replace_topic_config", bootstrap=bootstrap, topic=topic, config=config)

    def topics(self, bootstrap):
        return self.ask("topics", bootstrap=bootstrap)
