//! The log of transactional ids, `__transaction_state`, as the coordinator sees it.

use async_trait::async_trait;
use tracing::error;
use weir_model::Offset;

use super::records::TransactionRecord;
use crate::coordinator::log::{Durability, LogError, LogRead, StorageLog, TRANSACTION_TOPIC, build_batch};

/// Where transactional ids are kept.
#[async_trait]
pub(in crate::coordinator) trait TransactionLog: Send + Sync + 'static {
    /// Orders a record after everything appended to the partition before. What is returned resolves when it is durable.
    async fn append(&self, partition: i32, record: TransactionRecord) -> Result<Durability, LogError>;

    /// Reads on from `from` (the start, when `None`); `None` at the end.
    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead<TransactionRecord>>, LogError>;
}

#[async_trait]
impl TransactionLog for StorageLog {
    async fn append(&self, partition: i32, record: TransactionRecord) -> Result<Durability, LogError> {
        let batch = build_batch([(record.key_bytes(), record.value_bytes())], None, self.clock.now_ms());
        StorageLog::append(self, partition, batch, None).await
    }

    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead<TransactionRecord>>, LogError> {
        let parse = move |batch: super::super::log::StoredBatch, records: &mut Vec<TransactionRecord>| {
            if batch.header().attributes.is_control() {
                return Ok(());
            }
            // A record that does not read is reported and passed over: it is one id's, and the others must not be lost with it.
            batch.records(TRANSACTION_TOPIC, |offset, key, value| {
                match TransactionRecord::parse(key.unwrap_or_default(), value) {
                    Ok(record) => records.push(record),
                    Err(cause) => {
                        error!(topic = TRANSACTION_TOPIC, partition, offset, %cause, "a record of a transactional id does not read and is passed over");
                    }
                }
            })
        };
        StorageLog::read(self, partition, from, parse).await
    }
}
