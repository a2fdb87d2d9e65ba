//! The main job on one broker: rows in, a table behind, the local copy gone, and the same bytes back out.

mod wire;

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_model::PartitionId;
use weir_model::record_batch::{BatchLimits, Compression, ValidBatch};
use wire::{Client, Running, batch, batches};

const ROWS: i64 = 2000;

async fn fetch(client: &mut Client, topic: &str, offset: i64) -> PartitionData {
    let request =
        FetchRequest::default().with_replica_id(BrokerId(-1)).with_max_wait_ms(0).with_max_bytes(10 << 20).with_topics(
            vec![FetchTopic::default().with_topic(TopicName(StrBytes::from_string(topic.to_owned()))).with_partitions(
                vec![FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(10 << 20)],
            )],
        );
    client.call(11, &request).await.responses[0].partitions[0].clone()
}

/// Every value of a partition, with its offset and timestamp, however many fetches that takes.
async fn read_all(client: &mut Client, topic: &str) -> Vec<(i64, i64, String)> {
    let mut rows = Vec::new();
    let mut next = 0;
    while next < ROWS {
        let data = fetch(client, topic, next).await;
        assert_eq!(data.error_code, 0);
        for (offset, timestamp, value) in rows_of(data.records.expect("never null")) {
            if offset >= next {
                rows.push((offset, timestamp, value));
            }
        }
        let reached = rows.last().map_or(0, |(offset, ..)| offset + 1);
        assert!(reached > next, "no row at offset {next}");
        next = reached;
    }
    rows
}

fn rows_of(records: Bytes) -> Vec<(i64, i64, String)> {
    let limits = BatchLimits { max_bytes: 64 << 20, max_decompressed_bytes: 64 << 20 };
    let mut rows = Vec::new();
    for bytes in batches(records) {
        let batch = ValidBatch::validate_internal(bytes, &limits).expect("a good batch");
        let (offset, time) = (batch.header().base_offset, batch.header().base_timestamp);
        for record in batch.iter() {
            let record = record.expect("good");
            let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("JSON is UTF-8");
            rows.push((offset + i64::from(record.offset_delta), time + record.timestamp_delta, value));
        }
    }
    rows
}

async fn http(broker: &Running, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(broker.app.http()).await.expect("HTTP listens");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_back_byte_for_byte_from_tail_segment_and_lake() {
    let broker = Running::start(&[]).await;
    let configs = [
        ("weir.schema", "id BIGINT NOT NULL, item STRING, amount DECIMAL(10,2)"),
        ("weir.lake.enable", "true"),
        // Poured by hand below.
        ("weir.lake.freshness.ms", "3600000"),
        ("local.retention.ms", "1"),
        ("retention.ms", "-1"),
    ];
    let topic = broker.topic("orders", 1, &configs).await;
    let mut client = broker.client().await;
    // Two styles, and rows that no encoder reproduces: doubled blanks, an escape nobody needs, an unknown field.
    let values: Vec<String> = (0..ROWS)
        .map(|id| match id % 5 {
            0 => format!(r#"{{"id":{id},"item":"thing {id}","amount":{id}.50}}"#),
            1 => format!(r#"{{"id": {id}, "item": null, "amount": 0.10}}"#),
            2 => format!(r#"{{"amount":1.00,"id":{id}}}"#),
            3 => format!(r#"{{  "id":{id},"item":"\u0061"}}"#),
            _ => format!(r#"{{"id":{id},"color":"red"}}"#),
        })
        .collect();
    for part in values.chunks(500) {
        let part: Vec<&[u8]> = part.iter().map(String::as_bytes).collect();
        let answer = client.produce(8, "orders", 0, -1, batch(Compression::Zstd, &part)).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    let from_tail = read_all(&mut client, "orders").await;
    assert_eq!(from_tail.iter().map(|(.., value)| value.as_str()).collect::<Vec<_>>(), values);

    assert!(http(&broker, "POST", "/api/v1/tables/orders/seal").await.starts_with("HTTP/1.1 200"));
    assert_eq!(read_all(&mut client, "orders").await, from_tail);

    let tiered = http(&broker, "POST", "/api/v1/tables/orders/tier").await;
    assert!(tiered.starts_with("HTTP/1.1 200") && tiered.contains("\"lake_end\":2000"), "{tiered}");
    assert!(http(&broker, "GET", "/iceberg/v1/namespaces/weir/tables").await.contains("orders"));

    tokio::time::sleep(Duration::from_millis(5)).await;
    let storage = broker.app.broker().storage.clone();
    tokio::task::spawn_blocking(move || storage.retain()).await.expect("no panic");
    let partition =
        broker.app.broker().storage.partition(PartitionId { topic: topic.id(), index: 0 }).expect("it is there");
    assert_eq!(partition.status().local_segments, 0, "the local copy is gone");
    assert_eq!(partition.offsets().log_start().get(), 0, "and nothing else is");
    assert_eq!(read_all(&mut client, "orders").await, from_tail);

    let mut projecting = broker.client_called("dash;weir.columns=id,amount").await;
    let projected = read_all(&mut projecting, "orders").await;
    assert_eq!(projected.len(), values.len());
    assert_eq!(projected[0].2, r#"{"id":0,"amount":0.50}"#);
    let metrics = http(&broker, "GET", "/metrics").await;
    assert!(metrics.contains("weir_lake_lag_rows 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_poured_by_itself_within_its_freshness() {
    let broker = Running::start(&[]).await;
    broker.topic("fresh", 1, &[("weir.lake.enable", "true"), ("weir.lake.freshness.ms", "100")]).await;
    let mut client = broker.client().await;
    client.produce(8, "fresh", 0, -1, batch(Compression::None, &[b"a", b"b"])).await;
    let poured = async {
        while !http(&broker, "GET", "/api/v1/tables/fresh").await.contains("\"lake_end\":2") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), poured).await.expect("poured in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_go_to_the_lake_says_so() {
    let broker = Running::start(&[]).await;
    broker.topic("plain", 1, &[]).await;
    let answer = http(&broker, "POST", "/api/v1/tables/plain/tier").await;
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("weir.lake.enable=true"), "{answer}");
}
