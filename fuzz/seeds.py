#!/usr/bin/env python3
"""Writes seeds into fuzz/corpus: what real clients send (compat-tests/captured), and a few lines for each text grammar.

Afterwards `scripts/fuzz --minimise` keeps what covers something.
"""

from __future__ import annotations

import gzip
from hashlib import sha1
from pathlib import Path

HERE = Path(__file__).resolve().parent
CAPTURED = HERE.parent / "compat-tests" / "captured"
PRODUCE = 0

SCHEMAS = """
id BIGINT NOT NULL, customer STRING, amount DECIMAL(10,2), at TIMESTAMP
a BOOLEAN, b INT, c BIGINT, d FLOAT, e DOUBLE, f DECIMAL(10,2), g STRING, h BINARY, i DATE, j TIME, k TIMESTAMP
l TIMESTAMPTZ, m UUID, n ARRAY<INT>, o MAP<STRING,INT>, p STRUCT<x INT, y STRING>
`a b` ARRAY<STRUCT<x DOUBLE NOT NULL, m MAP<STRING,ARRAY<STRING>>>>, "c" TIMESTAMP(3)
id BIGNIT
_offset BIGINT
id INT, id STRING
"""

OPTIONS = """
consumer-1
reader;weir.columns=id,amount
reader;weir.columns=id,amount;weir.format=arrow
weir.format=rows
a;weir.columns=a b;x=y
reader;weir.filter=amount > 1
reader;weir.colmuns=id;WEIR.FORMAT=arrow
reader;weir.columns=id,,id
"""

ROWS = r"""
{"id":1,"customer":"C1","amount":12.50,"at":"2024-01-31 12:00:00.123","ok":true}
{ "id" : 18, "customer" : "caf\u00e9 \ud83d\ude00\n", "amount" : "0.10", "at" : 1700000000000, "extra" : [1,{"x":null}] }
{"id":-9223372036854775808,"amount":-0.00,"customer":null}
{"a":true,"b":-2147483648,"c":9223372036854775807,"d":0.1,"e":1e-7,"f":-12.5,"g":"x","h":"AAH/","i":"2024-02-29"}
{"j":"23:59:59.5","k":"1970-01-01 00:00:01","l":"1970-01-01T02:00:00+02:00","m":"00112233-4455-6677-8899-AABBCCDDEEFF"}
{"n":[1,2,null],"o":{"k":1,"l":null},"p":{"x":1,"y":"z"}}
{"l":[{"x":1.5e300,"m":{"a":["b","c"]}},null],"s":{"t":"2024-01-31T12:00:00Z","d":12345678901234567890.0123456789}}
{"id":1}{"id":2}
{"id":"seven"}
"""


def write(target: str, *inputs: bytes) -> None:
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / sha1(data).hexdigest()).write_bytes(data)


def batches(frame: bytes):
    """The record batches in a Produce request: where a length, a magic of 2 and what is left agree."""
    for place in range(16, len(frame) - 45):
        size = int.from_bytes(frame[place - 8 : place - 4], "big")
        rest = len(frame) - (place - 4)
        if frame[place] == 2 and 0 <= rest - size <= 3:
            yield frame[place - 16 : place - 4 + size]


def main() -> None:
    for path in sorted(CAPTURED.glob("*.txt")):
        lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
        frames = [bytes.fromhex(line[3]) for line in lines]
        write("request_header", *frames)
        write("request_body", *frames)
        write("frame", *(len(frame).to_bytes(4, "big") + frame for frame in frames))
        produced = [frame for frame in frames if int.from_bytes(frame[:2], "big") == PRODUCE]
        for batch in (batch for frame in produced for batch in batches(frame)):
            write("record_batch", batch)
            write("decompress", bytes([batch[22] & 7]) + batch[61:])
    write("decompress", b"\x01" + gzip.compress(b"value" * 100, mtime=0))
    write("schema_sql", *(line.encode() for line in SCHEMAS.strip().splitlines()))
    write("read_options", *(line.encode() for line in OPTIONS.strip().splitlines()))
    write("json_row", *(line.encode() for line in ROWS.strip().splitlines()), ROWS.strip().encode())


if __name__ == "__main__":
    main()
