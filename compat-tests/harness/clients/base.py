"""The verbs of the matrix. What a client's own library cannot do is missing from `features`, and its row says so."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..record import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# What a library can lack. A test asks for what it needs by these names.
HEADERS = "headers"
NULL_HEADER_VALUE = "a header whose value is null"
EMPTY_AND_NULL = "null told from empty, for keys and values, when producing"
IDEMPOTENCE = "idempotent producer"
ADMIN = "create, delete and describe topics"
ALTER_CONFIG = "incremental config changes"
REPLACE_CONFIG = "the older AlterConfigs, which replaces all of a topic's configs"
CLIENT_ID_OPTIONS = "a free client id"
EVERYTHING = frozenset(
    {HEADERS, NULL_HEADER_VALUE, EMPTY_AND_NULL, IDEMPOTENCE, ADMIN, ALTER_CONFIG, REPLACE_CONFIG, CLIENT_ID_OPTIONS}
)


class Refused(Exception):
    """The broker answered with an error; the text is what the client's user sees."""


class GroupMember(ABC):
    """A consumer in a group, from the earliest offset, committing only when told to (kcat: when it leaves)."""

    @abstractmethod
    def poll(self, seconds: float) -> list[Record]:
        """Records that came within `seconds`, perhaps none."""

    @abstractmethod
    def assignment(self) -> set[int]:
        """The partitions that this member holds now."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what was polled, and wait for the answer."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""

    def read(self, count: int, timeout: float = 30) -> list[Record]:
        """Poll until `count` records came."""
        records: list[Record] = []
        deadline = time.monotonic() + timeout
        while len(records) < count:
            records += self.poll(0.2)
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group member read {len(records)} of {count} records in {timeout:g} s")
        return records


class Client(ABC):
    name: str
    features: frozenset[str] = EVERYTHING
    codecs: tuple[str, ...] = CODECS

    @abstractmethod
    def produce(
        self, bootstrap: str, topic: str, records: list[Record], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        """Produce with acks=all, each record to its partition; the offsets, in the order given.

        Raises `Refused` with the client's own text when the broker refuses a record.
        """

    @abstractmethod
    def fetch(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        start: int = 0,
        client_id: str | None = None,
        timeout: float = 60,
    ) -> list[Record]:
        """The first `count` records of a partition at or above offset `start`."""

    @abstractmethod
    def join(self, bootstrap: str, group: str, topic: str) -> GroupMember: ...

    @abstractmethod
    def offset_at(self, bootstrap: str, topic: str, timestamp: int, partition: int = 0) -> int:
        """The first offset whose timestamp is at or after `timestamp` (ms)."""

    @abstractmethod
    def topics(self, bootstrap: str) -> dict[str, int]:
        """Topic name -> number of partitions."""

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        raise NotImplementedError(self.name)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        raise NotImplementedError(self.name)

    def topic_config(self, bootstrap: str, topic: str) -> dict[str, str]:
        raise NotImplementedError(self.name)

    def alter_topic_config(self, bootstrap: str, topic: str, config: dict[str, str]) -> None:
        raise NotImplementedError(self.name)

    def replace_topic_config(self, bootstrap: str, topic: str, config: dict[str, str]) -> None:
        raise NotImplementedError(self.name)

    def __repr__(self) -> str:
        return self.name


def collect(poll: Callable[[float], list[Record]], count: int, timeout: float, who: str) -> list[Record]:
    """Call `poll(seconds)` until `count` records came; the surplus is cut off."""
    records: list[Record] = []
    deadline = time.monotonic() + timeout
    while len(records) < count:
        records += poll(0.5)
        if len(records) < count and time.monotonic() > deadline:
            raise TimeoutError(f"{who} read {len(records)} of {count} records in {timeout:g} s")
    return records[:count]
