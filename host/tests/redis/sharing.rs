//! Several nodes on one server.

use faasw::{FunctionName, FunctionOptions, Limits, Store};
use faasw_abi::store::Operation;

use crate::{
    server::Server,
    store_node::{SHARED, StoreNode, StoreReply, value},
};

pub async fn writes_of_one_node_are_read_by_another() {
    let server = Server::start();
    let one = StoreNode::of(&server, Limits::default()).await;
    let other = StoreNode::of(&server, Limits::default()).await;
    assert_eq!(one.set("k", "1").await, StoreReply::Done);
    assert_eq!(other.get("k").await, value(Some("1")));
    assert_eq!(other.set("k", "2").await, StoreReply::Done);
    // The nodes cache nothing.
    assert_eq!(one.get("k").await, value(Some("2")));
    let set = Operation::Set(vec![(b"k", b"shared")]);
    assert_eq!(one.execute_on(SHARED, set).await, StoreReply::Done);
    let get = Operation::Get(vec![b"k"]);
    assert_eq!(
        other.execute_on(SHARED, get.clone()).await,
        value(Some("shared"))
    );
    assert_eq!(one.get("k").await, value(Some("2")));
    assert_eq!(one.execute_on("others", get).await, StoreReply::Denied);
    // Both nodes show the operator the same stores.
    let stores = one.node.stores().await.unwrap();
    assert_eq!(stores, other.node.stores().await.unwrap());
    let shown: Vec<_> = stores
        .iter()
        .map(|info| (info.store.path(), info.keys, info.bytes))
        .collect();
    let expected = [
        ("kv/functions/f".to_owned(), 1, 2),
        (format!("kv/shared/{SHARED}"), 1, 7),
    ];
    assert_eq!(shown, expected);
    let own = &stores[0].store;
    other
        .node
        .set_store_value(own, "by hand", Some("v".into()))
        .await
        .unwrap();
    assert_eq!(one.get("by hand").await, value(Some("v")));
    let keys = one.node.store_keys(own, "a").await.unwrap();
    assert_eq!(
        (keys.keys, keys.has_more),
        (vec!["by hand".to_owned(), "k".to_owned()], false)
    );
    // Removing a function leaves its store, which belongs to the other node's function, too.
    one.node.remove("f").await.unwrap();
    assert_eq!(one.get("k").await, StoreReply::Denied);
    assert_eq!(other.get("k").await, value(Some("2")));
    one.node
        .deploy("f", "keeps", FunctionOptions::default())
        .await
        .unwrap();
    let kept = one.node.store_value(own, "k").await.unwrap();
    assert_eq!(kept.unwrap(), b"2");
    one.end().await;
    other.end().await;
}

pub async fn databases_and_foreign_keys_are_separate() {
    let server = Server::start();
    server.tell("SET faasw:kv:{shared/foreign}:values text");
    server.tell("HSET elsewhere k v");
    let at = |database: u8| format!("{}?db={database}", server.url()).parse().unwrap();
    let node = |database| async move {
        StoreNode::on(faasw::Node::builder().key_value_server(database))
            .await
            .unwrap()
    };
    let (one, other) = (node(at(0)).await, node(at(1)).await);
    assert_eq!(one.set("k", "1").await, StoreReply::Done);
    assert_eq!(other.get("k").await, value(None));
    assert_eq!(other.node.stores().await.unwrap(), []);
    let stores = one.node.stores().await.unwrap();
    let names: Vec<_> = stores.iter().map(|info| info.store.name()).collect();
    assert_eq!(names, ["f"]);
    one.end().await;
    other.end().await;
}

pub async fn concurrent_counts_and_swaps_on_two_nodes_are_exact() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 60;
    let server = Server::with(&["--appendfsync", "everysec"]);
    let nodes = [
        StoreNode::of(&server, Limits::default()).await,
        StoreNode::of(&server, Limits::default()).await,
    ];
    let tasks: Vec<_> = (0..2 * TASKS)
        .map(|number| {
            let node = nodes[number % 2].clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let counted = node.execute(Operation::Increment(b"n", 1)).await;
                    assert!(matches!(counted, StoreReply::Number(_)), "{counted:?}");
                    swap_on(&node).await;
                    // Every reader sees two equal values.
                    let text = number.to_string();
                    let pair = vec![(&b"a"[..], text.as_bytes()), (b"b", text.as_bytes())];
                    assert_eq!(node.execute(Operation::Set(pair)).await, StoreReply::Done);
                    let StoreReply::Values(pair) =
                        node.execute(Operation::Get(vec![b"a", b"b"])).await
                    else {
                        panic!("no values");
                    };
                    assert_eq!(pair[0], pair[1]);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let all = (2 * TASKS * ROUNDS).to_string();
    for key in ["n", "swapped"] {
        assert_eq!(nodes[0].get(key).await, value(Some(&all)), "{key}");
    }
    let own = Store::Function(FunctionName::new("f").unwrap());
    let stores = nodes[1].node.stores().await.unwrap();
    assert_eq!((&stores[0].store, stores[0].keys), (&own, 4));
    for node in nodes {
        node.end().await;
    }
}

/// Increments by compare-and-swap, and repeats until the expected value is the current one.
async fn swap_on(node: &StoreNode) {
    let mut seen: Option<Vec<u8>> = None;
    loop {
        let text = seen
            .as_deref()
            .map_or("0", |text| str::from_utf8(text).unwrap());
        let next = (text.parse::<u64>().unwrap() + 1).to_string();
        let swap = Operation::Swap {
            key: b"swapped",
            seen: seen.as_deref(),
            value: next.as_bytes(),
        };
        match node.execute(swap).await {
            StoreReply::Done => return,
            StoreReply::Values(mut now) => seen = now.remove(0),
            other => panic!("{other:?}"),
        }
    }
}
