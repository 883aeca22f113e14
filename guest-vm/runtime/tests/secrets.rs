//! Secrets: read like configuration, but present with a request only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::mailbox::DRAW_SECRET;
use faasw_abi::secrets::encode;
use support::{Call, HttpComponent, compile, fixture, get};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/config-probe.wasm")));

/// Returns the response of the function, which has configuration and two secrets, if it receives
/// these values with its request.
fn answered(call: &Call, given: Option<&[(&str, &str)]>) -> String {
    let mut ready = call.ready(&PROBE).unwrap();
    ready.platform_mut().secrets = given.map(|given| {
        let given = given.iter();
        let given = given.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        encode(&given.collect::<Vec<_>>())
    });
    ready.handle(call.request.clone()).unwrap();
    String::from_utf8(ready.platform().response_body.clone()).unwrap()
}

fn secretive(path: &str) -> Call {
    get(HttpComponent, path)
        .config("api_url", "https://a.test")
        .secret("api_key")
        .secret("other")
}

#[test]
fn every_interface_returns_the_secrets() {
    let given = [("api_key", "s3cr\u{e9}t"), ("other", "")];
    for (path, expected) in [
        ("/get/api_key", "some s3cr\u{e9}t"),
        ("/get/api_url", "some https://a.test"),
        ("/get/other", "some "),
        ("/get/another", "none"),
        (
            "/drafts/api_key",
            "some s3cr\u{e9}t, some s3cr\u{e9}t, some s3cr\u{e9}t",
        ),
        (
            "/all",
            "api_url=https://a.test\napi_key=s3cr\u{e9}t\nother=\n",
        ),
        ("/variable/api_key", "some s3cr\u{e9}t"),
        ("/variable/another", "undefined another"),
    ] {
        assert_eq!(answered(&secretive(path), Some(&given)), expected, "{path}");
    }
}

#[test]
fn one_without_a_value_is_as_if_it_were_not_there() {
    let given = [("other", "x")];
    for (path, expected) in [
        ("/get/api_key", "none"),
        ("/variable/api_key", "undefined api_key"),
        ("/all", "api_url=https://a.test\nother=x\n"),
    ] {
        assert_eq!(answered(&secretive(path), Some(&given)), expected, "{path}");
    }
}

#[test]
fn a_secret_without_a_name_is_not_returned() {
    let call = get(HttpComponent, "/get/api_key");
    assert_eq!(answered(&call, Some(&[("api_key", "x")])), "none");
}

#[test]
fn reading_a_secret_before_a_request_is_a_refused_draw() {
    let early = get(HttpComponent, "/at-start").secret("colour");
    let ready = early.ready(&PROBE).unwrap();
    assert_eq!(ready.draws().bits(), DRAW_SECRET);
    let told = ready.draws().to_string();
    assert_eq!(told, "wasi:config/store#get: 1 read");
    let told = answered(&early, Some(&[("colour", "red")]));
    assert!(told.contains("only while a request is answered"), "{told}");
    // A secret that is read while the values are present belongs to the request.
    let told = answered(&secretive("/at-start"), Some(&[]));
    assert_eq!(told, "none");
    let none = secretive("/").ready(&PROBE).unwrap();
    assert_eq!(none.draws().bits(), 0);
}

#[test]
fn a_request_without_the_channel_has_none() {
    let told = answered(&secretive("/get/api_key"), None);
    assert!(told.starts_with("error "), "{told}");
    let told = answered(&secretive("/variable/api_key"), None);
    assert!(
        told.contains("Provider") && told.contains("secrets are available"),
        "{told}"
    );
}
