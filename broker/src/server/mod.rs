//! The Kafka listener: accepts connections, and ends them when the broker stops.

mod connection;
mod frame_pool;
mod memory;
mod mute;
mod response_queue;
mod send;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::app::Broker;
pub use connection::ConnectionError;
pub use frame_pool::FramePool;
pub use memory::RequestMemory;
pub use mute::Mute;

/// How long connections may take to send what is ready once the broker stops.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// How long the listener rests after an accept that failed for want of file descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What every connection shares.
#[derive(Debug)]
pub struct ServerLimits {
    /// `socket.request.max.bytes`.
    pub max_request_bytes: usize,
    /// `connections.max.idle.ms`; `None` keeps idle connections for ever.
    pub max_idle: Option<Duration>,
    /// `queued.max.request.bytes`: requests that were read and not yet ordered, over all connections.
    pub request_memory: RequestMemory,
    /// Where the buffers of large requests come from.
    pub frames: FramePool,
    /// Answers that wait on one connection behind an older one, in number.
    pub max_pending_responses: usize,
    /// The same, in bytes of encoded answers.
    pub max_pending_bytes: usize,
}

impl ServerLimits {
    /// Answers that may wait on one connection. Kafka reads one request at a time; librdkafka sends up to five batches ahead when idempotent, and any
    /// number otherwise.
    const PENDING_RESPONSES: usize = 128;
    const PENDING_BYTES: usize = 1 << 20;
    /// Memory kept for frames to come.
    const SPARE_FRAMES: usize = 64 << 20;
    /// Memory for requests where `queued.max.request.bytes` leaves it to the broker.
    const REQUEST_MEMORY: usize = 256 << 20;

    /// The limits that the configs ask for.
    #[must_use]
    pub fn from_config(config: &weir_model::config::BrokerConfig) -> Self {
        let max_request_bytes = usize::try_from(config.socket_request_max_bytes).expect("its bounds keep it positive");
        let request_memory = usize::try_from(config.queued_max_request_bytes).unwrap_or(Self::REQUEST_MEMORY);
        Self {
            max_request_bytes,
            max_idle: u64::try_from(config.connections_max_idle_ms).ok().map(Duration::from_millis),
            // The largest request must fit, or its connection would wait for ever.
            request_memory: RequestMemory::new(request_memory.max(max_request_bytes)),
            // As much as one seal sets free at once.
            frames: FramePool::new(
                usize::try_from(config.weir_seal_bytes).unwrap_or(usize::MAX).min(Self::SPARE_FRAMES),
            ),
            max_pending_responses: Self::PENDING_RESPONSES,
            max_pending_bytes: Self::PENDING_BYTES,
        }
    }
}

/// Serves connections from `listener` until `stop` is cancelled, then lets them send what is ready for at most two seconds.
///
/// Cancel safe: dropping the future closes every connection.
pub async fn serve(listener: TcpListener, broker: Arc<Broker>, limits: Arc<ServerLimits>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    let mut is_full = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Those that ended meanwhile no longer count.
                    while let Some(ended) = connections.try_join_next() {
                        report(ended);
                    }
                    // It may change while the broker runs.
                    let most = usize::try_from(broker.storage.broker_config().max_connections).unwrap_or(usize::MAX);
                    let was_full = std::mem::replace(&mut is_full, connections.len() >= most);
                    if is_full {
                        refuse(stream, peer, most, was_full);
                    } else {
                        start(&mut connections, stream, peer, &broker, &limits, &stop);
                    }
                }
                Err(error) => {
                    warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(DRAIN_TIME, async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    })
    .await;
    if drained.is_err() {
        info!(connections = connections.len(), "closing connections that did not finish in time");
        connections.shutdown().await;
    }
}

/// Closes a connection that is one too many (S-11): the newest goes, so that those at work stay. A client that comes again and again is worth one warning.
fn refuse(stream: TcpStream, peer: SocketAddr, max_connections: usize, is_known: bool) {
    drop(stream);
    if is_known {
        debug!(%peer, max_connections, "connection refused");
    } else {
        warn!(%peer, max_connections, "connection refused: max.connections are open");
    }
}

fn start(
    connections: &mut JoinSet<Ended>,
    stream: TcpStream,
    peer: SocketAddr,
    broker: &Arc<Broker>,
    limits: &Arc<ServerLimits>,
    stop: &CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%peer, %error, "TCP_NODELAY was not set");
    }
    let broker = Arc::clone(broker);
    let limits = Arc::clone(limits);
    let stop = stop.clone();
    connections.spawn(async move {
        broker.metrics.connections.inc();
        let gauge = broker.metrics.connections.clone();
        let _open = scopeguard(move || gauge.dec());
        let result = connection::run(stream, peer, broker, limits, stop).await;
        Ended { peer, result }
    });
}

/// Runs `on_drop` when it goes out of scope, panics and cancellation included.
fn scopeguard(on_drop: impl FnOnce()) -> impl Drop {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(on_drop) = self.0.take() {
                on_drop();
            }
        }
    }
    Guard(Some(on_drop))
}

struct Ended {
    peer: SocketAddr,
    result: Result<(), ConnectionError>,
}

fn report(ended: Result<Ended, tokio::task::JoinError>) {
    match ended {
        Ok(Ended { result: Ok(()), .. }) => {}
        Ok(Ended { peer, result: Err(ConnectionError::Io(error)) }) if is_ordinary(&error) => {
            debug!(%peer, %error, "connection lost");
        }
        Ok(Ended { peer, result: Err(error) }) => warn!(%peer, %error, "connection closed"),
        Err(panic) if panic.is_panic() => error!(%panic, "a request handler panicked; its connection was closed"),
        Err(_cancelled) => {}
    }
}

/// Clients come and go: these are not worth a warning.
fn is_ordinary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::TimedOut
    )
}
