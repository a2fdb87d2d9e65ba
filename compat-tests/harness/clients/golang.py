"""The Go clients: franz-go, sarama and segmentio's kafka-go, behind one program (compat-tests/go)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .base import (
    COOPERATIVE,
    COPY,
    EVERYTHING,
    IDEMPOTENCE,
    KIP848,
    READ_COMMITTED,
    READS_EMPTY,
    STATIC,
    TRANSACTIONS,
)
from .program import ProgramClient, cache


def binary() -> Path:
    """`COMPAT_GO`, or what scripts/test builds."""
    return Path(os.environ.get("COMPAT_GO") or cache() / "compat-go" / "weir-compat-go")


class GoClient(ProgramClient):
    def missing(self):
        if binary().exists():
            return None
        if shutil.which("go") is None:
            return "Go is not installed (1.21 or newer)"
        return f"{binary()} is not built: scripts/test does"

    def command(self):
        return [str(binary()), self.name]


class FranzGo(GoClient):
    name = "franz-go"


class Sarama(GoClient):
    name = "sarama"
    features = EVERYTHING - {KIP848}


class KafkaGo(GoClient):
    name = "kafka-go"
    # It asks for read_committed, and then hands out the aborted records that brokers leave to the client to drop.
    # Its reader makes null of what is empty; its writer keeps them apart.
    features = EVERYTHING - {
        IDEMPOTENCE,
        TRANSACTIONS,
        READ_COMMITTED,
        COPY,
        STATIC,
        COOPERATIVE,
        KIP848,
        READS_EMPTY,
    }
