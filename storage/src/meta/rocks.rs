//! The metadata store on RocksDB, kept small: it holds names, not data.

use std::path::Path;

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBRecoveryMode, LogLevel, Options, PrefixRange, ReadOptions, WriteBatch, WriteOptions,
};

use super::{MetaBatch, MetaError, MetaOp, MetaStore, check};

const WRITE_BUFFER_BYTES: usize = 1024 * 1024;
const BLOCK_CACHE_BYTES: usize = 1024 * 1024;

/// Metadata in a RocksDB of its own, every commit synced.
///
/// Tuned for a broker that sits idle: buffers and cache of 1 MiB, one background job, no statistics.
pub struct RocksMetaStore {
    db: DB,
    /// One committer at a time, so that what a precondition saw still holds when the batch is written.
    committing: Mutex<()>,
}

impl RocksMetaStore {
    /// Opens the store in `path`, creating it and its parents if there is none.
    ///
    /// # Errors
    /// [`MetaError::Open`] when the directory is locked, damaged or cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<RocksMetaStore, MetaError> {
        let path = path.as_ref();
        let db = DB::open(&options(), path).map_err(|source| MetaError::Open { path: path.to_owned(), source })?;
        Ok(RocksMetaStore { db, committing: Mutex::new(()) })
    }
}

/// A store as [`RocksMetaStore::inspect`] found it.
pub struct InspectedMeta {
    /// What is in it, in byte order; up to the damage where there is some.
    pub entries: Vec<(Bytes, Bytes)>,
    /// The newest commits, in RocksDB's own log, do not read. `entries` are as of the last commit before.
    pub log_damage: Option<MetaError>,
    /// A table file does not read. `entries` end there.
    pub table_damage: Option<MetaError>,
}

impl RocksMetaStore {
    /// Reads everything in the store at `path` without changing it. Takes no lock: the caller sees to it that nobody writes.
    ///
    /// # Errors
    /// [`MetaError::Open`] when nothing can be read.
    pub fn inspect(path: &Path) -> Result<InspectedMeta, MetaError> {
        let open = |mode| {
            let mut options = options();
            options.create_if_missing(false);
            options.set_wal_recovery_mode(mode);
            DB::open_for_read_only(&options, path, false)
                .map_err(|source| MetaError::Open { path: path.to_owned(), source })
        };
        // A record that a crash cut short is no damage; a record that does not read is, though the broker starts without it.
        let (db, log_damage) = match open(DBRecoveryMode::TolerateCorruptedTailRecords) {
            Ok(db) => (db, None),
            Err(strict) => match open(DBRecoveryMode::PointInTime) {
                Ok(db) => (db, Some(strict)),
                Err(error) => return Err(error),
            },
        };
        let mut entries = Vec::new();
        for entry in db.iterator(rocksdb::IteratorMode::Start) {
            match entry {
                Ok((key, value)) => entries.push((Bytes::from(key), Bytes::from(value))),
                Err(error) => {
                    return Ok(InspectedMeta { entries, log_damage, table_damage: Some(failed("scan")(error)) });
                }
            }
        }
        Ok(InspectedMeta { entries, log_damage, table_damage: None })
    }
}

fn options() -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_arena_block_size(64 * 1024);
    options.set_max_total_wal_size(4 * 1024 * 1024);
    options.set_max_background_jobs(1);
    options.set_max_open_files(64);
    options.set_max_file_opening_threads(1);
    options.set_table_cache_num_shard_bits(0);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1024 * 1024);
    options.set_log_level(LogLevel::Warn);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_skip_stats_update_on_db_open(true);
    // A torn last record of a crash is dropped; anything after a damaged one is not guessed at.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options
}

fn failed(action: &'static str) -> impl Fn(rocksdb::Error) -> MetaError {
    move |source| MetaError::Storage { action, source }
}

impl MetaStore for RocksMetaStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, MetaError> {
        let value = self.db.get_pinned(key).map_err(failed("read"))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan_prefix(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, MetaError> {
        let mut read = ReadOptions::default();
        read.set_iterate_range(PrefixRange(prefix));
        let mut entries = Vec::new();
        for entry in self.db.iterator_opt(rocksdb::IteratorMode::Start, read) {
            let (key, value) = entry.map_err(failed("scan"))?;
            entries.push((Bytes::from(key), Bytes::from(value)));
        }
        Ok(entries)
    }

    fn commit(&self, batch: MetaBatch) -> Result<(), MetaError> {
        let _one_at_a_time = self.committing.lock();
        check(&batch, |key| self.get(key))?;
        let mut writes = WriteBatch::default();
        for op in &batch.ops {
            match op {
                MetaOp::Put { key, value } => writes.put(key, value),
                MetaOp::Delete { key } => writes.delete(key),
            }
        }
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        self.db.write_opt(writes, &synced).map_err(failed("commit"))
    }
}
