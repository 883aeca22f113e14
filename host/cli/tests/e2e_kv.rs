//! Key-value stores, as functions in real microVMs use them and as their operator sees them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::time::Duration;

use common::raw;
use e2e::{BENCH, Bench, data_dir::TestDataDir, limits, process};
use faasw::{FunctionOptions, Node, StoreName};

const PROBE: &str = "tests/fixtures/kv-probe.wasm";

fn plain() -> FunctionOptions {
    FunctionOptions::default()
}

fn sharing(store: &str) -> FunctionOptions {
    plain().store(StoreName::new(store).unwrap())
}

/// Sends a request for each step's path, in order.
#[track_caller]
fn steps(bench: &Bench, function: &str, steps: &[(&str, &str)]) {
    for (path, expected) in steps {
        let answer = bench.text(&format!("/{function}/{path}"));
        assert_eq!(answer, *expected, "{path}");
    }
}

fn every_interface_works_on_the_same_store() {
    let deployed = BENCH.function("kv", PROBE, plain());
    assert_eq!(deployed.notice, None);
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    steps(
        &BENCH,
        "kv",
        &[
            ("spin/default/get/k", "none"),
            ("spin/default/set/k/1", "done"),
            ("draft/default/get/k", "some 1"),
            ("draft2/default/exists/k", "true"),
            ("draft2/default/increment/k/41", "42"),
            ("draft/default/increment/k/1", "43"),
            ("draft2/default/increment/k/-43", "0"),
            ("draft2/default/swap/k/new", "done"),
            (
                "draft2/default/race/k/between/last",
                "failed, some between, then true",
            ),
            ("spin/default/get/k", "some last"),
            (
                "draft/default/increment/k/1",
                "error Error::Other(\"the value is not a 64-bit number\")",
            ),
            ("draft/default/set-many/a=1/b=2", "done"),
            ("draft2/default/get-many/a/x/b", "a=1 x none b=2"),
            ("draft/default/get-many/a/x/b", "a=1 none b=2"),
            ("draft2/default/delete-many/a/x", "done"),
            ("spin/default/delete/never", "done"),
            ("spin/default/keys", "b k"),
            ("draft/default/keys", "b k"),
            ("draft2/default/count/n/20", "20"),
            ("spin/default/get/n", "some 20"),
            ("spin/default/delete/n", "done"),
        ],
    );
}

fn values_larger_than_a_ring_are_passed() {
    BENCH.function("large", PROBE, plain());
    let too_much = "error Error::Other(\"the values exceed 1048576 bytes together: \
                    read fewer keys at a time\")";
    steps(
        &BENCH,
        "large",
        &[
            ("spin/default/fill/a/1048576", "done"),
            ("spin/default/get/a", "some 1048576 bytes"),
            ("draft2/default/fill/*1024/1000000", "done"),
            ("draft/default/get/*1024", "some 1000000 bytes"),
            ("draft/default/fill/b/600000", "done"),
            ("draft/default/get-many/a/b", too_much),
            ("draft/default/get-many/b", "b=600000 bytes"),
            ("draft/default/delete-many/a/b", "done"),
            ("draft/default/delete/*1024", "done"),
            ("draft/default/many/1000", "done"),
            ("draft2/default/set/1000/", "done"),
        ],
    );
    for api in ["draft", "draft2"] {
        let keys = BENCH.text(&format!("/large/{api}/default/keys"));
        let pages: Vec<_> = keys.split(" | ").collect();
        assert_eq!(pages.len(), 2, "{api}");
        assert!(pages[0].ends_with("0998 0999"), "{api}");
        assert_eq!(pages[1], "1000", "{api}");
    }
    let keys = BENCH.text("/large/spin/default/keys");
    assert_eq!(keys.split(' ').count(), 1001);
}

fn a_function_has_its_own_store_across_versions() {
    for name in ["mine", "yours"] {
        BENCH.function(name, PROBE, plain());
        let path = format!("/{name}/spin/default/set/whose/{name}");
        assert_eq!(BENCH.text(&path), "done");
    }
    for name in ["mine", "yours", "mine"] {
        let path = format!("/{name}/spin/default/get/whose");
        assert_eq!(BENCH.text(&path), format!("some {name}"));
    }
    BENCH.deploy("mine", &e2e::file(PROBE), plain().env("OTHER", "1"));
    assert_eq!(BENCH.text("/mine/spin/default/get/whose"), "some mine");
}

fn a_shared_store_is_for_those_it_was_granted_to() {
    let deployed = BENCH.function("one", PROBE, sharing("users"));
    let users = StoreName::new("users").unwrap();
    assert_eq!(*deployed.function.options.stores(), [users].into());
    BENCH.function("two", PROBE, sharing("users"));
    BENCH.function("three", PROBE, plain());
    assert_eq!(BENCH.text("/one/draft/users/set/k/1"), "done");
    assert_eq!(BENCH.text("/two/spin/users/get/k"), "some 1");
    assert_eq!(BENCH.text("/two/spin/default/get/k"), "none");
    let denied = "error Error::AccessDenied";
    for path in ["spin/users/open", "draft/users/open", "draft2/other/open"] {
        assert_eq!(BENCH.text(&format!("/three/{path}")), denied, "{path}");
    }
    let absent = BENCH.text("/three/spin/no%20store/open");
    assert_eq!(absent, "error Error::NoSuchStore");
    // A version without the grant has no access.
    BENCH.deploy("two", &e2e::file(PROBE), plain());
    assert_eq!(BENCH.text("/two/spin/users/get/k"), denied);
    let useless = BENCH.deploy(
        "deaf",
        &e2e::file("tests/fixtures/http-probe.wasm"),
        sharing("users"),
    );
    let notice = useless.notice.unwrap();
    assert!(notice.contains("granted a key-value store"), "{notice}");
}

fn counts_of_many_at_once_are_exact() {
    BENCH.function("count", PROBE, plain());
    let address = BENCH.address;
    let clients: Vec<_> = (0..8)
        .map(|_| {
            BENCH.runtime().spawn(async move {
                for _ in 0..5 {
                    let path = "/count/draft2/default/count/n/5";
                    assert_eq!(raw::get(address, path).await.status, 200);
                }
            })
        })
        .collect();
    for client in clients {
        BENCH.block_on(client).unwrap();
    }
    assert_eq!(BENCH.text("/count/spin/default/get/n"), "some 200");
}

fn stores_are_not_available_before_a_request() {
    BENCH.function("early", PROBE, plain());
    assert_eq!(BENCH.text("/early/spin/default/set/a/1"), "done");
    let options = plain().env("AT_START", "1");
    let deployed = BENCH.deploy("early", &e2e::file(PROBE), options.clone());
    // The store's answer is not part of the seed: each request asks again.
    assert!(!deployed.function.frozen_after_init, "{deployed:?}");
    let drawn = deployed.function.drawn;
    assert!(
        drawn.contains("wasi:keyvalue/store#open: 1 call"),
        "{drawn}"
    );
    let notice = deployed.notice.unwrap();
    assert!(notice.contains("wasi:keyvalue/store#open"), "{notice}");
    assert_eq!(BENCH.text("/early/at-start"), "some 1");
    assert_eq!(BENCH.text("/early/spin/default/set/a/2"), "done");
    assert_eq!(BENCH.text("/early/at-start"), "some 2");
    let after_init = options.freeze(faasw::FreezePolicy::AfterInit);
    BENCH.deploy("early", &e2e::file(PROBE), after_init);
    let told = BENCH.text("/early/at-start");
    let why = "key-value stores are available only";
    assert!(told.contains(why), "{told}");
}

fn quotas_apply_and_endless_calls_are_ended() {
    let mut narrow = limits();
    narrow.store_keys = 3;
    narrow.store_bytes = 1_000;
    let bench = Bench::start(Node::builder(), narrow);
    // Far longer than the function's one request that ends takes.
    let brief = plain().first_byte(Duration::from_secs(3));
    bench.function("narrow", PROBE, plain());
    bench.function("endless", PROBE, brief);
    let keys = "error Error::Other(\"the store would have more than 3 keys\")";
    let bytes = "error Error::Other(\"the store would have more than 1000 bytes\")";
    steps(
        &bench,
        "narrow",
        &[
            ("draft/default/many/4", keys),
            ("spin/default/keys", ""),
            ("draft/default/many/3", "done"),
            ("spin/default/set/k/v", keys),
            ("spin/default/fill/0000/2000", bytes),
            ("spin/default/delete/0000", "done"),
            ("spin/default/set/k/v", "done"),
        ],
    );
    let ended = bench.get("/endless/spin/default/get/k");
    assert_eq!((ended.status, ended.body.as_str()), (200, "none"));
    let ended = bench.get("/endless/draft2/default/endless/k");
    assert_eq!(ended.status, 504, "{ended:?}");
    assert_eq!(bench.text("/narrow/spin/default/get/k"), "some v");
    bench.end();
}

/// Uses commands and a node in a process of its own that is killed.
fn acknowledged_writes_survive_a_kill() {
    let dir = TestDataDir::new();
    let serve = || {
        let mut node = process::Running::serving(dir.folder.path(), &[]);
        let address = node.address();
        (node, address)
    };
    let (mut node, address) = serve();
    dir.says(&["deploy", PROBE, "--name", "kept", "--kv", "users"]);
    let answer = process::get(address, "/kept/draft2/default/count/n/7");
    assert_eq!(answer.body, "7");
    let answer = process::get(address, "/kept/spin/users/set/alice/here");
    assert_eq!(answer.body, "done");
    dir.says(&["kv", "set", "kept", "by hand", "a value"]);
    node.child.kill().unwrap();
    node.child.wait().unwrap();
    drop(node);

    let (_node, address) = serve();
    assert_eq!(dir.says(&["kv", "get", "kept", "n"]), "7");
    assert_eq!(
        dir.says(&["kv", "get", "--shared", "users", "alice"]),
        "here"
    );
    let answer = process::get(address, "/kept/draft2/default/increment/n/1");
    assert_eq!(answer.body, "8");
    assert_eq!(dir.says(&["kv", "ls", "kept"]), "by hand\nn\n");
    let stores = dir.json(&["kv", "ls"]);
    let expected = serde_json::json!([
        {"kind": "function", "name": "kept", "keys": 2, "bytes": 16},
        {"kind": "shared", "name": "users", "keys": 1, "bytes": 9},
    ]);
    assert_eq!(stores, expected);
    let shown = dir.says(&["inspect", "kept"]);
    assert!(shown.contains("users"), "{shown}");
    // A store outlives its function, until the operator removes it.
    dir.says(&["rm", "kept"]);
    assert_eq!(dir.says(&["kv", "get", "kept", "by hand"]), "a value");
    let refused = dir.refused(&["kv", "set", "kept", "k", "v"]);
    assert!(refused.contains("no function named"), "{refused}");
    dir.says(&["kv", "rm", "kept", "n"]);
    let refused = dir.refused(&["kv", "get", "kept", "n"]);
    assert!(refused.contains("kept has no key n"), "{refused}");
    dir.says(&["kv", "rm", "kept", "--all"]);
    assert_eq!(dir.says(&["kv", "ls", "kept"]), "");
}

/// Listings alternate with reads of other functions, piece by piece, and are complete all the same.
fn many_listings_do_not_delay_a_neighbour() {
    BENCH.deploy("lists", &e2e::file(PROBE), plain());
    BENCH.deploy("reads", &e2e::file(PROBE), plain());
    for part in ["a", "b", "c"] {
        let pairs = (0..1000).map(|key| format!("/{part}{key:03}=1"));
        let path: String = pairs.collect();
        let path = format!("draft/default/set-many{path}");
        steps(&BENCH, "lists", &[(&path, "done")]);
    }
    steps(&BENCH, "reads", &[("spin/default/set/k/1", "done")]);
    let listings: Vec<_> = (0..32)
        .map(|_| {
            BENCH
                .runtime()
                .spawn(async { raw::get(BENCH.address, "/lists/draft/default/keys").await })
        })
        .collect();
    for _ in 0..50 {
        steps(&BENCH, "reads", &[("draft2/default/exists/k", "true")]);
    }
    for listing in listings {
        let listing = BENCH.block_on(listing).unwrap();
        let keys = listing.body.split([' ', '|']).filter(|key| !key.is_empty());
        assert_eq!(keys.count(), 3000, "{listing:?}");
    }
}

fn main() {
    let tests = tests![
        every_interface_works_on_the_same_store,
        values_larger_than_a_ring_are_passed,
        a_function_has_its_own_store_across_versions,
        a_shared_store_is_for_those_it_was_granted_to,
        counts_of_many_at_once_are_exact,
        stores_are_not_available_before_a_request,
        many_listings_do_not_delay_a_neighbour,
        quotas_apply_and_endless_calls_are_ended,
        acknowledged_writes_survive_a_kill,
    ];
    e2e::main(tests);
}
