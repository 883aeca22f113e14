//! Libraries: zod, jose, React and graphql-yoga.

use crate::{KEYS, field, get, json, post, run, text};

const LIBRARIES: &str = "libraries.mjs";

#[test]
fn zod_checks_values() {
    let told = |body: &str| {
        text(&run(
            LIBRARIES,
            post("/zod", "application/json", body),
            Vec::new(),
        ))
    };
    assert_eq!(
        told(r#"{"id": "x", "email": "e", "lines": []}"#),
        r#"[["id","invalid_format"],["email","invalid_format"],["lines","too_small"]]"#
    );
    let id = "0f14d0ab-9605-4a62-a9e4-5ed26688389b";
    assert_eq!(
        told(&format!(
            r#"{{"id": "{id}", "email": "a@b.example", "lines": [{{"count": "2"}}]}}"#
        )),
        format!(r#"{{"id":"{id}","email":"a@b.example","lines":[{{"count":2}}]}}"#)
    );
}

#[test]
fn jose_signs_and_verifies_by_rsa_and_ecdsa() {
    let rsa = include_str!("../../../../tests/fixtures/scripts/npm-tree/rs256.json");
    let call = post("/jose/rs256", "application/json", rsa);
    assert_eq!(text(&run(LIBRARIES, call, Vec::new())), r#"["joe",1]"#);
    assert_eq!(
        text(&get(LIBRARIES, "/jose/es256")),
        r#"[1,"ES256","ERR_JWS_SIGNATURE_VERIFICATION_FAILED"]"#
    );
    let token = text(&get("middleware.mjs", "/jwk-token"));
    let call = post("/jose/remote", "text/plain", &token);
    let ready = run(LIBRARIES, call, vec![json(200, KEYS)]);
    assert_eq!(text(&ready), r#"{"a":1}"#);
}

#[test]
fn react_streams_a_page() {
    let page = text(&get(LIBRARIES, "/react"));
    assert!(
        page.starts_with("<main><!--$?-->") && page.contains("<i>wait</i>"),
        "{page}"
    );
    assert!(
        page.contains("<div hidden id=\"S:0\"><b>late</b></div>"),
        "{page}"
    );
}

#[test]
fn graphql_yoga_answers() {
    let query = |body: &str| post("/graphql", "application/json", body);
    let told = |body: &str| text(&run(LIBRARIES, query(body), Vec::new()));
    assert_eq!(
        told(r#"{"query": "{ books(first: 2) { title } }"}"#),
        r#"{"data":{"books":[{"title":"Solaris"},{"title":"Kindred"}]}}"#
    );
    let named = r#"{"query": "mutation($t: String!) { add(title: $t) { title } }",
        "variables": {"t": "ü"}}"#;
    assert_eq!(told(named), r#"{"data":{"add":{"title":"ü"}}}"#);
    let failed = told(r#"{"query": "{ fail }"}"#);
    assert!(
        failed.contains("Unexpected error") && !failed.contains("secret"),
        "{failed}"
    );
    let unknown = told(r#"{"query": "{ nothing }"}"#);
    assert!(unknown.contains("Cannot query field"), "{unknown}");
    let call = query(r#"{"query": "subscription { count(to: 2) }"}"#);
    let ready = run(
        LIBRARIES,
        call.header("accept", "text/event-stream"),
        Vec::new(),
    );
    assert_eq!(field(&ready, "content-type"), "text/event-stream");
    let events = text(&ready);
    let one = events.find(r#"data: {"data":{"count":1}}"#).unwrap();
    let two = events.find(r#"data: {"data":{"count":2}}"#).unwrap();
    assert!(one < two && events.contains("event: complete"), "{events}");
}
