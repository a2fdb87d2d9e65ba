//! What a handler knows of its request besides the body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::{Encodable, StrBytes};
use weir_model::PartitionId;
use weir_storage::Partition;

use super::{CloseConnection, Reply, Response};
use crate::app::Broker;
use crate::quotas::Limit;
use crate::server::Mute;

/// A request's surroundings.
#[derive(Clone)]
pub struct RequestContext {
    /// The broker.
    pub broker: Arc<Broker>,
    /// The version of the request, one that the table in `handlers` lists.
    pub version: i16,
    /// As the client sent it; null and empty are both legal (S-9).
    pub client_id: Option<StrBytes>,
    /// Where the client is.
    pub peer: SocketAddr,
    /// When the request had been read. Time limits in a request count from here.
    pub received: Instant,
    /// Holds the connection back.
    pub mute: Arc<Mute>,
}

impl RequestContext {
    /// The client id, empty when there is none.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.client_id.as_deref().unwrap_or_default()
    }

    /// Counts bytes toward the client's quota; a client over its rate is held back. Returns the milliseconds to tell it (`throttle_time_ms`).
    #[must_use]
    pub fn charge(&self, limit: Limit, bytes: usize) -> i32 {
        let now = Instant::now();
        let throttle = self.broker.quotas.charge(limit, self.client_id(), bytes, now);
        if throttle.is_zero() {
            return 0;
        }
        self.mute.extend(now + throttle);
        i32::try_from(throttle.as_millis()).unwrap_or(i32::MAX)
    }

    /// A partition, by its topic's name.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn partition(&self, topic: &str, index: i32) -> Result<Partition, ResponseError> {
        let storage = &self.broker.storage;
        let topic = storage.topics().by_name(topic).map(|topic| topic.id());
        topic
            .and_then(|topic| storage.partition(PartitionId { topic, index }))
            .ok_or(ResponseError::UnknownTopicOrPartition)
    }

    /// Encodes a response that is complete.
    ///
    /// # Errors
    /// As [`Response::message`].
    pub fn ready<M: Encodable>(&self, message: &M) -> Result<Reply, CloseConnection> {
        Response::message(message, self.version).map(Reply::Ready)
    }

    /// A response that comes later: encoded when `future` is done.
    pub fn pending<M: Encodable>(
        &self,
        future: impl Future<Output = Result<M, CloseConnection>> + Send + 'static,
    ) -> Reply {
        let version = self.version;
        Reply::Pending(future.map(move |message| Response::message(&message?, version)).boxed())
    }
}
