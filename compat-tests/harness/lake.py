"""The lake as engines see it: through the embedded Iceberg REST catalog, never through Weir's files directly."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute  # noqa: F401 (makes pa.compute)
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from .broker import Broker

NAMESPACE = "weir"


def catalog(broker: Broker):
    return load_catalog("weir", type="rest", uri=f"{broker.http}/iceberg")


def load(broker: Broker, topic: str) -> Table:
    return catalog(broker).load_table(f"{NAMESPACE}.{topic}")


def scan(broker: Broker, topic: str, columns: tuple[str, ...] = ("*",)) -> pa.Table:
    """All rows of the topic's table in log order."""
    rows = load(broker, topic).scan(selected_fields=columns).to_arrow()
    if "_kafka" not in rows.column_names:
        return rows
    kafka = rows.column("_kafka").combine_chunks()
    keys = pa.table(
        {"partition": pa.compute.struct_field(kafka, "partition"), "offset": pa.compute.struct_field(kafka, "offset")}
    )
    return rows.take(pa.compute.sort_indices(keys, [("partition", "ascending"), ("offset", "ascending")]))


def offsets(broker: Broker, topic: str) -> list[tuple[int, int]]:
    """(partition, offset) of every row of the table, sorted; a row that is there twice is here twice."""
    rows = load(broker, topic).scan(selected_fields=("_kafka",)).to_arrow().column("_kafka")
    return sorted((row["partition"], row["offset"]) for row in rows.to_pylist())
