//! One suite that every disk passes, and what only the simulated one can show.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::*;

/// Runs `check` on an empty directory of each disk.
fn on_every_disk(check: impl Fn(Arc<dyn Disk>, &Path)) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    check(Arc::new(RealDisk::new()), temporary.path());
    let simulated = SimulatedDisk::new(1);
    simulated.create_dir_all(Path::new("/data")).expect("a directory");
    check(Arc::new(simulated), Path::new("/data"));
}

#[test]
fn what_is_written_is_read() {
    on_every_disk(|disk, directory| {
        let file = disk.create(&directory.join("a"), Caching::Buffered).expect("created");
        file.write_all_at(b"hello", 0).expect("written");
        let parts = [IoSlice::new(b", wo"), IoSlice::new(b"rld")];
        file.write_all_vectored_at(&parts, 5).expect("written");
        file.sync_data().expect("synced");
        let mut read = [0; 12];
        disk.open(&directory.join("a"), Caching::Buffered).expect("opened").read_exact_at(&mut read, 0).expect("read");
        assert_eq!(&read, b"hello, world");
        assert_eq!(file.size().expect("size"), 12);
    });
}

#[test]
fn direct_files_take_aligned_blocks() {
    on_every_disk(|disk, directory| {
        let file = disk.create(&directory.join("a"), Caching::Direct).expect("created");
        file.preallocate(16384).expect("allocated");
        let mut buffer = AlignedBuffer::zeroed(8192);
        buffer.as_mut_slice().fill(7);
        file.write_all_at(buffer.as_slice(), 4096).expect("written");
        let mut read = AlignedBuffer::zeroed(16384);
        file.read_exact_at(read.as_mut_slice(), 0).expect("read");
        assert!(read.as_slice()[..4096].iter().all(|byte| *byte == 0));
        assert!(read.as_slice()[4096..12288].iter().all(|byte| *byte == 7));
        assert_eq!(read.len(), 16384);
    });
}

#[test]
fn reading_past_the_end_is_an_unexpected_end() {
    on_every_disk(|disk, directory| {
        let file = disk.create(&directory.join("a"), Caching::Buffered).expect("created");
        file.write_all_at(b"abc", 0).expect("written");
        let error = file.read_exact_at(&mut [0; 4], 0).expect_err("too short");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn a_cut_file_reads_as_zeros_when_it_grows_again() {
    on_every_disk(|disk, directory| {
        let file = disk.create(&directory.join("a"), Caching::Buffered).expect("created");
        file.write_all_at(b"abcdef", 0).expect("written");
        file.set_size(2).expect("cut");
        file.set_size(6).expect("grown");
        let mut read = [1; 6];
        file.read_exact_at(&mut read, 0).expect("read");
        assert_eq!(&read, b"ab\0\0\0\0");
    });
}

#[test]
fn names_are_listed_renamed_and_removed() {
    on_every_disk(|disk, directory| {
        for name in ["b", "a", "c"] {
            disk.create(&directory.join(name), Caching::Buffered).expect("created");
        }
        disk.rename(&directory.join("a"), &directory.join("c")).expect("renamed");
        disk.remove(&directory.join("b")).expect("removed");
        disk.sync_dir(directory).expect("synced");
        let names: Vec<String> = disk.list(directory).expect("listed").into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["c"]);
        let missing = disk.open(&directory.join("a"), Caching::Buffered).err().map(|error| error.kind());
        assert_eq!(missing, Some(io::ErrorKind::NotFound));
        assert!(disk.free_bytes(directory).expect("free bytes") > 0);
    });
}

#[test]
fn a_replaced_file_holds_the_new_contents() {
    on_every_disk(|disk, directory| {
        let path = directory.join("state");
        replace_file(&*disk, &path, b"one").expect("written");
        replace_file(&*disk, &path, b"two").expect("written");
        let mut read = [0; 3];
        disk.open(&path, Caching::Buffered).expect("opened").read_exact_at(&mut read, 0).expect("read");
        assert_eq!(&read, b"two");
        assert_eq!(disk.list(directory).expect("listed").len(), 1);
    });
}

fn simulated(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    disk.create_dir_all(Path::new("/d")).expect("a directory");
    disk
}

fn contents(disk: &SimulatedDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.restarted().open(Path::new(path), Caching::Buffered).ok()?;
    let mut bytes = vec![0; usize::try_from(file.size().expect("size")).expect("small")];
    file.read_exact_at(&mut bytes, 0).expect("read");
    Some(bytes)
}

#[test]
fn a_crash_loses_what_was_not_synced() {
    let disk = simulated(1);
    let file = disk.create(Path::new("/d/a"), Caching::Buffered).expect("created");
    file.write_all_at(b"kept", 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("/d")).expect("synced");
    file.write_all_at(b"lost", 0).expect("written");
    disk.create(Path::new("/d/b"), Caching::Buffered).expect("created");
    disk.rename(Path::new("/d/a"), Path::new("/d/c")).expect("renamed");
    disk.crash(CrashStyle::LoseUnsynced);
    assert_eq!(contents(&disk, "/d/a").as_deref(), Some(&b"kept"[..]));
    assert_eq!(contents(&disk, "/d/b"), None);
    assert_eq!(contents(&disk, "/d/c"), None);
    assert!(file.write_all_at(b"dead", 0).is_err(), "a handle does not outlive the power");
}

#[test]
fn a_torn_crash_keeps_some_sectors_and_loses_others() {
    let outcomes: BTreeSet<Vec<bool>> = (0..40)
        .map(|seed| {
            let disk = simulated(seed);
            let file = disk.create(Path::new("/d/a"), Caching::Buffered).expect("created");
            file.preallocate(4 * 4096).expect("allocated");
            file.sync_data().expect("synced");
            disk.sync_dir(Path::new("/d")).expect("synced");
            file.write_all_at(&[9; 4 * 4096], 0).expect("written");
            disk.crash(CrashStyle::Torn);
            let bytes = contents(&disk, "/d/a").expect("the file");
            bytes.chunks(4096).map(|sector| sector[0] == 9).collect()
        })
        .collect();
    assert!(outcomes.len() > 8, "torn writes differ by seed: {outcomes:?}");
}

#[test]
fn a_failed_sync_is_not_mended_by_the_next() {
    let disk = simulated(1);
    let file = disk.create(Path::new("/d/a"), Caching::Buffered).expect("created");
    file.write_all_at(b"old", 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("/d")).expect("synced");
    file.write_all_at(b"new", 0).expect("written");
    disk.fail_next_syncs(1);
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok());
    disk.crash(CrashStyle::LoseUnsynced);
    assert_eq!(contents(&disk, "/d/a").as_deref(), Some(&b"old"[..]));
}

#[test]
fn a_full_disk_refuses_until_something_is_removed() {
    let disk = simulated(1);
    disk.set_capacity(8192);
    let file = disk.create(Path::new("/d/a"), Caching::Buffered).expect("created");
    file.preallocate(8192).expect("allocated");
    let other = disk.create(Path::new("/d/b"), Caching::Buffered).expect("created");
    assert!(is_disk_full(&other.write_all_at(b"x", 0).expect_err("full")));
    disk.remove(Path::new("/d/a")).expect("removed");
    other.write_all_at(b"x", 0).expect("written");
    disk.fail_next_writes(1);
    assert!(other.write_all_at(b"y", 0).is_err());
    disk.flip_bit(Path::new("/d/b"), 0, 0).expect("flipped");
    assert_eq!(contents(&disk, "/d/b").as_deref(), Some(&b"y"[..]), "x with its lowest bit flipped");
}
