//! InitProducerId (key 22), versions 0 to 5.
//!
//! Gives a producer its id and epoch. Without a transactional id the id is fresh and the epoch 0; ids come from blocks that storage makes durable before the
//! first of a block is given out, so none is given twice. With one, the id stays and the epoch goes up, which fences every earlier instance; a transaction that
//! one of them left open is aborted first, and the client asked to try again with CONCURRENT_TRANSACTIONS (S-94).
//!
//! * v2 compact encodings; v3 id and epoch of a producer that recovers (KIP-360); v4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588); v5
//!   TRANSACTION_ABORTABLE (KIP-890), which it never needs.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use tracing::{debug, error};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::{transaction_error, transaction_error_before_fenced};
use crate::coordinator::transaction::Producer;

/// Answers the producer.
pub async fn handle(context: &RequestContext, request: InitProducerIdRequest) -> Result<Reply, CloseConnection> {
    let refuse = |code: ResponseError| {
        let response = InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        context.ready(&response)
    };
    let expected = match (request.producer_id.0, request.producer_epoch) {
        (-1, -1) => None,
        (id, epoch) if id >= 0 && epoch >= 0 => Some(Producer { id, epoch }),
        // Kafka: both or neither.
        _ => return refuse(ResponseError::InvalidRequest),
    };
    if let Some(id) = &request.transactional_id {
        let transactions = &context.broker.transactions;
        return match transactions.init(id.as_str(), request.transaction_timeout_ms, expected).await {
            Ok(producer) => context.ready(
                &InitProducerIdResponse::default()
                    .with_producer_id(ProducerId(producer.id))
                    .with_producer_epoch(producer.epoch),
            ),
            Err(error) => {
                debug!(client_id = context.client_id(), transactional_id = id.as_str(), %error, "a producer was not initialized");
                refuse(if context.version < 4 {
                    transaction_error_before_fenced(error)
                } else {
                    transaction_error(error)
                })
            }
        };
    }
    let storage = context.broker.storage.clone();
    // Once per thousand ids this writes to the metadata store.
    let allocated = match tokio::task::spawn_blocking(move || storage.next_producer_id()).await {
        Ok(allocated) => allocated,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    match allocated {
        // A producer that recovers (v3) gives the id it had. Without a transactional id nothing needs to be fenced: Kafka answers a new one too.
        Ok(id) => {
            context.ready(&InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(0))
        }
        Err(cause) => {
            error!(%cause, "no producer id could be allocated");
            refuse(ResponseError::KafkaStorageError)
        }
    }
}
