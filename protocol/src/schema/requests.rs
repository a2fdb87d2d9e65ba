//! The request bodies we know, field by field, in Kafka's own order (the JSON schemas in Kafka's `clients/src/main/resources/common/message`).

use super::{Field, Kind, RequestSchema, Struct, TaggedField};

const BOOL: Kind = Kind::Fixed(1);
const INT8: Kind = Kind::Fixed(1);
const INT16: Kind = Kind::Fixed(2);
const INT32: Kind = Kind::Fixed(4);
const INT64: Kind = Kind::Fixed(8);
const FLOAT64: Kind = Kind::Fixed(8);
const UUID: Kind = Kind::Fixed(16);
const STRING: Kind = Kind::String;
const BYTES: Kind = Kind::Bytes;
const INT8S: Kind = Kind::Array(&INT8);
const INT32S: Kind = Kind::Array(&INT32);
const INT64S: Kind = Kind::Array(&INT64);
const STRINGS: Kind = Kind::Array(&STRING);
const NEVER_FLEXIBLE: i16 = i16::MAX;

const fn all(kind: Kind) -> Field {
    Field { kind, since: 0, until: i16::MAX }
}

const fn since(version: i16, kind: Kind) -> Field {
    Field { kind, since: version, until: i16::MAX }
}

const fn until(version: i16, kind: Kind) -> Field {
    Field { kind, since: 0, until: version }
}

const fn between(first: i16, last: i16, kind: Kind) -> Field {
    Field { kind, since: first, until: last }
}

/// An array of structs of these fields.
macro_rules! structs {
    ($($field:expr),* $(,)?) => {
        Kind::Array(&Kind::Struct(&Struct { fields: &[$($field),*], tagged: &[] }))
    };
}

macro_rules! request {
    ($name:ident = $key:literal, flexible $flexible:expr, [$($field:expr),* $(,)?] $(, tagged [$($tagged:expr),* $(,)?])?) => {
        static $name: RequestSchema = RequestSchema {
            key: $key,
            first_flexible: $flexible,
            body: Struct { fields: &[$($field),*], tagged: &[$($($tagged),*)?] },
        };
    };
}

request!(PRODUCE = 0, flexible 9, [
    all(STRING), // transactional id
    all(INT16),  // acks
    all(INT32),  // timeout
    all(structs![until(12, STRING), since(13, UUID), all(structs![all(INT32), all(BYTES)])]),
]);

static FETCH_PARTITION: Struct = Struct {
    fields: &[
        all(INT32),       // partition
        since(9, INT32),  // current leader epoch
        all(INT64),       // fetch offset
        since(12, INT32), // last fetched epoch
        since(5, INT64),  // log start offset
        all(INT32),       // max bytes
    ],
    tagged: &[TaggedField { tag: 0, field: since(17, UUID) }, TaggedField { tag: 1, field: since(18, INT64) }],
};

static FETCH_REPLICA_STATE: Struct = Struct { fields: &[all(INT32), all(INT64)], tagged: &[] };

request!(FETCH = 1, flexible 12, [
    until(14, INT32), // replica id
    all(INT32),       // max wait
    all(INT32),       // min bytes
    all(INT32),       // max bytes
    all(INT8),        // isolation level
    since(7, INT32),  // session id
    since(7, INT32),  // session epoch
    all(structs![until(12, STRING), since(13, UUID), all(Kind::Array(&Kind::Struct(&FETCH_PARTITION)))]),
    since(7, structs![until(12, STRING), since(13, UUID), all(INT32S)]), // forgotten topics
    since(11, STRING), // rack
], tagged [
    TaggedField { tag: 0, field: all(STRING) }, // cluster id
    TaggedField { tag: 1, field: since(15, Kind::Struct(&FETCH_REPLICA_STATE)) },
]);

request!(LIST_OFFSETS = 2, flexible 6, [
    all(INT32),      // replica id
    since(2, INT8),  // isolation level
    all(structs![all(STRING), all(structs![all(INT32), since(4, INT32), all(INT64)])]),
    since(10, INT32), // timeout
]);

request!(METADATA = 3, flexible 9, [
    all(structs![since(10, UUID), all(STRING)]),
    since(4, BOOL),       // allow auto creation
    between(8, 10, BOOL), // include cluster authorized operations
    since(8, BOOL),       // include topic authorized operations
]);

request!(OFFSET_COMMIT = 8, flexible 8, [
    all(STRING),      // group
    all(INT32),       // generation or member epoch
    all(STRING),      // member
    since(7, STRING), // instance
    until(4, INT64),  // retention
    all(structs![
        until(9, STRING),
        since(10, UUID),
        all(structs![all(INT32), all(INT64), since(6, INT32), all(STRING)]),
    ]),
]);

request!(OFFSET_FETCH = 9, flexible 6, [
    until(7, STRING), // group
    until(7, structs![all(STRING), all(INT32S)]),
    since(8, structs![
        all(STRING),      // group
        since(9, STRING), // member
        since(9, INT32),  // member epoch
        all(structs![until(9, STRING), since(10, UUID), all(INT32S)]),
    ]),
    since(7, BOOL), // require stable
]);

request!(FIND_COORDINATOR = 10, flexible 3, [until(3, STRING), since(1, INT8), since(4, STRINGS)]);

request!(JOIN_GROUP = 11, flexible 6, [
    all(STRING),      // group
    all(INT32),       // session timeout
    since(1, INT32),  // rebalance timeout
    all(STRING),      // member
    since(5, STRING), // instance
    all(STRING),      // protocol type
    all(structs![all(STRING), all(BYTES)]),
    since(8, STRING), // reason
]);

request!(HEARTBEAT = 12, flexible 4, [all(STRING), all(INT32), all(STRING), since(3, STRING)]);

request!(LEAVE_GROUP = 13, flexible 4, [
    all(STRING),
    until(2, STRING),
    since(3, structs![all(STRING), all(STRING), since(5, STRING)]),
]);

request!(SYNC_GROUP = 14, flexible 4, [
    all(STRING),      // group
    all(INT32),       // generation
    all(STRING),      // member
    since(3, STRING), // instance
    since(5, STRING), // protocol type
    since(5, STRING), // protocol name
    all(structs![all(STRING), all(BYTES)]),
]);

request!(DESCRIBE_GROUPS = 15, flexible 5, [all(STRINGS), since(3, BOOL)]);
request!(LIST_GROUPS = 16, flexible 3, [since(4, STRINGS), since(5, STRINGS)]);
request!(API_VERSIONS = 18, flexible 3, [since(3, STRING), since(3, STRING)]);

request!(CREATE_TOPICS = 19, flexible 5, [
    all(structs![
        all(STRING),
        all(INT32),                                   // partitions
        all(INT16),                                   // replication factor
        all(structs![all(INT32), all(INT32S)]),       // assignments
        all(structs![all(STRING), all(STRING)]),      // configs
    ]),
    all(INT32), // timeout
    all(BOOL),  // validate only
]);

request!(DELETE_TOPICS = 20, flexible 4, [
    since(6, structs![all(STRING), all(UUID)]),
    until(5, STRINGS),
    all(INT32), // timeout
]);

request!(DELETE_RECORDS = 21, flexible 2, [all(structs![all(STRING), all(structs![all(INT32), all(INT64)])]), all(INT32)]);

request!(INIT_PRODUCER_ID = 22, flexible 2, [
    all(STRING),     // transactional id
    all(INT32),      // transaction timeout
    since(3, INT64), // producer id
    since(3, INT16), // producer epoch
]);

request!(OFFSET_FOR_LEADER_EPOCH = 23, flexible 4, [
    since(3, INT32), // replica id
    all(structs![all(STRING), all(structs![all(INT32), all(INT32), all(INT32)])]),
]);

request!(ADD_PARTITIONS_TO_TXN = 24, flexible 3, [
    since(4, structs![
        all(STRING),                             // transactional id
        all(INT64),                              // producer id
        all(INT16),                              // producer epoch
        all(BOOL),                               // verify only
        all(structs![all(STRING), all(INT32S)]), // topics
    ]),
    until(3, STRING), // transactional id
    until(3, INT64),  // producer id
    until(3, INT16),  // producer epoch
    until(3, structs![all(STRING), all(INT32S)]),
]);

request!(ADD_OFFSETS_TO_TXN = 25, flexible 3, [all(STRING), all(INT64), all(INT16), all(STRING)]);
request!(END_TXN = 26, flexible 3, [all(STRING), all(INT64), all(INT16), all(BOOL)]);

request!(WRITE_TXN_MARKERS = 27, flexible 1, [
    all(structs![
        all(INT64),                              // producer id
        all(INT16),                              // producer epoch
        all(BOOL),                               // commit
        all(structs![all(STRING), all(INT32S)]), // topics
        all(INT32),                              // coordinator epoch
    ]),
]);

request!(TXN_OFFSET_COMMIT = 28, flexible 3, [
    all(STRING),      // transactional id
    all(STRING),      // group
    all(INT64),       // producer id
    all(INT16),       // producer epoch
    since(3, INT32),  // generation
    since(3, STRING), // member
    since(3, STRING), // instance
    all(structs![
        all(STRING),
        all(structs![
            all(INT32),      // partition
            all(INT64),      // offset
            since(2, INT32), // leader epoch
            all(STRING),     // metadata
        ]),
    ]),
]);

request!(DESCRIBE_ACLS = 29, flexible 2, [
    all(INT8),   // resource type
    all(STRING), // resource name
    all(INT8),   // pattern type
    all(STRING), // principal
    all(STRING), // host
    all(INT8),   // operation
    all(INT8),   // permission
]);

request!(CREATE_ACLS = 30, flexible 2, [
    all(structs![all(INT8), all(STRING), all(INT8), all(STRING), all(STRING), all(INT8), all(INT8)]),
]);

request!(DELETE_ACLS = 31, flexible 2, [
    all(structs![all(INT8), all(STRING), all(INT8), all(STRING), all(STRING), all(INT8), all(INT8)]),
]);

request!(DESCRIBE_CONFIGS = 32, flexible 4, [
    all(structs![all(INT8), all(STRING), all(STRINGS)]),
    all(BOOL),      // include synonyms
    since(3, BOOL), // include documentation
]);

request!(ALTER_CONFIGS = 33, flexible 2, [all(structs![all(INT8), all(STRING), all(structs![all(STRING), all(STRING)])]), all(BOOL)]);
request!(DESCRIBE_LOG_DIRS = 35, flexible 2, [all(structs![all(STRING), all(INT32S)])]);

request!(CREATE_PARTITIONS = 37, flexible 2, [
    all(structs![all(STRING), all(INT32), all(structs![all(INT32S)])]),
    all(INT32), // timeout
    all(BOOL),  // validate only
]);

request!(DELETE_GROUPS = 42, flexible 2, [all(STRINGS)]);

request!(ELECT_LEADERS = 43, flexible 2, [
    since(1, INT8), // election type
    all(structs![all(STRING), all(INT32S)]),
    all(INT32), // timeout
]);

request!(INCREMENTAL_ALTER_CONFIGS = 44, flexible 1, [
    all(structs![all(INT8), all(STRING), all(structs![all(STRING), all(INT8), all(STRING)])]),
    all(BOOL), // validate only
]);

request!(ALTER_PARTITION_REASSIGNMENTS = 45, flexible 0, [
    all(INT32),     // timeout
    since(1, BOOL), // allow another replication factor
    all(structs![all(STRING), all(structs![all(INT32), all(INT32S)])]),
]);

request!(LIST_PARTITION_REASSIGNMENTS = 46, flexible 0, [all(INT32), all(structs![all(STRING), all(INT32S)])]);
request!(OFFSET_DELETE = 47, flexible NEVER_FLEXIBLE, [all(STRING), all(structs![all(STRING), all(structs![all(INT32)])])]);

request!(DESCRIBE_CLIENT_QUOTAS = 48, flexible 1, [
    all(structs![all(STRING), all(INT8), all(STRING)]),
    all(BOOL), // strict
]);

request!(ALTER_CLIENT_QUOTAS = 49, flexible 1, [
    all(structs![
        all(structs![all(STRING), all(STRING)]),
        all(structs![all(STRING), all(FLOAT64), all(BOOL)]),
    ]),
    all(BOOL), // validate only
]);

request!(DESCRIBE_USER_SCRAM_CREDENTIALS = 50, flexible 0, [all(structs![all(STRING)])]);

request!(ALTER_USER_SCRAM_CREDENTIALS = 51, flexible 0, [
    all(structs![all(STRING), all(INT8)]), // deletions
    all(structs![all(STRING), all(INT8), all(INT32), all(BYTES), all(BYTES)]),
]);

request!(DESCRIBE_QUORUM = 55, flexible 0, [all(structs![all(STRING), all(structs![all(INT32)])])]);
request!(DESCRIBE_CLUSTER = 60, flexible 0, [all(BOOL), since(1, INT8), since(2, BOOL)]);

request!(DESCRIBE_PRODUCERS = 61, flexible 0, [all(structs![all(STRING), all(INT32S)])]);
request!(DESCRIBE_TRANSACTIONS = 65, flexible 0, [all(STRINGS)]);

request!(LIST_TRANSACTIONS = 66, flexible 0, [
    all(STRINGS),     // states
    all(INT64S),      // producer ids
    since(1, INT64),  // least duration
    since(2, STRING), // pattern of transactional ids
]);

request!(CONSUMER_GROUP_HEARTBEAT = 68, flexible 0, [
    all(STRING),       // group
    all(STRING),       // member
    all(INT32),        // member epoch
    all(STRING),       // instance
    all(STRING),       // rack
    all(INT32),        // rebalance timeout
    all(STRINGS),      // topic names
    since(1, STRING),  // regular expression
    all(STRING),       // assignor
    all(structs![all(UUID), all(INT32S)]),
]);

request!(CONSUMER_GROUP_DESCRIBE = 69, flexible 0, [all(STRINGS), all(BOOL)]);

request!(LIST_CONFIG_RESOURCES = 74, flexible 0, [since(1, INT8S)]);

static PARTITION_CURSOR: Struct = Struct { fields: &[all(STRING), all(INT32)], tagged: &[] };

request!(DESCRIBE_TOPIC_PARTITIONS = 75, flexible 0, [
    all(structs![all(STRING)]),
    all(INT32), // most partitions
    all(Kind::Nullable(&PARTITION_CURSOR)),
]);

/// Every request body we know, ascending by key.
pub static REQUESTS: &[&RequestSchema] = &[
    &PRODUCE,
    &FETCH,
    &LIST_OFFSETS,
    &METADATA,
    &OFFSET_COMMIT,
    &OFFSET_FETCH,
    &FIND_COORDINATOR,
    &JOIN_GROUP,
    &HEARTBEAT,
    &LEAVE_GROUP,
    &SYNC_GROUP,
    &DESCRIBE_GROUPS,
    &LIST_GROUPS,
    &API_VERSIONS,
    &CREATE_TOPICS,
    &DELETE_TOPICS,
    &DELETE_RECORDS,
    &INIT_PRODUCER_ID,
    &OFFSET_FOR_LEADER_EPOCH,
    &ADD_PARTITIONS_TO_TXN,
    &ADD_OFFSETS_TO_TXN,
    &END_TXN,
    &WRITE_TXN_MARKERS,
    &TXN_OFFSET_COMMIT,
    &DESCRIBE_ACLS,
    &CREATE_ACLS,
    &DELETE_ACLS,
    &DESCRIBE_CONFIGS,
    &ALTER_CONFIGS,
    &DESCRIBE_LOG_DIRS,
    &CREATE_PARTITIONS,
    &DELETE_GROUPS,
    &ELECT_LEADERS,
    &INCREMENTAL_ALTER_CONFIGS,
    &ALTER_PARTITION_REASSIGNMENTS,
    &LIST_PARTITION_REASSIGNMENTS,
    &OFFSET_DELETE,
    &DESCRIBE_CLIENT_QUOTAS,
    &ALTER_CLIENT_QUOTAS,
    &DESCRIBE_USER_SCRAM_CREDENTIALS,
    &ALTER_USER_SCRAM_CREDENTIALS,
    &DESCRIBE_QUORUM,
    &DESCRIBE_CLUSTER,
    &DESCRIBE_PRODUCERS,
    &DESCRIBE_TRANSACTIONS,
    &LIST_TRANSACTIONS,
    &CONSUMER_GROUP_HEARTBEAT,
    &CONSUMER_GROUP_DESCRIBE,
    &LIST_CONFIG_RESOURCES,
    &DESCRIBE_TOPIC_PARTITIONS,
];
