//! Parquet data files, written straight from Arrow.

mod bounds;
mod file;
mod parquet_schema;

use std::sync::Arc;

use arrow::array::RecordBatch;
use iceberg::spec::{DataFile, SchemaRef as IcebergSchemaRef};

use crate::convert::TableMapping;
use crate::{LakeError, LakeStorage};
pub(crate) use bounds::data_file;
use file::OpenFile;

/// How data files are cut.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// A row group ends at this many encoded bytes,
    pub row_group_bytes: usize,
    /// or at this many rows, whichever comes first.
    pub row_group_rows: usize,
    /// A file ends at this many bytes, at the next row group.
    pub file_bytes: u64,
    /// Rows of a data page at most: the grain at which old offsets are found. Pages of different columns do not end at the
    /// same rows, so a read takes up to one page too many of each column; small pages keep that cheap, and a page index of
    /// about 60 bytes for each page and column is what they cost.
    pub page_rows: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { row_group_bytes: 64 << 20, row_group_rows: 1_000_000, file_bytes: 256 << 20, page_rows: 4096 }
    }
}

/// Writes the rows of one partition as one or more data files, in offset order, below one folder.
///
/// Files are uploaded in parts while they grow, so memory holds one row group. Nothing refers to the files until a commit
/// names them; dropping the writer leaves what was written for the owner of the folder to delete.
#[derive(Debug)]
pub struct PartitionWriter {
    storage: LakeStorage,
    mapping: Arc<TableMapping>,
    iceberg: IcebergSchemaRef,
    folder: String,
    partition: i32,
    options: WriteOptions,
    open: Option<OpenFile>,
    finished: Vec<DataFile>,
}

impl PartitionWriter {
    /// A writer of files `{folder}/p{partition}-{n}.parquet`. `iceberg` is the table's current schema.
    pub fn new(
        storage: LakeStorage,
        mapping: Arc<TableMapping>,
        iceberg: IcebergSchemaRef,
        folder: &str,
        partition: i32,
        options: WriteOptions,
    ) -> Self {
        Self {
            storage,
            mapping,
            iceberg,
            folder: folder.trim_end_matches('/').to_owned(),
            partition,
            options,
            open: None,
            finished: Vec::new(),
        }
    }

    /// Adds rows of the log schema; their offsets must follow those written before.
    ///
    /// # Errors
    /// [`LakeError::Schema`] for rows that do not fit the table, [`LakeError::Parquet`] or [`LakeError::Storage`].
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<(), LakeError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mapping = Arc::clone(&self.mapping);
        let (partition, rows) = (self.partition, batch.clone());
        let converted = tokio::task::spawn_blocking(move || mapping.to_lake(partition, &rows)).await??;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let location = format!("{}/p{}-{}.parquet", self.folder, self.partition, self.finished.len());
                OpenFile::create(&self.storage, location, self.mapping.physical(), self.options)?
            }
        };
        open.write(converted).await?;
        if open.bytes_written() >= self.options.file_bytes {
            self.close(open).await?;
        } else {
            self.open = Some(open);
        }
        Ok(())
    }

    /// Ends the last file and returns all of them, durable, in offset order.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn finish(mut self) -> Result<Vec<DataFile>, LakeError> {
        if let Some(open) = self.open.take() {
            self.close(open).await?;
        }
        Ok(self.finished)
    }

    async fn close(&mut self, open: OpenFile) -> Result<(), LakeError> {
        let written = open.finish(&self.storage).await?;
        self.finished.push(data_file(&self.iceberg, &written.metadata, written.location, written.size)?);
        Ok(())
    }
}
