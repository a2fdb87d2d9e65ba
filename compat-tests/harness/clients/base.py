"""The verbs of the matrix. What a client's own library cannot do is missing from `features`, and its row says so."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ..record import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# What a library can lack. A test asks for what it needs by these names.
HEADERS = "headers"
HEADER_ORDER = "the order of headers among different names"
NULL_HEADER_VALUE = "a header whose value is null"
EMPTY_AND_NULL = "null told from empty, for keys and values, when producing"
READS_EMPTY = "null told from empty, for keys and values, when reading"
IDEMPOTENCE = "idempotent producer"
TRANSACTIONS = "transactional producer"
READ_COMMITTED = "reading without what was aborted"
COPY = "a consumer's offsets in the producer's transaction"
STATIC = "static membership (KIP-345)"
COOPERATIVE = "cooperative rebalancing (KIP-429)"
KIP848 = "the consumer group protocol of KIP-848"
ADMIN = "create, delete and list topics"
DESCRIBE_CONFIG = "describe a topic's configs"
ALTER_CONFIG = "incremental config changes"
REPLACE_CONFIG = "the older AlterConfigs, which replaces all of a topic's configs"
CLIENT_ID_OPTIONS = "a free client id"
EVERYTHING = frozenset(
    {
        HEADERS,
        HEADER_ORDER,
        NULL_HEADER_VALUE,
        EMPTY_AND_NULL,
        READS_EMPTY,
        IDEMPOTENCE,
        TRANSACTIONS,
        READ_COMMITTED,
        COPY,
        STATIC,
        COOPERATIVE,
        KIP848,
        ADMIN,
        DESCRIBE_CONFIG,
        ALTER_CONFIG,
        REPLACE_CONFIG,
        CLIENT_ID_OPTIONS,
    }
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
    def revoked(self) -> list[int]:
        """The partitions taken from this member so far, one entry for each time; closing it may add the rest."""

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


@dataclass(frozen=True)
class Membership:
    """How a member takes part in its group. `instance` names a static member, `server_side` asks for KIP-848."""

    cooperative: bool = False
    instance: str | None = None
    server_side: bool = False

    @property
    def session_timeout_ms(self) -> int:
        """A static member that is away must not be missed before it is back, however slow the machine."""
        return 30_000 if self.instance else 6000


CLASSIC = Membership()


class Client(ABC):
    name: str
    features: frozenset[str] = EVERYTHING
    codecs: tuple[str, ...] = CODECS

    def missing(self) -> str | None:
        """Why this client cannot run here (its toolchain is not installed, its program not built), or None."""
        return None

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
        read_committed: bool = False,
        timeout: float = 60,
    ) -> list[Record]:
        """The first `count` records of a partition at or above offset `start`."""

    @abstractmethod
    def join(self, bootstrap: str, group: str, topic: str, how: Membership = CLASSIC) -> GroupMember: ...

    def transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: list[tuple[list[Record], bool]]
    ) -> None:
        """Run transactions one after the other with one producer: for each its records, and whether it commits."""
        raise NotImplementedError(self.name)

    def copy_in_transaction(
        self, bootstrap: str, topic: str, to: str, group: str, transactional_id: str, count: int, commit: bool
    ) -> None:
        """Read `count` records of `topic` as a member of `group`, produce their keys and values to topic `to` and add
        the offsets read, all in one transaction; commit or abort it; leave the group."""
        raise NotImplementedError(self.name)

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
