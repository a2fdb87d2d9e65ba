//! Produce (key 0), versions 3 to 13; 0 to 2 are advertised and refused by closing (see `api_versions`).
//!
//! Appends one record batch per partition. Partitions are independent: one may be refused while another is appended (S-36). The batch is checked, and decoded when the
//! topic is a table, before any lock is taken; then all batches of the request are ordered; then the connection goes on, and the answer waits for durability.
//!
//! * v5 log start offset; v7 zstd (KIP-110); v8 record errors and a message (KIP-467); v9 compact encodings; v10 leader hints, which one broker never needs
//!   (KIP-951); v11 TRANSACTION_ABORTABLE (KIP-890); v12 adds its partitions to the transaction by itself (KIP-890); v13 topic ids (KIP-516).
//! * A transactional batch is appended when its partition is known to belong to the producer's open transaction: the partition knows it from the batch before,
//!   or the coordinator is asked. What ends the transaction in between voids the answer (see `Partition::append_guarded`), so no batch is ever left behind in a
//!   transaction that nobody ends.
//! * acks=0 gets no answer, and closes the connection when something was refused (S-29). acks=1 is answered when the batch is durable, as acks=all is: there is no
//!   moment in between at which it could be lost with less than the whole broker.
//! * Differs from Kafka: a broker that stops answers nothing rather than NOT_LEADER_OR_FOLLOWER.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;
use tracing::{debug, error};
use weir_model::{PartitionId, TopicId};
use weir_storage::wal::WalSeq;
use weir_storage::{Partition, TopicInfo, TxnGuard};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::verification_error;
use crate::coordinator::transaction::{Producer, TransactionError};
use crate::errors;
use crate::quotas::Limit;
use crate::tables::{self, CheckedBatch};

/// From this size on a partition's batch is checked and decoded on the blocking pool: it would hold a network thread for more than about a millisecond.
const INLINE_BYTES: usize = 1 << 20;

/// The first version that knows TRANSACTION_ABORTABLE.
const ABORTABLE_SINCE: i16 = 11;

/// The first version that adds its partitions to the transaction.
const ADDS_SINCE: i16 = 12;

/// The client id that Kafka lets write to internal topics (S-35).
const ADMIN_CLIENT: &str = "__admin_client";

/// Checks, orders, and answers when durable.
pub async fn handle(context: &RequestContext, request: ProduceRequest) -> Result<Reply, CloseConnection> {
    let acks = request.acks;
    if !matches!(acks, -1..=1) {
        return answer(
            context,
            acks,
            respond(refuse_all(&request, ResponseError::InvalidRequiredAcks, "acks must be -1, 0 or 1")),
            None,
        );
    }
    let transactional_id = request.transactional_id.clone();
    let bytes = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let bytes = bytes.map(|partition| partition.records.as_ref().map_or(0, Bytes::len)).sum();
    let mut outcomes = check_all(context, request.topic_data).await;
    verify_all(context, transactional_id.as_ref().map(|id| id.as_str()), &mut outcomes).await;
    let last = order_all(context, &mut outcomes).await;
    let throttle_ms = context.charge(Limit::ProducerBytes, bytes);
    answer(context, acks, respond(outcomes).with_throttle_time_ms(throttle_ms), last)
}

/// What became of one topic's partitions, in request order.
struct TopicOutcome {
    name: kafka_protocol::messages::TopicName,
    id: uuid::Uuid,
    partitions: Vec<PartitionOutcome>,
}

struct PartitionOutcome {
    index: i32,
    state: State,
}

enum State {
    /// Checked, not ordered yet.
    Checked { partition: Partition, batch: CheckedBatch, bytes: usize, guard: Option<TxnGuard> },
    /// Ordered, or refused.
    Done(PartitionProduceResponse),
}

async fn check_all(context: &RequestContext, topics: Vec<TopicProduceData>) -> Vec<TopicOutcome> {
    let mut outcomes = Vec::with_capacity(topics.len());
    for topic in topics {
        let found = find_topic(context, &topic);
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let index = data.index;
            let state = match &found {
                Ok(info) => check_one(context, info, data).await,
                Err((code, message)) => State::Done(refused(index, *code, message)),
            };
            partitions.push(PartitionOutcome { index, state });
        }
        outcomes.push(TopicOutcome { name: topic.name, id: topic.topic_id, partitions });
    }
    outcomes
}

fn find_topic(context: &RequestContext, topic: &TopicProduceData) -> Result<Arc<TopicInfo>, (ResponseError, String)> {
    let topics = context.broker.storage.topics();
    let found = if context.version >= 13 {
        let id = TopicId::from_uuid(topic.topic_id);
        topics.get(id).ok_or_else(|| (ResponseError::UnknownTopicId, format!("there is no topic with id {id}")))
    } else {
        let name = topic.name.as_str();
        topics
            .by_name(name)
            .ok_or_else(|| (ResponseError::UnknownTopicOrPartition, format!("there is no topic '{name}'")))
    }?;
    if found.record.internal && context.client_id() != ADMIN_CLIENT {
        return Err((
            ResponseError::InvalidTopicException,
            format!("topic '{}' is written by the broker alone", found.name()),
        ));
    }
    Ok(Arc::clone(found))
}

async fn check_one(context: &RequestContext, topic: &Arc<TopicInfo>, data: PartitionProduceData) -> State {
    let index = data.index;
    let Some(partition) = context.broker.storage.partition(PartitionId { topic: topic.id(), index }) else {
        let message =
            format!("topic '{}' has {} partitions, there is no partition {index}", topic.name(), topic.partitions());
        return State::Done(refused(index, ResponseError::UnknownTopicOrPartition, &message));
    };
    let records = data.records.unwrap_or_default();
    let bytes = records.len();
    match check_records(context, topic, records).await {
        Ok(batch) => State::Checked { partition, batch, bytes, guard: None },
        Err(refusal) => {
            debug!(topic = %topic.name(), partition = index, client_id = context.client_id(), %refusal, "batch refused");
            context.broker.metrics.rows_refused.inc();
            let errors = refusal.bad_records().iter().map(|record| {
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(i32::try_from(record.index).unwrap_or(i32::MAX))
                    .with_batch_index_error_message(Some(StrBytes::from_string(record.message.clone())))
            });
            let response = refused(index, errors::refusal(&refusal), &refusal.to_string());
            State::Done(response.with_record_errors(errors.collect()))
        }
    }
}

async fn check_records(
    context: &RequestContext,
    topic: &Arc<TopicInfo>,
    records: Bytes,
) -> Result<CheckedBatch, tables::Refusal> {
    let (version, now_ms) = (context.version, context.broker.clock.now_ms());
    if records.len() < INLINE_BYTES {
        return tables::check(records, topic, version, now_ms);
    }
    let topic = Arc::clone(topic);
    let checking = tokio::task::spawn_blocking(move || tables::check(records, &topic, version, now_ms));
    match checking.await {
        Ok(checked) => checked,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// A transactional batch that the coordinator has to be asked about.
struct Unverified<'a> {
    producer: Producer,
    topic: Arc<str>,
    outcome: &'a mut PartitionOutcome,
}

/// Makes sure that each transactional batch belongs to its producer's open transaction, as far as the partition does not know it (S-43, S-44).
async fn verify_all(context: &RequestContext, id: Option<&str>, outcomes: &mut [TopicOutcome]) {
    let mut unverified: Vec<Unverified<'_>> = Vec::new();
    for topic in outcomes {
        for outcome in &mut topic.partitions {
            let State::Checked { partition, batch, guard, .. } = &mut outcome.state else { continue };
            let header = batch.batch.header();
            if !header.attributes.is_transactional() {
                continue;
            }
            let producer = Producer { id: header.producer_id, epoch: header.producer_epoch };
            // Taken before anything is looked up.
            let taken = partition.txn_guard(producer.id);
            *guard = Some(if context.version >= ADDS_SINCE { taken.from_zero() } else { taken });
            let refusal = match partition.transaction_of(producer.id) {
                _ if id.is_none() => Some((
                    ResponseError::TransactionalIdAuthorizationFailed,
                    "a transactional batch comes without a transactional id".to_owned(),
                )),
                // Known before the coordinator is asked: it would call the producer fenced, which ends it for good (KAFKA-19690).
                Some(open) if producer.epoch < open.producer_epoch => Some((
                    ResponseError::InvalidProducerEpoch,
                    format!("epoch {} of producer {} has taken over", open.producer_epoch, producer.id),
                )),
                Some(open) if producer.epoch == open.producer_epoch => continue,
                Some(_) | None => None,
            };
            match refusal {
                Some((code, message)) => outcome.state = State::Done(refused(outcome.index, code, &message)),
                None => {
                    let topic = Arc::from(partition.topic().name().as_str());
                    unverified.push(Unverified { producer, topic, outcome });
                }
            }
        }
    }
    // One request is one producer's; what else a client may send costs it a round each.
    while let Some(first) = unverified.first().map(|batch| batch.producer) {
        let (of_first, others): (Vec<_>, Vec<_>) = unverified.into_iter().partition(|batch| batch.producer == first);
        verify_batches(context, id.unwrap_or_default(), first, of_first).await;
        unverified = others;
    }
}

async fn verify_batches(context: &RequestContext, id: &str, producer: Producer, batches: Vec<Unverified<'_>>) {
    let transactions = &context.broker.transactions;
    let partitions = batches.iter().map(|batch| (batch.topic.clone(), batch.outcome.index));
    let adds = context.version >= ADDS_SINCE;
    let verified: Vec<Result<(), TransactionError>> = if adds {
        let added = transactions.add_by_writing(id, producer, partitions.collect()).await;
        vec![added; batches.len()]
    } else {
        let partitions: Vec<_> = partitions.collect();
        transactions.verify(id, producer, &partitions).unwrap_or_else(|error| vec![Err(error); batches.len()])
    };
    for (batch, verified) in batches.into_iter().zip(verified) {
        if let Err(error) = verified {
            let code = verification_error(error, context.version >= ABORTABLE_SINCE, adds);
            debug!(client_id = context.client_id(), transactional_id = id, %error, "a transactional batch was refused");
            batch.outcome.state = State::Done(refused(batch.outcome.index, code, &error.to_string()));
        }
    }
}

/// Reserves room in the WAL for the whole request, then gives every checked batch its place. Returns the newest WAL entry to wait for.
async fn order_all(context: &RequestContext, outcomes: &mut [TopicOutcome]) -> Option<WalSeq> {
    let checked = outcomes.iter().flat_map(|topic| &topic.partitions).filter_map(|partition| match &partition.state {
        State::Checked { bytes, .. } => Some(*bytes),
        State::Done(_) => None,
    });
    let sizes: Vec<usize> = checked.collect();
    if sizes.is_empty() {
        return None;
    }
    let request_size = sizes.iter().sum();
    let admission = context.broker.storage.admit(sizes).await;
    let mut admission = match admission {
        Ok(admission) => admission,
        Err(cause) => {
            for partition in outcomes.iter_mut().flat_map(|topic| &mut topic.partitions) {
                if matches!(partition.state, State::Checked { .. }) {
                    partition.state =
                        State::Done(refused(partition.index, ResponseError::KafkaStorageError, &cause.to_string()));
                }
            }
            return None;
        }
    };
    let mut last = None;
    for partition in outcomes.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let placeholder = State::Done(PartitionProduceResponse::default());
        partition.state = match std::mem::replace(&mut partition.state, placeholder) {
            State::Done(response) => State::Done(response),
            State::Checked { partition: target, batch, bytes: size, guard } => {
                let rows = u64::from(batch.batch.header().record_count.unsigned_abs());
                match target.append_guarded(
                    &mut admission,
                    batch.batch,
                    batch.columns,
                    request_size,
                    context.broker.clock.now_ms(),
                    guard.as_ref(),
                ) {
                    Ok(appended) => {
                        context.broker.metrics.produced(rows, size);
                        last = last.max(appended.seq);
                        State::Done(
                            PartitionProduceResponse::default()
                                .with_index(partition.index)
                                .with_base_offset(appended.base_offset.get())
                                .with_log_append_time_ms(appended.log_append_time_ms.unwrap_or(-1))
                                .with_log_start_offset(appended.log_start.get()),
                        )
                    }
                    Err(cause) => {
                        State::Done(refused(partition.index, errors::append_error(&cause), &cause.to_string()))
                    }
                }
            }
        };
    }
    last
}

fn answer(
    context: &RequestContext,
    acks: i16,
    response: ProduceResponse,
    last: Option<WalSeq>,
) -> Result<Reply, CloseConnection> {
    if acks == 0 {
        let failed = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .find(|partition| partition.error_code != 0);
        return match failed {
            None => Ok(Reply::None),
            // The only way to tell the client that it should look again.
            Some(partition) => {
                let reason = partition.error_message.as_deref().unwrap_or("unknown").to_owned();
                Err(CloseConnection(format!(
                    "a batch with acks=0 was refused, error code {}: {reason}",
                    partition.error_code
                )))
            }
        };
    }
    let Some(last) = last else {
        return context.ready(&response);
    };
    let broker = Arc::clone(&context.broker);
    Ok(context.pending(async move {
        match broker.storage.durable(last).await {
            Ok(()) => Ok(response),
            Err(cause) => {
                error!(%cause, "a batch was ordered and could not be made durable");
                Ok(not_durable(response))
            }
        }
    }))
}

fn respond(outcomes: Vec<TopicOutcome>) -> ProduceResponse {
    let topics = outcomes.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| match partition.state {
            State::Done(response) => response,
            State::Checked { .. } => {
                refused(partition.index, ResponseError::UnknownServerError, "the batch was not ordered")
            }
        });
        TopicProduceResponse::default()
            .with_name(topic.name)
            .with_topic_id(topic.id)
            .with_partition_responses(partitions.collect())
    });
    ProduceResponse::default().with_responses(topics.collect())
}

/// LOG-2: what may not be durable is not acknowledged.
fn not_durable(mut response: ProduceResponse) -> ProduceResponse {
    for partition in response.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
        if partition.error_code == 0 {
            *partition =
                refused(partition.index, ResponseError::KafkaStorageError, "the batch could not be made durable");
        }
    }
    response
}

fn refused(index: i32, code: ResponseError, message: &str) -> PartitionProduceResponse {
    PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(code.code())
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1)
        .with_error_message(Some(StrBytes::from_string(message.to_owned())))
}

fn refuse_all(request: &ProduceRequest, code: ResponseError, message: &str) -> Vec<TopicOutcome> {
    request
        .topic_data
        .iter()
        .map(|topic| TopicOutcome {
            name: topic.name.clone(),
            id: topic.topic_id,
            partitions: topic
                .partition_data
                .iter()
                .map(|partition| PartitionOutcome {
                    index: partition.index,
                    state: State::Done(refused(partition.index, code, message)),
                })
                .collect(),
        })
        .collect()
}
