//! One Parquet file while it is written.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use object_store::buffered::BufWriter;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tokio::io::AsyncWriteExt;

use super::{WriteOptions, parquet_schema};
use crate::schema::KAFKA_COLUMN;
use crate::{LakeError, LakeStorage};

/// Bounds in footers and manifests keep this many bytes of a string or binary.
const BOUND_BYTES: usize = 16;

/// Beyond this a column is not for a dictionary: a read of a few pages needs the whole of it.
const DICTIONARY_BYTES: usize = 32 << 10;

/// The Parquet encoder is CPU work, so it is lent to the blocking pool for each batch; what it has encoded is then uploaded.
pub(super) struct OpenFile {
    location: String,
    /// Away only while a batch is encoded; gone for good when that failed.
    encoder: Option<ArrowWriter<Vec<u8>>>,
    upload: BufWriter,
    uploaded: u64,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFile")
            .field("location", &self.location)
            .field("uploaded", &self.uploaded)
            .finish_non_exhaustive()
    }
}

pub(super) struct Written {
    pub(super) location: String,
    pub(super) size: u64,
    pub(super) metadata: ParquetMetaData,
}

impl OpenFile {
    pub(super) fn create(
        storage: &LakeStorage,
        location: String,
        schema: &SchemaRef,
        options: WriteOptions,
    ) -> Result<Self, LakeError> {
        let writer_options = ArrowWriterOptions::new()
            .with_properties(properties(options)?)
            .with_parquet_schema(parquet_schema::of(schema)?);
        let encoder = ArrowWriter::try_new_with_options(Vec::new(), SchemaRef::clone(schema), writer_options)?;
        let upload = storage.writer(&location)?;
        Ok(Self { location, encoder: Some(encoder), upload, uploaded: 0 })
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.uploaded
    }

    pub(super) async fn write(&mut self, batch: RecordBatch) -> Result<(), LakeError> {
        self.encode(move |encoder| encoder.write(&batch)).await
    }

    pub(super) async fn finish(mut self, storage: &LakeStorage) -> Result<Written, LakeError> {
        let metadata = self.encode(ArrowWriter::finish).await?;
        self.upload.shutdown().await.map_err(|error| failed(&self.location, error))?;
        storage.sync(&self.location).await?;
        Ok(Written { location: self.location, size: self.uploaded, metadata })
    }

    async fn encode<T: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut ArrowWriter<Vec<u8>>) -> parquet::errors::Result<T> + Send + 'static,
    ) -> Result<T, LakeError> {
        let Some(mut encoder) = self.encoder.take() else {
            return Err(LakeError::Worker(format!("the encoder of {} failed before", self.location)));
        };
        let (encoder, part, done) = tokio::task::spawn_blocking(move || {
            let done = step(&mut encoder);
            let part = std::mem::take(encoder.inner_mut());
            (encoder, part, done)
        })
        .await?;
        let done = done?;
        self.encoder = Some(encoder);
        if !part.is_empty() {
            self.upload.write_all(&part).await.map_err(|error| failed(&self.location, error))?;
            self.uploaded += part.len() as u64;
        }
        Ok(done)
    }
}

fn failed(location: &str, error: std::io::Error) -> LakeError {
    LakeError::DataFile { file: location.to_owned(), reason: format!("it cannot be written: {error}") }
}

fn properties(options: WriteOptions) -> Result<WriterProperties, LakeError> {
    let kafka = |name: &str| ColumnPath::from(vec![KAFKA_COLUMN.to_owned(), name.to_owned()]);
    Ok(WriterProperties::builder()
        .set_created_by(concat!("weir ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(options.row_group_rows))
        .set_max_row_group_bytes(Some(options.row_group_bytes))
        .set_data_page_row_count_limit(options.page_rows)
        // The limit above is looked at once per batch of values.
        .set_write_batch_size(options.page_rows.min(1024))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(Some(BOUND_BYTES))
        .set_column_index_truncate_length(Some(BOUND_BYTES))
        // They rise by little: deltas take next to nothing, a dictionary would take all of it.
        .set_column_dictionary_enabled(kafka("offset"), false)
        .set_column_encoding(kafka("offset"), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(kafka("timestamp"), false)
        .set_column_encoding(kafka("timestamp"), Encoding::DELTA_BINARY_PACKED)
        .build())
}
