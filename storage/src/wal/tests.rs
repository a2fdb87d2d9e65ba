//! The WAL on a simulated disk that loses power, and on the real one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use futures::executor::block_on;
use weir_model::TopicId;

use super::*;
use crate::disk::{Caching, CrashStyle, RealDisk, SimulatedDisk};

const DIRECTORY: &str = "/data/wal";

/// Records what it is told.
#[derive(Default)]
struct Tokens(Mutex<Vec<u64>>);

impl DurableSink for Tokens {
    fn durable(&self, token: u64) {
        self.0.lock().push(token);
    }
}

/// A small deterministic source of choices.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bytes(&mut self, len: u64) -> Bytes {
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// Counts fatal errors instead of aborting.
fn config(segment_bytes: u64, fatal: &Arc<AtomicUsize>) -> WalConfig {
    let fatal = fatal.clone();
    WalConfig {
        segment_bytes,
        max_in_flight_bytes: 256 * 1024,
        on_fatal: Arc::new(move |_| {
            fatal.fetch_add(1, Ordering::SeqCst);
        }),
        ..WalConfig::default()
    }
}

fn open(disk: &Arc<dyn Disk>, directory: &Path, config: WalConfig) -> Result<(Wal, Vec<(u64, Bytes)>), WalError> {
    let mut replayed = Vec::new();
    let wal = Wal::open(disk.clone(), directory, config, &mut |seq, partition, batch| {
        assert_eq!(partition, partition_of(seq.get()));
        replayed.push((seq.get(), Bytes::copy_from_slice(&batch)));
    })?;
    Ok((wal, replayed))
}

fn open_simulated(disk: &SimulatedDisk, config: WalConfig) -> Result<(Wal, Vec<(u64, Bytes)>), WalError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.restarted());
    open(&disk, Path::new(DIRECTORY), config)
}

/// Tests give each entry a partition that follows from its seq, so that a replay can check it.
fn partition_of(seq: u64) -> PartitionId {
    PartitionId {
        topic: TopicId::from_uuid(Uuid::from_u128(u128::from(seq % 7))),
        index: i32::try_from(seq % 5).expect("small"),
    }
}

/// Pushes one entry whose payload is returned. Only one thread may do so, or the partition would not follow from the seq.
fn push(wal: &Wal, sink: &Arc<Tokens>, body: Bytes) -> Result<(u64, Bytes), WalError> {
    let mut admission = block_on(wal.admit(Wal::entry_bytes(body.len())))?;
    let expected = wal.next_seq().get();
    let prefix = [expected.to_le_bytes()[0]; 16];
    let payload = Bytes::from([&prefix[..], &body[..]].concat());
    let entry = WalEntry {
        partition: partition_of(expected),
        prefix,
        body,
        body_crc32c: None,
        sink: sink.clone(),
        token: expected,
    };
    let seq = wal.push(&mut admission, entry);
    assert_eq!(seq.get(), expected);
    Ok((expected, payload))
}

fn wait(wal: &Wal, seq: u64) -> Result<(), WalError> {
    block_on(wal.durable(WalSeq::new(seq)))
}

fn log_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let files = space::find(&disk.restarted(), Path::new(DIRECTORY)).expect("listed");
    files.log.into_iter().map(|file| file.path).collect()
}

#[test]
fn entries_are_replayed_as_they_were_pushed() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let sink = Arc::new(Tokens::default());
    let mut random = Random(7);
    let mut pushed = Vec::new();
    for round in 0..5 {
        let (wal, replayed) = open_simulated(&disk, config(64 * 1024, &fatal)).expect("opened");
        assert_eq!(replayed, pushed, "round {round}");
        assert_eq!(wal.recovery().torn, None);
        for _ in 0..50 {
            let body_len = random.below(9000);
            let body = random.bytes(body_len);
            pushed.push(push(&wal, &sink, body).expect("pushed"));
        }
        wait(&wal, pushed[pushed.len() - 1].0).expect("durable");
        wal.close().expect("closed");
    }
    let expected: Vec<u64> = pushed.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(*sink.0.lock(), expected, "each sink call once, in order");
    assert_eq!(fatal.load(Ordering::SeqCst), 0);
}

#[test]
fn an_entry_larger_than_a_file_gets_its_own() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let sink = Arc::new(Tokens::default());
    let (wal, _) = open_simulated(&disk, config(16 * 1024, &fatal)).expect("opened");
    let mut random = Random(3);
    let mut pushed = Vec::new();
    // The last is larger than the staging buffer and than the in-flight limit.
    for size in [100, 20_000, 100, 16_300, 300_000, 100, 5_000_000, 1] {
        let body = random.bytes(size);
        pushed.push(push(&wal, &sink, body).expect("pushed"));
    }
    wait(&wal, 8).expect("durable");
    drop(wal);
    let (wal, replayed) = open_simulated(&disk, config(16 * 1024, &fatal)).expect("opened");
    assert!(replayed == pushed);
    push(&wal, &sink, Bytes::from_static(b"in a new file")).expect("pushed");
    wait(&wal, 9).expect("durable");
    wal.trim(WalSeq::new(9)).expect("trimmed");
    assert!(wal.size_bytes() <= 16 * 1024, "large files are not kept: {}", wal.size_bytes());
    let leftovers = disk.used_bytes();
    assert!(leftovers <= 64 * 1024, "{leftovers} bytes are still in use");
}

/// One life of a log after another, each ended by a loss of power at a random instant.
fn lives(seed: u64, style: CrashStyle, sync: SyncPolicy) {
    let disk = SimulatedDisk::new(seed);
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let fatal = Arc::new(AtomicUsize::new(0));
    let mut pushed: BTreeMap<u64, Bytes> = BTreeMap::new();
    let mut acknowledged = 0;
    let mut trimmed = 0;
    for life in 0..6 {
        let config = WalConfig { sync, ..config(16 * 1024 * (1 + random.below(4)), &fatal) };
        let (wal, replayed) =
            open_simulated(&disk, config).unwrap_or_else(|error| panic!("seed {seed} life {life}: {error}"));
        let first = replayed.first().map_or(wal.next_seq().get(), |(seq, _)| *seq);
        let last = wal.next_seq().get() - 1;
        assert!(first <= trimmed.max(1), "seed {seed} life {life}: entries {trimmed}..{first} are gone");
        for (index, (seq, payload)) in replayed.iter().enumerate() {
            let index = u64::try_from(index).expect("small");
            assert_eq!(*seq, first + index, "seed {seed} life {life}: a gap");
            assert!(pushed.get(seq) == Some(payload), "seed {seed} life {life}: entry {seq} differs");
        }
        if sync == SyncPolicy::Group {
            assert!(
                last >= acknowledged,
                "seed {seed} life {life}: {acknowledged} was acknowledged, {last} is the last"
            );
        }
        pushed.split_off(&(last + 1));
        acknowledged = last;
        disk.crash_after(random.below(60), style);
        let sink = Arc::new(Tokens::default());
        let mut waiting = Vec::new();
        for _ in 0..200 {
            let len = if random.below(20) == 0 { random.below(40_000) } else { random.below(3_000) };
            let body = random.bytes(len);
            match push(&wal, &sink, body) {
                Ok((seq, payload)) => {
                    pushed.insert(seq, payload);
                    waiting.push(seq);
                }
                Err(_) => break,
            }
            if random.below(4) == 0 {
                let seq = waiting[waiting.len() - 1];
                if wait(&wal, seq).is_err() {
                    break;
                }
                acknowledged = acknowledged.max(seq);
            }
            if random.below(30) == 0 && sync == SyncPolicy::Group {
                trimmed = trimmed.max(acknowledged.saturating_sub(random.below(10)));
                // Fails when the power just went, and the next life sees to it.
                drop(wal.trim(WalSeq::new(trimmed)));
            }
        }
        disk.crash(style);
        for seq in waiting {
            if wait(&wal, seq).is_err() {
                break;
            }
            acknowledged = acknowledged.max(seq);
        }
        let told = sink.0.lock().clone();
        assert!(told.windows(2).all(|pair| pair[0] + 1 == pair[1]), "seed {seed} life {life}: sinks out of order");
    }
}

#[test]
fn power_loss_at_any_instant_keeps_every_acknowledged_entry_once_and_in_order() {
    for seed in 1..=300 {
        lives(seed, CrashStyle::Torn, SyncPolicy::Group);
    }
    for seed in 1..=50 {
        lives(seed, CrashStyle::LoseUnsynced, SyncPolicy::Group);
    }
}

#[test]
fn power_loss_without_syncs_leaves_a_prefix_and_is_never_taken_for_damage() {
    for seed in 1..=100 {
        lives(seed, CrashStyle::Torn, SyncPolicy::None);
        lives(seed, CrashStyle::Torn, SyncPolicy::Interval(1));
    }
}

/// A log of `count` entries of 1,000 bytes, each in its own group, left by a killed process.
fn killed_log(disk: &SimulatedDisk, count: u64) -> Vec<(u64, Bytes)> {
    let fatal = Arc::default();
    let (wal, _) = open_simulated(disk, config(32 * 1024, &fatal)).expect("opened");
    let sink = Arc::new(Tokens::default());
    let mut random = Random(9);
    let mut pushed = Vec::new();
    for _ in 0..count {
        let body = random.bytes(1000);
        pushed.push(push(&wal, &sink, body).expect("pushed"));
        wait(&wal, pushed[pushed.len() - 1].0).expect("durable");
    }
    disk.crash(CrashStyle::LoseUnsynced);
    pushed
}

#[test]
fn a_torn_tail_is_cut_and_reported() {
    let disk = SimulatedDisk::new(1);
    let pushed = killed_log(&disk, 4);
    let file = log_files(&disk).remove(0);
    disk.flip_bit(&file, 3 * 4096 + 500, 3).expect("flipped");
    let fatal = Arc::default();
    let (wal, replayed) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    assert_eq!(replayed, pushed[..3]);
    let torn = wal.recovery().torn.clone().expect("a torn tail");
    assert_eq!((torn.bytes, torn.seq), (4096, WalSeq::new(4)));
    let sink = Arc::new(Tokens::default());
    let again = push(&wal, &sink, Bytes::from_static(b"again")).expect("pushed");
    assert_eq!(again.0, 4, "the seq of the torn entry is used again");
    wait(&wal, 4).expect("durable");
    drop(wal);
    let (wal, replayed) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    assert_eq!(replayed, [&pushed[..3], &[again]].concat());
    assert_eq!(wal.recovery().torn, None);
}

#[test]
fn a_damaged_middle_is_refused_and_nothing_is_touched() {
    // In the header, in the length, in the payload; in the first, in a middle file.
    for position in [4096 + 2, 4096 + 9, 4096 + 17, 4096 + 500] {
        for file_index in [0, 1] {
            let disk = SimulatedDisk::new(1);
            let pushed = killed_log(&disk, 20);
            let file = log_files(&disk).remove(file_index);
            disk.flip_bit(&file, position, 3).expect("flipped");
            let fatal = Arc::default();
            for _ in 0..2 {
                let error = open_simulated(&disk, config(32 * 1024, &fatal)).err().expect("refused");
                let WalError::Corrupt { file: named, position: at, seq, synced_through } = &error else {
                    panic!("wrong error: {error}");
                };
                assert_eq!(named, &file);
                assert!(*at <= 4096 && synced_through >= seq, "{error}");
                assert!(error.to_string().contains("weir doctor"));
            }
            disk.flip_bit(&file, position, 3).expect("flipped back");
            let (_, replayed) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
            assert_eq!(replayed, pushed, "nothing was lost");
        }
    }
}

#[test]
fn a_damaged_last_group_of_a_closed_log_is_refused() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let (wal, _) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    let pushed = [1, 2].map(|_| push(&wal, &Arc::default(), Bytes::from_static(b"x")).expect("pushed"));
    wal.close().expect("closed");
    let file = log_files(&disk).remove(0);
    let last = if wal.stats().groups == 1 { 81 } else { 4096 };
    disk.flip_bit(&file, last + 70, 0).expect("flipped");
    let error = open_simulated(&disk, config(32 * 1024, &fatal)).err().expect("refused");
    assert!(matches!(error, WalError::Corrupt { synced_through: WalSeq(2), .. }), "{error}");
    disk.flip_bit(&file, last + 70, 0).expect("flipped back");
    let (_, replayed) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    assert_eq!(replayed, pushed);
}

#[test]
fn a_missing_middle_file_is_refused() {
    let disk = SimulatedDisk::new(1);
    killed_log(&disk, 30);
    disk.restarted().remove(&log_files(&disk)[1]).expect("removed");
    let error = open_simulated(&disk, config(32 * 1024, &Arc::default())).err().expect("refused");
    assert!(matches!(error, WalError::Corrupt { .. }), "{error}");
}

#[test]
fn a_failing_sync_is_fatal_and_nothing_completes_afterwards() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let sink = Arc::new(Tokens::default());
    let (wal, _) = open_simulated(&disk, config(64 * 1024, &fatal)).expect("opened");
    push(&wal, &sink, Bytes::from_static(b"kept")).expect("pushed");
    wait(&wal, 1).expect("durable");
    disk.fail_next_syncs(1);
    push(&wal, &sink, Bytes::from_static(b"in doubt")).expect("pushed");
    assert!(matches!(wait(&wal, 2), Err(WalError::Failed { .. })));
    assert!(matches!(push(&wal, &sink, Bytes::new()), Err(WalError::Failed { .. })));
    assert!(matches!(wal.try_admit(1), Err(WalError::Failed { .. })));
    assert!(wait(&wal, 1).is_ok(), "what was durable stays so");
    assert!(matches!(wal.close(), Err(WalError::Failed { .. })));
    assert_eq!(*sink.0.lock(), [1]);
    assert_eq!(fatal.load(Ordering::SeqCst), 1);
}

#[test]
fn a_failing_write_is_fatal() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let (wal, _) = open_simulated(&disk, config(64 * 1024, &fatal)).expect("opened");
    disk.fail_next_writes(1);
    push(&wal, &Arc::default(), Bytes::from_static(b"lost")).expect("pushed");
    assert!(matches!(wait(&wal, 1), Err(WalError::Failed { .. })));
    assert!(wal.close().is_err());
    assert_eq!(fatal.load(Ordering::SeqCst), 1);
}

#[test]
fn a_sink_that_panics_is_fatal_rather_than_a_silent_stop() {
    struct Panics;
    impl DurableSink for Panics {
        fn durable(&self, _token: u64) {
            panic!("a bug in a sink");
        }
    }
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let (wal, _) = open_simulated(&disk, config(64 * 1024, &fatal)).expect("opened");
    let mut admission = block_on(wal.admit(1000)).expect("admitted");
    let entry = WalEntry {
        partition: partition_of(1),
        prefix: [0; 16],
        body: Bytes::new(),
        body_crc32c: None,
        sink: Arc::new(Panics),
        token: 0,
    };
    let seq = wal.push(&mut admission, entry);
    assert!(matches!(block_on(wal.durable(seq)), Err(WalError::Failed { .. })));
    drop(admission);
    drop(wal);
    assert_eq!(fatal.load(Ordering::SeqCst), 1);
}

#[test]
fn under_an_interval_an_entry_completes_when_written_and_is_synced_in_time() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let settings = WalConfig { sync: SyncPolicy::Interval(2), ..config(64 * 1024, &fatal) };
    let (wal, _) = open_simulated(&disk, settings.clone()).expect("opened");
    let pushed = push(&wal, &Arc::default(), Bytes::from_static(b"x")).expect("pushed");
    wait(&wal, 1).expect("written");
    while wal.stats().syncs == 0 {
        std::thread::yield_now();
    }
    disk.crash(CrashStyle::LoseUnsynced);
    drop(wal);
    let (_, replayed) = open_simulated(&disk, settings).expect("opened");
    assert_eq!(replayed, [pushed]);
}

#[test]
fn a_full_disk_refuses_admission_and_recovers_when_there_is_room() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let sink = Arc::new(Tokens::default());
    disk.set_capacity(5 * 32 * 1024);
    let (wal, _) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    let mut random = Random(5);
    let mut pushed = Vec::new();
    let mut fill = |pushed: &mut Vec<(u64, Bytes)>| loop {
        let body_len = random.below(6000);
        let body = random.bytes(body_len);
        match push(&wal, &sink, body) {
            Ok(entry) => {
                wait(&wal, entry.0).expect("what was admitted is written");
                pushed.push(entry);
            }
            Err(error) => break error,
        }
    };
    let error = fill(&mut pushed);
    assert!(matches!(error, WalError::DiskFull { needed_bytes: 32768, .. }), "{error}");
    assert!(pushed.len() > 20, "most of the disk was used: {} entries", pushed.len());
    disk.set_capacity(8 * 32 * 1024);
    let before = pushed.len();
    assert!(matches!(fill(&mut pushed), WalError::DiskFull { .. }));
    assert!(pushed.len() > before, "more room was used");
    let before = pushed.len();
    wal.trim(WalSeq::new(pushed[before - 1].0)).expect("trimmed");
    assert!(matches!(fill(&mut pushed), WalError::DiskFull { .. }));
    assert!(pushed.len() > before, "trimmed room was used");
    drop(wal);
    let (_, replayed) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("a full disk opens");
    assert!(pushed.ends_with(&replayed));
    assert_eq!(fatal.load(Ordering::SeqCst), 0);
}

#[test]
fn ordered_entries_that_outgrow_their_admission_wait_for_room() {
    for room_returns in [true, false] {
        let disk = SimulatedDisk::new(1);
        let fatal = Arc::default();
        disk.set_capacity(40 * 1024);
        let (wal, _) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
        let mut admission = block_on(wal.admit(100)).expect("admitted");
        let seqs: Vec<WalSeq> = (1..=3)
            .map(|seq| {
                let entry = WalEntry {
                    partition: partition_of(seq),
                    prefix: [0; 16],
                    body: vec![0; 20_000].into(),
                    body_crc32c: None,
                    sink: Arc::new(Tokens::default()),
                    token: seq,
                };
                wal.push(&mut admission, entry)
            })
            .collect();
        block_on(wal.durable(seqs[0])).expect("there was room for one");
        if room_returns {
            disk.set_capacity(1024 * 1024);
            block_on(wal.durable(seqs[2])).expect("there is room for all");
        }
        wal.close().expect("closed");
        assert_eq!(block_on(wal.durable(seqs[2])).is_ok(), room_returns);
        assert_eq!(fatal.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn trimmed_files_are_recycled_and_their_old_entries_never_seen() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    let sink = Arc::new(Tokens::default());
    let (wal, _) = open_simulated(&disk, config(16 * 1024, &fatal)).expect("opened");
    for seq in 1..=400 {
        push(&wal, &sink, Bytes::from(vec![1; 3000])).expect("pushed");
        wait(&wal, seq).expect("durable");
        wal.trim(WalSeq::new(seq)).expect("trimmed");
        let (log, spares) = wal.shared.space.file_counts();
        assert!(log <= 2 && spares <= 3, "{log} files and {spares} spares after {seq}");
    }
    assert!(wal.oldest_seq() > WalSeq::new(390));
    disk.crash(CrashStyle::LoseUnsynced);
    let (wal, replayed) = open_simulated(&disk, config(16 * 1024, &fatal)).expect("opened");
    assert_eq!(wal.next_seq(), WalSeq::new(401));
    assert_eq!(replayed.last().map(|(seq, _)| *seq), Some(400));
    assert!(replayed.len() < 10);
}

#[test]
fn seqs_go_on_after_everything_was_trimmed() {
    let disk = SimulatedDisk::new(1);
    let fatal = Arc::default();
    killed_log(&disk, 10);
    for _ in 0..3 {
        let (wal, _) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
        assert_eq!(wal.next_seq(), WalSeq::new(11));
        wal.trim(wal.next_seq()).expect("trimmed");
        wal.close().expect("closed");
    }
}

#[test]
fn a_payload_that_imitates_an_entry_does_not_stop_a_restart() {
    // Another log's entry, on a block boundary inside a torn entry's payload, that claims everything was synced.
    let forged = entry::EntryHeader {
        crc: 0,
        partition: partition_of(9),
        seq: 9,
        synced_through: 8,
        log_id: 12345,
        payload_size: 0,
    };
    let mut header = forged.to_bytes();
    let crc = crc_fast::crc32_iscsi(&header[entry::CHECKED_FROM..]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    let mut body = vec![0; 8000];
    body[4096 - 80..4096 - 80 + 64].copy_from_slice(&header);
    let disk = SimulatedDisk::new(1);
    let pushed = killed_log(&disk, 3);
    let fatal = Arc::default();
    let (wal, _) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    push(&wal, &Arc::default(), body.into()).expect("pushed");
    wait(&wal, 4).expect("durable");
    disk.crash(CrashStyle::LoseUnsynced);
    disk.flip_bit(&log_files(&disk)[1], 100, 1).expect("flipped");
    let (_, replayed) = open_simulated(&disk, config(32 * 1024, &fatal)).expect("opened");
    assert_eq!(replayed, pushed);
}

#[test]
fn admission_waits_for_bytes_in_flight_and_gives_them_back() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open_simulated(&disk, config(64 * 1024, &Arc::default())).expect("opened");
    let whole = wal.available_bytes();
    let all = block_on(wal.admit(10 * whole)).expect("a request above the limit is admitted alone");
    assert!(wal.try_admit(1).expect("open").is_none(), "nothing beside it");
    drop(all);
    let entry = push(&wal, &Arc::default(), Bytes::from_static(b"x")).expect("pushed");
    wait(&wal, entry.0).expect("durable");
    drop(block_on(wal.admit(whole)).expect("everything came back"));
    assert_eq!(wal.available_bytes(), whole);
}

#[test]
fn pushing_after_close_is_answered_with_closed() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open_simulated(&disk, config(64 * 1024, &Arc::default())).expect("opened");
    let mut admission = block_on(wal.admit(1000)).expect("admitted");
    wal.close().expect("closed");
    let entry = WalEntry {
        partition: partition_of(1),
        prefix: [0; 16],
        body: Bytes::new(),
        body_crc32c: None,
        sink: Arc::new(Tokens::default()),
        token: 0,
    };
    let seq = wal.push(&mut admission, entry);
    assert!(matches!(block_on(wal.durable(seq)), Err(WalError::Closed)));
    assert!(matches!(block_on(wal.admit(1)), Err(WalError::Closed)));
}

#[test]
fn four_writers_on_the_real_disk_are_each_replayed_in_order() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let fatal = Arc::new(AtomicUsize::new(0));
    let settings = WalConfig { max_in_flight_bytes: 1 << 20, ..config(1 << 20, &fatal) };
    let sink = Arc::new(Tokens::default());
    let wal = Wal::open(disk.clone(), temporary.path().join("wal"), settings.clone(), &mut |_, _, _| {
        panic!("nothing to replay")
    })
    .expect("opened");
    std::thread::scope(|scope| {
        for writer in 0_u8..4 {
            let (wal, sink) = (wal.clone(), sink.clone());
            scope.spawn(move || {
                let mut random = Random(u64::from(writer) + 1);
                for number in 0_u64..500 {
                    let len = random.below(20_000);
                    let mut admission = block_on(wal.admit(Wal::entry_bytes(20_000))).expect("admitted");
                    let entry = WalEntry {
                        partition: PartitionId { topic: TopicId::from_uuid(Uuid::nil()), index: i32::from(writer) },
                        prefix: [writer; 16],
                        body: [&number.to_le_bytes()[..], &random.bytes(len)].concat().into(),
                        body_crc32c: None,
                        sink: sink.clone(),
                        token: number,
                    };
                    let seq = wal.push(&mut admission, entry);
                    drop(admission);
                    if number % 10 == 0 {
                        block_on(wal.durable(seq)).expect("durable");
                    }
                }
            });
        }
    });
    wal.close().expect("closed");
    assert!(wal.stats().syncs <= wal.stats().entries, "groups are shared: {:?}", wal.stats());
    drop(wal);
    let mut next = [0_u64; 4];
    let mut expected_seq = 1;
    Wal::open(disk.clone(), temporary.path().join("wal"), settings, &mut |seq, partition, batch| {
        let writer = usize::try_from(partition.index).expect("0..4");
        let mut number = [0; 8];
        number.copy_from_slice(&batch[16..24]);
        assert_eq!((seq.get(), u64::from_le_bytes(number)), (expected_seq, next[writer]));
        next[writer] += 1;
        expected_seq += 1;
    })
    .expect("opened");
    assert_eq!(next, [500; 4]);
    assert_eq!(sink.0.lock().len(), 2000);
    assert_eq!(fatal.load(Ordering::SeqCst), 0);
    let leftover = disk.open(&temporary.path().join("wal").join(".direct-io-probe"), Caching::Buffered);
    assert!(leftover.is_err(), "the probe is removed");
}
