//! Memory for requests that were read and not yet ordered, shared by all connections.

use tokio::sync::{Semaphore, SemaphorePermit};

/// One permit stands for so many bytes: the semaphore counts in 32 bits.
const UNIT: usize = 1024;

/// A budget of bytes that requests draw on before they are read. First come, first served; whoever must wait does not read his socket meanwhile.
#[derive(Debug)]
pub struct RequestMemory {
    permits: Semaphore,
    units: u32,
}

impl RequestMemory {
    /// A budget of `bytes`, rounded up to whole KiB.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes.div_ceil(UNIT))
            .unwrap_or(u32::MAX)
            .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { permits: Semaphore::new(usize::try_from(units).expect("32 bits fit")), units }
    }

    /// Waits until a request of `bytes` may be read. The memory is given back when the permit is dropped.
    ///
    /// A request larger than the whole budget gets all of it. Cancel safe.
    pub async fn acquire(&self, bytes: usize) -> SemaphorePermit<'_> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units);
        self.permits.acquire_many(units).await.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_request_waits_until_the_memory_of_another_is_given_back() {
        let memory = RequestMemory::new(10 * UNIT);
        let first = memory.acquire(8 * UNIT).now_or_never().expect("there is room");
        assert!(memory.acquire(3 * UNIT).now_or_never().is_none());
        drop(first);
        assert!(memory.acquire(3 * UNIT).now_or_never().is_some());
    }

    #[test]
    fn a_request_larger_than_the_budget_gets_all_of_it() {
        let memory = RequestMemory::new(10 * UNIT);
        let all = memory.acquire(1 << 40).now_or_never().expect("nothing else is read");
        assert!(memory.acquire(1).now_or_never().is_none());
        drop(all);
    }
}
