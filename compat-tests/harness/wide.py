"""Rows of twenty columns, as a fleet of machines reports them: what column reads are for."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta

SCHEMA_SQL = (
    "id BIGINT NOT NULL, device STRING NOT NULL, site STRING, firmware STRING, at TIMESTAMP, uptime_s BIGINT, "
    "amount DECIMAL(12,3), cpu DOUBLE, memory DOUBLE, disk DOUBLE, temperature DOUBLE, humidity DOUBLE, pressure DOUBLE, "
    "rx_bytes BIGINT, tx_bytes BIGINT, errors INT, restarts INT, healthy BOOLEAN, status STRING, message STRING"
)
TOPIC_CONFIG = {"weir.schema": SCHEMA_SQL, "weir.value.format": "json"}
TWO = "id,amount"
COLUMNS = [column.split()[0] for column in SCHEMA_SQL.split(", ")]

STATUS = ("running", "idle", "degraded", "updating")
WORDS = "sensor fan link reset voltage nominal threshold exceeded retry queue drained calibrated".split()
EPOCH = datetime(2026, 3, 1)


def stream(seed: int, count: int) -> Iterator[bytes]:
    """`count` rows in Python's default JSON style."""
    rng = random.Random(seed)
    for number in range(count):
        row = {
            "id": number,
            "device": f"dev-{rng.randrange(2_000):05d}",
            "site": f"site-{rng.randrange(40):02d}",
            "firmware": f"4.{rng.randrange(9)}.{rng.randrange(20)}",
            "at": (EPOCH + timedelta(milliseconds=250 * number)).isoformat(timespec="milliseconds"),
            "uptime_s": rng.randrange(10_000_000),
            "amount": rng.randrange(1, 5_000_000) / 1000,
            **{
                name: round(rng.gauss(50, 15), 3)
                for name in ("cpu", "memory", "disk", "temperature", "humidity", "pressure")
            },
            "rx_bytes": rng.randrange(1 << 40),
            "tx_bytes": rng.randrange(1 << 40),
            "errors": rng.randrange(100),
            "restarts": rng.randrange(5),
            "healthy": rng.random() < 0.97,
            "status": rng.choice(STATUS),
            "message": " ".join(rng.choices(WORDS, k=12)),
        }
        yield json.dumps(row).encode()
