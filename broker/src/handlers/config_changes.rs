//! What AlterConfigs and IncrementalAlterConfigs have in common: the walk over the resources, each all or nothing.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use weir_model::config::{BrokerLayer, ConfigError};

use super::RequestContext;
use crate::coordinator::errors::group_config_error;
use crate::coordinator::group_configs::GroupConfigError;
use crate::topics::errors::{message, topic_error};
use crate::topics::{ConfigChange, ConfigOperation, TopicError};

pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const BROKER_LOGGER: i8 = 8;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

/// What a request wants of one resource.
pub(super) struct ResourceChange {
    pub(super) kind: i8,
    pub(super) name: StrBytes,
    pub(super) wanted: Result<Wanted, Refused>,
}

/// The change itself.
pub(super) enum Wanted {
    /// These instead of all that are set. A value that is missing is refused.
    All(Vec<(String, Option<String>)>),
    /// These changes.
    Some(Vec<ConfigChange>),
}

/// Kafka's code, and a sentence.
pub(super) type Refused = (ResponseError, String);

/// What became of one resource.
pub(super) struct Outcome {
    pub(super) kind: i8,
    pub(super) name: StrBytes,
    pub(super) refused: Option<Refused>,
}

/// Makes the changes one resource after the other, in order.
pub(super) async fn change_all(
    context: &RequestContext,
    changes: Vec<ResourceChange>,
    validate_only: bool,
) -> Vec<Outcome> {
    let named: Vec<(i8, StrBytes)> = changes.iter().map(|change| (change.kind, change.name.clone())).collect();
    let mut outcomes = Vec::with_capacity(changes.len());
    for ResourceChange { kind, name, wanted } in changes {
        let is_repeated = named.iter().filter(|other| **other == (kind, name.clone())).count() > 1;
        let result = match wanted {
            _ if is_repeated => Err((
                ResponseError::InvalidRequest,
                format!("resource '{name}' is named more than once in the request"),
            )),
            Ok(wanted) => change_one(context, kind, &name, wanted, validate_only).await,
            Err(refused) => Err(refused),
        };
        outcomes.push(Outcome { kind, name, refused: result.err() });
    }
    outcomes
}

async fn change_one(
    context: &RequestContext,
    kind: i8,
    name: &str,
    wanted: Wanted,
    validate_only: bool,
) -> Result<(), Refused> {
    let changed = match kind {
        TOPIC => change_topic(context, name, wanted, validate_only).await,
        BROKER => change_broker(context, name, wanted, validate_only).await,
        GROUP => {
            let changed = change_group(context, name, wanted, validate_only).await;
            return changed.map_err(|error| (group_config_error(&error), error.to_string()));
        }
        other => return Err(not_served(other)),
    };
    changed.map_err(|error| (code_of(kind, &error), message(&error)))
}

async fn change_topic(
    context: &RequestContext,
    name: &str,
    wanted: Wanted,
    validate_only: bool,
) -> Result<(), TopicError> {
    let topics = &context.broker.topics;
    match wanted {
        Wanted::All(configs) => topics.replace_configs(name, whole(configs)?, validate_only).await,
        Wanted::Some(changes) => topics.change_configs(name, &changes, validate_only).await,
    }
}

async fn change_broker(
    context: &RequestContext,
    name: &str,
    wanted: Wanted,
    validate_only: bool,
) -> Result<(), TopicError> {
    let topics = &context.broker.topics;
    let layer = layer(context, name)?;
    match wanted {
        Wanted::All(configs) => topics.replace_broker_configs(layer, whole(configs)?, validate_only).await,
        Wanted::Some(mut changes) => {
            changes.retain(|change| !removes_a_throttle(change));
            topics.change_broker_configs(layer, &changes, validate_only).await
        }
    }
}

/// There are no replicas to throttle, so a throttle is never set, and its removal is done. `kafka-reassign-partitions --verify` asks for it each time.
fn removes_a_throttle(change: &ConfigChange) -> bool {
    const THROTTLES: [&str; 3] = [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ];
    change.operation == ConfigOperation::Delete && THROTTLES.contains(&change.name.as_str())
}

async fn change_group(
    context: &RequestContext,
    name: &str,
    wanted: Wanted,
    validate_only: bool,
) -> Result<(), GroupConfigError> {
    let groups = context.broker.groups.configs();
    match wanted {
        Wanted::All(configs) => {
            let mut set = BTreeMap::new();
            for (name, value) in configs {
                let Some(value) = value else { return Err(ConfigError::NoValue { name }.into()) };
                if set.insert(name.clone(), value).is_some() {
                    return Err(GroupConfigError::Duplicate(name));
                }
            }
            groups.replace(name, set, validate_only).await
        }
        Wanted::Some(changes) => groups.change(name, &changes, validate_only).await,
    }
}

/// Where a topic's value is an INVALID_CONFIG, a broker's is an INVALID_REQUEST, and a missing one always; as in Kafka.
fn code_of(kind: i8, error: &TopicError) -> ResponseError {
    match error {
        TopicError::Config(ConfigError::NoValue { .. }) => ResponseError::InvalidRequest,
        TopicError::Config(_) | TopicError::Storage(weir_storage::TopicError::Config(_)) if kind == BROKER => {
            ResponseError::InvalidRequest
        }
        other => topic_error(other),
    }
}

/// The place that a broker's name stands for: its own id, or nothing for all brokers.
fn layer(context: &RequestContext, name: &str) -> Result<BrokerLayer, TopicError> {
    let expected = context.broker.identity.node_id;
    match name {
        "" => Ok(BrokerLayer::Cluster),
        _ if name.parse() == Ok(expected) => Ok(BrokerLayer::Broker),
        _ => Err(TopicError::OtherBroker { expected, name: name.to_owned() }),
    }
}

fn whole(configs: Vec<(String, Option<String>)>) -> Result<BTreeMap<String, String>, TopicError> {
    let mut set = BTreeMap::new();
    for (name, value) in configs {
        let Some(value) = value else { return Err(ConfigError::NoValue { name }.into()) };
        if set.insert(name.clone(), value).is_some() {
            return Err(TopicError::DuplicateConfig(name));
        }
    }
    Ok(set)
}

fn not_served(kind: i8) -> Refused {
    let what = match kind {
        BROKER_LOGGER => "levels of loggers are set at the start, with WEIR_LOG".to_owned(),
        CLIENT_METRICS => "subscriptions to clients' metrics are not built".to_owned(),
        other => format!("Unknown resource type {other}"),
    };
    (
        ResponseError::InvalidRequest,
        format!("{what}; configs of topics (2), brokers (4) and groups (32) can be altered"),
    )
}
