"""Every Kafka API at every version, from the message definitions that Apache Kafka's own client jar carries.

Requests and responses are plain dicts with snake_case names. A field that a version lacks is left out of the bytes; one
that is not given has the definition's default; a name that no version has is an error, so that a typo cannot pass.
"""

from __future__ import annotations

import functools
import json
import re
import struct
import uuid
import zipfile
from dataclasses import dataclass, field

from harness.kafka_peer import KAFKA_VERSION, kafka_jars

ZERO_ID = uuid.UUID(int=0)
NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
    "bool": ">?",
}


class Malformed(Exception):
    """Bytes that do not mean what the definition says, or that go on after its end."""


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def versions(text: str | None) -> range:
    """`3+`, `0-12`, `4` or `none`."""
    if text is None or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), 1 << 15)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


@dataclass
class Field:
    name: str
    kind: str
    array: bool
    versions: range
    nullable: range
    tagged: range
    tag: int
    flexible: range | None
    default: object
    fields: list[Field] = field(default_factory=list)

    def default_value(self):
        if self.default == "null":
            return None
        if self.array:
            return []
        if self.fields:
            return {member.name: member.default_value() for member in self.fields}
        if self.kind == "bool":
            return str(self.default).lower() == "true"
        if self.kind == "float64":
            return float(self.default or 0)
        if self.kind in NUMBERS:
            return int(str(self.default or 0), 0)
        if self.kind == "uuid":
            return ZERO_ID
        return b"" if self.kind in ("bytes", "records") else str(self.default or "")


@dataclass
class Message:
    name: str
    key: int
    valid: range
    flexible: range
    fields: list[Field]

    def is_flexible(self, version: int) -> bool:
        return version in self.flexible


def _field(definition: dict, common: dict[str, list]) -> Field:
    kind = definition["type"]
    array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    members = definition.get("fields") or common.get(kind) or []
    return Field(
        name=snake(definition["name"]),
        kind=kind,
        array=array,
        versions=versions(definition["versions"]),
        nullable=versions(definition.get("nullableVersions")),
        tagged=versions(definition.get("taggedVersions")),
        tag=definition.get("tag", -1),
        flexible=versions(definition["flexibleVersions"]) if "flexibleVersions" in definition else None,
        default=definition.get("default"),
        fields=[_field(member, common) for member in members],
    )


@functools.cache
def definitions() -> dict[str, Message]:
    """By name: `ProduceRequest`, `ProduceResponse`, and so on."""
    found = {}
    with zipfile.ZipFile(kafka_jars() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        for entry in jar.namelist():
            if not re.fullmatch(r"common/message/\w+\.json", entry):
                continue
            text = re.sub(r"(?m)^\s*//.*$|(?<=[,{}\[\]])\s*//.*$", "", jar.read(entry).decode())
            definition = json.loads(text)
            common = {struct_["name"]: struct_["fields"] for struct_ in definition.get("commonStructs", [])}
            found[definition["name"]] = Message(
                name=definition["name"],
                key=definition.get("apiKey", -1),
                valid=versions(definition["validVersions"]),
                flexible=versions(definition.get("flexibleVersions")),
                fields=[_field(member, common) for member in definition.get("fields", [])],
            )
    return found


def request(api: str) -> Message:
    return definitions()[f"{api}Request"]


def response(api: str) -> Message:
    return definitions()[f"{api}Response"]


def unsigned_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# -- encoding ---------------------------------------------------------------


def encode(message: Message, version: int, values: dict) -> bytes:
    return _encode_struct(message.fields, version, values, message.is_flexible(version), message.name)


def _encode_struct(fields: list[Field], version: int, values: dict, flexible: bool, where: str) -> bytes:
    if unknown := set(values) - {member.name for member in fields}:
        raise KeyError(f"{where} has no {sorted(unknown)}")
    out, tags = bytearray(), {}
    for member in fields:
        if version not in member.versions:
            continue
        value = values[member.name] if member.name in values else member.default_value()
        if version in member.tagged:
            if value != member.default_value():
                tags[member.tag] = _encode(member, version, value, flexible)
        else:
            out += _encode(member, version, value, flexible)
    if flexible:
        out += unsigned_varint(len(tags))
        for tag, data in sorted(tags.items()):
            out += unsigned_varint(tag) + unsigned_varint(len(data)) + data
    return bytes(out)


def _encode(member: Field, version: int, value, flexible: bool) -> bytes:
    if member.flexible is not None:
        flexible = version in member.flexible
    if member.array:
        if value is None:
            return b"\0" if flexible else struct.pack(">i", -1)
        size = unsigned_varint(len(value) + 1) if flexible else struct.pack(">i", len(value))
        return size + b"".join(_encode_one(member, version, item, flexible) for item in value)
    if member.fields and version in member.nullable:
        return b"\xff" if value is None else b"\x01" + _encode_one(member, version, value, flexible)
    return _encode_one(member, version, value, flexible)


def _encode_one(member: Field, version: int, value, flexible: bool) -> bytes:
    if member.fields:
        return _encode_struct(member.fields, version, value, flexible, member.kind)
    if member.kind in NUMBERS:
        return struct.pack(NUMBERS[member.kind], value)
    if member.kind == "uuid":
        return value.bytes
    text = member.kind == "string"
    data = value.encode() if isinstance(value, str) else value
    if flexible:
        return b"\0" if data is None else unsigned_varint(len(data) + 1) + data
    size = ">h" if text else ">i"
    return struct.pack(size, -1) if data is None else struct.pack(size, len(data)) + data


# -- decoding ---------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise Malformed(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, layout: str):
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def decode(message: Message, version: int, data: bytes) -> dict:
    """Fails when the bytes do not end where the definition ends."""
    reader = _Reader(data)
    values = _decode_struct(message.fields, version, reader, message.is_flexible(version))
    if reader.at != len(data):
        raise Malformed(f"{message.name} v{version} has {len(data) - reader.at} bytes too many")
    return values


def _decode_struct(fields: list[Field], version: int, reader: _Reader, flexible: bool) -> dict:
    values, tagged = {}, {}
    for member in fields:
        if version not in member.versions:
            continue
        if version in member.tagged:
            tagged[member.tag] = member
        else:
            values[member.name] = _decode(member, version, reader, flexible)
    if flexible:
        for _ in range(reader.unsigned_varint()):
            tag, size = reader.unsigned_varint(), reader.unsigned_varint()
            inner = _Reader(reader.take(size))
            if member := tagged.get(tag):
                values[member.name] = _decode(member, version, inner, flexible)
            else:
                values[f"unknown_tag_{tag}"] = inner.data
    return values


def _decode(member: Field, version: int, reader: _Reader, flexible: bool):
    if member.flexible is not None:
        flexible = version in member.flexible
    if member.array:
        count = reader.unsigned_varint() - 1 if flexible else reader.number(">i")
        if count < 0:
            if version not in member.nullable:
                raise Malformed(f"{member.name} is null")
            return None
        return [_decode_one(member, version, reader, flexible) for _ in range(count)]
    if member.fields and version in member.nullable and reader.number(">b") < 0:
        return None
    return _decode_one(member, version, reader, flexible)


def _decode_one(member: Field, version: int, reader: _Reader, flexible: bool):
    if member.fields:
        return _decode_struct(member.fields, version, reader, flexible)
    if member.kind in NUMBERS:
        return reader.number(NUMBERS[member.kind])
    if member.kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    text = member.kind == "string"
    size = reader.unsigned_varint() - 1 if flexible else reader.number(">h" if text else ">i")
    if size < 0:
        if version not in member.nullable:
            raise Malformed(f"{member.name} is null")
        return None
    data = reader.take(size)
    return data.decode() if text else data
