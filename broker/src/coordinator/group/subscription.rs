//! The topics a consumer's metadata subscribes to.
//!
//! Group metadata is opaque to the coordinator but for this: offsets of topics a live group subscribes to do not expire
//! and are not deleted (S-85). The format is Kafka's `ConsumerProtocolSubscription`, of which every version starts with
//! the version (int16) and the topics (array of strings).

use std::collections::BTreeSet;

/// The topics, or `None` when the bytes are not a consumer's subscription.
pub(super) fn subscribed_topics(metadata: &[u8]) -> Option<BTreeSet<String>> {
    let mut rest = metadata;
    let version = i16::from_be_bytes(take::<2>(&mut rest)?);
    if version < 0 {
        return None;
    }
    let count = usize::try_from(i32::from_be_bytes(take::<4>(&mut rest)?)).ok()?;
    let mut topics = BTreeSet::new();
    for _ in 0..count {
        let size = usize::try_from(i16::from_be_bytes(take::<2>(&mut rest)?)).ok()?;
        let (name, tail) = rest.split_at_checked(size)?;
        topics.insert(std::str::from_utf8(name).ok()?.to_owned());
        rest = tail;
    }
    Some(topics)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::subscribed_topics;

    #[test]
    fn reads_the_topics_of_any_version_and_ignores_what_follows() {
        let bytes = b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff\x00\x00\x00\x00";
        let topics = subscribed_topics(bytes).expect("a subscription");
        assert_eq!(topics.into_iter().collect::<Vec<_>>(), ["a", "bc"]);
    }

    #[test]
    fn bytes_that_are_no_subscription_yield_none() {
        for bytes in [
            &b""[..],
            b"\x00",
            b"\x00\x00\x7f\xff\xff\xff",
            b"\x00\x00\x00\x00\x00\x01\x00\x09a",
            b"\xff\xff\x00\x00\x00\x00",
        ] {
            assert_eq!(subscribed_topics(bytes), None);
        }
    }
}
