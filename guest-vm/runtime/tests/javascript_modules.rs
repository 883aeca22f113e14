//! Modules of scripts in JavaScript, natively: the table of a prepared script, CommonJS, source
//! maps, and the modules of Node.js.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_runtime::platform::LogStream;
use support::fixture;
use support::scripts::{JAVASCRIPT, asked};

type Files<'a> = &'a [(&'a str, &'a [u8])];

#[track_caller]
fn answer(files: Files<'_>) -> String {
    JAVASCRIPT.answer(files, asked("/"))
}

/// Returns what a script wrote to standard error in one request.
#[track_caller]
fn logged(files: Files<'_>) -> String {
    let ready = JAVASCRIPT.answered(files, asked("/"));
    String::from_utf8(ready.platform().logged(LogStream::Err)).unwrap()
}

#[test]
fn a_table_resolves_the_specifiers_of_a_prepared_script() {
    let table = br##"{"modules": {
        "app.ts": {"kind": "esm", "imports": {
            "pkg": "node_modules/pkg/es/index.js", "pkg/sub": "node_modules/pkg/sub.js",
            "./util": "util/index.ts", "node:path": "node:path", "./page.html": "page.html",
            "./raw.txt": "raw.txt", "#data": "data.json"}},
        "util/index.ts": {"kind": "esm", "imports": {}},
        "page.html": {"kind": "text"}, "raw.txt": {"kind": "bytes"}, "data.json": {"kind": "json"},
        "node_modules/pkg/es/index.js":
            {"kind": "esm", "imports": {"dep": "node_modules/dep/main"}},
        "node_modules/pkg/sub.js": {"kind": "cjs", "imports": {"./other": "node_modules/pkg/o.js"}},
        "node_modules/pkg/o.js": {"kind": "cjs"},
        "node_modules/dep/main": {"kind": "esm", "imports": {}}
    }}"##;
    let main = b"
        import pkg from 'pkg';
        import sub, { named } from 'pkg/sub';
        import { util } from './util';
        import path from 'node:path';
        import page from './page.html';
        import raw from './raw.txt';
        import data from '#data';
        export default { fetch: () => new Response(
            [pkg, sub.named, named, util, path.join('a', 'b'), page, raw[0], data.d].join(' ')) };";
    let files: Files<'_> = &[
        ("app.ts", main),
        (".faasw/modules.json", table),
        ("util/index.ts", b"export const util = 'util';"),
        ("page.html", b"<p>"),
        ("raw.txt", b"A"),
        ("data.json", b"{\"d\": 4}"),
        (
            "node_modules/pkg/es/index.js",
            b"import dep from 'dep'; export default 'pkg+' + dep;",
        ),
        (
            "node_modules/pkg/sub.js",
            b"exports.named = 'sub+' + require('./other');",
        ),
        ("node_modules/pkg/o.js", b"module.exports = 'other';"),
        ("node_modules/dep/main", b"export default 'dep';"),
    ];
    assert_eq!(
        answer(files),
        "pkg+dep sub+other sub+other util a/b <p> 65 4"
    );
}

#[test]
fn an_error_of_resolution_names_module_specifier_and_remedy() {
    let table: &[u8] =
        br#"{"modules": {"app.ts": {"kind": "esm", "imports": {"./lost": "lost.js"}}}}"#;
    for (text, wanted) in [
        (
            "import 'hono'",
            "app.ts imports \"hono\", which was not found when the script was prepared: install",
        ),
        (
            "import './lost'",
            "which is lost.js by .faasw/modules.json, but the script has no such",
        ),
        (
            "import 'node:sqlite'",
            "\"node:sqlite\", a module of Node.js that this engine does not",
        ),
        ("import './.faasw/modules.json'", "was not found when"),
    ] {
        let files: Files<'_> = &[("app.ts", text.as_bytes()), (".faasw/modules.json", table)];
        let report = JAVASCRIPT.refused(files);
        assert!(report.contains(wanted), "{text}: {report}");
    }
    for (table, wanted) in [
        ("{", ".faasw/modules.json: the table of modules is not JSON"),
        ("[]", "the table has no object \"modules\""),
        (
            r#"{"modules": {"a.js": {"kind": "wasm"}}}"#,
            "a.js has the unknown kind \"wasm\"",
        ),
    ] {
        let files: Files<'_> = &[("a.js", b""), (".faasw/modules.json", table.as_bytes())];
        let report = JAVASCRIPT.refused(files);
        assert!(report.contains(wanted), "{table}: {report}");
    }
    let files: Files<'_> = &[
        ("a.js", b"import '/.faasw/notes.txt'"),
        (".faasw/notes.txt", b"x"),
    ];
    let report = JAVASCRIPT.refused(files);
    assert!(report.contains("the script has no such file"), "{report}");
}

#[test]
fn commonjs_modules_are_as_in_node() {
    let main = b"
        const a = require('./lib/a.cjs');
        const again = require('./lib/a');
        const data = require('./data.json');
        let missing;
        try { require('./nothing'); } catch (error) { missing = error.code; }
        let failed = 0;
        for (let n = 0; n < 2; n++) try { require('./bad.cjs'); } catch { failed++; }
        const outer = this === exports;
        const loose = (function () { return this === globalThis; })();
        module.exports = { fetch: () => new Response(JSON.stringify([
            a.name, a === again, data.x, a.fromB, a.filename, a.folder, missing, failed, loose,
            require.main === module, module.id, require.resolve('./lib/a'),
            Object.keys(require.cache), module.children.length, outer,
            globalThis.badRuns,
        ])) };";
    let files: Files<'_> = &[
        ("main.js", main),
        (
            "lib/a.cjs",
            b"#!/usr/bin/env node
            exports.early = 1;
            const b = require('./b.cjs');
            module.exports = {
                name: 'a', fromB: b.seen, filename: __filename, folder: __dirname,
            };",
        ),
        (
            "lib/b.cjs",
            b"const a = require('./a.cjs'); exports.seen = Object.keys(a) + typeof a.name;",
        ),
        (
            "bad.cjs",
            b"globalThis.badRuns = (globalThis.badRuns ?? 0) + 1; throw new Error('bad');",
        ),
        ("data.json", b"{\"x\": 9}"),
    ];
    assert_eq!(
        answer(files),
        concat!(
            r#"["a",true,9,"earlyundefined","/lib/a.cjs","/lib","MODULE_NOT_FOUND",2,true,"#,
            r#"true,".","/lib/a.cjs",["/main.js","/lib/a.cjs","/lib/b.cjs","/data.json"],2,true,2]"#
        )
    );
}

#[test]
fn modules_of_the_engine_resolve_to_their_names() {
    let main = b"
        const { createRequire } = require('node:module');
        const resolved = (require) => ['faasw', 'fs', 'node:fs', 'util/types', './lib/a.js']
            .map((name) => require.resolve(name));
        const again = require(require.resolve('faasw')) === require('faasw')
            && require(require.resolve('fs')) === require('node:fs');
        let missing;
        try { require.resolve('node:nothing'); } catch (error) { missing = error.code; }
        module.exports = { fetch: () => new Response(JSON.stringify([
            resolved(require), resolved(createRequire('/x.js')), again, missing,
        ])) };";
    let files: Files<'_> = &[("main.cjs", main), ("lib/a.js", b"exports.a = 1;")];
    let resolved = r#"["faasw","fs","node:fs","util/types","/lib/a.js"]"#;
    assert_eq!(
        answer(files),
        format!(r#"[{resolved},{resolved},true,"MODULE_NOT_FOUND"]"#)
    );
}

#[test]
fn modules_of_both_kinds_use_each_other() {
    let main = b"
        import whole, { named, late, inherited } from './c.cjs';
        import * as space from './c.cjs';
        import compiled, { value } from './compiled.cjs';
        import { createElement } from './react.cjs';
        export { named as again } from './c.cjs';
        import { createRequire } from 'module';
        const require = createRequire(import.meta.url);
        const esm = require('./e.mjs');
        const dynamic = await import('./c.cjs');
        let waits;
        try { require('./waits.mjs'); } catch (error) { waits = error.code; }
        export default { async fetch() {
            const unknown = await import('./unknown.mjs').catch((error) => error.message);
            return new Response(JSON.stringify([
                whole.named, named, late, inherited, Object.keys(space).sort(),
                compiled.default, value,
                createElement(), esm.default, esm.__esModule, esm.plain, require('./e.mjs') === esm,
                require('./plain.mjs').a, dynamic.default === whole, waits, unknown,
                require('./c.cjs') === whole, (await import('./c.cjs')).lateToo,
            ]));
        } };";
    let files: Files<'_> = &[
        ("main.mjs", main),
        (
            "c.cjs",
            b"exports.named = 'n'; for (const name of ['late', 'lateToo']) exports[name] = name;
            Object.setPrototypeOf(exports, { inherited: 'i' });",
        ),
        (
            "compiled.cjs",
            b"'use strict'; Object.defineProperty(exports, '__esModule', { value: true });
            exports.default = 'd'; exports.value = 'v';",
        ),
        (
            "react.cjs",
            b"if (1) { module.exports = require('./prod.cjs'); }",
        ),
        ("prod.cjs", b"exports.createElement = () => 'element';"),
        (
            "e.mjs",
            b"export default 'default'; export const plain = require_;\nvar require_ = 1;",
        ),
        ("plain.mjs", b"export const a = 'plain';"),
        ("waits.mjs", b"await null; export default 1;"),
        ("unknown.mjs", b"import { nowhere } from './c.cjs';"),
    ];
    assert_eq!(
        answer(files),
        concat!(
            r#"["n","n","late","i",["default","inherited","late","named"],"d","v","element","#,
            r#""default",true,null,true,"plain",true,"ERR_REQUIRE_ASYNC_MODULE","#,
            r#""Could not find export 'nowhere' in module 'c.cjs'",true,null]"#
        )
    );
}

#[test]
fn commonjs_modules_run_in_the_order_of_imports() {
    let main = b"
        import './first.mjs';
        import order from './second.cjs';
        import './third.mjs';
        globalThis.order.push('main');
        export default () => new Response(order.join(' ') + ' | ' + globalThis.order.join(' '));";
    let files: Files<'_> = &[
        ("main.mjs", main),
        ("first.mjs", b"globalThis.order = ['first'];"),
        (
            "second.cjs",
            b"order.push('second'); module.exports = [...order];",
        ),
        ("third.mjs", b"order.push('third');"),
    ];
    assert_eq!(answer(files), "first second | first second third main");
}

#[test]
fn a_cycle_of_both_kinds_is_an_error_that_can_be_caught() {
    let files: Files<'_> = &[
        (
            "main.mjs",
            b"import caught from './c.cjs'; export default () => new Response(caught);",
        ),
        (
            "c.cjs",
            b"try { require('./main.mjs'); } catch (error) { module.exports = error.code; }",
        ),
    ];
    assert_eq!(answer(files), "ERR_REQUIRE_CYCLE_MODULE");
    // A module that imports what is being required sees what there is by then.
    let files: Files<'_> = &[
        (
            "main.cjs",
            b"exports.a = 1; const { seen } = require('./e.mjs'); exports.b = 2;
            exports.default = () => new Response(seen + ' ' + require('./e.mjs').whole.b);
            exports.__esModule = true;",
        ),
        (
            "e.mjs",
            b"import whole, { a, b } from './main.cjs'; export { whole };
            export const seen = `${a} ${b}`;",
        ),
    ];
    assert_eq!(answer(files), "1 undefined 2");
}

#[test]
fn a_handler_can_be_exported_by_commonjs() {
    for (name, text) in [
        (
            "a.cjs",
            "module.exports = { fetch: () => new Response('x') }",
        ),
        ("a.js", "module.exports = () => new Response('x')"),
        (
            "a.js",
            "exports.default = { fetch() { return new Response('x') } }; exports.__esModule = true",
        ),
        (
            "a.js",
            "const s = 'export default 1'; // export {}\nexports.fetch = () => new Response('x')",
        ),
        (
            "a.js",
            "(() => { var r = (exports, module) => { module.exports = 1 };
            addEventListener('fetch', (event) => event.respondWith(new Response('x'))) })()",
        ),
    ] {
        assert_eq!(answer(&[(name, text.as_bytes())]), "x", "{text}");
    }
    // A module stays an ECMAScript module if it has such a declaration.
    let text =
        b"const module = {}; module.exports = 1; export default () => new Response(typeof this);";
    assert_eq!(answer(&[("a.js", text)]), "undefined");
}

/// The map of `\nthrow new Error('x')` as line 1 of app.js to line 10, column 3 of src/app.ts.
const MAP: &str = r#"{"version": 3, "sources": ["src/app.ts"], "names": [],
    "sourcesContent": ["\n"], "mappings": ";AASE"}"#;

#[test]
fn stacks_name_the_files_of_the_author() {
    // Line 2 of the module is line 10 of the author's file.
    let base64 = base64_of(MAP.as_bytes());
    let inline = format!(
        "\nthrow new TypeError('no')\n//# sourceMappingURL=data:application/json;base64,{base64}\n"
    );
    for files in [
        &[
            ("app.js", b"\nthrow new TypeError('no')".as_slice()),
            ("app.js.map", MAP.as_bytes()),
        ][..],
        &[("app.js", inline.as_bytes())],
        &[
            ("app.js", b"import './b.cjs'"),
            ("b.cjs", b"\nthrow new TypeError('no'); exports"),
            ("b.cjs.map", MAP.as_bytes()),
        ],
    ] {
        let report = JAVASCRIPT.refused(files);
        assert!(
            report.starts_with("src/app.ts:10: TypeError: no"),
            "{report}"
        );
    }
    // An error of syntax.
    let files: Files<'_> = &[("app.js", b"\nlet a = ;"), ("app.js.map", MAP.as_bytes())];
    let report = JAVASCRIPT.refused(files);
    assert!(report.starts_with("src/app.ts:10: SyntaxError"), "{report}");

    let handler = concat!(
        "const kinds = [() => new Error('x').stack, ",
        "() => { const o = {}; Error.captureStackTrace(o); return o.stack; }];\n",
        "kinds.push(() => new Error('x').stack, ",
        "() => { const o = {}; Error.captureStackTrace(o); return o.stack; });",
        "export default () => { ",
        "const [, , one, two] = kinds.map((run) => run().includes('src/app.ts:10:')); ",
        "console.error(new DOMException('dom', 'DataError')); ",
        "return new Response(`${one} ${two}`) };",
    )
    .as_bytes();
    let files: Files<'_> = &[("app.js", handler), ("app.js.map", MAP.as_bytes())];
    assert_eq!(answer(files), "true true");
    let log = logged(files);
    assert!(log.contains("(src/app.ts:10:"), "{log}");
}

#[test]
fn a_broken_source_map_is_ignored() {
    for map in [
        "",
        "{",
        r#"{"sources": ["x.ts"], "mappings": ";!!"}"#,
        r#"{"mappings": 1}"#,
        "\u{0}",
    ] {
        let files: Files<'_> = &[
            ("app.js", b"\nthrow new Error('no')"),
            ("app.js.map", map.as_bytes()),
        ];
        let report = JAVASCRIPT.refused(files);
        assert!(report.starts_with("app.js:2: Error: no"), "{map}: {report}");
    }
}

#[test]
fn an_error_in_a_file_with_parentheses_in_its_path_is_located() {
    let files: Files<'_> = &[
        ("a.js", b"import './(group)/[id] (copy).js'"),
        (
            "(group)/[id] (copy).js",
            b"\n\n(function f () { nothing.x })()",
        ),
    ];
    let report = JAVASCRIPT.refused(files);
    assert!(
        report.starts_with("(group)/[id] (copy).js:3: ReferenceError"),
        "{report}"
    );
}

#[test]
fn modules_of_node_compute_what_node_does() {
    let script = fixture("tests/fixtures/scripts/node.js");
    let lines = answer(&[("node.js", &script)]);
    let bad: Vec<&str> = lines
        .lines()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(lines.lines().count() > 89, "{lines}");
}

#[test]
fn every_module_of_node_can_be_imported_and_says_what_it_cannot_do() {
    let main = b"
        import { builtinModules, createRequire } from 'node:module';
        const all = await Promise.all(builtinModules.map((name) => import('node:' + name)));
        const require = createRequire(import.meta.url);
        const told = [];
        for (const [name, call] of [
            ['net', 'connect'], ['http', 'createServer'], ['zlib', 'gzipSync'],
            ['child_process', 'exec'], ['vm', 'runInThisContext']]) {
            try { require(name)[call](); } catch (error) { told.push(error.message); }
        }
        try { process.exit(1); } catch (error) { told.push(error.message); }
        export default () => new Response([
            all.length > 45, all.every((one) => one.default !== undefined),
            ...told].join('\\n'));";
    let said = answer(&[("main.mjs", main)]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["true", "true"], "{said}");
    for (line, wanted) in lines[2..].iter().zip([
        "net.connect is not supported here: a function makes no network connections",
        "http.createServer is not supported here: a function is called by its exported handler",
        "zlib.gzipSync is not supported here: use CompressionStream",
        "child_process.exec is not supported here: a function cannot start processes",
        "vm.runInThisContext is not supported here",
        "process.exit(1) is not supported here",
    ]) {
        assert!(line.contains(wanted), "{line}");
    }
}

#[test]
fn a_script_reads_its_own_files_when_a_request_first_loads_fs() {
    let main = b"
        import './loaded.js';
        export default { async fetch() {
            const { readFileSync } = await import('node:fs');
            return new Response(readFileSync('/loaded.js', 'utf8'));
        } };";
    let files: Files<'_> = &[("main.mjs", main), ("loaded.js", b"export {}")];
    assert_eq!(answer(files), "export {}");
}

#[test]
fn an_asynchronous_context_ends_with_its_task() {
    let main = b"
        import { AsyncLocalStorage } from 'node:async_hooks';
        const storage = new AsyncLocalStorage();
        storage.enterWith('top');
        export default { async fetch() {
            const first = storage.getStore() ?? null;
            const second = await new Promise((resolve) => {
                setTimeout(() => storage.enterWith('timer'), 0);
                setTimeout(() => resolve(storage.getStore() ?? null), 1);
            });
            return Response.json([first, second]);
        } };";
    assert_eq!(answer(&[("main.mjs", main)]), "[null,null]");
}

#[test]
fn a_script_reads_its_own_files() {
    let main = b"
        import fs, { existsSync } from 'node:fs';
        import { readFile, readdir } from 'node:fs/promises';
        import './loaded.js';
        export default { async fetch() {
            const missing = await readFile('nothing').catch((error) => error.code);
            let readOnly;
            try { fs.rmSync('/data/a.txt'); } catch (error) { readOnly = error.code; }
            return new Response(JSON.stringify([
                fs.readFileSync('data/a.txt', 'utf8'),
                await readFile(new URL('./data/a.txt', import.meta.url), 'utf8'),
                existsSync('/data'), existsSync('/.faasw/modules.json'), await readdir('/data'),
                missing, readOnly,
                fs.statSync('data/a.txt').size, fs.readFileSync('/loaded.js').length,
            ]));
        } };";
    let files: Files<'_> = &[
        ("main.mjs", main),
        ("data/a.txt", "gr\u{fc}n".as_bytes()),
        ("data/sub/b.txt", b""),
        ("loaded.js", b"export {}"),
        (".faasw/modules.json", b"{\"modules\": {}}"),
    ];
    let said = answer(files);
    assert!(
        said.starts_with(r#"["grün","grün",true,false,["a.txt","sub"],"ENOENT","EROFS",5,"#),
        "{said}"
    );
}

#[test]
fn globals_of_node_are_there_in_handlers() {
    let text = b"
        const atTop = typeof Buffer.from;
        export default { async fetch() {
            process.stdout.write('part ');
            process.stdout.write('of a line\\n');
            await new Promise((resolve) => setImmediate(resolve));
            return new Response(Buffer.from(atTop).toString('base64') + ' ' + process.env.A + ' ' +
                process.env.NODE_ENV + ' ' + Object.keys(globalThis).includes('process'));
        } };";
    let ready = JAVASCRIPT.answered(&[("a.js", text)], asked("/").environment("A", "1"));
    let platform = ready.platform();
    assert_eq!(platform.response_body, b"ZnVuY3Rpb24= 1 production false");
    assert_eq!(platform.logged(LogStream::Out), b"part of a line\n");
    // Scripts can have their own.
    let text = b"globalThis.Buffer = 1; const process = 2;
        export default () => new Response(`${Buffer} ${process}`);";
    assert_eq!(answer(&[("a.js", text)]), "1 2");
}

fn base64_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let digit = DIGITS[((bits >> (18 - 6 * place)) & 63) as usize];
            text.push(if place <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}
