//! Connections, as a client sees them: order, limits, and what a hostile one can do.

mod wire;

use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, FetchRequest, MetadataRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::io::AsyncReadExt;
use weir_model::record_batch::Compression;
use wire::{Running, batch, produce_request, with_length};

fn fetch(topic: &str, offset: i64, max_wait_ms: i32) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default().with_topic(TopicName(StrBytes::from_string(topic.to_owned()))).with_partitions(vec![
                FetchPartition::default().with_partition(0).with_fetch_offset(offset).with_partition_max_bytes(1 << 20),
            ]),
        ])
}

/// The broker closes without an answer.
async fn assert_closed(client: &mut wire::Client) {
    let closed = tokio::time::timeout(Duration::from_secs(10), client.receive_raw()).await.expect("the broker reacts");
    assert!(closed.is_none(), "an answer came: {closed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_leave_in_request_order_although_the_first_waits() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let waiting = client.send(11, &fetch("t", 0, 300)).await;
    let metadata = client.send(9, &MetadataRequest::default()).await;
    let produced = client.send(8, &produce_request("t", 0, -1, batch(Compression::None, &[b"x"]))).await;
    let versions = client
        .send(
            3,
            &ApiVersionsRequest::default()
                .with_client_software_name("t".into())
                .with_client_software_version("1".into()),
        )
        .await;
    // The produce was ordered while the fetch waited, so the fetch sees it.
    let (first, response) = client.receive::<FetchRequest>(11).await;
    assert_eq!(first, waiting);
    assert!(!response.responses[0].partitions[0].records.as_ref().expect("never null").is_empty());
    assert_eq!(client.receive::<MetadataRequest>(9).await.0, metadata);
    assert_eq!(client.receive::<ProduceRequest>(8).await.0, produced);
    assert_eq!(client.receive::<ApiVersionsRequest>(3).await.0, versions);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pipelined_batches_get_offsets_in_the_order_they_were_sent() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let records = batch(Compression::None, &[b"one", b"two"]);
    let mut frames = BytesMut::new();
    for id in 0..1000 {
        frames.put(wire::frame(8, id, "pipe", &produce_request("t", 0, -1, records.clone())));
    }
    let (mut reader, mut writer) = client.stream.split();
    let send = async {
        use tokio::io::AsyncWriteExt;
        writer.write_all(&frames).await.expect("taken");
    };
    let receive = async {
        for id in 0..1000i32 {
            let length = reader.read_i32().await.expect("an answer");
            let mut body = vec![0; usize::try_from(length).expect("positive")];
            reader.read_exact(&mut body).await.expect("whole");
            let mut body = &body[..];
            assert_eq!(body.get_i32(), id);
            // One topic "t", one partition 0, no error, then the base offset.
            assert_eq!((body.get_i32(), body.get_i16(), body.get_u8()), (1, 1, b't'));
            assert_eq!((body.get_i32(), body.get_i32(), body.get_i16()), (1, 0, 0));
            assert_eq!(body.get_i64(), i64::from(id) * 2);
        }
    };
    tokio::join!(send, receive);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_versions_of_an_unknown_version_is_answered_in_v0_with_its_own_range() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    for version in [5, 9, i16::MAX, -1] {
        let mut request = BytesMut::new();
        request.put_i16(18);
        request.put_i16(version);
        request.put_i32(77);
        request.put_slice(b"a body that nobody must look at");
        client.send_raw(&with_length(&request)).await;
        let mut answer = client.receive_raw().await.expect("never closed (S-2)");
        assert_eq!(answer.get_i32(), 77);
        assert_eq!(answer.get_i16(), 35);
        assert_eq!(answer.get_i32(), 1);
        assert_eq!((answer.get_i16(), answer.get_i16(), answer.get_i16()), (18, 0, 4));
        assert!(answer.is_empty());
    }
    // The connection is as good as new.
    let table = client.call(0, &ApiVersionsRequest::default()).await;
    assert_eq!(table.error_code, 0);
    let produce = table.api_keys.iter().find(|api| api.api_key == 0).expect("Produce is served");
    assert_eq!((produce.min_version, produce.max_version), (0, 13));
}

#[tokio::test(flavor = "multi_thread")]
async fn api_versions_refuses_a_client_without_a_name() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    let response = client.call(3, &ApiVersionsRequest::default()).await;
    assert_eq!(response.error_code, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_apis_and_versions_close_the_connection() {
    let broker = Running::start(&[]).await;
    for (key, version) in [(3, 14), (0, 2), (1, 3), (1, 19), (4, 0), (17, 0), (999, 0), (-1, 0)] {
        let mut client = broker.client().await;
        let mut request = BytesMut::new();
        request.put_i16(key);
        request.put_i16(version);
        request.put_i32(1);
        request.put_i16(-1);
        request.put_bytes(0, 64);
        client.send_raw(&with_length(&request)).await;
        assert_closed(&mut client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_over_the_limit_negative_or_tiny_close_the_connection() {
    let broker = Running::start(&["socket.request.max.bytes=10000"]).await;
    for length in [10_001i32, i32::MAX, -1, i32::MIN, 0, 7] {
        let mut client = broker.client().await;
        client.send_raw(&length.to_be_bytes()).await;
        assert_closed(&mut client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tiny_frame_that_claims_billions_of_elements_closes_the_connection_and_costs_nothing() {
    let broker = Running::start(&[]).await;
    let before = resident_kib();
    for (key, version, body) in [
        (3i16, 0i16, &[0x7f, 0xff, 0xff, 0xff][..]),
        (3, 9, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        (0, 3, &[0xff, 0xff, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
        (2, 1, &[0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
        (18, 3, &[0, 2, b'a', 2, b'1', 0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        let mut client = broker.client().await;
        let mut request = BytesMut::new();
        request.put_i16(key);
        request.put_i16(version);
        request.put_i32(1);
        request.put_i16(-1);
        request.put_slice(body);
        client.send_raw(&with_length(&request)).await;
        assert_closed(&mut client).await;
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more are resident");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_closes_its_own_connection_and_no_other() {
    let broker = Running::start(&[]).await;
    let mut good = broker.client().await;
    for seed in 0..200u64 {
        let mut bad = broker.client().await;
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut body = BytesMut::new();
        // Real keys, so that every decoder sees some of it.
        let apis = weir_broker::handlers::APIS.rows();
        let api = apis[usize::try_from(seed).expect("small") % apis.len()];
        body.put_i16(api.key);
        body.put_i16(api.min.max(3).min(api.max));
        body.put_i32(1);
        body.put_i16(-1);
        for _ in 0..seed {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            body.put_u8(random.to_le_bytes()[0]);
        }
        bad.send_raw(&with_length(&body)).await;
        // Answered or closed: either way the broker lives.
        let _ = tokio::time::timeout(Duration::from_millis(20), bad.receive_raw()).await;
    }
    assert_eq!(good.call(0, &ApiVersionsRequest::default()).await.error_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_comes_in_single_bytes_is_read_as_one() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    let frame = wire::frame(1, 5, "slow", &MetadataRequest::default());
    for byte in &frame {
        client.send_raw(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.receive::<MetadataRequest>(1).await.0, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_a_long_poll_is_not_idle() {
    let broker = Running::start(&["connections.max.idle.ms=200"]).await;
    broker.topic("t", 1, &[]).await;
    let mut waiting = broker.client().await;
    let mut idle = broker.client().await;
    let started = Instant::now();
    waiting.send(11, &fetch("t", 0, 1_000)).await;
    assert_closed(&mut idle).await;
    assert!(started.elapsed() >= Duration::from_millis(190));
    waiting.receive::<FetchRequest>(11).await;
    assert!(started.elapsed() >= Duration::from_millis(990));
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_max_connections_the_newest_is_closed_and_the_others_stay() {
    let broker = Running::start(&["max.connections=2"]).await;
    let mut first = broker.client().await;
    let mut second = broker.client().await;
    for client in [&mut first, &mut second] {
        assert_eq!(client.call(0, &ApiVersionsRequest::default()).await.error_code, 0);
    }
    for _ in 0..2 {
        assert_closed(&mut broker.client().await).await;
    }
    for client in [&mut first, &mut second] {
        assert_eq!(client.call(0, &ApiVersionsRequest::default()).await.error_code, 0);
    }
    drop(first);
    // The broker notices in its own time that there is room again.
    let served = async {
        loop {
            let mut client = broker.client().await;
            client.send(0, &ApiVersionsRequest::default()).await;
            if client.receive_raw().await.is_some() {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served).await.expect("a place became free");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_owed_are_sent_before_a_refused_request_closes_the_connection() {
    let broker = Running::start(&[]).await;
    broker.topic("t", 1, &[]).await;
    let mut client = broker.client().await;
    let produced = client.send(8, &produce_request("t", 0, -1, batch(Compression::None, &[b"x"]))).await;
    client.send_raw(&with_length(&[0, 4, 0, 0, 0, 0, 0, 9, 0xff, 0xff])).await;
    assert_eq!(client.receive::<ProduceRequest>(8).await.0, produced);
    assert_closed(&mut client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_broker_closes_its_connections_soon() {
    let broker = Running::start(&[]).await;
    let mut client = broker.client().await;
    assert_eq!(client.call(0, &ApiVersionsRequest::default()).await.error_code, 0);
    let started = Instant::now();
    broker.app.stop().await.expect("a clean stop");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_closed(&mut client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_takes_at_most_16_kib() {
    let broker = Running::start(&[]).await;
    let mut clients = Vec::new();
    for warm_up in [true, false] {
        let before = resident_kib();
        for _ in 0..500 {
            let mut client = broker.client().await;
            assert_eq!(client.call(0, &ApiVersionsRequest::default()).await.error_code, 0);
            clients.push(client);
        }
        let grown = resident_kib().saturating_sub(before);
        // Both ends are in this process.
        assert!(warm_up || grown <= 500 * 16, "{grown} KiB for 500 connections");
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is there");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}
