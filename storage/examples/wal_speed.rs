//! How fast the WAL is, and what it costs: `cargo run --release -p weir-storage --example wal_speed [DIRECTORY]`.
//!
//! Four threads push entries of one size through a WAL synced per group, wait for the last, and then the log is replayed.
//! CPU is the whole process's, user and system, from `/proc/self/stat`; the payload is random, made before the clock starts.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::executor::block_on;
use weir_model::{PartitionId, TopicId};
use weir_storage::disk::RealDisk;
use weir_storage::wal::{DurableSink, SyncPolicy, Wal, WalConfig, WalEntry, WalSeq};

const THREADS: u32 = 4;

struct Silent;

impl DurableSink for Silent {
    fn durable(&self, _token: u64) {}
}

/// How the pushing threads wait.
#[derive(Clone, Copy)]
enum Waiting {
    /// As a pipelining producer: as much in flight as is admitted.
    AtTheEnd,
    /// As a producer with one request in flight.
    EachEntry,
}

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    println!("entry      waiting     MB/s   entries/s  CPU-s/GB  entries/group  replay MB/s  replay CPU-s/GB");
    let rounds = [
        (1024, Waiting::AtTheEnd, 1_000_000_000),
        (16 * 1024, Waiting::AtTheEnd, 2_000_000_000),
        (1024 * 1024, Waiting::AtTheEnd, 4_000_000_000),
        (1024, Waiting::EachEntry, 8_000_000),
        (16 * 1024, Waiting::EachEntry, 100_000_000),
    ];
    for (entry_bytes, waiting, total_bytes) in rounds {
        let directory = parent.join(format!("weir-wal-speed-{}", std::process::id()));
        round(&directory, entry_bytes, waiting, total_bytes)?;
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}

fn round(directory: &Path, entry_bytes: usize, waiting: Waiting, total_bytes: usize) -> Result<(), Box<dyn Error>> {
    let config = WalConfig { sync: SyncPolicy::Group, ..WalConfig::default() };
    let wal = Wal::open(Arc::new(RealDisk::new()), directory, config.clone(), &mut |_, _, _| {})?;
    let body = random_bytes(entry_bytes);
    let per_thread = total_bytes / entry_bytes / 4;
    let started = (Instant::now(), cpu_seconds()?);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (wal, body) = (wal.clone(), body.clone());
            scope.spawn(move || push_many(&wal, thread, &body, per_thread, waiting));
        }
    });
    let (seconds, cpu) = since(started)?;
    let stats = wal.stats();
    wal.close()?;
    drop(wal);
    let mut replayed = 0;
    let started = (Instant::now(), cpu_seconds()?);
    let wal = Wal::open(Arc::new(RealDisk::new()), directory, config, &mut |_, _, batch| replayed += batch.len())?;
    let (replay_seconds, replay_cpu) = since(started)?;
    drop(wal);
    let gigabytes = (per_thread * 4 * entry_bytes) as f64 / 1e9;
    let replayed = replayed as f64 / 1e9;
    println!(
        "{entry_bytes:>8}  {:>9}  {:>7.1}  {:>10.0}  {:>8.2}  {:>13.1}  {:>11.0}  {:>15.2}",
        match waiting {
            Waiting::AtTheEnd => "at end",
            Waiting::EachEntry => "each",
        },
        gigabytes * 1e3 / seconds,
        stats.entries as f64 / seconds,
        cpu / gigabytes,
        stats.entries as f64 / stats.groups as f64,
        replayed * 1e3 / replay_seconds,
        replay_cpu / replayed,
    );
    Ok(())
}

fn push_many(wal: &Wal, thread: u32, body: &Bytes, count: usize, waiting: Waiting) {
    let sink: Arc<dyn DurableSink> = Arc::new(Silent);
    let partition = PartitionId { topic: TopicId::random(), index: i32::try_from(thread).expect("small") };
    let mut last = WalSeq::ZERO;
    for number in 0..count {
        let mut admission = block_on(wal.admit(Wal::entry_bytes(body.len()))).expect("admitted");
        let entry = WalEntry {
            partition,
            prefix: [0; 16],
            body: body.clone(),
            body_crc32c: None,
            sink: sink.clone(),
            token: u64::try_from(number).expect("fits"),
        };
        last = wal.push(&mut admission, entry);
        match waiting {
            Waiting::EachEntry => block_on(wal.durable(last)).expect("durable"),
            Waiting::AtTheEnd => {}
        }
    }
    block_on(wal.durable(last)).expect("durable");
}

fn random_bytes(len: usize) -> Bytes {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

fn since((started, cpu): (Instant, f64)) -> Result<(f64, f64), Box<dyn Error>> {
    Ok((started.elapsed().as_secs_f64(), cpu_seconds()? - cpu))
}

/// User and system time of this process. The kernel counts in hundredths of a second.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}
