//! What a committer is about to do, durable before it does it.

use bytes::Bytes;
use iceberg::TableIdent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_model::TopicId;

use crate::LakeError;
use crate::store::{Change, Expect, LakeStore, Outcome};

const PLAN_PREFIX: &str = "lake/plan/";
const EPOCH_PREFIX: &str = "lake/epoch/";

/// A stretch of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRange {
    /// The partition.
    pub partition: i32,
    /// First offset of the stretch.
    pub start: i64,
    /// First offset beyond it.
    pub end: i64,
}

/// How far a plan has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
pub enum PlanPhase {
    /// Data files are being written; nothing has been asked of the catalog.
    Writing,
    /// Everything is written, and the catalog may have been asked.
    Committing {
        /// What the commit adds, by partition.
        ranges: Vec<PlannedRange>,
        /// The data files, as Iceberg's own JSON.
        files: Vec<String>,
        /// Current snapshot when the plan was made; the commit is made on this one or not at all.
        base_snapshot: Option<i64>,
        /// Id that the commit's snapshot has.
        snapshot_id: i64,
        /// The sequence that the commit's marker has.
        sequence: u64,
        /// Names under which manifests were or will be written, one per attempt.
        attempts: Vec<Uuid>,
    },
}

/// See the module. One table has at most one plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its own id; also the name of the folder of its data files.
    pub id: Uuid,
    /// The topic.
    pub topic_id: TopicId,
    /// The table's uuid; a table made again under the same name is another.
    pub table_uuid: Uuid,
    /// The table's location.
    pub location: String,
    /// The committer's epoch.
    pub epoch: u64,
    /// How far it has come.
    #[serde(flatten)]
    pub phase: PlanPhase,
}

/// Whether the value of a committer's key decodes; `None` for a key of somebody else.
pub(crate) fn check_record(key: &str, value: &[u8]) -> Option<Result<(), String>> {
    if key.starts_with(PLAN_PREFIX) {
        Some(serde_json::from_slice::<Plan>(value).map(|_| ()).map_err(|error| error.to_string()))
    } else if key.starts_with(EPOCH_PREFIX) {
        let epoch = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
        Some(epoch.map(|_| ()).ok_or_else(|| "it is no number".to_owned()))
    } else {
        None
    }
}

impl Plan {
    /// Where the plan's data files are, and nothing else.
    pub fn data_folder(&self) -> String {
        format!("{}/data/{}", self.location, self.id)
    }
}

/// Plans and epochs of one table in the metadata store.
#[derive(Clone, Debug)]
pub(super) struct PlanRow<'a> {
    store: &'a dyn LakeStore,
    table: &'a TableIdent,
}

impl<'a> PlanRow<'a> {
    pub(super) fn new(store: &'a dyn LakeStore, table: &'a TableIdent) -> Self {
        Self { store, table }
    }

    fn plan_key(&self) -> String {
        format!("{PLAN_PREFIX}{}", self.table)
    }

    fn epoch_key(&self) -> String {
        format!("{EPOCH_PREFIX}{}", self.table)
    }

    /// Takes the next epoch of the table; every older committer is fenced from now on.
    pub(super) async fn take_epoch(&self) -> Result<u64, LakeError> {
        loop {
            let key = self.epoch_key();
            let current = self.store.get(&key).await?;
            let next = current.as_ref().map(|value| self.parse_epoch(value)).transpose()?.unwrap_or(0) + 1;
            let change = Change::Put { key: key.clone(), value: Bytes::from(next.to_string()) };
            match self.store.commit(vec![Expect { key, value: current }], vec![change]).await? {
                Outcome::Applied => return Ok(next),
                Outcome::Conflict => {}
            }
        }
    }

    fn parse_epoch(&self, value: &Bytes) -> Result<u64, LakeError> {
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| LakeError::Record { key: self.epoch_key(), reason: format!("{value:?} is not a number") })
    }

    /// The pending plan, with its bytes as stored.
    pub(super) async fn load(&self) -> Result<Option<(Plan, Bytes)>, LakeError> {
        let key = self.plan_key();
        let Some(value) = self.store.get(&key).await? else { return Ok(None) };
        let plan =
            serde_json::from_slice(&value).map_err(|error| LakeError::Record { key, reason: error.to_string() })?;
        Ok(Some((plan, value)))
    }

    /// Writes a plan in place of `previous`, if the epoch is still ours; returns its bytes.
    pub(super) async fn save(&self, plan: &Plan, previous: Option<Bytes>, epoch: u64) -> Result<Bytes, LakeError> {
        let value = Bytes::from(serde_json::to_vec(plan).expect("a plan always serialises"));
        let change = Change::Put { key: self.plan_key(), value: value.clone() };
        self.change(previous, change, epoch).await?;
        Ok(value)
    }

    /// Removes a plan whose end is known.
    pub(super) async fn remove(&self, previous: Bytes, epoch: u64) -> Result<(), LakeError> {
        self.change(Some(previous), Change::Delete { key: self.plan_key() }, epoch).await
    }

    async fn change(&self, previous: Option<Bytes>, change: Change, epoch: u64) -> Result<(), LakeError> {
        let expect = vec![
            Expect { key: self.epoch_key(), value: Some(Bytes::from(epoch.to_string())) },
            Expect { key: self.plan_key(), value: previous },
        ];
        match self.store.commit(expect, vec![change]).await? {
            Outcome::Applied => Ok(()),
            Outcome::Conflict => {
                let value = self.store.get(&self.epoch_key()).await?;
                let current = value.as_ref().map(|value| self.parse_epoch(value)).transpose()?.unwrap_or(0);
                Err(LakeError::Fenced { table: self.table.clone(), ours: epoch, current })
            }
        }
    }
}
