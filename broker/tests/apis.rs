//! Every advertised API is answered; and what the small ones answer: those that describe a cluster of one broker, and those that are refused by name.

mod wire;

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData};
use kafka_protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_producers_request::TopicRequest as ProducersTopic;
use kafka_protocol::messages::describe_quorum_request::{PartitionData as QuorumPartition, TopicData as QuorumTopic};
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use weir_model::record_batch::Compression;
use wire::{Client, NEW_YEAR, Running, batch, idempotent};

fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

async fn produced(client: &mut Client, topic: &str, partition: i32, records: Bytes) {
    let response = client.produce(8, topic, partition, -1, records).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

/// Asks for as little as can be; the answer must come, and be read to its last byte.
async fn ask(client: &mut Client, key: i16, version: i16) {
    macro_rules! with_empty_bodies {
        ($($key:literal $request:ident)+) => {
            match key {
                // With the default of acks=0 there would be no answer.
                0 => drop(client.call(version, &ProduceRequest::default().with_acks(-1)).await),
                $($key => drop(client.call(version, &$request::default()).await),)+
                _ => panic!("API {key} is served and not asked here: add it"),
            }
        };
    }
    with_empty_bodies! {
        1 FetchRequest
        2 ListOffsetsRequest
        3 MetadataRequest
        8 OffsetCommitRequest
        9 OffsetFetchRequest
        10 FindCoordinatorRequest
        11 JoinGroupRequest
        12 HeartbeatRequest
        13 LeaveGroupRequest
        14 SyncGroupRequest
        15 DescribeGroupsRequest
        16 ListGroupsRequest
        18 ApiVersionsRequest
        19 CreateTopicsRequest
        20 DeleteTopicsRequest
        21 DeleteRecordsRequest
        22 InitProducerIdRequest
        23 OffsetForLeaderEpochRequest
        24 AddPartitionsToTxnRequest
        25 AddOffsetsToTxnRequest
        26 EndTxnRequest
        27 WriteTxnMarkersRequest
        28 TxnOffsetCommitRequest
        29 DescribeAclsRequest
        30 CreateAclsRequest
        31 DeleteAclsRequest
        32 DescribeConfigsRequest
        33 AlterConfigsRequest
        35 DescribeLogDirsRequest
        37 CreatePartitionsRequest
        42 DeleteGroupsRequest
        43 ElectLeadersRequest
        44 IncrementalAlterConfigsRequest
        45 AlterPartitionReassignmentsRequest
        46 ListPartitionReassignmentsRequest
        47 OffsetDeleteRequest
        48 DescribeClientQuotasRequest
        49 AlterClientQuotasRequest
        50 DescribeUserScramCredentialsRequest
        51 AlterUserScramCredentialsRequest
        55 DescribeQuorumRequest
        60 DescribeClusterRequest
        61 DescribeProducersRequest
        65 DescribeTransactionsRequest
        66 ListTransactionsRequest
        68 ConsumerGroupHeartbeatRequest
        69 ConsumerGroupDescribeRequest
        74 ListConfigResourcesRequest
        75 DescribeTopicPartitionsRequest
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_advertised_version_of_every_api_is_answered() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    let table = client.call(0, &ApiVersionsRequest::default()).await.api_keys;
    assert!(table.len() > 40, "{table:?}");
    for api in table {
        // Produce 0 to 2 are advertised and closed, see the connection's tests.
        let lowest = if api.api_key == 0 { 3 } else { api.min_version };
        // What the crate does not encode is asked with captured requests and by other clients' own encoders (compat-tests).
        let encodable = match api.api_key {
            8 | 9 => 9,
            _ => api.max_version,
        };
        for version in lowest..=encodable {
            let asked = ask(&mut client, api.api_key, version);
            tokio::time::timeout(Duration::from_secs(10), asked)
                .await
                .unwrap_or_else(|_| panic!("API {} version {version} is not answered", api.api_key));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_leader_epoch_ends_at_the_high_watermark_and_others_are_not_known() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    produced(&mut client, "t", 0, batch(Compression::None, &[b"a", b"b", b"c"])).await;
    for version in 2..=4 {
        for (partition, current, epoch, expected) in [
            (0, -1, 0, (0, 0, 3)),
            (0, 0, 0, (0, 0, 3)),
            (0, -1, 1, (0, -1, -1)),
            (0, -1, -1, (0, -1, -1)),
            (0, 1, 0, (75, -1, -1)),
            (1, -1, 0, (3, -1, -1)),
        ] {
            let asked = OffsetForLeaderPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(current)
                .with_leader_epoch(epoch);
            let request = OffsetForLeaderEpochRequest::default()
                .with_replica_id(BrokerId(if version >= 3 { -1 } else { -2 }))
                .with_topics(vec![OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![asked])]);
            let answer = client.call(version, &request).await.topics[0].partitions[0].clone();
            assert_eq!(
                (answer.error_code, answer.leader_epoch, answer.end_offset),
                expected,
                "version {version}, current {current}, epoch {epoch}"
            );
        }
    }
}

/// What is asked: topics, most partitions, cursor; and what is answered: topics, next cursor.
type Way<'a> = (&'a [&'a str], i32, Option<(&'a str, i32)>, &'a [&'a str], Option<&'a str>);

/// The topics and partitions answered, and where to go on.
async fn describe(
    client: &mut Client,
    topics: &[&str],
    limit: i32,
    cursor: Option<(&str, i32)>,
) -> (Vec<String>, Option<String>) {
    let cursor =
        cursor.map(|(topic, partition)| Cursor::default().with_topic_name(name(topic)).with_partition_index(partition));
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(topics.iter().map(|topic| TopicRequest::default().with_name(name(topic))).collect())
        .with_response_partition_limit(limit)
        .with_cursor(cursor);
    let response = client.call(0, &request).await;
    let topics = response.topics.iter().map(|topic| {
        let topic_name = topic.name.as_ref().expect("named").as_str();
        let partitions: Vec<i32> = topic.partitions.iter().map(|partition| partition.partition_index).collect();
        if topic.error_code == 0 {
            format!("{topic_name}{partitions:?}")
        } else {
            format!("{topic_name} error {}", topic.error_code)
        }
    });
    (
        topics.collect(),
        response.next_cursor.map(|cursor| format!("{}/{}", cursor.topic_name.as_str(), cursor.partition_index)),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_described_by_name_so_many_partitions_at_a_time() {
    let broker = Running::start(&[]).await;
    let id = broker.topic("b", 3, &[]).await.id().as_uuid();
    broker.topic("a", 2, &[]).await;
    let mut client = broker.client().await;
    let ways: [Way<'_>; 9] = [
        (&[], 2000, None, &["a[0, 1]", "b[0, 1, 2]"], None),
        (&[], 4, None, &["a[0, 1]", "b[0, 1]"], Some("b/2")),
        (&[], 4, Some(("b", 2)), &["b[2]"], None),
        (&[], 2, None, &["a[0, 1]"], Some("b/0")),
        (&[], 0, None, &["a[0]"], Some("a/1")),
        // The topic of the cursor was deleted meanwhile.
        (&[], 9, Some(("aa", 1)), &["b[0, 1, 2]"], None),
        (
            &["nope", "a", "b", "a", "not legal"],
            9,
            None,
            &["a[0, 1]", "b[0, 1, 2]", "nope error 3", "not legal error 17"],
            None,
        ),
        (&["b", "a"], 1, Some(("b", 1)), &["b[1]"], Some("b/2")),
        (&["a"], 1, Some(("a", -1)), &["a error 42"], None),
    ];
    for (topics, limit, cursor, expected, next) in ways {
        let (answered, cursor_after) = describe(&mut client, topics, limit, cursor).await;
        assert_eq!(
            (answered.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), cursor_after.as_deref()),
            (expected, next),
            "{topics:?} {limit} {cursor:?}"
        );
    }
    let whole = client.call(0, &DescribeTopicPartitionsRequest::default().with_response_partition_limit(2000)).await;
    let topic = &whole.topics[1];
    assert_eq!((topic.topic_id, topic.is_internal), (id, false));
    assert_ne!(topic.topic_authorized_operations, i32::MIN);
    let partition = &topic.partitions[0];
    assert_eq!((partition.leader_id, partition.leader_epoch), (BrokerId(0), 0));
    assert_eq!((&partition.replica_nodes, &partition.isr_nodes), (&vec![BrokerId(0)], &vec![BrokerId(0)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_partition_needs_no_election_and_has_nowhere_to_move() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    for version in 0..=2 {
        let topics = vec![TopicPartitions::default().with_topic(name("t")).with_partitions(vec![0, 1])];
        let response = client.call(version, &ElectLeadersRequest::default().with_topic_partitions(Some(topics))).await;
        let codes: Vec<i16> =
            response.replica_election_results[0].partition_result.iter().map(|result| result.error_code).collect();
        assert_eq!((response.error_code, codes), (0, vec![84, 3]));
        let all = client.call(version, &ElectLeadersRequest::default().with_topic_partitions(None)).await;
        assert_eq!((all.error_code, all.replica_election_results.len()), (0, 0));
    }
    assert_eq!(client.call(2, &ElectLeadersRequest::default().with_election_type(7)).await.error_code, 42);

    for version in 0..=1 {
        let asked = |index, replicas: Option<Vec<i32>>| {
            ReassignablePartition::default()
                .with_partition_index(index)
                .with_replicas(replicas.map(|ids| ids.into_iter().map(BrokerId).collect()))
        };
        let partitions = vec![
            asked(0, Some(vec![0])),
            asked(0, Some(vec![1])),
            asked(0, Some(vec![0, 1])),
            asked(0, None),
            asked(1, Some(vec![0])),
        ];
        let topics = vec![ReassignableTopic::default().with_name(name("t")).with_partitions(partitions)];
        let response = client.call(version, &AlterPartitionReassignmentsRequest::default().with_topics(topics)).await;
        let codes: Vec<i16> = response.responses[0].partitions.iter().map(|partition| partition.error_code).collect();
        assert_eq!((response.error_code, codes), (0, vec![0, 39, 39, 85, 3]));
    }
    let moving = client.call(0, &ListPartitionReassignmentsRequest::default().with_topics(None)).await;
    assert_eq!((moving.error_code, moving.topics.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotent_producers_are_described_where_they_wrote() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 2, &[]).await;
    let mut client = broker.client().await;
    let plain = batch(Compression::None, &[b"a", b"b"]);
    produced(&mut client, "t", 0, idempotent(&plain, 77, 3, 0)).await;
    produced(&mut client, "t", 0, idempotent(&plain, 77, 3, 2)).await;
    produced(&mut client, "t", 0, plain).await;
    let topics = vec![ProducersTopic::default().with_name(name("t")).with_partition_indexes(vec![0, 1, 2])];
    let response = client.call(0, &DescribeProducersRequest::default().with_topics(topics)).await;
    let partitions = &response.topics[0].partitions;
    let codes: Vec<(i16, usize)> =
        partitions.iter().map(|partition| (partition.error_code, partition.active_producers.len())).collect();
    assert_eq!(codes, [(0, 1), (0, 0), (3, 0)]);
    let producer = &partitions[0].active_producers[0];
    assert_eq!((producer.producer_id.0, producer.producer_epoch, producer.last_sequence), (77, 3, 3));
    assert_eq!(
        (producer.last_timestamp, producer.coordinator_epoch, producer.current_txn_start_offset),
        (NEW_YEAR + 1, -1, -1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_as_large_as_its_batches_whatever_columns_are_in_memory() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[("weir.schema", "id BIGINT NOT NULL")]).await;
    let mut client = broker.client().await;
    let records = batch(Compression::None, &[br#"{"id":1}"#, br#"{"id":2}"#]);
    let expected = i64::try_from(records.len()).expect("small");
    produced(&mut client, "t", 0, records).await;
    for version in 1..=4 {
        let response = client.call(version, &DescribeLogDirsRequest::default().with_topics(None)).await;
        let directory = &response.results[0];
        assert_eq!(
            (directory.error_code, directory.topics[0].partitions[0].partition_size),
            (0, expected),
            "version {version}"
        );
        assert_eq!(directory.total_bytes > 0 && directory.usable_bytes > 0, version >= 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quorum_is_this_broker_alone() {
    let broker = Running::start(&["node.id=5"]).await;
    let mut client = broker.client().await;
    for version in 0..=2 {
        let topic = |topic, index| {
            QuorumTopic::default()
                .with_topic_name(name(topic))
                .with_partitions(vec![QuorumPartition::default().with_partition_index(index)])
        };
        let request = DescribeQuorumRequest::default().with_topics(vec![
            topic("__cluster_metadata", 0),
            topic("__cluster_metadata", 1),
            topic("t", 0),
        ]);
        let response = client.call(version, &request).await;
        let codes: Vec<i16> = response.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
        assert_eq!((response.error_code, codes), (0, vec![0, 3, 3]));
        let quorum = &response.topics[0].partitions[0];
        assert_eq!(
            (quorum.leader_id, quorum.current_voters.len(), quorum.current_voters[0].replica_id),
            (BrokerId(5), 1, BrokerId(5))
        );
        assert_eq!(quorum.current_voters[0].last_fetch_timestamp > 0, version >= 1);
        let nodes: Vec<(i32, u16)> =
            response.nodes.iter().map(|node| (node.node_id.0, node.listeners[0].port)).collect();
        assert_eq!(nodes, if version >= 2 { vec![(5, broker.app.kafka().port())] } else { Vec::new() });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_with_configs_are_topics_and_this_broker() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let metrics = client.call(0, &ListConfigResourcesRequest::default()).await;
    assert_eq!((metrics.error_code, metrics.config_resources.len()), (0, 0));
    // The types asked for, the error, and what is listed.
    type Way<'a> = (&'a [i8], i16, &'a [(i8, &'a str)]);
    let ways: [Way<'_>; 5] = [
        (&[], 0, &[(2, "t"), (4, "0")]),
        (&[2], 0, &[(2, "t")]),
        (&[4, 16], 0, &[(4, "0")]),
        (&[8, 32], 0, &[]),
        (&[2, 3], 35, &[]),
    ];
    for (types, code, expected) in ways {
        let response = client.call(1, &ListConfigResourcesRequest::default().with_resource_types(types.to_vec())).await;
        let listed: Vec<(i8, &str)> = response
            .config_resources
            .iter()
            .map(|resource| (resource.resource_type, &*resource.resource_name))
            .collect();
        assert_eq!((response.error_code, listed.as_slice()), (code, expected), "{types:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acls_are_answered_with_security_disabled() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    for version in 1..=3 {
        let described = client.call(version, &DescribeAclsRequest::default()).await;
        assert_eq!((described.error_code, described.resources.len()), (54, 0));
        let created =
            client.call(version, &CreateAclsRequest::default().with_creations(vec![AclCreation::default(); 2])).await;
        assert_eq!(created.results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [54, 54]);
        let deleted =
            client.call(version, &DeleteAclsRequest::default().with_filters(vec![DeleteAclsFilter::default()])).await;
        assert_eq!(deleted.filter_results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [54]);
        assert!(created.results[0].error_message.as_deref().is_some_and(|message| message.contains("no ACLs")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_quotas_credentials_or_transactions() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    for version in 0..=1 {
        let quotas = client.call(version, &DescribeClientQuotasRequest::default()).await;
        assert_eq!((quotas.error_code, quotas.entries), (0, Some(Vec::new())));
        let entity = EntityData::default().with_entity_type(text("user")).with_entity_name(None);
        let request =
            AlterClientQuotasRequest::default().with_entries(vec![EntryData::default().with_entity(vec![entity])]);
        let refused = &client.call(version, &request).await.entries[0];
        assert_eq!(
            (refused.error_code, refused.entity[0].entity_type.as_str(), &refused.entity[0].entity_name),
            (0, "user", &None)
        );
        assert_eq!(refused.error_message, None, "nothing was asked to be changed");
    }

    let everybody = client.call(0, &DescribeUserScramCredentialsRequest::default().with_users(None)).await;
    assert_eq!((everybody.error_code, everybody.results.len()), (0, 0));
    let users = ["anna", "bert", "anna"].map(|user| UserName::default().with_name(text(user))).to_vec();
    let named = client.call(0, &DescribeUserScramCredentialsRequest::default().with_users(Some(users))).await;
    let codes: Vec<(&str, i16)> = named.results.iter().map(|result| (&*result.user, result.error_code)).collect();
    assert_eq!(codes, [("anna", 92), ("bert", 91)]);

    let described = client
        .call(0, &DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text("tx"))]))
        .await;
    let state = &described.transaction_states[0];
    assert_eq!((state.error_code, state.transactional_id.as_str()), (105, "tx"));
    for version in 0..=2 {
        let request = ListTransactionsRequest::default().with_state_filters(vec![
            text("Ongoing"),
            text("ongoing"),
            text("Sleeping"),
        ]);
        let listed = client.call(version, &request).await;
        assert_eq!((listed.error_code, listed.transaction_states.len()), (0, 0));
        assert_eq!(listed.unknown_state_filters, [text("ongoing"), text("Sleeping")]);
    }
}
