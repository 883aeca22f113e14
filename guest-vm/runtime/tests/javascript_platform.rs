//! The web platform of scripts in JavaScript besides requests: cryptography, compression, messages,
//! events of errors and URL patterns, natively.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::time::Instant;

use support::fixture;
use support::scripts::{JAVASCRIPT, asked};

fn file(name: &str) -> Vec<u8> {
    fixture(&format!("tests/fixtures/scripts/{name}"))
}

#[track_caller]
fn assert_all_ok(lines: &str, at_least: usize) {
    let bad: Vec<&str> = lines
        .lines()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(lines.lines().count() >= at_least, "{lines}");
}

/// Vectors of RFCs and of Node.js.
#[test]
fn cryptography_agrees_with_its_standards_and_with_node() {
    let script = file("crypto.js");
    let vectors = file("crypto-vectors.json");
    let files: [(&str, &[u8]); 2] = [("crypto.js", &script), ("crypto-vectors.json", &vectors)];
    assert_all_ok(&JAVASCRIPT.answer(&files, asked("/")), 75);
}

#[test]
fn streams_are_compressed_and_messages_and_patterns_work() {
    let lines = JAVASCRIPT.answer(&[("platform.js", &file("platform.js"))], asked("/"));
    assert_all_ok(&lines, 15);
}

/// Tests the key format that OpenID providers publish.
#[test]
fn the_public_keys_of_openid_providers_are_imported() {
    let script = br#"
        const n = btoa(String.fromCharCode(...new Uint8Array(256).fill(0xc5))).replace(/=+$/, "");
        const rsa = { kty: "RSA", e: "AQAB", n: n.replaceAll("+", "-").replaceAll("/", "_") };
        const ec = { kty: "EC", crv: "P-256",
            x: "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            y: "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU" };
        export default { async fetch() {
            const pkcs1 = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
            const ecdsa = { name: "ECDSA", namedCurve: "P-256" };
            const keys = [
                await crypto.subtle.importKey("jwk", rsa, pkcs1, false, ["verify"]),
                await crypto.subtle.importKey("jwk", ec, ecdsa, false, ["verify"]),
            ];
            return Response.json([keys.map((key) => key.type), keys[0].algorithm.modulusLength]);
        } };"#;
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    assert_eq!(said, r#"[["public","public"],2048]"#);
}

/// Without optimisation of the host's side, in one instance; docs/javascript.md has the time of
/// the product.
#[test]
fn keys_of_rsa_are_made_and_used() {
    let script = br#"
        export default { async fetch() {
            const algorithm = { name: "RSASSA-PKCS1-v1_5", modulusLength: 2048,
                publicExponent: new Uint8Array([1, 0, 1]), hash: "SHA-256" };
            const pair = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
            const data = new Uint8Array(100);
            const signature = await crypto.subtle.sign(algorithm, pair.privateKey, data);
            const { n } = await crypto.subtle.exportKey("jwk", pair.publicKey);
            return Response.json([signature.byteLength, n.length,
                await crypto.subtle.verify(algorithm, pair.publicKey, signature, data)]);
        } };"#;
    let begin = Instant::now();
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    println!("a key of RSA, made and used: {:?}", begin.elapsed());
    assert_eq!(said, "[256,342,true]");
}

#[test]
fn generated_keys_differ() {
    let script = br#"
        const algorithm = { name: "ECDSA", namedCurve: "P-256" };
        export default { async fetch() {
            const keys = [];
            for (let n = 0; n < 2; n++) {
                const pair = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
                keys.push((await crypto.subtle.exportKey("jwk", pair.privateKey)).d);
            }
            return new Response(keys.join(" "));
        } };"#;
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    let (one, other) = said.split_once(' ').unwrap();
    assert_ne!(one, other);
    assert_eq!(one.len(), 43);
}

/// A small body that decompresses to much does not fill the memory: the reader's demand decides.
#[test]
fn decompression_keeps_no_more_than_a_piece() {
    let script = br#"
        export default { async fetch() {
            const zeros = new Uint8Array(1 << 20);
            let left = 200;
            const source = new ReadableStream({ pull(controller) {
                if (left-- > 0) controller.enqueue(zeros);
                else controller.close();
            } });
            const packed = source.pipeThrough(new CompressionStream("gzip"));
            const bomb = await new Response(packed).bytes();
            const { readable, writable } = new DecompressionStream("gzip");
            const writer = writable.getWriter();
            const written = writer.write(bomb).then(() => writer.close());
            let bytes = 0, most = 0;
            for await (const piece of readable) {
                bytes += piece.length;
                most = Math.max(most, piece.length);
            }
            await written;
            return Response.json([bomb.length < 1 << 18, bytes, most <= 65536]);
        } };"#;
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/").memory(40 << 20));
    assert_eq!(said, "[true,209715200,true]");
}

/// Both kinds of listeners hear of errors that no code caught, before the log has them.
#[test]
fn listeners_receive_errors_and_rejections() {
    let script = br#"
        const heard = [];
        addEventListener("unhandledrejection", (event) => {
            heard.push(event instanceof PromiseRejectionEvent, event.type, event.reason.message);
            heard.push(event.promise instanceof Promise);
            event.preventDefault();
        });
        addEventListener("error", (event) => {
            heard.push(event instanceof ErrorEvent, event.message, event.error.message);
            event.preventDefault();
        });
        export default { async fetch() {
            Promise.reject(new Error("one"));
            setTimeout(() => { throw new Error("two"); }, 0);
            await new Promise((resolve) => setTimeout(resolve, 5));
            return Response.json(heard);
        } };"#;
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    assert_eq!(
        said,
        r#"[true,"unhandledrejection","one",true,true,"two","two"]"#
    );
}

#[test]
fn a_listener_prevents_that_a_rejection_fails_the_deployment() {
    let script = br#"
        addEventListener("unhandledrejection", (event) => event.preventDefault());
        Promise.reject(new Error("late"));
        export default () => new Response("answered");"#;
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    assert_eq!(said, "answered");
}

/// The names are there before anything is evaluated, and scripts may define them otherwise.
#[test]
fn interfaces_of_parts_are_found_and_can_be_replaced() {
    let script = br#"
        const names = ["CompressionStream", "CryptoKey", "ErrorEvent", "MessageChannel",
            "MessagePort", "PromiseRejectionEvent", "SubtleCrypto", "URLPattern"];
        const found = names.map((name) => name in globalThis);
        globalThis.URLPattern = class Own {};
        export default { fetch: () => Response.json([found.every(Boolean), URLPattern.name,
            Object.keys(globalThis).filter((name) => names.includes(name)),
            String(new MessageChannel().port1), new MessageChannel().port2 instanceof MessagePort])
        };"#;
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    assert_eq!(said, r#"[true,"Own",[],"[object MessagePort]",true]"#);
}
