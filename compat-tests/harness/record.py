"""A record as the tests compare it: what was produced, and what came back."""

from __future__ import annotations

from dataclasses import dataclass, field

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    """`key`, `value` and header values tell null (`None`) from empty (`b""`), as Kafka does."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    offset: int = field(default=-1, compare=False)
    partition: int = field(default=0, compare=False)

    @property
    def content(self) -> tuple:
        """Everything the producer chose except the timestamp, which it may have left to its client."""
        return self.key, self.value, self.headers
