use std::{
    collections::BTreeMap,
    fs,
    future::Future as _,
    sync::{
        atomic::{AtomicI64, Ordering},
        mpsc,
    },
};

use super::{super::COUNTED, *};

mod crash;

const WIDE: Quota = Quota {
    keys: 1_000,
    bytes: 1 << 20,
};

fn put(pairs: &[(&str, Option<&str>)]) -> Change {
    let owned = |text: &str| text.as_bytes().to_vec();
    let pairs = pairs
        .iter()
        .map(|(key, value)| (owned(key), value.map(owned)));
    Change::Put(pairs.collect::<BTreeMap<_, _>>())
}

async fn set(store: &Embedded, namespace: &str, key: &str, value: &str) {
    let change = put(&[(key, Some(value))]);
    let done = store.change(namespace, namespace.into(), WIDE, change);
    assert_eq!(done.await.unwrap(), Changed::Done);
}

fn first() -> Start {
    Start::Behind(Vec::new())
}

fn get(store: &Embedded, namespace: &str, key: &str) -> Option<Vec<u8>> {
    let keys = [key.as_bytes().to_vec()];
    let mut values = store.get(namespace, &keys, 1 << 20).unwrap();
    values.pop().unwrap()
}

/// Returns a page that is read in pieces of two entries.
fn keys(store: &Embedded, namespace: &str, start: Start, most: usize) -> Result<Page, StoreError> {
    let mut listing = Listing::new(namespace.into(), start, most)?;
    loop {
        store.read_table(PAIRS, |pairs| listing.read(&pairs, 2))?;
        if let Some(page) = listing.page() {
            return Ok(page);
        }
    }
}

#[tokio::test]
async fn namespaces_are_apart_and_a_restart_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv.redb");
    {
        let store = Embedded::in_file(path.clone()).unwrap();
        set(&store, "a", "k", "1").await;
        set(&store, "b", "k", "2").await;
        assert_eq!(get(&store, "c", "k"), None);
    }
    let store = Embedded::in_file(path).unwrap();
    assert_eq!(get(&store, "a", "k").unwrap(), b"1");
    assert_eq!(get(&store, "b", "k").unwrap(), b"2");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_increments_are_exact() {
    let store = Arc::new(Embedded::in_memory().unwrap());
    let clients: Vec<_> = (0..24)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let change = Change::Increment(b"n".to_vec(), 1);
                    store.change("a", "a".into(), WIDE, change).await.unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(get(&store, "a", "n").unwrap(), b"1200");
    set(&store, "a", "n", "many").await;
    let change = Change::Increment(b"n".to_vec(), 1);
    let refused = store.change("a", "a".into(), WIDE, change).await;
    assert!(matches!(refused, Err(StoreError::NoNumber)), "{refused:?}");
}

#[tokio::test]
async fn a_swap_succeeds_only_with_the_expected_value() {
    let store = Embedded::in_memory().unwrap();
    let swap = |seen: Option<&str>, value: &str| Change::Swap {
        key: b"k".to_vec(),
        seen: seen.map(|seen| seen.as_bytes().to_vec()),
        value: value.as_bytes().to_vec(),
    };
    let first = store.change("a", "a".into(), WIDE, swap(None, "1")).await;
    assert_eq!(first.unwrap(), Changed::Done);
    let second = store.change("a", "a".into(), WIDE, swap(None, "2")).await;
    assert_eq!(second.unwrap(), Changed::Stale(Some(b"1".to_vec())));
    let third = store
        .change("a", "a".into(), WIDE, swap(Some("1"), "3"))
        .await;
    assert_eq!(third.unwrap(), Changed::Done);
    assert_eq!(get(&store, "a", "k").unwrap(), b"3");
}

#[tokio::test]
async fn a_batch_beyond_the_quota_changes_nothing_and_removals_succeed() {
    let store = Embedded::in_memory().unwrap();
    let quota = Quota { keys: 2, bytes: 10 };
    let three = put(&[("a", Some("")), ("b", Some("")), ("c", Some(""))]);
    let refused = store.change("n", "n".into(), quota, three).await;
    assert!(matches!(
        refused,
        Err(StoreError::Full {
            what: "keys",
            most: 2
        })
    ));
    assert_eq!(keys(&store, "n", first(), 9).unwrap(), (vec![], false));
    let ten = put(&[("a", Some("1234")), ("b", Some("1234"))]);
    store.change("n", "n".into(), quota, ten).await.unwrap();
    let refused = store
        .change("n", "n".into(), quota, put(&[("a", Some("12345"))]))
        .await;
    assert!(matches!(
        refused,
        Err(StoreError::Full { what: "bytes", .. })
    ));
    let none = Quota { keys: 0, bytes: 0 };
    let less = put(&[("a", Some("1")), ("b", None)]);
    store.change("n", "n".into(), none, less).await.unwrap();
    assert_eq!(get(&store, "n", "a").unwrap(), b"1");
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let store = Embedded::in_memory().unwrap();
    for key in ["a", "b", "c"] {
        set(&store, "n", key, "").await;
    }
    set(&store, "o", "d", "").await;
    let names = |page: Page| {
        let keys = page
            .0
            .into_iter()
            .map(|key| String::from_utf8(key).unwrap());
        (keys.collect::<Vec<_>>().join(""), page.1)
    };
    assert_eq!(
        names(keys(&store, "n", first(), 2).unwrap()),
        ("ab".into(), true)
    );
    let rest = keys(&store, "n", Start::Behind(b"b".to_vec()), 2).unwrap();
    assert_eq!(names(rest), ("c".into(), false));
    let rest = keys(&store, "n", Start::Number(2), 2).unwrap();
    assert_eq!(names(rest), ("c".into(), false));
    let none = keys(&store, "n", Start::Number(COUNTED), 2).unwrap();
    assert_eq!(names(none), (String::new(), false));
    for number in [COUNTED + 1, u64::MAX] {
        let refused = keys(&store, "n", Start::Number(number), 2);
        assert!(
            matches!(refused, Err(StoreError::TooFar(COUNTED))),
            "{refused:?}"
        );
    }
    assert!(store.exists("n", b"a").unwrap() && !store.exists("n", b"d").unwrap());
    let with_one = |namespace: &str, keys| NamespaceUsage {
        namespace: namespace.into(),
        keys,
        bytes: keys,
    };
    assert_eq!(store.uses().unwrap(), [with_one("n", 3), with_one("o", 1)]);
    assert_eq!(
        names(keys(&store, "n", first(), 3).unwrap()),
        ("abc".into(), false)
    );
}

#[tokio::test]
async fn reads_queue_fairly_and_abandoned_ones_leave_the_queue() {
    let store = Arc::new(Embedded::of(StoreFile::in_memory().unwrap(), 1).unwrap());
    set(&store, "n", "k", "1").await;
    let held = store.reading.take("busy").await;
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let (ran, gone) = mpsc::channel::<()>();
    {
        let mut read = std::pin::pin!(store.read("n", move |_| {
            let _ = ran.send(());
            Ok(())
        }));
        assert!(read.as_mut().poll(&mut context).is_pending());
    }
    let mut read = std::pin::pin!(store.read("n", Embedded::uses));
    assert!(read.as_mut().poll(&mut context).is_pending());
    drop(held);
    assert_eq!(read.await.unwrap().len(), 1);
    // The caller had left, so its read was not made: the sender was dropped with it.
    assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    assert_eq!(store.reading.free(), 1);
}

#[tokio::test]
async fn a_listing_yields_between_its_pieces() {
    let store = Arc::new(Embedded::of(StoreFile::in_memory().unwrap(), 1).unwrap());
    let wide = Quota {
        keys: 1 << 20,
        bytes: 1 << 30,
    };
    let count = 2 * PIECE as u64;
    let pairs = (0..count).map(|key| (format!("{key:05}").into_bytes(), Some(Vec::new())));
    let change = Change::Put(pairs.collect());
    store
        .change("busy", "busy".into(), wide, change)
        .await
        .unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let held = store.reading.take("other").await;
    let listed = store.list("busy", "busy".into(), Start::Number(count), 9);
    let mut listed = std::pin::pin!(listed);
    assert!(listed.as_mut().poll(&mut context).is_pending());
    let (begun, has_begun) = oneshot::channel();
    let (goes_on, may_go_on) = mpsc::channel::<()>();
    let read = store.read("quiet", move |_| {
        let _ = begun.send(());
        let _ = may_go_on.recv();
        Ok(())
    });
    let mut read = std::pin::pin!(read);
    assert!(read.as_mut().poll(&mut context).is_pending());
    drop(held);
    // The first piece is read, then the neighbour has the only turn, and the listing waits for its
    // next.
    let mut has_begun = std::pin::pin!(has_begun);
    let mut begun = None;
    let page = loop {
        let page = listed.as_mut().poll(&mut context);
        assert!(read.as_mut().poll(&mut context).is_pending());
        if begun.is_none()
            && let std::task::Poll::Ready(result) = has_begun.as_mut().poll(&mut context)
        {
            begun = Some(result);
        }
        if page.is_ready() || (begun.is_some() && store.reading.waiting() == 1) {
            break page;
        }
        tokio::task::yield_now().await;
    };
    assert!(page.is_pending() && matches!(begun, Some(Ok(()))));
    drop(goes_on);
    read.await.unwrap();
    assert_eq!(listed.await.unwrap(), (Vec::new(), false));
}

#[tokio::test]
async fn a_damaged_file_is_reported_and_retried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv.redb");
    fs::write(&path, "no database").unwrap();
    let store = Embedded::in_file(path.clone()).unwrap();
    let refused = store.get("a", &[b"k".to_vec()], 9).unwrap_err().to_string();
    assert!(refused.contains("kv.redb"), "{refused}");
    let change = put(&[("k", Some("1"))]);
    let refused = store
        .change("a", "a".into(), WIDE, change)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("kv.redb"), "{refused}");
    fs::remove_file(&path).unwrap();
    set(&store, "a", "k", "1").await;
    assert_eq!(get(&store, "a", "k").unwrap(), b"1");
}

#[tokio::test]
async fn values_too_large_for_a_response_are_rejected() {
    let store = Embedded::in_memory().unwrap();
    set(&store, "n", "a", "1234").await;
    set(&store, "n", "b", "1234").await;
    let keys = [b"a".to_vec(), b"b".to_vec()];
    assert_eq!(store.get("n", &keys, 8).unwrap().len(), 2);
    let refused = store.get("n", &keys, 7);
    assert!(
        matches!(refused, Err(StoreError::TooMuch(7))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn more_bytes_than_one_transaction_takes_are_all_written() {
    let store = Arc::new(Embedded::in_memory().unwrap());
    let wide = Quota {
        keys: 1_000,
        bytes: 1 << 30,
    };
    // 32 times as many bytes as one transaction takes.
    let writers: Vec<_> = (0..128)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let key = format!("k{number}").into_bytes();
                let change = Change::Put(BTreeMap::from([(key, Some(vec![0; 1 << 20]))]));
                store.change("n", "n".into(), wide, change).await.unwrap()
            })
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.await.unwrap(), Changed::Done);
    }
    let uses = store.uses().unwrap();
    assert_eq!(uses.first().map(|uses| uses.keys), Some(128));
}

#[tokio::test]
async fn an_abandoned_change_is_not_begun() {
    let store = Embedded::in_memory().unwrap();
    {
        let mut abandoned =
            std::pin::pin!(store.change("n", "n".into(), WIDE, put(&[("a", Some("1"))])));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        // The change may be made before the future is dropped, or not at all, but never partially.
        let _ = abandoned.as_mut().poll(&mut context);
    }
    set(&store, "n", "b", "2").await;
    let uses = store.uses().unwrap();
    let count = keys(&store, "n", first(), 9).unwrap().0.len() as u64;
    assert_eq!(uses.first().map(|uses| uses.keys), Some(count));
}

/// Readers, from memory or from the file, find every write that was acknowledged before, and never
/// an older value than they have seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cached_values_are_never_older_than_acknowledged_ones() {
    let store = Arc::new(Embedded::in_memory().unwrap());
    let acknowledged = Arc::new(AtomicI64::new(0));
    set(&store, "a", "n", "0").await;
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
            tokio::task::spawn_blocking(move || {
                let mut newest = 0;
                while newest < 500 {
                    let least = acknowledged.load(Ordering::Acquire).max(newest);
                    let keys = [b"n".to_vec()];
                    let known = store.cached("a", &keys);
                    let values = known.unwrap_or_else(|| store.get("a", &keys, 1 << 10).unwrap());
                    let value = String::from_utf8(values[0].clone().unwrap()).unwrap();
                    newest = value.parse().unwrap();
                    assert!(newest >= least, "{newest} after {least}");
                }
            })
        })
        .collect();
    for number in 1..=500 {
        let change = Change::Increment(b"n".to_vec(), 1);
        let changed = store.change("a", "a".into(), WIDE, change).await.unwrap();
        assert_eq!(changed, Changed::Number(number));
        acknowledged.store(number, Ordering::Release);
        tokio::task::yield_now().await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test]
async fn read_values_are_cached_until_changed() {
    let store = Embedded::in_memory().unwrap();
    let known = |key: &str| store.cached("a", &[key.as_bytes().to_vec()]);
    set(&store, "a", "k", "1").await;
    assert_eq!(known("k"), None);
    assert_eq!(get(&store, "a", "k").unwrap(), b"1");
    assert_eq!(known("k"), Some(vec![Some(b"1".to_vec())]));
    assert_eq!(get(&store, "a", "none"), None);
    assert_eq!(known("none"), Some(vec![None]));
    set(&store, "a", "other", "1").await;
    assert_eq!(known("k"), Some(vec![Some(b"1".to_vec())]));
    set(&store, "a", "none", "2").await;
    assert_eq!(known("none"), None);
    assert_eq!(get(&store, "a", "none").unwrap(), b"2");
    // A change that is rejected changes nothing, and the values in memory after it are those of the
    // file.
    let refused = Change::Increment(b"k".to_vec(), i64::MAX);
    let refused = store.change("a", "a".into(), WIDE, refused).await;
    assert!(refused.is_err());
    assert_eq!(get(&store, "a", "k").unwrap(), b"1");
    assert_eq!(known("k"), Some(vec![Some(b"1".to_vec())]));
}
