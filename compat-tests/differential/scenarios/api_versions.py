"""ApiVersions: negotiation must work for every client that ever was (S-2 to S-7)."""

from __future__ import annotations

import struct

from .. import codec
from ..scenario import scenario

CLIENT = {"client_software_name": "diff", "client_software_version": "1.0"}


def ranges(answer: dict) -> dict[str, list[int]]:
    names = {
        message.key: name.removesuffix("Request")
        for name, message in codec.definitions().items()
        if name.endswith("Request")
    }
    return {names[key["api_key"]]: [key["min_version"], key["max_version"]] for key in answer["api_keys"]}


@scenario("S-7", bugs=(40, 48, 53, 56))
def every_api_has_the_range_that_kafka_has(t):
    t.see("ranges", dict(sorted(ranges(t.call("ApiVersions", 0)).items())))


@scenario("S-2 S-3", bugs=(24, 44))
def unsupported_version_is_answered_in_version_0(t):
    for version in (6, 50, 32767):
        conn = t.connect()
        conn.send_frame(struct.pack(">hhih", 18, version, 7, -1) + b"\0whatever follows")
        frame = conn.frame()
        t.see(f"v{version}", codec.decode(codec.response("ApiVersions"), 0, frame[4:]))
        conn.correlation = 7
        t.see(f"v{version}, then", conn.call("ApiVersions", 0)["error_code"])


@scenario("S-3", bugs=(24,))
def response_header_never_has_tags(t):
    for version in range(5):
        conn = t.connect()
        conn.send("ApiVersions", version, **CLIENT)
        frame = conn.frame()
        answer = codec.decode(codec.response("ApiVersions"), version, frame[4:])
        t.see(f"v{version}", [answer["error_code"], len(answer["api_keys"]) > 20])


@scenario("S-4")
def client_name_and_version_are_checked(t):
    for name, version in (
        ("apache-kafka-java", "4.2.0"),
        ("a.b-c", "1"),
        ("", "1"),
        ("a", ""),
        ("-a", "1"),
        ("a-", "1"),
        ("a b", "1"),
        ("ä", "1"),
        ("a", "1/2"),
        ("a_b", "1"),
        ("a+b", "1.0+x"),
    ):
        answer = t.call("ApiVersions", 3, client_software_name=name, client_software_version=version)
        t.see(f"{name!r} {version!r}", [answer["error_code"], bool(answer["api_keys"])])


@scenario("S-6")
def may_be_asked_again(t):
    for version in (0, 3, 4, 0, 2):
        t.see(f"v{version}", t.call("ApiVersions", version, **CLIENT)["error_code"])


@scenario("S-7 S-100", bugs=(24, 62))
def features_of_version_4(t):
    answer = t.call("ApiVersions", 4, **CLIENT)
    finalized = {feature["name"]: feature["max_version_level"] for feature in answer.get("finalized_features", [])}
    t.see("finalized transaction.version", finalized.get("transaction.version"))
    t.see("finalized group.version", finalized.get("group.version"))
    t.see("finalized has metadata.version", "metadata.version" in finalized)
    t.see("epoch is known", answer.get("finalized_features_epoch", -1) >= 0)


@scenario("S-7")
def supported_features(t):
    answer = t.call("ApiVersions", 4, **CLIENT)
    t.see("supported", sorted(feature["name"] for feature in answer.get("supported_features", [])))


@scenario("S-7")
def features_whose_minimum_is_0_are_hidden_from_version_3(t):
    answer = t.call("ApiVersions", 3, **CLIENT)
    t.see("minima", sorted({feature["min_version"] for feature in answer.get("supported_features", [])}))


@scenario("S-4")
def old_versions_have_no_client_name(t):
    for version in (0, 1, 2):
        conn = t.connect()
        conn.send_frame(conn.header("ApiVersions", version))
        answer = conn.receive("ApiVersions", version)
        t.see(f"v{version}", [answer["error_code"], "throttle_time_ms" in answer])


@scenario("S-101")
def telemetry_keys(t):
    served = ranges(t.call("ApiVersions", 0))
    t.see("advertised", [api in served for api in ("GetTelemetrySubscriptions", "PushTelemetry")])


@scenario("S-105")
def share_group_keys(t):
    served = ranges(t.call("ApiVersions", 0))
    t.see("advertised", [api in served for api in ("ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge")])
