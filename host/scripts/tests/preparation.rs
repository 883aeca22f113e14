//! Projects of all kinds, as the engine receives them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use support::Project;

#[test]
fn types_are_removed_and_imports_resolved() {
    let project = Project::new(&[
        (
            "app.ts",
            "import { greet } from './greet.js';\nimport type { Name } from './types';\n\
             import data from './data.json';\nimport page from './page.html';\n\
             const name: Name = 'a';\nexport default { fetch: () => new Response(greet(name)) };\n",
        ),
        (
            "greet.ts",
            "export const greet = (name: string): string => `hi ${name}`;",
        ),
        ("types.ts", "export type Name = string;"),
        ("data.json", "{\"a\": 1}"),
        ("page.html", "<p>"),
        ("unused.ts", "this is no TypeScript"),
    ]);
    let bundle = project.bundle("app.ts");
    assert_eq!(bundle.paths()[0], "app.ts");
    assert_eq!(bundle.kind("app.ts"), "esm");
    assert_eq!(bundle.target("app.ts", "./greet.js"), "greet.ts");
    assert_eq!(bundle.kind("greet.ts"), "esm");
    assert!(!bundle.text("greet.ts").contains("string"));
    // Unused imports are gone, so types are no modules.
    assert!(!bundle.has("types.ts") && !bundle.has("unused.ts"));
    assert!(
        !bundle.has("data.json"),
        "an unused import in TypeScript is a type"
    );
    let map: serde_json::Value = serde_json::from_str(bundle.text("app.ts.map")).unwrap();
    assert_eq!(map["version"], 3);
    assert_eq!(map["sources"][0], "app.ts");
    assert!(!bundle.0.is_plain);
}

#[test]
fn data_is_imported_as_it_is() {
    let project = Project::new(&[
        (
            "app.ts",
            "import data from './data.json';\nimport page from './page.html';\n\
             import raw from './raw.bin';\nimport source from './code.ts' with { type: 'text' };\n\
             console.log(data, page, raw, source);",
        ),
        ("data.json", "{\"a\": 1}"),
        ("page.html", "<p>"),
        ("code.ts", "let a: number"),
    ]);
    std::fs::write(project.root().join("raw.bin"), [0xff, 0]).unwrap();
    let bundle = project.bundle("app.ts");
    for (path, kind) in [
        ("data.json", "json"),
        ("page.html", "text"),
        ("raw.bin", "bytes"),
        ("code.ts", "text"),
    ] {
        assert_eq!(bundle.kind(path), kind, "{path}");
        assert!(!bundle.has(&format!("{path}.map")));
    }
    assert_eq!(bundle.text("code.ts"), "let a: number");
    assert_eq!(bundle.target("app.ts", "./code.ts"), "code.ts");
}

#[test]
fn language_that_has_a_meaning_at_run_time_is_transformed() {
    let project = Project::new(&[
        (
            "app.ts",
            "enum Colour { Red, Green = 'g' }\nnamespace Space { export const a = 1 }\n\
             class Point { constructor(readonly x: number) {} }\n\
             function mark(target: any, key: string) {}\n\
             class Marked { @mark name = 'a' }\n\
             { using file = open(); }\n\
             export default [Colour, Space, Point, Marked];",
        ),
        (
            "tsconfig.json",
            "{ \"compilerOptions\": { \"experimentalDecorators\": true } }",
        ),
    ]);
    let bundle = project.bundle("app.ts");
    let code = bundle.text("app.ts");
    assert!(code.contains("this.x") && !code.contains("@mark"), "{code}");
    let helper = "@oxc-project/runtime/helpers/decorate";
    assert_eq!(
        bundle.target("app.ts", helper),
        ".faasw/helpers/decorate.js"
    );
    assert!(bundle.has(".faasw/helpers/decorate.js") && bundle.has(".faasw/helpers/usingCtx.js"));
    assert_eq!(bundle.paths()[0], "app.ts");
}

#[test]
fn jsx_follows_the_settings() {
    let jsx = "export const page = <p>hi</p>;";
    let project = Project::with_packages(&[
        (
            "hono.tsx",
            "/** @jsxImportSource hono/jsx */\nexport const page = <p>hi</p>;",
        ),
        ("react.jsx", jsx),
        ("src/app.tsx", jsx),
        (
            "src/tsconfig.json",
            "{ // a comment\n\"compilerOptions\": { \"jsx\": \"react-jsx\", \"jsxImportSource\": \
             \"hono/jsx\" }, }",
        ),
        (
            "old/app.tsx",
            "import { h } from '../h.js';\nexport const page = <p>hi</p>;",
        ),
        (
            "old/tsconfig.json",
            "{ \"compilerOptions\": { \"jsx\": \"react\", \"jsxFactory\": \"h\" } }",
        ),
        ("h.js", "export const h = () => 1;"),
        ("package.json", "{}"),
    ]);
    let hono = "hono/jsx/jsx-runtime";
    for entry in ["hono.tsx", "src/app.tsx"] {
        let bundle = project.bundle(entry);
        let target = bundle.target(entry, hono);
        assert_eq!(
            target, "node_modules/hono/dist/jsx/jsx-runtime.js",
            "{entry}"
        );
    }
    let bundle = project.bundle("react.jsx");
    let target = bundle.target("react.jsx", "react/jsx-runtime");
    assert_eq!(target, "node_modules/react/jsx-runtime.js");
    assert_eq!(bundle.kind(&target), "cjs");
    let bundle = project.bundle("old/app.tsx");
    assert!(bundle.text("old/app.tsx").contains("h(\"p\""));
    assert_eq!(bundle.target("old/app.tsx", "../h.js"), "h.js");
}

#[test]
fn settings_of_typescript_name_paths() {
    let project = Project::new(&[
        ("package.json", "{}"),
        (
            "src/app.ts",
            "import { a } from '@lib/a';\nimport { b } from '~/b';\nexport default a + b;",
        ),
        ("lib/a.ts", "export const a = 1;"),
        ("src/b/index.ts", "export const b = 2;"),
        (
            "tsconfig.json",
            "{ \"extends\": \"./base.json\", \"compilerOptions\": { \"paths\": { \"@lib/*\": \
             [\"./lib/*\"], \"~/*\": [\"./src/*\"] } } }",
        ),
        ("base.json", "{ \"compilerOptions\": { \"strict\": true } }"),
    ]);
    let bundle = project.bundle("src/app.ts");
    assert_eq!(bundle.paths()[0], "src/app.ts");
    assert_eq!(bundle.target("src/app.ts", "@lib/a"), "lib/a.ts");
    assert_eq!(bundle.target("src/app.ts", "~/b"), "src/b/index.ts");
}

#[test]
fn packages_resolve_as_for_workers() {
    let project = Project::new(&[
        ("package.json", "{}"),
        (
            "app.js",
            "import 'conditions'; import 'fields'; import 'mapped'; import '#internal';\n\
             const x = require; export default 1;",
        ),
        (
            "node_modules/conditions/package.json",
            "{ \"exports\": { \"node\": \"./node.js\", \"browser\": { \"import\": \"./b.mjs\", \
             \"require\": \"./b.cjs\" }, \"default\": \"./d.js\" } }",
        ),
        ("node_modules/conditions/b.mjs", "export {}"),
        (
            "node_modules/fields/package.json",
            "{ \"main\": \"m.js\", \"module\": \"e.js\" }",
        ),
        ("node_modules/fields/e.js", "import './more'; export {}"),
        ("node_modules/fields/more.js", "exports.a = 1"),
        (
            "node_modules/mapped/package.json",
            "{ \"main\": \"m.js\", \"browser\": { \"./m.js\": \"./w.js\", \"fs\": false } }",
        ),
        (
            "node_modules/mapped/w.js",
            "const fs = require('fs'); module.exports = fs",
        ),
        (
            "package.json",
            "{ \"imports\": { \"#internal\": { \"faasw\": \"./own.js\", \"default\": \"./no.js\" } \
             } }",
        ),
        ("own.js", "export {}"),
    ]);
    let bundle = project.bundle("app.js");
    let target = |specifier| bundle.target("app.js", specifier);
    assert_eq!(target("conditions"), "node_modules/conditions/b.mjs");
    assert_eq!(target("fields"), "node_modules/fields/e.js");
    assert_eq!(target("mapped"), "node_modules/mapped/w.js");
    assert_eq!(target("#internal"), "own.js");
    assert_eq!(bundle.kind("node_modules/fields/more.js"), "cjs");
    let excluded = bundle.target("node_modules/mapped/w.js", "fs");
    assert_eq!(excluded, ".faasw/empty.cjs");
    assert_eq!(bundle.kind(&excluded), "cjs");
}

#[test]
fn modules_of_the_engine_stay_imports() {
    let project = Project::new(&[(
        "app.ts",
        "import { env } from 'faasw';\nimport { Buffer } from 'buffer';\n\
         import path from 'node:path';\nimport fs from 'node:net';\n\
         export default [env, Buffer, path, fs];",
    )]);
    let bundle = project.bundle("app.ts");
    for (specifier, target) in [
        ("faasw", "faasw"),
        ("buffer", "node:buffer"),
        ("node:path", "node:path"),
        ("node:net", "node:net"),
    ] {
        assert_eq!(bundle.target("app.ts", specifier), target);
    }
    assert_eq!(bundle.0.warnings.len(), 1);
    assert!(bundle.0.warnings[0].starts_with("app.ts:4: the engine has no node:net"));
}

#[test]
fn commonjs_and_modules_are_told_apart_as_in_node() {
    let project = Project::new(&[
        ("package.json", "{}"),
        (
            "app.js",
            "import './a.cjs'; import './b.mjs'; import './c.js'; import './d.js';\n\
             import './e.js'; import './module/f.js'; import './g.js'; import './h.ts';",
        ),
        ("a.cjs", "exports.a = 1; return;"),
        ("b.mjs", "globalThis.b = 1"),
        ("c.js", "module.exports = 1"),
        ("d.js", "globalThis.d = 1"),
        ("e.js", "globalThis.e = await 1"),
        ("module/package.json", "{ \"type\": \"module\" }"),
        ("module/f.js", "globalThis.f = typeof module"),
        (
            "g.js",
            "const g = require('./c.js'); if (g) return; function f(require) { require('x') }",
        ),
        ("h.ts", "import c = require('./c.js');\nexport = { c };"),
    ]);
    let bundle = project.bundle("app.js");
    for (path, kind) in [
        ("app.js", "esm"),
        ("a.cjs", "cjs"),
        ("b.mjs", "esm"),
        ("c.js", "cjs"),
        ("d.js", "esm"),
        ("e.js", "esm"),
        ("module/f.js", "esm"),
        ("g.js", "cjs"),
        ("h.ts", "cjs"),
    ] {
        assert_eq!(bundle.kind(path), kind, "{path}");
    }
    assert_eq!(bundle.target("h.ts", "./c.js"), "c.js");
    assert_eq!(bundle.target("g.js", "x"), "");
}

#[test]
fn builds_for_development_are_left_out() {
    let project = Project::with_packages(&[
        ("package.json", "{}"),
        (
            "app.jsx",
            "import { renderToString } from 'react-dom/server';\n\
             export default { fetch: () => new Response(renderToString(<p>hi</p>)) };",
        ),
    ]);
    let bundle = project.bundle("app.jsx");
    let server = bundle.target("app.jsx", "react-dom/server");
    assert_eq!(server, "node_modules/react-dom/server.edge.js");
    assert!(bundle.has("node_modules/react/cjs/react.production.js"));
    let index = bundle.text("node_modules/react/index.js");
    assert!(
        index.contains("\"production\"         === 'production'"),
        "{index}"
    );
    assert!(
        bundle
            .paths()
            .iter()
            .all(|path| !path.contains("development"))
    );
}

#[test]
fn real_packages_resolve_completely() {
    for (code, modules) in [
        (
            "import { Hono } from 'hono'; import { cors } from 'hono/cors';\n\
             export default [Hono, cors]",
            10,
        ),
        (
            "import { AutoRouter } from 'itty-router'; export default AutoRouter",
            1,
        ),
        ("import { z } from 'zod'; export default z", 30),
        (
            "import { SignJWT, jwtVerify } from 'jose'; export default [SignJWT, jwtVerify]",
            30,
        ),
        ("import Ajv from 'ajv'; export default Ajv", 50),
    ] {
        let project = Project::with_packages(&[("app.ts", code), ("package.json", "{}")]);
        let bundle = project.bundle("app.ts");
        assert_eq!(bundle.0.warnings, [""; 0], "{code}");
        let table: serde_json::Value =
            serde_json::from_str(bundle.text(".faasw/modules.json")).unwrap();
        let table = table["modules"].as_object().unwrap();
        assert!(table.len() > modules, "{code}: {}", table.len());
        // Each target is in the bundle.
        for (path, module) in table {
            for target in module["imports"].as_object().into_iter().flatten() {
                let target = target.1.as_str().unwrap();
                assert!(table.contains_key(target), "{path}: {target}");
            }
        }
    }
}

#[test]
fn packages_outside_of_the_project_get_paths_within() {
    let project = Project::new(&[
        ("package.json", "{}"),
        (
            "app.ts",
            "import { a } from 'linked';\nimport { b } from 'hoisted';\nexport default a + b;",
        ),
    ]);
    let around = project.around();
    for (path, content) in [
        (
            "node_modules/hoisted/package.json",
            "{ \"main\": \"./i.js\" }",
        ),
        ("node_modules/hoisted/i.js", "exports.b = 1"),
        (
            "libs/linked/package.json",
            "{ \"exports\": \"./src/index.ts\" }",
        ),
        ("libs/linked/src/index.ts", "export * from './a';"),
        ("libs/linked/src/a.ts", "export const a: number = 1;"),
    ] {
        let path = around.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let packages = project.root().join("node_modules");
    std::fs::create_dir(&packages).unwrap();
    std::os::unix::fs::symlink("../../libs/linked", packages.join("linked")).unwrap();
    let bundle = project.bundle("app.ts");
    assert_eq!(
        bundle.target("app.ts", "linked"),
        "_external/linked/src/index.ts"
    );
    assert_eq!(
        bundle.target("app.ts", "hoisted"),
        "node_modules/hoisted/i.js"
    );
    let target = bundle.target("_external/linked/src/index.ts", "./a");
    assert_eq!(target, "_external/linked/src/a.ts");
}

#[test]
fn plain_scripts_are_recognised() {
    let project = Project::new(&[
        ("plain.js", "import './b.js'; export default 1"),
        ("b.js", "export {}"),
        ("bare.js", "import 'node:path'; export default 1"),
        ("common.js", "module.exports = 1"),
    ]);
    assert!(project.bundle("plain.js").0.is_plain);
    assert!(!project.bundle("bare.js").0.is_plain);
    assert!(!project.bundle("common.js").0.is_plain);
}

#[test]
fn the_inputs_are_the_files_that_decide() {
    let project = Project::new(&[
        ("package.json", "{}"),
        ("src/app.ts", "import './a'; export default 1"),
        ("src/a.ts", "import './missing';"),
        ("tsconfig.json", "{}"),
    ]);
    let preparation = project.prepare("src/app.ts");
    assert!(preparation.result.is_err());
    for path in [
        "package.json",
        "tsconfig.json",
        "src",
        "src/app.ts",
        "src/a.ts",
    ] {
        assert!(
            preparation.inputs.contains(&project.root().join(path)),
            "{path}"
        );
    }
}

/// A project of 50 modules and 5 packages takes little time. The limit is wide, because tests run
/// on busy machines and with little optimisation; the figure is in the output.
#[test]
fn a_project_of_fifty_modules_is_quick() {
    let project = Project::with_packages(&[("package.json", "{ \"type\": \"module\" }")]);
    let mut imports = String::from(
        "import { Hono } from 'hono';\nimport { AutoRouter } from 'itty-router';\n\
         import { z } from 'zod';\nimport { jwtVerify } from 'jose';\nimport Ajv from 'ajv';\n\
         console.log(Hono, AutoRouter, z, jwtVerify, Ajv);\n",
    );
    for number in 0..49 {
        let functions: String = (0..20)
            .map(|at| {
                format!(
                    "export function part{at}(input: {{ a: number; b?: string }}): string {{\n  \
                     const {{ a, b }} = input;\n  return `${{a}} ${{b ?? {at}}}`;\n}}\n"
                )
            })
            .collect();
        project.write(&format!("src/m{number}.ts"), &functions);
        imports.push_str(&format!(
            "import {{ part0 as p{number} }} from './m{number}';\n\
             console.log(p{number}({{ a: 1 }}));\n"
        ));
    }
    project.write("src/app.ts", &imports);
    let began = std::time::Instant::now();
    let bundle = project.bundle("src/app.ts");
    let took = began.elapsed();
    let modules = bundle
        .paths()
        .iter()
        .filter(|path| !path.ends_with(".map"))
        .count();
    println!("{modules} files in {took:?}");
    assert!(took.as_secs() < 5, "{took:?}");
    assert_eq!(
        bundle
            .paths()
            .iter()
            .filter(|path| path.starts_with("src/m"))
            .count(),
        98
    );
}
