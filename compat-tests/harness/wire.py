"""One request on a bare socket, at exactly the version asked for, with message schemas that are not Weir's own.

kafka-python carries Kafka's JSON message definitions and encodes every version of them, whatever its client would use.
"""

from __future__ import annotations

import importlib
import socket
import struct

from kafka.protocol.api_message import ApiMessage
from kafka.record.util import calc_crc32c

for _module in (
    "kafka.protocol.producer",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.admin",
):
    importlib.import_module(_module)
importlib.import_module("harness.messages")


def _messages(kind: str) -> dict[int, type]:
    found, pending = {}, list(ApiMessage.__subclasses__())
    while pending:
        message = pending.pop()
        pending += message.__subclasses__()
        if message._class_version is None and message.type == kind:
            found[message.API_KEY] = message
    return found


REQUESTS, RESPONSES = _messages("request"), _messages("response")


def build(container: type, version: int, values: dict):
    """A message from nested dicts. Fields that this version does not have are left out; so are those not given."""
    fields = {}
    for name, value in values.items():
        field = container._struct.fields[name]
        if not field.for_version_q(version):
            continue
        if field.is_struct_array() and value is not None:
            value = [build(field.data_class, version, item) for item in value]
        elif field.is_struct() and value is not None:
            value = build(field.data_class, version, value)
        fields[name] = value
    return container(version=version, **fields)


class Wire:
    """One connection."""

    def __init__(self, port: int, client_id: str = "wire"):
        self.connection = socket.create_connection(("127.0.0.1", port), 10)
        self.client_id = client_id
        self.correlation = 0

    def send(self, key: int, version: int, values: dict):
        """The decoded response. Fails when it does not end where its schema ends, or does not encode to the same bytes."""
        self.correlation += 1
        request = build(REQUESTS[key], version, values)
        request.with_header(correlation_id=self.correlation, client_id=self.client_id)
        self.connection.sendall(request.encode(header=True, framed=True))
        frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        response = RESPONSES[key].decode(frame, version=version, header=True)
        assert response.header.correlation_id == self.correlation
        # Encoded again, the body must be what came after the correlation id and, from the flexible versions on, an
        # empty tag section; ApiVersions has the old header for ever.
        response._header = None
        again = bytes(response.encode(version=version))
        header_size = 5 if RESPONSES[key].flexible_version_q(version) and key != 18 else 4
        assert again == frame[header_size:], (
            f"{type(response).__name__} v{version}: sent {frame[header_size:].hex()}, means {again.hex()}"
        )
        return response

    def raw(self, request: bytes) -> bytes:
        """The frame that answers these bytes, which need not be a request. `ConnectionError` when the broker closes."""
        self.connection.sendall(request)
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.connection.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"the broker closed the connection after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.connection.close()


def varint(number: int) -> bytes:
    """Zigzag, as records have it."""
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record_batch(
    *values: bytes,
    key: bytes | None = None,
    timestamps: list[int] | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    deltas: list[int] | None = None,
    count: int | None = None,
    magic: int = 2,
    compress=None,
) -> bytes:
    """A record batch v2 with these values, whose every part can be set to something that is wrong.

    `producer` is (id, epoch, base sequence). The CRC is right; a test that wants another changes the bytes.
    """
    base_time = 1_760_000_000_000
    timestamps = timestamps or [base_time] * len(values)
    records = bytearray()
    for number, value in enumerate(values):
        delta = number if deltas is None else deltas[number]
        key_part = varint(-1) if key is None else varint(len(key)) + key
        body = (
            b"\0"
            + varint(timestamps[number] - timestamps[0])
            + varint(delta)
            + key_part
            + varint(len(value))
            + value
            + varint(0)
        )
        records += varint(len(body)) + body
    payload = bytes(records) if compress is None else compress(bytes(records))
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        len(values) - 1,
        timestamps[0] if timestamps else base_time,
        max(timestamps, default=base_time),
        *producer,
        len(values) if count is None else count,
    )
    checked += payload
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, magic, calc_crc32c(checked)) + checked
