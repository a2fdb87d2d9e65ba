"""The lake over time: topics that come, go and come again, tables that others touch, reads that cross every tier."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from harness import lake, orders
from harness.broker import HttpError
from harness.clients import BY_NAME
from harness.process import wait_until
from harness.reading import assert_same_bytes, read_arrow
from harness.record import Record

from .test_main_job import produce_all

pytestmark = pytest.mark.weir_only

CLIENT = BY_NAME["confluent-kafka"]
KEEP = {"retention.ms": "-1"}


@pytest.fixture
def broker(start_broker):
    return start_broker({"log.retention.check.interval.ms": "200"})


def test_one_read_walks_from_the_lake_through_segments_into_the_tail(broker, topic):
    CLIENT.create_topic(
        broker.bootstrap, topic, 1, {**orders.TOPIC_CONFIG, **KEEP, "weir.lake.freshness.ms": "86400000"}
    )
    values = list(orders.stream(seed=30, count=9_000, irregular_share=0.02))
    produce_all(broker.bootstrap, topic, values[:3_000])
    broker.tier(topic)
    broker.seal(topic)
    CLIENT.alter_topic_config(broker.bootstrap, topic, {"local.retention.ms": "1"})
    wait_until(lambda: broker.partitions(topic)[0]["local_start"] == 3_000, 20, "the first part in the lake alone")
    produce_all(broker.bootstrap, topic, values[3_000:6_000])
    broker.seal(topic)
    produce_all(broker.bootstrap, topic, values[6_000:])
    (status,) = broker.partitions(topic)
    assert (status["lake_end"], status["sealed_end"], status["high_watermark"]) == (3_000, 6_000, 9_000)
    assert_same_bytes(broker.bootstrap, topic, values)
    expected = orders.expected_columns(values, ["id", "amount"])
    assert orders.same(read_arrow(broker.bootstrap, topic, ["id", "amount"], 9_000), expected)
    for start in (2_999, 3_000, 5_999, 6_000):
        (record,) = CLIENT.fetch(broker.bootstrap, topic, 1, start=start)
        assert (record.offset, record.value) == (start, values[start])
        columns = read_arrow(broker.bootstrap, topic, ["id", "amount"], 9_000, start=start)
        assert orders.same(columns, expected.slice(start)), f"from {start}"


def test_partitions_pour_into_one_table_and_each_row_is_there_once(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 3, orders.TOPIC_CONFIG)
    values = list(orders.stream(seed=31, count=900))
    for part in range(3):  # three pours, so three snapshots
        records = [Record(value, partition=number % 3) for number, value in enumerate(values) if number // 300 == part]
        CLIENT.produce(broker.bootstrap, topic, records)
        broker.tier(topic)
    broker.tier(topic)  # nothing new: nothing happens
    assert lake.offsets(broker, topic) == [(partition, offset) for partition in range(3) for offset in range(300)]
    ids = sorted(lake.scan(broker, topic, ("id",)).column("id").to_pylist())
    assert ids == list(range(900))


def test_a_topic_made_again_under_its_name_waits_until_the_old_table_is_dropped(broker, topic):
    """The rows of a deleted topic stay in the lake until somebody drops them; they are never mixed with the new topic's."""
    CLIENT.create_topic(broker.bootstrap, topic, 1, orders.TOPIC_CONFIG)
    produce_all(broker.bootstrap, topic, list(orders.stream(seed=32, count=50)))
    broker.tier(topic)
    assert lake.scan(broker, topic).num_rows == 50
    CLIENT.delete_topic(broker.bootstrap, topic)
    wait_until(lambda: topic not in CLIENT.topics(broker.bootstrap), 10, "the topic gone")
    CLIENT.create_topic(broker.bootstrap, topic, 1, orders.TOPIC_CONFIG)
    values = list(orders.stream(seed=33, count=30))
    produce_all(broker.bootstrap, topic, values)
    with pytest.raises(HttpError, match="made again under the same name; rename or drop the table"):
        broker.tier(topic)
    assert_same_bytes(broker.bootstrap, topic, values)
    lake.catalog(broker).drop_table(f"{lake.NAMESPACE}.{topic}")
    broker.tier(topic)
    assert lake.scan(broker, topic).num_rows == 30
    assert_same_bytes(broker.bootstrap, topic, values)


def test_the_lake_can_be_turned_on_later_and_gets_the_whole_log(broker, topic):
    config = {**orders.TOPIC_CONFIG, "weir.lake.enable": "false"}
    CLIENT.create_topic(broker.bootstrap, topic, 1, config)
    produce_all(broker.bootstrap, topic, list(orders.stream(seed=34, count=200)))
    broker.seal(topic)
    with pytest.raises(NoSuchTableError):
        lake.load(broker, topic)
    CLIENT.alter_topic_config(broker.bootstrap, topic, {"weir.lake.enable": "true"})
    broker.tier(topic)
    assert lake.scan(broker, topic).num_rows == 200


def test_rows_reach_the_lake_by_themselves_within_the_freshness(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, {**orders.TOPIC_CONFIG, "weir.lake.freshness.ms": "500"})
    produce_all(broker.bootstrap, topic, list(orders.stream(seed=35, count=100)))
    wait_until(lambda: broker.partitions(topic)[0]["lake_end"] == 100, 10, "the rows in the lake")


def test_others_may_not_write_rows_into_a_topics_table(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, orders.TOPIC_CONFIG)
    produce_all(broker.bootstrap, topic, list(orders.stream(seed=36, count=20)))
    broker.tier(topic)
    table = lake.load(broker, topic)
    rows = table.scan().to_arrow()
    with pytest.raises(Exception, match="topic"):
        table.append(rows)
    with pytest.raises(Exception, match="topic"):
        table.delete("id = 3")
    assert lake.scan(broker, topic).num_rows == 20
    with lake.load(broker, topic).transaction() as change:
        change.set_properties(owner="analytics")
    assert lake.load(broker, topic).properties["owner"] == "analytics"


def test_the_catalog_holds_tables_that_are_no_topics_too(broker):
    catalog = lake.catalog(broker)
    catalog.create_namespace("sandbox")
    rows = pa.table({"n": pa.array([1, 2, 3], pa.int64())})
    table = catalog.create_table("sandbox.numbers", rows.schema)
    table.append(rows)
    assert catalog.load_table("sandbox.numbers").scan().to_arrow().column("n").to_pylist() == [1, 2, 3]
    broker.restart()
    assert lake.catalog(broker).load_table("sandbox.numbers").scan().to_arrow().num_rows == 3
    lake.catalog(broker).drop_table("sandbox.numbers")
    assert lake.catalog(broker).list_tables("sandbox") == []


def test_every_snapshot_of_a_table_stays_readable(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, orders.TOPIC_CONFIG)
    for part in range(3):
        produce_all(broker.bootstrap, topic, list(orders.stream(seed=40 + part, count=10)))
        broker.tier(topic)
    table = lake.load(broker, topic)
    counts = [table.scan(snapshot_id=entry.snapshot_id).to_arrow().num_rows for entry in table.history()]
    assert counts == [10, 20, 30]
