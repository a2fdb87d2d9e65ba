//! Transactions of the real log on their way into the lake (TXN-1).

use bytes::{Bytes, BytesMut};
use weir_model::config::BrokerConfig;
use weir_model::producer::{TxnMarker, TxnOutcome};
use weir_model::record_batch::{BatchBuilder, BatchLimits, Compression, MARKER_BATCH_BYTES, ValidBatch};
use weir_model::{SystemClock, TimestampType};
use weir_storage::{ColdTier, Partition, Storage, StorageOptions, TopicSpec};
use weir_table::decode_batch;

use super::super::*;
use super::world::World;
use crate::cold::{ColdOptions, ColdReader};

const COLUMNS: &str = "id BIGINT NOT NULL";

/// The log of a broker, as its tiering sees it.
struct RealLog {
    storage: Storage,
    poured: Mutex<BTreeMap<i32, Offset>>,
}

#[async_trait]
impl TierSource for RealLog {
    fn topic(&self, topic: TopicId) -> Option<TierTopic> {
        let topics = self.storage.topics();
        let topic = topics.get(topic)?;
        let (id, name) = (topic.id(), topic.name().clone());
        Some(TierTopic { id, name, schema: topic.columns().as_ref().clone(), partitions: topic.partitions() })
    }

    fn topic_named(&self, name: &str) -> Option<TierTopic> {
        let id = self.storage.topics().by_name(name)?.id();
        self.topic(id)
    }

    fn bounds(&self, partition: PartitionId) -> Option<TierBounds> {
        let offsets = self.storage.partition(partition)?.offsets();
        Some(TierBounds { log_start: offsets.log_start(), last_stable: offsets.last_stable() })
    }

    async fn read_columns(
        &self,
        partition: PartitionId,
        from: Offset,
        to: Offset,
        max_bytes: usize,
    ) -> Result<ColumnsRead, LakeError> {
        let partition = self.storage.partition(partition).expect("the topic is not deleted");
        partition.read_columns(from, to, None, max_bytes).await.map_err(|error| LakeError::Source(error.to_string()))
    }

    fn poured(&self, _topic: TopicId, ends: &BTreeMap<i32, Offset>) {
        *self.poured.lock() = ends.clone();
    }
}

fn batch(ids: std::ops::Range<i64>, producer_id: i64, sequence: i32) -> ValidBatch {
    let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
    for (index, id) in (0..).zip(ids) {
        builder.push(index, 1_000 + id, None, Some(format!("{{\"id\":{id}}}").as_bytes()), None);
    }
    let mut bytes = BytesMut::from(&builder.finish()[..]);
    bytes[22] |= 1 << 4;
    bytes[43..51].copy_from_slice(&producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&0i16.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    let limits = BatchLimits { max_bytes: 1 << 20, max_decompressed_bytes: 1 << 20 };
    ValidBatch::validate(with_crc(bytes), &limits).expect("valid")
}

fn with_crc(mut bytes: BytesMut) -> Bytes {
    // Bit by bit: a checksum crate would be a dependency of this test alone.
    let mut crc = !0_u32;
    for byte in &bytes[21..] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    bytes[17..21].copy_from_slice(&(!crc).to_be_bytes());
    bytes.freeze()
}

async fn append(storage: &Storage, partition: &Partition, batch: ValidBatch) {
    let topic = partition.topic();
    let columns = topic.table.as_ref().map(|schema| {
        let values: Vec<_> = batch.iter().map(|record| record.expect("framed").value).collect();
        decode_batch(schema, values.into_iter()).expect("rows fit")
    });
    let size = batch.bytes().len();
    let mut admission = storage.admit([size]).await.expect("room");
    let appended = partition.append(&mut admission, batch, columns, size, 1_000).expect("appended");
    storage.durable(appended.seq.expect("new")).await.expect("durable");
}

async fn end(storage: &Storage, partition: &Partition, producer_id: i64, outcome: TxnOutcome) {
    let marker = TxnMarker { producer_id, producer_epoch: 0, outcome, coordinator_epoch: 0, timestamp_ms: 9_000 };
    let mut admission = storage.admit([MARKER_BATCH_BYTES]).await.expect("room");
    let appended = partition.append_marker(&mut admission, &marker, 1_000).expect("ordered");
    storage.durable(appended.seq.expect("new")).await.expect("durable");
}

async fn offsets_in_the_lake(reader: &ColdReader, partition: &Partition, end: i64) -> Vec<i64> {
    let (mut at, to) = (Offset::ZERO, Offset::new(end).expect("an offset"));
    let mut offsets = Vec::new();
    while at < to {
        let schema = partition.topic().columns();
        let read = reader.read_columns(partition.id(), &schema, at, to, None, 100).await.expect("reads");
        assert!(read.next > at, "no progress at {at}");
        at = read.next;
        for batch in &read.batches {
            offsets.extend(batch.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
    }
    offsets
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_rows_and_markers_never_reach_the_lake() {
    for (name, configs) in [("raw", BTreeMap::new()), ("columns", BTreeMap::from([("weir.schema", COLUMNS)]))] {
        for seals in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let config = Arc::new(BrokerConfig::resolve(&BTreeMap::new()).expect("defaults"));
            let options = StorageOptions::new(directory.path().to_owned(), config, Arc::new(SystemClock));
            let storage = Storage::open(options).expect("opens");
            let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let name = TopicName::new(name).expect("legal");
            let spec = TopicSpec { name: name.clone(), partitions: 1, configs, internal: false };
            let topic = storage.create_topic(spec).expect("made");
            let partition = storage.partitions(&topic).remove(0);
            let world = World::new().await;
            let log = Arc::new(RealLog { storage: storage.clone(), poured: Mutex::default() });
            let tierer = Tierer::new(
                Arc::clone(&world.catalog),
                Arc::clone(&world.store),
                world.storage.clone(),
                Arc::new(SystemClock),
                Arc::clone(&log) as Arc<dyn TierSource>,
                TierOptions::default(),
            );
            let table = topic_table(name.as_str());
            let names = move |_: TopicId| Some(table.clone());
            let reader = ColdReader::new(
                Arc::clone(&world.catalog),
                world.storage.clone(),
                Arc::new(names),
                ColdOptions::default(),
            );
            let seal = || drop(seals.then(|| partition.seal().expect("sealed")));

            // 1: 0..3, commits at 7. 2: 3..5 and 5..7, aborts at 10. 3: 8..10, open until the end.
            append(&storage, &partition, batch(0..3, 1, 0)).await;
            append(&storage, &partition, batch(3..5, 2, 0)).await;
            append(&storage, &partition, batch(5..7, 2, 2)).await;
            assert_eq!(tierer.pour(topic.id()).await.expect("pours").rows, 0, "all are open");
            end(&storage, &partition, 1, TxnOutcome::Commit).await;
            seal();
            assert_eq!(tierer.pour(topic.id()).await.expect("pours").rows, 3, "up to the open one");
            append(&storage, &partition, batch(8..10, 3, 0)).await;
            end(&storage, &partition, 2, TxnOutcome::Abort).await;
            seal();
            let report = tierer.pour(topic.id()).await.expect("pours");
            assert_eq!(
                (report.rows, report.ends.get(&0)),
                (0, Some(&Offset::ZERO.plus(8))),
                "{name}: aborted rows alone"
            );
            assert_eq!(tierer.pour(topic.id()).await.expect("pours").commits, 0, "{name}: nothing lags");
            end(&storage, &partition, 3, TxnOutcome::Commit).await;
            seal();
            assert_eq!(tierer.pour(topic.id()).await.expect("pours").rows, 2, "{name}");
            assert_eq!(log.poured.lock().get(&0), Some(&Offset::ZERO.plus(12)), "LAKE-1");
            assert_eq!(offsets_in_the_lake(&reader, &partition, 12).await, [0, 1, 2, 8, 9], "{name}");
            storage.close().expect("closes");
        }
    }
}
