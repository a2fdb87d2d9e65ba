//! DescribeLogDirs (key 35), versions 1 to 4.
//!
//! Answers the data directory and the size of every partition in it, which is where UIs have topic sizes from (S-72).
//!
//! * v2 compact encodings; v3 a top-level error; v4 the size of the disk and what is free (KIP-827).
//! * Differs from Kafka: a partition's size is its local segment files and the batches of its tail, which are in the shared WAL. What is in the lake only does not
//!   count, nor do the columns that the tail has in memory beside its batches.

use std::path::Path;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use weir_storage::{Storage, TopicInfo};

use super::{CloseConnection, Reply, RequestContext};

/// Looks on the blocking pool: the disk is asked for its size.
pub async fn handle(context: &RequestContext, request: DescribeLogDirsRequest) -> Result<Reply, CloseConnection> {
    let (version, storage, directory) =
        (context.version, context.broker.storage.clone(), context.broker.config.log_dirs.clone());
    Ok(context.pending(async move {
        let look = tokio::task::spawn_blocking(move || describe(&storage, &directory, &request, version));
        match look.await {
            Ok(response) => Ok(response),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }))
}

fn describe(
    storage: &Storage,
    directory: &str,
    request: &DescribeLogDirsRequest,
    version: i16,
) -> DescribeLogDirsResponse {
    let known = storage.topics();
    let topics: Vec<DescribeLogDirsTopic> = match &request.topics {
        None => known.iter().map(|topic| sizes(storage, topic, None)).collect(),
        Some(asked) => asked
            .iter()
            .filter_map(|asked| Some(sizes(storage, known.by_name(asked.topic.as_str())?, Some(&asked.partitions))))
            .collect(),
    };
    let absolute = std::fs::canonicalize(directory)
        .map_or_else(|_| directory.to_owned(), |path| path.to_string_lossy().into_owned());
    let (total, usable) = if version >= 4 { disk_size(Path::new(directory)) } else { (-1, -1) };
    let result = DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_string(absolute))
        .with_topics(topics)
        .with_total_bytes(total)
        .with_usable_bytes(usable);
    DescribeLogDirsResponse::default().with_results(vec![result])
}

fn sizes(storage: &Storage, topic: &TopicInfo, asked: Option<&[i32]>) -> DescribeLogDirsTopic {
    let partitions = storage
        .partitions(topic)
        .into_iter()
        .filter(|partition| asked.is_none_or(|asked| asked.contains(&partition.id().index)));
    let partitions = partitions.map(|partition| {
        let status = partition.status();
        let size = status.local_bytes.saturating_add(status.tail_batch_bytes as u64);
        DescribeLogDirsPartition::default()
            .with_partition_index(status.index)
            .with_partition_size(i64::try_from(size).unwrap_or(i64::MAX))
    });
    DescribeLogDirsTopic::default()
        .with_name(TopicName(StrBytes::from_string(topic.name().as_str().to_owned())))
        .with_partitions(partitions.collect())
}

/// Bytes of the file system and bytes free to us; -1 where it does not say.
fn disk_size(directory: &Path) -> (i64, i64) {
    match nix::sys::statvfs::statvfs(directory) {
        Ok(stat) => {
            let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.fragment_size())).unwrap_or(i64::MAX);
            (bytes(stat.blocks()), bytes(stat.blocks_available()))
        }
        Err(_) => (-1, -1),
    }
}
