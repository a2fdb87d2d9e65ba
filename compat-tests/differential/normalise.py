"""Plain values that two brokers can agree on: ids are numbered by their first appearance, times near now are `<now>`."""

from __future__ import annotations

import re
import time
import uuid

import kafka.errors

from . import batch

ERRORS = {
    error.errno: error.message
    for error in vars(kafka.errors).values()
    if isinstance(error, type) and isinstance(getattr(error, "errno", None), int)
}
# Those that the library does not name.
ERRORS |= {
    0: "NONE",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    112: "UNSUPPORTED_ASSIGNOR",
    113: "STALE_MEMBER_EPOCH",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    116: "UNKNOWN_CONTROLLER_ID",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE",
    119: "INVALID_REGISTRATION",
    120: "TRANSACTION_ABORTABLE",
    121: "INVALID_RECORD_STATE",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    124: "FENCED_STATE_EPOCH",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
}

# Fields that mean the same on every broker whatever they hold.
SILENT = {"throttle_time_ms": 0}
TEXTS = {"error_message", "batch_index_error_message", "documentation"}
IDS = {"producer_id": "producer", "v2pc_ongoing_txn_producer_id": "producer", "session_id": "session"}
MEMBERS = {"member_id", "leader", "leader_member_id"}
# What orders a list of structs whose order no client may rely on.
SORT_KEYS = (
    "resource_type",
    "resource_name",
    "config_name",
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "transactional_id",
    "partition_index",
    "partition",
    "index",
    "api_key",
    "broker_id",
    "node_id",
    "group_instance_id",
    "instance_id",
    "mechanism",
    "log_dir",
)
ORDERED = {"record_errors", "aborted_transactions", "records", "synonyms"}
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Normaliser:
    """One scenario's on one broker. `unique` stands before each name the scenario made; `known` members keep their names."""

    def __init__(self, unique: str, host: str, port: int):
        self.unique, self.host, self.port = unique, host, port
        self.numbers: dict[tuple[str, object], int] = {}
        self.known: set[str] = set()

    def number(self, kind: str, value) -> str:
        count = sum(1 for seen, _ in self.numbers if seen == kind)
        return f"<{kind} {self.numbers.setdefault((kind, value), count + 1)}>"

    def plain(self, value, name: str = ""):
        if isinstance(value, dict):
            silent = SILENT
            if value.get("error_code") == 0:
                # Kafka says nothing, an empty text or NONE's own sentence, by API.
                silent = silent | {"error_message": value.get("error_message")}
            if value.get("error_code") and value.get("base_offset") == -1:
                # Beside a refused batch Kafka has the log's start or -1, by where it was refused; no client looks at it.
                silent = silent | {"log_start_offset": value.get("log_start_offset")}
            return {
                key: self.plain(item, key)
                for key, item in value.items()
                if not (key in silent and item == silent[key]) and not (key.startswith("unknown_tag_"))
            }
        if isinstance(value, (list, tuple)):
            return [
                self.plain(item) if isinstance(item, (dict, list, tuple)) else self.plain(item, name)
                for item in self.ordered(value, name)
            ]
        if name == "records" and isinstance(value, bytes):
            return self.plain(batch.show(value), "batches")
        if isinstance(value, bool) or value is None:
            return value
        if name in TEXTS:
            return "<text>" if value else value
        if name.endswith("error_code") and isinstance(value, int):
            return ERRORS.get(value, value)
        if isinstance(value, int):
            return self.integer(value, name)
        if isinstance(value, uuid.UUID):
            return "<no id>" if value.int == 0 else self.number("id", value)
        if isinstance(value, bytes):
            return self.text(value.decode("latin-1"), name)
        return self.text(value, name) if isinstance(value, str) else value

    def ordered(self, items, name: str):
        if name in ("partitions", "partition_indexes") and all(isinstance(item, int) for item in items):
            return sorted(items)
        if name == "members" and all("member_id" in item for item in items):
            return sorted(items, key=lambda item: self.plain(item["member_id"], "member_id"))
        if name in ORDERED or not all(isinstance(item, dict) for item in items):
            return items
        keys = [key for key in SORT_KEYS if all(key in item for item in items)]
        return sorted(items, key=lambda item: [(item[key] is None, self.comparable(item[key])) for key in keys])

    def comparable(self, value):
        """Ids in the order in which they were first seen: their own order is chance."""
        if isinstance(value, uuid.UUID):
            return self.numbers.get(("id", value), len(self.numbers))
        return value if isinstance(value, (int, float)) else str(value)

    def integer(self, value: int, name: str):
        if name in IDS and value > 0 or name == "producer_id" and value >= 0:
            return self.number(IDS[name], value)
        if name == "port" and value == self.port:
            return "<port>"
        if abs(value - batch.BASE_TIME) <= HOUR_MS:
            return f"T{value - batch.BASE_TIME:+d}"
        if abs(value - time.time() * 1000) < DAY_MS:
            return "<now>"
        return value

    def text(self, value: str, name: str):
        value = value.replace(self.unique, "")
        if name == "cluster_id":
            return self.number("cluster", value)
        if name == "host" and value == self.host:
            return "<host>"
        value = UUID_TEXT.sub(lambda found: self.number("uuid", found.group()), value)
        if name in MEMBERS and re.fullmatch(r"[A-Za-z0-9_-]{22}", value) and value not in self.known:
            return self.number("uuid", value)
        return value
