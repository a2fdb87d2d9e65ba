//! Every metric, declared in one table, and the registry that `/metrics` prints.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};
use weir_storage::Storage;

use crate::app::Broker;
use crate::handlers::APIS;

/// One row per metric: `field: kind = "name", "text";`. Kinds are `counter` (only grows) and `gauge`.
macro_rules! metrics {
    ($($field:ident: $kind:ident = $name:literal, $text:literal;)+) => {
        /// The broker's metrics.
        pub struct Metrics {
            registry: Registry,
            requests: Vec<IntCounter>,
            request_seconds: Vec<Histogram>,
            /// One scrape at a time brings the sampled metrics up to date.
            sampling: Mutex<()>,
            $(#[doc = $text] pub $field: metrics!(@type $kind),)+
        }

        impl Metrics {
            fn register(registry: Registry, requests: Vec<IntCounter>, request_seconds: Vec<Histogram>) -> Self {
                $(let $field = metrics!(@new $kind, $name, $text);
                registry.register(Box::new($field.clone())).expect("the names in the table differ");)+
                Self { registry, requests, request_seconds, sampling: Mutex::new(()), $($field),+ }
            }
        }
    };
    (@type counter) => { IntCounter };
    (@type gauge) => { IntGauge };
    (@new counter, $name:literal, $text:literal) => { IntCounter::new($name, $text).expect("the table's names are legal") };
    (@new gauge, $name:literal, $text:literal) => { IntGauge::new($name, $text).expect("the table's names are legal") };
}

metrics! {
    connections: gauge = "weir_connections", "Open Kafka connections.";
    bytes_in: counter = "weir_network_in_bytes_total", "Bytes of Kafka requests that were read.";
    bytes_out: counter = "weir_network_out_bytes_total", "Bytes of Kafka responses that were handed to the network.";
    produced_rows: counter = "weir_produced_rows_total", "Rows that were given an offset.";
    produced_bytes: counter = "weir_produced_bytes_total", "Bytes of record batches that were given an offset, as they came.";
    rows_refused: counter = "weir_refused_batches_total", "Record batches that were refused.";
    fetched_rows: counter = "weir_fetched_rows_total", "Offsets that fetches moved over.";
    fetched_bytes: counter = "weir_fetched_bytes_total", "Bytes of record batches that fetches answered.";
    tail_read_bytes: counter = "weir_read_tail_bytes_total", "Bytes that readers took from the tail.";
    log_segment_read_bytes: counter = "weir_read_log_segment_bytes_total", "Bytes that readers took from .log segments.";
    arrow_segment_read_bytes: counter = "weir_read_arrow_segment_bytes_total", "Bytes that readers took from .arrow segments: of projected reads, only the buffers asked for.";
    lake_read_bytes: counter = "weir_read_lake_bytes_total", "Bytes that were read from the lake's files, footers and metadata included.";
    cold_reads: counter = "weir_read_lake_reads_total", "Reads that went to the lake.";
    sealed_segments: counter = "weir_sealed_segments_total", "Segments that were sealed.";
    sealed_rows: counter = "weir_sealed_rows_total", "Rows that were sealed into .arrow segments.";
    sealed_raw_rows: counter = "weir_sealed_raw_rows_total", "Of those, rows that keep the bytes they were produced with, because the encoder cannot reproduce them.";
    sealed_bytes: counter = "weir_sealed_bytes_total", "Bytes of sealed segment files.";
    seal_failures: counter = "weir_seal_failures_total", "Seals that failed and are tried again.";
    merged_segments: counter = "weir_merged_segments_total", "Small segments that were merged into larger ones.";
    merged_bytes: counter = "weir_merged_bytes_total", "Bytes of segment files that were written by merging.";
    merge_failures: counter = "weir_merge_failures_total", "Merges that failed and are tried again.";
    compactions: counter = "weir_compactions_total", "Passes of log compaction that got to their end.";
    compacted_rows: counter = "weir_compacted_rows_total", "Rows that log compaction has left out.";
    compaction_failures: counter = "weir_compaction_failures_total", "Passes of log compaction that failed and are tried again.";
    wal_bytes: gauge = "weir_wal_bytes", "Bytes of WAL files on disk.";
    tail_bytes: gauge = "weir_tail_bytes", "Bytes of rows that are durable and not sealed, over all partitions.";
    topics: gauge = "weir_topics", "Topics.";
    partitions: gauge = "weir_partitions", "Partitions.";
    lake_lag_rows: gauge = "weir_lake_lag_rows", "Rows of tables with weir.lake.enable that are not in the lake yet.";
}

/// From a tenth of a millisecond to a long poll of half a minute.
const REQUEST_SECONDS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0];

impl Metrics {
    /// All metrics at zero, in a registry of their own.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let requests = IntCounterVec::new(
            Opts::new("weir_requests_total", "Kafka requests of served versions, by API."),
            &["api"],
        )
        .expect("a legal name");
        let seconds = HistogramOpts::new(
            "weir_request_seconds",
            "From a request being read to its answer being sent, by API; long polls included.",
        );
        let seconds = HistogramVec::new(seconds.buckets(REQUEST_SECONDS.to_vec()), &["api"]).expect("a legal name");
        registry.register(Box::new(requests.clone())).expect("the first of its name");
        registry.register(Box::new(seconds.clone())).expect("the first of its name");
        // Looked up once: a request finds its counters by position.
        let by_api = APIS.rows().iter().map(|api| requests.with_label_values(&[api.name])).collect();
        let seconds_by_api = APIS.rows().iter().map(|api| seconds.with_label_values(&[api.name])).collect();
        Self::register(registry, by_api, seconds_by_api)
    }

    /// Counts a request of a served API.
    pub fn request(&self, key: i16) {
        if let Ok(position) = position(key) {
            self.requests[position].inc();
        }
    }

    /// Counts an answer of `size` bytes that took `time`.
    pub fn responded(&self, key: i16, size: usize, time: Duration) {
        self.bytes_out.inc_by(wide(size));
        if let Ok(position) = position(key) {
            self.request_seconds[position].observe(time.as_secs_f64());
        }
    }

    /// Counts a batch that was given its offsets.
    pub fn produced(&self, rows: u64, bytes: usize) {
        self.produced_rows.inc_by(rows);
        self.produced_bytes.inc_by(wide(bytes));
    }

    /// Counts what one partition of a fetch answered.
    pub fn fetched(&self, rows: u64, bytes: usize) {
        self.fetched_rows.inc_by(rows);
        self.fetched_bytes.inc_by(wide(bytes));
    }

    /// The metrics in Prometheus' text format, those of the storage sampled now.
    ///
    /// # Errors
    /// What the encoder says.
    pub fn print(&self, broker: &Broker) -> Result<String, prometheus::Error> {
        self.sample(broker);
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn sample(&self, broker: &Broker) {
        let storage = &broker.storage;
        use std::sync::atomic::Ordering::Relaxed;
        let _one_at_a_time = self.sampling.lock();
        let counters = storage.counters();
        let counted = [
            (&self.tail_read_bytes, &counters.tail_read_bytes),
            (&self.log_segment_read_bytes, &counters.log_segment_read_bytes),
            (&self.arrow_segment_read_bytes, &counters.arrow_segment_read_bytes),
            (&self.cold_reads, &counters.cold_reads),
            (&self.sealed_segments, &counters.sealed_segments),
            (&self.sealed_rows, &counters.sealed_rows),
            (&self.sealed_raw_rows, &counters.sealed_raw_rows),
            (&self.sealed_bytes, &counters.sealed_bytes),
            (&self.seal_failures, &counters.seal_failures),
            (&self.merged_segments, &counters.merged_segments),
            (&self.merged_bytes, &counters.merged_bytes),
            (&self.merge_failures, &counters.merge_failures),
            (&self.compactions, &counters.compactions),
            (&self.compacted_rows, &counters.compacted_rows),
            (&self.compaction_failures, &counters.compaction_failures),
        ];
        for (metric, counter) in counted {
            metric.inc_by(counter.load(Relaxed).saturating_sub(metric.get()));
        }
        self.lake_read_bytes.inc_by(broker.lake.bytes_read().saturating_sub(self.lake_read_bytes.get()));
        let topics = storage.topics();
        let mut partitions = 0;
        let mut lag = 0;
        for topic in topics.iter() {
            partitions += i64::from(topic.partitions());
            if topic.config.weir_lake_enable {
                lag += lake_lag(storage, topic);
            }
        }
        self.topics.set(signed(topics.len()));
        self.partitions.set(partitions);
        self.lake_lag_rows.set(lag);
        self.wal_bytes.set(i64::try_from(storage.wal_stats().1).unwrap_or(i64::MAX));
        self.tail_bytes.set(signed(storage.tail_bytes()));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn lake_lag(storage: &Storage, topic: &weir_storage::TopicInfo) -> i64 {
    let mut lag = 0;
    for index in 0..topic.partitions() {
        let id = weir_model::PartitionId { topic: topic.id(), index };
        if let Some(partition) = storage.partition(id) {
            let status = partition.status();
            let poured = status.lake_end.unwrap_or(status.offsets.log_start());
            lag += i64::try_from(status.offsets.high_watermark().since(poured)).unwrap_or(i64::MAX);
        }
    }
    lag
}

fn position(key: i16) -> Result<usize, usize> {
    APIS.rows().binary_search_by_key(&key, |api| api.key)
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_api_has_its_counters() {
        let metrics = Metrics::new();
        for api in APIS.rows() {
            metrics.request(api.key);
            metrics.responded(api.key, 10, Duration::from_millis(1));
        }
        metrics.request(-5);
        assert_eq!(metrics.bytes_out.get(), 10 * u64::try_from(APIS.rows().len()).expect("few"));
    }
}
