//! Tests against servers that misbehave on purpose. `host/tests/redis` tests against a real server.

use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use super::*;

const QUOTA: Quota = Quota {
    keys: 9,
    bytes: 999,
};

/// Starts a server that answers each message with the result of `answer`.
async fn serve<F>(answer: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(&str) -> Vec<u8> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, count) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let changes = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, answer.clone(), count.clone()));
        }
    });
    (address, changes)
}

/// Answers messages and counts changes. An empty answer closes the connection; the answer `.` is
/// never sent.
async fn talk<F: Fn(&str) -> Vec<u8>>(
    mut stream: TcpStream,
    answer: Arc<F>,
    changes: Arc<AtomicUsize>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        let message = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
        if message.contains("}:keys") && message.contains("EVALSHA") {
            changes.fetch_add(1, Ordering::Relaxed);
        }
        match answer(&message).as_slice() {
            b"" => return,
            b"." => std::future::pending().await,
            bytes => drop(stream.write_all(bytes).await),
        }
    }
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// The answers of a good server when a node starts.
fn good(message: &str) -> Option<Vec<u8>> {
    let has = |word: &str| message.contains(word);
    if has("PING") {
        Some(b"+PONG\r\n".to_vec())
    } else if has("INFO") {
        Some(bulk(
            "redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n",
        ))
    } else if has("CONFIG") {
        Some(b"-NOPERM no\r\n".to_vec())
    } else if has("probe") {
        Some(b"*2\r\n$6\r\nvalues\r\n*1\r\n$-1\r\n".to_vec())
    } else {
        None
    }
}

async fn redis(address: SocketAddr) -> Result<Redis, StoreError> {
    Redis::connect(format!("redis://{address}").parse().unwrap()).await
}

/// Time limit of a command for a server that does not answer.
const BRIEF: Duration = Duration::from_millis(700);

fn put() -> Change {
    Change::Put(BTreeMap::from([(b"k".to_vec(), Some(b"v".to_vec()))]))
}

/// Checks that a future completes within the time limit.
async fn in_time<T>(asked: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = asked.await;
    assert!(begun.elapsed() < BRIEF * 4);
    done
}

#[tokio::test]
async fn reads_on_a_broken_connection_are_retried_and_writes_are_not() {
    let asked = AtomicUsize::new(0);
    let (address, changes) = serve(move |message| {
        good(message).unwrap_or_else(|| {
            // Only the second request is answered.
            if message.contains("HEXISTS") && asked.fetch_add(1, Ordering::Relaxed) > 0 {
                b":1\r\n".to_vec()
            } else {
                Vec::new()
            }
        })
    })
    .await;
    let redis = redis(address).await.unwrap();
    assert!(redis.exists("n", "n", b"k").await.unwrap());
    for change in [put(), Change::Increment(b"k".to_vec(), 1)] {
        let lost = redis.change("n", "n", QUOTA, &change).await;
        assert!(matches!(lost, Err(StoreError::Unknown)), "{lost:?}");
    }
    // Each change was sent once.
    assert_eq!(changes.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn commands_to_a_hanging_server_time_out() {
    let (address, changes) = serve(|message| good(message).unwrap_or_else(|| b".".to_vec())).await;
    let server = format!("redis://{address}").parse().unwrap();
    let redis = Redis::connect_with(server, BRIEF).await.unwrap();
    let away = in_time(redis.exists("n", "n", b"k")).await;
    assert!(matches!(away, Err(StoreError::Away { .. })), "{away:?}");
    let lost = in_time(redis.change("n", "n", QUOTA, &put())).await;
    assert!(matches!(lost, Err(StoreError::Unknown)), "{lost:?}");
    assert_eq!(changes.load(Ordering::Relaxed), 1);
    // However many callers there are, those without a turn change nothing.
    let change = put();
    let all = (0..64).map(|_| redis.change("n", "n", QUOTA, &change));
    let all = in_time(futures(all)).await;
    let away = all
        .iter()
        .filter(|lost| matches!(lost, Err(StoreError::Away { .. })));
    // On a slow machine, not all callers with a turn send their command.
    assert!((48..=64).contains(&away.count()));
}

/// Runs all futures at the same time.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|each| (Box::pin(each), None)).collect();
    std::future::poll_fn(move |context| {
        for (each, done) in &mut all {
            if done.is_none()
                && let std::task::Poll::Ready(value) = each.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if all.iter().all(|(_, done)| done.is_some()) {
            std::task::Poll::Ready(all.iter_mut().filter_map(|(_, done)| done.take()).collect())
        } else {
            std::task::Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn server_errors_are_reported_and_change_nothing() {
    for (says, kind) in [
        (
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "OOM",
        ),
        (
            "-READONLY You can't write against a read only replica.",
            "READONLY",
        ),
        ("-LOADING Redis is loading the dataset in memory", "LOADING"),
        ("-NOAUTH Authentication required.", "NOAUTH"),
        (
            "-MISCONF Redis is configured to save RDB snapshots",
            "MISCONF",
        ),
        // A server that has joined a cluster meanwhile.
        ("-MOVED 866 192.0.2.1:6379", "one of a cluster"),
        ("-ASK 866 192.0.2.1:6379", "one of a cluster"),
        (
            "-CROSSSLOT Keys in request don't hash to the same slot",
            "one of a cluster",
        ),
        ("-CLUSTERDOWN The cluster is down", "CLUSTERDOWN"),
        (
            "-TRYAGAIN Multiple keys request during rehashing",
            "TRYAGAIN",
        ),
        ("-MASTERDOWN Link with MASTER is down", "MASTERDOWN"),
        (
            "-NOREPLICAS Not enough good replicas to write.",
            "NOREPLICAS",
        ),
        ("-BUSY Redis is busy running a script.", "BUSY"),
        ("-ERR a\tkey", "a\\tkey"),
    ] {
        let answer = format!("{says}\r\n").into_bytes();
        let (address, changes) =
            serve(move |message| good(message).unwrap_or_else(|| answer.clone())).await;
        let redis = redis(address).await.unwrap();
        let refused = redis.change("n", "n", QUOTA, &put()).await.unwrap_err();
        // Nothing is sent twice, whatever the library would do by itself.
        assert_eq!(changes.load(Ordering::Relaxed), 1, "{says}");
        let told = refused.to_string();
        assert!(
            matches!(refused, StoreError::Refused { .. }) && told.contains(kind),
            "{told}"
        );
        assert!(told.contains(&address.to_string()), "{told}");
        assert!(!refused.to_function().contains(kind));
    }
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_reconnected() {
    let (connections, refused) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let count = connections.clone();
    let (address, _) = serve(move |message| {
        if message.contains("PING") {
            count.fetch_add(1, Ordering::Relaxed);
        }
        good(message).unwrap_or_else(|| match refused.fetch_add(1, Ordering::Relaxed) {
            0 => b"-READONLY You can't write against a read only replica.\r\n".to_vec(),
            _ => b"*1\r\n$4\r\ndone\r\n".to_vec(),
        })
    })
    .await;
    let redis = redis(address).await.unwrap();
    assert!(redis.change("n", "n", QUOTA, &put()).await.is_err());
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    for _ in 0..2 {
        let changed = redis.change("n", "n", QUOTA, &put()).await.unwrap();
        assert_eq!(changed, Changed::Done);
        assert_eq!(connections.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn an_impossible_reply_is_an_error() {
    let endless = [b"$9000000\r\n".to_vec(), vec![b'x'; 9_000_000]].concat();
    for answer in [endless, b"nonsense\r\n".to_vec()] {
        let (address, _) =
            serve(move |message| good(message).unwrap_or_else(|| answer.clone())).await;
        let redis = redis(address).await.unwrap();
        let lost = redis.change("n", "n", QUOTA, &put()).await;
        assert!(matches!(lost, Err(StoreError::Unknown)), "{lost:?}");
        let away = redis.exists("n", "n", b"k").await;
        assert!(matches!(away, Err(StoreError::Away { .. })), "{away:?}");
    }
    let (address, _) = serve(|message| good(message).unwrap_or_else(|| b"+OK\r\n".to_vec())).await;
    let redis = redis(address).await.unwrap();
    let refused = redis.get("n", "n", &[b"k".to_vec()], 9).await;
    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_unsuitable_server_is_rejected_at_the_start() {
    for (says, why) in [
        (
            "redis_version:6.2.7\r\nredis_mode:standalone\r\n",
            "7.0 or newer",
        ),
        ("redis_version:7.0.15\r\nredis_mode:cluster\r\n", "cluster"),
        ("nothing", "7.0 or newer"),
    ] {
        let says = bulk(says);
        let (address, _) = serve(move |message| {
            if message.contains("INFO") {
                says.clone()
            } else {
                good(message).unwrap_or_default()
            }
        })
        .await;
        let told = redis(address).await.unwrap_err().to_string();
        assert!(
            told.contains(why) && told.contains(&address.to_string()),
            "{told}"
        );
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = format!("redis://me:hush@{address}").parse().unwrap();
    let told = Redis::connect(server).await.unwrap_err().to_string();
    assert!(
        told.contains("Connection refused") && !told.contains("hush"),
        "{told}"
    );
}
