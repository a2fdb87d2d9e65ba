use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Bytes as Apache Kafka's generated classes write them (version, then the fields in schema order, big endian).
const OFFSET_KEY: &[u8] = b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x07";
const OFFSET_VALUE_V3: &[u8] =
    b"\x00\x03\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x00\x05\x00\x02hi\x00\x00\x01\x8b\xcf\xe5\x68\x00";
const GROUP_KEY: &[u8] = b"\x00\x02\x00\x01g";
const GROUP_VALUE_V3: &[u8] = b"\x00\x03\
    \x00\x08consumer\
    \x00\x00\x00\x04\
    \x00\x05range\
    \x00\x02m1\
    \x00\x00\x01\x8b\xcf\xe5\x68\x00\
    \x00\x00\x00\x01\
    \x00\x02m1\
    \xff\xff\
    \x00\x01c\
    \x00\x0a/127.0.0.1\
    \x00\x04\x93\xe0\
    \x00\x00\xaf\xc8\
    \x00\x00\x00\x02\x01\x02\
    \x00\x00\x00\x01\x03";

fn text(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn offset() -> CommittedOffset {
    CommittedOffset {
        offset: 42,
        leader_epoch: Some(5),
        metadata: text("hi"),
        commit_wall_ms: 1_700_000_000_000,
        expires_wall_ms: None,
    }
}

fn group() -> GroupMetadata {
    GroupMetadata {
        protocol_type: text("consumer"),
        generation: 4,
        protocol_name: Some(text("range")),
        leader: Some(text("m1")),
        state_since_wall_ms: Some(1_700_000_000_000),
        members: vec![MemberRecord {
            id: text("m1"),
            instance_id: None,
            client_id: text("c"),
            client_host: text("/127.0.0.1"),
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
            subscription: Bytes::from_static(&[1, 2]),
            assignment: Bytes::from_static(&[3]),
        }],
    }
}

#[test]
fn an_offset_is_written_as_kafka_writes_it() {
    let record = Record::offset(&text("g"), &text("orders"), 7, offset());
    assert_eq!(&record.key_bytes()[..], OFFSET_KEY);
    assert_eq!(&record.value_bytes().expect("a value")[..], OFFSET_VALUE_V3);
    assert_eq!(Record::parse(OFFSET_KEY, Some(OFFSET_VALUE_V3)), Ok(Some(record)));
}

#[test]
fn a_group_is_written_as_kafka_writes_it() {
    let record = Record::group(&text("g"), group());
    assert_eq!(&record.key_bytes()[..], GROUP_KEY);
    assert_eq!(&record.value_bytes().expect("a value")[..], GROUP_VALUE_V3);
    assert_eq!(Record::parse(GROUP_KEY, Some(GROUP_VALUE_V3)), Ok(Some(record)));
}

#[test]
fn older_values_of_kafka_are_read() {
    let v0 = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x02hi\x00\x00\x01\x8b\xcf\xe5\x68\x00";
    let v1 = [&b"\x00\x01"[..], &v0[2..], b"\x00\x00\x01\x8b\xcf\xe5\x68\x01"].concat();
    let v2 = [&b"\x00\x02"[..], &v0[2..]].concat();
    let parse = |value: &[u8]| match Record::parse(OFFSET_KEY, Some(value)).expect("valid").expect("an offset").value {
        Some(RecordValue::Offset(committed)) => (committed.offset, committed.leader_epoch, committed.expires_wall_ms),
        other => panic!("not an offset: {other:?}"),
    };
    assert_eq!(parse(v0), (42, None, None));
    assert_eq!(parse(&v1), (42, None, Some(1_700_000_000_001)));
    assert_eq!(parse(&v2), (42, None, None));

    let group_v0 = b"\x00\x00\x00\x08consumer\x00\x00\x00\x04\xff\xff\xff\xff\x00\x00\x00\x01\x00\x01m\x00\x01c\x00\x01h\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00";
    match Record::parse(GROUP_KEY, Some(group_v0)).expect("valid").expect("a group").value {
        Some(RecordValue::Group(group)) => {
            assert_eq!((group.generation, group.state_since_wall_ms), (4, None));
            assert_eq!((group.members[0].rebalance_timeout_ms, group.members[0].session_timeout_ms), (9, 9));
        }
        other => panic!("not a group: {other:?}"),
    }
}

#[test]
fn keys_of_other_protocols_are_passed_over_and_tombstones_kept() {
    assert_eq!(Record::parse(b"\x00\x09\x00\x01g", Some(b"\x00\x00")), Ok(None));
    let tombstone = Record::parse(OFFSET_KEY, None).expect("valid").expect("an offset");
    assert_eq!(tombstone.value, None);
    assert_eq!(tombstone.value_bytes(), None);
}

#[test]
fn damaged_records_are_errors() {
    for cut in 0..GROUP_VALUE_V3.len() {
        assert!(Record::parse(GROUP_KEY, Some(&GROUP_VALUE_V3[..cut])).is_err(), "cut at {cut}");
    }
    for cut in 0..OFFSET_KEY.len() {
        assert!(Record::parse(&OFFSET_KEY[..cut], None).is_err(), "cut at {cut}");
    }
    assert_eq!(Record::parse(OFFSET_KEY, Some(b"\x00\x09")), Err(RecordError::UnknownVersion { version: 9 }));
}

fn any_text() -> impl Strategy<Value = Arc<str>> {
    "\\PC{0,12}".prop_map(|text| Arc::from(text.as_str()))
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

prop_compose! {
    fn any_member()(
        id in any_text(), instance_id in prop::option::of(any_text()), client_id in any_text(), client_host in any_text(),
        rebalance_timeout_ms in any::<i32>(), session_timeout_ms in any::<i32>(), subscription in any_bytes(), assignment in any_bytes(),
    ) -> MemberRecord {
        MemberRecord { id, instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms, subscription, assignment }
    }
}

proptest! {
    #[test]
    fn every_group_survives_the_round_trip(
        name in any_text(), protocol_type in any_text(), generation in any::<i32>(), protocol_name in prop::option::of(any_text()),
        leader in prop::option::of(any_text()), since in prop::option::of(0..i64::MAX), members in prop::collection::vec(any_member(), 0..4),
    ) {
        let metadata = GroupMetadata { protocol_type, generation, protocol_name, leader, state_since_wall_ms: since, members };
        let record = Record::group(&name, metadata);
        prop_assert_eq!(Record::parse(&record.key_bytes(), record.value_bytes().as_deref()), Ok(Some(record)));
    }

    #[test]
    fn every_offset_survives_the_round_trip(
        name in any_text(), topic in any_text(), partition in any::<i32>(), offset in any::<i64>(), epoch in prop::option::of(0..i32::MAX),
        metadata in any_text(), commit_wall_ms in any::<i64>(), expires in prop::option::of(0..i64::MAX),
    ) {
        // The version with an expiry has no room for the epoch, as in Kafka.
        let leader_epoch = if expires.is_some() { None } else { epoch };
        let committed = CommittedOffset { offset, leader_epoch, metadata, commit_wall_ms, expires_wall_ms: expires };
        let record = Record::offset(&name, &topic, partition, committed);
        prop_assert_eq!(Record::parse(&record.key_bytes(), record.value_bytes().as_deref()), Ok(Some(record)));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(key in prop::collection::vec(any::<u8>(), 0..40), value in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Record::parse(&key, Some(&value));
        let _ = Record::parse(GROUP_KEY, Some(&value));
    }
}
