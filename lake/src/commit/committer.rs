//! The one committer of a table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use iceberg::spec::{
    DataFile, FormatVersion, MAIN_BRANCH, SnapshotRef, SnapshotReference, SnapshotRetention, SortOrder, TableMetadata,
    TableMetadataBuilder, UnboundPartitionSpec, deserialize_data_file_from_json, serialize_data_file_to_json,
};
use iceberg::{TableIdent, TableRequirement, TableUpdate};
use uuid::Uuid;
use weir_model::{Clock, TopicId};

use super::plan::PlanRow;
use super::snapshot::{Production, current_manifests, files_of_attempt};
use super::{Marker, Plan, PlanPhase, PlannedRange, expire};
use crate::catalog::ownership::{KIND, MARKER, TOPIC_ID, owner};
use crate::catalog::{CatalogError, LakeCatalog, LoadedTable, TableChange};
use crate::schema::{TableKind, evolved_schema, iceberg_schema};
use crate::store::LakeStore;
use crate::{LakeError, LakeStorage};

/// Commits that may lose to others in a row before the plan is left for later.
const ATTEMPTS_MAX: u32 = 8;

/// Commits a topic's rows to its table, exactly once. Not `Clone`: who holds it is the committer, and opening another one
/// fences it.
pub struct Committer {
    catalog: Arc<dyn LakeCatalog>,
    store: Arc<dyn LakeStore>,
    storage: LakeStorage,
    clock: Arc<dyn Clock>,
    table: TableIdent,
    topic_id: TopicId,
    epoch: u64,
}

/// What a commit led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poured {
    /// End offset of each partition, as read back from the table.
    pub ends: BTreeMap<i32, i64>,
    /// The snapshot of this commit.
    pub snapshot_id: i64,
}

/// A plan and its bytes in the metadata store.
#[derive(Debug)]
pub struct Pending {
    plan: Plan,
    stored: Bytes,
}

impl Pending {
    /// Where the data files of this plan go.
    pub fn data_folder(&self) -> String {
        self.plan.data_folder()
    }
}

/// What a table says of a plan.
enum Fate {
    Committed {
        snapshot_id: i64,
    },
    /// Its base is still current: it can be committed, by us or by a request still on its way.
    Open,
    /// The table moved on without it, and so it never will be.
    Impossible,
    /// Later commits hide whether it was; its rows are in the table.
    Covered,
}

impl Committer {
    /// Takes over a table: every committer opened before is fenced.
    ///
    /// # Errors
    /// [`LakeError::Store`].
    pub async fn open(
        catalog: Arc<dyn LakeCatalog>,
        store: Arc<dyn LakeStore>,
        storage: LakeStorage,
        clock: Arc<dyn Clock>,
        table: TableIdent,
        topic_id: TopicId,
    ) -> Result<Self, LakeError> {
        let epoch = PlanRow::new(store.as_ref(), &table).take_epoch().await?;
        Ok(Self { catalog, store, storage, clock, table, topic_id, epoch })
    }

    /// The table.
    pub fn table(&self) -> &TableIdent {
        &self.table
    }

    /// The topic whose rows it holds.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// The table, made when it is missing and given the columns it lacks, with its marker.
    ///
    /// # Errors
    /// [`LakeError::NotOurs`], [`LakeError::OtherTopic`], [`LakeError::MarkerLost`], [`LakeError::Schema`].
    pub async fn prepare(&self, kind: TableKind, log: &SchemaRef) -> Result<(LoadedTable, Marker), LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            let table = match self.catalog.load(&self.table).await {
                Ok(table) => table,
                Err(CatalogError::NoSuchTable(_)) => match self.create(kind, log).await {
                    Ok(table) => table,
                    Err(CatalogError::TableExists(_) | CatalogError::Unknown { .. }) => continue,
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            };
            let marker = self.check_owner(&table.metadata)?;
            let current = table.metadata.current_schema();
            let last_column_id = table.metadata.last_column_id();
            let Some(schema) = evolved_schema(&self.table.name, current, last_column_id, log)? else {
                return Ok((table, marker));
            };
            let change = TableChange {
                ident: self.table.clone(),
                requirements: vec![
                    TableRequirement::UuidMatch { uuid: table.metadata.uuid() },
                    TableRequirement::CurrentSchemaIdMatch { current_schema_id: table.metadata.current_schema_id() },
                    TableRequirement::LastAssignedFieldIdMatch { last_assigned_field_id: last_column_id },
                ],
                updates: vec![
                    TableUpdate::AddSchema { schema },
                    TableUpdate::SetCurrentSchema { schema_id: TableMetadataBuilder::LAST_ADDED },
                ],
            };
            match self.catalog.commit(vec![change]).await {
                Ok(_) | Err(CatalogError::Conflict { .. } | CatalogError::Unknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(LakeError::Contended { table: self.table.clone(), attempts: ATTEMPTS_MAX })
    }

    fn check_owner(&self, metadata: &TableMetadata) -> Result<Marker, LakeError> {
        let Some(found) = owner(metadata) else {
            return Err(LakeError::NotOurs { table: self.table.clone(), property: TOPIC_ID });
        };
        if found != self.topic_id {
            return Err(LakeError::OtherTopic { table: self.table.clone(), found, expected: self.topic_id });
        }
        let marker = Marker::read(&self.table, metadata)?;
        marker.expect_topic(&self.table, self.topic_id)?;
        Ok(marker)
    }

    async fn create(&self, kind: TableKind, log: &SchemaRef) -> Result<LoadedTable, CatalogError> {
        let schema = iceberg_schema(&self.table.name, kind, log)?;
        let properties = HashMap::from([
            (TOPIC_ID.to_owned(), self.topic_id.as_uuid().to_string()),
            (KIND.to_owned(), kind.as_str().to_owned()),
            (MARKER.to_owned(), Marker::new(self.topic_id).to_text()),
            ("write.parquet.compression-codec".to_owned(), "zstd".to_owned()),
            ("write.metadata.delete-after-commit.enabled".to_owned(), "true".to_owned()),
            ("write.metadata.previous-versions-max".to_owned(), "20".to_owned()),
        ]);
        let metadata = TableMetadataBuilder::new(
            schema,
            UnboundPartitionSpec::builder().build(),
            SortOrder::unsorted_order(),
            self.catalog.default_location(&self.table),
            FormatVersion::V2,
            properties,
        )?
        .build()?
        .metadata;
        self.catalog.create(&self.table, metadata).await
    }

    /// Finds out what became of a plan that an earlier committer, or this one, left behind, and ends it. Must have
    /// succeeded before [`Self::begin`]. Cancel safe: what it did not finish, the next call does.
    ///
    /// # Errors
    /// [`LakeError::Fenced`] when another committer took over; otherwise what kept the fate from being known.
    pub async fn settle(&self) -> Result<(), LakeError> {
        let Some((plan, stored)) = self.row().load().await? else { return Ok(()) };
        match plan.phase {
            // It was written under an epoch that is over or ours, and so it never reached the catalog, nor will it.
            PlanPhase::Writing => self.abandon(Pending { plan, stored }).await,
            PlanPhase::Committing { .. } => self.drive(Pending { plan, stored }).await.map(|_| ()),
        }
    }

    /// Makes the next plan durable. The data files may be written once it is.
    ///
    /// # Errors
    /// [`LakeError::Fenced`], also when a plan is still unsettled.
    pub async fn begin(&self, table: &LoadedTable) -> Result<Pending, LakeError> {
        let plan = Plan {
            id: Uuid::new_v4(),
            topic_id: self.topic_id,
            table_uuid: table.metadata.uuid(),
            location: table.metadata.location().to_owned(),
            epoch: self.epoch,
            phase: PlanPhase::Writing,
        };
        let stored = self.row().save(&plan, None, self.epoch).await?;
        Ok(Pending { plan, stored })
    }

    /// Commits written files on top of `table`; `None` when the table moved on in a way that makes the plan void, and its
    /// files are gone.
    ///
    /// # Errors
    /// After an error the outcome may be unknown; [`Self::settle`] finds out.
    pub async fn commit(
        &self,
        pending: Pending,
        table: &LoadedTable,
        marker: &Marker,
        ranges: Vec<PlannedRange>,
        files: Vec<DataFile>,
    ) -> Result<Option<Poured>, LakeError> {
        let Pending { mut plan, stored } = pending;
        let partition_type = table.metadata.default_partition_type();
        let files = files
            .into_iter()
            .map(|file| serialize_data_file_to_json(file, partition_type, FormatVersion::V2))
            .collect::<Result<_, _>>()?;
        plan.phase = PlanPhase::Committing {
            ranges,
            files,
            base_snapshot: table.metadata.current_snapshot_id(),
            snapshot_id: fresh_snapshot_id(&table.metadata),
            sequence: marker.sequence + 1,
            attempts: Vec::new(),
        };
        let stored = self.row().save(&plan, Some(stored), self.epoch).await?;
        self.drive(Pending { plan, stored }).await
    }

    /// Ends a plan whose files no snapshot names, and never will.
    ///
    /// # Errors
    /// [`LakeError::Storage`] or [`LakeError::Fenced`].
    pub async fn abandon(&self, pending: Pending) -> Result<(), LakeError> {
        for location in self.storage.list(&pending.plan.data_folder()).await? {
            self.storage.delete(&location).await?;
        }
        if let PlanPhase::Committing { snapshot_id, attempts, .. } = &pending.plan.phase {
            for attempt in attempts {
                for location in files_of_attempt(&pending.plan.location, *snapshot_id, *attempt) {
                    self.storage.delete(&location).await?;
                }
            }
        }
        self.row().remove(pending.stored, self.epoch).await
    }

    /// Commits a committing plan, as often as it takes to know its fate.
    async fn drive(&self, mut pending: Pending) -> Result<Option<Poured>, LakeError> {
        let mut expired = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            let table = match self.catalog.load(&self.table).await {
                Ok(table) if table.metadata.uuid() == pending.plan.table_uuid => table,
                Ok(_) | Err(CatalogError::NoSuchTable(_)) => {
                    // The table was dropped or renamed. It may hold our files under its new name, so they stay.
                    tracing::warn!(table = %self.table, plan = %pending.plan.id, "the table of a pending commit is gone");
                    self.row().remove(pending.stored, self.epoch).await?;
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            let marker = Marker::read(&self.table, &table.metadata)?;
            marker.expect_topic(&self.table, pending.plan.topic_id)?;
            match fate(&pending.plan, &table.metadata, &marker) {
                Fate::Committed { snapshot_id } => {
                    let poured = self.finish(pending, snapshot_id).await?;
                    expire::remove_files(&self.storage, &table.metadata, &expired).await;
                    return Ok(Some(poured));
                }
                Fate::Covered => {
                    tracing::warn!(table = %self.table, plan = %pending.plan.id, "later commits cover a pending one; its files stay");
                    self.row().remove(pending.stored, self.epoch).await?;
                    return Ok(None);
                }
                Fate::Open => {}
                Fate::Impossible => {
                    if !starts_match(&pending.plan, &marker) {
                        self.abandon(pending).await?;
                        return Ok(None);
                    }
                    // Somebody compacted or set a property: the same files, planned anew on the new base.
                    pending = self.replan(pending, &table.metadata, &marker).await?;
                }
            }
            expired = expire::due(&table.metadata, self.clock.now_ms());
            pending = self.attempt(pending, &table, &marker, &expired).await?;
        }
        Err(LakeError::Contended { table: self.table.clone(), attempts: ATTEMPTS_MAX })
    }

    async fn replan(&self, pending: Pending, metadata: &TableMetadata, marker: &Marker) -> Result<Pending, LakeError> {
        let Pending { mut plan, stored } = pending;
        if let PlanPhase::Committing { base_snapshot, snapshot_id, sequence, attempts, .. } = &mut plan.phase {
            for attempt in attempts.drain(..) {
                for location in files_of_attempt(&plan.location, *snapshot_id, attempt) {
                    self.storage.delete(&location).await?;
                }
            }
            *base_snapshot = metadata.current_snapshot_id();
            *snapshot_id = fresh_snapshot_id(metadata);
            *sequence = marker.sequence + 1;
        }
        plan.epoch = self.epoch;
        let stored = self.row().save(&plan, Some(stored), self.epoch).await?;
        Ok(Pending { plan, stored })
    }

    /// Asks the catalog once. What it answers, short of an outright refusal, is looked up rather than believed.
    async fn attempt(
        &self,
        pending: Pending,
        table: &LoadedTable,
        marker: &Marker,
        expired: &[SnapshotRef],
    ) -> Result<Pending, LakeError> {
        let Pending { mut plan, stored } = pending;
        let attempt = Uuid::new_v4();
        let PlanPhase::Committing { ranges, files, base_snapshot, snapshot_id, attempts, .. } = &mut plan.phase else {
            unreachable!("only committing plans are driven");
        };
        attempts.push(attempt);
        let (base_snapshot, snapshot_id) = (*base_snapshot, *snapshot_id);
        let metadata = &table.metadata;
        let files = files
            .iter()
            .map(|json| {
                deserialize_data_file_from_json(
                    json,
                    metadata.default_partition_spec_id(),
                    metadata.default_partition_type(),
                    metadata.current_schema(),
                )
            })
            .collect::<Result<Vec<_>, _>>()?;
        let next = marker.after(plan.id, self.epoch, ranges.iter().map(|range| (range.partition, range.end)));
        let stored = self.row().save(&plan, Some(stored), self.epoch).await?;
        let io = self.storage.file_io();
        let now_ms = self.clock.now_ms();
        let production = Production { io: &io, base: metadata, snapshot_id, attempt, now_ms };
        let snapshot = production.append(files, &next).await?;
        let mut change = TableChange {
            ident: self.table.clone(),
            requirements: vec![
                TableRequirement::UuidMatch { uuid: plan.table_uuid },
                TableRequirement::RefSnapshotIdMatch { r#ref: MAIN_BRANCH.to_owned(), snapshot_id: base_snapshot },
            ],
            updates: vec![
                TableUpdate::AddSnapshot { snapshot },
                TableUpdate::SetSnapshotRef { ref_name: MAIN_BRANCH.to_owned(), reference: main_at(snapshot_id) },
                TableUpdate::SetProperties { updates: HashMap::from([(MARKER.to_owned(), next.to_text())]) },
            ],
        };
        if !expired.is_empty() {
            let snapshot_ids = expired.iter().map(|snapshot| snapshot.snapshot_id()).collect();
            change.updates.push(TableUpdate::RemoveSnapshots { snapshot_ids });
        }
        match self.catalog.commit(vec![change]).await {
            Ok(_) => {}
            Err(error @ (CatalogError::Conflict { .. } | CatalogError::Unknown { .. })) => {
                tracing::info!(table = %self.table, %error, "commit not confirmed; looking it up");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Pending { plan, stored })
    }

    /// Reads a commit back from where it is stored (LAKE-2), then ends its plan.
    async fn finish(&self, pending: Pending, snapshot_id: i64) -> Result<Poured, LakeError> {
        let wrong = |found: String| LakeError::ReadBack { table: self.table.clone(), found };
        let table = self.catalog.load_uncached(&self.table).await?;
        let marker = Marker::read(&self.table, &table.metadata)?;
        let PlanPhase::Committing { ranges, files, snapshot_id: planned, attempts, .. } = &pending.plan.phase else {
            unreachable!("only committing plans are finished");
        };
        for range in ranges {
            let end = marker.ends.get(&range.partition).copied();
            if end.is_none_or(|end| end < range.end) {
                return Err(wrong(format!(
                    "end {end:?} for partition {}, where {} was committed",
                    range.partition, range.end
                )));
            }
        }
        let named = self.files_named_by(&table.metadata, snapshot_id).await?;
        for json in files {
            let file = deserialize_data_file_from_json(
                json,
                table.metadata.default_partition_spec_id(),
                table.metadata.default_partition_type(),
                table.metadata.current_schema(),
            )?;
            let size = self.storage.size(file.file_path()).await?;
            // A compaction since may have replaced our files and removed them; then the snapshot is not current any more.
            let is_current = table.metadata.current_snapshot_id() == Some(snapshot_id);
            if is_current && !named.contains(file.file_path()) {
                return Err(wrong(format!("manifests that do not name {}", file.file_path())));
            }
            if is_current && size != Some(file.file_size_in_bytes()) {
                return Err(wrong(format!(
                    "{} with size {size:?}, where {} bytes were written",
                    file.file_path(),
                    file.file_size_in_bytes()
                )));
            }
        }
        if let Some(snapshot) = table.metadata.snapshot_by_id(*planned) {
            let list = snapshot.manifest_list();
            for attempt in attempts.iter().filter(|attempt| !list.contains(&attempt.to_string())) {
                for location in files_of_attempt(&pending.plan.location, *planned, *attempt) {
                    self.storage.delete(&location).await?;
                }
            }
        }
        self.row().remove(pending.stored, self.epoch).await?;
        Ok(Poured { ends: marker.ends, snapshot_id })
    }

    /// Data files in the manifests that a snapshot brought along, read from where they are stored.
    async fn files_named_by(&self, metadata: &TableMetadata, snapshot_id: i64) -> Result<BTreeSet<String>, LakeError> {
        let mut named = BTreeSet::new();
        if metadata.current_snapshot_id() != Some(snapshot_id) {
            return Ok(named);
        }
        let io = self.storage.file_io();
        for manifest in current_manifests(&io, metadata).await? {
            if manifest.added_snapshot_id == snapshot_id && manifest.has_added_files() {
                let loaded = manifest.load_manifest(&io).await?;
                named.extend(loaded.entries().iter().map(|entry| entry.file_path().to_owned()));
            }
        }
        Ok(named)
    }

    fn row(&self) -> PlanRow<'_> {
        PlanRow::new(self.store.as_ref(), &self.table)
    }
}

fn fate(plan: &Plan, metadata: &TableMetadata, marker: &Marker) -> Fate {
    let PlanPhase::Committing { base_snapshot, snapshot_id, sequence, .. } = &plan.phase else {
        return Fate::Impossible;
    };
    if metadata.snapshot_by_id(*snapshot_id).is_some() || marker.plan == plan.id {
        return Fate::Committed { snapshot_id: *snapshot_id };
    }
    match marker.sequence.cmp(sequence) {
        // Its snapshot may have come and been expired since.
        std::cmp::Ordering::Greater => Fate::Covered,
        // Another commit took its place in the sequence.
        std::cmp::Ordering::Equal => Fate::Impossible,
        std::cmp::Ordering::Less if metadata.current_snapshot_id() == *base_snapshot => Fate::Open,
        std::cmp::Ordering::Less => Fate::Impossible,
    }
}

/// Whether every range of a plan still begins where the table ends.
fn starts_match(plan: &Plan, marker: &Marker) -> bool {
    let PlanPhase::Committing { ranges, .. } = &plan.phase else { return false };
    ranges.iter().all(|range| marker.ends.get(&range.partition).is_none_or(|end| *end == range.start))
}

fn main_at(snapshot_id: i64) -> SnapshotReference {
    SnapshotReference::new(
        snapshot_id,
        SnapshotRetention::Branch { min_snapshots_to_keep: None, max_snapshot_age_ms: None, max_ref_age_ms: None },
    )
}

/// A positive random id that the table does not have.
fn fresh_snapshot_id(metadata: &TableMetadata) -> i64 {
    loop {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let id = i64::try_from((high ^ low) >> 1).expect("63 bits fit");
        if id != 0 && metadata.snapshot_by_id(id).is_none() {
            return id;
        }
    }
}
