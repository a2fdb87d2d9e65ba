"""Clients that are programs of another language: they take the verbs as lines of JSON, one answer each.

{"verb": "fetch", ...} -> {"ok": ...} or {"refused": "what the client's user sees"}; bytes are base64, null is null.
Group members live in the program, by number.
"""

from __future__ import annotations

import json
import os
import subprocess
from abc import abstractmethod
from base64 import b64decode, b64encode
from pathlib import Path

from ..record import Record
from .base import CLASSIC, Client, GroupMember, Membership, Refused


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "weir"


def encode(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def wire_of(record: Record) -> dict:
    return {
        "key": encode(record.key),
        "value": encode(record.value),
        "headers": [(name, encode(value)) for name, value in record.headers],
        "timestamp": record.timestamp,
        "partition": record.partition,
    }


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
    def __init__(self, client: ProgramClient, bootstrap: str, group: str, topic: str, how: Membership):
        self.client = client
        self.number = client.ask(
            "join",
            bootstrap=bootstrap,
            group=group,
            topic=topic,
            cooperative=how.cooperative,
            instance=how.instance or "",
            server_side=how.server_side,
        )

    def poll(self, seconds: float) -> list[Record]:
        return [record_of(wire) for wire in self.client.ask("poll", member=self.number, seconds=seconds) or ()]

    def assignment(self) -> set[int]:
        return set(self.client.ask("assignment", member=self.number))

    def revoked(self) -> list[int]:
        return self.client.ask("revoked", member=self.number)

    def commit(self) -> None:
        self.client.ask("commit", member=self.number)

    def close(self) -> None:
        self.client.ask("close", member=self.number)


class AskedClient(Client):
    """What every client that is asked in lines of JSON says the same way."""

    @abstractmethod
    def ask(self, verb: str, **arguments):
        """The answer of the client's program; raises `Refused`."""

    def offset_at(self, bootstrap, topic, timestamp, partition=0):
        return self.ask("offset_at", bootstrap=bootstrap, topic=topic, partition=partition, timestamp=timestamp)

    def create_topic(self, bootstrap, topic, partitions=1, config=None):
        self.ask("create_topic", bootstrap=bootstrap, topic=topic, partitions=partitions, config=config or {})

    def delete_topic(self, bootstrap, topic):
        self.ask("delete_topic", bootstrap=bootstrap, topic=topic)

    def topic_config(self, bootstrap, topic):
        return self.ask("topic_config", bootstrap=bootstrap, topic=topic)

    def alter_topic_config(self, bootstrap, topic, config):
        self.ask("alter_topic_config", bootstrap=bootstrap, topic=topic, config=config)

    def replace_topic_config(self, bootstrap, topic, config):
        self.ask("replace_topic_config", bootstrap=bootstrap, topic=topic, config=config)

    def topics(self, bootstrap):
        return self.ask("topics", bootstrap=bootstrap)


class ProgramClient(AskedClient):
    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments."""

    def __init__(self):
        self.process: subprocess.Popen | None = None

    def ask(self, verb: str, **arguments):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}'s program ended with {self.process.wait()} at {verb}")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["ok"]

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        wire = [wire_of(record) for record in records]
        return self.ask("produce", bootstrap=bootstrap, topic=topic, records=wire, codec=codec, idempotent=idempotent)

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, read_committed=False, timeout=60):
        answer = self.ask(
            "fetch",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            start=start,
            count=count,
            client_id=client_id or "",
            read_committed=read_committed,
            timeout=timeout,
        )
        return [record_of(wire) for wire in answer]

    def join(self, bootstrap, group, topic, how=CLASSIC):
        return Member(self, bootstrap, group, topic, how)

    def transact(self, bootstrap, topic, transactional_id, transactions):
        wire = [
            {"records": [wire_of(record) for record in records], "commit": commit} for records, commit in transactions
        ]
        self.ask("transact", bootstrap=bootstrap, topic=topic, transactional_id=transactional_id, transactions=wire)

    def copy_in_transaction(self, bootstrap, topic, to, group, transactional_id, count, commit):
        self.ask(
            "copy_in_transaction",
            bootstrap=bootstrap,
            topic=topic,
            to=to,
            group=group,
            transactional_id=transactional_id,
            count=count,
            commit=commit,
        )
