"""What pyiceberg can and cannot do through the catalog at argv[1]. Run by the tests of this crate."""

import sys
import uuid

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual

catalog = load_catalog("weir", type="rest", uri=sys.argv[1])


def refused(kinds, words, action):
    try:
        action()
    except kinds as error:
        assert words in str(error), f"{words!r} is not in {error}"
        return
    raise AssertionError(f"not refused: {words}")


# Topics are tables, and loading one pours what was produced before.
assert catalog.list_namespaces() == [("weir",)], catalog.list_namespaces()
orders = catalog.load_table("weir.orders")
assert set(catalog.list_tables("weir")) == {("weir", "orders"), ("weir", "types")}
rows = orders.scan().to_arrow()
assert rows.num_rows == 1010, rows.num_rows
kafka = rows.column("_kafka").combine_chunks()
positions = list(zip(kafka.field("partition").to_pylist(), kafka.field("offset").to_pylist()))
assert sorted(positions) == [(0, n) for n in range(1000)] + [(1, n) for n in range(10)]
for (_, offset), row_id in zip(positions, rows.column("id").to_pylist()):
    assert offset == row_id
by_offset = {position: index for index, position in enumerate(positions)}
row = kafka[by_offset[(0, 2)]].as_py()
assert row["key"] == b"key-2" and row["headers"] == [{"key": "h", "value": b"v"}], row
assert row["timestamp"].timestamp() * 1000 == 1_700_000_000_002
# pyiceberg 0.12 shows a null list of structs as an empty one (ArrowProjectionVisitor.list drops the validity).
assert not kafka[by_offset[(0, 3)]].as_py()["headers"]
some = orders.scan(row_filter=GreaterThanOrEqual("id", 990), selected_fields=("id", "item")).to_arrow()
assert some.column_names == ["id", "item"] and some.num_rows == 10

# Every column type.
types = catalog.load_table("weir.types")
rows = types.scan().to_arrow()
assert rows.num_rows == 200
assert isinstance(rows.column("u")[1].as_py(), (uuid.UUID, bytes))
print({field.name: str(field.field_type) for field in types.schema().fields})
first = {name: rows.column(name)[1].as_py() for name in rows.column_names if name != "_kafka"}
assert first["l"] == 7919 and first["arr"] == [919, None] and first["m"] == [("a", 919)], first
assert str(first["dec"]) == "9.19" and first["st"] == {"inner": 7919}, first

# Others may describe a topic's table, and may not change what it says.
with orders.transaction() as transaction:
    transaction.set_properties(owner="dana")
assert catalog.load_table("weir.orders").properties["owner"] == "dana"
orders = catalog.load_table("weir.orders")
again = orders.scan(limit=3).to_arrow()
refused(BadRequestError, "produce to the topic", lambda: orders.append(again))
refused(BadRequestError, "holds the rows of a topic", lambda: orders.overwrite(again))
refused(BadRequestError, "holds the rows of a topic", lambda: orders.delete(EqualTo("id", 3)))


def set_marker():
    with orders.transaction() as transaction:
        transaction.set_properties({"weir.marker": "{}"})


def add_column():
    from pyiceberg.types import StringType

    with orders.update_schema() as update:
        update.add_column("extra", StringType())


refused(BadRequestError, "kept by Weir", set_marker)
refused(BadRequestError, "weir.schema", add_column)
refused(ForbiddenError, "topic", lambda: catalog.drop_table("weir.orders"))
refused(ForbiddenError, "topic", lambda: catalog.rename_table("weir.orders", "weir.other"))
refused(ForbiddenError, "create a topic", lambda: catalog.create_table("weir.mine", schema=again.schema))

# Other namespaces are theirs.
catalog.create_namespace("lab", {"purpose": "tests"})
assert catalog.load_namespace_properties("lab") == {"purpose": "tests"}
catalog.update_namespace_properties("lab", removals={"purpose"}, updates={"team": "a"})
assert catalog.load_namespace_properties("lab") == {"team": "a"}
data = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
mine = catalog.create_table("lab.mine", schema=data.schema, properties={"format-version": "2"})
refused(TableAlreadyExistsError, "", lambda: catalog.create_table("lab.mine", schema=data.schema))
mine.append(data)
mine.append(data)
mine.delete(EqualTo("id", 1))
assert sorted(mine.scan().to_arrow().column("id").to_pylist()) == [2, 2, 3, 3]
mine.overwrite(data)
with mine.update_schema() as update:
    from pyiceberg.types import StringType

    update.add_column("note", StringType())
assert catalog.load_table("lab.mine").scan().to_arrow().column_names == ["id", "name", "note"]
one, two = catalog.load_table("lab.mine"), catalog.load_table("lab.mine")
one.append(data.append_column("note", pa.array(["x"] * 3)))
try:
    two.append(data.append_column("note", pa.array(["y"] * 3)))
except CommitFailedException:
    two.refresh().append(data.append_column("note", pa.array(["y"] * 3)))
assert catalog.load_table("lab.mine").scan().to_arrow().num_rows == 9
with catalog.create_table_transaction("lab.staged", schema=data.schema) as transaction:
    transaction.append(data)
assert catalog.load_table("lab.staged").scan().to_arrow().num_rows == 3
refused(BadRequestError, "outside the lake", lambda: catalog.create_table("lab.far", schema=data.schema, location="file:///etc/far"))
catalog.rename_table("lab.mine", "lab.yours")
assert not catalog.table_exists("lab.mine") and catalog.table_exists("lab.yours")
refused(NoSuchTableError, "", lambda: catalog.load_table("lab.mine"))
refused(NamespaceNotEmptyError, "", lambda: catalog.drop_namespace("lab"))
for name in ("lab.yours", "lab.staged"):
    catalog.drop_table(name)
catalog.drop_namespace("lab")
assert catalog.list_namespaces() == [("weir",)]
print("ok")
