//! A broker in this process, and a client that speaks frames.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, TopicName as WireName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_broker::app::App;
use weir_broker::cli::{ServeOptions, Settings};
use weir_model::record_batch::{BatchBuilder, Compression};
use weir_model::{TimestampType, TopicName};
use weir_protocol::versions::layout_version;
use weir_storage::{TopicInfo, TopicSpec};

/// 2025-01-01, in milliseconds.
pub const NEW_YEAR: i64 = 1_735_689_600_000;

/// A broker on free ports and an empty directory, gone when dropped.
pub struct Running {
    pub app: App,
    _directory: tempfile::TempDir,
}

impl Running {
    pub async fn start(set: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let options = ServeOptions {
            data: Some(directory.path().to_owned()),
            kafka: Some("127.0.0.1:0".to_owned()),
            http: "127.0.0.1:0".to_owned(),
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            ..ServeOptions::default()
        };
        let settings = Settings::resolve(&options, std::iter::empty()).expect("the settings are right");
        Self { app: App::start(settings).await.expect("the broker starts"), _directory: directory }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.app.kafka(), "test").await
    }

    pub async fn client_called(&self, client_id: &str) -> Client {
        Client::connect(self.app.kafka(), client_id).await
    }

    pub async fn topic(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> std::sync::Arc<TopicInfo> {
        let configs: BTreeMap<String, String> =
            configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let spec =
            TopicSpec { name: TopicName::new(name).expect("a legal name"), partitions, configs, internal: false };
        let storage = self.app.broker().storage.clone();
        let created = tokio::task::spawn_blocking(move || storage.create_topic(spec)).await.expect("no panic");
        created.expect("the topic is made")
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    client_id: String,
    next_id: i32,
}

impl Client {
    pub async fn connect(address: SocketAddr, client_id: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the broker listens");
        stream.set_nodelay(true).expect("set");
        Self { stream, client_id: client_id.to_owned(), next_id: 1 }
    }

    /// Sends a request and waits for its answer.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request).await;
        let (answered, response) = self.receive::<R>(version).await;
        assert_eq!(answered, id);
        response
    }

    /// Sends a request and returns its correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let id = self.next_id;
        self.next_id += 1;
        let frame = frame(version, id, &self.client_id, request);
        self.stream.write_all(&frame).await.expect("the broker reads");
        id
    }

    /// Waits for the next answer, which must be one to an `R` of this version.
    pub async fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let mut body = self.receive_raw().await.expect("the connection is open");
        let header_version = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut body, header_version).expect("a header");
        let response = R::Response::decode(&mut body, layout_version(R::KEY, version)).expect("a response");
        assert!(body.is_empty(), "{} bytes follow the response", body.len());
        (header.correlation_id, response)
    }

    /// The next answer without its length; `None` once the broker closed.
    pub async fn receive_raw(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await.ok()?;
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("positive")];
        self.stream.read_exact(&mut body).await.ok()?;
        Some(Bytes::from(body))
    }

    /// Sends bytes as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        // The broker may have closed before it took all of it.
        let _refused = self.stream.write_all(bytes).await;
    }

    pub async fn produce(
        &mut self,
        version: i16,
        topic: &str,
        partition: i32,
        acks: i16,
        records: Bytes,
    ) -> ProduceResponse {
        self.call(version, &produce_request(topic, partition, acks, records)).await
    }
}

pub fn produce_request(topic: &str, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![
        TopicProduceData::default().with_name(WireName(StrBytes::from_string(topic.to_owned()))).with_partition_data(
            vec![PartitionProduceData::default().with_index(partition).with_records(Some(records))],
        ),
    ])
}

/// A whole frame, length included.
pub fn frame<R: Request>(version: i16, id: i32, client_id: &str, request: &R) -> Bytes {
    let mut body = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())))
        .encode(&mut body, ApiKey::try_from(R::KEY).expect("known").request_header_version(version))
        .expect("encodable");
    request.encode(&mut body, layout_version(R::KEY, version)).expect("encodable");
    with_length(&body)
}

pub fn with_length(body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(body.len() + 4);
    out.put_i32(i32::try_from(body.len()).expect("small"));
    out.put_slice(body);
    out.freeze()
}

/// A batch of these values, without keys.
pub fn batch(compression: Compression, values: &[&[u8]]) -> Bytes {
    let mut builder = BatchBuilder::new(0, compression, TimestampType::CreateTime);
    for (offset, value) in values.iter().enumerate() {
        let offset = i64::try_from(offset).expect("few");
        builder.push(offset, NEW_YEAR + offset, None, Some(value), None);
    }
    builder.finish()
}

/// The batch with producer id, epoch and first sequence, and a CRC that fits.
pub fn idempotent(batch: &Bytes, producer_id: i64, epoch: i16, sequence: i32) -> Bytes {
    let mut bytes = BytesMut::from(&batch[..]);
    bytes[43..51].copy_from_slice(&producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    seal_crc(bytes)
}

/// Computes the CRC anew after bytes 21.. were changed.
pub fn seal_crc(mut bytes: BytesMut) -> Bytes {
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

/// CRC-32C, bit by bit: a second opinion, independent of the broker's.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// What the broker must store of a produced batch: the same bytes at this base offset, leader epoch 0.
pub fn at_offset(batch: &Bytes, base_offset: i64) -> Bytes {
    let mut bytes = BytesMut::from(&batch[..]);
    bytes[0..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&0i32.to_be_bytes());
    bytes.freeze()
}

/// Splits a record set into its batches.
pub fn batches(mut records: Bytes) -> Vec<Bytes> {
    let mut batches = Vec::new();
    while records.remaining() > 12 {
        let length = i32::from_be_bytes(records[8..12].try_into().expect("four bytes"));
        batches.push(records.split_to(12 + usize::try_from(length).expect("positive")));
    }
    batches
}
