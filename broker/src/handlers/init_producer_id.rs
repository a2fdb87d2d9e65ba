//! InitProducerId (key 22), versions 0 to 5.
//!
//! Gives an idempotent producer its id. Ids come from blocks that storage makes durable before the first of a block is given out, so none is given twice.
//!
//! * v2 compact encodings; v3 id and epoch of a producer that recovers (KIP-360); v4 PRODUCER_FENCED; v5 no change for idempotent producers (KIP-890).
//! * Differs from Kafka: transactions are not built. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code that Java,
//!   librdkafka and franz-go all take as final; UNSUPPORTED_VERSION or a coordinator error would be retried for ever by some.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use tracing::{error, warn};

use super::{CloseConnection, Reply, RequestContext};

/// Answers a fresh producer id at epoch 0.
pub async fn handle(context: &RequestContext, request: InitProducerIdRequest) -> Result<Reply, CloseConnection> {
    let refuse = |code: ResponseError| {
        let response = InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        context.ready(&response)
    };
    if let Some(id) = &request.transactional_id {
        if id.is_empty() {
            return refuse(ResponseError::InvalidRequest);
        }
        warn!(client_id = context.client_id(), transactional_id = %id.as_str(), "transactions are not served: produce without transactional.id");
        return refuse(ResponseError::TransactionalIdAuthorizationFailed);
    }
    let storage = context.broker.storage.clone();
    // Once per thousand ids this writes to the metadata store.
    let allocated = match tokio::task::spawn_blocking(move || storage.next_producer_id()).await {
        Ok(allocated) => allocated,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    match allocated {
        // A producer that recovers (v3) gives the id it had. Without transactions nothing needs to be fenced: a new id is as good, and Kafka answers one too.
        Ok(id) => {
            context.ready(&InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(0))
        }
        Err(cause) => {
            error!(%cause, "no producer id could be allocated");
            refuse(ResponseError::KafkaStorageError)
        }
    }
}
