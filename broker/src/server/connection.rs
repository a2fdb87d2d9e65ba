//! One connection: requests are ordered as they arrive, answers leave in the same order, and what lies between overlaps (DESIGN 4, step 1).
//!
//! One task per connection runs two halves over one socket. The reader takes a frame, checks its header, and runs the handler's first stage, which fixes the
//! request's place (an append is queued to the WAL, a fetch is resolved); it goes on to the next frame while earlier answers wait for durability. The writer
//! takes the answers in order, awaits those that are futures, and sends.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use futures::FutureExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use weir_protocol::versions::is_flexible;
use weir_protocol::{FrameError, HeaderError, Preamble, RequestHeader, frame_size, response_header};
use weir_storage::Chunk;

use super::response_queue::{Queued, ResponseQueue};
use super::send::send;
use super::{Mute, ServerLimits};
use crate::app::Broker;
use crate::handlers::{self, APIS, CloseConnection, Reply, RequestContext, Response};

/// Answers are gathered into one write up to this size.
const GATHER_BYTES: usize = 64 << 10;

/// Chunks whose queue an idle connection keeps.
const IDLE_CHUNKS: usize = 16;

/// A client that announced a frame and stops sending it holds request memory: it gets this long between two pieces.
const FRAME_STALL: Duration = Duration::from_secs(30);

/// How long answers that are owed may take once a request was refused by closing.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The same once the broker stops. Enough for a sync; a long poll is not waited for.
const STOP_WORDS: Duration = Duration::from_millis(300);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The socket failed, or the peer went away inside a frame.
    #[error("socket: {0}")]
    Io(#[from] io::Error),
    /// The frame's length is none we read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The request's header does not parse.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// An API or version that is not served: clients pinned to old versions see the connection close (S-5).
    #[error("api key {key} version {version} is not served; client '{client_id}' must use what ApiVersions lists")]
    NotServed {
        /// The API key.
        key: i16,
        /// The version.
        version: i16,
        /// Who asked, when the header could be read.
        client_id: String,
    },
    /// A handler refused by closing.
    #[error("client '{client_id}': {reason}")]
    Closed {
        /// Who asked.
        client_id: String,
        /// Why.
        reason: CloseConnection,
    },
}

/// Serves one connection until the peer leaves, an error closes it, or `stop` is cancelled.
pub async fn run(
    stream: TcpStream,
    peer: SocketAddr,
    broker: Arc<Broker>,
    limits: Arc<ServerLimits>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    let queue = ResponseQueue::new(limits.max_pending_responses, limits.max_pending_bytes);
    let mute = Arc::new(Mute::default());
    let reader = Reader { stream: &stream, peer, broker: &broker, limits: &limits, queue: &queue, mute: &mute };
    let writer = Writer { stream: &stream, broker: &broker, limits: &limits, queue: &queue };
    let mut writing = std::pin::pin!(writer.run());
    let ended = tokio::select! {
        ended = reader.run() => ended?,
        ended = &mut writing => return ended,
        () = stop.cancelled() => Ended::Stopped,
    };
    match ended {
        // The client is gone: nobody waits for the answers (S-12). What was ordered stays ordered.
        Ended::ByPeer | Ended::Idle => Ok(()),
        Ended::Refused(reason) => {
            queue.close();
            let _sent = tokio::time::timeout(LAST_WORDS, writing).await;
            Err(reason)
        }
        Ended::Stopped => {
            queue.close();
            let _sent = tokio::time::timeout(STOP_WORDS, writing).await;
            Ok(())
        }
    }
}

enum Ended {
    ByPeer,
    Idle,
    /// Closed by us: what is owed for earlier requests is still sent.
    Refused(ConnectionError),
    /// The broker stops.
    Stopped,
}

struct Reader<'a> {
    stream: &'a TcpStream,
    peer: SocketAddr,
    broker: &'a Arc<Broker>,
    limits: &'a ServerLimits,
    queue: &'a ResponseQueue,
    mute: &'a Arc<Mute>,
}

impl Reader<'_> {
    async fn run(&self) -> Result<Ended, ConnectionError> {
        loop {
            self.queue.room().await;
            self.mute.passed().await;
            let length = match self.length().await? {
                Arrival::Length(length) => length,
                Arrival::Closed => return Ok(Ended::ByPeer),
                Arrival::Idle => return Ok(Ended::Idle),
            };
            let size = match frame_size(length, self.limits.max_request_bytes) {
                Ok(size) => size,
                Err(error) => return Ok(Ended::Refused(error.into())),
            };
            let memory = self.limits.request_memory.acquire(size).await;
            let frame = self.frame(size).await?;
            self.broker.metrics.bytes_in.inc_by(u64::try_from(size + 4).expect("a frame is below 2 GiB"));
            if let Err(error) = self.request(frame).await {
                return Ok(Ended::Refused(error));
            }
            drop(memory);
        }
    }

    /// The four length bytes of the next frame.
    async fn length(&self) -> io::Result<Arrival> {
        let mut length = [0; 4];
        let mut filled = 0;
        while filled < length.len() {
            match self.stream.try_read(&mut length[filled..]) {
                Ok(0) if filled == 0 => return Ok(Arrival::Closed),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // A long poll is not idleness (S-10).
                    if !self.readable_within(self.limits.max_idle).await? && self.queue.is_idle() {
                        return Ok(Arrival::Idle);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Arrival::Length(length))
    }

    /// The frame itself, read straight into the buffer in which its record batches stay until they are sealed.
    async fn frame(&self, size: usize) -> io::Result<Bytes> {
        let mut frame = self.limits.frames.take(size);
        while frame.len() < size {
            let missing = size - frame.len();
            match self.stream.try_read_buf(&mut (&mut frame).limit(missing)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.readable_within(Some(FRAME_STALL)).await? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.limits.frames.share(frame))
    }

    async fn readable_within(&self, time: Option<Duration>) -> io::Result<bool> {
        let Some(time) = time else {
            self.stream.readable().await?;
            return Ok(true);
        };
        match tokio::time::timeout(time, self.stream.readable()).await {
            Ok(ready) => ready.map(|()| true),
            Err(_elapsed) => Ok(false),
        }
    }

    /// Runs the first stage of a request and queues its answer.
    async fn request(&self, frame: Bytes) -> Result<(), ConnectionError> {
        let received = Instant::now();
        let preamble = Preamble::parse(&frame)?;
        if !APIS.serves(preamble.key, preamble.version) {
            return self.not_served(preamble, &frame, received);
        }
        let flexible = is_flexible(preamble.key, preamble.version);
        let (header, body) = RequestHeader::parse(&frame, flexible)?;
        self.broker.metrics.request(preamble.key);
        let context = RequestContext {
            broker: Arc::clone(self.broker),
            version: preamble.version,
            client_id: header.client_id,
            peer: self.peer,
            received,
            mute: Arc::clone(self.mute),
        };
        let reply = match handlers::dispatch(&context, preamble.key, body).await {
            Ok(reply) => reply,
            Err(reason) => return Err(ConnectionError::Closed { client_id: context.client_id().to_owned(), reason }),
        };
        if !matches!(reply, Reply::None) {
            self.queue.push(Queued { preamble, flexible, reply, received });
        }
        Ok(())
    }

    /// ApiVersions of a version nobody knows is answered so that the client can try again (S-2); anything else closes the connection (S-5).
    fn not_served(&self, preamble: Preamble, frame: &Bytes, received: Instant) -> Result<(), ConnectionError> {
        if preamble.key == weir_protocol::header::API_VERSIONS {
            let reply = Reply::Ready(handlers::api_versions::unsupported_version());
            self.queue.push(Queued { preamble, flexible: false, reply, received });
            return Ok(());
        }
        let client_id = RequestHeader::parse(frame, false)
            .ok()
            .and_then(|(header, _)| header.client_id)
            .map(|client_id| client_id.to_string())
            .unwrap_or_default();
        Err(ConnectionError::NotServed { key: preamble.key, version: preamble.version, client_id })
    }
}

enum Arrival {
    Length([u8; 4]),
    Closed,
    Idle,
}

struct Writer<'a> {
    stream: &'a TcpStream,
    broker: &'a Arc<Broker>,
    limits: &'a ServerLimits,
    queue: &'a ResponseQueue,
}

impl Writer<'_> {
    async fn run(&self) -> Result<(), ConnectionError> {
        let mut chunks = VecDeque::new();
        let mut waiting = None;
        loop {
            let oldest = match waiting.take() {
                Some(queued) => queued,
                None => match self.queue.next().await {
                    Some(queued) => queued,
                    None => return Ok(()),
                },
            };
            let mut size = self.answer(oldest, &mut chunks).await?;
            while size < GATHER_BYTES {
                let Some(next) = self.queue.try_next() else { break };
                match self.answer_if_ready(next, &mut chunks)? {
                    Answered::Now(more) => size += more,
                    Answered::NotYet(queued) => {
                        waiting = Some(queued);
                        break;
                    }
                }
            }
            send(self.stream, &mut chunks, self.limits.max_idle).await?;
            if waiting.is_none() {
                self.queue.sent();
            }
            if chunks.capacity() > IDLE_CHUNKS {
                chunks = VecDeque::new();
            }
        }
    }

    /// Awaits an answer and adds it to what is sent next. Returns its size.
    async fn answer(&self, queued: Queued, chunks: &mut VecDeque<Chunk>) -> Result<usize, ConnectionError> {
        let Queued { preamble, flexible, reply, received } = queued;
        let response = match reply {
            Reply::Ready(response) => response,
            Reply::Pending(future) => future.await.map_err(refused)?,
            Reply::None => return Ok(0),
        };
        Ok(self.add(&preamble, flexible, response, received, chunks))
    }

    /// Adds an answer that needs no waiting; gives it back when it does.
    fn answer_if_ready(&self, mut queued: Queued, chunks: &mut VecDeque<Chunk>) -> Result<Answered, ConnectionError> {
        if let Reply::Pending(future) = &mut queued.reply {
            match future.now_or_never() {
                Some(response) => queued.reply = Reply::Ready(response.map_err(refused)?),
                None => return Ok(Answered::NotYet(queued)),
            }
        }
        match queued.reply {
            Reply::Ready(response) => {
                Ok(Answered::Now(self.add(&queued.preamble, queued.flexible, response, queued.received, chunks)))
            }
            Reply::Pending(_) | Reply::None => Ok(Answered::Now(0)),
        }
    }

    fn add(
        &self,
        preamble: &Preamble,
        flexible: bool,
        response: Response,
        received: Instant,
        chunks: &mut VecDeque<Chunk>,
    ) -> usize {
        let header = response_header(preamble, flexible, response.size());
        let size = header.len() + response.size();
        self.broker.metrics.responded(preamble.key, size, received.elapsed());
        chunks.push_back(Chunk::Bytes(header));
        chunks.extend(response.into_chunks());
        size
    }
}

enum Answered {
    Now(usize),
    NotYet(Queued),
}

fn refused(reason: CloseConnection) -> ConnectionError {
    ConnectionError::Closed { client_id: String::new(), reason }
}
