use bytes::Bytes;
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::protocol::StrBytes;

use super::*;

const VERSION: i16 = 12;

/// What a partition answers: its high watermark, and whether there are records.
#[derive(Clone, Copy)]
struct Answers(i64, bool);

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn request(id: i32, epoch: i32, partitions: &[(&str, i32)]) -> FetchRequest {
    let topics = partitions.iter().map(|(topic, index)| {
        FetchTopic::default()
            .with_topic(name(topic))
            .with_partitions(vec![FetchPartition::default().with_partition(*index)])
    });
    FetchRequest::default().with_session_id(id).with_session_epoch(epoch).with_topics(topics.collect())
}

/// What a broker answers for everything in `request.topics`.
fn answers(request: &FetchRequest, of: impl Fn(&str, i32) -> Answers) -> Vec<FetchedTopic<Bytes>> {
    let topic = |topic: &FetchTopic| FetchedTopic {
        name: topic.topic.to_string(),
        id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|asked| {
                let Answers(high_watermark, has_records) = of(&topic.topic, asked.partition);
                FetchedPartition {
                    index: asked.partition,
                    error_code: 0,
                    high_watermark,
                    last_stable_offset: high_watermark,
                    log_start_offset: 0,
                    aborted_transactions: None,
                    records: if has_records { vec![Bytes::from_static(b"records")] } else { vec![] },
                }
            })
            .collect(),
    };
    request.topics.iter().map(topic).collect()
}

fn named(topics: &[FetchedTopic<Bytes>]) -> Vec<(String, i32)> {
    topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.name.clone(), partition.index)))
        .collect()
}

fn asked(request: &FetchRequest) -> Vec<(String, i32)> {
    request
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|asked| (topic.topic.to_string(), asked.partition)))
        .collect()
}

fn owned(partitions: &[(&str, i32)]) -> Vec<(String, i32)> {
    partitions.iter().map(|(topic, index)| ((*topic).to_owned(), *index)).collect()
}

/// One fetch: the session id and the partitions answered.
fn fetch(
    sessions: &FetchSessions,
    mut request: FetchRequest,
    of: impl Fn(&str, i32) -> Answers,
) -> Result<(i32, Vec<(String, i32)>), ResponseError> {
    let now = Instant::now();
    let session = sessions.begin(&mut request, VERSION, now)?;
    let mut answer = answers(&request, of);
    let id = sessions.finish(session, &mut answer, now);
    Ok((id, named(&answer)))
}

#[test]
fn an_incremental_fetch_reads_everything_and_is_answered_what_changed() {
    let sessions = FetchSessions::new(10);
    let all = [("a", 0), ("a", 1), ("b", 0)];
    let (id, answered) = fetch(&sessions, request(0, INITIAL_EPOCH, &all), |_, _| Answers(5, true)).unwrap();
    assert!(id > 0);
    assert_eq!(answered, owned(&all), "the first answer is whole");

    let mut next = request(id, 1, &[]);
    sessions.begin(&mut next, VERSION, Instant::now()).unwrap();
    assert_eq!(asked(&next), owned(&all), "all is read though nothing was named");

    // Nothing moved: nothing is said. A higher watermark alone is news, and so are records.
    assert_eq!(fetch(&sessions, request(id, 2, &[]), |_, _| Answers(5, false)).unwrap(), (id, vec![]));
    let moved = |topic: &str, index| Answers(if (topic, index) == ("a", 1) { 6 } else { 5 }, false);
    assert_eq!(fetch(&sessions, request(id, 3, &[]), moved).unwrap().1, owned(&[("a", 1)]));
    let records = |topic: &str, _| Answers(if topic == "a" { 6 } else { 5 }, topic == "b");
    assert_eq!(fetch(&sessions, request(id, 4, &[]), records).unwrap().1, owned(&[("a", 0), ("b", 0)]));
}

#[test]
fn what_was_read_goes_to_the_end_of_the_order() {
    let sessions = FetchSessions::new(10);
    let (id, _) =
        fetch(&sessions, request(0, INITIAL_EPOCH, &[("a", 0), ("b", 0), ("c", 0)]), |_, _| Answers(1, false)).unwrap();
    fetch(&sessions, request(id, 1, &[]), |topic, _| Answers(1, topic == "a")).unwrap();
    let mut next = request(id, 2, &[]);
    sessions.begin(&mut next, VERSION, Instant::now()).unwrap();
    assert_eq!(asked(&next), owned(&[("b", 0), ("c", 0), ("a", 0)]));
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    let sessions = FetchSessions::new(10);
    let (id, _) = fetch(&sessions, request(0, INITIAL_EPOCH, &[("a", 0), ("b", 0)]), |_, _| Answers(1, false)).unwrap();
    let mut change = request(id, 1, &[("c", 3)]);
    change.topics.push(
        FetchTopic::default()
            .with_topic(name("a"))
            .with_partitions(vec![FetchPartition::default().with_partition(0).with_fetch_offset(77)]),
    );
    change.forgotten_topics_data = vec![ForgottenTopic::default().with_topic(name("b")).with_partitions(vec![0])];
    sessions.begin(&mut change, VERSION, Instant::now()).unwrap();
    assert_eq!(asked(&change), owned(&[("a", 0), ("c", 3)]));
    assert_eq!(change.topics[0].partitions[0].fetch_offset, 77);

    // Forgetting the last one ends the session.
    let mut empty = request(id, 2, &[]);
    empty.forgotten_topics_data = vec![
        ForgottenTopic::default().with_topic(name("a")).with_partitions(vec![0]),
        ForgottenTopic::default().with_topic(name("c")).with_partitions(vec![3]),
    ];
    assert_eq!(fetch(&sessions, empty, |_, _| Answers(1, false)).unwrap(), (SESSIONLESS, vec![]));
    assert!(sessions.is_empty());
}

#[test]
fn an_error_is_always_said_and_what_follows_it_is_news() {
    let sessions = FetchSessions::new(10);
    let (id, _) = fetch(&sessions, request(0, INITIAL_EPOCH, &[("a", 0)]), |_, _| Answers(4, false)).unwrap();
    for epoch in 1..=2 {
        let mut next = request(id, epoch, &[]);
        let session = sessions.begin(&mut next, VERSION, Instant::now()).unwrap();
        let mut answer = answers(&next, |_, _| Answers(-1, false));
        answer[0].partitions[0].error_code = ResponseError::KafkaStorageError.code();
        sessions.finish(session, &mut answer, Instant::now());
        assert_eq!(named(&answer), owned(&[("a", 0)]));
    }
    assert_eq!(fetch(&sessions, request(id, 3, &[]), |_, _| Answers(4, false)).unwrap().1, owned(&[("a", 0)]));
    assert_eq!(fetch(&sessions, request(id, 4, &[]), |_, _| Answers(4, false)).unwrap().1, vec![]);
}

#[test]
fn wrong_ids_epochs_and_naming_are_refused() {
    let sessions = FetchSessions::new(10);
    let (id, _) = fetch(&sessions, request(0, INITIAL_EPOCH, &[("a", 0)]), |_, _| Answers(1, false)).unwrap();
    let begin = |id, epoch, version| {
        sessions.begin(&mut request(id, epoch, &[]), version, Instant::now()).map(|_| ()).unwrap_err()
    };
    assert_eq!(begin(id.wrapping_add(1).max(1), 1, VERSION), ResponseError::FetchSessionIdNotFound);
    assert_eq!(begin(id, 2, VERSION), ResponseError::InvalidFetchSessionEpoch);
    assert_eq!(begin(id, 1, TOPIC_IDS_SINCE), ResponseError::FetchSessionTopicIdError);
    // None of these used the epoch up.
    assert_eq!(fetch(&sessions, request(id, 1, &[]), |_, _| Answers(1, false)).unwrap().0, id);
}

#[test]
fn a_session_is_closed_by_its_client_and_replaced_by_its_client() {
    let sessions = FetchSessions::new(10);
    let open = |id| fetch(&sessions, request(id, INITIAL_EPOCH, &[("a", 0)]), |_, _| Answers(1, false)).unwrap().0;
    let first = open(0);
    let second = open(first);
    assert_eq!(sessions.len(), 1, "the named one gave way");
    let (id, answered) = fetch(&sessions, request(second, FINAL_EPOCH, &[("a", 0)]), |_, _| Answers(1, false)).unwrap();
    assert_eq!((id, answered), (SESSIONLESS, owned(&[("a", 0)])));
    assert!(sessions.is_empty());
}

#[test]
fn slots_bound_the_sessions_and_one_long_unused_gives_way() {
    let sessions = FetchSessions::new(1);
    let start = Instant::now();
    let open = |now| {
        let mut request = request(0, INITIAL_EPOCH, &[("a", 0)]);
        let session = sessions.begin(&mut request, VERSION, now).unwrap();
        sessions.finish(session, &mut answers(&request, |_, _| Answers(1, false)), now)
    };
    let first = open(start);
    assert!(first > 0);
    assert_eq!(open(start + EVICT_AFTER), SESSIONLESS, "not unused for long enough");
    let later = start + EVICT_AFTER + Duration::from_secs(1);
    assert!(open(later) > 0);
    assert_eq!(sessions.len(), 1);
    let gone = sessions.begin(&mut request(first, 1, &[]), VERSION, later).map(|_| ()).unwrap_err();
    assert_eq!(gone, ResponseError::FetchSessionIdNotFound);
    assert_eq!(FetchSessions::new(0).len(), 0);
}

#[test]
fn the_epoch_after_the_largest_is_one() {
    assert_eq!(epoch_after(INITIAL_EPOCH), 1);
    assert_eq!(epoch_after(i32::MAX), 1);
}
