//! Log compaction where the broker itself relies on it: `__consumer_offsets`.

mod wire;

use std::path::Path;
use std::time::{Duration, Instant};

use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use weir_broker::app::App;
use weir_broker::cli::{ServeOptions, Settings};
use weir_model::{Isolation, Offset};
use weir_storage::{Chunk, Partition, ReadLimits, RowForm, TopicSpec};
use wire::Client;

/// Partitions committed together, and how often: 200,000 commits.
const PARTITIONS: i32 = 500;
const ROUNDS: i64 = 400;

async fn start(directory: &Path) -> App {
    App::start(settings(directory)).await.expect("the broker starts")
}

/// A copy of a stopped broker's directory: this process still has the first one locked.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn settings(directory: &Path) -> Settings {
    let options = ServeOptions {
        data: Some(directory.to_owned()),
        kafka: Some("127.0.0.1:0".to_owned()),
        http: "127.0.0.1:0".to_owned(),
        set: vec!["offsets.topic.num.partitions=1".to_owned()],
        ..ServeOptions::default()
    };
    Settings::resolve(&options, std::iter::empty()).expect("the settings are right")
}

fn commit(offset: i64) -> OffsetCommitRequest {
    let partitions = (0..PARTITIONS).map(|index| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(StrBytes::from_static_str("where I am")))
    });
    OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(TopicName(StrBytes::from_static_str("t")))
                .with_partitions(partitions.collect()),
        ])
}

fn offsets_partition(app: &App) -> Partition {
    let storage = &app.broker().storage;
    let topic = storage.topics().by_name("__consumer_offsets").cloned().expect("made by the first commit");
    storage.partitions(&topic).into_iter().next().expect("one partition")
}

/// Records and bytes that a load of the group reads.
async fn replayed(partition: &Partition) -> (i64, usize) {
    let (mut records, mut bytes) = (0, 0);
    let mut at = partition.offsets().log_start();
    while at < partition.offsets().high_watermark() {
        let limits = ReadLimits { max_bytes: 4 << 20, at_least_one: true };
        let read =
            partition.read_rows(at, limits, Isolation::ReadUncommitted, &RowForm::default()).await.expect("read");
        let mut whole = Vec::new();
        for chunk in &read.chunks {
            match chunk {
                Chunk::Bytes(part) => whole.extend_from_slice(part),
                Chunk::File { file, position, len } => {
                    use std::os::unix::fs::FileExt;
                    let start = whole.len();
                    whole.resize(start + len, 0);
                    file.read_exact_at(&mut whole[start..], *position).expect("read");
                }
            }
        }
        bytes += whole.len();
        for batch in wire::batches(whole.into()) {
            records += i64::from(i32::from_be_bytes(batch[57..61].try_into().expect("four bytes")));
        }
        assert!(read.next > at, "a read moves on");
        at = read.next;
    }
    (records, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_thousand_commits_leave_a_small_log_and_a_short_replay() {
    let directory = tempfile::tempdir().expect("a directory");
    let app = start(directory.path()).await;
    let spec = TopicSpec {
        name: weir_model::TopicName::new("t").expect("legal"),
        partitions: PARTITIONS,
        configs: std::collections::BTreeMap::new(),
        internal: false,
    };
    app.broker().storage.create_topic(spec).expect("made");
    let mut client = Client::connect(app.kafka(), "test").await;
    for round in 1..=ROUNDS {
        let answer = client.call(8, &commit(round)).await;
        assert!(answer.topics[0].partitions.iter().all(|partition| partition.error_code == 0));
    }
    let partition = offsets_partition(&app);
    let records = i64::from(PARTITIONS) * ROUNDS;
    assert!(partition.offsets().high_watermark().get() >= records);
    // What may still be there: the newest of each, and a tail that is not worth sealing, twice: one of them being compacted.
    let most_bytes = 9 << 20;
    let patience = Instant::now() + Duration::from_secs(30);
    while replayed(&partition).await.1 > most_bytes {
        assert!(Instant::now() < patience, "{:?}", partition.status());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop((client, partition));
    app.stop().await.expect("stops");

    let second = tempfile::tempdir().expect("a directory");
    copy(directory.path(), second.path());
    let app = start(second.path()).await;
    let partition = offsets_partition(&app);
    let (read, bytes) = replayed(&partition).await;
    println!("{read} of {records} records replayed, {bytes} bytes");
    assert!(read < records / 3 && bytes <= most_bytes, "{read} records, {bytes} bytes");
    assert_eq!(partition.offsets().log_start(), Offset::ZERO);
    let mut client = Client::connect(app.kafka(), "test").await;
    let topic = OffsetFetchRequestTopics::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_partition_indexes((0..PARTITIONS).collect());
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(Some(vec![topic]));
    let fetched = client.call(8, &OffsetFetchRequest::default().with_groups(vec![group])).await;
    let partitions = &fetched.groups[0].topics[0].partitions;
    assert_eq!(partitions.len(), usize::try_from(PARTITIONS).expect("positive"));
    assert!(partitions.iter().all(|partition| partition.committed_offset == ROUNDS));
    app.stop().await.expect("stops");
}
