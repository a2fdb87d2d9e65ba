//! `weir`: the broker's binary.

use std::process::ExitCode;

use clap::Parser;
use weir_broker::app::App;
use weir_broker::cli::{Cli, Command, LOG_VARIABLE, LogCommand, ServeOptions, Settings, TableCommand, data_directory};
use weir_broker::{doctor, log_dump, table_command};

/// Takes less memory for many threads than glibc's allocator; what it does with freed memory is set in `allocator`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Usage errors exit with 2, as clap's own do.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    weir_broker::allocator::keep_freed_memory();
    match Cli::parse().command {
        Command::Serve(options) => serve(&options),
        Command::Table(command) => table(command),
        Command::Doctor { data } => {
            let directory = data_directory(data, std::env::var_os("WEIR_LOG_DIRS"));
            finish(doctor::run(&directory, &mut std::io::stdout().lock()).map_err(anyhow::Error::from))
        }
        Command::Log(LogCommand::Dump { file, records }) => {
            finish(log_dump::dump(&file, records, &mut std::io::stdout().lock()).map_err(anyhow::Error::from))
        }
    }
}

fn table(command: TableCommand) -> ExitCode {
    match table_command::run(command, &mut std::io::stdout().lock()) {
        Err(error) if error.is_usage() => {
            eprintln!("weir: {error}");
            ExitCode::from(USAGE)
        }
        result => finish(result.map_err(anyhow::Error::from)),
    }
}

fn serve(options: &ServeOptions) -> ExitCode {
    let settings = match Settings::resolve(
        options,
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    ) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("weir: {error}");
            return ExitCode::from(USAGE);
        }
    };
    start_logging();
    if options.flight.is_some() {
        tracing::warn!("Arrow Flight SQL is not built yet: --flight has no effect");
    }
    finish(run(settings))
}

fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Messages hold those of their sources already.
            eprintln!("weir: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Lets the process open as many files as the system allows: every open segment takes one, and so does every connection.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is; many partitions or connections may not fit under it");
    }
}

fn run(settings: Settings) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_name("weir").enable_all().build()?;
    let served = runtime.block_on(async {
        let signals = Signals::install()?;
        let app = App::start(settings).await?;
        println!("{}", app.ready_line());
        signals.received().await;
        app.stop().await?;
        Ok(())
    });
    // Blocking work that nobody waits for any more must not hold the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    served
}

/// SIGTERM and SIGINT, caught from before anything starts.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    }
}

/// Logs go to stderr; `WEIR_LOG` sets what is logged (`info` when unset), in the form `debug` or `weir_storage=debug,info`.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_env_var(LOG_VARIABLE)
        .with_default_directive(tracing::level_filters::LevelFilter::INFO.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}
