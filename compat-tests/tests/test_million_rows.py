"""A million JSON orders through the main job: produced durably, read back byte for byte, summed by three engines."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from harness import lake, orders
from harness.clients import BY_NAME
from harness.reading import assert_same_bytes

from .test_main_job import DROP_LOCAL_SOON, produce_all

pytestmark = [pytest.mark.weir_only, pytest.mark.timeout(900)]

ROWS = 1_000_000


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
    broker = start_broker({"log.retention.check.interval.ms": "200"})

    BY_NAME["confluent-kafka"].create_topic(broker.bootstrap, topic, 1, orders.TOPIC_CONFIG)
    produce_all(broker.bootstrap, topic, values)
    lap(f"produced {ROWS:,} rows, acks=all, synced; broker {broker.cpu_seconds():.1f} CPU-s so far")
    assert_same_bytes(broker.bootstrap, topic, values, where="tail")
    lap("read by two clients from the tail")
    broker.restart()
    lap("restarted")
    assert_same_bytes(broker.bootstrap, topic, values, where="tail after a restart")
    lap("read by two clients after the restart")
    broker.seal(topic)
    lap("sealed")
    assert_same_bytes(broker.bootstrap, topic, values, where="segments")
    lap("read by two clients from segments")

    expected_amount = pc.sum(orders.expected_columns(values, ["amount"]).column("amount")).as_py()
    sealed = pa.concat_tables(
        [
            pa.ipc.open_file(pa.memory_map(str(path))).read_all().select(["_offset", "id", "amount"])
            for path in broker.arrow_segments()
        ]
    )
    assert_adds_up(sealed.sort_by("_offset"), expected_amount)
    lap("pyarrow summed the segment files")

    broker.tier(topic)
    BY_NAME["confluent-kafka"].alter_topic_config(broker.bootstrap, topic, DROP_LOCAL_SOON)
    broker.wait_local_copy_dropped(topic)
    lap("tiered, local copy dropped")
    assert_same_bytes(broker.bootstrap, topic, values, where="lake")
    lap("read by two clients from the lake")
    assert_adds_up(lake.scan(broker, topic, ("id", "amount", "_kafka")), expected_amount)
    lap("pyiceberg scanned the table")


def assert_adds_up(rows: pa.Table, expected_amount) -> None:
    """Count, order and sum of the rows, given in log order."""
    assert rows.num_rows == ROWS
    assert rows.column("id").combine_chunks().equals(pa.array(range(ROWS), pa.int64()))
    assert pc.sum(rows.column("amount")).as_py() == expected_amount
