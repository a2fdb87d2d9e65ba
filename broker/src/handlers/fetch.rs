//! Fetch (key 1), versions 4 to 18.
//!
//! Answers whole record batches from an offset on, waiting for `min_bytes` or `max_wait_ms`. Records are sent from where they are: shared memory of the tail, slices of
//! segment files. The client id may carry read options (DESIGN 5.1): `name;weir.columns=a,b;weir.format=arrow`.
//!
//! * v5 log start offset; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v10 zstd (KIP-110); v11 rack (KIP-392); v12 compact encodings; v13 topic ids (KIP-516);
//!   v15 replica state; v16 node endpoints (KIP-951); v18 a follower's high watermark (KIP-1166), which no client sends.
//! * zstd below v10 is answered with UNSUPPORTED_COMPRESSION_TYPE (S-58). Kafka goes by the topic's compression.type; we look at the batches that would be sent, so
//!   what a producer chose to compress so does not reach a client that cannot read it.
//! * Sessions are in `fetch_sessions.rs` (S-55). One broker leads everything, so there is no preferred replica and no leader hint.
//! * Differs from Kafka: bad read options are answered with INVALID_REQUEST, and the sentence that says what is wrong is logged: the response has no room for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use tracing::{error, warn};
use weir_model::record_batch::Compression;
use weir_model::{Isolation, Offset, PartitionId, TopicId};
use weir_protocol::fetch_response::{
    self, AbortedTransaction, FetchResponse, FetchedPartition, FetchedTopic, Piece, RecordCarrier,
};
use weir_storage::partition::LEADER_EPOCH;
use weir_storage::{AbortedTxn, Chunk, ReadError, RowForm, TopicInfo};
use weir_table::{ReadFormat, ReadOptions};

use super::{CloseConnection, Reply, RequestContext, Response};
use crate::errors;
use crate::partition::{LongPoll, Target, TargetRead, codecs};
use crate::quotas::Limit;

/// The first version whose clients read zstd (KIP-110).
const ZSTD_SINCE: i16 = 10;

/// The session id that says that there is none.
const NO_SESSION: i32 = 0;

/// Resolves what is asked for; reading and waiting happen when the answer's turn comes.
pub async fn handle(context: &RequestContext, mut request: FetchRequest) -> Result<Reply, CloseConnection> {
    let options = match ReadOptions::from_client_id(context.client_id()) {
        Ok(options) => options,
        Err(error) => {
            warn!(client_id = context.client_id(), %error, "read options refused");
            return refuse_options(context, request);
        }
    };
    let session = match context.broker.fetch_sessions.begin(&mut request, context.version, context.received) {
        Ok(session) => session,
        Err(code) => return respond(context.version, code.code(), Vec::new()).map(Reply::Ready),
    };
    let isolation = if request.isolation_level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let max_bytes = request.max_bytes.min(context.broker.config.fetch_max_bytes);
    let mut plan = Plan { topics: Vec::with_capacity(request.topics.len()), targets: Vec::new(), has_errors: false };
    for topic in &request.topics {
        plan.add_topic(context, topic, options.as_ref());
    }
    let max_bytes = usize::try_from(max_bytes).unwrap_or(0);
    let poll = LongPoll {
        targets: plan.targets,
        isolation,
        // More than the most can never be reached.
        min_bytes: usize::try_from(request.min_bytes).unwrap_or(0).min(max_bytes),
        max_bytes,
        // An error is answered at once, beside what there is (S-49).
        max_wait: if plan.has_errors {
            Duration::ZERO
        } else {
            Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0))
        },
        received: context.received,
    };
    let topics = plan.topics;
    let context = context.clone();
    Ok(Reply::Pending(Box::pin(async move {
        let reads = poll.run().await;
        let refusals = refusals(context.version, &reads).await;
        for (index, (target, read)) in poll.targets.iter().zip(&reads).enumerate() {
            let refused = refusals.get(index).is_some_and(Option::is_some);
            if let Ok(read) = read
                && !refused
            {
                context.broker.metrics.fetched(read.next.since(target.offset), read.bytes);
            }
        }
        let mut answered = assemble(&context, topics, reads, refusals, isolation);
        let session_id = context.broker.fetch_sessions.finish(session, &mut answered, Instant::now());
        let bytes = answered.iter().flat_map(|topic| &topic.partitions).flat_map(|partition| &partition.records);
        let throttle_ms = context.charge(Limit::ConsumerBytes, bytes.map(RecordCarrier::size).sum());
        encode(context.version, FetchResponse { throttle_ms, error_code: 0, session_id, topics: answered })
    })))
}

/// What an old client must not be sent, read by read; empty when there is nothing to refuse.
async fn refusals(version: i16, reads: &[TargetRead]) -> Vec<Option<ResponseError>> {
    if version >= ZSTD_SINCE {
        return Vec::new();
    }
    let chunks: Vec<Vec<Chunk>> =
        reads.iter().map(|read| read.as_ref().map(|read| read.chunks.clone()).unwrap_or_default()).collect();
    // Of sealed segments the headers are read from the file.
    let looking = tokio::task::spawn_blocking(move || chunks.iter().map(|chunks| refusal(chunks)).collect());
    match looking.await {
        Ok(refusals) => refusals,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

fn refusal(chunks: &[Chunk]) -> Option<ResponseError> {
    match codecs::holds(Compression::Zstd, chunks) {
        Ok(false) => None,
        Ok(true) => Some(ResponseError::UnsupportedCompressionType),
        Err(cause) => {
            error!(%cause, "the headers of stored batches could not be read");
            Some(ResponseError::KafkaStorageError)
        }
    }
}

/// The request's topics, with each partition either a target to read or an error.
struct Plan {
    topics: Vec<PlannedTopic>,
    targets: Vec<Target>,
    has_errors: bool,
}

struct PlannedTopic {
    name: String,
    id: uuid::Uuid,
    partitions: Vec<PlannedPartition>,
}

struct PlannedPartition {
    index: i32,
    /// `None`: the next of the targets.
    error: Option<ResponseError>,
}

impl Plan {
    fn add_topic(&mut self, context: &RequestContext, topic: &FetchTopic, options: Option<&ReadOptions>) {
        let found = find_topic(context, topic);
        let form = found.as_ref().map_err(|code| *code).and_then(|info| row_form(context, info, options));
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let target = match (&found, &form) {
                (Ok(info), Ok(form)) => target(context, info, asked, form),
                (Err(code), _) | (_, Err(code)) => Err(*code),
            };
            let error = match target {
                Ok(target) => {
                    self.targets.push(target);
                    None
                }
                Err(code) => {
                    self.has_errors = true;
                    Some(code)
                }
            };
            partitions.push(PlannedPartition { index: asked.partition, error });
        }
        self.topics.push(PlannedTopic { name: topic.topic.as_str().to_owned(), id: topic.topic_id, partitions });
    }
}

fn find_topic(context: &RequestContext, topic: &FetchTopic) -> Result<Arc<TopicInfo>, ResponseError> {
    let topics = context.broker.storage.topics();
    if context.version >= 13 {
        topics.get(TopicId::from_uuid(topic.topic_id)).cloned().ok_or(ResponseError::UnknownTopicId)
    } else {
        topics.by_name(topic.topic.as_str()).cloned().ok_or(ResponseError::UnknownTopicOrPartition)
    }
}

/// Turns the client's column names into positions of this topic's columns.
fn row_form(
    context: &RequestContext,
    topic: &TopicInfo,
    options: Option<&ReadOptions>,
) -> Result<RowForm, ResponseError> {
    let Some(options) = options else {
        return Ok(RowForm::default());
    };
    let schema = topic.columns();
    if schema.is_raw() && options.format == ReadFormat::Rows && options.columns.is_some() {
        warn!(client_id = context.client_id(), topic = %topic.name(), "weir.columns: the topic has no schema, so its rows have no columns; create it with weir.schema");
        return Err(ResponseError::InvalidRequest);
    }
    match options.resolve(&schema) {
        Ok(columns) => {
            let columns = columns.map(|mut positions| {
                positions.sort_unstable();
                Arc::from(positions)
            });
            Ok(RowForm { columns, format: options.format })
        }
        Err(error) => {
            warn!(client_id = context.client_id(), topic = %topic.name(), %error, "read options refused");
            Err(ResponseError::InvalidRequest)
        }
    }
}

fn target(
    context: &RequestContext,
    topic: &TopicInfo,
    asked: &FetchPartition,
    form: &RowForm,
) -> Result<Target, ResponseError> {
    let id = PartitionId { topic: topic.id(), index: asked.partition };
    let partition = context.broker.storage.partition(id).ok_or(ResponseError::UnknownTopicOrPartition)?;
    errors::check_leader_epoch(asked.current_leader_epoch, LEADER_EPOCH)?;
    // One epoch for ever: a later one was never written here, so the log that the client read before was another (KIP-595).
    if asked.last_fetched_epoch > LEADER_EPOCH {
        return Err(ResponseError::OffsetOutOfRange);
    }
    let offset = Offset::new(asked.fetch_offset).ok_or(ResponseError::OffsetOutOfRange)?;
    let max_bytes = usize::try_from(asked.partition_max_bytes).unwrap_or(0);
    Ok(Target { partition, offset, max_bytes, form: form.clone() })
}

fn assemble(
    context: &RequestContext,
    topics: Vec<PlannedTopic>,
    reads: Vec<TargetRead>,
    refusals: Vec<Option<ResponseError>>,
    isolation: Isolation,
) -> Vec<FetchedTopic<Records>> {
    let mut reads = reads.into_iter().zip(refusals.into_iter().chain(std::iter::repeat(None)));
    let mut answered = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for planned in topic.partitions {
            partitions.push(match planned.error {
                Some(code) => failed(planned.index, code),
                None => {
                    let (read, refused) = reads.next().expect(
                        "the poll returns one read per target, and there is a target per partition without error",
                    );
                    match refused {
                        Some(code) => failed(planned.index, code),
                        None => assemble_one(context, &topic.name, planned.index, read, isolation),
                    }
                }
            });
        }
        answered.push(FetchedTopic { name: topic.name, id: topic.id, partitions });
    }
    answered
}

fn assemble_one(
    context: &RequestContext,
    topic: &str,
    index: i32,
    read: TargetRead,
    isolation: Isolation,
) -> FetchedPartition<Records> {
    match read {
        Ok(read) => FetchedPartition {
            index,
            error_code: 0,
            high_watermark: read.offsets.high_watermark().get(),
            last_stable_offset: read.offsets.last_stable().get(),
            log_start_offset: read.offsets.log_start().get(),
            // Only a read_committed reader expects a list, empty or not (S-53).
            aborted_transactions: (isolation == Isolation::ReadCommitted)
                .then(|| read.aborted.iter().map(aborted_transaction).collect()),
            records: read.chunks.into_iter().map(Records).collect(),
        },
        Err(cause) => {
            let expected =
                matches!(cause, ReadError::OffsetOutOfRange { .. } | ReadError::Closed | ReadError::Stopping);
            if !expected {
                error!(topic, partition = index, client_id = context.client_id(), %cause, "rows could not be read");
            }
            failed(index, errors::read_error(&cause, context.version))
        }
    }
}

fn aborted_transaction(txn: &AbortedTxn) -> AbortedTransaction {
    AbortedTransaction { producer_id: txn.producer_id, first_offset: txn.first_offset.get() }
}

fn failed(index: i32, code: ResponseError) -> FetchedPartition<Records> {
    FetchedPartition {
        index,
        error_code: code.code(),
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        // Kafka's answer for what is not there has the field's default, an empty list; that of a failed read has none.
        aborted_transactions: matches!(code, ResponseError::UnknownTopicOrPartition | ResponseError::UnknownTopicId)
            .then(Vec::new),
        records: Vec::new(),
    }
}

fn refuse_options(context: &RequestContext, request: FetchRequest) -> Result<Reply, CloseConnection> {
    let topics = request.topics.into_iter().map(|topic| FetchedTopic {
        name: topic.topic.as_str().to_owned(),
        id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|asked| failed(asked.partition, ResponseError::InvalidRequest))
            .collect(),
    });
    respond(context.version, 0, topics.collect()).map(Reply::Ready)
}

/// A chunk on its way into the response.
struct Records(Chunk);

impl RecordCarrier for Records {
    fn size(&self) -> usize {
        self.0.len()
    }
}

/// An answer outside of sessions that reads nothing.
fn respond(version: i16, error_code: i16, topics: Vec<FetchedTopic<Records>>) -> Result<Response, CloseConnection> {
    encode(version, FetchResponse { throttle_ms: 0, error_code, session_id: NO_SESSION, topics })
}

fn encode(version: i16, response: FetchResponse<Records>) -> Result<Response, CloseConnection> {
    let (pieces, size) = fetch_response::encode(response, version);
    let chunks = pieces.into_iter().map(|piece| match piece {
        Piece::Fields(bytes) => Chunk::Bytes(bytes),
        Piece::Records(Records(chunk)) => chunk,
    });
    Ok(Response::from_chunks(chunks.collect(), size))
}
