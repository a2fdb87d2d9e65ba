//! A throttled connection is not read until its time has passed (KIP-219): its client was told, and a client that does not listen is held back all the same.

use std::time::Instant;

use parking_lot::Mutex;

/// When the next request of a connection may be read.
#[derive(Debug, Default)]
pub struct Mute(Mutex<Option<Instant>>);

impl Mute {
    /// Not before `until`; an earlier time than one that was set already changes nothing.
    pub fn extend(&self, until: Instant) {
        let mut muted = self.0.lock();
        *muted = (*muted).max(Some(until));
    }

    /// Waits until requests may be read.
    pub async fn passed(&self) {
        loop {
            let Some(until) = *self.0.lock() else { return };
            tokio::time::sleep_until(until.into()).await;
            let mut muted = self.0.lock();
            // It may have been extended meanwhile.
            if *muted == Some(until) {
                *muted = None;
            }
        }
    }
}
