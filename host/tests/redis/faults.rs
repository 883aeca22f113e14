//! A server that ends, hangs, is full, or refuses: the answers that functions get, and the data
//! that is there afterwards.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use faasw::{KeyValueServer, Limits, Node};
use faasw_abi::store::Operation;

use crate::{
    common::tls,
    server::Server,
    store_node::{StoreNode, StoreReply, failed, value},
};

const AWAY: &str = "the key-value store cannot be reached";
const FAILED: &str = "the key-value store failed; the node's log has the reason";
const UNKNOWN: &str = "the key-value store failed; it is unknown whether the value was written";

/// The longest time that a function may wait for an answer: 3 s, and some time for a slow machine.
/// Two waits in sequence take 6 s or more, however slow the machine is.
const AT_MOST: Duration = Duration::from_millis(5900);

/// The writes that were acknowledged: each writer's last pair, and the number of increments.
#[derive(Debug, Default)]
struct Acknowledged {
    pairs: BTreeMap<usize, u64>,
    counted: u64,
    /// The number of increments whose outcome is unknown.
    unknown: u64,
}

/// Writes until `ends` is set.
async fn write_on(node: StoreNode, writer: usize, ends: Arc<AtomicBool>) -> Acknowledged {
    let (one, other) = (format!("{writer}/a"), format!("{writer}/b"));
    let mut acknowledged = Acknowledged::default();
    let mut next = number(&node.get(&one).await);
    while !ends.load(Ordering::Relaxed) {
        next += 1;
        let text = next.to_string();
        let pair = vec![
            (one.as_bytes(), text.as_bytes()),
            (other.as_bytes(), text.as_bytes()),
        ];
        match node.execute(Operation::Set(pair)).await {
            StoreReply::Done => drop(acknowledged.pairs.insert(writer, next)),
            StoreReply::Failed(_) => {}
            other => panic!("{other:?}"),
        }
        match node.execute(Operation::Increment(b"all", 1)).await {
            StoreReply::Number(_) => acknowledged.counted += 1,
            StoreReply::Failed(why) if why == UNKNOWN => acknowledged.unknown += 1,
            StoreReply::Failed(_) => {}
            other => panic!("{other:?}"),
        }
    }
    acknowledged
}

fn number(reply: &StoreReply) -> u64 {
    match reply {
        StoreReply::Values(values) => values[0]
            .as_ref()
            .map_or(0, |text| str::from_utf8(text).unwrap().parse().unwrap()),
        _ => 0,
    }
}

pub async fn acknowledged_changes_survive_a_killed_server() {
    const WRITERS: usize = 4;
    const KILLS: u64 = 4;
    let mut server = Server::start();
    let nodes = [
        StoreNode::of(&server, Limits::default()).await,
        StoreNode::of(&server, Limits::default()).await,
    ];
    let (mut all, mut reply) = (0, BTreeMap::new());
    for kill in 1..=KILLS {
        let ends = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write_on(nodes[writer % 2].clone(), writer, ends.clone())))
            .collect();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..250))).await;
        server.kill();
        ends.store(true, Ordering::Relaxed);
        let (mut counted, mut unknown) = (0, 0);
        for writer in writers {
            let acknowledged = writer.await.unwrap();
            reply.extend(acknowledged.pairs);
            counted += acknowledged.counted;
            unknown += acknowledged.unknown;
        }
        server.run();
        nodes[0].until_it_works().await;
        let has = number(&nodes[0].get("all").await);
        assert!(
            (all + counted..=all + counted + unknown).contains(&has),
            "{all} and {counted} and perhaps {unknown}, has {has}"
        );
        all = has;
        for writer in 0..WRITERS {
            let get = |end: &str| format!("{writer}/{end}");
            let (one, other) = (get("a"), get("b"));
            let pair = Operation::Get(vec![one.as_bytes(), other.as_bytes()]);
            let StoreReply::Values(pair) = nodes[1].execute(pair).await else {
                panic!("no values");
            };
            assert_eq!(pair[0], pair[1], "a batch by half");
            let has = number(&StoreReply::Values(pair));
            let least = reply.get(&writer).copied().unwrap_or(0);
            assert!((least..=least + kill).contains(&has), "{least} {has}");
            reply.insert(writer, has);
        }
    }
    assert!(all > 0, "nobody came to write anything");
    for node in nodes {
        node.end().await;
    }
}

pub async fn a_hanging_server_times_out_and_is_used_again() {
    let server = Server::start();
    let node = StoreNode::of(&server, Limits::default()).await;
    assert_eq!(node.set("k", "1").await, StoreReply::Done);
    server.signal("STOP");
    let begun = Instant::now();
    let count = Arc::new(AtomicU64::new(0));
    // More readers and writers than there are connections.
    let all: Vec<_> = (0..40)
        .map(|number: u64| {
            let (node, count) = (node.clone(), count.clone());
            tokio::spawn(async move {
                let reply = match number % 2 {
                    0 => node.get("k").await,
                    _ => node.execute(Operation::Increment(b"n", 1)).await,
                };
                match reply {
                    StoreReply::Failed(why) if why == UNKNOWN => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    reply => assert_eq!(reply, failed(AWAY)),
                }
            })
        })
        .collect();
    for each in all {
        each.await.unwrap();
    }
    assert!(begun.elapsed() < AT_MOST, "{:?}", begun.elapsed());
    // The error tells the operator which server does not answer.
    let away = node.node.stores().await.unwrap_err().to_string();
    assert!(away.contains(&server.url()), "{away}");
    server.signal("CONT");
    node.until_it_works().await;
    assert_eq!(node.get("k").await, value(Some("1")));
    // An increment without an answer was done once, or not at all.
    let done = number(&node.get("n").await);
    assert!(done <= count.load(Ordering::Relaxed), "{done}");
    node.end().await;
}

pub async fn cut_connections_and_lost_scripts_are_restored() {
    let mut server = Server::start();
    let node = StoreNode::of(&server, Limits::default()).await;
    for round in 1..=3 {
        assert_eq!(
            node.execute(Operation::Increment(b"n", 1)).await,
            StoreReply::Number(2 * round - 1)
        );
        server.tell("CLIENT KILL TYPE normal SKIPME yes");
        server.tell("SCRIPT FLUSH");
        // The node may notice the closed connection only when it sends the read. Then it sends the
        // read again.
        assert!(matches!(node.get("n").await, StoreReply::Values(_)));
        assert_eq!(
            node.execute(Operation::Increment(b"n", 1)).await,
            StoreReply::Number(2 * round)
        );
    }
    server.kill();
    assert_eq!(node.get("n").await, failed(AWAY));
    assert_eq!(node.set("k", "1").await, failed(AWAY));
    server.run();
    assert_eq!(node.get("n").await, value(Some("6")));
    assert_eq!(node.get("k").await, value(None));
    node.end().await;
}

pub async fn a_full_server_rejects_writes_and_accepts_removals() {
    let server = Server::start();
    let node = StoreNode::of(&server, Limits::default()).await;
    assert_eq!(node.set("a", "1").await, StoreReply::Done);
    assert_eq!(node.set("b", "1").await, StoreReply::Done);
    server.tell("CONFIG SET maxmemory 1");
    let mixed = Operation::Set(vec![(b"c", b"1"), (b"a", b"2")]);
    for refused in [mixed, Operation::Increment(b"a", 1)] {
        assert_eq!(node.execute(refused).await, failed(FAILED));
    }
    let own = &node.node.stores().await.unwrap()[0];
    assert_eq!((own.keys, own.bytes), (2, 4));
    let reply = node
        .node
        .set_store_value(&own.store, "c", Some("1".into()))
        .await;
    let reply = reply.unwrap_err().to_string();
    assert!(reply.contains("OOM"), "{reply}");
    assert_eq!(node.get("a").await, value(Some("1")));
    assert_eq!(
        node.execute(Operation::Delete(vec![b"a"])).await,
        StoreReply::Done
    );
    server.tell("CONFIG SET maxmemory 0");
    assert_eq!(node.set("c", "1").await, StoreReply::Done);
    let (keys, _) = node.keys().await;
    assert_eq!(keys, [b"b", b"c"]);
    node.end().await;
}

pub async fn a_server_that_becomes_a_replica_is_read() {
    let server = Server::start();
    let node = StoreNode::of(&server, Limits::default()).await;
    assert_eq!(node.set("a", "1").await, StoreReply::Done);
    server.tell("REPLICAOF 127.0.0.1 1");
    for refused in [
        Operation::Increment(b"a", 1),
        Operation::Delete(vec![b"a"]),
        Operation::Set(vec![(b"b", b"1")]),
    ] {
        assert_eq!(node.execute(refused).await, failed(FAILED));
    }
    assert_eq!(node.get("a").await, value(Some("1")));
    server.tell("REPLICAOF NO ONE");
    assert_eq!(
        node.execute(Operation::Increment(b"a", 1)).await,
        StoreReply::Number(2)
    );
    node.end().await;
}

pub async fn foreign_values_at_our_keys_are_errors() {
    let server = Server::start();
    let node = StoreNode::of(&server, Limits::default()).await;
    // Puts a value of another kind in the place of each key.
    for (name, other) in [("keys", "SET"), ("values", "SET"), ("bytes", "SADD")] {
        server.tell(&format!("{other} faasw:kv:{{function/f}}:{name} x"));
        let reply = match name {
            // The node checks this one only if the store has keys.
            "bytes" => {
                server.tell("HSET faasw:kv:{function/f}:values k v");
                node.set("k", "1").await
            }
            _ => node.set("k", "1").await,
        };
        assert_eq!(reply, failed(FAILED), "{name}");
        server.tell("FLUSHALL");
    }
    // A key that no function can have.
    server.tell("ZADD faasw:kv:{function/f}:keys 0 \"\\xff\"");
    let reply = node
        .execute(Operation::Keys(faasw_abi::store::ListFrom::Start))
        .await;
    assert_eq!(reply, failed(FAILED));
    server.tell("FLUSHALL");
    assert_eq!(node.set("k", "1").await, StoreReply::Done);
    node.end().await;
}

async fn refusal(server: KeyValueServer) -> String {
    let node = StoreNode::on(Node::builder().key_value_server(server)).await;
    let reply = node.unwrap_err().to_string();
    assert!(
        !reply.contains("hush") && !reply.contains("wrong"),
        "{reply}"
    );
    reply
}

pub async fn a_failed_login_is_reported_without_the_password() {
    let server = Server::with(&["--requirepass", "hush/#?"]);
    let at = || server.tcp().parse::<KeyValueServer>().unwrap();
    let shown = server.tcp();
    let reply = refusal(at()).await;
    assert!(
        reply.contains("NOAUTH") && reply.contains(&shown),
        "{reply}"
    );
    let reply = refusal(at().password("wrong").unwrap()).await;
    assert!(
        reply.contains("user name and password") && reply.contains(&shown),
        "{reply}"
    );
    let in_url = format!("redis://:hush%2F%23%3F@127.0.0.1:{}", server.port);
    for right in [at().password("hush/#?").unwrap(), in_url.parse().unwrap()] {
        let builder = Node::builder().key_value_server(right);
        assert!(!format!("{builder:?}").contains("hush"));
        let node = StoreNode::on(builder).await.unwrap();
        assert_eq!(node.set("k", "1").await, StoreReply::Done);
        node.end().await;
    }
    let nobody = format!("redis://nobody:hush@127.0.0.1:{}", server.port);
    refusal(nobody.parse().unwrap()).await;
    let elsewhere = "redis://:hush@127.0.0.1:1".parse().unwrap();
    let reply = refusal(elsewhere).await;
    assert!(
        reply.contains("127.0.0.1:1") && reply.contains("refused"),
        "{reply}"
    );
    let reply = refusal("redis://:hush@store.invalid".parse().unwrap()).await;
    assert!(reply.contains("store.invalid:6379"), "{reply}");
}

/// The rights that operating.md requires for a node's user are enough.
pub async fn a_user_with_the_documented_rights_suffices() {
    let server = Server::start();
    server.tell(
        "ACL SETUSER faasw on >hush ~faasw:kv:* +ping +select +info +scan +evalsha +script|load \
         +hlen +zcard +hexists +hstrlen +hget +hset +hdel +hmget +hincrby +zadd +zrem \
         +zrange +get +set +del",
    );
    let url = format!("redis://faasw:hush@127.0.0.1:{}", server.port);
    let builder = Node::builder().key_value_server(url.parse().unwrap());
    let node = StoreNode::on(builder).await.unwrap();
    assert_eq!(node.set("k", "1").await, StoreReply::Done);
    assert_eq!(
        node.execute(Operation::Increment(b"k", 1)).await,
        StoreReply::Number(2)
    );
    let swap = Operation::Swap {
        key: b"k",
        seen: Some(b"2"),
        value: b"3",
    };
    assert_eq!(node.execute(swap).await, StoreReply::Done);
    assert_eq!(
        node.execute(Operation::Exists(b"k")).await,
        StoreReply::Exists(true)
    );
    assert_eq!(node.get("k").await, value(Some("3")));
    assert_eq!(node.keys().await.0, [b"k"]);
    assert_eq!(node.node.stores().await.unwrap().len(), 1);
    assert_eq!(
        node.execute(Operation::Delete(vec![b"k"])).await,
        StoreReply::Done
    );
    node.end().await;
    server.tell("ACL SETUSER faasw -evalsha");
    let reply = refusal(url.parse().unwrap()).await;
    assert!(reply.contains("NOPERM"), "{reply}");
}

pub async fn tls_is_for_the_name_and_the_authority() {
    let folder = tempfile::tempdir().unwrap();
    let files = tls::Files::new(folder.path(), "redis");
    files.write(&["localhost"]);
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = (path(&files.certificate), path(&files.key));
    let mut server = Server::start();
    server.kill();
    // From here on, the port serves TLS.
    let port = server.port.to_string();
    server.with_options(&[
        "--port",
        "0",
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "no",
    ]);
    server.run();
    let at = |host: &str| {
        format!("rediss://{host}:{port}")
            .parse::<KeyValueServer>()
            .unwrap()
    };
    let pem = std::fs::read(&files.certificate).unwrap();
    let builder = Node::builder().key_value_server(at("localhost").trust(&pem).unwrap());
    let node = StoreNode::on(builder).await.unwrap();
    assert_eq!(node.set("k", "1").await, StoreReply::Done);
    assert_eq!(node.get("k").await, value(Some("1")));
    node.end().await;
    for stranger in [at("localhost"), at("127.0.0.1").trust(&pem).unwrap()] {
        let reply = refusal(stranger).await;
        assert!(reply.contains("certificate"), "{reply}");
    }
    // The server does not understand a client without TLS.
    let plain = format!("redis://localhost:{port}").parse().unwrap();
    refusal(plain).await;
}
