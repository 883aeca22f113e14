//! Parsers of the JavaScript engine that read texts of tenants, compiled natively: what they find,
//! and that their work is linear.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test that cannot go on has failed; the engine uses more of the parsers"
)]

#[path = "../../../wasm-runtimes/js/src/export_names.rs"]
mod export_names;
#[path = "../../../wasm-runtimes/js/src/mappings.rs"]
mod mappings;

use std::fmt::Write as _;

use mappings::Mappings;

/// Returns the sorted names and the specifiers of reexported modules.
fn found(text: &str) -> (String, String) {
    let exports = export_names::find(text);
    (exports.names.join(" "), exports.reexports.join(" "))
}

#[test]
fn exports_are_found_in_the_forms_that_compilers_write() {
    for (text, names, reexports) in [
        (
            "exports.a = exports['b-c'] = 1; module.exports.d = 2",
            "a b-c d",
            "",
        ),
        ("exports.a == 1; exports.b => 1; x.exports.c = 1", "", ""),
        ("Object.defineProperty(exports, 'a', { value: 1 })", "a", ""),
        (
            "Object.defineProperty(module.exports, \"b\", { get })",
            "b",
            "",
        ),
        ("__export(exports, { a: () => a, b })", "a b", ""),
        (
            "0 && (module.exports = { a, b, ...require('./c') })",
            "a b",
            "./c",
        ),
        (
            "module.exports = exports = { a: 1, get b() {}, async c() {} }",
            "a b c",
            "",
        ),
        (
            "module.exports = { f() { return { x: 1, y } }, 'g': [1, { z: 2 }], h }",
            "f g h",
            "",
        ),
        ("module.exports = require('./all')", "", "./all"),
        (
            "__exportStar(require('./one'), exports); exports.default = 1",
            "",
            "./one",
        ),
        (
            "module.exports = { a: function () { exports.b = 1; } , c }",
            "a b c",
            "",
        ),
        (
            "module.exports = { a: module.exports = { b, c }, d }",
            "a b c d",
            "",
        ),
        (
            "x = a / 2; exports.a = 1; y = /[/'] exports.n = 1/.test(z); exports.b = `${{}}`",
            "a b",
            "",
        ),
        ("x = /[unclosed\nexports.a = 1; y = 1 / 2 / 3", "a", ""),
        (
            "// exports.a = 1\n/* exports.b = 1 */ 'exports.c = 1'; exports.d = 1",
            "d",
            "",
        ),
    ] {
        assert_eq!(
            found(text),
            (names.to_owned(), reexports.to_owned()),
            "{text}"
        );
    }
}

/// Each of these texts repeats something whose end is far away or missing.
#[test]
fn hostile_modules_are_read_in_linear_time() {
    const TIMES: usize = 50_000;
    let many = |make: &dyn Fn(usize) -> String| (0..TIMES).map(make).collect::<String>();
    for (kind, text) in [
        ("names", many(&|at| format!("exports.a{at}=1;"))),
        ("chains", many(&|_| "module.exports=".into())),
        (
            "nested literals",
            many(&|at| format!("module.exports={{a{at}:")),
        ),
        ("unclosed literals", many(&|_| "module.exports={".into())),
        ("helpers", many(&|_| "__export(exports,{".into())),
        (
            "reexports",
            many(&|at| format!("module.exports=require('{at}');")),
        ),
        (
            "unclosed classes",
            format!("exports.a=1;{}", many(&|_| "=/[".into())),
        ),
        (
            "unclosed groups",
            format!("exports.a=1;{}", many(&|_| "=/[(/\\/".into())),
        ),
        (
            "strings",
            format!("exports.a=1;{}", many(&|_| "'\\''".into())),
        ),
        (
            "templates",
            format!("exports.a=1;{}", many(&|_| "`${{`".into())),
        ),
        (
            "comments",
            format!("exports.a=1;{}", many(&|_| "/*/ /".into())),
        ),
    ] {
        export_names::EXAMINED.set(0);
        let exports = export_names::find(&text);
        export_names::is_commonjs(&text);
        let examined = export_names::EXAMINED.get();
        assert!(
            examined <= 4 * text.len(),
            "{kind}: {examined} steps for {} bytes",
            text.len()
        );
        match kind {
            "names" | "nested literals" => assert_eq!(exports.names.len(), TIMES, "{kind}"),
            "reexports" => assert_eq!(exports.reexports.len(), TIMES),
            _ => {}
        }
    }
}

#[test]
fn mappings_are_decoded_once_and_no_further_than_needed() {
    // Each line has two segments; the second is one source line further.
    let mut text = String::new();
    for _ in 0..1000 {
        write!(text, "AAAA,EACA;").unwrap();
    }
    let mut mappings = Mappings::new(&text);
    assert_eq!(mappings.find(99, 7), Some((0, 100, 0)));
    let decoded = mappings::EXAMINED.get();
    assert_eq!(decoded, 100 * "AAAA,EACA;".len());
    for line in (0..100).rev() {
        assert_eq!(mappings.find(line, 0), Some((0, line, 0)));
        assert_eq!(mappings.find(line, 1), Some((0, line, 0)));
        assert_eq!(mappings.find(line, 2), Some((0, line + 1, 0)));
    }
    assert_eq!(mappings::EXAMINED.get(), decoded, "decoded again");
    assert_eq!(mappings.find(1001, 0), None);
    assert_eq!(mappings.find(u32::MAX, 0), None);
    assert_eq!(mappings::EXAMINED.get(), text.len() + 1);
}

#[test]
fn malformed_mappings_have_no_positions_from_there_on() {
    for text in [
        "AAAA;!",
        "AAAA;AA",
        "AAAA;AAAD",
        "AAAA;gggggggggggA",
        "AAAA;D",
    ] {
        let mut mappings = Mappings::new(text);
        assert_eq!(mappings.find(0, 5), Some((0, 0, 0)), "{text}");
        assert_eq!(mappings.find(1, 0), None, "{text}");
        assert_eq!(mappings.find(2, 0), None, "{text}");
    }
    assert_eq!(Mappings::new("").find(0, 0), None);
}
