//! A disk in memory that loses power on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{BLOCK_SIZE, Caching, DirectoryEntry, Disk, DiskFile, align_up};

type Sector = Arc<[u8; BLOCK_SIZE]>;

/// What happens to un-synced work when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashStyle {
    /// All of it is lost.
    LoseUnsynced,
    /// Each un-synced 4 KiB sector survives or not by the toss of a seeded coin (torn writes, in any order), and of the
    /// un-synced creates, renames and removes a random prefix survives, as on a journalling file system.
    Torn,
}

/// A seeded, in-memory [`Disk`] with a power switch. Clones share one disk.
///
/// After a crash, what was reached through this value before is dead: files and directory calls alike fail, as the process
/// that made them would be. [`SimulatedDisk::restarted`] is the same disk for the process after it.
///
/// Un-synced bytes, lengths and names are volatile. A failed sync forgets which bytes were dirty, as Linux does: a
/// later sync succeeds and does not bring them back. Directories themselves are durable at once.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    generation: u64,
}

struct State {
    random: u64,
    /// Handles opened before the last crash are dead.
    generation: u64,
    next_inode: u64,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    unsynced_names: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    capacity: u64,
    failing_syncs: u32,
    failing_writes: u32,
    operations_until_crash: Option<(u64, CrashStyle)>,
}

#[derive(Default, Clone)]
struct Inode {
    sectors: BTreeMap<u64, Sector>,
    size: u64,
    allocated: u64,
    dirty: BTreeSet<u64>,
    durable_sectors: BTreeMap<u64, Sector>,
    durable_size: u64,
}

#[derive(Clone)]
enum NameChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl SimulatedDisk {
    /// An empty disk without limit. Equal seeds and equal calls give equal crashes.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk {
            state: Arc::new(Mutex::new(State {
                random: seed,
                generation: 0,
                next_inode: 0,
                inodes: BTreeMap::new(),
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                unsynced_names: Vec::new(),
                directories: BTreeSet::new(),
                capacity: u64::MAX,
                failing_syncs: 0,
                failing_writes: 0,
                operations_until_crash: None,
            })),
            generation: 0,
        }
    }

    /// The same disk, as a process finds it that starts now.
    pub fn restarted(&self) -> SimulatedDisk {
        let generation = self.state.lock().generation;
        SimulatedDisk { state: self.state.clone(), generation }
    }

    /// The disk's state, unless the power went since this handle was made.
    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.generation == self.generation { Ok(state) } else { Err(power_lost()) }
    }

    /// Cuts the power and brings the disk back: what was not synced is lost as `style` says, and every handle is
    /// dead (its calls fail and change nothing).
    pub fn crash(&self, style: CrashStyle) {
        self.state.lock().crash(style);
    }

    /// Crashes by itself just before the `operations`-th write, sync, rename, create or remove from now on.
    pub fn crash_after(&self, operations: u64, style: CrashStyle) {
        self.state.lock().operations_until_crash = Some((operations, style));
    }

    /// Takes back a [`SimulatedDisk::crash_after`] that did not strike yet.
    pub fn cancel_crash(&self) {
        self.state.lock().operations_until_crash = None;
    }

    /// The next `count` syncs fail, and what they should have made durable is lost at the next crash.
    pub fn fail_next_syncs(&self, count: u32) {
        self.state.lock().failing_syncs = count;
    }

    /// The next `count` writes fail and write nothing.
    pub fn fail_next_writes(&self, count: u32) {
        self.state.lock().failing_writes = count;
    }

    /// Sets the size of the disk. Below what is used, the disk is full until something is removed.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Bytes in use, allocated ones included.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used()
    }

    /// Flips one bit of a file, durably: what a failing medium does.
    ///
    /// # Errors
    /// `NotFound` when there is no such file or nothing was ever written there.
    pub fn flip_bit(&self, path: &Path, position: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.inode_of(path)?;
        let (sector, offset) = split(position);
        let found = inode.sectors.get_mut(&sector).ok_or(io::ErrorKind::NotFound)?;
        Arc::make_mut(found)[offset] ^= 1 << (bit % 8);
        let flipped = found.clone();
        inode.durable_sectors.insert(sector, flipped);
        Ok(())
    }

    fn handle(&self, state: &State, path: &Path, inode: u64, caching: Caching) -> Arc<dyn DiskFile> {
        Arc::new(SimulatedFile {
            state: self.state.clone(),
            path: path.to_owned(),
            inode,
            generation: state.generation,
            caching,
        })
    }
}

impl State {
    fn random(&mut self) -> u64 {
        // SplitMix64: one word of state, good enough to toss coins.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn crash(&mut self, style: CrashStyle) {
        self.generation += 1;
        self.operations_until_crash = None;
        let unsynced = std::mem::take(&mut self.unsynced_names);
        if style == CrashStyle::Torn && !unsynced.is_empty() {
            let choices = u64::try_from(unsynced.len()).expect("a length fits 64 bits") + 1;
            let kept = usize::try_from(self.random() % choices).expect("at most the length");
            for change in &unsynced[..kept] {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        let linked: BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|id, _| linked.contains(id));
        for id in linked {
            let mut inode = self.inodes.remove(&id).expect("linked inodes exist");
            for sector in std::mem::take(&mut inode.dirty) {
                if style == CrashStyle::Torn
                    && self.random().is_multiple_of(2)
                    && let Some(bytes) = inode.sectors.get(&sector)
                {
                    inode.durable_sectors.insert(sector, bytes.clone());
                    inode.durable_size = inode.durable_size.max(inode.size.min((sector + 1) * 4096));
                }
            }
            if style == CrashStyle::Torn && inode.size > inode.durable_size && self.random().is_multiple_of(2) {
                inode.durable_size = inode.size;
            }
            inode.sectors = inode.durable_sectors.clone();
            inode.size = inode.durable_size;
            inode.allocated = align_up(inode.size);
            self.inodes.insert(id, inode);
        }
    }

    /// Counts one operation that changes something; the power may go right before it.
    fn step(&mut self) -> io::Result<()> {
        match self.operations_until_crash.as_mut() {
            Some((0, style)) => {
                let style = *style;
                self.crash(style);
                Err(power_lost())
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        self.names.values().filter_map(|inode| self.inodes.get(inode)).map(|inode| inode.allocated).sum()
    }

    /// Makes room for the file to hold `size` bytes.
    fn allocate(&mut self, id: u64, size: u64) -> io::Result<()> {
        let size = align_up(size);
        let have = self.inodes.get(&id).map_or(0, |inode| inode.allocated);
        if size <= have {
            return Ok(());
        }
        if self.used().saturating_add(size - have) > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inodes.entry(id).or_default().allocated = size;
        Ok(())
    }

    fn inode_of(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let id = self.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        self.inodes.get_mut(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Link(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Unlink(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }

    fn touches(&self, directory: &Path) -> bool {
        match self {
            NameChange::Link(path, _) | NameChange::Unlink(path) => path.parent() == Some(directory),
            NameChange::Rename(from, to) => from.parent() == Some(directory) || to.parent() == Some(directory),
        }
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.powered()?;
        state.step()?;
        if !path.parent().is_some_and(|parent| state.directories.contains(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let id = match state.names.get(path) {
            Some(&id) => {
                let inode = state.inodes.entry(id).or_default();
                inode.sectors.clear();
                inode.dirty.clear();
                inode.size = 0;
                inode.allocated = 0;
                id
            }
            None => {
                let id = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(id, Inode::default());
                state.change_names(NameChange::Link(path.to_owned(), id));
                id
            }
        };
        Ok(self.handle(&state, path, id, caching))
    }

    fn open(&self, path: &Path, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.powered()?;
        let id = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(&state, path, id, caching))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, Caching::Buffered)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        state.step()?;
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_names(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        state.step()?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_names(NameChange::Unlink(path.to_owned()));
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let state = self.powered()?;
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut entries = Vec::new();
        for (path, id) in &state.names {
            let name = path.file_name().and_then(|name| name.to_str());
            if let (true, Some(name)) = (path.parent() == Some(directory), name) {
                let size_bytes = state.inodes.get(id).map_or(0, |inode| inode.size);
                entries.push(DirectoryEntry { name: name.to_owned(), size_bytes });
            }
        }
        Ok(entries)
    }

    fn create_dir_all(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        for ancestor in directory.ancestors() {
            state.directories.insert(ancestor.to_owned());
        }
        Ok(())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        state.step()?;
        let (synced, rest) =
            std::mem::take(&mut state.unsynced_names).into_iter().partition(|change| change.touches(directory));
        state.unsynced_names = rest;
        let synced: Vec<NameChange> = synced;
        for change in &synced {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        let state = self.powered()?;
        Ok(state.capacity.saturating_sub(state.used()))
    }
}

struct SimulatedFile {
    state: Arc<Mutex<State>>,
    path: PathBuf,
    inode: u64,
    generation: u64,
    caching: Caching,
}

impl SimulatedFile {
    /// Runs `act` on the file, unless the power went since it was opened.
    fn with<R>(&self, act: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        let mut state = self.state.lock();
        if state.generation != self.generation {
            return Err(power_lost());
        }
        act(&mut state)
    }

    fn check_alignment(&self, buffer: &[u8], position: u64) -> io::Result<()> {
        let aligned = buffer.as_ptr().align_offset(BLOCK_SIZE) == 0
            && buffer.len().is_multiple_of(BLOCK_SIZE)
            && split(position).1 == 0;
        if self.caching == Caching::Direct && !aligned {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "direct I/O needs an aligned buffer, length and position",
            ));
        }
        Ok(())
    }
}

impl DiskFile for SimulatedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write_all_at(&self, buffer: &[u8], position: u64) -> io::Result<()> {
        self.check_alignment(buffer, position)?;
        self.with(|state| {
            state.step()?;
            if state.failing_writes > 0 {
                state.failing_writes -= 1;
                return Err(io::Error::other("simulated write error"));
            }
            let end = position + size_u64(buffer.len());
            state.allocate(self.inode, end)?;
            let inode = state.inodes.entry(self.inode).or_default();
            inode.size = inode.size.max(end);
            let mut rest = buffer;
            let mut at = position;
            while !rest.is_empty() {
                let (sector, offset) = split(at);
                let part = rest.len().min(BLOCK_SIZE - offset);
                let bytes = inode.sectors.entry(sector).or_insert_with(|| Arc::new([0; BLOCK_SIZE]));
                Arc::make_mut(bytes)[offset..offset + part].copy_from_slice(&rest[..part]);
                inode.dirty.insert(sector);
                rest = &rest[part..];
                at += size_u64(part);
            }
            Ok(())
        })
    }

    fn write_all_vectored_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut at = position;
        for buffer in buffers {
            self.write_all_at(buffer, at)?;
            at += size_u64(buffer.len());
        }
        Ok(())
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.check_alignment(buffer, position)?;
        self.with(|state| {
            let inode = state.inodes.entry(self.inode).or_default();
            if position + size_u64(buffer.len()) > inode.size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut done = 0;
            while done < buffer.len() {
                let (sector, offset) = split(position + size_u64(done));
                let part = (buffer.len() - done).min(BLOCK_SIZE - offset);
                let target = &mut buffer[done..done + part];
                match inode.sectors.get(&sector) {
                    Some(bytes) => target.copy_from_slice(&bytes[offset..offset + part]),
                    None => target.fill(0),
                }
                done += part;
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| {
            state.step()?;
            let failing = state.failing_syncs > 0;
            state.failing_syncs = state.failing_syncs.saturating_sub(1);
            let inode = state.inodes.entry(self.inode).or_default();
            let dirty = std::mem::take(&mut inode.dirty);
            if failing {
                return Err(io::Error::other("simulated sync error"));
            }
            for sector in dirty {
                if let Some(bytes) = inode.sectors.get(&sector) {
                    inode.durable_sectors.insert(sector, bytes.clone());
                }
            }
            inode.durable_size = inode.size;
            let end = align_up(inode.size) / 4096;
            inode.durable_sectors.retain(|sector, _| *sector < end);
            Ok(())
        })
    }

    fn preallocate(&self, size: u64) -> io::Result<()> {
        self.with(|state| {
            state.step()?;
            state.allocate(self.inode, size)?;
            let inode = state.inodes.entry(self.inode).or_default();
            inode.size = inode.size.max(size);
            Ok(())
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.inodes.get(&self.inode).map_or(0, |inode| inode.size)))
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.with(|state| {
            state.step()?;
            state.allocate(self.inode, size)?;
            let inode = state.inodes.entry(self.inode).or_default();
            let shrinks = size < inode.size;
            inode.size = size;
            if shrinks {
                inode.allocated = align_up(size);
                let (last, offset) = split(size);
                inode.sectors.retain(|sector, _| *sector < last || (*sector == last && offset > 0));
                inode.dirty.retain(|sector| *sector <= last);
                if let Some(bytes) = inode.sectors.get_mut(&last) {
                    Arc::make_mut(bytes)[offset..].fill(0);
                    inode.dirty.insert(last);
                }
            }
            Ok(())
        })
    }

    fn direct_io(&self) -> Option<usize> {
        (self.caching == Caching::Direct).then_some(BLOCK_SIZE)
    }

    fn std_file(&self) -> Option<Arc<File>> {
        None
    }
}

/// The sector of a position, and the offset inside it.
fn split(position: u64) -> (u64, usize) {
    let offset = usize::try_from(position % 4096).expect("below 4096");
    (position / 4096, offset)
}

fn size_u64(size: usize) -> u64 {
    u64::try_from(size).expect("a buffer's length fits 64 bits")
}

fn power_lost() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the simulated power went off")
}
