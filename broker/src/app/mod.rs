//! The composition root: the only place that builds the real parts and puts them together.

mod identity;
mod lake;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_model::config::BrokerConfig;
use weir_model::{Clock, SystemClock};
use weir_storage::wal::WalError;
use weir_storage::{OpenError, Storage, StorageOptions};

use crate::cli::{Settings, SettingsError};
use crate::coordinator::transaction::TransactionCoordinator;
use crate::coordinator::{CoordinatorError, GroupCoordinator};
use crate::fetch_sessions::FetchSessions;
use crate::http;
use crate::metrics::Metrics;
use crate::quotas::{QuotaOpenError, Quotas};
use crate::scram::{Scram, ScramOpenError};
use crate::server::{ServerLimits, serve};
use crate::topics::Topics;
pub use identity::Identity;
pub use lake::{Lake, LakeStartError};

/// Everything a handler can reach.
pub struct Broker {
    /// What clients are told about this broker.
    pub identity: Identity,
    /// The broker's configs.
    pub config: Arc<BrokerConfig>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Topics, partitions, the log.
    pub storage: Storage,
    /// Creating, changing and deleting topics.
    pub topics: Topics,
    /// Consumer groups.
    pub groups: GroupCoordinator,
    /// Transactional producers.
    pub transactions: TransactionCoordinator,
    /// Tiering and the catalog.
    pub lake: Arc<Lake>,
    /// Fetch sessions of consumers.
    pub fetch_sessions: FetchSessions,
    /// Client quotas.
    pub quotas: Quotas,
    /// SCRAM credentials.
    pub scram: Scram,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error("cannot listen on {address} for {what}: {source}; choose another address, or port 0 for a free one")]
    Listen {
        /// As configured.
        address: String,
        /// For what.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The data directory did not open.
    #[error("data directory {directory}: {source}")]
    Storage {
        /// Which.
        directory: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// The lake did not open.
    #[error(transparent)]
    Lake(#[from] LakeStartError),
    /// A coordinator did not start.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The client quotas did not read.
    #[error(transparent)]
    Quotas(#[from] QuotaOpenError),
    /// The SCRAM credentials did not read.
    #[error(transparent)]
    Scram(#[from] ScramOpenError),
    /// What clients should be told is no address.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// A broker that serves.
pub struct App {
    broker: Arc<Broker>,
    kafka: SocketAddr,
    http: SocketAddr,
    /// Ends the listeners.
    stop: CancellationToken,
    tasks: Vec<(&'static str, JoinHandle<()>)>,
}

/// How long the parts may take together to end once they are told to.
const STOP_TIME: Duration = Duration::from_secs(5);

impl App {
    /// Opens the data directory, binds the listeners, and serves.
    ///
    /// Listeners are bound first, so that a second broker on the same ports fails before it touches anything; connections are accepted once everything is open.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let Settings { config, data, kafka, http, service_links } = settings;
        if !service_links.is_empty() {
            info!(
                variables = service_links.join(","),
                "environment variables of Kubernetes services, not configs: ignored"
            );
        }
        let config = Arc::new(config);
        let kafka_listener = listen(&kafka, "Kafka").await?;
        let http_listener = listen(&http, "HTTP").await?;
        let kafka = local(&kafka_listener, &kafka, "Kafka")?;
        let http_address = local(&http_listener, &http, "HTTP")?;

        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = StorageOptions::new(data.clone(), Arc::clone(&config), Arc::clone(&clock));
        let storage = blocking(move || Storage::open(options)).await;
        let storage = storage.map_err(|source| StartError::Storage {
            directory: data.display().to_string(),
            source: Box::new(source),
        })?;

        let identity =
            Identity::new(storage.cluster_id().to_owned(), config.node_id, &config.advertised_listeners, kafka)?;
        let topics = Topics::new(storage.clone(), Arc::clone(&config), Arc::clone(&clock));
        let stop = CancellationToken::new();
        let lake = Arc::new(Lake::open(&storage, &config, &data, Arc::clone(&clock)).await?);
        let groups = GroupCoordinator::start(
            storage.clone(),
            Arc::clone(&config),
            Arc::clone(&clock),
            topics.clone(),
            stop.clone(),
        )
        .await?;
        let transactions = TransactionCoordinator::start(
            storage.clone(),
            Arc::clone(&config),
            Arc::clone(&clock),
            topics.clone(),
            groups.clone(),
            &stop,
        )?;
        let quotas = Quotas::open(storage.meta())?;
        let scram = Scram::open(storage.meta())?;
        let broker = Arc::new(Broker {
            identity,
            config: Arc::clone(&config),
            clock,
            storage,
            topics,
            groups,
            transactions,
            lake,
            fetch_sessions: FetchSessions::new(
                usize::try_from(config.max_incremental_fetch_session_cache_slots).unwrap_or(0),
            ),
            quotas,
            scram,
            metrics: Arc::new(Metrics::new()),
        });
        let limits = Arc::new(ServerLimits::from_config(&config));
        let tasks = vec![
            ("kafka", tokio::spawn(serve(kafka_listener, Arc::clone(&broker), limits, stop.clone()))),
            ("http", tokio::spawn(http::serve(http_listener, Arc::clone(&broker), stop.clone()))),
            ("tiering", tokio::spawn(Arc::clone(&broker.lake).keep_fresh(broker.storage.clone(), stop.clone()))),
            ("retention", tokio::spawn(retain(broker.storage.clone(), retention_interval(&config), stop.clone()))),
        ];
        info!(kafka = %kafka, http = %http_address, data = %data.display(), cluster_id = %broker.identity.cluster_id, "serving");
        Ok(Self { broker, kafka, http: http_address, stop, tasks })
    }

    /// The line that says where it serves: `weir ready kafka=HOST:PORT http=HOST:PORT flight=off`. Arrow Flight is not built.
    #[must_use]
    pub fn ready_line(&self) -> String {
        format!("weir ready kafka={} http={} flight=off", self.kafka, self.http)
    }

    /// Where Kafka clients connect.
    #[must_use]
    pub fn kafka(&self) -> SocketAddr {
        self.kafka
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The broker inside, for tests.
    #[must_use]
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Ends connections, then the parts behind them, and syncs. Seals nothing.
    ///
    /// # Errors
    /// When the WAL had failed.
    pub async fn stop(self) -> Result<(), WalError> {
        self.stop.cancel();
        let deadline = tokio::time::Instant::now() + STOP_TIME;
        for (name, mut task) in self.tasks {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(task = name, %error, "a task had ended badly"),
                Err(_elapsed) => {
                    warn!(task = name, "a task did not end in time");
                    task.abort();
                }
            }
        }
        self.broker.transactions.stop().await;
        self.broker.groups.stop().await;
        let storage = self.broker.storage.clone();
        blocking(move || storage.close()).await
    }
}

async fn listen(address: &str, what: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address: address.to_owned(), what, source })
}

fn local(listener: &TcpListener, address: &str, what: &'static str) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address: address.to_owned(), what, source })
}

/// Runs what blocks off the network threads. A panic there is a panic here.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn retention_interval(config: &BrokerConfig) -> Duration {
    Duration::from_millis(config.log_retention_check_interval_ms.unsigned_abs())
}

/// Applies retention at an interval, until told to stop.
async fn retain(storage: Storage, interval: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        let storage = storage.clone();
        blocking(move || storage.retain()).await;
    }
}
