//! Transactions through the wire: from InitProducerId to a reader of committed records, under both versions (KIP-98, KIP-890).

mod wire;

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use weir_model::TimestampType;
use weir_model::record_batch::{BatchBuilder, Compression};
use wire::{Client, NEW_YEAR, Running};

const ID: &str = "tx";

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

fn id() -> TransactionalId {
    TransactionalId(text(ID))
}

struct Producer {
    client: Client,
    id: i64,
    epoch: i16,
}

impl Producer {
    async fn start(broker: &Running) -> Self {
        let mut client = broker.client().await;
        let request =
            InitProducerIdRequest::default().with_transactional_id(Some(id())).with_transaction_timeout_ms(60_000);
        let answer = client.call(4, &request).await;
        assert_eq!(answer.error_code, 0);
        Self { client, id: answer.producer_id.0, epoch: answer.producer_epoch }
    }

    async fn produce(&mut self, version: i16, value: &[u8]) -> i16 {
        let builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
        let mut builder = builder.transactional(self.id, self.epoch, 0);
        builder.push(0, NEW_YEAR, None, Some(value), None);
        let partition = PartitionProduceData::default().with_records(Some(builder.finish()));
        let data = TopicProduceData::default().with_name(topic("t")).with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(id()))
            .with_acks(-1)
            .with_timeout_ms(1_000)
            .with_topic_data(vec![data]);
        self.client.call(version, &request).await.responses[0].partition_responses[0].error_code
    }

    async fn commit_offset(&mut self, version: i16, offset: i64) -> i16 {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topics = TxnOffsetCommitRequestTopic::default().with_name(topic("t")).with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id())
            .with_group_id(GroupId(text("g")))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_topics(vec![topics]);
        self.client.call(version, &request).await.topics[0].partitions[0].error_code
    }

    async fn end(&mut self, version: i16, commits: bool) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(id())
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_committed(commits);
        let answer = self.client.call(version, &request).await;
        if version >= 5 && answer.error_code == 0 {
            (self.id, self.epoch) = (answer.producer_id.0, answer.producer_epoch);
        }
        answer.error_code
    }

    /// The committed offset of the group, -1 for none, once it is stable.
    async fn stable_offset(&mut self) -> i64 {
        loop {
            let topics = OffsetFetchRequestTopic::default().with_name(topic("t")).with_partition_indexes(vec![0]);
            let request = OffsetFetchRequest::default()
                .with_group_id(GroupId(text("g")))
                .with_require_stable(true)
                .with_topics(Some(vec![topics]));
            let answer = self.client.call(7, &request).await;
            let partition = &answer.topics[0].partitions[0];
            match partition.error_code {
                0 => return partition.committed_offset,
                // UNSTABLE_OFFSET_COMMIT
                88 => tokio::task::yield_now().await,
                code => panic!("error {code}"),
            }
        }
    }

    /// Records, last stable offset, and the first offsets of the aborted transactions.
    async fn read_committed(&mut self) -> (Bytes, i64, Vec<i64>) {
        let partition = FetchPartition::default().with_partition_max_bytes(1 << 20).with_current_leader_epoch(-1);
        let topics = FetchTopic::default().with_topic(topic("t")).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_session_epoch(-1)
            .with_isolation_level(1)
            .with_topics(vec![topics]);
        let answer = self.client.call(12, &request).await;
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        let aborted = partition.aborted_transactions.iter().flatten().map(|txn| txn.first_offset).collect();
        (partition.records.clone().unwrap_or_default(), partition.last_stable_offset, aborted)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_the_first_version_counts_when_it_is_committed() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut producer = Producer::start(&broker).await;
    assert_eq!(producer.produce(9, b"not added").await, 48, "INVALID_TXN_STATE");
    let add = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id())
        .with_v3_and_below_producer_id(ProducerId(producer.id))
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(vec![
            AddPartitionsToTxnTopic::default().with_name(topic("t")).with_partitions(vec![0]),
        ]);
    let added = producer.client.call(3, &add).await;
    assert_eq!(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, 0);
    let offsets = AddOffsetsToTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_group_id(GroupId(text("g")));
    assert_eq!(producer.client.call(3, &offsets).await.error_code, 0);
    assert_eq!(producer.produce(9, b"kept").await, 0);
    assert_eq!(producer.commit_offset(3, 7).await, 0);
    let (records, last_stable, _) = producer.read_committed().await;
    assert!(records.is_empty() && last_stable == 0);
    assert_eq!(producer.end(3, true).await, 0);
    assert_eq!(producer.stable_offset().await, 7);
    while producer.read_committed().await.1 < 2 {}
    let (records, _, aborted) = producer.read_committed().await;
    assert!(records.windows(4).any(|window| window == b"kept") && aborted.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_the_second_version_adds_by_writing_and_ends_its_epoch() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut producer = Producer::start(&broker).await;
    let first = producer.epoch;
    assert_eq!(producer.produce(12, b"dropped").await, 0);
    assert_eq!(producer.commit_offset(5, 7).await, 0);
    assert_eq!(producer.end(5, false).await, 0);
    assert_eq!(producer.epoch, first + 1);
    assert_eq!(producer.stable_offset().await, -1);
    while producer.read_committed().await.1 < 2 {}
    assert_eq!(producer.read_committed().await.2, [0]);
    // The next one, and a late batch of the one before.
    assert_eq!(producer.produce(12, b"kept").await, 0);
    producer.epoch -= 1;
    assert_eq!(producer.produce(12, b"late").await, 47, "INVALID_PRODUCER_EPOCH");
    producer.epoch += 1;
    assert_eq!(producer.end(5, true).await, 0);
    while producer.read_committed().await.1 < 4 {}
}
