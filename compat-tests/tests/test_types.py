"""Every column type, in every spelling that the decoder takes, comes back byte for byte and means what Python says."""

from __future__ import annotations

import base64
import json
import random
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from harness import lake
from harness.clients import BY_NAME
from harness.reading import assert_same_bytes, read_arrow

from .test_main_job import produce_all, stages

pytestmark = pytest.mark.weir_only

SCHEMA_SQL = (
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(18,4), s STRING, x BINARY, y DATE, c TIME, "
    "t TIMESTAMP, z TIMESTAMP WITH TIME ZONE, u UUID, a ARRAY<INT>, m MAP<STRING, DOUBLE>, "
    "r STRUCT<p STRING, q ARRAY<STRUCT<k BIGINT, v STRING>>>"
)
CONFIG = {"weir.schema": SCHEMA_SQL, "weir.value.format": "json", "weir.lake.enable": "true", "retention.ms": "-1"}

TEXTS = (
    "", "plain", "with \"quotes\" and \\ and /", "tab\tnewline\nreturn\r", "\u0000\u001f control", "é ü ñ 北京 🚀", "\u2028\u2029",
    "<script>&'", "\ud7ff\ue000", " lead and trail ",
)  # fmt: skip
EPOCH = datetime(1970, 1, 1)


class Rows:
    """Random rows: as JSON text in a style of their own, and as the Python values that they mean."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)

    def pick(self, *makers):
        return self.rng.choice(makers)()

    def instant(self) -> datetime:
        micros = self.rng.choice((1, 1000, 1_000_000)) * self.rng.randrange(-(10**9), 2 * 10**9)
        return EPOCH + timedelta(microseconds=micros)

    def value(self) -> dict:
        rng = self.rng
        moment = self.instant()
        raw = rng.randbytes(rng.randrange(20))
        row = {
            "b": rng.random() < 0.5,
            "i": self.pick(lambda: rng.randrange(-(2**31), 2**31), lambda: 0, lambda: -(2**31), lambda: 2**31 - 1),
            "l": self.pick(lambda: rng.randrange(-(2**63), 2**63), lambda: -(2**63), lambda: 2**63 - 1),
            "f": self.pick(lambda: float(rng.randrange(-1000, 1000)) / 8, lambda: 0.0),
            "d": self.pick(
                rng.random,
                lambda: rng.uniform(-1e300, 1e300),
                lambda: 5e-324,
                lambda: 1e16,
                lambda: -0.0,
                lambda: 1e22,
                lambda: 0.1 + 0.2,
            ),
            "n": rng.randrange(-(10**13), 10**13) / 10_000,
            "s": rng.choice(TEXTS),
            "x": base64.b64encode(raw).decode(),
            "y": moment.date().isoformat(),
            "c": moment.time().isoformat(),
            "t": self.pick(
                moment.isoformat, lambda: moment.isoformat(sep=" "), lambda: moment.isoformat(timespec="milliseconds")
            ),
            "z": moment.isoformat() + rng.choice(("Z", "+00:00")),
            "u": str(uuid.UUID(bytes=rng.randbytes(16))),
            "a": [rng.randrange(100) for _ in range(rng.randrange(4))],
            "m": {rng.choice(TEXTS[1:]): rng.random() for _ in range(rng.randrange(3))},
            "r": {
                "p": rng.choice(TEXTS),
                "q": [{"k": rng.randrange(9), "v": rng.choice(TEXTS)} for _ in range(rng.randrange(3))],
            },
        }
        for name in row:
            if rng.random() < 0.05:
                row[name] = None
        return {name: value for name, value in row.items() if rng.random() > 0.03}

    def text(self, row: dict) -> bytes:
        separators = self.rng.choice(((", ", ": "), (",", ":"), (",", ": ")))
        return json.dumps(row, separators=separators, ensure_ascii=self.rng.random() < 0.5).encode()


def meaning(name: str, value):
    """The Python value that pyarrow's `to_pylist` gives for the column."""
    if value is None:
        return None
    return {
        "f": float,
        "d": float,
        "n": lambda v: Decimal(repr(v)).quantize(Decimal("0.0001")),
        "x": base64.b64decode,
        "y": date.fromisoformat,
        "c": time.fromisoformat,
        "t": datetime.fromisoformat,
        "z": lambda v: datetime.fromisoformat(v.replace("Z", "+00:00")).astimezone(timezone.utc),
        "u": lambda v: uuid.UUID(v).bytes,
        "m": lambda v: list(v.items()),
    }.get(name, lambda v: v)(value)


@pytest.mark.parametrize("seed", range(3))
def test_random_rows_of_every_type_keep_their_bytes_and_their_meaning(seed, start_broker, topic):
    broker = start_broker({"log.retention.check.interval.ms": "200"})
    BY_NAME["confluent-kafka"].create_topic(broker.bootstrap, topic, 1, CONFIG)
    rows = Rows(seed)
    produced = [rows.value() for _ in range(2_000)]
    # One style for a stretch, as producers write, and then a style for each row.
    values = [json.dumps(row).encode() for row in produced[:1_000]] + [rows.text(row) for row in produced[1_000:]]
    produce_all(broker.bootstrap, topic, values)
    names = list("bilfdnsxyctzuamr")
    expected = [{name: meaning(name, row.get(name)) for name in names} for row in produced]
    for place in stages(broker, topic):
        assert_same_bytes(broker.bootstrap, topic, values, where=place)
        assert_same_rows(read_arrow(broker.bootstrap, topic, names, len(values)), expected, names, place)
    assert_same_rows(lake.scan(broker, topic), expected, names, "pyiceberg")


def assert_same_rows(table: pa.Table, expected: list[dict], names: list[str], where: str) -> None:
    for name in names:
        found = table.column(name).to_pylist()
        if name == "u":
            found = [value.bytes if isinstance(value, uuid.UUID) else value for value in found]
        for number, (value, row) in enumerate(zip(found, expected)):
            assert same(value, row[name]), f"{where}: row {number}, column {name}: {value!r} is not {row[name]!r}"


def same(found, expected) -> bool:
    if isinstance(expected, datetime) and found is not None and found.tzinfo is not None:
        return found.astimezone(timezone.utc) == expected
    return found == expected
