//! Sending: shared bytes by vectored writes, file slices by `sendfile`. No record byte is copied on the way.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::Buf;
use tokio::io::Interest;
use tokio::net::TcpStream;
use weir_storage::Chunk;

/// Slices per vectored write: far below IOV_MAX, and enough that a call moves a full socket buffer.
const SLICES: usize = 64;

/// The most one `sendfile` call moves. A cold file blocks the calling thread while it is read, so the pieces are small.
const SENDFILE_BYTES: usize = 512 << 10;

/// Sends chunks in order.
///
/// # Errors
/// What the socket says; `TimedOut` when the peer takes nothing for `stall`; `UnexpectedEof` when a file is shorter than its slice says.
pub async fn send(stream: &TcpStream, chunks: &mut VecDeque<Chunk>, stall: Option<Duration>) -> io::Result<()> {
    while let Some(first) = chunks.front_mut() {
        match first {
            Chunk::Bytes(bytes) if bytes.is_empty() => {
                chunks.pop_front();
            }
            Chunk::Bytes(_) => {
                let written = write_bytes(stream, chunks, stall).await?;
                advance(chunks, written);
            }
            Chunk::File { len: 0, .. } => {
                chunks.pop_front();
            }
            Chunk::File { file, position, len } => {
                let count = (*len).min(SENDFILE_BYTES);
                let sent = send_file(stream, file, *position, count, stall).await?;
                if sent == 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "a segment file ends before its index says",
                    ));
                }
                *position += u64::try_from(sent).expect("a usize fits 64 bits");
                *len -= sent;
            }
        }
    }
    Ok(())
}

/// Writes the bytes at the front, as many chunks as one call takes.
async fn write_bytes(stream: &TcpStream, chunks: &VecDeque<Chunk>, stall: Option<Duration>) -> io::Result<usize> {
    loop {
        let attempt = {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for chunk in chunks.iter().take(SLICES) {
                let Chunk::Bytes(bytes) = chunk else { break };
                slices[count] = IoSlice::new(bytes);
                count += 1;
            }
            stream.try_write_vectored(&slices[..count])
        };
        match attempt {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => return Ok(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => within(stall, stream.writable()).await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn advance(chunks: &mut VecDeque<Chunk>, mut written: usize) {
    while written > 0 {
        let Some(Chunk::Bytes(bytes)) = chunks.front_mut() else { return };
        if bytes.len() > written {
            bytes.advance(written);
            return;
        }
        written -= bytes.len();
        chunks.pop_front();
    }
}

async fn send_file(
    stream: &TcpStream,
    file: &std::fs::File,
    position: u64,
    count: usize,
    stall: Option<Duration>,
) -> io::Result<usize> {
    within(
        stall,
        stream.async_io(Interest::WRITABLE, || {
            let mut position = libc::off_t::try_from(position).map_err(io::Error::other)?;
            nix::sys::sendfile::sendfile(stream, file, Some(&mut position), count).map_err(io::Error::from)
        }),
    )
    .await
}

/// Waits for the socket, for at most `stall`: a client that takes nothing must not hold its answer in memory for ever.
async fn within<T>(stall: Option<Duration>, wait: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match stall {
        Some(stall) => tokio::time::timeout(stall, wait).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?,
        None => wait.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::io::Write;
    use std::sync::Arc;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.expect("connected"), server.expect("accepted").0)
    }

    #[tokio::test]
    async fn bytes_and_file_slices_arrive_in_order_and_whole() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let content: Vec<u8> = (0..3_000_000u32).map(|number| u8::try_from(number % 251).expect("below 251")).collect();
        file.write_all(&content).expect("written");
        let file = Arc::new(file);
        let mut expected = b"header".to_vec();
        let mut chunks = VecDeque::from([Chunk::Bytes(Bytes::from_static(b"header"))]);
        for part in 0..200u8 {
            chunks.push_back(Chunk::Bytes(Bytes::from(vec![part; 1000])));
            expected.extend(vec![part; 1000]);
        }
        chunks.push_back(Chunk::File { file: Arc::clone(&file), position: 17, len: 2_500_000 });
        expected.extend_from_slice(&content[17..2_500_017]);
        chunks.push_back(Chunk::Bytes(Bytes::from_static(b"tail")));
        expected.extend_from_slice(b"tail");

        let (mut client, server) = pair().await;
        let sender = async {
            send(&server, &mut chunks, None).await.expect("sent");
            drop(server);
        };
        let mut received = Vec::new();
        let (read, ()) = tokio::join!(client.read_to_end(&mut received), sender);
        read.expect("received");
        assert!(received == expected, "{} bytes received, {} expected", received.len(), expected.len());
    }

    #[tokio::test]
    async fn a_file_that_ends_early_is_an_error_and_not_a_loop() {
        let file = Arc::new(tempfile::tempfile().expect("a temporary file"));
        let (_client, server) = pair().await;
        let mut chunks = VecDeque::from([Chunk::File { file, position: 0, len: 10 }]);
        let error = send(&server, &mut chunks, None).await.expect_err("there is nothing to send");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (_client, server) = pair().await;
        let mut chunks = VecDeque::from([Chunk::Bytes(Bytes::from(vec![0; 64 << 20]))]);
        let error =
            send(&server, &mut chunks, Some(Duration::from_millis(200))).await.expect_err("the peer does not read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
