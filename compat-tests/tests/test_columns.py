"""Two of twenty columns for a stock librdkafka consumer: the right ones, from every tier, and only their bytes."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from harness import wide
from harness.clients import BY_NAME
from harness.reading import read_arrow, with_librdkafka

from .test_main_job import produce_all, stages

pytestmark = pytest.mark.weir_only

ROWS = 20_000
TWO = wide.TWO.split(",")


def expected_two(values: list[bytes]) -> pa.Table:
    """What pyarrow makes of the full rows."""
    rows = [json.loads(value, parse_float=Decimal) for value in values]
    amounts = pa.array([row["amount"] for row in rows], pa.decimal128(12, 3))
    return pa.table({"id": pa.array([row["id"] for row in rows], pa.int64()), "amount": amounts})


@pytest.fixture
def wide_topic(start_broker, topic):
    broker = start_broker({"log.retention.check.interval.ms": "200"})
    BY_NAME["confluent-kafka"].create_topic(
        broker.bootstrap, topic, 1, {**wide.TOPIC_CONFIG, "weir.lake.enable": "true"}
    )
    values = list(wide.stream(seed=20, count=ROWS))
    produce_all(broker.bootstrap, topic, values)
    return broker, topic, values


def test_two_of_twenty_columns_come_as_arrow_from_tail_segments_and_lake(wide_topic):
    broker, topic, values = wide_topic
    expected = expected_two(values)
    for place in stages(broker, topic):
        found = read_arrow(broker.bootstrap, topic, TWO, ROWS)
        assert found.column_names == TWO, place
        assert found.cast(expected.schema).equals(expected), place


def test_arrow_reads_resume_in_the_middle_of_a_batch(wide_topic):
    broker, topic, values = wide_topic
    broker.seal(topic)
    expected = expected_two(values)
    for start in (1, 7_777, ROWS - 1):
        found = read_arrow(broker.bootstrap, topic, TWO, ROWS, start=start)
        assert found.cast(expected.schema).equals(expected.slice(start)), f"from offset {start}"


def test_reading_two_columns_of_a_segment_reads_their_share_of_its_bytes(wide_topic):
    broker, topic, _values = wide_topic
    broker.seal(topic)

    def bytes_read(columns):
        before = broker.metric("weir_read_arrow_segment_bytes_total")
        read_arrow(broker.bootstrap, topic, columns, ROWS)
        return broker.metric("weir_read_arrow_segment_bytes_total") - before

    size = sum(path.stat().st_size for path in broker.arrow_segments())
    every, two = bytes_read(wide.COLUMNS), bytes_read(TWO)
    print(f"segment {size:,} bytes; all columns read {every:,.0f}, two of twenty {two:,.0f} ({two / every:.1%})")
    assert 0 < two < 0.15 * every
    assert every < 1.5 * size


def test_reading_two_columns_of_the_lake_reads_their_share_of_its_bytes(wide_topic):
    broker, topic, _values = wide_topic
    *_, last = stages(broker, topic)
    assert last == "lake after a restart"

    def bytes_read(columns):
        broker.restart()  # forgets what it had cached
        before = broker.metric("weir_read_lake_bytes_total")
        read_arrow(broker.bootstrap, topic, columns, ROWS)
        return broker.metric("weir_read_lake_bytes_total") - before

    every, two = bytes_read(wide.COLUMNS), bytes_read(TWO)
    print(f"lake: all columns read {every:,.0f} bytes, two of twenty {two:,.0f} ({two / every:.1%})")
    assert 0 < two < 0.3 * every


def test_projected_rows_and_arrow_agree(wide_topic):
    broker, topic, values = wide_topic
    rows = with_librdkafka(broker.bootstrap, topic, 500, client_id=f"r;weir.columns={wide.TWO}")
    projected = [json.loads(value, parse_float=Decimal) for _offset, _key, value in rows]
    assert projected == read_arrow(broker.bootstrap, topic, TWO, ROWS).slice(0, 500).to_pylist()
    assert [row["id"] for row in projected] == [json.loads(value)["id"] for value in values[:500]]
