"""A million JSON orders through the main job: produced durably, read back byte for byte, summed by three engines."""

from __future__ import annotations

import re
import time
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from harness import lake, orders
from harness.clients import BY_NAME
from harness.reading import assert_same_bytes

from .test_main_job import produce_all, stages

pytestmark = [pytest.mark.weir_only, pytest.mark.timeout(900)]

ROWS = 1_000_000
# The smaller tests read from every place; a million rows through two Python clients take a quarter of a minute each time.
PLACES = ("tail", "tail after a restart", "segments", "lake")
AMOUNT = re.compile(rb'"amount"\s*:\s*([0-9.]+)')


@pytest.fixture(scope="module")
def values():
    return list(
        orders.stream(seed=10, count=ROWS, styles=(orders.python_default, orders.javascript), irregular_share=0.002)
    )


class Stopwatch:
    def __init__(self):
        self.last = time.monotonic()

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        print(f"  {now - self.last:6.1f} s  {what}", flush=True)
        self.last = now


def test_a_million_rows_come_back_byte_for_byte_and_add_up_everywhere(start_broker, topic, values):
    lap = Stopwatch()
    broker = start_broker({"log.retention.check.interval.ms": "200", "weir.tail.bytes": str(4 << 30)})
    # Sealed and tiered when the test says so, not before.
    by_hand = {"weir.seal.bytes": str(4 << 30), "weir.lake.freshness.ms": "86400000"}
    BY_NAME["confluent-kafka"].create_topic(broker.bootstrap, topic, 1, {**orders.TOPIC_CONFIG, **by_hand})
    produce_all(broker.bootstrap, topic, values)
    lap(f"produced {ROWS:,} rows, acks=all, synced; broker {broker.cpu_seconds():.1f} CPU-s so far")
    total = sum(Decimal(AMOUNT.search(value)[1].decode()) for value in values)
    acts = {
        "segments": lambda: assert_segments_add_up(broker, total),
        "lake": lambda: assert_lake_adds_up(broker, topic, total),
    }
    for place in stages(broker, topic):
        lap(f"put into: {place}")
        if place not in PLACES:
            continue
        assert_same_bytes(broker.bootstrap, topic, values, where=place)
        lap(f"read by two clients from: {place}")
        if place in acts:
            acts[place]()
            lap(f"added up by an engine in: {place}")


def assert_segments_add_up(broker, total: Decimal) -> None:
    """By pyarrow, which opens the files."""
    tables = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in broker.arrow_segments()]
    sealed = pa.concat_tables([table.select(["_offset", "id", "amount"]) for table in tables])
    assert_adds_up(sealed.sort_by("_offset"), total)


def assert_lake_adds_up(broker, topic: str, total: Decimal) -> None:
    """By pyiceberg, which scans the catalog's table."""
    assert_adds_up(lake.scan(broker, topic, ("id", "amount", "_kafka")), total)


def assert_adds_up(rows: pa.Table, total: Decimal) -> None:
    """Count, order and sum of the rows, given in log order."""
    assert rows.num_rows == ROWS
    assert rows.column("id").combine_chunks().equals(pa.array(range(ROWS), pa.int64()))
    assert pc.sum(rows.column("amount")).as_py() == total
