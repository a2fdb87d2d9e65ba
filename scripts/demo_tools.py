"""The demo's steps that kcat has no words for. Run from compat-tests, whose clients and data these are."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat-tests"))

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import load_catalog

from harness import orders
from harness.clients import BY_NAME, Refused
from harness.reading import read_arrow
from harness.record import Record

CONFLUENT, KAFKA_PYTHON = BY_NAME["confluent-kafka"], BY_NAME["kafka-python"]


def create_topic(bootstrap: str, topic: str) -> None:
    CONFLUENT.create_topic(bootstrap, topic, 1, orders.TOPIC_CONFIG)
    for name in orders.TOPIC_CONFIG:
        print(f"  {name} = {CONFLUENT.topic_config(bootstrap, topic)[name]}")


def write_orders(count: str) -> None:
    """One order a line, in the styles that fit on one."""
    for value in orders.stream(seed=1, count=int(count), irregular_share=0):
        sys.stdout.buffer.write(value + b"\n")


def bad_row(bootstrap: str, topic: str) -> None:
    bad = b'{"id": "seven", "customer": "C000001", "amount": 12.5}'
    print(f"  producing {bad.decode()}")
    try:
        KAFKA_PYTHON.produce(bootstrap, topic, [Record(bad)])
    except Refused as refusal:
        print(f"  refused: {refusal}")
    else:
        raise SystemExit("the row was accepted")


def arrow(bootstrap: str, topic: str, count: str) -> None:
    print_sum("Arrow batches", read_arrow(bootstrap, topic, ["id", "amount"], int(count)))


def segments(data: str) -> None:
    for path in sorted(Path(data).rglob("*.arrow")):
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        print(f"  {path}  {path.stat().st_size} bytes")
        print(f"  columns: {', '.join(table.column_names)}")
        print_sum("pyarrow", table)


def drop_local(bootstrap: str, topic: str) -> None:
    CONFLUENT.alter_topic_config(bootstrap, topic, {"local.retention.ms": "1"})


def lake(http: str, topic: str) -> None:
    table = load_catalog("weir", type="rest", uri=f"{http}/iceberg").load_table(f"weir.{topic}")
    print_sum("pyiceberg", table.scan(selected_fields=("id", "amount")).to_arrow())


def print_sum(who: str, table: pa.Table) -> None:
    print(f"  {who}: {table.num_rows} rows, sum(amount) = {pc.sum(table.column('amount')).as_py()}")


VERBS = {
    "create-topic": create_topic,
    "orders": write_orders,
    "bad-row": bad_row,
    "arrow": arrow,
    "segments": segments,
    "drop-local": drop_local,
    "lake": lake,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
