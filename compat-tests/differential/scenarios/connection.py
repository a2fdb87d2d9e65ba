"""Frames, headers, order of responses, and what closes a connection (S-1 to S-12)."""

from __future__ import annotations

import struct

from .. import batch, codec
from ..connection import Closed
from ..scenario import scenario


@scenario("S-1")
def frame_longer_than_allowed_closes(t):
    conn = t.connect()
    conn.send_bytes(struct.pack(">i", 100 * 1024 * 1024 + 1))
    t.see("state", conn.state())


@scenario("S-1")
def frame_of_the_largest_size_is_awaited(t):
    conn = t.connect()
    conn.send_bytes(struct.pack(">i", 100 * 1024 * 1024))
    t.see("state", conn.state(0.5))


@scenario("S-1")
def negative_frame_length_closes(t):
    conn = t.connect()
    conn.send_bytes(struct.pack(">i", -1))
    t.see("state", conn.state())


@scenario("S-1")
def empty_frame_closes(t):
    conn = t.connect()
    conn.send_bytes(struct.pack(">i", 0))
    t.see("state", conn.state())


@scenario("S-1 S-5", bugs=(47,))
def frame_too_short_for_a_header_closes(t):
    for size in (1, 2, 4, 7):
        conn = t.connect()
        conn.send_frame(struct.pack(">hhi", 3, 1, 7)[:size])
        t.see(f"{size} bytes", conn.state())


@scenario("S-1")
def http_request_closes(t):
    conn = t.connect()
    conn.send_bytes(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
    t.see("state", conn.state())


@scenario("S-5", bugs=(41, 48))
def unknown_api_key_closes(t):
    for key in (-1, 4, 5, 6, 7, 93, 999):
        conn = t.connect()
        conn.send_frame(conn.header("Metadata", 1, key=key) + b"\0\0\0\0")
        t.see(f"key {key}", conn.state())


@scenario("S-5", bugs=(25, 41, 54, 61))
def version_below_the_range_closes(t):
    for api, version in (
        ("Fetch", 3),
        ("ListOffsets", 0),
        ("OffsetCommit", 1),
        ("OffsetFetch", 0),
        ("CreateTopics", 1),
    ):
        conn = t.connect()
        conn.send_frame(conn.header(api, version) + bytes(64))
        t.see(f"{api} v{version}", conn.state())


@scenario("S-5", bugs=(25, 53))
def version_above_the_range_closes(t):
    for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "InitProducerId"):
        conn = t.connect()
        conn.send_frame(conn.header(api, 30) + bytes(64))
        t.see(f"{api} v30", conn.state())


@scenario("S-5", bugs=(54, 55, 56))
def produce_below_version_3_is_advertised_and_closes(t):
    answer = t.call("ApiVersions", 0)
    t.see("lowest", [key["min_version"] for key in answer["api_keys"] if key["api_key"] == 0])
    for version in (0, 1, 2):
        conn = t.connect()
        conn.send_frame(conn.header("Produce", version) + struct.pack(">hii", -1, 1000, 0))
        t.see(f"v{version}", conn.state())


@scenario("S-5")
def body_that_is_cut_off_closes(t):
    for api, version, body in (
        ("Metadata", 1, b"\0\0\0\1\0\x05ab"),
        ("Metadata", 9, b"\x05\x06ab"),
        ("Fetch", 11, b"\0\0"),
        ("JoinGroup", 5, b"\0\x10abc"),
    ):
        conn = t.connect()
        conn.send_frame(conn.header(api, version) + body)
        t.see(f"{api} v{version}", conn.state())


@scenario("S-5")
def array_length_beyond_the_frame_closes(t):
    for api, version, body in (
        ("Metadata", 1, struct.pack(">i", 0x7FFFFFFF)),
        ("Metadata", 1, struct.pack(">i", -2)),
        ("Metadata", 9, b"\xff\xff\xff\xff\x0f\0\0\0\0"),
        ("ListOffsets", 1, struct.pack(">ii", -1, 0x7FFFFFFF)),
    ):
        conn = t.connect()
        conn.send_frame(conn.header(api, version) + body)
        t.see(f"{api} v{version} {body[:4].hex()}", conn.state())


@scenario("S-5")
def bytes_after_the_body_are_ignored(t):
    conn = t.connect()
    body = codec.encode(codec.request("Metadata"), 1, {"topics": []})
    conn.send_frame(conn.header("Metadata", 1) + body + b"trailing")
    t.see("answer", conn.receive("Metadata", 1)["brokers"])


@scenario("S-5")
def unknown_tagged_fields_are_ignored(t):
    conn = t.connect()
    body = codec.encode(codec.request("Metadata"), 9, {"topics": []})
    header = conn.header("Metadata", 9)
    conn.send_frame(header[:-1] + b"\1\xe7\x07\3abc" + body[:-1] + b"\1\x63\2xy")
    t.see("answer", conn.receive("Metadata", 9)["brokers"])


@scenario("S-5")
def null_where_a_string_must_be_closes(t):
    for api, version, body in (
        ("FindCoordinator", 0, b"\xff\xff"),
        ("Heartbeat", 0, b"\xff\xff" + bytes(8)),
        ("DescribeGroups", 0, b"\0\0\0\1\xff\xff"),
    ):
        conn = t.connect()
        conn.send_frame(conn.header(api, version) + body)
        t.see(f"{api} v{version}", conn.state())


@scenario("S-5")
def bytes_that_are_no_utf8_in_a_name(t):
    conn = t.connect()
    conn.send_frame(conn.header("Metadata", 4) + b"\0\0\0\1\0\2\xff\xfe\0")
    t.see("error", [topic["error_code"] for topic in conn.receive("Metadata", 4)["topics"]])


@scenario("S-8")
def responses_come_in_the_order_of_the_requests(t):
    topic = t.topic()
    conn = t.connect()
    order = []
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    conn.send(
        "Fetch",
        11,
        max_wait_ms=700,
        min_bytes=1,
        session_epoch=-1,
        topics=[{"topic": topic.name, "partitions": [part]}],
    )
    conn.send("Metadata", 1, topics=[])
    conn.send("ApiVersions", 0)
    for _ in range(3):
        order.append(int.from_bytes(conn.frame()[:4], "big"))
    t.see("correlation ids", order)


@scenario("S-8 S-49", bugs=(7,))
def long_poll_holds_back_what_is_behind_it(t):
    import time

    topic = t.topic()
    conn = t.connect()
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    begun = time.monotonic()
    conn.send(
        "Fetch",
        11,
        max_wait_ms=800,
        min_bytes=1,
        session_epoch=-1,
        topics=[{"topic": topic.name, "partitions": [part]}],
    )
    conn.send("ApiVersions", 0)
    conn.frame()
    t.see("waited", time.monotonic() - begun >= 0.75)
    conn.frame()


@scenario("S-8 S-29")
def acks_zero_leaves_no_gap_in_the_responses(t):
    topic = t.topic()
    conn = t.connect()
    part = {"index": 0, "records": batch.make(b"a")}
    for _ in range(3):
        conn.send("Produce", 7, acks=0, timeout_ms=1000, topic_data=[{"name": topic.name, "partition_data": [part]}])
    conn.send("Metadata", 1, topics=[])
    t.see("first answer", int.from_bytes(conn.frame()[:4], "big"))
    t.until("three records", lambda: t.offsets(topic)[1] == 3)


@scenario("S-9")
def client_id_may_be_null_or_empty(t):
    for client_id in (None, "", "a;b c/d", "ä"):
        conn = t.connect(client_id)
        t.see(repr(client_id), conn.call("Metadata", 9, topics=[])["brokers"])
        t.see(f"{client_id!r} old header", conn.call("Metadata", 1, topics=[])["brokers"])


@scenario("S-9")
def correlation_id_may_be_negative(t):
    conn = t.connect()
    conn.correlation = -5
    t.see("answer", conn.call("Metadata", 1, topics=[])["brokers"] != [])
    conn.send("ApiVersions", 0)
    t.see("echoed", int.from_bytes(conn.frame()[:4], "big", signed=True))


@scenario("S-10")
def idle_connection_stays_open(t):
    conn = t.connect()
    t.see("after a second", conn.state(1.0))
    t.see("answers", len(conn.call("Metadata", 1, topics=[])["brokers"]))


@scenario("S-11")
def nothing_is_throttled_without_quotas(t):
    t.see("metadata", t.call("Metadata", 9, topics=[])["throttle_time_ms"])
    t.see(
        "versions", t.call("ApiVersions", 3, client_software_name="a", client_software_version="1")["throttle_time_ms"]
    )
    topic = t.topic()
    part = {"index": 0, "records": batch.make(b"a")}
    produced = t.call(
        "Produce", 9, acks=1, timeout_ms=1000, topic_data=[{"name": topic.name, "partition_data": [part]}]
    )
    t.see("produce", produced["throttle_time_ms"])


@scenario("S-12")
def request_of_a_client_that_left_is_still_applied(t):
    topic = t.topic()
    conn = t.connect()
    part = {"index": 0, "records": batch.make(b"a")}
    conn.send("Produce", 7, acks=-1, timeout_ms=1000, topic_data=[{"name": topic.name, "partition_data": [part]}])
    conn.close()
    t.until("the record", lambda: t.offsets(topic)[1] == 1)
    t.see("offsets", t.offsets(topic))


@scenario("S-12 S-81", bugs=(9,))
def parked_fetch_of_a_client_that_left_harms_nobody(t):
    topic = t.topic()
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    for _ in range(20):
        conn = t.connect()
        conn.send(
            "Fetch",
            11,
            max_wait_ms=60_000,
            min_bytes=1,
            session_epoch=-1,
            topics=[{"topic": topic.name, "partitions": [part]}],
        )
        conn.close()
    t.append(topic, b"a")
    t.see("fetch", t.fetch(topic))


@scenario("S-1 S-8")
def frame_may_come_in_pieces(t):
    import time

    conn = t.connect()
    payload = conn.header("Metadata", 1) + struct.pack(">i", 0)
    for byte in struct.pack(">i", len(payload)) + payload:
        conn.send_bytes(bytes([byte]))
        time.sleep(0.002)
    t.see("answer", conn.receive("Metadata", 1)["brokers"])


@scenario("S-8")
def two_hundred_requests_in_one_write(t):
    conn = t.connect()
    data = bytearray()
    for _ in range(200):
        payload = conn.header("Metadata", 1) + struct.pack(">i", 0)
        data += struct.pack(">i", len(payload)) + payload
    conn.send_bytes(bytes(data))
    t.see("in order", [int.from_bytes(conn.frame()[:4], "big") for _ in range(200)] == list(range(1, 201)))


@scenario("S-6 S-13", bugs=(46, 58))
def sasl_on_a_plaintext_listener(t):
    served = {key["api_key"] for key in t.call("ApiVersions", 0)["api_keys"]}
    t.see("SaslHandshake and SaslAuthenticate are advertised", [17 in served, 36 in served])
    conn = t.connect()
    conn.send("SaslHandshake", 1, mechanism="PLAIN")
    try:
        t.see("handshake", conn.receive("SaslHandshake", 1))
    except Closed:
        t.see("handshake", "closed")
    conn = t.connect()
    conn.send("SaslAuthenticate", 1, auth_bytes=b"\0user\0secret")
    try:
        t.see("authenticate", conn.receive("SaslAuthenticate", 1))
    except Closed:
        t.see("authenticate", "closed")
