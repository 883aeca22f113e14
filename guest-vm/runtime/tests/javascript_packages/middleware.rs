//! The middleware that Hono includes.

use crate::support::calls;
use crate::support::scripts::asked;
use crate::{KEYS, field, get, json, logged, post, run, status, text};

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
