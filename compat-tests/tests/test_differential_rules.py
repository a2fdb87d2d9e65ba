"""How the differential suite compares and normalises, without brokers."""

from __future__ import annotations

import time
import uuid

import pytest

from differential import batch, codec
from differential.compare import differences, verdict
from differential.normalise import Normaliser
from differential.scenario import Transcript

KAFKA = Transcript([("first", {"error_code": "NONE", "offset": 3}), ("second", [1, 2])])


def transcript(*entries, ended=None) -> Transcript:
    return Transcript(list(entries), ended)


def test_equal_transcripts_have_no_differences():
    assert differences(KAFKA, transcript(*KAFKA.entries)) == []


def test_a_difference_names_its_place_and_both_values():
    weir = transcript(("first", {"error_code": "UNKNOWN", "offset": 3}), KAFKA.entries[1])
    assert differences(KAFKA, weir) == ["first.error_code: Kafka 'NONE', Weir 'UNKNOWN'"]


def test_a_field_that_only_one_has_is_a_difference():
    weir = transcript(("first", {"error_code": "NONE", "extra": 1}), KAFKA.entries[1])
    assert differences(KAFKA, weir) == ["first.offset: Kafka 3, Weir nothing", "first.extra: Kafka nothing, Weir 1"]


def test_an_entry_too_few_or_too_many_is_a_difference():
    assert differences(KAFKA, transcript(KAFKA.entries[0])) == ["second: Weir has no such entry"]
    assert differences(transcript(KAFKA.entries[0]), KAFKA) == ["second: only Weir has it"]


def test_after_an_early_end_nothing_is_compared():
    weir = transcript(KAFKA.entries[0], ended="EndTxn v5 is not advertised")
    assert differences(KAFKA, weir) == ["ended: Kafka None, Weir 'EndTxn v5 is not advertised'"]


def test_a_message_where_kafka_has_none_is_no_difference_but_the_other_way_is():
    silent, talking = transcript(("a", {"error_message": None})), transcript(("a", {"error_message": "<text>"}))
    assert differences(silent, talking) == []
    assert differences(talking, silent) == ["a.error_message: Kafka '<text>', Weir None"]


def test_a_listed_difference_passes_and_a_stale_or_unlisted_one_fails():
    line = "first.partitions[0].error_code: Kafka 'NONE', Weir 'UNKNOWN'"
    listed = {"t.a": (["first.partitions[0].error_code: Kafka 'NONE', Weir 'UNKNOWN'"], "why")}
    assert verdict("t.a", [line], listed) is None
    assert "not so any more" in verdict("t.a", [], listed)
    assert "is not listed" in verdict("t.a", [line, "other: Kafka 1, Weir 2"], listed)
    assert "is not listed" in verdict("t.b", [line], listed)


def test_a_star_in_a_clause_stands_for_anything():
    listed = {"t.a": (["v*.error_code: Kafka 0, Weir 1"], "why")}
    assert verdict("t.a", ["v3.error_code: Kafka 0, Weir 1", "v4.error_code: Kafka 0, Weir 1"], listed) is None
    assert verdict("t.a", ["v3.error_code: Kafka 0, Weir 2"], listed) is not None


@pytest.fixture
def normaliser():
    return Normaliser("d7x-", "127.0.0.1", 4711)


def test_ids_are_numbered_by_their_first_appearance(normaliser):
    one, two = uuid.uuid4(), uuid.uuid4()
    assert normaliser.plain({"topic_id": [one, two, one, codec.ZERO_ID]}) == {
        "topic_id": ["<id 1>", "<id 2>", "<id 1>", "<no id>"]
    }
    assert normaliser.plain({"member_id": f"diff-{one}"}) == {"member_id": "diff-<uuid 1>"}
    assert normaliser.plain({"producer_id": -1}) == {"producer_id": -1}
    assert normaliser.plain({"producer_id": 4000}) == {"producer_id": "<producer 1>"}


def test_names_addresses_and_times_are_the_same_everywhere(normaliser):
    seen = {"name": "d7x-orders", "host": "127.0.0.1", "port": 4711, "at": int(time.time() * 1000)}
    assert normaliser.plain(seen) == {"name": "orders", "host": "<host>", "port": "<port>", "at": "<now>"}
    assert normaliser.plain({"max_timestamp": batch.BASE_TIME + 5}) == {"max_timestamp": "T+5"}
    assert normaliser.plain({"port": 9, "error_code": 36}) == {"port": 9, "error_code": "TOPIC_ALREADY_EXISTS"}


def test_order_counts_where_clients_rely_on_it(normaliser):
    assert normaliser.plain({"topics": [{"name": "b"}, {"name": "a"}]}) == {"topics": [{"name": "a"}, {"name": "b"}]}
    ordered = {"record_errors": [{"batch_index": 3}, {"batch_index": 1}]}
    assert normaliser.plain(ordered) == ordered


def test_a_hand_made_batch_is_shown_field_by_field():
    rows = (batch.Row(b"v", b"k", ((b"h", None),)), batch.Row(None, time=batch.BASE_TIME + 2))
    for number in batch.COMPRESS:
        shown = batch.show(batch.make(*rows, codec=number, producer=(7, 1, 2)))
        assert shown[0]["records"] == [
            {"offset": 0, "time": batch.BASE_TIME, "key": b"k", "value": b"v", "headers": [(b"h", None)]},
            {"offset": 1, "time": batch.BASE_TIME + 2, "key": None, "value": None},
        ]
        assert "crc" not in shown[0] and shown[0]["attributes"] == number
    assert batch.show(batch.make(b"v", crc=1))[0]["crc"] == "wrong"
