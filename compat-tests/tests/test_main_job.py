"""Kafka in, table behind, lake beneath, old offsets back out: the same bytes and the same columns at every age."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from harness import lake, orders
from harness.clients import BY_NAME
from harness.reading import assert_same_bytes, read_arrow, with_librdkafka
from harness.record import Record

pytestmark = pytest.mark.weir_only

CONFLUENT = BY_NAME["confluent-kafka"]
DROP_LOCAL_SOON = {"local.retention.ms": "1"}


def produce_all(bootstrap: str, topic: str, values: list[bytes], **settings) -> None:
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            **settings,
        }
    )

    def delivered(error, _message):
        if error is not None:
            failures.append(error.str())

    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0, "some records were never answered"
    assert not failures, failures[:3]


def stages(broker, topic):
    """Walk the topic's records through every place they can be in, naming each, and prove that they are there."""

    def status():
        (partition,) = broker.partitions(topic)
        return partition

    assert status()["sealed_end"] == 0
    yield "tail"
    broker.restart()
    assert status()["sealed_end"] == 0
    yield "tail after a restart"
    broker.seal(topic)
    assert status()["sealed_end"] == status()["high_watermark"]
    yield "segments"
    broker.restart()
    yield "segments after a restart"
    broker.tier(topic)
    assert status()["lake_end"] == status()["high_watermark"]
    yield "segments and lake"
    CONFLUENT.alter_topic_config(broker.bootstrap, topic, DROP_LOCAL_SOON)
    broker.wait_local_copy_dropped(topic)
    assert status()["local_start"] == status()["high_watermark"]
    yield "lake"
    broker.restart()
    yield "lake after a restart"


@pytest.fixture
def orders_topic(start_broker, topic):
    broker = start_broker({"log.retention.check.interval.ms": "200"})
    # The timestamps of some tests are years old: nothing may expire.
    CONFLUENT.create_topic(broker.bootstrap, topic, 1, {**orders.TOPIC_CONFIG, "retention.ms": "-1"})
    return broker, topic


def test_the_same_bytes_come_back_from_every_place_a_record_can_be_in(orders_topic):
    broker, topic = orders_topic
    values = list(orders.stream(seed=1, count=12_000, irregular_share=0.02))
    produce_all(broker.bootstrap, topic, values)
    for place in stages(broker, topic):
        assert_same_bytes(broker.bootstrap, topic, values, where=place)


def test_the_same_columns_come_back_from_every_place_a_record_can_be_in(orders_topic):
    broker, topic = orders_topic
    values = list(orders.stream(seed=2, count=8_000, irregular_share=0.02))
    produce_all(broker.bootstrap, topic, values)
    two, every = orders.expected_columns(values, ["id", "amount"]), orders.expected_columns(values)
    for place in stages(broker, topic):
        assert orders.same(read_arrow(broker.bootstrap, topic, ["id", "amount"], len(values)), two), place
        assert orders.same(read_arrow(broker.bootstrap, topic, every.column_names, len(values)), every), place


def test_keys_headers_and_timestamps_come_back_from_every_place_a_record_can_be_in(orders_topic):
    broker, topic = orders_topic
    values = list(orders.stream(seed=3, count=200))
    keys = (None, b"", b"key", bytes(range(256)))
    headers = ((), (("h", b"1"),), (("h", b"1"), ("h", None), ("g", b"")))
    records = [
        Record(value, keys[i % 4], headers[i % 3], timestamp=1_760_000_000_000 + i * 7)
        for i, value in enumerate(values)
    ]
    CONFLUENT.produce(broker.bootstrap, topic, records)
    for place in stages(broker, topic):
        assert CONFLUENT.fetch(broker.bootstrap, topic, len(records)) == records, place
        assert CONFLUENT.offset_at(broker.bootstrap, topic, 1_760_000_000_000 + 70 * 7) == 70, place


def test_projected_rows_carry_only_the_chosen_fields_in_the_producers_style(orders_topic):
    broker, topic = orders_topic
    produced = [
        b'{"id": 1, "customer": "C1", "item": "tea", "amount": 12.5}',
        b'{"id": 2, "customer": "C2", "amount": null}',
        b'{"id": 3, "customer": "C3"}',
    ]
    CONFLUENT.produce(broker.bootstrap, topic, [Record(value) for value in produced])
    for place in stages(broker, topic):
        read = with_librdkafka(broker.bootstrap, topic, 3, client_id="dash;weir.columns=id,amount;weir.format=rows")
        projected = [value for _offset, _key, value in read]
        assert projected == [b'{"id": 1, "amount": 12.5}', b'{"id": 2, "amount": null}', b'{"id": 3}'], place


def test_pyarrow_opens_a_segment_file_and_finds_the_rows(orders_topic):
    broker, topic = orders_topic
    values = list(orders.stream(seed=4, count=3_000))
    produce_all(broker.bootstrap, topic, values)
    broker.seal(topic)
    tables = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in broker.arrow_segments()]
    rows = pa.concat_tables(tables).sort_by("_offset")
    expected = orders.expected_columns(values)
    assert rows.column("_offset").to_pylist() == list(range(len(values)))
    assert orders.same(rows.select(expected.column_names), expected)


def test_pyiceberg_lists_loads_and_scans_the_table(orders_topic):
    broker, topic = orders_topic
    values = list(orders.stream(seed=5, count=3_000))
    produce_all(broker.bootstrap, topic, values)
    broker.tier(topic)
    catalog = lake.catalog(broker)
    assert (lake.NAMESPACE,) in catalog.list_namespaces()
    assert (lake.NAMESPACE, topic) in catalog.list_tables(lake.NAMESPACE)
    rows = lake.scan(broker, topic)
    expected = orders.expected_columns(values)
    assert rows.num_rows == len(values)
    assert rows.select(expected.column_names).to_pylist() == expected.to_pylist()
    assert lake.offsets(broker, topic) == [(0, offset) for offset in range(len(values))]


def test_loading_the_table_first_pours_what_was_just_produced(orders_topic):
    broker, topic = orders_topic
    produce_all(broker.bootstrap, topic, list(orders.stream(seed=6, count=100)))
    assert lake.scan(broker, topic, ("id",)).num_rows == 100
    produce_all(broker.bootstrap, topic, list(orders.stream(seed=7, count=50)))
    assert lake.scan(broker, topic, ("id",)).num_rows == 150


def test_duckdb_reads_the_parquet_files_that_the_catalog_names(orders_topic):
    duckdb = pytest.importorskip("duckdb")
    broker, topic = orders_topic
    values = list(orders.stream(seed=8, count=2_000))
    produce_all(broker.bootstrap, topic, values)
    broker.tier(topic)
    files = [task.file.file_path.removeprefix("file://") for task in lake.load(broker, topic).scan().plan_files()]
    count, total = duckdb.sql(f"select count(*), sum(amount) from read_parquet({files})").fetchall()[0]
    expected = orders.expected_columns(values, ["amount"])
    assert (count, total) == (len(values), pa.compute.sum(expected.column("amount")).as_py())


def test_a_topic_without_a_schema_takes_the_same_way(start_broker, topic):
    broker = start_broker({"log.retention.check.interval.ms": "200"})
    CONFLUENT.create_topic(broker.bootstrap, topic, 1, {"weir.lake.enable": "true", "retention.ms": "-1"})
    records = [
        Record(bytes([i]) * 100, f"k{i}".encode(), (("h", b"1"),), timestamp=1_760_000_000_000 + i) for i in range(200)
    ]
    records += [Record(None, b"tombstone", timestamp=1_760_000_001_000), Record(b"", None, timestamp=1_760_000_001_000)]
    CONFLUENT.produce(broker.bootstrap, topic, records)
    for place in stages(broker, topic):
        assert CONFLUENT.fetch(broker.bootstrap, topic, len(records)) == records, place
    rows = lake.scan(broker, topic)
    assert rows.column("value").to_pylist() == [record.value for record in records]
