//! Produce, Fetch and ListOffsets over the wire: bytes in = bytes out, and the errors clients rely on.

mod wire;

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, FetchRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use weir_model::TimestampType;
use weir_model::record_batch::{BatchBuilder, Compression, ValidBatch};
use wire::{Client, NEW_YEAR, Running, at_offset, batch, batches, idempotent, produce_request, seal_crc};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn ask(offset: i64) -> FetchPartition {
    FetchPartition::default().with_partition(0).with_fetch_offset(offset).with_partition_max_bytes(1 << 20)
}

fn fetch_request(topic: &str, partitions: Vec<FetchPartition>) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(10 << 20)
        .with_topics(vec![FetchTopic::default().with_topic(name(topic)).with_partitions(partitions)])
}

async fn fetch(client: &mut Client, topic: &str, offset: i64) -> PartitionData {
    let response = client.call(11, &fetch_request(topic, vec![ask(offset)])).await;
    response.responses[0].partitions[0].clone()
}

async fn produced(client: &mut Client, topic: &str, records: Bytes) -> PartitionProduceResponse {
    client.produce(8, topic, 0, -1, records).await.responses[0].partition_responses[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_produced_is_fetched_byte_for_byte_in_every_codec() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let mut expected = Vec::new();
    let mut offset = 0;
    for codec in CODECS {
        let large = vec![b'x'; 5000];
        let sent = batch(codec, &[b"one", b"", &large]);
        let answer = produced(&mut client, "t", sent.clone()).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, offset), "{codec:?}");
        expected.push(at_offset(&sent, offset));
        offset += 3;
    }
    let data = fetch(&mut client, "t", 0).await;
    assert_eq!((data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset), (0, 15, 15, 0));
    assert_eq!(batches(data.records.expect("never null")), expected);
    // From the middle of a batch: the whole batch that holds the offset (S-47).
    let data = fetch(&mut client, "t", 4).await;
    assert_eq!(batches(data.records.expect("never null")), expected[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_produce_and_fetch_carries_the_same_batch() {
    let broker = Running::start(&[]).await;
    let id = broker.topic("t", 1, &[]).await.id().as_uuid();
    let mut client = broker.client().await;
    let sent = batch(Compression::None, &[b"value"]);
    for (offset, version) in (3..=13).enumerate() {
        let offset = i64::try_from(offset).expect("few");
        let mut request = produce_request("t", 0, -1, sent.clone());
        if version >= 13 {
            request.topic_data[0].name = TopicName::default();
            request.topic_data[0].topic_id = id;
        }
        let response = client.call(version, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset, partition.log_append_time_ms),
            (0, offset, -1),
            "version {version}"
        );
        if version >= 5 {
            assert_eq!(partition.log_start_offset, 0);
        }
    }
    for version in 4..=18 {
        let mut request = fetch_request("t", vec![ask(10)]);
        if version >= 13 {
            request.topics[0].topic = TopicName::default();
            request.topics[0].topic_id = id;
        }
        if version >= 15 {
            request.replica_id = BrokerId(-1);
        }
        let response = client.call(version, &request).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!((partition.error_code, partition.high_watermark), (0, 11), "version {version}");
        assert_eq!(partition.records, Some(at_offset(&sent, 10)), "version {version}");
        assert!(partition.aborted_transactions.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn null_and_empty_keys_values_and_headers_and_duplicate_header_keys_survive() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
    let headers: [(&str, Option<&[u8]>); 4] =
        [("k", Some(b"first")), ("k", Some(b"second")), ("k", None), ("", Some(b""))];
    builder.push_with_headers(0, NEW_YEAR, None, None, &headers);
    builder.push_with_headers(1, NEW_YEAR, Some(b""), Some(b""), &[]);
    let sent = builder.finish();
    assert_eq!(produced(&mut client, "t", sent.clone()).await.error_code, 0);
    let records = fetch(&mut client, "t", 0).await.records.expect("never null");
    assert_eq!(records, sent);
    let limits = weir_model::record_batch::BatchLimits { max_bytes: 1 << 20, max_decompressed_bytes: 1 << 20 };
    let read = ValidBatch::validate(records, &limits).expect("a good batch");
    let first = read.iter().next().expect("two records").expect("good");
    let got: Vec<_> = first.headers().map(|header| header.expect("good")).collect();
    assert_eq!(got, headers.map(|(key, value)| (key.as_bytes(), value)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_at_the_end_waits_for_its_time_and_no_longer_than_the_next_record() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut reader = broker.client().await;
    let mut writer = broker.client().await;
    let request = fetch_request("t", vec![ask(0)]).with_max_wait_ms(300);
    let started = Instant::now();
    let response = reader.call(11, &request).await;
    assert!(started.elapsed() >= Duration::from_millis(295), "{:?}", started.elapsed());
    assert_eq!(response.responses[0].partitions[0].records, Some(Bytes::new()));

    let started = Instant::now();
    reader.send(11, &request.with_max_wait_ms(20_000)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    produced(&mut writer, "t", batch(Compression::None, &[b"x"])).await;
    let (_, response) = reader.receive::<FetchRequest>(11).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(!response.responses[0].partitions[0].records.as_ref().expect("never null").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn min_bytes_are_waited_for_over_all_partitions() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 2, &[]).await;
    let mut reader = broker.client().await;
    let mut writer = broker.client().await;
    let one = batch(Compression::None, &[&[b'x'; 1000]]);
    let size = i32::try_from(one.len()).expect("small");
    let partitions = vec![ask(0), ask(0).with_partition(1)];
    let request = fetch_request("t", partitions).with_max_wait_ms(20_000).with_min_bytes(3 * size);
    reader.send(11, &request).await;
    for partition in [0, 1, 0] {
        tokio::time::sleep(Duration::from_millis(30)).await;
        writer.produce(8, "t", partition, -1, one.clone()).await;
    }
    let (_, response) = reader.receive::<FetchRequest>(11).await;
    let sizes: Vec<usize> = response.responses[0]
        .partitions
        .iter()
        .map(|partition| partition.records.as_ref().expect("never null").len())
        .collect();
    assert_eq!(sizes, [2 * one.len(), one.len()]);
    // What had come while it waited is in order.
    let records = response.responses[0].partitions[0].records.clone().expect("never null");
    assert_eq!(batches(records), [at_offset(&one, 0), at_offset(&one, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_partition_is_answered_although_min_bytes_is_not_reached() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let one = batch(Compression::None, &[&[b'x'; 1000]]);
    for _ in 0..3 {
        produced(&mut client, "t", one.clone()).await;
    }
    let partition = ask(0).with_partition_max_bytes(i32::try_from(one.len() * 2).expect("small"));
    let started = Instant::now();
    let response =
        client.call(11, &fetch_request("t", vec![partition]).with_min_bytes(1 << 20).with_max_wait_ms(20_000)).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(batches(response.responses[0].partitions[0].records.clone().expect("never null")).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_batch_comes_even_when_it_is_larger_than_every_limit() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 2, &[]).await;
    let mut client = broker.client().await;
    let one = batch(Compression::None, &[&[b'x'; 1000]]);
    for partition in [0, 1] {
        client.produce(8, "t", partition, -1, one.clone()).await;
    }
    let partitions = vec![ask(0).with_partition_max_bytes(10), ask(0).with_partition(1).with_partition_max_bytes(10)];
    let response = client.call(11, &fetch_request("t", partitions).with_max_bytes(1)).await;
    let partitions = &response.responses[0].partitions;
    assert_eq!(partitions[0].records, Some(at_offset(&one, 0)));
    assert_eq!(
        (partitions[1].error_code, partitions[1].records.as_deref()),
        (0, Some(&b""[..])),
        "the second finds no room"
    );
    assert_eq!(partitions[1].high_watermark, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_0_is_appended_without_an_answer_and_a_refusal_closes() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let sent = batch(Compression::None, &[b"quiet"]);
    client.send(8, &produce_request("t", 0, 0, sent.clone())).await;
    // The next answer is that of the next request.
    let data = fetch(&mut client, "t", 0).await;
    assert!(data.error_code == 0);
    let mut other = broker.client().await;
    let response = other.call(11, &fetch_request("t", vec![ask(0)]).with_max_wait_ms(5_000)).await;
    assert_eq!(response.responses[0].partitions[0].records, Some(at_offset(&sent, 0)));
    client.send(8, &produce_request("no-such-topic", 0, 0, sent)).await;
    assert!(client.receive_raw().await.is_none(), "closed (S-29)");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_batches_are_refused_each_with_its_code_and_others_pass() {
    let broker = Running::start(&["message.max.bytes=2000"]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let good = batch(Compression::None, &[b"a", b"b"]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut copy = BytesMut::from(&good[..]);
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    let mut two = BytesMut::from(&good[..]);
    two.extend_from_slice(&good);
    let cases = [
        ("damaged", changed(60 + 5, &[0xff]).freeze(), 2),
        ("cut", good.slice(..good.len() - 1), 2),
        ("two batches", two.freeze(), 87),
        ("empty", Bytes::new(), 87),
        ("magic 1", changed(16, &[1]).freeze(), 87),
        ("control", seal_crc(changed(21, &[0, 0x20])), 87),
        ("wrong count", seal_crc(changed(57, &[0, 0, 0, 3])), 87),
        ("wrong last delta", seal_crc(changed(23, &[0, 0, 0, 5])), 87),
        ("unknown codec", seal_crc(changed(21, &[0, 7])), 76),
        ("too large", batch(Compression::None, &[&[b'x'; 3000]]), 10),
    ];
    for (what, records, code) in cases {
        let answer = produced(&mut client, "t", records).await;
        assert_eq!(answer.error_code, code, "{what}: {:?}", answer.error_message);
        assert_eq!((answer.base_offset, answer.log_append_time_ms, answer.log_start_offset), (-1, -1, -1), "{what}");
        assert!(answer.error_message.is_some(), "{what}");
    }
    assert_eq!(produced(&mut client, "t", good).await.base_offset, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_one_request_fail_alone() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let good = batch(Compression::None, &[b"a"]);
    let data = |index| PartitionProduceData::default().with_index(index).with_records(Some(good.clone()));
    let request = ProduceRequest::default().with_acks(-1).with_topic_data(vec![
        TopicProduceData::default().with_name(name("t")).with_partition_data(vec![data(0), data(1), data(-1)]),
        TopicProduceData::default().with_name(name("nope")).with_partition_data(vec![data(0)]),
    ]);
    let response = client.call(8, &request).await;
    let codes: Vec<i16> = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|partition| partition.error_code)
        .collect();
    assert_eq!(codes, [0, 3, 3, 3]);
    let bad_acks = client.call(8, &request.with_acks(2)).await;
    assert!(
        bad_acks
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .all(|partition| partition.error_code == 21)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn zstd_needs_produce_version_7() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let request = produce_request("t", 0, -1, batch(Compression::Zstd, &[b"a"]));
    assert_eq!(client.call(6, &request).await.responses[0].partition_responses[0].error_code, 76);
    assert_eq!(client.call(7, &request).await.responses[0].partition_responses[0].error_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_batch_of_an_idempotent_producer_is_answered_with_its_first_offset() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let given = client
        .call(4, &InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000))
        .await;
    let another = client
        .call(4, &InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000))
        .await;
    assert_eq!((given.error_code, given.producer_epoch), (0, 0));
    assert_ne!(given.producer_id, another.producer_id);
    let plain = batch(Compression::None, &[b"a", b"b"]);
    let first = idempotent(&plain, given.producer_id.0, 0, 0);
    let second = idempotent(&plain, given.producer_id.0, 0, 2);
    assert_eq!(produced(&mut client, "t", first.clone()).await.base_offset, 0);
    assert_eq!(produced(&mut client, "t", second.clone()).await.base_offset, 2);
    let retried = produced(&mut client, "t", first).await;
    assert_eq!((retried.error_code, retried.base_offset), (0, 0));
    let gap = produced(&mut client, "t", idempotent(&plain, given.producer_id.0, 0, 9)).await;
    assert_eq!(gap.error_code, 45);
    assert_eq!(produced(&mut client, "t", second).await.base_offset, 2);
    assert_eq!(fetch(&mut client, "t", 0).await.high_watermark, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_append_time_is_stamped_stored_and_answered() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let mut client = broker.client().await;
    let answer = produced(&mut client, "t", batch(Compression::Lz4, &[b"a"])).await;
    assert!(answer.log_append_time_ms > NEW_YEAR);
    let records = fetch(&mut client, "t", 0).await.records.expect("never null");
    let limits = weir_model::record_batch::BatchLimits { max_bytes: 1 << 20, max_decompressed_bytes: 1 << 20 };
    let stored = ValidBatch::validate(records, &limits).expect("its CRC fits");
    assert_eq!(stored.header().max_timestamp, answer.log_append_time_ms);
    assert_eq!(stored.header().attributes.timestamp_type(), TimestampType::LogAppendTime);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timestamp_in_the_future_is_refused_with_the_record_named() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
    builder.push(0, NEW_YEAR, None, Some(b"now"), None);
    builder.push(1, 32_503_680_000_000, None, Some(b"the year 3000"), None);
    let answer = produced(&mut client, "t", builder.finish()).await;
    assert_eq!(answer.error_code, 32);
    assert_eq!(answer.record_errors.iter().map(|error| error.batch_index).collect::<Vec<_>>(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_key_is_refused_by_a_compacted_topic() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[("cleanup.policy", "compact")]).await;
    let mut client = broker.client().await;
    let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
    builder.push(0, NEW_YEAR, Some(b"key"), Some(b"a"), None);
    builder.push(1, NEW_YEAR, None, Some(b"b"), None);
    let answer = produced(&mut client, "t", builder.finish()).await;
    assert_eq!(answer.error_code, 87);
    assert_eq!(answer.record_errors.iter().map(|error| error.batch_index).collect::<Vec<_>>(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_their_table_are_named_and_good_batches_pass() {
    let broker = Running::start(&[]).await;
    broker.topic("orders", 1, &[("weir.schema", "id BIGINT NOT NULL, amount DECIMAL(10,2)")]).await;
    let mut client = broker.client().await;
    let good = batch(Compression::Zstd, &[br#"{"id":1,"amount":9.99}"#, br#"{"id": 2, "amount": null}"#]);
    let bad =
        batch(Compression::None, &[br#"{"id":3,"amount":1.00}"#, br#"{"id":"x"}"#, br#"{"amount":1}"#, b"not json"]);
    assert_eq!(produced(&mut client, "orders", good.clone()).await.error_code, 0);
    let answer = produced(&mut client, "orders", bad).await;
    assert_eq!(answer.error_code, 87);
    assert_eq!(answer.record_errors.iter().map(|error| error.batch_index).collect::<Vec<_>>(), [1, 2, 3]);
    let first = answer.record_errors[0].batch_index_error_message.as_deref().expect("a sentence");
    assert!(first.contains("id") && first.contains('x') && first.contains("BIGINT"), "{first}");
    assert!(answer.error_message.as_deref().expect("a sentence").contains("3 rows"), "{:?}", answer.error_message);
    assert_eq!(produced(&mut client, "orders", good.clone()).await.base_offset, 2);
    let records = fetch(&mut client, "orders", 0).await.records.expect("never null");
    assert_eq!(batches(records), [at_offset(&good, 0), at_offset(&good, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_table_gives_back_the_rows_and_the_columns_asked_for() {
    let broker = Running::start(&[]).await;
    let topic =
        broker.topic("orders", 1, &[("weir.schema", "id BIGINT NOT NULL, item STRING, amount DECIMAL(10,2)")]).await;
    let mut client = broker.client().await;
    let rows: Vec<String> =
        (0..100).map(|id| format!(r#"{{"id":{id},"item":"thing {id}","amount":{id}.50}}"#)).collect();
    let values: Vec<&[u8]> = rows.iter().map(String::as_bytes).collect();
    assert_eq!(produced(&mut client, "orders", batch(Compression::None, &values)).await.error_code, 0);
    let storage = broker.app.broker().storage.clone();
    for sealed in [false, true] {
        if sealed {
            let (storage, topic) = (storage.clone(), topic.clone());
            assert_eq!(
                tokio::task::spawn_blocking(move || storage.seal_topic(&topic))
                    .await
                    .expect("no panic")
                    .expect("sealed"),
                1
            );
        }
        let records = fetch(&mut client, "orders", 0).await.records.expect("never null");
        assert_eq!(values_of(records), rows, "sealed: {sealed}");
        let mut projecting = broker.client_called("dash;weir.columns=id").await;
        let records = fetch(&mut projecting, "orders", 0).await.records.expect("never null");
        let expected: Vec<String> = (0..100).map(|id| format!(r#"{{"id":{id}}}"#)).collect();
        assert_eq!(values_of(records), expected, "sealed: {sealed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_options_that_make_no_sense_are_answered_with_invalid_request() {
    let broker = Running::start(&[]).await;
    broker.topic("orders", 1, &[("weir.schema", "id BIGINT NOT NULL")]).await;
    broker.topic("raw", 1, &[]).await;
    for (client_id, topic) in [
        ("x;weir.columns=nope", "orders"),
        ("x;weir.filter=id > 1", "orders"),
        ("x;weir.colums=id", "orders"),
        ("x;weir.columns=id", "raw"),
    ] {
        let mut client = broker.client_called(client_id).await;
        let response = client.call(11, &fetch_request(topic, vec![ask(0), ask(0).with_partition(1)])).await;
        let codes: Vec<i16> = response.responses[0].partitions.iter().map(|partition| partition.error_code).collect();
        assert_eq!(codes[0], 42, "{client_id}");
        assert!(codes[1] == 42 || codes[1] == 3, "{client_id}: {codes:?}");
        // Only reading is refused: the client can still look around, and write.
        assert_eq!(client.call(0, &ApiVersionsRequest::default()).await.error_code, 0);
        let asked = MetadataRequest::default()
            .with_topics(Some(vec![MetadataRequestTopic::default().with_name(Some(name(topic)))]));
        assert_eq!(client.call(9, &asked).await.topics[0].error_code, 0);
        assert_eq!(produced(&mut client, topic, batch(Compression::None, &[br#"{"id":1}"#])).await.error_code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fetches_outside_the_log_and_of_unknown_partitions_have_their_codes() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    produced(&mut client, "t", batch(Compression::None, &[b"a"])).await;
    for (offset, code) in [(-1, 1), (2, 1), (1, 0)] {
        let data = fetch(&mut client, "t", offset).await;
        assert_eq!(data.error_code, code, "offset {offset}");
        assert_eq!(data.records, Some(Bytes::new()));
        if code != 0 {
            assert_eq!((data.high_watermark, data.last_stable_offset, data.log_start_offset), (-1, -1, -1));
        }
    }
    assert_eq!(fetch(&mut client, "nope", 0).await.error_code, 3);
    for (epoch, code) in [(0, 0), (1, 75), (-1, 0)] {
        let response = client.call(11, &fetch_request("t", vec![ask(0).with_current_leader_epoch(epoch)])).await;
        assert_eq!(response.responses[0].partitions[0].error_code, code, "epoch {epoch}");
    }
    let mut by_id = fetch_request("", vec![ask(0)]);
    by_id.topics[0].topic_id = uuid::Uuid::from_u128(5);
    assert_eq!(client.call(13, &by_id).await.responses[0].partitions[0].error_code, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_session_tells_what_changed() {
    let broker = Running::start(&["max.incremental.fetch.session.cache.slots=1"]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    produced(&mut client, "t", batch(Compression::None, &[b"a"])).await;
    let session = |id: i32, epoch: i32, partitions: Vec<FetchPartition>| {
        fetch_request("t", partitions).with_session_id(id).with_session_epoch(epoch)
    };
    // What is no session: its error alone.
    for (id, epoch) in [(7, 1), (0, 1), (7, i32::MAX), (7, -2)] {
        for version in [7, 12] {
            let response = client.call(version, &session(id, epoch, vec![ask(0)])).await;
            assert_eq!((response.error_code, response.session_id), (70, 0), "session {id} epoch {epoch}");
            assert_eq!(response.responses.len(), 0, "session {id} epoch {epoch}");
        }
    }
    // Without one, closing one: full fetches outside of sessions.
    for id in [0, 7] {
        let response = client.call(12, &session(id, -1, vec![ask(0)])).await;
        assert_eq!((response.error_code, response.session_id, response.responses.len()), (0, 0, 1));
    }
    let opened = client.call(12, &session(0, 0, vec![ask(0)])).await;
    assert!(opened.session_id > 0);
    assert_eq!(opened.responses.len(), 1);
    let crowded = client.call(12, &session(0, 0, vec![ask(0)])).await;
    assert_eq!((crowded.session_id, crowded.responses.len()), (0, 1), "there is one slot");
    let same = client.call(12, &session(opened.session_id, 1, vec![ask(1)])).await;
    assert_eq!((same.error_code, same.session_id, same.responses.len()), (0, opened.session_id, 0));
    produced(&mut client, "t", batch(Compression::None, &[b"b"])).await;
    let mut news = session(opened.session_id, 2, Vec::new());
    news.topics.clear();
    let news = client.call(12, &news).await;
    assert_eq!(news.responses[0].partitions[0].high_watermark, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn zstd_needs_fetch_version_10() {
    let broker = Running::start(&[]).await;
    let topic = broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    produced(&mut client, "t", batch(Compression::Gzip, &[b"a"])).await;
    let sent = batch(Compression::Zstd, &[b"b"]);
    produced(&mut client, "t", sent.clone()).await;
    produced(&mut client, "t", batch(Compression::Lz4, &[b"c"])).await;
    for sealed in [false, true] {
        if sealed {
            let (storage, topic) = (broker.app.broker().storage.clone(), topic.clone());
            tokio::task::spawn_blocking(move || storage.seal_topic(&topic)).await.expect("no panic").expect("sealed");
        }
        // Version and offset: in front of the zstd batch, at it, behind it.
        for (version, offset, code) in [(4, 0, 76), (9, 1, 76), (9, 2, 0), (10, 0, 0)] {
            let response = client.call(version, &fetch_request("t", vec![ask(offset)])).await;
            let data = &response.responses[0].partitions[0];
            assert_eq!(data.error_code, code, "version {version} offset {offset}, sealed: {sealed}");
            assert_eq!(data.records.as_ref().is_some_and(Bytes::is_empty), code != 0);
        }
        let data = fetch(&mut client, "t", 1).await;
        assert_eq!(batches(data.records.expect("never null"))[0], at_offset(&sent, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_offsets_finds_ends_and_times() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    for codec in [Compression::None, Compression::Gzip] {
        produced(&mut client, "t", batch(codec, &[b"a", b"b", b"c"])).await;
    }
    let cases = [
        (7, -1, 0, 6, -1),
        (7, -2, 0, 0, -1),
        (7, -3, 0, 2, NEW_YEAR + 2),
        (8, -4, 0, 0, -1),
        (9, -5, 0, -1, -1),
        (7, 0, 0, 0, NEW_YEAR),
        (1, NEW_YEAR + 1, 0, 1, NEW_YEAR + 1),
        (7, NEW_YEAR + 3, 0, -1, -1),
        (6, -3, 35, -1, -1),
        (7, -4, 35, -1, -1),
        (8, -5, 35, -1, -1),
        (10, -6, 35, -1, -1),
    ];
    for (version, timestamp, code, offset, found) in cases {
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![
            ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![
                ListOffsetsPartition::default().with_partition_index(0).with_timestamp(timestamp),
            ]),
        ]);
        let response = client.call(version, &request).await;
        let partition = &response.topics[0].partitions[0];
        assert_eq!(
            (partition.error_code, partition.offset, partition.timestamp),
            (code, offset, found),
            "version {version} timestamp {timestamp}"
        );
    }
    let twice = ListOffsetsPartition::default().with_timestamp(-1);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![
        ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![twice.clone(), twice]),
        ListOffsetsTopic::default().with_name(name("nope")).with_partitions(vec![ListOffsetsPartition::default()]),
    ]);
    let response = client.call(7, &request).await;
    let codes: Vec<i16> =
        response.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code).collect();
    assert_eq!(codes, [42, 42, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_lists_finds_creates_and_refuses() {
    let broker = Running::start(&["num.partitions=3"]).await;
    let known = broker.topic("known", 2, &[]).await;
    let mut client = broker.client().await;
    let topic = |topic: &str| MetadataRequestTopic::default().with_name(Some(name(topic)));

    let all = client.call(9, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(all.topics.len(), 1);
    assert_eq!(
        (
            all.topics[0].partitions.len(),
            all.topics[0].partitions[1].leader_id.0,
            all.topics[0].partitions[1].leader_epoch
        ),
        (2, 0, 0)
    );
    assert_eq!(all.brokers[0].port, i32::from(broker.app.kafka().port()));
    assert_eq!(all.cluster_id.as_deref().map(str::len), Some(22));
    let all_in_v0 = client.call(0, &MetadataRequest::default().with_topics(Some(vec![]))).await;
    assert_eq!(all_in_v0.topics.len(), 1);
    let none = client.call(1, &MetadataRequest::default().with_topics(Some(vec![]))).await;
    assert!(none.topics.is_empty() && none.brokers.len() == 1);

    let refused = MetadataRequest::default()
        .with_topics(Some(vec![topic("new"), topic("bad name")]))
        .with_allow_auto_topic_creation(false);
    let codes: Vec<i16> = client.call(9, &refused).await.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [3, 17]);
    let created = client.call(9, &refused.with_allow_auto_topic_creation(true)).await;
    assert_eq!((created.topics[0].error_code, created.topics[0].partitions.len()), (0, 3));
    assert_eq!(produced(&mut client, "new", batch(Compression::None, &[b"a"])).await.error_code, 0, "usable at once");

    let by_id = |id| MetadataRequestTopic::default().with_name(None).with_topic_id(id);
    let found = client
        .call(
            12,
            &MetadataRequest::default()
                .with_topics(Some(vec![by_id(known.id().as_uuid()), by_id(uuid::Uuid::from_u128(9))])),
        )
        .await;
    assert_eq!(
        (found.topics[0].error_code, found.topics[0].name.as_ref().map(|name| name.as_str())),
        (0, Some("known"))
    );
    assert_eq!(found.topics[1].error_code, 100);
    for version in 0..=13 {
        let response = client.call(version, &MetadataRequest::default().with_topics(Some(vec![topic("known")]))).await;
        assert_eq!(response.topics[0].error_code, 0, "version {version}");
    }
}

fn values_of(records: Bytes) -> Vec<String> {
    let limits = weir_model::record_batch::BatchLimits { max_bytes: 10 << 20, max_decompressed_bytes: 10 << 20 };
    let mut values = Vec::new();
    for bytes in batches(records) {
        let batch = ValidBatch::validate(bytes, &limits).expect("a good batch");
        for record in batch.iter() {
            values.push(String::from_utf8_lossy(record.expect("good").value.expect("a value")).into_owned());
        }
    }
    values
}
