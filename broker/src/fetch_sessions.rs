//! Fetch sessions (KIP-227): a consumer of many partitions names only what changed, and is answered only what changed.
//!
//! A session is the list of partitions that a client fetches, with the offsets it was last told. As in Kafka's `FetchSessionCache` it may be dropped at any time: the
//! client then opens another. What it holds is bounded by `max.incremental.fetch.session.cache.slots` and [`MAX_PARTITIONS`].

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use parking_lot::Mutex;
use uuid::Uuid;
use weir_protocol::fetch_response::{FetchedPartition, FetchedTopic, RecordCarrier};

/// A fetch outside of sessions, or the last of one (`FetchMetadata.FINAL_EPOCH`).
const FINAL_EPOCH: i32 = -1;

/// The first fetch of a session, which names everything (`FetchMetadata.INITIAL_EPOCH`).
const INITIAL_EPOCH: i32 = 0;

/// The id of no session.
const SESSIONLESS: i32 = 0;

/// A session unused for this long gives way to a new one when all slots are taken (Kafka's `MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`).
const EVICT_AFTER: Duration = Duration::from_mins(2);

/// Most partitions of one session; one that grows beyond is dropped, and its client sends full fetches.
const MAX_PARTITIONS: usize = 100_000;

/// The first version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;

/// Every session of this broker.
pub struct FetchSessions {
    slots: usize,
    sessions: Mutex<HashMap<i32, Arc<Mutex<Session>>>>,
    /// Where ids come from: unpredictable, as one client must not run into another's session.
    ids: RandomState,
}

struct Session {
    /// The epoch that the next fetch must carry.
    epoch: i32,
    by_topic_id: bool,
    /// In the order in which the size limit is used up. Partitions that were answered with records go to the end (S-48).
    partitions: IndexMap<Key, Cached>,
    last_used: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    topic: TopicName,
    id: Uuid,
    index: i32,
}

struct Cached {
    asked: FetchPartition,
    /// What the client knows; `None`: it must be told.
    told: Option<Told>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Told {
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
}

/// What one fetch does with its session once it is answered.
pub struct SessionFetch(Kind);

enum Kind {
    Sessionless,
    Open { by_topic_id: bool, topics: Vec<FetchTopic> },
    Incremental { id: i32, session: Arc<Mutex<Session>> },
}

impl FetchSessions {
    /// No sessions yet, and never more than `slots`.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { slots, sessions: Mutex::new(HashMap::new()), ids: RandomState::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies a request to its session. `request.topics` become everything that is to be read for it, whatever the request named.
    ///
    /// # Errors
    /// `FETCH_SESSION_ID_NOT_FOUND`, `INVALID_FETCH_SESSION_EPOCH`, `FETCH_SESSION_TOPIC_ID_ERROR` (S-55). The answer is then that error alone.
    pub fn begin(&self, request: &mut FetchRequest, version: i16, now: Instant) -> Result<SessionFetch, ResponseError> {
        let by_topic_id = version >= TOPIC_IDS_SINCE;
        let id = request.session_id;
        if matches!(request.session_epoch, INITIAL_EPOCH | FINAL_EPOCH) {
            if id != SESSIONLESS {
                self.sessions.lock().remove(&id);
            }
            let opens = request.session_epoch == INITIAL_EPOCH && self.slots > 0;
            return Ok(SessionFetch(if opens {
                Kind::Open { by_topic_id, topics: request.topics.clone() }
            } else {
                Kind::Sessionless
            }));
        }
        let session = self.sessions.lock().get(&id).cloned().ok_or(ResponseError::FetchSessionIdNotFound)?;
        let mut state = session.lock();
        if state.epoch != request.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        if state.by_topic_id != by_topic_id {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        state.last_used = now;
        state.change(request);
        if state.partitions.len() > MAX_PARTITIONS {
            self.sessions.lock().remove(&id);
            return Err(ResponseError::FetchSessionIdNotFound);
        }
        request.topics = state.topics();
        if state.partitions.is_empty() {
            self.sessions.lock().remove(&id);
            return Ok(SessionFetch(Kind::Sessionless));
        }
        state.epoch = epoch_after(state.epoch);
        drop(state);
        Ok(SessionFetch(Kind::Incremental { id, session }))
    }

    /// Notes what the client is being told, and takes out of the answer what it knows already. Returns the session id to answer with.
    pub fn finish<R: RecordCarrier>(
        &self,
        fetch: SessionFetch,
        answer: &mut Vec<FetchedTopic<R>>,
        now: Instant,
    ) -> i32 {
        match fetch.0 {
            Kind::Sessionless => SESSIONLESS,
            Kind::Open { by_topic_id, topics } => self.open(by_topic_id, topics, answer, now),
            Kind::Incremental { id, session } => {
                session.lock().answer(answer);
                id
            }
        }
    }

    fn open<R: RecordCarrier>(
        &self,
        by_topic_id: bool,
        topics: Vec<FetchTopic>,
        answer: &[FetchedTopic<R>],
        now: Instant,
    ) -> i32 {
        let mut partitions = IndexMap::new();
        for topic in topics {
            for asked in topic.partitions {
                let key = Key { topic: topic.topic.clone(), id: topic.topic_id, index: asked.partition };
                partitions.insert(key, Cached { asked, told: None });
            }
        }
        if partitions.is_empty() || partitions.len() > MAX_PARTITIONS {
            return SESSIONLESS;
        }
        let mut session = Session { epoch: epoch_after(INITIAL_EPOCH), by_topic_id, partitions, last_used: now };
        for topic in answer {
            for partition in &topic.partitions {
                session.tell(topic, partition);
            }
        }
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.slots && !evict(&mut sessions, now) {
            return SESSIONLESS;
        }
        let id = self.free_id(&sessions);
        sessions.insert(id, Arc::new(Mutex::new(session)));
        id
    }

    /// Positive, and nobody's.
    fn free_id(&self, sessions: &HashMap<i32, Arc<Mutex<Session>>>) -> i32 {
        (0_u64..)
            .map(|attempt| {
                let random = self.ids.hash_one((Instant::now(), attempt));
                i32::try_from(random & 0x7fff_ffff).expect("31 bits")
            })
            .find(|id| *id != SESSIONLESS && !sessions.contains_key(id))
            .expect("there are fewer sessions than ids")
    }
}

/// Makes room by dropping the session that was unused for longest, if that is long enough.
fn evict(sessions: &mut HashMap<i32, Arc<Mutex<Session>>>, now: Instant) -> bool {
    let oldest = sessions.iter().map(|(id, session)| (session.lock().last_used, *id)).min();
    let Some((_, id)) = oldest.filter(|(last_used, _)| now.saturating_duration_since(*last_used) > EVICT_AFTER) else {
        return false;
    };
    sessions.remove(&id).is_some()
}

/// Kafka's `FetchMetadata.nextEpoch`: after the largest comes 1, as 0 opens a session.
fn epoch_after(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl Session {
    /// Adds, changes and removes partitions as the request says.
    fn change(&mut self, request: &FetchRequest) {
        for topic in &request.topics {
            for asked in &topic.partitions {
                let key = Key { topic: topic.topic.clone(), id: topic.topic_id, index: asked.partition };
                match self.partitions.get_mut(&key) {
                    Some(known) => known.asked = asked.clone(),
                    None => {
                        self.partitions.insert(key, Cached { asked: asked.clone(), told: None });
                    }
                }
            }
        }
        for topic in &request.forgotten_topics_data {
            for index in &topic.partitions {
                let key = Key { topic: topic.topic.clone(), id: topic.topic_id, index: *index };
                self.partitions.shift_remove(&key);
            }
        }
    }

    /// Everything to read, neighbours of one topic together.
    fn topics(&self) -> Vec<FetchTopic> {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (key, cached) in &self.partitions {
            match topics.last_mut() {
                Some(last) if last.topic == key.topic && last.topic_id == key.id => {
                    last.partitions.push(cached.asked.clone());
                }
                _ => {
                    let topic = FetchTopic::default().with_topic(key.topic.clone()).with_topic_id(key.id);
                    topics.push(topic.with_partitions(vec![cached.asked.clone()]));
                }
            }
        }
        topics
    }

    /// Leaves in the answer what the client does not know, and moves what was read to the end of the order.
    fn answer<R: RecordCarrier>(&mut self, answer: &mut Vec<FetchedTopic<R>>) {
        let mut served = HashSet::new();
        for topic in answer.iter_mut() {
            let (name, id) = (topic.name.clone(), topic.id);
            topic.partitions.retain(|partition| {
                let key = key_of(&name, id, partition.index);
                let has_records = partition.records.iter().any(|records| records.size() > 0);
                let is_news = self.note(&key, partition) || has_records;
                if has_records {
                    served.insert(key);
                }
                is_news
            });
        }
        answer.retain(|topic| !topic.partitions.is_empty());
        if !served.is_empty() {
            let (last, first): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.partitions).into_iter().partition(|(key, _)| served.contains(key));
            self.partitions = first.into_iter().chain(last).collect();
        }
    }

    fn tell<R>(&mut self, topic: &FetchedTopic<R>, partition: &FetchedPartition<R>) {
        self.note(&key_of(&topic.name, topic.id, partition.index), partition);
    }

    /// Notes what the client is told of a partition, and says whether that is new to it. After an error everything is.
    fn note<R>(&mut self, key: &Key, partition: &FetchedPartition<R>) -> bool {
        let Some(cached) = self.partitions.get_mut(key) else { return true };
        let now = (partition.error_code == 0).then_some(Told {
            high_watermark: partition.high_watermark,
            last_stable_offset: partition.last_stable_offset,
            log_start_offset: partition.log_start_offset,
        });
        let is_news = now.is_none() || cached.told != now;
        cached.told = now;
        is_news
    }
}

fn key_of(topic: &str, id: Uuid, index: i32) -> Key {
    Key { topic: TopicName(kafka_protocol::protocol::StrBytes::from_string(topic.to_owned())), id, index }
}

#[cfg(test)]
mod tests;
