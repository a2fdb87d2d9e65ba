//! One suite that every metadata store passes.

use super::*;

fn on_every_store(check: impl Fn(&dyn MetaStore)) {
    check(&MemoryMetaStore::new());
    let temporary = tempfile::tempdir().expect("a temporary directory");
    check(&RocksMetaStore::open(temporary.path().join("deep/meta")).expect("opened"));
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn a_key_has_the_value_it_was_given_last() {
    on_every_store(|store| {
        assert_eq!(store.get(b"a").expect("read"), None);
        store.commit(MetaBatch::new().put("a", "1").put("a", "2")).expect("committed");
        assert_eq!(store.get(b"a").expect("read"), Some(bytes("2")));
        store.commit(MetaBatch::new().delete("a").delete("never there")).expect("committed");
        assert_eq!(store.get(b"a").expect("read"), None);
    });
}

#[test]
fn a_scan_sees_its_prefix_in_byte_order_and_nothing_else() {
    on_every_store(|store| {
        let batch = MetaBatch::new()
            .put("b/2", "2")
            .put("b/1", "1")
            .put("b", "0")
            .put("c/1", "x")
            .put("a", "x")
            .put(&b"b/\xff"[..], "3");
        store.commit(batch).expect("committed");
        let values = |prefix: &[u8]| -> Vec<Bytes> {
            store.scan_prefix(prefix).expect("scanned").into_iter().map(|(_, value)| value).collect()
        };
        assert_eq!(values(b"b/"), [bytes("1"), bytes("2"), bytes("3")]);
        assert_eq!(values(b"b"), [bytes("0"), bytes("1"), bytes("2"), bytes("3")]);
        assert_eq!(values(b""), [bytes("x"), bytes("0"), bytes("1"), bytes("2"), bytes("3"), bytes("x")]);
        assert!(values(b"zzz").is_empty());
        assert!(values(b"\xff\xff").is_empty());
    });
}

#[test]
fn a_batch_whose_precondition_fails_changes_nothing() {
    on_every_store(|store| {
        store.commit(MetaBatch::new().if_absent("a").put("a", "1")).expect("committed");
        let again = store.commit(MetaBatch::new().if_absent("a").put("b", "1"));
        let Err(MetaError::Conflict { key, found }) = again else {
            panic!("no conflict: {again:?}");
        };
        assert_eq!((key, found), (bytes("a"), Some(bytes("1"))));
        assert_eq!(store.get(b"b").expect("read"), None);
        let stale = store.commit(MetaBatch::new().if_equals("a", "0").delete("a"));
        assert!(matches!(stale, Err(MetaError::Conflict { .. })));
        let missing = store.commit(MetaBatch::new().if_equals("z", "0"));
        assert!(matches!(missing, Err(MetaError::Conflict { found: None, .. })));
        store.commit(MetaBatch::new().if_equals("a", "1").put("a", "2")).expect("committed");
        assert_eq!(store.get(b"a").expect("read"), Some(bytes("2")));
    });
}

#[test]
fn concurrent_increments_are_all_counted() {
    on_every_store(|store| {
        store.commit(MetaBatch::new().put("n", "0")).expect("committed");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < 25 {
                        let old = store.get(b"n").expect("read").expect("set");
                        let number: u32 = std::str::from_utf8(&old).expect("text").parse().expect("a number");
                        let batch = MetaBatch::new().if_equals("n", old).put("n", (number + 1).to_string());
                        match store.commit(batch) {
                            Ok(()) => done += 1,
                            Err(MetaError::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert_eq!(store.get(b"n").expect("read"), Some(bytes("100")));
    });
}

#[test]
fn rocks_keeps_what_was_committed_and_refuses_a_second_opener() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let path = temporary.path().join("meta");
    let store = RocksMetaStore::open(&path).expect("opened");
    store.commit(MetaBatch::new().put("a", "1")).expect("committed");
    let second = RocksMetaStore::open(&path);
    assert!(matches!(second.map(|_| ()), Err(MetaError::Open { .. })));
    drop(store);
    let store = RocksMetaStore::open(&path).expect("opened again");
    assert_eq!(store.get(b"a").expect("read"), Some(bytes("1")));
}
