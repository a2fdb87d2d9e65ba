//! The Kafka wire: frames, headers, version ranges, and the guard that stands before every decoder.
//!
//! Message structs come from the `kafka-protocol` crate. What that crate leaves open is closed here: it reserves memory for as many array elements
//! as a client claims, so [`decode_request`] walks the body against a small [schema](mod@schema) first; and it copies record data when it encodes,
//! so Fetch responses have [an encoder of their own](fetch_response).
//!
//! This crate knows nothing of storage, topics or connections.

pub mod fetch_response;
pub mod frame;
pub mod header;
pub mod offsets_by_id;
pub mod schema;
pub mod versions;
mod wire;

pub use frame::{FrameError, frame_size};
pub use header::{HeaderError, Preamble, RequestHeader, response_header};
pub use schema::{GuardError, MAX_REQUEST_ELEMENTS};
pub use versions::{ApiVersion, ApiVersionTable};

use bytes::Bytes;
use kafka_protocol::protocol::Decodable;

/// Why a request body was not decoded. The answer to all of them is to close the connection, as Kafka does.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The guard refused the body before the decoder saw it.
    #[error("request body of api key {key} version {version} refused: {source}")]
    Guard {
        /// The API key of the request.
        key: i16,
        /// The version of the request.
        version: i16,
        /// What the guard found.
        source: GuardError,
    },
    /// The decoder did not accept the body.
    #[error("request body of api key {key} version {version} does not parse: {reason}")]
    Malformed {
        /// The API key of the request.
        key: i16,
        /// The version of the request.
        version: i16,
        /// What the decoder said.
        reason: String,
    },
}

/// Decodes a request body, after the guard has proven that no array in it claims more elements than the body holds.
///
/// Byte fields of the result share `body`'s memory. Bytes after the message are ignored, as Kafka's parser does.
///
/// # Errors
/// [`DecodeError::Guard`] when a count, a length or the total of elements cannot be true; [`DecodeError::Malformed`] for everything else
/// the decoder refuses, versions outside its range included.
pub fn decode_request<T: Decodable>(key: i16, version: i16, mut body: Bytes) -> Result<T, DecodeError> {
    schema::guard(key, version, &body).map_err(|source| DecodeError::Guard { key, version, source })?;
    T::decode(&mut body, versions::layout_version(key, version)).map_err(|error| DecodeError::Malformed {
        key,
        version,
        reason: error.to_string(),
    })
}
