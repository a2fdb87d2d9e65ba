//! The newest offset of each key, in a fixed stretch of memory.

use std::hash::{BuildHasher, RandomState};

use weir_model::Offset;

/// Keys are told apart by 128 bits of two keyed SipHashes (Kafka: MD5). The hash keys are drawn anew for each map, so nobody
/// can prepare two keys that collide; by chance two of a billion keys do with odds of 1 to 10^20.
type Hash = [u64; 2];

/// One key: its hash, and its newest offset plus one; 0 is a free slot.
type Slot = (Hash, u64);

/// Fewer make no sense; a smaller buffer is rounded up to it.
const LEAST_SLOTS: usize = 4;

/// Maps keys to offsets, with open addressing. It never grows: a key that has no room ends the pass.
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    most: usize,
    hashers: [RandomState; 2],
}

impl OffsetMap {
    /// Room for `keys` keys, or for as many as `bytes` hold when no more than `load_factor` of the slots may be taken.
    pub(super) fn new(bytes: u64, load_factor: f64, keys: u64) -> Self {
        let load_factor = load_factor.clamp(0.01, 0.99);
        let wanted = (keys as f64 / load_factor) as u64 + 1;
        let affordable = bytes / size_of::<Slot>() as u64;
        let slots = usize::try_from(wanted.min(affordable)).unwrap_or(usize::MAX).max(LEAST_SLOTS);
        Self {
            slots: vec![([0; 2], 0); slots],
            used: 0,
            most: ((slots as f64 * load_factor) as usize).clamp(1, slots - 1),
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Notes that `key` was last seen at `offset`, which is above all offsets before. Says whether there was room.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let at = self.find(hash);
        if self.slots[at].1 == 0 {
            if self.used == self.most {
                return false;
            }
            self.used += 1;
        }
        self.slots[at] = (hash, offset.get().unsigned_abs() + 1);
        true
    }

    /// Whether no newer offset of `key` than `offset` was noted.
    pub(super) fn is_latest(&self, key: &[u8], offset: Offset) -> bool {
        let slot = self.slots[self.find(self.hash(key))];
        slot.1 == 0 || offset.get().unsigned_abs() + 1 >= slot.1
    }

    /// How many keys it has.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    fn hash(&self, key: &[u8]) -> Hash {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    /// The slot of a hash, or the free one where it would go. There is a free one always.
    fn find(&self, hash: Hash) -> usize {
        let count = self.slots.len();
        let mut at = ((u128::from(hash[0]) * count as u128) >> 64) as usize;
        while self.slots[at].1 != 0 && self.slots[at].0 != hash {
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Offset {
        Offset::new(offset).expect("not negative")
    }

    #[test]
    fn the_newest_offset_of_each_key_is_known() {
        let mut map = OffsetMap::new(1 << 20, 0.9, 1000);
        for offset in 0..5000_i64 {
            assert!(map.put(format!("k{}", offset % 1000).as_bytes(), at(offset)));
        }
        assert_eq!(map.len(), 1000);
        for offset in 0..5000_i64 {
            assert_eq!(map.is_latest(format!("k{}", offset % 1000).as_bytes(), at(offset)), offset >= 4000);
        }
        assert!(map.is_latest(b"never seen", at(0)));
    }

    #[test]
    fn a_full_map_takes_known_keys_and_refuses_new_ones() {
        let mut map = OffsetMap::new(100 * size_of::<Slot>() as u64, 0.5, 1_000_000);
        let taken = (0..1000_i64).take_while(|n| map.put(&n.to_be_bytes(), at(*n))).count();
        assert_eq!(taken, 50);
        assert!(map.put(&7_i64.to_be_bytes(), at(2000)));
        assert!(!map.put(b"new", at(2001)));
        assert!(!map.is_latest(&7_i64.to_be_bytes(), at(7)));
        assert!(map.is_latest(&7_i64.to_be_bytes(), at(2000)));
    }

    #[test]
    fn an_empty_key_is_a_key() {
        let mut map = OffsetMap::new(0, 0.9, 0);
        assert!(map.is_latest(b"", at(0)));
        assert!(map.put(b"", at(3)));
        assert!(!map.is_latest(b"", at(2)));
    }
}
