//! What the members subscribe to: names, regular expressions, and the epoch that follows from a change of either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::assignment::TopicCatalog;
use super::event::Env;
use super::hash::metadata_hash;
use super::{ConsumerGroup, ConsumerMember};
use crate::coordinator::group::event::Now;
use crate::coordinator::group::records::Record;
use crate::coordinator::group::records::consumer::{ConsumerKey, ConsumerValue, ResolvedRegex};

/// Regular expressions of a group are resolved anew no sooner than this after the last time, in milliseconds
/// (Kafka's `REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`).
const REGEX_MIN_INTERVAL_MS: i64 = 10_000;

/// What a change of a member's regular expression means for the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegexChange {
    /// It is the same.
    None,
    /// It is another, and nobody knows yet what it matches.
    Unresolved,
    /// It is another, and what the member subscribes to is known.
    Resolved,
}

/// Regular expressions to be resolved outside the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRegexes {
    /// Which.
    pub patterns: BTreeSet<Arc<str>>,
}

impl ConsumerGroup {
    /// How many members subscribe to this expression.
    pub(super) fn regex_subscribers(&self, regex: &str) -> usize {
        self.regex_subscribers.get(regex).copied().unwrap_or(0)
    }

    /// The names of all topics that any member subscribes to.
    pub(super) fn subscribed_topics(&self) -> BTreeSet<&str> {
        let mut topics: BTreeSet<&str> =
            self.members.values().flat_map(|member| &member.metadata.topics).map(|name| &**name).collect();
        for resolved in self.regex_subscribers.keys().filter_map(|regex| self.regexes.get(regex)) {
            topics.extend(resolved.topics.iter().map(|name| &**name));
        }
        topics
    }

    /// The ids of the topics a member subscribes to that exist.
    pub(super) fn subscribed_ids(&self, member: &ConsumerMember, topics: &dyn TopicCatalog) -> BTreeSet<Uuid> {
        let matched = self.regexes.get(&member.metadata.regex).into_iter().flat_map(|resolved| &resolved.topics);
        member
            .metadata
            .topics
            .iter()
            .chain(matched)
            .filter_map(|name| topics.by_name(name))
            .map(|facts| facts.id)
            .collect()
    }

    /// Follows a member's change from the expression `before` to the one it has now.
    pub(super) fn regex_changed(
        &mut self,
        before: &Arc<str>,
        after: &Arc<str>,
        records: &mut Vec<Record>,
    ) -> RegexChange {
        if before == after {
            return RegexChange::None;
        }
        if !before.is_empty() && self.regex_subscribers(before) == 0 && self.regexes.contains_key(before) {
            self.put(ConsumerKey::Regex(before.clone()), None, records);
        }
        if after.is_empty() || self.regexes.contains_key(after) {
            RegexChange::Resolved
        } else {
            RegexChange::Unresolved
        }
    }

    /// The expressions to resolve now, if it is time: one is not resolved, or the topics have changed. The caller resolves
    /// them and brings the result to [`Self::regexes_resolved`], or reports [`Self::resolving_failed`].
    pub(super) fn due_regexes(&mut self, env: Env<'_>) -> Option<ResolveRegexes> {
        if self.resolving || self.regex_subscribers.is_empty() {
            return None;
        }
        let unresolved = self.regex_subscribers.keys().any(|pattern| !self.regexes.contains_key(pattern));
        let (last, version) = match self.resolved.filter(|_| !self.regexes.is_empty()) {
            Some((at, version)) => (Some(at), Some(version)),
            None => (None, None),
        };
        if last.is_some_and(|at| env.now.elapsed_ms <= at + REGEX_MIN_INTERVAL_MS) {
            return None;
        }
        if !unresolved && version == Some(env.topics.version()) {
            return None;
        }
        self.resolving = true;
        Some(ResolveRegexes { patterns: self.regex_subscribers.keys().cloned().collect() })
    }

    /// Takes in what expressions matched in the topics of `version`.
    pub fn regexes_resolved(
        &mut self,
        env: Env<'_>,
        version: u64,
        matches: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
        records: &mut Vec<Record>,
    ) {
        self.resolving = false;
        self.resolved = Some((env.now.elapsed_ms, version));
        let mut changed = false;
        for (pattern, topics) in matches {
            if self.regex_subscribers(&pattern) == 0 {
                continue;
            }
            let known = self.regexes.get(&pattern);
            if known.is_some_and(|known| known.topics == topics) {
                continue;
            }
            // A first resolution that matches nothing is written too, and changes nothing.
            changed |= known.is_some() || !topics.is_empty();
            let resolved = ResolvedRegex {
                topics,
                version: i64::try_from(version).unwrap_or(i64::MAX),
                resolved_wall_ms: env.now.wall_ms,
            };
            self.put(ConsumerKey::Regex(pattern), Some(ConsumerValue::Regex(resolved)), records);
        }
        if !self.members.is_empty() {
            self.update_epoch(env, changed, records);
        }
    }

    /// The expressions could not be resolved; the next heartbeat tries again.
    pub fn resolving_failed(&mut self, now: Now) {
        self.resolving = false;
        if let Some((at, _)) = &mut self.resolved {
            *at = now.elapsed_ms;
        }
    }

    /// Whether the topics may have changed since the epoch was looked at.
    pub(super) fn topics_changed(&self, env: Env<'_>) -> bool {
        self.seen_topics != Some(env.topics.version())
    }

    /// Raises the group's epoch if told to, or if the subscribed topics are not those of the last epoch.
    pub(super) fn update_epoch(&mut self, env: Env<'_>, bump: bool, records: &mut Vec<Record>) {
        self.seen_topics = Some(env.topics.version());
        let hash = metadata_hash(self.subscribed_topics(), env.topics);
        if bump || hash != self.metadata_hash {
            let epoch = self.epoch + 1;
            self.put(ConsumerKey::Group, Some(ConsumerValue::Group { epoch, metadata_hash: hash }), records);
        }
        if self.has_partition_metadata {
            self.put(ConsumerKey::PartitionMetadata, None, records);
        }
    }
}
