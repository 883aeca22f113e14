//! Unmodified packages from npm, and an example of the repository, in the JavaScript engine,
//! natively. The packages are modules in `node_modules`, not bundled.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::io::Read as _;
use std::sync::LazyLock;

use faasw_abi::channel::CALLS;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall, MemoryPlatform};
use support::scripts::{JAVASCRIPT, asked};
use support::{Call, calls, fixture, values};

/// The files of the archive, by their paths.
static TREE: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let packed = fixture("tests/fixtures/scripts/npm-tree.tar.zst");
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    let mut files = Vec::new();
    for entry in tar::Archive::new(decoder).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.push((path.trim_start_matches("./").to_owned(), content));
        }
    }
    files
});

/// Returns the function of a script of the archive after its request, while servers send `answers`.
#[track_caller]
fn run(script: &str, call: Call, answers: Vec<MemoryAnswer>) -> Ready<MemoryPlatform> {
    let files = TREE.iter().map(|(path, content)| (&**path, &**content));
    let mut files: Vec<(&str, &[u8])> = files.collect();
    // The first file has the handler.
    files.sort_by_key(|(path, _)| *path != script);
    let mut ready = JAVASCRIPT
        .init(&files, &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let calls = &mut ready.platform_mut().calls;
    (calls.open, calls.ring, calls.answers) = (CALLS, 112 << 10, answers.into());
    let handled = ready.handle(call.request);
    handled.unwrap_or_else(|failure| panic!("{}\n{}", failure.report, logged(&ready)));
    ready
}

#[track_caller]
fn get(script: &str, path: &str) -> Ready<MemoryPlatform> {
    run(script, asked(path), Vec::new())
}

fn post(path: &str, kind: &str, body: &str) -> Call {
    let call = asked(path).method("POST").header("content-type", kind);
    let length = body.len().to_string();
    call.header("content-length", &length).body(body.as_bytes())
}

fn text(ready: &Ready<MemoryPlatform>) -> String {
    String::from_utf8(ready.platform().response_body.clone()).unwrap()
}

fn status(ready: &Ready<MemoryPlatform>) -> u16 {
    ready.platform().response_head.as_ref().unwrap().status
}

/// Returns a field of the response; an empty text if it is missing.
fn field(ready: &Ready<MemoryPlatform>, name: &str) -> String {
    let head = ready.platform().response_head.as_ref().unwrap();
    let found = values(&head.headers, name);
    found
        .first()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

fn logged(ready: &Ready<MemoryPlatform>) -> String {
    let log = ready.platform();
    let all = [log.logged(LogStream::Out), log.logged(LogStream::Err)].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns an answer that arrives after a wait.
fn answer(status: u16, fields: &[(&str, &str)], pieces: &[&str]) -> MemoryAnswer {
    MemoryAnswer {
        delay: 1,
        ..calls::answer(status, fields, pieces)
    }
}

fn json(status: u16, body: &str) -> MemoryAnswer {
    let fields = [
        ("content-type", "application/json"),
        ("request-id", "req_1"),
        ("x-request-id", "req_1"),
    ];
    answer(status, &fields, &[body])
}

/// Returns the response of a request during which servers send `answers`, and what they received.
#[track_caller]
fn called(script: &str, path: &str, answers: Vec<MemoryAnswer>) -> (String, Vec<MemoryCall>) {
    let mut ready = run(script, asked(path), answers);
    let calls = std::mem::take(&mut ready.platform_mut().calls.asked);
    (text(&ready), calls)
}

fn sent(call: &MemoryCall, name: &str) -> String {
    let found = values(&call.head.headers, name);
    String::from_utf8_lossy(found.first().copied().unwrap_or_default()).into_owned()
}

fn body(call: &MemoryCall) -> String {
    String::from_utf8_lossy(&call.body).into_owned()
}

/// Ajv, jsonwebtoken, React and semver are CommonJS; the others are ECMAScript modules.
#[test]
fn packages_of_npm_run_unbundled() {
    for (path, wanted) in [
        ("/ajv", r#"[true,false,"must be >= 2"]"#),
        ("/semver", "1.3.0 true"),
        (
            "/jose",
            concat!(
                r#"["eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ."#,
                r#"6Rr6mt46cFv83G1c_M0DUh_3MJ0aC1Bx9p9XhWH3KR4",{"a":1}]"#
            ),
        ),
        (
            "/jsonwebtoken",
            concat!(
                r#"["eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJhIjoxfQ."#,
                r#"57TF7smP9XDhIexBqPC-F1toZReYZLWb_YRU5tv0sxM",{"a":1},"invalid signature"]"#
            ),
        ),
        (
            "/react",
            r#"<ul class="list"><li>a</li><li>&lt;b&gt;</li></ul>"#,
        ),
        ("/itty/x", "itty x"),
        ("/context", "df0e525c"),
    ] {
        assert_eq!(text(&get("main.mjs", path)), wanted, "{path}");
    }
}

const MIDDLEWARE: &str = "middleware.mjs";

/// Path, request fields, status, a response field, and the body.
type MiddlewareCase<'a> = (
    &'a str,
    &'a [(&'a str, &'a str)],
    u16,
    (&'a str, &'a str),
    &'a str,
);

/// Each line is a request to a path with header fields, and the expected status, field of the
/// response and body.
#[test]
fn every_middleware_of_hono_acts() {
    let basic = "Basic YW5uOnDDpHNzd29yZA==";
    let jwt = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.LrlPmSL4FxrzAHJSYbKzsA997COXdYCeFKlt3zt5DIY";
    let forged =
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJhIjoyfQ.LrlPmSL4FxrzAHJSYbKzsA997COXdYCeFKlt3zt5DIY";
    let realm = "Basic realm=\"Secure Area\"";
    let tag = "\"8e1ec218dc7ecaadd65388fba9b6723ce114268a\"";
    let from = "x-forwarded-for";
    let key = "authorization";
    let language = "language=de; Max-Age=31536000; Path=/; HttpOnly; Secure; SameSite=Strict";
    let page = "<!DOCTYPE html><title>page</title><body><p>&lt;b&gt;</p></body>";
    let origin = "access-control-allow-origin";
    let a = "https://a.example";
    let cases: &[MiddlewareCase<'_>] = &[
        (
            "/basic-auth",
            &[],
            401,
            ("www-authenticate", realm),
            "Unauthorized",
        ),
        ("/basic-auth", &[(key, basic)], 200, ("", ""), "in"),
        (
            "/bearer-auth",
            &[(key, "Bearer no")],
            401,
            ("", ""),
            "Unauthorized",
        ),
        ("/bearer-auth", &[(key, "Bearer tok")], 200, ("", ""), "in"),
        ("/cache", &[], 200, ("cache-control", "max-age=60"), "new"),
        ("/combine/open", &[], 200, ("x-powered-by", ""), "in"),
        ("/combine/x", &[], 401, ("x-powered-by", ""), "Unauthorized"),
        (
            "/combine/x",
            &[(key, "Bearer a")],
            200,
            ("x-powered-by", ""),
            "in",
        ),
        (
            "/combine/x",
            &[(key, "Bearer b")],
            200,
            ("x-powered-by", "Hono"),
            "in",
        ),
        ("/context-storage", &[], 200, ("", ""), "kept"),
        ("/cors", &[("origin", a)], 200, (origin, a), "in"),
        (
            "/cors",
            &[("origin", "https://b.example")],
            200,
            (origin, ""),
            "in",
        ),
        ("/etag", &[], 200, ("etag", tag), "tagged"),
        ("/etag", &[("if-none-match", tag)], 304, ("etag", tag), ""),
        ("/ip", &[(from, "10.0.0.8")], 200, ("", ""), "in"),
        ("/ip", &[(from, "10.0.0.9")], 403, ("", ""), "Forbidden"),
        ("/ip", &[(from, "11.0.0.8")], 403, ("", ""), "Forbidden"),
        ("/ip", &[(from, "::1")], 200, ("", ""), "in"),
        (
            "/jsx",
            &[],
            200,
            ("content-type", "text/html; charset=UTF-8"),
            page,
        ),
        ("/jwt", &[(key, jwt)], 200, ("", ""), "{\"a\":1}"),
        ("/jwt", &[(key, forged)], 401, ("", ""), "Unauthorized"),
        ("/language", &[], 200, ("set-cookie", ""), "en"),
        (
            "/language",
            &[("accept-language", "fr, de;q=0.5")],
            200,
            ("set-cookie", language),
            "de",
        ),
        (
            "/language",
            &[("cookie", "language=de")],
            200,
            ("", ""),
            "de",
        ),
        ("/not-allowed", &[], 200, ("", ""), "got"),
        ("/mount/x", &[], 200, ("", ""), "mounted"),
        ("/powered-by", &[], 200, ("x-powered-by", "Hono"), ""),
        ("/pretty", &[], 200, ("", ""), "{\"a\":1}"),
        ("/pretty?pretty", &[], 200, ("", ""), "{\n  \"a\": 1\n}"),
        (
            "/request-id",
            &[("x-request-id", "mine")],
            200,
            ("x-request-id", "mine"),
            "mine",
        ),
        (
            "/public/a.txt",
            &[],
            200,
            ("content-type", "text/plain; charset=utf-8"),
            "a file",
        ),
        ("/public/b.txt", &[], 404, ("", ""), "404 Not Found"),
        ("/timeout", &[], 200, ("", ""), "in time"),
        ("/timeout?wait=1", &[], 504, ("", ""), "Gateway Timeout"),
        ("/slash/append/a/", &[], 200, ("", ""), "in"),
        ("/slash/trim/a", &[], 200, ("", ""), "in"),
    ];
    for (path, fields, wanted_status, (name, value), wanted) in cases {
        let call = fields
            .iter()
            .fold(asked(path), |call, (name, value)| call.header(name, value));
        let ready = run(MIDDLEWARE, call, Vec::new());
        let told = (status(&ready), text(&ready));
        assert_eq!(
            told,
            (*wanted_status, (*wanted).to_owned()),
            "{path} {fields:?}"
        );
        if !name.is_empty() {
            assert_eq!(field(&ready, name), *value, "{path} {fields:?}");
        }
    }
    for (path, location) in [
        ("/slash/append/a", "/slash/append/a/"),
        ("/slash/trim/a/", "/slash/trim/a"),
    ] {
        let ready = get(MIDDLEWARE, path);
        assert_eq!(status(&ready), 301, "{path}");
        assert!(field(&ready, "location").ends_with(location), "{path}");
    }
}

#[test]
fn middleware_of_hono_reads_bodies_and_methods() {
    let form = "application/x-www-form-urlencoded";
    let a = ("origin", "https://a.example");
    let b = ("origin", "https://b.example");
    let plain = ("x", "y");
    for (path, kind, body, (name, value), wanted_status, wanted) in [
        (
            "/body-limit",
            "text/plain",
            "12345678",
            plain,
            200,
            "12345678",
        ),
        (
            "/body-limit",
            "text/plain",
            "123456789",
            plain,
            413,
            "Payload Too Large",
        ),
        ("/csrf", form, "a=1", a, 200, "in"),
        ("/csrf", form, "a=1", b, 403, "Forbidden"),
        ("/override", form, "_method=DELETE", plain, 200, "deleted"),
        ("/override", form, "a=1", plain, 200, "posted"),
    ] {
        let call = post(path, kind, body).header(name, value);
        let ready = run(MIDDLEWARE, call, Vec::new());
        let told = (status(&ready), text(&ready));
        assert_eq!(
            told,
            (wanted_status, wanted.to_owned()),
            "{path} {body} {value}"
        );
    }
    // A body without a length is counted as it arrives.
    let call = asked("/body-limit").method("POST").body(b"123456789");
    assert_eq!(status(&run(MIDDLEWARE, call, Vec::new())), 413);

    let call = asked("/cors").method("OPTIONS");
    let call = call.header("origin", "https://a.example");
    let call = call.header("access-control-request-method", "PUT");
    let ready = run(MIDDLEWARE, call, Vec::new());
    assert_eq!(status(&ready), 204);
    assert_eq!(field(&ready, "access-control-allow-methods"), "PUT");
    let ready = run(MIDDLEWARE, asked("/not-allowed").method("PUT"), Vec::new());
    assert_eq!(
        (status(&ready), &*field(&ready, "allow")),
        (405, "GET, HEAD")
    );
}

#[test]
fn middleware_of_hono_compresses_logs_and_measures() {
    let call = asked("/compress").header("accept-encoding", "gzip");
    let ready = run(MIDDLEWARE, call, Vec::new());
    assert_eq!(field(&ready, "content-encoding"), "gzip");
    let packed = &ready.platform().response_body;
    assert!(
        packed.starts_with(&[0x1f, 0x8b]) && packed.len() < 100,
        "{packed:?}"
    );
    // The length of the text, by gzip's last four bytes.
    assert_eq!(packed[packed.len() - 4..], 650_u32.to_le_bytes());

    let lines = logged(&get(MIDDLEWARE, "/logger"));
    assert!(
        lines.starts_with("<-- GET /logger\n--> GET /logger"),
        "{lines}"
    );

    let measured = field(&get(MIDDLEWARE, "/timing"), "server-timing");
    assert!(
        measured.starts_with("region;desc=\"eu\",db;dur="),
        "{measured}"
    );
    assert!(measured.contains(",total;dur="), "{measured}");

    let ready = get(MIDDLEWARE, "/secure");
    let policy = format!("script-src 'nonce-{}'", text(&ready));
    assert_eq!(field(&ready, "content-security-policy"), policy);
    assert_eq!(field(&ready, "x-content-type-options"), "nosniff");
}

#[test]
fn middleware_of_hono_checks_tokens_by_keys() {
    let bearer = |token: &str| format!("Bearer {token}");
    let token = text(&get(MIDDLEWARE, "/jwk-token"));
    let call = asked("/jwk").header("authorization", &bearer(&token));
    assert_eq!(text(&run(MIDDLEWARE, call, Vec::new())), r#"{"a":1}"#);
    let (signed, _) = token.rsplit_once('.').unwrap();
    let call = asked("/jwk").header(
        "authorization",
        &bearer(&format!("{signed}.{}", "A".repeat(86))),
    );
    assert_eq!(status(&run(MIDDLEWARE, call, Vec::new())), 401);
    // These keys are on a server.
    let call = asked("/jwk-uri").header("authorization", &bearer(&token));
    let ready = run(MIDDLEWARE, call, vec![json(200, KEYS)]);
    assert_eq!(text(&ready), r#"{"a":1}"#, "{}", logged(&ready));
    let call = &ready.platform().calls.asked[0];
    assert_eq!(calls::line(call), "GET https://keys.example/jwks.json");
}

/// The public key that the scripts sign for.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

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
    let rsa = include_str!("../../../tests/fixtures/scripts/npm-tree/rs256.json");
    let call = post("/jose/rs256", "application/json", rsa);
    assert_eq!(text(&run(LIBRARIES, call, Vec::new())), r#"["joe",1]"#);
    assert_eq!(
        text(&get(LIBRARIES, "/jose/es256")),
        r#"[1,"ES256","ERR_JWS_SIGNATURE_VERIFICATION_FAILED"]"#
    );
    let token = text(&get(MIDDLEWARE, "/jwk-token"));
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

const CLIENTS: &str = "clients.mjs";

#[test]
fn the_stripe_client_works() {
    let customer = r#"{"id": "cus_1", "object": "customer"}"#;
    // The client repeats a request that the server answers with 500, with the same key.
    let answers = vec![json(500, "{}"), json(200, customer)];
    let (told, asked) = called(CLIENTS, "/stripe/create", answers);
    assert_eq!(told, r#"["cus_1","req_1"]"#);
    assert_eq!(asked.len(), 2);
    for call in &asked {
        assert_eq!(
            calls::line(call),
            "POST https://api.stripe.com/v1/customers"
        );
        assert_eq!(body(call), "email=a%40b.example&metadata[plan]=%C3%BC");
        assert_eq!(sent(call, "authorization"), "Bearer sk_test_1");
        assert_eq!(sent(call, "idempotency-key"), "once");
    }
    let page = |ids: &[&str], more: bool| {
        let data: Vec<String> = ids
            .iter()
            .map(|id| format!(r#"{{"id": "{id}"}}"#))
            .collect();
        let data = data.join(",");
        let url = "/v1/customers";
        let list = format!(
            r#"{{"object": "list", "url": "{url}", "has_more": {more}, "data": [{data}]}}"#
        );
        json(200, &list)
    };
    let answers = vec![page(&["a", "b"], true), page(&["c"], false)];
    let (told, asked) = called(CLIENTS, "/stripe/list", answers);
    assert_eq!(told, r#"["a","b","c"]"#);
    assert!(
        calls::line(&asked[1]).contains("starting_after=b"),
        "{}",
        calls::line(&asked[1])
    );
    let declined = r#"{"error": {"type": "card_error", "code": "card_declined", "message": "no"}}"#;
    let (told, _) = called(CLIENTS, "/stripe/declined", vec![json(402, declined)]);
    assert_eq!(told, r#"[true,"StripeCardError","card_declined",402,"no"]"#);
    let event = r#"{"id": "evt_1", "object": "event", "type": "charge.ok"}"#;
    let call = post("/stripe/webhook", "application/json", event);
    assert_eq!(
        text(&run(CLIENTS, call, Vec::new())),
        r#"["charge.ok","StripeSignatureVerificationError"]"#
    );
}

#[test]
fn the_openai_client_works() {
    let response = r#"{"id": "r", "object": "response", "output": [{"type": "message",
        "role": "assistant", "content": [{"type": "output_text", "text": "ü"}]}]}"#;
    let (told, asked) = called(CLIENTS, "/openai/response", vec![json(200, response)]);
    assert_eq!(told, r#"["ü","req_1"]"#);
    assert_eq!(
        calls::line(&asked[0]),
        "POST https://api.openai.com/v1/responses"
    );
    assert_eq!(body(&asked[0]), r#"{"model":"m","input":"Say ü"}"#);
    assert_eq!(sent(&asked[0], "authorization"), "Bearer sk-1");
    // Events are cut anywhere.
    let chunk =
        |word: &str| format!(r#"data: {{"choices": [{{"delta": {{"content": "{word}"}}}}]}}"#);
    let events = format!("{}\n\n{}\n\ndata: [DONE]\n\n", chunk("one"), chunk("two"));
    let pieces = [&events[..17], &events[17..80], &events[80..]];
    let fields = [("content-type", "text/event-stream")];
    let (told, _) = called(
        CLIENTS,
        "/openai/stream",
        vec![answer(200, &fields, &pieces)],
    );
    assert_eq!(told, r#"["one","two"]"#);
    let file = json(200, r#"{"id": "file-1", "object": "file"}"#);
    let (told, asked) = called(CLIENTS, "/openai/upload", vec![file]);
    assert_eq!(told, r#""file-1""#);
    assert!(sent(&asked[0], "content-type").starts_with("multipart/form-data; boundary="));
    let uploaded = body(&asked[0]);
    for part in [
        "name=\"purpose\"\r\n\r\nfine-tune\r\n",
        "filename=\"train.jsonl\"",
        "\r\n\r\n{}\n\r\n",
    ] {
        assert!(uploaded.contains(part), "{part}: {uploaded}");
    }
    let missing = r#"{"error": {"message": "no such model", "code": "model_not_found"}}"#;
    let (told, _) = called(CLIENTS, "/openai/refused", vec![json(404, missing)]);
    assert_eq!(told, r#"[true,404,"model_not_found","404 no such model"]"#);
}

#[test]
fn a_form_takes_an_upload() {
    let script = fixture("examples/js/upload.js");
    let files: &[(&str, &[u8])] = &[("upload.js", &script)];
    assert!(JAVASCRIPT.answer(files, asked("/")).contains("<form"));
    let kind = "multipart/form-data; boundary=b";
    let form = |name: &str, content: &str| {
        let part = |name| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"");
        let file = format!("; filename=\"{name}\"\r\n\r\n{content}\r\n");
        format!(
            "{}{file}{}\r\n\r\n<n>\r\n--b--\r\n",
            part("file"),
            part("note")
        )
    };
    let page = JAVASCRIPT.answer(files, post("/", kind, &form("a&b.txt", "hello")));
    let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let wanted = format!("<p>a&#38;b.txt: 5 bytes, SHA-256 {digest}. &#60;n&#62;</p>");
    assert!(page.contains(&wanted), "{page}");
    let large = form("large", &"x".repeat(8 << 20));
    let page = JAVASCRIPT.answer(files, post("/", kind, &large));
    assert!(page.contains("large: 8388608 bytes"), "{page}");
    let malformed = JAVASCRIPT.answered(files, post("/", "text/plain", "x"));
    assert_eq!(status(&malformed), 400);
}
