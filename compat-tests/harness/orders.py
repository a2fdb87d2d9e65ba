"""Orders as real producers write them: the same rows in the JSON styles of several languages, and some that fit none.

Everything follows from a seed, so that a failing run can be repeated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

SCHEMA_SQL = (
    "id BIGINT NOT NULL, customer STRING NOT NULL, item STRING, quantity INT, amount DECIMAL(10,2), weight DOUBLE, "
    "paid BOOLEAN, placed_at TIMESTAMP, ship_on DATE, tags ARRAY<STRING>, address STRUCT<street STRING, city STRING, zip STRING>"
)
TOPIC_CONFIG = {"weir.schema": SCHEMA_SQL, "weir.value.format": "json", "weir.lake.enable": "true"}

ITEMS = (
    "espresso machine",
    "walnut desk 120×60",
    'usb-c cable "braided"',
    "crème brûlée set",
    "tent <2 person>",
    "rope & pulley",
    "北京 tea",
    "headphones",
)
CITIES = ("Oslo", "São Paulo", "Zürich", "Springfield", "京都", "Łódź", "Reykjavík", "Cork")
STREETS = ("Main St", "Rua das Flores", "Bahnhofstrasse", "Elm/Oak Ave", "O'Connell Street")
TAGS = ("gift", "express", "fragile", "b2b", "return", "vip")
EPOCH = datetime(2026, 1, 1)


def order(rng: random.Random, number: int) -> dict:
    """One order as a JSON-able dict, fields in the order of the schema. Some optional fields are null, some absent."""
    placed = EPOCH + timedelta(milliseconds=rng.randrange(300 * 86_400_000))
    row = {
        "id": number,
        "customer": f"C{rng.randrange(50_000):06d}",
        "item": rng.choice(ITEMS),
        "quantity": rng.randrange(1, 12),
        "amount": rng.randrange(99, 250_000) / 100,
        "weight": round(rng.expovariate(0.4), 3),
        "paid": rng.random() < 0.8,
        "placed_at": placed.isoformat(timespec="milliseconds"),
        "ship_on": (placed + timedelta(days=2)).date().isoformat(),
        "tags": rng.sample(TAGS, rng.randrange(4)),
        "address": {
            "street": f"{rng.randrange(1, 200)} {rng.choice(STREETS)}",
            "city": rng.choice(CITIES),
            "zip": f"{rng.randrange(100_000):05d}",
        },
    }
    if rng.random() < 0.1:
        row["ship_on"] = None
    if rng.random() < 0.05:
        del row["weight"]
    return row


# -- the styles of producers ------------------------------------------------------


def python_default(row: dict, rng: random.Random) -> bytes:
    """`json.dumps(row)`: spaces after separators, everything beyond ASCII escaped."""
    return json.dumps(row).encode()


def python_compact(row: dict, rng: random.Random) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def javascript(row: dict, rng: random.Random) -> bytes:
    """`JSON.stringify(row)`: compact, UTF-8 as it is, whole numbers without a fraction."""
    return json.dumps(_whole_floats_as_ints(row), separators=(",", ":"), ensure_ascii=False).encode()


def go(row: dict, rng: random.Random) -> bytes:
    """`json.Marshal(row)` of a Go struct: as JavaScript, and `<`, `>`, `&` escaped."""
    text = javascript(row, rng).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()


def jackson(row: dict, rng: random.Random) -> bytes:
    """Jackson's ObjectMapper: compact, UTF-8 as it is, doubles always with a fraction, absent fields written as null."""
    full = {
        name: row.get(name)
        for name in (
            "id",
            "customer",
            "item",
            "quantity",
            "amount",
            "weight",
            "paid",
            "placed_at",
            "ship_on",
            "tags",
            "address",
        )
    }
    return json.dumps(full, separators=(",", ":"), ensure_ascii=False).encode()


def sorted_keys(row: dict, rng: random.Random) -> bytes:
    return json.dumps(row, sort_keys=True).encode()


def irregular(row: dict, rng: random.Random) -> bytes:
    """Valid rows that no encoder writes twice: odd spaces, shuffled fields, unknown fields, odd number forms and escapes."""
    kind = rng.randrange(7)
    if kind == 0:
        return json.dumps(row, indent=2).encode()
    if kind == 1:
        fields = list(row.items())
        rng.shuffle(fields)
        return json.dumps(dict(fields)).encode()
    if kind == 2:
        return json.dumps({**row, "coupon": "SPRING", "meta": {"ab": [1, None, {"x": 1e3}]}}).encode()
    if kind == 3:
        return json.dumps(row).encode() + b" \n"
    if kind == 4:
        return json.dumps({**row, "weight": 0}).encode().replace(b'"weight": 0', b'"weight": 1.50E+1')
    if kind == 5:
        return json.dumps(row).encode().replace(b'"customer"', b'"\\u0063ustomer"').replace(b"/", b"\\/")
    return json.dumps(row, separators=(" , ", " :\t")).encode()


def _whole_floats_as_ints(row: dict) -> dict:
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in row.items()
    }


REGULAR: tuple[Callable[[dict, random.Random], bytes], ...] = (
    python_default,
    python_compact,
    javascript,
    go,
    jackson,
    sorted_keys,
)


def stream(seed: int, count: int, styles=REGULAR, irregular_share: float = 0.01, run: int = 500) -> Iterator[bytes]:
    """`count` order values. A style holds for `run` rows, as it does for a producer; some rows are irregular."""
    rng = random.Random(seed)
    for number in range(count):
        row = order(rng, number)
        style = styles[number // run % len(styles)]
        if rng.random() < irregular_share:
            style = irregular
        yield style(row, rng)


# -- what the rows mean, computed without Weir ----------------------------------

ARROW_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.string(), nullable=False),
        pa.field("item", pa.string()),
        pa.field("quantity", pa.int32()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("weight", pa.float64()),
        pa.field("paid", pa.bool_()),
        pa.field("placed_at", pa.timestamp("us")),
        pa.field("ship_on", pa.date32()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("address", pa.struct([("street", pa.string()), ("city", pa.string()), ("zip", pa.string())])),
    ]
)


def expected_columns(values: list[bytes], names: list[str] | None = None) -> pa.Table:
    """The columns that the JSON values mean, parsed by Python's json and built by pyarrow."""
    fields = [field for field in ARROW_SCHEMA if names is None or field.name in names]
    parsed = [json.loads(value, parse_float=Decimal) for value in values]
    arrays = [pa.array([_convert(row.get(field.name), field.type) for row in parsed], field.type) for field in fields]
    table = pa.table(arrays, names=[field.name for field in fields])
    return table.select(names) if names else table


def same(actual: pa.Table, expected: pa.Table) -> bool:
    """Equal rows, columns and types, whatever the inner fields of lists are called."""
    return actual.column_names == expected.column_names and actual.cast(expected.schema).equals(expected)


def _convert(value, type_: pa.DataType):
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        return datetime.fromisoformat(value)
    if pa.types.is_date(type_):
        return date.fromisoformat(value)
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_floating(type_):
        return float(value)
    return value


@dataclass(frozen=True)
class BadRow:
    """A value that does not fit, and what the refusal must name."""

    name: str
    value: bytes
    names: tuple[str, ...]


GOOD = b'{"id": 1, "customer": "C1", "amount": 12.5}'
BAD_ROWS = (
    BadRow("text in a BIGINT", b'{"id": "seven", "customer": "C1"}', ("id", "BIGINT", "seven")),
    BadRow("fraction in an INT", b'{"id": 1, "customer": "C1", "quantity": 2.5}', ("quantity", "INT", "2.5")),
    BadRow(
        "number past INT", b'{"id": 1, "customer": "C1", "quantity": 3000000000}', ("quantity", "INT", "3000000000")
    ),
    BadRow("null in NOT NULL", b'{"id": null, "customer": "C1"}', ("id", "NOT NULL", "null")),
    BadRow("absent NOT NULL", b'{"id": 1}', ("customer", "NOT NULL")),
    BadRow("too many decimals", b'{"id": 1, "customer": "C1", "amount": 1.234}', ("amount", "DECIMAL(10,2)", "1.234")),
    BadRow(
        "decimal overflow",
        b'{"id": 1, "customer": "C1", "amount": 123456789.01}',
        ("amount", "DECIMAL(10,2)", "123456789.01"),
    ),
    BadRow("not a date", b'{"id": 1, "customer": "C1", "ship_on": "soon"}', ("ship_on", "DATE", "soon")),
    BadRow(
        "not a timestamp",
        b'{"id": 1, "customer": "C1", "placed_at": "yesterday"}',
        ("placed_at", "TIMESTAMP", "yesterday"),
    ),
    BadRow("text for BOOLEAN", b'{"id": 1, "customer": "C1", "paid": "yes"}', ("paid", "BOOLEAN", "yes")),
    BadRow("nested mismatch", b'{"id": 1, "customer": "C1", "address": {"city": 5}}', ("address", "STRING", "5")),
    BadRow("array element", b'{"id": 1, "customer": "C1", "tags": ["a", 7]}', ("tags", "STRING", "7")),
    BadRow("not an object", b"[1, 2]", ("object",)),
    BadRow("not JSON", b'{"id": 1, "customer": "C1"', ("expected", "found")),
    BadRow("not text at all", b"\x00\x01\xff", ("JSON",)),
)
