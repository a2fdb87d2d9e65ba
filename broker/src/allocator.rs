//! The allocator's one setting.
//!
//! A produce path frees and takes the same few hundred megabytes of tail again and again. Giving them back to the system in
//! between, as mimalloc does after a second, has the kernel clear every page anew: a tenth of the CPU of a JSON produce.

#![allow(unsafe_code, reason = "mimalloc's options have no safe binding")]

use std::ffi::c_long;

/// How long freed memory is kept before it goes back to the system: longer than a tail takes to be filled again under
/// load, short enough that an idle broker becomes small.
const PURGE_DELAY_MS: c_long = 10_000;

/// `mi_option_purge_delay`, the sixteenth of `mi_option_t` in mimalloc 2 and 3; the binding does not name it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Has the allocator keep freed memory for a while. An operator's `MIMALLOC_PURGE_DELAY` wins.
pub fn keep_freed_memory() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    // SAFETY: mi_option_set writes one integer of mimalloc's own option table, checks the option's number against the
    // table's length, and may be called at any time from any thread (mimalloc.h, "Options").
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: mi_option_get reads the same table.
        let get = || unsafe { libmimalloc_sys::mi_option_get(super::PURGE_DELAY) };
        assert_eq!(get(), 1_000, "mimalloc's default purge delay; another value means that the option moved");
        super::keep_freed_memory();
        assert_eq!(get(), super::PURGE_DELAY_MS);
    }
}
