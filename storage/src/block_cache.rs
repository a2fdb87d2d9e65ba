//! Decoded blocks of `.arrow` segments, bounded by bytes, the least recently used dropped first.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use weir_model::PartitionId;

use crate::segment::SegmentName;

/// Which block: partition, name of the segment, number of the block. The generation is part of it, because a merged segment
/// begins at the offset of its first input.
pub(crate) type BlockKey = (PartitionId, SegmentName, usize);

#[derive(Debug)]
pub(crate) struct BlockCache {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Newest last. A sequential reader needs one block; some dozens of readers make a list that is quick to walk.
    blocks: VecDeque<(BlockKey, Arc<RecordBatch>, usize)>,
    size: usize,
}

impl BlockCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &BlockKey) -> Option<Arc<RecordBatch>> {
        let mut state = self.state.lock();
        let at = state.blocks.iter().rposition(|(known, _, _)| known == key)?;
        let found = state.blocks.remove(at)?;
        let block = Arc::clone(&found.1);
        state.blocks.push_back(found);
        Some(block)
    }

    pub(crate) fn put(&self, key: BlockKey, block: Arc<RecordBatch>) {
        let size = block.get_array_memory_size();
        if size > self.limit {
            return;
        }
        let mut state = self.state.lock();
        if state.blocks.iter().any(|(known, _, _)| *known == key) {
            return;
        }
        state.size += size;
        state.blocks.push_back((key, block, size));
        while state.size > self.limit
            && let Some((_, _, dropped)) = state.blocks.pop_front()
        {
            state.size -= dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use weir_model::{Offset, TopicId};

    use super::*;

    #[test]
    fn the_least_recently_used_block_goes_first() {
        let block = |value| {
            let column = Arc::new(Int64Array::from(vec![value; 100])) as _;
            Arc::new(RecordBatch::try_from_iter([("a", column)]).expect("one column"))
        };
        let size = block(0).get_array_memory_size();
        let cache = BlockCache::new(size * 2);
        let partition = PartitionId { topic: TopicId::random(), index: 0 };
        let key = |number| (partition, SegmentName::from(Offset::ZERO), number);
        cache.put(key(0), block(0));
        cache.put(key(1), block(1));
        assert!(cache.get(&key(0)).is_some());
        cache.put(key(2), block(2));
        assert!(cache.get(&key(1)).is_none());
        let merged = SegmentName { generation: 1, ..Offset::ZERO.into() };
        assert!(cache.get(&(partition, merged, 0)).is_none(), "a merged segment has blocks of its own");
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(2)).is_some());
    }
}
