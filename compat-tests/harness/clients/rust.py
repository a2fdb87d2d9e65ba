"""The `rdkafka` crate: a small Rust program (compat-tests/rdkafka)."""

from __future__ import annotations

import os
from pathlib import Path

from .base import ALTER_CONFIG, EVERYTHING
from .program import ProgramClient, cache


class RustRdkafka(ProgramClient):
    name = "rdkafka-rust"
    # The crate has only the old, non-incremental AlterConfigs (key 33).
    features = EVERYTHING - {ALTER_CONFIG}

    def command(self):
        target = Path(os.environ.get("CARGO_TARGET_DIR") or cache() / "target")
        return [str(target / "compat-rdkafka" / "release" / "weir-compat-rdkafka")]
