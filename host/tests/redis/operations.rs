//! Each operation on both kinds of stores: the server's store must answer as the embedded one does.

use faasw::Limits;
use faasw_abi::store::{ListFrom, Operation, VALUE_MAX};

use crate::{
    server::Server,
    store_node::{SHARED, StoreNode, StoreReply, failed, value},
};

const NO_NUMBER: &str = "the value is not a 64-bit number";

fn narrow(keys: u64, bytes: u64) -> Limits {
    let mut limits = Limits::default();
    limits.store_keys = keys;
    limits.store_bytes = bytes;
    limits
}

/// Performs the same steps on both kinds of stores.
async fn on_both(limits: Limits, steps: &[(Operation<'_>, StoreReply)]) {
    let server = Server::start();
    for node in [
        StoreNode::embedded(limits.clone()).await,
        StoreNode::of(&server, limits).await,
    ] {
        for (number, (operation, expected)) in steps.iter().enumerate() {
            let told = node.execute(operation.clone()).await;
            assert_eq!(
                told, *expected,
                "step {number} of {:?}: {operation:?}",
                node.node
            );
        }
        node.end().await;
    }
}

fn keys(keys: &[&str], more: bool) -> StoreReply {
    let keys = keys.iter().map(|key| key.as_bytes().to_vec());
    StoreReply::Keys(keys.collect(), more)
}

fn values(values: &[Option<&[u8]>]) -> StoreReply {
    StoreReply::Values(
        values
            .iter()
            .map(|value| value.map(<[u8]>::to_vec))
            .collect(),
    )
}

pub async fn values_are_set_read_and_removed() {
    use Operation::{Delete, Exists, Get, Keys, Set};
    // Line breaks, braces, and characters that could be taken for the end of a text.
    const ODD: &[u8] = "a\nb}:values\0{x} \u{1f980}\r\n$3".as_bytes();
    let all: Vec<u8> = (0..=u8::MAX).collect();
    on_both(
        Limits::default(),
        &[
            (Operation::Open, StoreReply::Done),
            (Get(vec![b"k"]), value(None)),
            (Exists(b"k"), StoreReply::Exists(false)),
            (Delete(vec![b"k"]), StoreReply::Done),
            (Keys(ListFrom::Start), keys(&[], false)),
            (Set(vec![(b"k", b"1"), (b"l", b"")]), StoreReply::Done),
            (
                Get(vec![b"k", b"x", b"l", b"k"]),
                values(&[Some(b"1"), None, Some(b""), Some(b"1")]),
            ),
            (Exists(b"l"), StoreReply::Exists(true)),
            (
                Set(vec![(b"k", b"first"), (b"k", b"last")]),
                StoreReply::Done,
            ),
            (Get(vec![b"k"]), value(Some("last"))),
            (Set(vec![(ODD, &all), (b"\0", ODD)]), StoreReply::Done),
            (Get(vec![ODD, b"\0"]), values(&[Some(&all), Some(ODD)])),
            (
                Keys(ListFrom::Start),
                StoreReply::Keys([b"\0", ODD, b"k", b"l"].map(<[u8]>::to_vec).into(), false),
            ),
            (Keys(ListFrom::Behind(ODD)), keys(&["k", "l"], false)),
            (Keys(ListFrom::Behind(b"b")), keys(&["k", "l"], false)),
            (Keys(ListFrom::Number(3)), keys(&["l"], false)),
            (Keys(ListFrom::Number(100_000)), keys(&[], false)),
            (
                Keys(ListFrom::Number(100_001)),
                failed(
                    "a list can skip at most 100000 keys; with the newer draft, it can begin \
                     after a key",
                ),
            ),
            (Delete(vec![ODD, b"nothing", b"k", b"k"]), StoreReply::Done),
            (Get(vec![ODD, b"k", b"l"]), values(&[None, None, Some(b"")])),
            (Set(vec![]), StoreReply::Done),
            (Get(vec![]), values(&[])),
            (Delete(vec![]), StoreReply::Done),
            (Delete(vec![b"l", b"\0"]), StoreReply::Done),
            (Keys(ListFrom::Start), keys(&[], false)),
        ],
    )
    .await;
}

pub async fn numbers_are_exact_and_spelled_alike() {
    use Operation::{Get, Increment, Set};
    let (most, least) = (i64::MAX.to_string(), i64::MIN.to_string());
    let mut steps = vec![
        (Increment(b"n", 41), StoreReply::Number(41)),
        (Increment(b"n", -42), StoreReply::Number(-1)),
        (Get(vec![b"n"]), value(Some("-1"))),
        (Set(vec![(b"n", b"9007199254740992")]), StoreReply::Done),
        (
            Increment(b"n", 1),
            StoreReply::Number(9_007_199_254_740_993),
        ),
        (
            Increment(b"n", 9_007_199_254_740_993),
            StoreReply::Number(18_014_398_509_481_986),
        ),
        (Increment(b"m", i64::MAX), StoreReply::Number(i64::MAX)),
        (Increment(b"m", 1), failed(NO_NUMBER)),
        (Get(vec![b"m"]), value(Some(&most))),
        (Increment(b"m", i64::MIN), StoreReply::Number(-1)),
        (Increment(b"m", i64::MIN), failed(NO_NUMBER)),
        (Increment(b"m", -i64::MAX), StoreReply::Number(i64::MIN)),
        (Get(vec![b"m"]), value(Some(&least))),
        (Increment(b"m", i64::MAX), StoreReply::Number(-1)),
    ];
    let (zeros, long) = (format!("+{}5", "0".repeat(62)), "0".repeat(65));
    let over = "+9223372036854775807";
    for (text, counted) in [
        ("+5", Some(6)),
        ("007", Some(8)),
        ("-0", Some(1)),
        ("-000", Some(1)),
        ("-01", Some(0)),
        (zeros.as_str(), Some(6)),
        (long.as_str(), None),
        ("-9223372036854775808", Some(-9_223_372_036_854_775_807)),
        (over, None),
        ("9223372036854775808", None),
        ("", None),
        ("+", None),
        ("-", None),
        ("--1", None),
        ("+-1", None),
        (" 1", None),
        ("1 ", None),
        ("1\n", None),
        ("1\0", None),
        ("1.0", None),
        ("1e3", None),
        ("0x10", None),
        ("\u{0661}", None),
        ("many", None),
    ] {
        steps.push((Set(vec![(b"t", text.as_bytes())]), StoreReply::Done));
        steps.push((
            Increment(b"t", 1),
            counted.map_or(failed(NO_NUMBER), StoreReply::Number),
        ));
        let now = counted.map(|number| number.to_string());
        let now = now.unwrap_or_else(|| text.to_owned());
        steps.push((Get(vec![b"t"]), value(Some(&now))));
    }
    on_both(Limits::default(), &steps).await;
}

pub async fn swaps_succeed_only_with_the_expected_value() {
    use Operation::{Get, Swap};
    let swap = |seen, value| Swap {
        key: b"k",
        seen,
        value,
    };
    let binary: &[u8] = &[0, 0xff, b'\n'];
    on_both(
        Limits::default(),
        &[
            (swap(Some(b""), b"1"), value(None)),
            (swap(None, b""), StoreReply::Done),
            (swap(None, b"2"), value(Some(""))),
            (swap(Some(b"x"), b"2"), value(Some(""))),
            (swap(Some(b""), binary), StoreReply::Done),
            (swap(Some(&[0, 0xff]), b"3"), values(&[Some(binary)])),
            (swap(Some(binary), binary), StoreReply::Done),
            (swap(Some(binary), b"3"), StoreReply::Done),
            (Get(vec![b"k"]), value(Some("3"))),
        ],
    )
    .await;
}

pub async fn a_change_beyond_the_quota_changes_nothing() {
    use Operation::{Delete, Get, Increment, Keys, Set, Swap};
    let keys_full = || failed("the store would have more than 3 keys");
    let bytes_full = || failed("the store would have more than 20 bytes");
    let swap = |key, seen, value| Swap { key, seen, value };
    on_both(
        narrow(3, 20),
        &[
            (
                Set(vec![(b"a", b""), (b"b", b""), (b"c", b""), (b"d", b"")]),
                keys_full(),
            ),
            (Keys(ListFrom::Start), keys(&[], false)),
            (
                Set(vec![(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]),
                StoreReply::Done,
            ),
            (Increment(b"d", 1), keys_full()),
            (swap(b"d", None, b"1"), keys_full()),
            (swap(b"d", Some(b"1"), b"1"), value(None)),
            (Set(vec![(b"a", &[b'x'; 15])]), StoreReply::Done),
            (Set(vec![(b"b", b"22")]), bytes_full()),
            (swap(b"b", Some(b"2"), b"22"), bytes_full()),
            (Increment(b"b", 8), bytes_full()),
            (Get(vec![b"b"]), value(Some("2"))),
            (Increment(b"b", -3), bytes_full()),
            (Increment(b"b", 7), StoreReply::Number(9)),
            (Set(vec![(b"b", b"+9")]), bytes_full()),
            (Delete(vec![b"a"]), StoreReply::Done),
            (Set(vec![(b"b", b"+9")]), StoreReply::Done),
            (Increment(b"b", 90), StoreReply::Number(99)),
            (Set(vec![(b"a", &[b'x'; 14])]), StoreReply::Done),
            (Increment(b"b", 1), bytes_full()),
            (Get(vec![b"b"]), value(Some("99"))),
            (Increment(b"b", -98), StoreReply::Number(1)),
            (Delete(vec![b"a", b"b", b"c"]), StoreReply::Done),
            (Set(vec![(b"d", &[b'x'; 19])]), StoreReply::Done),
            (Set(vec![(b"d", &[b'x'; 20])]), bytes_full()),
        ],
    )
    .await;
    // An operation that makes the store smaller is never refused, not even by a node with lower
    // limits.
    let server = Server::start();
    let wide = StoreNode::of(&server, narrow(3, 20)).await;
    let less = StoreNode::of(&server, narrow(1, 1)).await;
    let three = vec![(&b"a"[..], &b"123"[..]), (b"b", b"123"), (b"c", b"123")];
    assert_eq!(wide.execute(Set(three)).await, StoreReply::Done);
    assert_eq!(less.set("a", "12").await, StoreReply::Done);
    assert_eq!(
        less.set("a", "123").await,
        failed("the store would have more than 1 bytes")
    );
    assert_eq!(
        less.set("d", "").await,
        failed("the store would have more than 1 keys")
    );
    assert_eq!(
        less.execute(Delete(vec![b"a", b"b"])).await,
        StoreReply::Done
    );
    for node in [wide, less] {
        let uses = node.node.stores().await.unwrap();
        assert_eq!((uses[0].keys, uses[0].bytes), (1, 4));
        node.end().await;
    }
}

pub async fn the_largest_of_all_passes() {
    let server = Server::start();
    let node = StoreNode::of(&server, Limits::default()).await;
    let large = vec![0xff; VALUE_MAX];
    let key = "k".repeat(1024);
    let set = Operation::Set(vec![(key.as_bytes(), &large)]);
    assert_eq!(node.execute(set).await, StoreReply::Done);
    assert_eq!(
        node.execute(Operation::Get(vec![key.as_bytes()])).await,
        values(&[Some(&large)])
    );
    assert_eq!(node.set("l", "x").await, StoreReply::Done);
    let both = Operation::Get(vec![key.as_bytes(), b"l"]);
    let much = "the values exceed 1048576 bytes together: read fewer keys at a time";
    assert_eq!(node.execute(both).await, failed(much));
    let swap = Operation::Swap {
        key: key.as_bytes(),
        seen: None,
        value: b"",
    };
    assert_eq!(node.execute(swap).await, values(&[Some(&large)]));
    assert_eq!(
        node.execute(Operation::Delete(vec![key.as_bytes(), b"l"]))
            .await,
        StoreReply::Done
    );
    // More keys than fit in a page, all of the greatest length.
    let names: Vec<_> = (0..2_500)
        .map(|number| format!("{number:0>1000}"))
        .collect();
    for some in names.chunks(1_000) {
        let pairs = some.iter().map(|name| (name.as_bytes(), &b"v"[..]));
        assert_eq!(
            node.execute(Operation::Set(pairs.collect())).await,
            StoreReply::Done
        );
    }
    let (keys, pages) = node.keys().await;
    let expected: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    assert!(keys == expected && pages == 3);
    let behind = node.execute(Operation::Keys(ListFrom::Number(2_499))).await;
    assert_eq!(
        behind,
        StoreReply::Keys(vec![expected[2_499].clone()], false)
    );
    for some in names.chunks(1_000) {
        let keys = some.iter().map(String::as_bytes).collect();
        assert_eq!(
            node.execute(Operation::Delete(keys)).await,
            StoreReply::Done
        );
    }
    assert_eq!(node.node.stores().await.unwrap(), []);
    assert_eq!(server.tell("DBSIZE"), ":0");
    node.end().await;
}

/// Random operations in random order give the same answers on both.
pub async fn random_operations_agree_on_both_stores() {
    let seed = std::env::var("FAASW_TEST_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("FAASW_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = Server::start();
    let limits = narrow(6, 60);
    let nodes = [
        StoreNode::embedded(limits.clone()).await,
        StoreNode::of(&server, limits.clone()).await,
        StoreNode::of(&server, limits).await,
    ];
    let [embedded, one, other] = &nodes;
    let names = ["a", "b", "c}", "{d", "e\n", "\u{e9}", "g\0", "h"];
    let texts = [
        "",
        "0",
        "1",
        "-1",
        "+7",
        "007",
        "-0",
        "99",
        "9223372036854775807",
        "-9223372036854775808",
        "x",
        "x\0y",
        "a longer text",
        "9999999999999999999",
    ];
    let deltas = [0, 1, -1, 90, i64::MAX, i64::MIN];
    for step in 0..3_000 {
        let mut key = || random.choice(names).unwrap().as_bytes();
        let (first, second, third) = (key(), key(), key());
        let mut text = || random.choice(texts).unwrap().as_bytes();
        let (was, new) = (text(), text());
        let delta = random.choice(deltas).unwrap();
        let operation = match random.u8(0..12) {
            0 | 1 => Operation::Set(vec![(first, new)]),
            2 => Operation::Set(vec![(first, new), (second, was), (third, b"1")]),
            3 => Operation::Delete(vec![first]),
            4 => Operation::Delete(vec![first, second, third]),
            5 => Operation::Get(vec![first, second]),
            6 => Operation::Exists(first),
            7 => Operation::Keys(ListFrom::Behind(first)),
            8 => Operation::Keys(ListFrom::Number(u64::from(random.u8(0..4)))),
            9 | 10 => Operation::Increment(first, delta),
            _ => Operation::Swap {
                key: first,
                seen: random.bool().then_some(was),
                value: new,
            },
        };
        let store = if random.bool() { SHARED } else { "default" };
        // Each of the server's nodes answers as the embedded store does.
        let node = if random.bool() { one } else { other };
        let expected = embedded.execute_on(store, operation.clone()).await;
        let told = node.execute_on(store, operation.clone()).await;
        assert_eq!(
            told, expected,
            "step {step}, seed {seed}: {store} {operation:?}"
        );
    }
    let uses = embedded.node.stores().await.unwrap();
    for node in [one, other] {
        assert_eq!(node.node.stores().await.unwrap(), uses, "seed {seed}");
    }
    for node in nodes {
        node.end().await;
    }
}
