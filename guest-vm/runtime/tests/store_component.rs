//! Key-value stores, by each interface for them: the requests to the node, and the results for the
//! function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::mailbox::DRAW_STORE;
use faasw_abi::store::{Answer, ListFrom, Operation};
use support::stores::{answered, records};
use support::{HttpComponent, compile, fixture, get};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/kv-probe.wasm")));

/// Returns the function's response when the store sends these answers, after one to the opening,
/// and the requests to the store.
fn asked(path: &str, answers: &[Answer<'_>]) -> (String, Vec<u8>) {
    asked_at_all(path, &[&[Answer::Done], answers].concat())
}

/// Like `asked`, for a store whose opening sends no request.
fn asked_at_all(path: &str, answers: &[Answer<'_>]) -> (String, Vec<u8>) {
    let call = get(HttpComponent, path);
    let mut ready = call.ready(&PROBE).unwrap();
    answered(&mut ready, call.request, answers)
}

#[track_caller]
fn check(path: &str, operation: &Operation<'_>, answer: Answer<'_>, expected: &str) {
    let (told, sent) = asked(path, &[answer]);
    assert_eq!(told, expected, "{path}");
    let requests = records(&sent);
    assert_eq!(requests.len(), 2, "{path}");
    assert_eq!(requests[0].operation, Operation::Open, "{path}");
    assert_eq!(requests[1].operation, *operation, "{path}");
    assert!(
        requests.iter().all(|request| request.store == "s"),
        "{path}"
    );
}

#[test]
fn all_interfaces_share_one_record() {
    for api in ["draft", "draft2", "spin"] {
        let path = |rest: &str| format!("/{api}/s/{rest}");
        let value = Answer::Values(vec![Some(b"1")]);
        check(&path("get/k"), &Operation::Get(vec![b"k"]), value, "some 1");
        let none = Answer::Values(vec![None]);
        check(&path("get/k"), &Operation::Get(vec![b"k"]), none, "none");
        let set = Operation::Set(vec![(b"k", b"v")]);
        check(&path("set/k/v"), &set, Answer::Done, "done");
        let delete = Operation::Delete(vec![b"k"]);
        check(&path("delete/k"), &delete, Answer::Done, "done");
        let exists = Operation::Exists(b"k");
        check(&path("exists/k"), &exists, Answer::Exists(true), "true");
    }
}

#[test]
fn each_draft_has_its_types() {
    let add = Operation::Increment(b"n", 2);
    check("/draft/s/increment/n/2", &add, Answer::Number(7), "7");
    check("/draft2/s/increment/n/2", &add, Answer::Number(-7), "-7");
    let negative =
        "error Error::Other(\"the number is now -7, which this draft cannot represent\")";
    check("/draft/s/increment/n/2", &add, Answer::Number(-7), negative);
    let many = Operation::Get(vec![b"a", b"b"]);
    let values = || Answer::Values(vec![None, Some(b"2")]);
    check("/draft/s/get-many/a/b", &many, values(), "none b=2");
    check("/draft2/s/get-many/a/b", &many, values(), "a none b=2");
    let set = Operation::Set(vec![(b"a", b"1"), (b"b", b"")]);
    let delete = Operation::Delete(vec![b"a", b"b"]);
    for draft in ["draft", "draft2"] {
        let path = |rest: &str| format!("/{draft}/s/{rest}");
        check(&path("set-many/a=1/b="), &set, Answer::Done, "done");
        check(&path("delete-many/a/b"), &delete, Answer::Done, "done");
    }
}

#[test]
fn the_store_without_a_name_is_the_functions_own() {
    for api in ["draft", "draft2", "spin"] {
        for store in ["", "default"] {
            let none = Answer::Values(vec![None]);
            let (told, sent) = asked_at_all(&format!("/{api}/{store}/get/k"), &[none]);
            assert_eq!(told, "none", "{api}");
            let [request] = &records(&sent)[..] else {
                panic!("{api}: nobody need be asked whether it is there");
            };
            assert_eq!(request.store, "default", "{api}");
            // A store that is not available any more reports that for the operation.
            let (told, _) = asked_at_all(&format!("/{api}/{store}/get/k"), &[Answer::Denied]);
            assert_eq!(told, "error Error::AccessDenied", "{api}");
        }
    }
}

#[test]
fn lists_go_on_where_they_ended() {
    let pages = [
        Answer::Keys(vec![b"a", b"b"], true),
        Answer::Keys(vec![b"c"], false),
    ];
    for (api, told, second) in [
        ("draft", "a b | c", ListFrom::Number(2)),
        ("draft2", "a b | c", ListFrom::Behind(b"b")),
        ("spin", "a b c", ListFrom::Behind(b"b")),
    ] {
        let (text, sent) = asked(&format!("/{api}/s/keys"), &pages);
        assert_eq!(text, told);
        let last = records(&sent).pop().unwrap();
        assert_eq!(last.operation, Operation::Keys(second), "{api}");
    }
}

#[test]
fn a_failed_swap_returns_the_current_value() {
    let answers = [
        Answer::Values(vec![Some(b"1")]),
        Answer::Done,
        Answer::Values(vec![Some(b"2")]),
        Answer::Done,
    ];
    let (text, sent) = asked("/draft2/s/race/k/2/3", &answers);
    assert_eq!(text, "failed, some 2, then true");
    let swap = |seen| Operation::Swap {
        key: b"k",
        seen: Some(seen),
        value: b"3",
    };
    let requests = records(&sent);
    assert_eq!(requests[3].operation, swap(b"1"));
    assert_eq!(requests[4].operation, swap(b"2"));
}

#[test]
fn invalid_operations_fail_without_a_call_to_the_node() {
    for (rest, why) in [
        ("set/*1025/v", "a key has 1 to 1024 bytes, not 1025"),
        ("get/", "a key has 1 to 1024 bytes, not 0"),
        (
            "fill/k/1048577",
            "a value has 1048576 bytes at most, not 1048577",
        ),
    ] {
        for api in ["draft", "draft2", "spin"] {
            let (text, sent) = asked(&format!("/{api}/s/{rest}"), &[]);
            assert_eq!(text, format!("error Error::Other(\"{why}\")"), "{api}");
            assert_eq!(records(&sent).len(), 1, "{api}: opened, and no more");
        }
    }
    let (text, _) = asked("/draft/s/many/1001", &[]);
    let why = "error Error::Other(\"a batch has 1000 keys at most, not 1001\")";
    assert_eq!(text, why);
    // The largest value that is permitted.
    let (text, sent) = asked("/spin/s/fill/k/1048576", &[Answer::Done]);
    assert_eq!(text, "done");
    assert!(sent.len() > 1 << 20);
}

#[test]
fn refusals_have_their_case() {
    let call = get(HttpComponent, "/spin/other/open");
    for (answer, expected) in [
        (Answer::Denied, "error Error::AccessDenied"),
        (Answer::Failed("full"), "error Error::Other(\"full\")"),
        (
            Answer::Number(1),
            "error Error::Other(\"the node's answer belongs to another request\")",
        ),
    ] {
        let mut ready = call.ready(&PROBE).unwrap();
        let answers = answer.encode().unwrap();
        ready.platform_mut().store_answers = Some(answers.into());
        ready.handle(call.request.clone()).unwrap();
        let told = String::from_utf8(ready.platform().response_body.clone()).unwrap();
        assert_eq!(told, expected);
    }
    for api in ["draft", "draft2", "spin"] {
        let call = get(HttpComponent, &format!("/{api}/no%20name/open"));
        let mut ready = call.ready(&PROBE).unwrap();
        ready.platform_mut().store_answers = Some([].into());
        ready.handle(call.request.clone()).unwrap();
        assert_eq!(ready.platform().response_body, b"error Error::NoSuchStore");
        assert!(ready.platform().store_asked.is_empty());
    }
}

#[test]
fn before_a_request_a_call_is_a_draw_and_refused() {
    let early = get(HttpComponent, "/at-start").environment("AT_START", "1");
    let ready = early.ready(&PROBE).unwrap();
    assert_eq!(ready.draws().bits(), DRAW_STORE);
    let told = ready.draws().to_string();
    assert!(told.contains("wasi:keyvalue/store#open: 1 call"), "{told}");
    let answer = early.run(&PROBE);
    let told = answer.text();
    assert!(
        told.contains("key-value stores are available only"),
        "{told}"
    );
    let none = get(HttpComponent, "/at-start").ready(&PROBE).unwrap();
    assert_eq!(none.draws().bits(), 0);
}
