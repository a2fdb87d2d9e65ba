//! Tables over HTTP.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use weir_model::PartitionId;
use weir_storage::{PartitionStatus, TopicInfo};

use super::{Problem, Shared};

/// A topic, from the table's side.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    name: String,
    topic_id: String,
    /// The columns as SQL; `null` for a topic without schema.
    schema: Option<String>,
    value_format: &'static str,
    lake: bool,
    internal: bool,
    partitions: Vec<TablePartition>,
}

/// One partition: offsets, and where its bytes are. `lake_end`, `sealed_end` and `high_watermark` are the first offsets beyond.
#[derive(Debug, Serialize)]
pub(super) struct TablePartition {
    partition: i32,
    log_start: i64,
    /// The first offset whose bytes are on this machine.
    local_start: i64,
    /// `null` when the topic is not poured into the lake.
    lake_end: Option<i64>,
    sealed_end: i64,
    last_stable: i64,
    high_watermark: i64,
    log_end: i64,
    local_bytes: u64,
    local_segments: usize,
    tail_bytes: usize,
}

/// The answer to `GET /api/v1/tables`.
#[derive(Debug, Serialize)]
pub(super) struct Tables {
    tables: Vec<Table>,
}

pub(super) async fn list(State(shared): State<Shared>) -> Json<Tables> {
    let topics = shared.broker.storage.topics();
    Json(Tables { tables: topics.iter().map(|topic| table(&shared, topic)).collect() })
}

pub(super) async fn describe(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Table>, Problem> {
    let topic = find(&shared, &name)?;
    Ok(Json(table(&shared, &topic)))
}

pub(super) async fn seal(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Table>, Problem> {
    let topic = find(&shared, &name)?;
    let (storage, sealing) = (shared.broker.storage.clone(), Arc::clone(&topic));
    // Compression, files and syncs: not for a network thread.
    let sealed = tokio::task::spawn_blocking(move || storage.seal_topic(&sealing)).await;
    let sealed = sealed.map_err(|error| Problem::internal(format!("sealing table '{name}' failed: {error}")))?;
    sealed.map_err(|error| Problem::internal(format!("table '{name}' was not sealed: {error}")))?;
    Ok(Json(table(&shared, &topic)))
}

pub(super) async fn tier(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Table>, Problem> {
    let topic = find(&shared, &name)?;
    if !topic.config.weir_lake_enable {
        return Err(Problem::conflict(format!(
            "table '{name}' does not go to the lake: set its config weir.lake.enable=true"
        )));
    }
    shared
        .broker
        .lake
        .pour(topic.id())
        .await
        .map_err(|error| Problem::internal(format!("table '{name}' was not tiered: {error}")))?;
    // What the lake has now may be more than local retention keeps: the operator who asks for the one expects the other.
    let (storage, poured) = (shared.broker.storage.clone(), Arc::clone(&topic));
    let retained = tokio::task::spawn_blocking(move || storage.retain_topic(&poured)).await;
    retained.map_err(|error| Problem::internal(format!("local retention of table '{name}' failed: {error}")))?;
    Ok(Json(table(&shared, &topic)))
}

fn find(shared: &Shared, name: &str) -> Result<Arc<TopicInfo>, Problem> {
    shared
        .broker
        .storage
        .topics()
        .by_name(name)
        .cloned()
        .ok_or_else(|| Problem::not_found(format!("there is no table '{name}'")))
}

fn table(shared: &Shared, topic: &TopicInfo) -> Table {
    let statuses = (0..topic.partitions()).filter_map(|index| {
        let id = PartitionId { topic: topic.id(), index };
        shared.broker.storage.partition(id).map(|partition| partition.status())
    });
    Table {
        name: topic.name().as_str().to_owned(),
        topic_id: topic.id().to_string(),
        schema: topic.table.as_ref().map(|schema| schema.to_sql()),
        value_format: topic.config.weir_value_format.as_str(),
        lake: topic.config.weir_lake_enable,
        internal: topic.record.internal,
        partitions: statuses.map(TablePartition::from).collect(),
    }
}

impl From<PartitionStatus> for TablePartition {
    fn from(status: PartitionStatus) -> Self {
        Self {
            partition: status.index,
            log_start: status.offsets.log_start().get(),
            local_start: status.local_start.get(),
            lake_end: status.lake_end.map(weir_model::Offset::get),
            sealed_end: status.sealed_end.get(),
            last_stable: status.offsets.last_stable().get(),
            high_watermark: status.offsets.high_watermark().get(),
            log_end: status.offsets.log_end().get(),
            local_bytes: status.local_bytes,
            local_segments: status.local_segments,
            tail_bytes: status.tail_bytes,
        }
    }
}
