//! The schemas against the decoder they guard, and the guard against hostile bodies.

mod captured;

use std::fmt::Debug;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages;
use kafka_protocol::protocol::{Decodable, Encodable, Message, VersionRange};
use proptest::prelude::*;

use super::*;
use crate::wire::put_unsigned_varint;

/// What the crate can do with the requests of one API.
struct Codec {
    versions: VersionRange,
    /// Decodes a body and says how many bytes were left.
    decode: fn(i16, &Bytes) -> Result<usize, String>,
    /// Decodes a body and encodes it again.
    again: fn(i16, &Bytes) -> Result<Bytes, String>,
    /// Decodes a body, encodes it, and decodes that: it must mean the same, and be as long as was computed.
    round_trip: fn(i16, &Bytes) -> Result<(), String>,
}

fn codec_of<T: Decodable + Encodable + Message + PartialEq + Debug>() -> Codec {
    fn decoded<T: Decodable>(version: i16, body: &mut Bytes) -> Result<T, String> {
        T::decode(body, version).map_err(|error| error.to_string())
    }
    Codec {
        versions: T::VERSIONS,
        decode: |version, body| {
            let mut body = body.clone();
            decoded::<T>(version, &mut body).map(|_| body.len())
        },
        again: |version, body| {
            let message: T = decoded(version, &mut body.clone())?;
            let mut again = BytesMut::new();
            message.encode(&mut again, version).map_err(|error| error.to_string())?;
            Ok(again.freeze())
        },
        round_trip: |version, body| {
            let message: T = decoded(version, &mut body.clone())?;
            let mut again = BytesMut::new();
            message.encode(&mut again, version).map_err(|error| error.to_string())?;
            let size = message.compute_size(version).map_err(|error| error.to_string())?;
            if size != again.len() {
                return Err(format!("{size} bytes were computed, {} were written", again.len()));
            }
            let read: T = decoded(version, &mut again.freeze())?;
            if read == message { Ok(()) } else { Err(format!("{message:?} became {read:?}")) }
        },
    }
}

fn codec(key: i16) -> Codec {
    match key {
        0 => codec_of::<messages::ProduceRequest>(),
        1 => codec_of::<messages::FetchRequest>(),
        2 => codec_of::<messages::ListOffsetsRequest>(),
        3 => codec_of::<messages::MetadataRequest>(),
        8 => codec_of::<messages::OffsetCommitRequest>(),
        9 => codec_of::<messages::OffsetFetchRequest>(),
        10 => codec_of::<messages::FindCoordinatorRequest>(),
        11 => codec_of::<messages::JoinGroupRequest>(),
        12 => codec_of::<messages::HeartbeatRequest>(),
        13 => codec_of::<messages::LeaveGroupRequest>(),
        14 => codec_of::<messages::SyncGroupRequest>(),
        15 => codec_of::<messages::DescribeGroupsRequest>(),
        16 => codec_of::<messages::ListGroupsRequest>(),
        18 => codec_of::<messages::ApiVersionsRequest>(),
        19 => codec_of::<messages::CreateTopicsRequest>(),
        20 => codec_of::<messages::DeleteTopicsRequest>(),
        21 => codec_of::<messages::DeleteRecordsRequest>(),
        22 => codec_of::<messages::InitProducerIdRequest>(),
        23 => codec_of::<messages::OffsetForLeaderEpochRequest>(),
        24 => codec_of::<messages::AddPartitionsToTxnRequest>(),
        25 => codec_of::<messages::AddOffsetsToTxnRequest>(),
        26 => codec_of::<messages::EndTxnRequest>(),
        27 => codec_of::<messages::WriteTxnMarkersRequest>(),
        28 => codec_of::<messages::TxnOffsetCommitRequest>(),
        29 => codec_of::<messages::DescribeAclsRequest>(),
        30 => codec_of::<messages::CreateAclsRequest>(),
        31 => codec_of::<messages::DeleteAclsRequest>(),
        32 => codec_of::<messages::DescribeConfigsRequest>(),
        33 => codec_of::<messages::AlterConfigsRequest>(),
        35 => codec_of::<messages::DescribeLogDirsRequest>(),
        37 => codec_of::<messages::CreatePartitionsRequest>(),
        42 => codec_of::<messages::DeleteGroupsRequest>(),
        43 => codec_of::<messages::ElectLeadersRequest>(),
        44 => codec_of::<messages::IncrementalAlterConfigsRequest>(),
        45 => codec_of::<messages::AlterPartitionReassignmentsRequest>(),
        46 => codec_of::<messages::ListPartitionReassignmentsRequest>(),
        47 => codec_of::<messages::OffsetDeleteRequest>(),
        48 => codec_of::<messages::DescribeClientQuotasRequest>(),
        49 => codec_of::<messages::AlterClientQuotasRequest>(),
        50 => codec_of::<messages::DescribeUserScramCredentialsRequest>(),
        51 => codec_of::<messages::AlterUserScramCredentialsRequest>(),
        55 => codec_of::<messages::DescribeQuorumRequest>(),
        60 => codec_of::<messages::DescribeClusterRequest>(),
        61 => codec_of::<messages::DescribeProducersRequest>(),
        65 => codec_of::<messages::DescribeTransactionsRequest>(),
        66 => codec_of::<messages::ListTransactionsRequest>(),
        68 => codec_of::<messages::ConsumerGroupHeartbeatRequest>(),
        69 => codec_of::<messages::ConsumerGroupDescribeRequest>(),
        74 => codec_of::<messages::ListConfigResourcesRequest>(),
        75 => codec_of::<messages::DescribeTopicPartitionsRequest>(),
        _ => panic!("no codec for key {key}: add it here when a schema is added"),
    }
}

/// Writes a valid body from its schema. Every array gets one to three elements, so that each nested struct is there.
struct Writer {
    out: BytesMut,
    version: i16,
    flexible: bool,
    random: u64,
}

impl Writer {
    fn body(schema: &'static RequestSchema, version: i16, seed: u64) -> Bytes {
        let mut writer =
            Self { out: BytesMut::new(), version, flexible: version >= schema.first_flexible, random: seed | 1 };
        writer.structure(&schema.body);
        writer.out.freeze()
    }

    fn next(&mut self, below: u64) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % below).expect("small")
    }

    fn structure(&mut self, structure: &'static Struct) {
        for field in structure.fields {
            if field.present(self.version) {
                self.value(&field.kind);
            }
        }
        if self.flexible {
            let known: Vec<_> = structure.tagged.iter().filter(|tagged| tagged.field.present(self.version)).collect();
            put_unsigned_varint(&mut self.out, u32::try_from(known.len() + 1).expect("few"));
            for tagged in known {
                let before = std::mem::take(&mut self.out);
                self.value(&tagged.field.kind);
                let value = std::mem::replace(&mut self.out, before);
                self.tag(tagged.tag, &value);
            }
            self.tag(crate::header::EXTENSION_TAG, b"unknown");
        }
    }

    fn tag(&mut self, tag: u32, value: &[u8]) {
        put_unsigned_varint(&mut self.out, tag);
        put_unsigned_varint(&mut self.out, u32::try_from(value.len()).expect("small"));
        self.out.put_slice(value);
    }

    fn value(&mut self, kind: &'static Kind) {
        match kind {
            Kind::Fixed(size) => {
                let byte = u8::try_from(self.next(128)).expect("a byte");
                self.out.put_bytes(byte, *size);
            }
            Kind::String | Kind::Bytes => {
                let size = self.next(200);
                let short = matches!(kind, Kind::String);
                self.size(size, short);
                self.out.put_bytes(b'x', size);
            }
            Kind::Array(element) => {
                let count = 1 + self.next(3);
                self.size(count, false);
                for _ in 0..count {
                    self.value(element);
                }
            }
            Kind::Struct(structure) => self.structure(structure),
            Kind::Nullable(structure) => {
                let present = self.next(2) == 0;
                self.out.put_i8(if present { 1 } else { -1 });
                if present {
                    self.structure(structure);
                }
            }
        }
    }

    fn size(&mut self, size: usize, short: bool) {
        let size = i32::try_from(size).expect("small");
        if self.flexible {
            put_unsigned_varint(&mut self.out, u32::try_from(size + 1).expect("positive"));
        } else if short {
            self.out.put_i16(i16::try_from(size).expect("small"));
        } else {
            self.out.put_i32(size);
        }
    }
}

fn every_version() -> impl Iterator<Item = (&'static RequestSchema, i16)> {
    requests::REQUESTS.iter().flat_map(|schema| {
        let versions = codec(schema.key).versions;
        (versions.min..=versions.max).map(move |version| (*schema, version))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bodies_written_from_a_schema_are_read_to_their_last_byte_by_the_decoder(seed in any::<u64>()) {
        for (schema, version) in every_version() {
            let body = Writer::body(schema, version, seed);
            prop_assert_eq!(guard(schema.key, version, &body), Ok(()), "key {} version {}", schema.key, version);
            prop_assert_eq!((codec(schema.key).decode)(version, &body), Ok(0), "key {} version {}", schema.key, version);
        }
    }

    #[test]
    fn a_request_of_every_version_means_the_same_when_it_is_encoded_again(seed in any::<u64>()) {
        for (schema, version) in every_version() {
            let body = Writer::body(schema, version, seed);
            prop_assert_eq!((codec(schema.key).round_trip)(version, &body), Ok(()), "key {} version {}", schema.key, version);
        }
    }

    #[test]
    fn a_body_cut_anywhere_is_refused(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        for (schema, version) in every_version() {
            let body = Writer::body(schema, version, seed);
            if body.is_empty() {
                continue;
            }
            let cut = cut.index(body.len());
            prop_assert!(guard(schema.key, version, &body[..cut]).is_err(), "key {} version {} cut at {}", schema.key, version, cut);
        }
    }

    #[test]
    fn what_the_guard_passes_never_makes_the_decoder_reserve_more_than_the_limit(seed in any::<u64>(), flip in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for (schema, version) in every_version() {
            let mut body = Writer::body(schema, version, seed).to_vec();
            if body.is_empty() {
                continue;
            }
            let position = flip.index(body.len());
            body[position] = byte;
            if guard(schema.key, version, &body).is_ok() {
                // Must return, with whatever result: a wild reservation would abort the test process.
                let _refused = (codec(schema.key).decode)(version, &Bytes::from(body));
            }
        }
    }
}

/// The first array of every API, with a count of two billion and nothing behind it.
#[test]
fn a_tiny_body_that_claims_billions_of_elements_is_refused_for_every_api_and_version() {
    for (schema, version) in every_version() {
        let flexible = version >= schema.first_flexible;
        let mut writer = Writer { out: BytesMut::new(), version, flexible, random: 7 };
        let mut has_array = false;
        for field in schema.body.fields.iter().filter(|field| field.present(version)) {
            if matches!(field.kind, Kind::Array(_)) {
                has_array = true;
                break;
            }
            writer.value(&field.kind);
        }
        if !has_array {
            continue;
        }
        let before = writer.out.len();
        if flexible {
            writer.out.put_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
        } else {
            writer.out.put_i32(i32::MAX);
        }
        let found = guard(schema.key, version, &writer.out);
        assert!(
            matches!(found, Err(GuardError::ImpossibleCount { position, remaining: 0, .. }) if position == before),
            "key {} version {version}: {found:?}",
            schema.key
        );
    }
}

#[test]
fn a_large_body_of_tiny_elements_is_refused_above_the_element_limit() {
    let body = |count: usize| {
        let mut out = BytesMut::new();
        out.put_i32(i32::try_from(count).expect("fits"));
        out.put_bytes(0, count * 2);
        out
    };
    // Metadata v0: an array of strings, here all empty.
    assert_eq!(guard(3, 0, &body(MAX_REQUEST_ELEMENTS)), Ok(()));
    assert_eq!(guard(3, 0, &body(MAX_REQUEST_ELEMENTS + 1)), Err(GuardError::TooManyElements));
}

#[test]
fn a_body_of_a_million_tagged_fields_is_refused() {
    let mut out = BytesMut::new();
    out.put_slice(&[1, 1]);
    put_unsigned_varint(&mut out, 1_000_000);
    out.put_bytes(0, 2_000_000);
    assert_eq!(guard(18, 3, &out), Err(GuardError::TooManyElements));
}

#[test]
fn a_known_tagged_field_of_the_wrong_size_is_refused() {
    // FetchPartition's replica directory id (v17) claims two bytes: the crate would read sixteen and take the rest of the frame for something else.
    let mut out = BytesMut::new();
    out.put_bytes(0, 4 + 4 + 4 + 1 + 4 + 4);
    out.put_slice(&[2]);
    out.put_bytes(1, 16);
    out.put_slice(&[2]);
    out.put_bytes(0, 4 + 4 + 8 + 4 + 8 + 4);
    out.put_slice(&[1, 0, 2]);
    out.put_bytes(0, 40);
    assert!(matches!(guard(1, 17, &out), Err(GuardError::TagSize { tag: 0, .. })), "{:?}", guard(1, 17, &out));
}

#[test]
fn apis_without_a_schema_are_refused() {
    assert_eq!(guard(4, 0, &[]), Err(GuardError::UnknownApi { key: 4 }));
}
