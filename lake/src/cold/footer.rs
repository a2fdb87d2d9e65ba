//! Footers of Parquet files, read once and kept.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::index::FileRef;
use crate::cache::BoundedCache;
use crate::{LakeError, LakeStorage};

/// Read from the end of a file in the hope that the footer lies in it whole.
const FOOTER_GUESS_BYTES: usize = 64 << 10;

/// Parsed footers, page indexes included, by file location. Data files never change.
#[derive(Debug)]
pub(super) struct FooterCache {
    footers: BoundedCache<String, ArrowReaderMetadata>,
}

impl FooterCache {
    pub(super) fn new(bytes: usize) -> Self {
        Self { footers: BoundedCache::new(bytes) }
    }

    pub(super) async fn get(&self, storage: &LakeStorage, file: &FileRef) -> Result<ArrowReaderMetadata, LakeError> {
        if let Some(footer) = self.footers.get(&file.location) {
            return Ok(footer);
        }
        let mut reader = LakeFile::new(storage, &file.location);
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .with_prefetch_hint(Some(FOOTER_GUESS_BYTES))
            .load_and_finish(&mut reader, file.size)
            .await?;
        let weight = metadata.memory_size();
        // The Arrow types come from Parquet's own, not from what the writer's Arrow happened to use.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::try_new(Arc::new(metadata), options)?;
        self.footers.put(file.location.clone(), footer.clone(), weight);
        Ok(footer)
    }
}

/// A file of the lake, as the Parquet reader wants it.
pub(super) struct LakeFile {
    storage: LakeStorage,
    location: String,
}

impl LakeFile {
    pub(super) fn new(storage: &LakeStorage, location: &str) -> Self {
        Self { storage: storage.clone(), location: location.to_owned() }
    }
}

fn external(error: LakeError) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for LakeFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move { self.storage.read_range(&self.location, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move { self.storage.read_ranges(&self.location, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move { Err(ParquetError::General("footers are read by the footer cache".to_owned())) }.boxed()
    }
}
