//! The command line: options, and the configs from file, environment and `--set` brought together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use weir_model::config::{BROKER_CONFIGS, BrokerConfig, ConfigError};

/// Weir: a Kafka-compatible broker whose topics are tables.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands that are built.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker until SIGTERM or SIGINT.
    Serve(ServeOptions),
    /// Make, list, describe, alter and drop tables of a running broker.
    #[command(subcommand)]
    Table(TableCommand),
    /// Look into log files.
    #[command(subcommand)]
    Log(LogCommand),
    /// Check a data directory that no broker uses, changing nothing: exit 0 when all is well, 1 when something is damaged.
    Doctor {
        /// The data directory [default: WEIR_LOG_DIRS, else ./weir-data].
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

/// Subcommands of `weir table`.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Make a table.
    Create {
        /// Its name.
        name: String,
        /// Its columns in SQL, as in "id BIGINT NOT NULL, item STRING, amount DECIMAL(10,2), at TIMESTAMP".
        #[arg(long, value_name = "SQL")]
        schema: String,
        /// How many partitions; the broker's `num.partitions` when not given.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// Set a topic config. Can be given many times.
        #[arg(long = "config", value_name = "NAME=VALUE", value_parser = config_pair)]
        configs: Vec<(String, String)>,
        /// Which broker.
        #[command(flatten)]
        broker: BrokerOptions,
    },
    /// List all tables and topics, but for the broker's own.
    List {
        /// Which broker.
        #[command(flatten)]
        broker: BrokerOptions,
    },
    /// Show a table's columns, partitions, and the configs that are set on it.
    Describe {
        /// Its name.
        name: String,
        /// Which broker.
        #[command(flatten)]
        broker: BrokerOptions,
    },
    /// Change configs of a table. They take effect at once.
    Alter {
        /// Its name.
        name: String,
        /// Set a topic config. Can be given many times.
        #[arg(long = "config", value_name = "NAME=VALUE", required = true, value_parser = config_pair)]
        configs: Vec<(String, String)>,
        /// Which broker.
        #[command(flatten)]
        broker: BrokerOptions,
    },
    /// Drop a table with all its rows. What is in the lake stays there.
    Drop {
        /// Its name.
        name: String,
        /// Which broker.
        #[command(flatten)]
        broker: BrokerOptions,
    },
}

/// Options of everything that asks a running broker.
#[derive(Debug, Args)]
pub struct BrokerOptions {
    /// Where the broker listens for Kafka clients.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092", value_parser = broker_address)]
    pub kafka: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Subcommands of `weir log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print the batches of a .log segment, one line each, and check their CRCs.
    Dump {
        /// The segment file.
        file: PathBuf,
        /// Print the records too.
        #[arg(long)]
        records: bool,
    },
}

/// Options of `weir serve`. Where the same config is set twice, the later of these wins: its default, the file, the environment, `--set`, the option of its own.
#[derive(Debug, Args, Default)]
pub struct ServeOptions {
    /// Read configs from this file: TOML when it ends in .toml, else NAME=VALUE lines as in Kafka's server.properties.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep everything in this directory (config `log.dirs`) [default: ./weir-data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Listen here for Kafka clients (config `listeners`) [default: 127.0.0.1:9092]. Port 0 picks a free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub kafka: Option<String>,
    /// Listen here for HTTP: health, metrics, tables, Iceberg catalog. Port 0 picks a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub http: String,
    /// Arrow Flight SQL is not built yet: nothing listens here, and the ready line says flight=off.
    #[arg(long, value_name = "HOST:PORT")]
    pub flight: Option<String>,
    /// Set a broker config. Can be given many times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// What a broker is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Every broker config, checked.
    pub config: BrokerConfig,
    /// The data directory.
    pub data: PathBuf,
    /// Where Kafka clients connect.
    pub kafka: String,
    /// Where HTTP is served.
    pub http: String,
    /// Environment variables that look like configs and are Kubernetes's: not used, for the log to say so.
    pub service_links: Vec<String>,
}

/// Why the options do not add up. Every message says what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The config file cannot be read.
    #[error("cannot read config file {path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The config file is not TOML.
    #[error("config file {path} is not TOML: {reason}")]
    Toml {
        /// Which file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// A TOML value that no config can have.
    #[error("config `{name}` in {path} is a {kind}: write a string, number or boolean")]
    TomlValue {
        /// Which file.
        path: PathBuf,
        /// The config.
        name: String,
        /// What it is.
        kind: &'static str,
    },
    /// A line of a properties file, or an argument of `--set`, without `=`.
    #[error("`{text}` in {place} has no `=`: write NAME=VALUE")]
    NoEquals {
        /// The text.
        text: String,
        /// Where it stands.
        place: String,
    },
    /// An environment variable that looks like ours and is not.
    #[error("unknown environment variable {name}{}", nearest.as_ref().map(|nearest| format!(": did you mean {nearest}?")).unwrap_or_default())]
    Environment {
        /// The variable.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// An address that is none.
    #[error("`{address}` for {place} is not an address: write HOST:PORT, as in 127.0.0.1:9092")]
    Address {
        /// As given.
        address: String,
        /// Which one.
        place: &'static str,
    },
    /// A listener with a protocol that is not served.
    #[error("listener `{listener}` is not served: write PLAINTEXT://HOST:PORT")]
    Listener {
        /// As given.
        listener: String,
    },
    /// A config that is unknown or wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The environment variable that sets the log filter. It is no config.
pub const LOG_VARIABLE: &str = "WEIR_LOG";

impl Settings {
    /// Brings options, environment and file together.
    ///
    /// # Errors
    /// [`SettingsError`]: the first thing that is unknown or wrong, in the order file, environment, `--set`, options.
    pub fn resolve(
        options: &ServeOptions,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut given = BTreeMap::new();
        if let Some(path) = &options.config {
            given.extend(read_file(path)?);
        }
        let environment = from_environment(environment)?;
        given.extend(environment.configs);
        for text in &options.set {
            let (name, value) = pair(text, || "--set".to_owned())?;
            given.insert(name, value);
        }
        if let Some(data) = &options.data {
            given.insert("log.dirs".to_owned(), data.to_string_lossy().into_owned());
        }
        if let Some(kafka) = &options.kafka {
            given.insert("listeners".to_owned(), format!("PLAINTEXT://{}", checked_address(kafka, "--kafka")?));
        }
        let config = BrokerConfig::resolve(&given)?;
        let kafka = listener_address(&config.listeners)?;
        if !config.advertised_listeners.is_empty() {
            listener_address(&config.advertised_listeners)?;
        }
        let http = checked_address(&options.http, "--http")?;
        Ok(Self {
            data: PathBuf::from(&config.log_dirs),
            kafka,
            http,
            config,
            service_links: environment.service_links,
        })
    }
}

/// The HOST:PORT of `PLAINTEXT://HOST:PORT`, the one kind of listener that is served.
///
/// # Errors
/// [`SettingsError::Listener`] and [`SettingsError::Address`].
pub fn listener_address(listener: &str) -> Result<String, SettingsError> {
    let address = listener
        .trim()
        .strip_prefix("PLAINTEXT://")
        .ok_or_else(|| SettingsError::Listener { listener: listener.to_owned() })?;
    checked_address(address, "listeners")
}

/// Host and port of an address that was checked. IPv6 hosts lose their brackets.
///
/// # Errors
/// [`SettingsError::Address`].
pub fn split_address(address: &str, place: &'static str) -> Result<(String, u16), SettingsError> {
    let refused = || SettingsError::Address { address: address.to_owned(), place };
    let (host, port) = address.rsplit_once(':').ok_or_else(refused)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(host) => host,
        None if host.contains(':') => return Err(refused()),
        None => host,
    };
    if host.is_empty() || host.contains(char::is_whitespace) || host.contains('/') {
        return Err(refused());
    }
    let port = port.parse().map_err(|_| refused())?;
    Ok((host.to_owned(), port))
}

/// The data directory of a command that starts no broker: the option, else the environment, else the default.
pub fn data_directory(option: Option<PathBuf>, environment: Option<std::ffi::OsString>) -> PathBuf {
    option.or(environment.map(PathBuf::from)).unwrap_or_else(|| PathBuf::from(BrokerConfig::default().log_dirs))
}

fn config_pair(text: &str) -> Result<(String, String), SettingsError> {
    pair(text, || "--config".to_owned())
}

fn broker_address(text: &str) -> Result<String, SettingsError> {
    checked_address(text, "--kafka")
}

fn checked_address(address: &str, place: &'static str) -> Result<String, SettingsError> {
    split_address(address, place).map(|_| address.to_owned())
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::File { path: path.to_owned(), source })?;
    if path.extension().is_some_and(|extension| extension == "toml") {
        from_toml(path, &text)
    } else {
        from_properties(path, &text)
    }
}

/// Tables are names with dots: `[weir.wal]` and `sync = "group"` set `weir.wal.sync`, as `"weir.wal.sync" = "group"` does.
fn from_toml(path: &Path, text: &str) -> Result<BTreeMap<String, String>, SettingsError> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| SettingsError::Toml { path: path.to_owned(), reason: error.to_string() })?;
    let mut given = BTreeMap::new();
    flatten(path, "", table, &mut given)?;
    Ok(given)
}

fn flatten(
    path: &Path,
    prefix: &str,
    table: toml::Table,
    given: &mut BTreeMap<String, String>,
) -> Result<(), SettingsError> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            toml::Value::Table(inner) => {
                flatten(path, &name, inner, given)?;
                continue;
            }
            toml::Value::Array(_) => {
                return Err(SettingsError::TomlValue { path: path.to_owned(), name, kind: "list" });
            }
            toml::Value::Datetime(_) => {
                return Err(SettingsError::TomlValue { path: path.to_owned(), name, kind: "date" });
            }
        };
        given.insert(name, text);
    }
    Ok(())
}

fn from_properties(path: &Path, text: &str) -> Result<BTreeMap<String, String>, SettingsError> {
    let mut given = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let (name, value) = pair(line, || format!("{} line {}", path.display(), number + 1))?;
        given.insert(name, value);
    }
    Ok(given)
}

fn pair(text: &str, place: impl FnOnce() -> String) -> Result<(String, String), SettingsError> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| SettingsError::NoEquals { text: text.to_owned(), place: place() })?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// What the environment says.
struct Environment {
    configs: BTreeMap<String, String>,
    service_links: Vec<String>,
}

/// `WEIR_NODE_ID` sets `node.id`, `WEIR_WAL_SYNC` sets `weir.wal.sync`.
fn from_environment(variables: impl Iterator<Item = (String, String)>) -> Result<Environment, SettingsError> {
    let mut environment = Environment { configs: BTreeMap::new(), service_links: Vec::new() };
    for (name, value) in variables {
        if !name.starts_with("WEIR_") || name == LOG_VARIABLE {
            continue;
        }
        let Some(def) = BROKER_CONFIGS.iter().find(|def| BrokerConfig::environment_name(def) == name) else {
            if is_service_link(&name, &value) {
                environment.service_links.push(name);
                continue;
            }
            return Err(SettingsError::Environment { nearest: nearest_variable(&name), name });
        };
        environment.configs.insert(def.name.to_owned(), value);
    }
    Ok(environment)
}

/// Whether Kubernetes made this variable: for a service named `weir`, or `weir-...`, it gives every container of the namespace `WEIR_SERVICE_HOST`,
/// `WEIR_SERVICE_PORT`, `WEIR_SERVICE_PORT_<NAME>`, `WEIR_PORT`, and `WEIR_PORT_<NUMBER>_<PROTOCOL>` alone and with `_PROTO`, `_PORT` and `_ADDR`. The value must fit as well:
/// a `WEIR_PORT=9092` that somebody wrote is a mistake to be told about.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_address = || value.parse::<std::net::IpAddr>().is_ok() || value == "None";
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    let is_url = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    if name.ends_with("_SERVICE_HOST") {
        return is_address();
    }
    if name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return is_number(value);
    }
    if let Some((_service, rest)) = name.split_once("_PORT_") {
        return match rest.split('_').collect::<Vec<_>>()[..] {
            [port, "TCP" | "UDP" | "SCTP"] => is_number(port) && is_url(),
            [port, "TCP" | "UDP" | "SCTP", "PROTO"] => is_number(port) && matches!(value, "tcp" | "udp" | "sctp"),
            [port, "TCP" | "UDP" | "SCTP", "PORT"] => is_number(port) && is_number(value),
            [port, "TCP" | "UDP" | "SCTP", "ADDR"] => is_number(port) && is_address(),
            _ => false,
        };
    }
    name.ends_with("_PORT") && is_url()
}

/// The variable whose config has the name nearest to what this one would set.
fn nearest_variable(variable: &str) -> Option<String> {
    let as_config = |prefix: &str| {
        format!("{prefix}{}", variable.trim_start_matches("WEIR_").to_ascii_lowercase().replace('_', "."))
    };
    ["weir.", ""].iter().find_map(|prefix| match BrokerConfig::def(&as_config(prefix)) {
        Err(ConfigError::Unknown { nearest: Some(nearest), .. }) => {
            BrokerConfig::def(nearest).ok().map(BrokerConfig::environment_name)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn resolve(options: &ServeOptions, environment: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::resolve(options, environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    fn options() -> ServeOptions {
        ServeOptions { http: "127.0.0.1:8080".to_owned(), ..ServeOptions::default() }
    }

    fn file(suffix: &str, text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        let settings = resolve(&options(), &[]).expect("nothing is wrong");
        assert_eq!(settings.data, PathBuf::from("./weir-data"));
        assert_eq!(settings.kafka, "127.0.0.1:9092");
        assert_eq!(settings.http, "127.0.0.1:8080");
        assert_eq!(settings.config.node_id, 0);
    }

    #[test]
    fn set_wins_over_the_environment_and_the_environment_over_the_file() {
        let file = file(".properties", "# a comment\nnum.partitions = 3\nnode.id=1\n\nweir.wal.sync=none\n");
        let options = ServeOptions {
            config: Some(file.path().to_owned()),
            set: vec!["num.partitions=5".to_owned()],
            ..options()
        };
        let settings = resolve(&options, &[("WEIR_NUM_PARTITIONS", "4"), ("WEIR_NODE_ID", "2"), ("PATH", "/bin")])
            .expect("nothing is wrong");
        assert_eq!(settings.config.num_partitions, 5);
        assert_eq!(settings.config.node_id, 2);
        assert_eq!(settings.config.weir_wal_sync, weir_model::config::WalSync::None);
    }

    #[test]
    fn toml_tables_are_names_with_dots() {
        let file =
            file(".toml", "\"node.id\" = 7\n[weir.wal]\nsync = \"none\"\n[auto.create.topics]\nenable = false\n");
        let settings = resolve(&ServeOptions { config: Some(file.path().to_owned()), ..options() }, &[])
            .expect("nothing is wrong");
        assert_eq!(settings.config.node_id, 7);
        assert!(!settings.config.auto_create_topics_enable);
        assert_eq!(settings.config.weir_wal_sync, weir_model::config::WalSync::None);
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest() {
        let refused = |options: ServeOptions, environment: &[(&str, &str)]| {
            resolve(&options, environment).expect_err("refused").to_string()
        };
        let set = refused(ServeOptions { set: vec!["num.partition=3".to_owned()], ..options() }, &[]);
        assert!(set.contains("num.partition`") && set.contains("num.partitions"), "{set}");
        let variable = refused(options(), &[("WEIR_NUM_PARTITION", "3")]);
        assert!(variable.contains("WEIR_NUM_PARTITIONS"), "{variable}");
        let no_equals = refused(ServeOptions { set: vec!["num.partitions".to_owned()], ..options() }, &[]);
        assert!(no_equals.contains("NAME=VALUE"), "{no_equals}");
    }

    #[test]
    fn kubernetes_service_links_do_not_stop_the_broker_and_what_resembles_them_does() {
        let links = [
            ("WEIR_SERVICE_HOST", "10.96.0.7"),
            ("WEIR_SERVICE_PORT", "9092"),
            ("WEIR_SERVICE_PORT_KAFKA", "9092"),
            ("WEIR_PORT", "tcp://10.96.0.7:9092"),
            ("WEIR_PORT_9092_TCP", "tcp://10.96.0.7:9092"),
            ("WEIR_PORT_9092_TCP_PROTO", "tcp"),
            ("WEIR_PORT_9092_TCP_PORT", "9092"),
            ("WEIR_PORT_9092_TCP_ADDR", "10.96.0.7"),
            ("WEIR_HTTP_SERVICE_HOST", "fd00::7"),
            ("WEIR_HTTP_PORT_8080_TCP", "tcp://[fd00::7]:8080"),
        ];
        let settings = resolve(&options(), &links).expect("nothing is wrong");
        assert_eq!(settings.service_links, links.map(|(name, _)| name));
        assert_eq!(settings.kafka, "127.0.0.1:9092");
        for (name, value) in [
            ("WEIR_PORT", "9092"),
            ("WEIR_SERVICE_HOST", "kafka"),
            ("WEIR_PORT_KAFKA", "9092"),
            ("WEIR_PORT_9092_TCP_NAME", "x"),
            ("WEIR_HOST", "10.96.0.7"),
        ] {
            let error = resolve(&options(), &[(name, value)]).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn addresses_are_checked_before_anything_starts() {
        for bad in ["9092", "host", ":9092", "host:port", "host:99999", "::1:9092"] {
            let error = resolve(&ServeOptions { kafka: Some(bad.to_owned()), ..options() }, &[]).expect_err(bad);
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
        assert_eq!(split_address("[::1]:9092", "--kafka").expect("legal"), ("::1".to_owned(), 9092));
        let error = resolve(&ServeOptions { set: vec!["listeners=SSL://127.0.0.1:9092".to_owned()], ..options() }, &[])
            .expect_err("not served");
        assert!(error.to_string().contains("PLAINTEXT://"), "{error}");
    }
}
