"""Record batches by hand: every field can be given a value that is wrong, and what comes back is shown field by field."""

from __future__ import annotations

import gzip
import struct
import time
from dataclasses import dataclass

import cramjam
import lz4.frame
from kafka.record.util import calc_crc32c

from harness.wire import varint

HEADER = ">qiibIhiqqqhii"
HEADER_SIZE = struct.calcsize(HEADER)
# Two hours ago: young enough that no default retention takes it, and far enough from now to be told apart.
BASE_TIME = int(time.time()) * 1000 - 7_200_000
TIMESTAMP_TYPE, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def _snappy(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return XERIAL + struct.pack(">i", len(block)) + block


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL[:8]):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, at = bytearray(), len(XERIAL)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return bytes(out)


COMPRESS = {
    0: bytes,
    GZIP: lambda data: gzip.compress(data, mtime=0),
    SNAPPY: _snappy,
    LZ4: lz4.frame.compress,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
DECOMPRESS = {
    0: bytes,
    GZIP: gzip.decompress,
    SNAPPY: _unsnappy,
    LZ4: lz4.frame.decompress,
    ZSTD: lambda data: bytes(cramjam.zstd.decompress(data)),
}


@dataclass
class Row:
    """One record of a batch to be sent. `delta` None counts up."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    time: int = BASE_TIME
    delta: int | None = None
    attributes: int = 0
    length: int | None = None


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(row: Row, delta: int, base_time: int) -> bytes:
    body = struct.pack(">b", row.attributes) + varint(row.time - base_time) + varint(delta)
    body += _sized(row.key) + _sized(row.value) + varint(len(row.headers))
    for name, value in row.headers:
        body += varint(len(name)) + name + _sized(value)
    return varint(len(body) if row.length is None else row.length) + body


def make(
    *rows: Row | bytes,
    codec: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    epoch: int = -1,
    magic: int = 2,
    count: int | None = None,
    last_delta: int | None = None,
    max_time: int | None = None,
    base_time: int | None = None,
    length: int | None = None,
    crc: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A record batch v2. `producer` is (id, epoch, base sequence); `payload` replaces the records' bytes."""
    given = [Row(row) if isinstance(row, bytes) else row for row in rows]
    times = [row.time for row in given] or [BASE_TIME]
    base_time = times[0] if base_time is None else base_time
    records = b"".join(
        encode_record(row, number if row.delta is None else row.delta, base_time) for number, row in enumerate(given)
    )
    checked = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(given) - 1 if last_delta is None else last_delta,
        base_time,
        max(times) if max_time is None else max_time,
        *producer,
        len(given) if count is None else count,
    )
    checked += COMPRESS.get(codec, bytes)(records) if payload is None else payload
    size = len(checked) + 9 if length is None else length
    return (
        struct.pack(">qiibI", base_offset, size, epoch, magic, calc_crc32c(checked) if crc is None else crc) + checked
    )


class _Cursor:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at]


def split(records: bytes) -> list[bytes]:
    """The batches that stand one after another; a cut-off last one is left out."""
    found, at = [], 0
    while at + 12 <= len(records):
        size = int.from_bytes(records[at + 8 : at + 12], "big") + 12
        if at + size > len(records):
            break
        found.append(records[at : at + size])
        at += size
    return found


def show(records: bytes | None) -> list[dict] | None:
    """What a consumer sees of these bytes."""
    if records is None:
        return None
    return [_show(batch) for batch in split(records)]


def _show(data: bytes) -> dict:
    fields = struct.unpack(HEADER, data[:HEADER_SIZE])
    base_offset, _, epoch, magic, crc, attributes, last_delta, base_time, max_time = fields[:9]
    producer_id, producer_epoch, sequence, count = fields[9:]
    shown = {
        "offsets": [base_offset, base_offset + last_delta],
        "leader_epoch": epoch,
        "magic": magic,
        "attributes": attributes,
        "base_timestamp": base_time,
        "max_timestamp": max_time,
        "records": [],
    }
    if calc_crc32c(data[21:]) != crc:
        shown["crc"] = "wrong"
    if (producer_id, producer_epoch, sequence) != (-1, -1, -1):
        shown["producer"] = {"producer_id": producer_id, "epoch": producer_epoch, "sequence": sequence}
    cursor = _Cursor(DECOMPRESS[attributes & 7](data[HEADER_SIZE:]))
    for _ in range(count):
        shown["records"].append(_show_record(cursor, base_offset, base_time, bool(attributes & CONTROL)))
    return shown


def _show_record(cursor: _Cursor, base_offset: int, base_time: int, control: bool) -> dict:
    cursor.varint()
    cursor.at += 1
    time, delta = base_time + cursor.varint(), cursor.varint()
    key, value = cursor.sized(), cursor.sized()
    headers = [(cursor.sized(), cursor.sized()) for _ in range(cursor.varint())]
    record = {"offset": base_offset + delta, "time": time, "key": key, "value": value}
    if control:
        record["key"] = {0: "abort", 1: "commit"}.get(struct.unpack(">hh", key)[1], key)
        record["value"] = "<marker>" if len(value) >= 6 else value
    if headers:
        record["headers"] = headers
    return record
