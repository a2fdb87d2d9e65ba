//! The `rdkafka` crate as a client of the compatibility matrix.
//!
//! The tests are in Python; this program does their verbs with Rust's client. Each line of standard input is one
//! request as JSON, each line of standard output its answer: `{"ok": ...}` or `{"refused": "text"}`. Bytes travel as
//! base64, null as null. Group members live in this process between requests, by number.

mod admin;
mod consume;
mod produce;
mod record;
mod transact;

use std::collections::HashMap;
use std::io::{BufRead, Write};

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::consume::Member;
use crate::record::WireRecord;
use crate::transact::Transaction;

#[derive(Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
enum Request {
    Produce {
        bootstrap: String,
        topic: String,
        records: Vec<WireRecord>,
        codec: String,
        idempotent: bool,
    },
    Fetch {
        bootstrap: String,
        topic: String,
        partition: i32,
        start: i64,
        count: usize,
        client_id: String,
        read_committed: bool,
        timeout: f64,
    },
    OffsetAt {
        bootstrap: String,
        topic: String,
        partition: i32,
        timestamp: i64,
    },
    Join {
        bootstrap: String,
        group: String,
        topic: String,
        cooperative: bool,
        instance: String,
        server_side: bool,
    },
    Poll {
        member: usize,
        seconds: f64,
    },
    Assignment {
        member: usize,
    },
    Revoked {
        member: usize,
    },
    Commit {
        member: usize,
    },
    Close {
        member: usize,
    },
    CreateTopic {
        bootstrap: String,
        topic: String,
        partitions: i32,
        config: HashMap<String, String>,
    },
    DeleteTopic {
        bootstrap: String,
        topic: String,
    },
    TopicConfig {
        bootstrap: String,
        topic: String,
    },
    ReplaceTopicConfig {
        bootstrap: String,
        topic: String,
        config: HashMap<String, String>,
    },
    Topics {
        bootstrap: String,
    },
    Transact {
        bootstrap: String,
        topic: String,
        transactional_id: String,
        transactions: Vec<Transaction>,
    },
    CopyInTransaction {
        bootstrap: String,
        topic: String,
        to: String,
        group: String,
        transactional_id: String,
        count: usize,
        commit: bool,
    },
}

#[derive(Default)]
struct Session {
    members: HashMap<usize, Member>,
    joined: usize,
}

impl Session {
    fn answer(&mut self, request: Request) -> Result<Value> {
        match request {
            Request::Produce { bootstrap, topic, records, codec, idempotent } => {
                Ok(json!(produce::produce(&bootstrap, &topic, &records, &codec, idempotent)?))
            }
            Request::Fetch { bootstrap, topic, partition, start, count, client_id, read_committed, timeout } => {
                let from = consume::From { topic: &topic, partition, start, client_id: &client_id, read_committed };
                Ok(json!(consume::fetch(&bootstrap, from, count, timeout)?))
            }
            Request::OffsetAt { bootstrap, topic, partition, timestamp } => {
                Ok(json!(consume::offset_at(&bootstrap, &topic, partition, timestamp)?))
            }
            Request::Join { bootstrap, group, topic, cooperative, instance, server_side } => {
                self.joined += 1;
                let how = consume::Membership { cooperative, instance: &instance, server_side };
                self.members.insert(self.joined, Member::join(&bootstrap, &group, &topic, how)?);
                Ok(json!(self.joined))
            }
            Request::Poll { member, seconds } => Ok(json!(self.member(member)?.poll(seconds)?)),
            Request::Assignment { member } => Ok(json!(self.member(member)?.assignment()?)),
            Request::Revoked { member } => Ok(json!(self.member(member)?.revoked())),
            Request::Commit { member } => Ok(json!(self.member(member)?.commit()?)),
            Request::Close { member } => Ok(json!(self.members.remove(&member).is_some())),
            Request::CreateTopic { bootstrap, topic, partitions, config } => {
                Ok(json!(admin::create_topic(&bootstrap, &topic, partitions, &config)?))
            }
            Request::DeleteTopic { bootstrap, topic } => Ok(json!(admin::delete_topic(&bootstrap, &topic)?)),
            Request::TopicConfig { bootstrap, topic } => Ok(json!(admin::topic_config(&bootstrap, &topic)?)),
            Request::ReplaceTopicConfig { bootstrap, topic, config } => {
                Ok(json!(admin::replace_topic_config(&bootstrap, &topic, &config)?))
            }
            Request::Topics { bootstrap } => Ok(json!(admin::topics(&bootstrap)?)),
            Request::Transact { bootstrap, topic, transactional_id, transactions } => {
                Ok(json!(transact::transact(&bootstrap, &topic, &transactional_id, &transactions)?))
            }
            Request::CopyInTransaction { bootstrap, topic, to, group, transactional_id, count, commit } => {
                let job = transact::Copy { topic: &topic, to: &to, group: &group, count, commit };
                Ok(json!(transact::copy(&bootstrap, &transactional_id, &job)?))
            }
        }
    }

    fn member(&self, number: usize) -> Result<&Member> {
        self.members.get(&number).ok_or_else(|| anyhow::anyhow!("no member {number}: it was closed or never joined"))
    }
}

fn main() -> Result<()> {
    let mut session = Session::default();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let answer = match session.answer(request) {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "refused": format!("{error:#}") }),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
