"""What the clients' tests share: which clients a test is for, and topics for clients that cannot make their own."""

from __future__ import annotations

import pytest

from .clients import ALL, Client
from .clients.base import HEADER_ORDER
from .process import wait_until
from .record import Record

CREATOR = ALL[0]  # makes topics for clients that cannot


def clients_with(*needs: str):
    """Run the test once for each client whose library can do all of `needs`."""
    return pytest.mark.parametrize("client", [c for c in ALL if set(needs) <= c.features], ids=str)


def make_topic(broker, topic: str, partitions: int = 1, config: dict | None = None) -> None:
    CREATOR.create_topic(broker.bootstrap, topic, partitions, config)
    wait_until(lambda: CREATOR.topics(broker.bootstrap).get(topic) == partitions, 10, f"{topic} in the metadata")


def contents(records: list[Record], *clients: Client) -> list[tuple]:
    """What was produced, as far as all of `clients` can tell it."""
    if all(HEADER_ORDER in client.features for client in clients):
        return [record.content for record in records]
    return [(record.key, record.value, headers_by_name(record)) for record in records]


def headers_by_name(record: Record) -> dict[str, list[bytes | None]]:
    by_name: dict[str, list[bytes | None]] = {}
    for name, value in record.headers:
        by_name.setdefault(name, []).append(value)
    return by_name


def values(count: int, start: int = 0, prefix: str = "") -> list[Record]:
    return [Record(f"{prefix}{i}".encode()) for i in range(start, start + count)]
