//! Reads the next chunk of a file while the one before it is being checked.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::BytesMut;

use crate::disk::DiskFile;

/// A part of a file and the memory it goes to: `len` bytes from `position`, to `at` in the buffer.
pub(super) struct Chunk {
    pub(super) buffer: BytesMut,
    pub(super) at: usize,
    pub(super) position: u64,
    pub(super) len: usize,
}

impl Chunk {
    /// Fills the buffer's part from the file.
    pub(super) fn read(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        file.read_exact_at(&mut self.buffer[self.at..self.at + self.len], self.position)
    }
}

/// One thread with at most one chunk to read.
pub(super) struct ReadAhead {
    requests: Option<SyncSender<Chunk>>,
    results: Receiver<io::Result<Chunk>>,
    thread: Option<JoinHandle<()>>,
    pending: bool,
}

impl ReadAhead {
    pub(super) fn start(file: Arc<dyn DiskFile>) -> io::Result<ReadAhead> {
        let (requests, wanted) = sync_channel::<Chunk>(1);
        let (done, results) = sync_channel(1);
        let thread = std::thread::Builder::new().name("weir-wal-read".to_owned()).spawn(move || {
            for mut chunk in wanted {
                let read = chunk.read(&*file).map(|()| chunk);
                // The reader is gone: nobody wants the rest.
                if done.send(read).is_err() {
                    return;
                }
            }
        })?;
        Ok(ReadAhead { requests: Some(requests), results, thread: Some(thread), pending: false })
    }

    /// Begins to read a chunk. The one before must have been taken.
    pub(super) fn request(&mut self, chunk: Chunk) {
        assert!(!self.pending, "one chunk at a time");
        let requests = self.requests.as_ref().expect("open until dropped");
        self.pending = requests.send(chunk).is_ok();
    }

    /// The chunk asked for, once it is read; `None` when none was.
    pub(super) fn take(&mut self) -> io::Result<Option<Chunk>> {
        if !std::mem::take(&mut self.pending) {
            return Ok(None);
        }
        match self.results.recv() {
            Ok(read) => read.map(Some),
            Err(_) => Err(io::Error::other("the thread that reads ahead is gone")),
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads the WAL ahead panicked");
        }
    }
}
