//! What a handler gives back.

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use kafka_protocol::protocol::Encodable;
use weir_storage::Chunk;

/// An answer to a request.
pub enum Reply {
    /// It is here.
    Ready(Response),
    /// It comes when the future is done. The future is polled only while its request is the connection's oldest unanswered one, and dropped when the connection
    /// ends: so it waits for progress that others make, and must be safe to drop.
    Pending(BoxFuture<'static, Result<Response, CloseConnection>>),
    /// The request gets none (acks=0).
    None,
}

impl Reply {
    /// Bytes that the answer holds in memory while it waits for its turn.
    pub fn size(&self) -> usize {
        match self {
            Self::Ready(response) => response.size(),
            Self::Pending(_) | Self::None => 0,
        }
    }
}

/// The connection is to be closed, for this reason: the answer to what Kafka itself answers so (S-5, S-29).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CloseConnection(pub String);

impl From<weir_protocol::DecodeError> for CloseConnection {
    fn from(error: weir_protocol::DecodeError) -> Self {
        Self(error.to_string())
    }
}

/// An encoded response body. Its header is added by the connection.
pub struct Response {
    chunks: Vec<Chunk>,
    size: usize,
}

impl Response {
    /// Encodes a message.
    ///
    /// # Errors
    /// [`CloseConnection`] when a handler set a field that this version cannot carry: a bug of ours, which costs one connection and is logged.
    pub fn message<M: Encodable>(message: &M, version: i16) -> Result<Self, CloseConnection> {
        let refused =
            |error| CloseConnection(format!("the response could not be encoded in version {version}: {error}"));
        let mut out = BytesMut::with_capacity(message.compute_size(version).map_err(refused)?);
        message.encode(&mut out, version).map_err(refused)?;
        Ok(Self::from_bytes(out.freeze()))
    }

    /// A body that is encoded already.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self { size: bytes.len(), chunks: vec![Chunk::Bytes(bytes)] }
    }

    /// A body in pieces of `size` bytes together.
    #[must_use]
    pub fn from_chunks(chunks: Vec<Chunk>, size: usize) -> Self {
        Self { chunks, size }
    }

    /// The size of the body.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The pieces in wire order.
    #[must_use]
    pub fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}
