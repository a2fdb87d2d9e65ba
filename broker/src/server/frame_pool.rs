//! Buffers for large frames, used again.
//!
//! A producer's frame of a megabyte lives in the tail until it is sealed. Given back to the allocator its pages go back to the system, and the next frame has
//! them cleared by the kernel anew: up to a fifth of what produce costs. So buffers of large frames are kept, up to a bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Smaller frames are left to the allocator, which keeps such blocks itself.
const SMALLEST: usize = 64 << 10;

/// Where buffers come from and go back to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FramePool {
    shelves: Arc<Mutex<Shelves>>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Shelves {
    by_capacity: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl FramePool {
    /// A pool that keeps at most `max_bytes` of buffers that nobody uses.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self { shelves: Arc::default(), max_bytes }
    }

    /// An empty buffer with room for `size` bytes: exactly that for small frames, at most a quarter more for large ones.
    #[must_use]
    pub fn take(&self, size: usize) -> Vec<u8> {
        if size < SMALLEST {
            return Vec::with_capacity(size);
        }
        let capacity = shelf_of(size);
        let mut shelves = self.shelves.lock();
        match shelves.by_capacity.get_mut(&capacity).and_then(Vec::pop) {
            Some(buffer) => {
                shelves.bytes -= capacity;
                buffer
            }
            None => {
                drop(shelves);
                Vec::with_capacity(capacity)
            }
        }
    }

    /// The filled buffer as shared bytes; it comes back to the pool when the last of them is dropped.
    #[must_use]
    pub fn share(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < SMALLEST {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Pooled { buffer, pool: self.clone() })
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let mut shelves = self.shelves.lock();
        if shelf_of(capacity) != capacity || shelves.bytes + capacity > self.max_bytes {
            return;
        }
        buffer.clear();
        shelves.bytes += capacity;
        shelves.by_capacity.entry(capacity).or_default().push(buffer);
    }
}

/// Sizes are rounded up to the next of four steps per doubling: frames of nearly the same size share buffers, and no more than a quarter is wasted.
fn shelf_of(size: usize) -> usize {
    let step = 1 << (size.ilog2().saturating_sub(2));
    size.next_multiple_of(step)
}

struct Pooled {
    buffer: Vec<u8>,
    pool: FramePool,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &FramePool, size: usize) -> Bytes {
        let mut buffer = pool.take(size);
        buffer.resize(size, 7);
        pool.share(buffer)
    }

    #[test]
    fn a_large_buffer_is_used_again_once_nobody_holds_it() {
        let pool = FramePool::new(10 << 20);
        let first = filled(&pool, 1_000_000);
        let address = first.as_ptr();
        let part = first.slice(500..600);
        drop(first);
        let other = pool.take(1_000_000);
        assert_ne!(other.as_ptr(), address, "a slice of it is still held");
        drop(part);
        assert_eq!(filled(&pool, 990_000).as_ptr(), address, "a frame of nearly the same size");
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let pool = FramePool::new(2 << 20);
        let frames: Vec<Bytes> = (0..10).map(|_| filled(&pool, 1 << 20)).collect();
        drop(frames);
        assert_eq!(pool.shelves.lock().bytes, 2 << 20);
    }

    #[test]
    fn small_frames_have_buffers_of_their_exact_size() {
        let pool = FramePool::new(1 << 20);
        assert_eq!(pool.take(1000).capacity(), 1000);
        drop(filled(&pool, 1000));
        assert_eq!(pool.shelves.lock().bytes, 0);
    }

    #[test]
    fn no_buffer_is_more_than_a_quarter_larger_than_asked_for() {
        for size in [SMALLEST, SMALLEST + 1, 100_000, 1_048_577, 1_048_640, 99_999_999] {
            let shelf = shelf_of(size);
            assert!(shelf >= size && shelf - size <= size / 4, "{size} -> {shelf}");
            assert_eq!(shelf_of(shelf), shelf);
        }
    }
}
