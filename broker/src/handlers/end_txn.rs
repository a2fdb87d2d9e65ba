//! EndTxn (key 26), versions 0 to 5.
//!
//! Commits or aborts a producer's transaction. Answered when the decision is durable; the markers are written after that, and a producer that begins the next
//! transaction meanwhile is told CONCURRENT_TRANSACTIONS, which it tries again (S-96). It is enough by itself to end what an earlier process of the producer
//! left open (S-98).
//!
//! * v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588); v3 compact encodings; v4 TRANSACTION_ABORTABLE; v5 the second version of transactions:
//!   every transaction ends its epoch, and the answer brings the producer's next id and epoch (KIP-890).

use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse, ProducerId};
use weir_model::producer::TxnOutcome;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::{transaction_error, transaction_error_before_fenced};
use crate::coordinator::transaction::{ClientVersion, Producer};

/// Ends.
pub async fn handle(context: &RequestContext, request: EndTxnRequest) -> Result<Reply, CloseConnection> {
    let producer = Producer { id: request.producer_id.0, epoch: request.producer_epoch };
    let outcome = if request.committed { TxnOutcome::Commit } else { TxnOutcome::Abort };
    let version = if context.version >= 5 { ClientVersion::V2 } else { ClientVersion::V0 };
    let id = request.transactional_id.as_str();
    let ended = context.broker.transactions.end(id, producer, outcome, version).await;
    let response = match ended {
        Ok(next) if context.version >= 5 => {
            EndTxnResponse::default().with_producer_id(ProducerId(next.id)).with_producer_epoch(next.epoch)
        }
        Ok(_) => EndTxnResponse::default(),
        Err(error) if context.version < 2 => {
            EndTxnResponse::default().with_error_code(transaction_error_before_fenced(error).code())
        }
        Err(error) => EndTxnResponse::default().with_error_code(transaction_error(error).code()),
    };
    context.ready(&response)
}
