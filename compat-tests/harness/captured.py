"""The files of `captured/`: request frames as stock clients sent them to Apache Kafka, one per API and version."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "captured"


@dataclass(frozen=True)
class Captured:
    """`note` says what the client was doing; `frame` begins with the request header."""

    client: str
    note: str
    frame: bytes

    @property
    def key(self) -> int:
        return struct.unpack_from(">h", self.frame)[0]

    @property
    def version(self) -> int:
        return struct.unpack_from(">h", self.frame, 2)[0]

    @property
    def correlation_id(self) -> int:
        return struct.unpack_from(">i", self.frame, 4)[0]


def load(path: Path) -> list[Captured]:
    """Lines of `key version note hex`; `#` begins a comment."""
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [Captured(path.stem, note, bytes.fromhex(text)) for _key, _version, note, text in lines]


def load_all() -> list[Captured]:
    return [captured for path in sorted(FOLDER.glob("*.txt")) for captured in load(path)]
