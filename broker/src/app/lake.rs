//! The lake, put together: what tiering reads of the log, when it pours, and where old offsets and the catalog come from.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};
use weir_lake::catalog::rest::router;
use weir_lake::catalog::topic_table;
use weir_lake::{
    ColdOptions, ColdReader, EmbeddedCatalog, LakeCatalog, LakeError, LakeStorage, MetaLakeStore, PourOnLoad,
    TierBounds, TierOptions, TierReport, TierSource, TierTopic, Tierer,
};
use weir_model::config::BrokerConfig;
use weir_model::{Clock, Offset, PartitionId, TopicId};
use weir_storage::{ColumnsRead, Storage, TopicInfo};

/// How long loading a table through the catalog waits for the rows produced so far.
const POUR_ON_LOAD_LIMIT: Duration = Duration::from_secs(30);

/// How often topics are looked at. The shortest `weir.lake.freshness.ms` is 100.
const TICK: Duration = Duration::from_millis(100);

/// After a pour that failed, the topic is left alone for this long.
const RETRY: Duration = Duration::from_secs(5);

/// Topics poured at once: compression takes a core, and produce needs one.
const POURS_AT_ONCE: usize = 2;

/// Why there is no lake.
#[derive(Debug, thiserror::Error)]
pub enum LakeStartError {
    /// `weir.lake.url` cannot be opened.
    #[error("weir.lake.url: {0}")]
    Storage(#[from] LakeError),
    /// The catalog cannot be opened.
    #[error("the Iceberg catalog: {0}")]
    Catalog(#[from] weir_lake::catalog::CatalogError),
}

/// The lake of one broker.
pub struct Lake {
    catalog: Arc<dyn LakeCatalog>,
    files: LakeStorage,
    tierer: Arc<Tierer>,
}

impl Lake {
    /// Opens the lake of `weir.lake.url`, or of the folder `lake` in the data directory, and makes old offsets readable from it.
    ///
    /// # Errors
    /// [`LakeStartError`].
    pub async fn open(
        storage: &Storage,
        config: &BrokerConfig,
        data: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LakeStartError> {
        let files = match config.weir_lake_url.as_str() {
            "" => LakeStorage::open_folder(&data.join("lake"))?,
            url => LakeStorage::open(url)?,
        };
        let store = Arc::new(MetaLakeStore::new(storage.meta()));
        let catalog: Arc<dyn LakeCatalog> = Arc::new(EmbeddedCatalog::open(store.clone(), files.clone()).await?);
        let source = Arc::new(LogSource { storage: storage.clone() });
        let tierer = Tierer::new(Arc::clone(&catalog), store, files.clone(), clock, source, TierOptions::default());
        let names = {
            let storage = storage.clone();
            move |topic: TopicId| storage.topics().get(topic).map(|topic| topic_table(topic.name().as_str()))
        };
        storage.set_cold_tier(Arc::new(ColdReader::new(
            Arc::clone(&catalog),
            files.clone(),
            Arc::new(names),
            ColdOptions::default(),
        )));
        Ok(Self { catalog, files, tierer: Arc::new(tierer) })
    }

    /// The embedded Iceberg REST catalog, to be mounted at `/iceberg`. Loading a table pours it first.
    pub fn router(&self) -> Router {
        router(
            Arc::clone(&self.catalog),
            &self.files,
            Arc::new(PourOnLoad::new(Arc::clone(&self.tierer), POUR_ON_LOAD_LIMIT)),
        )
    }

    /// Pours what a topic holds now into its table, and returns when that can be read from there.
    ///
    /// # Errors
    /// [`LakeError`]; the rows stay in the log.
    pub async fn pour(&self, topic: TopicId) -> Result<TierReport, LakeError> {
        self.tierer.pour(topic).await
    }

    /// Bytes read from the lake's files since the start.
    pub fn bytes_read(&self) -> u64 {
        self.files.bytes_read()
    }

    /// Pours every topic with `weir.lake.enable` so that its rows become no older than `weir.lake.freshness.ms`, until told to stop. A pour that is under way then
    /// is dropped: the next start settles what it left.
    pub async fn keep_fresh(self: Arc<Self>, storage: Storage, stop: CancellationToken) {
        let mut schedule = Schedule::default();
        let mut pours: JoinSet<(TopicId, Result<TierReport, LakeError>)> = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = pours.join_next(), if !pours.is_empty() => match ended {
                    Ok((topic, result)) => {
                        if let Err(error) = &result {
                            warn!(%topic, %error, "rows stay in the log until a later pour succeeds");
                        }
                        schedule.ended(topic, result.is_ok(), Instant::now());
                    }
                    Err(panic) => error!(%panic, "a pour ended badly"),
                },
                () = tokio::time::sleep(TICK) => {}
            }
            let topics = storage.topics();
            let lagging = topics
                .iter()
                .filter(|topic| topic.config.weir_lake_enable && lags(&storage, topic))
                .map(|topic| (topic.id(), freshness(topic)));
            let room = POURS_AT_ONCE.saturating_sub(pours.len());
            for topic in schedule.due(lagging, room, Instant::now()) {
                debug!(%topic, "pouring");
                let lake = Arc::clone(&self);
                pours.spawn(async move { (topic, lake.pour(topic).await) });
            }
        }
    }
}

fn freshness(topic: &TopicInfo) -> Duration {
    Duration::from_millis(topic.config.weir_lake_freshness_ms.unsigned_abs())
}

/// Whether the topic has rows that the lake has not.
fn lags(storage: &Storage, topic: &TopicInfo) -> bool {
    storage.partitions(topic).iter().any(|partition| {
        let status = partition.status();
        status.lake_end.unwrap_or(status.offsets.log_start()).max(status.offsets.log_start())
            < status.offsets.last_stable()
    })
}

/// When which topic is poured.
#[derive(Debug, Default)]
struct Schedule {
    topics: HashMap<TopicId, Due>,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    /// Rows wait, and are to be poured at this time.
    At(Instant),
    /// It is being poured.
    Running,
}

impl Schedule {
    /// The topics to pour now, at most `room` of them. `lagging` lists every topic whose rows wait.
    fn due(&mut self, lagging: impl Iterator<Item = (TopicId, Duration)>, room: usize, now: Instant) -> Vec<TopicId> {
        let mut waiting = Vec::new();
        for (topic, freshness) in lagging {
            // Rows that are seen now are poured when they have half of their time behind them: the pour takes time too.
            let due = *self.topics.entry(topic).or_insert(Due::At(now + freshness / 2));
            match due {
                Due::At(at) if at <= now => waiting.push((at, topic)),
                Due::At(_) | Due::Running => {}
            }
        }
        waiting.sort_unstable();
        let chosen: Vec<TopicId> = waiting.into_iter().take(room).map(|(_, topic)| topic).collect();
        for topic in &chosen {
            self.topics.insert(*topic, Due::Running);
        }
        chosen
    }

    fn ended(&mut self, topic: TopicId, went_well: bool, now: Instant) {
        if went_well {
            self.topics.remove(&topic);
        } else {
            self.topics.insert(topic, Due::At(now + RETRY));
        }
    }
}

/// The log, as tiering sees it.
struct LogSource {
    storage: Storage,
}

impl LogSource {
    fn describe(topic: &TopicInfo) -> Option<TierTopic> {
        topic.config.weir_lake_enable.then(|| TierTopic {
            id: topic.id(),
            name: topic.name().clone(),
            schema: topic.columns().as_ref().clone(),
            partitions: topic.partitions(),
        })
    }
}

#[async_trait]
impl TierSource for LogSource {
    fn topic(&self, topic: TopicId) -> Option<TierTopic> {
        self.storage.topics().get(topic).and_then(|topic| Self::describe(topic))
    }

    fn topic_named(&self, name: &str) -> Option<TierTopic> {
        self.storage.topics().by_name(name).and_then(|topic| Self::describe(topic))
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
        let partition =
            self.storage.partition(partition).ok_or_else(|| LakeError::Source("the topic was deleted".to_owned()))?;
        partition.read_columns(from, to, None, max_bytes).await.map_err(|error| LakeError::Source(error.to_string()))
    }

    fn poured(&self, topic: TopicId, ends: &BTreeMap<i32, Offset>) {
        let take_note = || {
            for (&index, &end) in ends {
                let Some(partition) = self.storage.partition(PartitionId { topic, index }) else { continue };
                if let Err(error) = partition.set_lake_end(end) {
                    // Local copies stay until a later pour tells it again.
                    warn!(%topic, partition = index, %error, "the end of the lake was not stored");
                }
            }
        };
        // A synced write per partition: not for a network thread, and the caller waits for it.
        tokio::task::block_in_place(take_note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESHNESS: Duration = Duration::from_secs(10);

    #[test]
    fn a_topic_is_poured_half_its_freshness_after_it_lags_and_not_twice_at_once() {
        let (topic, start) = (TopicId::random(), Instant::now());
        let mut schedule = Schedule::default();
        assert!(schedule.due([(topic, FRESHNESS)].into_iter(), 2, start).is_empty());
        let due = start + FRESHNESS / 2;
        assert_eq!(schedule.due([(topic, FRESHNESS)].into_iter(), 2, due), [topic]);
        assert!(schedule.due([(topic, FRESHNESS)].into_iter(), 2, due + FRESHNESS).is_empty(), "it is running");
        schedule.ended(topic, true, due);
        assert!(schedule.due([(topic, FRESHNESS)].into_iter(), 2, due).is_empty(), "its new rows have their own time");
    }

    #[test]
    fn a_failed_pour_is_tried_again_after_a_pause() {
        let (topic, start) = (TopicId::random(), Instant::now());
        let mut schedule = Schedule::default();
        schedule.due([(topic, Duration::ZERO)].into_iter(), 1, start);
        schedule.ended(topic, false, start);
        assert!(schedule.due([(topic, Duration::ZERO)].into_iter(), 1, start).is_empty());
        assert_eq!(schedule.due([(topic, Duration::ZERO)].into_iter(), 1, start + RETRY), [topic]);
    }

    #[test]
    fn the_topic_that_waited_longest_goes_first() {
        let (first, second, start) = (TopicId::random(), TopicId::random(), Instant::now());
        let mut schedule = Schedule::default();
        schedule.due([(first, FRESHNESS)].into_iter(), 1, start);
        schedule.due([(second, FRESHNESS)].into_iter(), 1, start + Duration::from_secs(1));
        let later = start + FRESHNESS;
        assert_eq!(schedule.due([(second, FRESHNESS), (first, FRESHNESS)].into_iter(), 1, later), [first]);
    }
}
