"""kcat, Debian's package: the command that people type first, on an older librdkafka."""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path

from ..record import Record
from .base import (
    CLASSIC,
    CLIENT_ID_OPTIONS,
    COOPERATIVE,
    HEADER_ORDER,
    HEADERS,
    IDEMPOTENCE,
    NULL_HEADER_VALUE,
    READ_COMMITTED,
    READS_EMPTY,
    STATIC,
    Client,
    GroupMember,
    Membership,
    Refused,
    collect,
)

# offset, partition, timestamp, key and value lengths (-1 is null), then key, value and headers.
FORMAT = "%o %p %T %K %S\\n%k%s\\n%h\\n"
LINE = re.compile(rb"(-?\d+) (-?\d+) (-?\d+) (-?\d+) (-?\d+)\n")


# `... rebalanced (memberid x): assigned: topic [0], topic [1]`, or in the cooperative protocol
# `... rebalanced: incremental assignment of 2 partition(s) (memberid x, ...): topic [0], topic [1]`.
REBALANCED = re.compile(
    r" rebalanced(?: \([^)]*\))?: (assigned|revoked|incremental assignment|incremental revoke)[^:]*: (.*)"
)


class Parser:
    """Cuts kcat's output, as `FORMAT` lays it out, into records; keeps what is not complete yet."""

    def __init__(self):
        self.pending = b""

    def feed(self, data: bytes) -> list[Record]:
        self.pending += data
        records = []
        while (found := self._next()) is not None:
            records.append(found)
        return records

    def _next(self) -> Record | None:
        line = LINE.match(self.pending)
        if line is None:
            return None
        offset, partition, timestamp, key_size, value_size = map(int, line.groups())
        key_end = line.end() + max(key_size, 0)
        value_end = key_end + max(value_size, 0)
        headers_end = self.pending.find(b"\n", value_end + 1)
        if headers_end < 0:
            return None
        record = Record(
            value=None if value_size < 0 else self.pending[key_end:value_end],
            key=None if key_size < 0 else self.pending[line.end() : key_end],
            headers=parse_headers(self.pending[value_end + 1 : headers_end]),
            timestamp=timestamp,
            offset=offset,
            partition=partition,
        )
        self.pending = self.pending[headers_end + 1 :]
        return record


def parse_headers(text: bytes) -> tuple:
    """`a=1,b=NULL`: kcat writes a null value as NULL, and the tests use no comma or NULL of their own."""
    pairs = [item.partition(b"=") for item in text.split(b",") if item]
    return tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs)


class Running:
    """A kcat consumer whose output is read as it comes."""

    def __init__(self, arguments: list[str]):
        self.process = subprocess.Popen(
            ["kcat", "-u", "-f", FORMAT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.parser, self.messages = Parser(), ""
        for stream in (self.process.stdout, self.process.stderr):
            os.set_blocking(stream.fileno(), False)

    def poll(self, seconds: float) -> list[Record]:
        ready, _, _ = select.select([self.process.stdout, self.process.stderr], [], [], seconds)
        if self.process.stderr in ready:
            self.messages += (self.process.stderr.read() or b"").decode(errors="replace")
        if self.process.stdout in ready:
            data = self.process.stdout.read() or b""
            if not data and self.process.poll() is not None:
                raise Refused(f"kcat exited with {self.process.returncode}: {self.messages}")
            return self.parser.feed(data)
        return []

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


class Member(GroupMember):
    def __init__(self, bootstrap: str, group: str, topic: str, how: Membership):
        settings = [
            f"session.timeout.ms={how.session_timeout_ms}",
            "heartbeat.interval.ms=500",
            "auto.offset.reset=earliest",
            "fetch.wait.max.ms=100",
        ]
        if how.instance:
            settings.append(f"group.instance.id={how.instance}")
        if how.cooperative:
            settings.append("partition.assignment.strategy=cooperative-sticky")
        options = [part for setting in settings for part in ("-X", setting)]
        self.running = Running(["-b", bootstrap, *options, "-G", group, topic])

    def poll(self, seconds: float) -> list[Record]:
        return self.running.poll(seconds)

    def assignment(self) -> set[int]:
        return self._rebalances()[0]

    def revoked(self) -> list[int]:
        return self._rebalances()[1]

    def _rebalances(self) -> tuple[set[int], list[int]]:
        """From kcat's `rebalanced` lines: what it holds now, and all that was taken from it."""
        self.running.poll(0)
        held: set[int] = set()
        taken: list[int] = []
        for what, listed in REBALANCED.findall(self.running.messages):
            partitions = [int(number) for number in re.findall(r"\[(\d+)\]", listed)]
            if what in ("assigned", "incremental assignment"):
                held |= set(partitions)
            else:
                taken += partitions
                held -= set(partitions)
        return held, taken

    def commit(self) -> None:
        """kcat stores as it prints and commits when it leaves; nothing can be asked of it before."""

    def close(self) -> None:
        self.running.close()


class Kcat(Client):
    name = "kcat"
    # It commits what it was given in one transaction, and cannot abort or add offsets.
    features = frozenset(
        {
            HEADERS,
            HEADER_ORDER,
            NULL_HEADER_VALUE,
            READS_EMPTY,
            IDEMPOTENCE,
            READ_COMMITTED,
            STATIC,
            COOPERATIVE,
            CLIENT_ID_OPTIONS,
        }
    )

    def produce(self, bootstrap, topic, records, *, codec="none", idempotent=False):
        """One kcat for each run of records with the same key, headers, partition and timestamp: they are arguments."""
        before = {partition: self._end(bootstrap, topic, partition) for partition in {r.partition for r in records}}
        offsets = []
        start = 0
        while start < len(records):
            end = start
            same = self._arguments(records[start])
            while end < len(records) and self._arguments(records[end]) == same:
                end += 1
            self._produce_run(bootstrap, topic, records[start:end], same, codec, idempotent)
            start = end
        for record in records:
            offsets.append(before[record.partition])
            before[record.partition] += 1
        return offsets

    @staticmethod
    def _arguments(record: Record) -> list[str]:
        arguments = ["-p", str(record.partition)]
        if record.key is not None:
            arguments += ["-k", record.key.decode()]
        for name, value in record.headers:
            arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
        if record.value is None:
            arguments += ["-Z"]
        return arguments

    @staticmethod
    def _produce_run(bootstrap, topic, records, arguments, codec, idempotent):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, record in enumerate(records):
                path = Path(folder) / f"{number}"
                path.write_bytes(record.value or b"")
                paths.append(str(path))
            settings = [
                "-X",
                "message.max.bytes=2000000",
                "-X",
                "acks=all",
                "-X",
                f"enable.idempotence={str(idempotent).lower()}",
            ]
            command = ["kcat", "-b", bootstrap, *settings, "-z", codec, "-P", "-t", topic, *arguments, *paths]
            done = subprocess.run(command, capture_output=True, timeout=120)
            errors = done.stderr.decode(errors="replace")
            if done.returncode != 0 or "Delivery failed" in errors:
                raise Refused(errors)

    def _end(self, bootstrap, topic, partition):
        return self.offset_at(bootstrap, topic, -1, partition)

    def fetch(self, bootstrap, topic, count, *, partition=0, start=0, client_id=None, read_committed=False, timeout=60):
        isolation = ["-X", f"isolation.level={'read_committed' if read_committed else 'read_uncommitted'}"]
        identity = [] if client_id is None else ["-X", f"client.id={client_id}"]
        limits = ["-X", "fetch.message.max.bytes=4000000", "-X", "fetch.wait.max.ms=100", "-X", "check.crcs=true"]
        where = ["-t", topic, "-p", str(partition), "-o", str(start)]
        running = Running(["-b", bootstrap, *limits, *isolation, *identity, "-C", *where])
        try:
            return collect(running.poll, count, timeout, self.name)
        finally:
            running.close()

    def join(self, bootstrap, group, topic, how=CLASSIC):
        return Member(bootstrap, group, topic, how)

    def offset_at(self, bootstrap, topic, timestamp, partition=0):
        deadline = time.monotonic() + 20
        while True:
            command = ["kcat", "-b", bootstrap, "-Q", "-t", f"{topic}:{partition}:{timestamp}"]
            done = subprocess.run(command, capture_output=True, timeout=30)
            found = re.search(rf"\[{partition}\] offset (-?\d+)", done.stdout.decode())
            if found:
                return int(found.group(1))
            if time.monotonic() > deadline:
                raise Refused(done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace"))

    def topics(self, bootstrap):
        done = subprocess.run(["kcat", "-b", bootstrap, "-L"], capture_output=True, timeout=30, check=True)
        listed = re.findall(r'topic "([^"]+)" with (\d+) partitions', done.stdout.decode())
        return {name: int(count) for name, count in listed}
