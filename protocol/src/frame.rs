//! A frame is an int32 length and that many bytes.

/// The smallest request: API key, version, correlation id.
pub const SMALLEST_REQUEST: usize = 8;

/// A length that no frame of ours may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Larger than `socket.request.max.bytes`; often a client that speaks another protocol (TLS, HTTP) to this port.
    #[error("frame of {size} bytes is larger than socket.request.max.bytes = {limit}")]
    TooLarge {
        /// The size that the client announced.
        size: usize,
        /// The configured limit.
        limit: usize,
    },
    /// Negative, or too short for a request header.
    #[error("frame length {length} is not that of a request")]
    NotARequest {
        /// The length that the client announced.
        length: i32,
    },
}

/// The size of the frame that follows its four length bytes, checked before anything is allocated for it.
///
/// # Errors
/// See [`FrameError`]; Kafka closes the connection for each.
pub fn frame_size(length: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    let length = i32::from_be_bytes(length);
    let size = usize::try_from(length).map_err(|_| FrameError::NotARequest { length })?;
    if size > limit {
        return Err(FrameError::TooLarge { size, limit });
    }
    if size < SMALLEST_REQUEST {
        return Err(FrameError::NotARequest { length });
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_over_the_limit_is_refused_by_its_length_alone() {
        assert_eq!(frame_size(1001i32.to_be_bytes(), 1000), Err(FrameError::TooLarge { size: 1001, limit: 1000 }));
        assert_eq!(frame_size(1000i32.to_be_bytes(), 1000), Ok(1000));
    }

    #[test]
    fn negative_and_tiny_lengths_are_refused() {
        assert_eq!(frame_size((-1i32).to_be_bytes(), 1000), Err(FrameError::NotARequest { length: -1 }));
        assert_eq!(frame_size(7i32.to_be_bytes(), 1000), Err(FrameError::NotARequest { length: 7 }));
    }
}
