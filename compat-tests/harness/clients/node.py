"""The Node clients: kafkajs, and librdkafka as Confluent binds it (compat-tests/node)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .base import (
    ALTER_CONFIG,
    COOPERATIVE,
    DESCRIBE_CONFIG,
    EMPTY_AND_NULL,
    EVERYTHING,
    HEADER_ORDER,
    KIP848,
    NULL_HEADER_VALUE,
    REPLACE_CONFIG,
    STATIC,
)
from .program import ProgramClient, cache

PROGRAM = Path(__file__).resolve().parents[2] / "node" / "main.js"


def modules() -> Path:
    """`COMPAT_NODE_MODULES`, or where scripts/test installs them."""
    return Path(os.environ.get("COMPAT_NODE_MODULES") or cache() / "compat-node" / "node_modules")


class NodeClient(ProgramClient):
    library: str

    def missing(self):
        if shutil.which("node") is None:
            return "Node is not installed (18 or newer)"
        return None if modules().exists() else f"{modules()} is not there: scripts/test installs it"

    def command(self):
        return ["env", f"NODE_PATH={modules()}", "node", str(PROGRAM), self.library]


class KafkaJs(NodeClient):
    name = "kafkajs"
    library = "kafkajs"
    # Headers are an object of names: those of one name keep their order, different names do not; a null throws.
    features = EVERYTHING - {HEADER_ORDER, NULL_HEADER_VALUE, STATIC, COOPERATIVE, KIP848, ALTER_CONFIG}


class NodeLibrdkafka(NodeClient):
    name = "confluent-kafka-javascript"
    library = "librdkafka"
    # Its admin client knows no configs; a header value is a string or a Buffer; an empty Buffer is sent as null.
    features = EVERYTHING - {NULL_HEADER_VALUE, EMPTY_AND_NULL, DESCRIBE_CONFIG, ALTER_CONFIG, REPLACE_CONFIG}
