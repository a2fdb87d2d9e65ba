//! The lake's files: any object store, under Iceberg's own locations.
//!
//! Iceberg names files by absolute locations (`file:///srv/weir/lake/weir/orders/data/...`); object stores name them
//! relative to themselves. [`LakeStorage`] is the one place that turns one into the other, refuses what lies outside the
//! lake, makes local files durable (object stores are durable when a put returns; a local folder is only after `fsync`),
//! and counts bytes read.

use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use iceberg::io::{
    FileIO, FileIOBuilder, FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig,
    StorageFactory,
};
use iceberg::{Error as IcebergError, ErrorKind};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use url::Url;

use crate::LakeError;

/// Environment variables with these prefixes configure the clients of bucket stores, under the vendors' own names.
const CREDENTIAL_PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// The lake's object store, rooted at `weir.lake.url`.
#[derive(Clone, Debug)]
pub struct LakeStorage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    /// Without a trailing slash; locations are `root + "/" + path`.
    root: String,
    /// Set for a local folder: files must be synced to count as written.
    folder: Option<PathBuf>,
    bytes_read: AtomicU64,
}

impl LakeStorage {
    /// Opens the lake at `url`: a folder (made when missing), or a `file://`, `s3://`, `gs://`, `az://` or `memory://` URL.
    /// Credentials of buckets come from the environment, under the names that the vendors' own tools use.
    ///
    /// # Errors
    /// [`LakeError::Url`] when the address cannot be parsed or its client cannot be built.
    pub fn open(url: &str) -> Result<Self, LakeError> {
        let bad = |reason: String| LakeError::Url { url: url.to_owned(), reason };
        if !url.contains("://") {
            return Self::open_folder(FsPath::new(url));
        }
        let parsed = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        if parsed.scheme() == "file" {
            let path = parsed.to_file_path().map_err(|()| bad("it does not name a local path".to_owned()))?;
            return Self::open_folder(&path);
        }
        if parsed.scheme() == "memory" {
            return Ok(Self::with_store(Arc::new(InMemory::new()), url.trim_end_matches('/')));
        }
        let options = std::env::vars()
            .filter(|(name, _)| CREDENTIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            .map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (store, prefix) = object_store::parse_url_opts(&parsed, options).map_err(|error| bad(error.to_string()))?;
        let store: Arc<dyn ObjectStore> = Arc::from(store);
        let store: Arc<dyn ObjectStore> =
            if prefix.as_ref().is_empty() { store } else { Arc::new(PrefixStore::new(store, prefix)) };
        Ok(Self::with_store(store, url.trim_end_matches('/')))
    }

    /// Opens a local folder, making it when it is missing.
    ///
    /// # Errors
    /// [`LakeError::Url`] when the folder cannot be made or is not absolute after resolving.
    pub fn open_folder(path: &FsPath) -> Result<Self, LakeError> {
        let bad = |reason: String| LakeError::Url { url: path.display().to_string(), reason };
        std::fs::create_dir_all(path).map_err(|error| bad(error.to_string()))?;
        let folder = path.canonicalize().map_err(|error| bad(error.to_string()))?;
        // Not percent-encoded: Iceberg clients take what follows `file://` as the path itself.
        let root = folder.to_str().ok_or_else(|| bad("its path is not UTF-8".to_owned()))?;
        let root = format!("file://{root}");
        let store = LocalFileSystem::new_with_prefix(&folder)?;
        Ok(Self {
            inner: Arc::new(Inner {
                store: Arc::new(store),
                root: root.trim_end_matches('/').to_owned(),
                folder: Some(folder),
                bytes_read: AtomicU64::new(0),
            }),
        })
    }

    /// A lake over any object store, whose locations start with `root`.
    pub fn with_store(store: Arc<dyn ObjectStore>, root: &str) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                root: root.trim_end_matches('/').to_owned(),
                folder: None,
                bytes_read: AtomicU64::new(0),
            }),
        }
    }

    /// The location of the lake itself, without a trailing slash.
    pub fn root(&self) -> &str {
        &self.inner.root
    }

    /// The object store below; paths in it are relative to [`Self::root`].
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.inner.store
    }

    /// Bytes read from the store since it was opened, footers and metadata included.
    pub fn bytes_read(&self) -> u64 {
        self.inner.bytes_read.load(Ordering::Relaxed)
    }

    /// Iceberg's view of the same files.
    pub fn file_io(&self) -> FileIO {
        FileIOBuilder::new(Arc::new(LakeStorageFactory { storage: self.as_iceberg() })).build()
    }

    /// The path inside the store of an absolute location.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`] when the location is not below the root, or tries to leave it.
    pub fn path_of(&self, location: &str) -> Result<Path, LakeError> {
        let outside = || LakeError::OutsideLake { location: location.to_owned(), root: self.inner.root.clone() };
        // `file:/x` and `file:///x` are the same place; clients write both.
        let normal = match location.strip_prefix("file:/") {
            Some(rest) if !rest.starts_with('/') => format!("file:///{rest}"),
            _ => location.to_owned(),
        };
        let relative = normal.strip_prefix(&self.inner.root).and_then(|rest| rest.strip_prefix('/'));
        let relative = relative.ok_or_else(outside)?;
        if relative.split('/').any(|part| part == "..") {
            return Err(outside());
        }
        Path::parse(relative).map_err(|_| outside())
    }

    /// The absolute location of a path inside the store.
    pub fn location_of(&self, path: &Path) -> String {
        format!("{}/{}", self.inner.root, path)
    }

    /// Reads `range` of a file.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`], or [`LakeError::Storage`].
    pub async fn read_range(&self, location: &str, range: Range<u64>) -> Result<Bytes, LakeError> {
        let bytes = self.inner.store.get_range(&self.path_of(location)?, range).await?;
        self.count(bytes.len());
        Ok(bytes)
    }

    /// Reads several ranges of a file, near ones with one request.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`], or [`LakeError::Storage`].
    pub async fn read_ranges(&self, location: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, LakeError> {
        let parts = self.inner.store.get_ranges(&self.path_of(location)?, ranges).await?;
        self.count(parts.iter().map(Bytes::len).sum());
        Ok(parts)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`], or [`LakeError::Storage`].
    pub async fn read(&self, location: &str) -> Result<Bytes, LakeError> {
        let bytes = self.inner.store.get(&self.path_of(location)?).await?.bytes().await?;
        self.count(bytes.len());
        Ok(bytes)
    }

    /// Size of a file; `None` when it does not exist.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`], or [`LakeError::Storage`] for anything but a missing file.
    pub async fn size(&self, location: &str) -> Result<Option<u64>, LakeError> {
        match self.inner.store.head(&self.path_of(location)?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a file; a missing one is no error.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`], or [`LakeError::Storage`].
    pub async fn delete(&self, location: &str) -> Result<(), LakeError> {
        match self.inner.store.delete(&self.path_of(location)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Locations of every file below `folder`, an absolute location.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`], or [`LakeError::Storage`].
    pub async fn list(&self, folder: &str) -> Result<Vec<String>, LakeError> {
        let path = self.path_of(folder.trim_end_matches('/'))?;
        let mut found: Vec<String> =
            self.inner.store.list(Some(&path)).map_ok(|meta| self.location_of(&meta.location)).try_collect().await?;
        found.sort();
        Ok(found)
    }

    /// Makes a written file durable, its name included. Object stores have done so when the put returned.
    ///
    /// # Errors
    /// [`LakeError::Sync`] when the system cannot promise it.
    pub async fn sync(&self, location: &str) -> Result<(), LakeError> {
        let Some(folder) = &self.inner.folder else { return Ok(()) };
        let path = self.path_of(location)?;
        let root = folder.clone();
        let mut file = folder.clone();
        file.extend(path.parts().map(|part| part.as_ref().to_owned()));
        tokio::task::spawn_blocking(move || sync_file(&file, &root)).await?
    }

    /// A writer of a new file, in parts of bounded size.
    ///
    /// # Errors
    /// [`LakeError::OutsideLake`].
    pub fn writer(&self, location: &str) -> Result<BufWriter, LakeError> {
        Ok(BufWriter::new(Arc::clone(&self.inner.store), self.path_of(location)?))
    }

    fn count(&self, bytes: usize) {
        self.inner.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn as_iceberg(&self) -> ObjectStorage {
        ObjectStorage { root: self.inner.root.clone(), storage: OnceLock::from(self.clone()) }
    }
}

/// Syncs a file and every folder from it up to the lake's root, because any of them may be new.
fn sync_file(file: &FsPath, root: &FsPath) -> Result<(), LakeError> {
    let sync = |path: &FsPath| {
        std::fs::File::open(path)
            .and_then(|handle| handle.sync_all())
            .map_err(|source| LakeError::Sync { path: path.display().to_string(), source })
    };
    sync(file)?;
    let mut folder = file.parent();
    while let Some(path) = folder {
        sync(path)?;
        if path == root {
            break;
        }
        folder = path.parent();
    }
    Ok(())
}

/// [`LakeStorage`] behind Iceberg's own trait. It serialises as its root only; what is read back opens the root again.
#[derive(Debug, Serialize, Deserialize)]
struct ObjectStorage {
    root: String,
    #[serde(skip)]
    storage: OnceLock<LakeStorage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LakeStorageFactory {
    storage: ObjectStorage,
}

impl ObjectStorage {
    fn get(&self) -> iceberg::Result<&LakeStorage> {
        if let Some(storage) = self.storage.get() {
            return Ok(storage);
        }
        let opened = LakeStorage::open(&self.root).map_err(to_iceberg)?;
        Ok(self.storage.get_or_init(|| opened))
    }
}

#[typetag::serde]
impl StorageFactory for LakeStorageFactory {
    fn build(&self, _config: &StorageConfig) -> iceberg::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.storage.get()?.as_iceberg()))
    }
}

#[async_trait]
#[typetag::serde]
impl Storage for ObjectStorage {
    async fn exists(&self, path: &str) -> iceberg::Result<bool> {
        Ok(self.get()?.size(path).await.map_err(to_iceberg)?.is_some())
    }

    async fn metadata(&self, path: &str) -> iceberg::Result<FileMetadata> {
        match self.get()?.size(path).await.map_err(to_iceberg)? {
            Some(size) => Ok(FileMetadata { size }),
            None => Err(IcebergError::new(ErrorKind::DataInvalid, format!("no such file: {path}"))),
        }
    }

    async fn read(&self, path: &str) -> iceberg::Result<Bytes> {
        self.get()?.read(path).await.map_err(to_iceberg)
    }

    async fn reader(&self, path: &str) -> iceberg::Result<Box<dyn FileRead>> {
        Ok(Box::new(RangeReader { storage: self.get()?.clone(), location: path.to_owned() }))
    }

    async fn write(&self, path: &str, bytes: Bytes) -> iceberg::Result<()> {
        let storage = self.get()?;
        let target = storage.path_of(path).map_err(to_iceberg)?;
        storage.store().put(&target, bytes.into()).await.map_err(|error| to_iceberg(error.into()))?;
        storage.sync(path).await.map_err(to_iceberg)
    }

    async fn writer(&self, path: &str) -> iceberg::Result<Box<dyn FileWrite>> {
        let storage = self.get()?.clone();
        let writer = storage.writer(path).map_err(to_iceberg)?;
        Ok(Box::new(PartWriter { storage, location: path.to_owned(), writer: Some(writer) }))
    }

    async fn delete(&self, path: &str) -> iceberg::Result<()> {
        self.get()?.delete(path).await.map_err(to_iceberg)
    }

    async fn delete_prefix(&self, path: &str) -> iceberg::Result<()> {
        let storage = self.get()?;
        for location in storage.list(path).await.map_err(to_iceberg)? {
            storage.delete(&location).await.map_err(to_iceberg)?;
        }
        Ok(())
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> iceberg::Result<()> {
        let storage = self.get()?;
        while let Some(path) = paths.next().await {
            storage.delete(&path).await.map_err(to_iceberg)?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> iceberg::Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.get()?.as_iceberg()), path.to_owned()))
    }

    fn new_output(&self, path: &str) -> iceberg::Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.get()?.as_iceberg()), path.to_owned()))
    }
}

struct RangeReader {
    storage: LakeStorage,
    location: String,
}

#[async_trait]
impl FileRead for RangeReader {
    async fn read(&self, range: Range<u64>) -> iceberg::Result<Bytes> {
        self.storage.read_range(&self.location, range).await.map_err(to_iceberg)
    }
}

struct PartWriter {
    storage: LakeStorage,
    location: String,
    writer: Option<BufWriter>,
}

#[async_trait]
impl FileWrite for PartWriter {
    async fn write(&mut self, bytes: Bytes) -> iceberg::Result<()> {
        let Some(writer) = &mut self.writer else { return Err(closed(&self.location)) };
        writer.write_all(&bytes).await.map_err(|error| {
            IcebergError::new(ErrorKind::Unexpected, format!("cannot write {}", self.location)).with_source(error)
        })
    }

    async fn close(&mut self) -> iceberg::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Err(closed(&self.location)) };
        writer.shutdown().await.map_err(|error| {
            IcebergError::new(ErrorKind::Unexpected, format!("cannot finish {}", self.location)).with_source(error)
        })?;
        self.storage.sync(&self.location).await.map_err(to_iceberg)
    }
}

fn closed(location: &str) -> IcebergError {
    IcebergError::new(ErrorKind::Unexpected, format!("{location} is closed already"))
}

fn to_iceberg(error: LakeError) -> IcebergError {
    match error {
        LakeError::Iceberg(error) => error,
        other => IcebergError::new(ErrorKind::Unexpected, other.to_string()).with_source(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_written_file_is_read_back_from_a_folder_and_from_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for storage in
            [LakeStorage::open_folder(folder.path()).expect("open"), LakeStorage::open("memory:///lake").expect("open")]
        {
            let io = storage.file_io();
            let location = format!("{}/weir/orders/data/a.bin", storage.root());
            io.new_output(&location).expect("output").write(Bytes::from_static(b"abc")).await.expect("write");
            assert_eq!(storage.read_range(&location, 1..3).await.expect("read"), Bytes::from_static(b"bc"));
            assert_eq!(storage.size(&location).await.expect("size"), Some(3));
            assert_eq!(storage.list(&format!("{}/weir", storage.root())).await.expect("list"), vec![location.clone()]);
            storage.delete(&location).await.expect("delete");
            storage.delete(&location).await.expect("deleting twice is no error");
            assert_eq!(storage.size(&location).await.expect("size"), None);
        }
    }

    #[test]
    fn a_location_outside_the_lake_is_refused() {
        let storage = LakeStorage::open("memory:///lake").expect("open");
        for location in ["memory:///other/x", "file:///etc/passwd", "memory:///lake/../x", "memory:///lakeside/x"] {
            assert!(matches!(storage.path_of(location), Err(LakeError::OutsideLake { .. })), "{location}");
        }
    }
}
