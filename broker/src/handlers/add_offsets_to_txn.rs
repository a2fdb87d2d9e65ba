//! AddOffsetsToTxn (key 25), versions 0 to 4.
//!
//! Adds a group's partition of `__consumer_offsets` to a producer's transaction, so that offsets can be committed in it; answered when that is durable (S-97).
//!
//! * v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588); v3 compact encodings; v4 TRANSACTION_ABORTABLE (KIP-890), which it never needs.

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::GROUP_TOPIC;
use crate::coordinator::errors::{transaction_error, transaction_error_before_fenced};
use crate::coordinator::transaction::{ClientVersion, Partitions, Producer};

/// Adds.
pub async fn handle(context: &RequestContext, request: AddOffsetsToTxnRequest) -> Result<Reply, CloseConnection> {
    let broker = &context.broker;
    let producer = Producer { id: request.producer_id.0, epoch: request.producer_epoch };
    let partitions = Partitions::one(GROUP_TOPIC, broker.groups.partition_of(request.group_id.as_str()));
    let id = request.transactional_id.as_str();
    let code = match broker.transactions.add_partitions(id, producer, partitions, ClientVersion::V0).await {
        Ok(()) => 0,
        Err(error) if context.version < 2 => transaction_error_before_fenced(error).code(),
        Err(error) => transaction_error(error).code(),
    };
    context.ready(&AddOffsetsToTxnResponse::default().with_error_code(code))
}
