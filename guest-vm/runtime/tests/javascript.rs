//! The included JavaScript engine, natively: its features for scripts, and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use support::fixture;
use support::scripts::{JAVASCRIPT, asked};

fn file(name: &str) -> Vec<u8> {
    fixture(&format!("tests/fixtures/scripts/{name}"))
}

#[test]
fn scripts_find_the_interfaces_of_the_web() {
    let lines = JAVASCRIPT.answer(&[("api.js", &file("api.js"))], asked("/"));
    assert!(lines.lines().count() >= 30, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("ok ")), "{lines}");
}

/// Runs every case that docs/javascript.md counts.
#[test]
fn headers_bodies_requests_and_responses_are_as_the_standard_has_them() {
    let lines = JAVASCRIPT.answer(&[("fetch.js", &file("fetch.js"))], asked("/"));
    let bad: Vec<&str> = lines
        .lines()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(lines.lines().count(), 172, "{lines}");
}

/// QuickJS's fast paths, which `wasm-runtimes/js/speed.py` adds, give what its general code gives.
#[test]
fn common_values_take_fast_paths_to_the_same_result() {
    let lines = JAVASCRIPT.answer(&[("fast-paths.js", &file("fast-paths.js"))], asked("/"));
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("ok ")), "{lines}");
}

/// Each promise of the chain keeps the one before, until memory is too short even for an error.
#[test]
fn a_chain_of_promises_without_end_is_out_of_memory() {
    let top = b"const next = () => Promise.resolve().then(next); await next();";
    let said = JAVASCRIPT.refused(&[("a.js", top)]);
    assert!(
        said.contains("out of memory") && !said.contains("null"),
        "{said}"
    );
    let said = JAVASCRIPT.refused(&[("a.js", b"throw null")]);
    assert!(said.contains("Uncaught null"), "{said}");
}

#[test]
fn recursion_ends_in_an_error_that_can_be_caught() {
    let text = file("deep.js");
    let files: [(&str, &[u8]); 1] = [("deep.js", &text)];
    let kinds = JAVASCRIPT.answer(&files, asked("/"));
    assert!(kinds.lines().count() > 50, "{kinds}");
    for kind in kinds.lines() {
        let said = JAVASCRIPT.answer(&files, asked(&format!("/?kind={kind}")));
        let caught = ["ok", "RangeError", "SyntaxError", "InternalError"];
        assert!(caught.contains(&said.as_str()), "{kind}: {said}");
    }
}

/// docs/javascript.md promises this depth.
#[test]
fn calls_may_be_a_thousand_deep() {
    let text = b"const deep = (n) => (n === 0 ? 0 : 1 + deep(n - 1));
        export default { fetch: () => new Response(String(deep(1000))) }";
    assert_eq!(JAVASCRIPT.answer(&[("a.js", text)], asked("/")), "1000");
}

#[test]
fn modules_are_found_by_their_paths() {
    let main = b"
        import { greet } from './lib/greet.js';
        import * as up from './lib/index.mjs';
        import data from './data.json';
        import named from './data.txt' with { type: 'json' };
        import text from './t\xc3\xa4xt.txt';
        import bytes from '/bin/raw.dat';
        import page from './page.html';
        const later = await import('./lib/later');
        export default { async fetch() {
            const last = await import('./last.js');
            const again = await import('./lib/greet.js');
            if (again.greet !== greet) throw new Error('it was loaded twice');
            const parts = [greet, up.default, data.a, named.a, text, bytes[0], page, later.default,
                           last.default, import.meta.url];
            return new Response(parts.join(' '));
        } };";
    let files: &[(&str, &[u8])] = &[
        ("main.js", main),
        (
            "lib/greet.js",
            b"import name from '../name.js'; export const greet = 'hello ' + name;",
        ),
        ("name.js", b"export default 'name';"),
        ("lib/index.mjs", b"export default 'index';"),
        ("data.json", b"{\"a\": 7, \"__proto__\": 1}"),
        ("data.txt", b"{\"a\": 8}"),
        ("t\u{e4}xt.txt", "naïve".as_bytes()),
        ("bin/raw.dat", b"\xff\xfe"),
        ("page.html", b"<p>"),
        ("lib/later.js", b"export default 'later';"),
        ("last.js", b"import './name.js'; export default 'last';"),
    ];
    assert_eq!(
        JAVASCRIPT.answer(files, asked("/")),
        "hello name index 7 8 naïve 255 <p> later last file:///main.js"
    );
}

#[test]
fn scripts_learn_that_intl_is_missing_and_what_to_do() {
    let remedy = "import a package that has their data";
    let refused = JAVASCRIPT.refused(&[("a.js", b"const format = new Intl.NumberFormat('de');")]);
    assert!(
        refused.contains("Intl is not defined: Intl is not available") && refused.contains(remedy),
        "{refused}"
    );
    let script = b"export default { fetch: () => new Response(Intl.DateTimeFormat().format()) };";
    let failed = JAVASCRIPT.failed(&[("a.js", script)], asked("/"));
    assert!(failed.contains(remedy), "{failed}");
    // A zone that the engine does not have is an error, not the time of another zone.
    let script = b"
        const date = new Date(Date.UTC(2026, 10, 29, 5, 6, 7));
        const shown = (zone) => ['toLocaleString', 'toLocaleDateString', 'toLocaleTimeString']
            .map((name) => {
                try { return date[name]('en-US', { timeZone: zone }); } catch (error) {
                    return error instanceof RangeError && error.message;
                }
            });
        export default { fetch: () => new Response(JSON.stringify([
            typeof Intl, shown(undefined), shown('UTC'), shown('Etc/GMT'), shown('+00:00'),
            new Set(shown('Europe/Berlin')).size, shown('Europe/Berlin')[0],
            date.toLocaleString(), Date.prototype.toLocaleString.length,
        ])) };";
    let told: serde_json::Value =
        serde_json::from_str(&JAVASCRIPT.answer(&[("a.js", script)], asked("/"))).unwrap();
    let in_utc = serde_json::json!(["11/29/2026, 05:06:07 AM", "11/29/2026", "05:06:07 AM"]);
    assert_eq!(told[0], "undefined");
    for zone in 1..=4 {
        assert_eq!(told[zone], in_utc, "{told}");
    }
    assert_eq!(told[5], 1);
    let message = told[6].as_str().unwrap();
    assert!(message.starts_with("the time zone Europe/Berlin is not available: "));
    assert!(message.contains(remedy), "{message}");
    assert_eq!((&told[7], &told[8]), (&in_utc[0], &serde_json::json!(0)));
}

#[test]
fn script_errors_are_reported_with_their_location() {
    for (text, wanted) in [
        ("let a = ;", "a.js:1: SyntaxError: "),
        (
            "\n\nnothing.b",
            "a.js:3: ReferenceError: nothing is not defined",
        ),
        ("\nthrow new TypeError('no')", "a.js:2: TypeError: no"),
        (
            "await null; null.a",
            "a.js:1: TypeError: cannot read property 'a' of null",
        ),
        ("throw { a: 1 }", "Uncaught { a: 1 }"),
        (
            "await new Promise(() => {})",
            "a.js: its top level waits for what never comes",
        ),
        ("1", "a.js: there is nothing to call: "),
        (
            "export default { fetch: 1 }",
            "a.js: there is nothing to call: ",
        ),
        (
            "import './b.js'",
            "a.js imports \"./b.js\", but the script has no such file",
        ),
        (
            "import 'react'",
            "which is no file of the script: packages are to be bundled with it",
        ),
        ("import '../../etc/passwd'", "has no such file"),
        (
            "addEventListener('scheduled', () => {})",
            "a.js: there is nothing to call: ",
        ),
        (
            "export default class { fetch() {} }",
            "a.js: its default export is a class",
        ),
        ("throw 'str \\ud800'", "Uncaught str \u{fffd}"),
        (
            "\nPromise.reject(new TypeError('late'));\nexport default () => new Response('a')",
            "a.js:2: TypeError: late",
        ),
        (
            "Promise.reject({ a: 1 }); export default () => new Response('a')",
            "Uncaught { a: 1 }",
        ),
        (
            "const f = () => f(); f()",
            "RangeError: Maximum call stack size exceeded",
        ),
    ] {
        let report = JAVASCRIPT.refused(&[("a.js", text.as_bytes())]);
        assert!(report.contains(wanted), "{text}: {report}");
    }
    let report = JAVASCRIPT.refused(&[
        ("a.js", b"import { f } from './b.js';\nf();"),
        (
            "b.js",
            b"export function f() {\n  g();\n}\nfunction g() { throw new Error('deep'); }",
        ),
    ]);
    assert!(report.starts_with("b.js:4: Error: deep\n"), "{report}");
    assert!(report.contains("at f (b.js:2:"), "{report}");
    assert!(report.contains("a.js:2:"), "{report}");
    assert!(!report.contains("faasw:"), "{report}");
    let report = JAVASCRIPT.refused(&[("a.js", b"import './b.json'"), ("b.json", b"{")]);
    assert!(report.contains("SyntaxError"), "{report}");
    let report = JAVASCRIPT.refused(&[("a.js", b"import './b.js'"), ("b.js", b"\xff")]);
    assert!(report.contains("b.js is no text in UTF-8"), "{report}");
}

#[test]
fn a_handler_is_found_in_each_of_its_forms() {
    for text in [
        "export default { fetch() { return new Response('x') } }",
        "export default { async fetch() { await 0; return new Response('x') } }",
        "class A { fetch() { return new Response('x') } } export default new A()",
        "export default () => new Response('x')",
        "addEventListener('fetch', (event) => event.respondWith(new Response('x')))",
        "addEventListener('fetch', (event) => event.respondWith(Promise.resolve(new \
         Response('x'))))",
        "const r = new Response('x'); export default { fetch: () => r }",
    ] {
        assert_eq!(
            JAVASCRIPT.answer(&[("a.js", text.as_bytes())], asked("/")),
            "x",
            "{text}"
        );
    }
}

#[test]
fn the_environment_is_an_argument() {
    let text =
        b"export default { fetch(request, env) { return new Response(`${env.A} ${env.B}`) } }";
    let call = asked("/").environment("A", "gr\u{fc}n");
    assert_eq!(JAVASCRIPT.answer(&[("a.js", text)], call), "grün undefined");
}

#[test]
fn numbers_are_written_as_they_are() {
    // The guest formerly copied overlapping bytes incorrectly, which was visible here.
    let text = b"export default { fetch: () => new Response([6.12, 61.25, 7, 0.5, 123456.789]
        .map((n) => n.toFixed(2)).join(' ')) }";
    assert_eq!(
        JAVASCRIPT.answer(&[("a.js", text)], asked("/")),
        "6.12 61.25 7.00 0.50 123456.79"
    );
}

#[test]
fn a_handler_that_fails_has_no_response() {
    for (text, wanted) in [
        ("() => { throw new TypeError('no') }", "TypeError: no"),
        ("async () => { throw 'text' }", "text"),
        (
            "async () => { throw new Error('\\ud800 bad') }",
            "Error: \u{fffd} bad",
        ),
        (
            "async () => { const e = new Error('x'); e.name = Symbol(); throw e }",
            "cannot be told",
        ),
        (
            "() => { const s = new ReadableStream(), r = new Response(s); s.getReader(); \
             return r }",
            "somebody reads",
        ),
        ("() => 'text'", "a handler gives a Response, not \"text\""),
        ("() => undefined", "a handler gives a Response, not nothing"),
        ("() => new Promise(() => {})", "never settles"),
        ("() => Response.error()", "Response.error()"),
        (
            "() => { const r = new Response('x'); r.text(); return r }",
            "used already",
        ),
    ] {
        let script = format!("export default {{ fetch: {text} }}");
        let call = asked("/");
        let mut ready = JAVASCRIPT
            .init(&[("a.js", script.as_bytes())], &call)
            .unwrap();
        let failure = ready.handle(call.request).unwrap_err();
        assert!(
            failure.report.contains(wanted),
            "{text}: {}",
            failure.report
        );
    }
}
