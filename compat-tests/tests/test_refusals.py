"""What does not fit is refused with a sentence that says what to do; what fits beside it is stored."""

from __future__ import annotations

import pytest

from harness import orders
from harness.clients import ALL, BY_NAME, Refused
from harness.clients.base import CLIENT_ID_OPTIONS
from harness.record import Record

pytestmark = pytest.mark.weir_only

CONFLUENT, KAFKA_PYTHON = BY_NAME["confluent-kafka"], BY_NAME["kafka-python"]


@pytest.fixture
def orders_topic(broker, topic):
    CONFLUENT.create_topic(broker.bootstrap, topic, 1, orders.TOPIC_CONFIG)
    return topic


@pytest.mark.parametrize("bad", orders.BAD_ROWS, ids=lambda bad: bad.name)
def test_a_bad_row_is_refused_naming_column_type_and_value(bad, broker, orders_topic):
    with pytest.raises(Refused) as refusal:
        KAFKA_PYTHON.produce(broker.bootstrap, orders_topic, [Record(bad.value)])
    text = str(refusal.value)
    assert all(name in text for name in bad.names), text


@pytest.mark.parametrize("client", ALL, ids=str)
def test_every_client_hears_of_a_bad_row(client, broker, orders_topic):
    with pytest.raises(Refused) as refusal:
        client.produce(broker.bootstrap, orders_topic, [Record(b'{"id": "seven", "customer": "C1"}')])
    print(f"{client.name} says: {refusal.value}")


def test_good_rows_of_other_batches_are_stored(broker, orders_topic):
    with pytest.raises(Refused):
        CONFLUENT.produce(broker.bootstrap, orders_topic, [Record(orders.GOOD), Record(b'{"id": "x"}')])
    CONFLUENT.produce(broker.bootstrap, orders_topic, [Record(orders.GOOD)])
    (stored,) = CONFLUENT.fetch(broker.bootstrap, orders_topic, 1)
    assert (stored.offset, stored.value) == (0, orders.GOOD)


def test_the_bad_rows_of_one_batch_are_each_named(broker, orders_topic):
    rows = [Record(orders.GOOD), Record(b'{"id": "first"}'), Record(orders.GOOD), Record(b'{"id": "second"}')]
    with pytest.raises(Refused) as refusal:
        KAFKA_PYTHON.produce(broker.bootstrap, orders_topic, rows)
    assert "first" in str(refusal.value) and "second" in str(refusal.value)


BAD_CONFIGS = {
    "unknown type": ({"weir.schema": "id BIGNIT"}, ("BIGNIT", "BIGINT")),
    "no type": ({"weir.schema": "id"}, ("id",)),
    "a column twice": ({"weir.schema": "id BIGINT, id INT"}, ("id", "twice")),
    "a reserved name": ({"weir.schema": "_offset BIGINT"}, ("_offset",)),
    "decimal out of range": ({"weir.schema": "a DECIMAL(99,2)"}, ("DECIMAL", "38")),
    "misspelt config of ours": ({"weir.shcema": "id BIGINT"}, ("weir.shcema", "weir.schema")),
    "misspelt config of Kafka's": ({"retention.msec": "1"}, ("retention.msec", "retention.ms")),
    "unknown value format": ({"weir.schema": "id BIGINT", "weir.value.format": "jsno"}, ("jsno", "json")),
    "number that is none": ({"retention.ms": "soon"}, ("retention.ms", "soon")),
}


@pytest.mark.parametrize("case", BAD_CONFIGS, ids=lambda case: case.replace(" ", "-"))
def test_a_bad_config_is_refused_with_what_to_write_instead(case, broker, topic):
    config, names = BAD_CONFIGS[case]
    for client in (CONFLUENT, KAFKA_PYTHON):
        with pytest.raises(Refused) as refusal:
            client.create_topic(broker.bootstrap, topic, 1, config)
        text = str(refusal.value)
        assert all(name in text for name in names), text
    assert topic not in CONFLUENT.topics(broker.bootstrap)


@pytest.mark.parametrize(
    ("options", "names"),
    {
        "weir.columns=id,nothere": ("nothere",),
        "weir.format=parquet": ("parquet",),
        "weir.filter=amount > 1": ("weir.filter",),
        "weir.changelog=true": ("weir.changelog",),
        "weir.colmuns=id": ("weir.colmuns",),
    }.items(),
)
def test_a_read_option_that_cannot_be_honoured_is_refused_not_ignored(options, names, broker, orders_topic):
    CONFLUENT.produce(broker.bootstrap, orders_topic, [Record(orders.GOOD)])
    client = next(client for client in ALL if CLIENT_ID_OPTIONS in client.features)
    # Kafka's Fetch answer has no room for a sentence: the client sees an error code, the broker's log says which option.
    with pytest.raises((Refused, TimeoutError)):
        client.fetch(broker.bootstrap, orders_topic, 1, client_id=f"reader;{options}", timeout=5)
    assert any(name in broker.log_tail(200) for name in names)
