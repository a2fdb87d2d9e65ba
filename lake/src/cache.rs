//! A cache with a limit on its total weight (LIM-1), least recently used entries leaving first.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// Bounded by weight. Values are cheap to clone (an `Arc`, a handful of slices).
#[derive(Debug)]
pub(crate) struct BoundedCache<K, V> {
    limit: usize,
    state: Mutex<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    weight: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> BoundedCache<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::new(State { entries: HashMap::new(), weight: 0, clock: 0 }) }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut state = self.state.lock();
        state.clock += 1;
        let now = state.clock;
        let entry = state.entries.get_mut(key)?;
        entry.used = now;
        Some(entry.value.clone())
    }

    /// Removes and returns an entry.
    pub(crate) fn take(&self, key: &K) -> Option<V> {
        let mut state = self.state.lock();
        let entry = state.entries.remove(key)?;
        state.weight -= entry.weight;
        Some(entry.value)
    }

    /// Keeps a value, unless it alone would pass the limit.
    pub(crate) fn put(&self, key: K, value: V, weight: usize) {
        if weight > self.limit {
            return;
        }
        let mut state = self.state.lock();
        state.clock += 1;
        let entry = Entry { value, weight, used: state.clock };
        if let Some(old) = state.entries.insert(key, entry) {
            state.weight -= old.weight;
        }
        state.weight += weight;
        while state.weight > self.limit {
            let oldest = state.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            if let Some(gone) = state.entries.remove(&oldest) {
                state.weight -= gone.weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_leaves_when_the_limit_is_passed() {
        let cache = BoundedCache::new(10);
        cache.put("a", 1, 4);
        cache.put("b", 2, 4);
        assert_eq!(cache.get(&"a"), Some(1));
        cache.put("c", 3, 4);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (Some(1), None, Some(3)));
        cache.put("huge", 4, 11);
        assert_eq!(cache.get(&"huge"), None);
        assert_eq!(cache.take(&"a"), Some(1));
        assert_eq!(cache.get(&"a"), None);
    }
}
