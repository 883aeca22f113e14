//! TypeScript, JSX and packages of npm, from the command line to the answer; and the packages of a
//! `requirements.txt`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
    sync::LazyLock,
    time::Instant,
};

use common::time_limit;
use e2e::{
    BENCH, bundle,
    data_dir::TestDataDir,
    process::{Running, faasw, get},
};
use faasw::{DeployError, FunctionOptions};

/// The archive of packages, unpacked.
static PACKAGES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let archive = e2e::file("host/scripts/tests/fixtures/packages.tar.zst");
    let mut unpacked = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&archive[..]).unwrap();
    decoder.read_to_end(&mut unpacked).unwrap();
    unpacked
});

/// A node that runs as a program of its own, and a folder for projects.
struct Scene {
    data: TestDataDir,
    node: Running,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let data = TestDataDir::new();
        let mut node = data.serve(&[]);
        node.address();
        Self {
            data,
            node,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = faasw(words);
        command
            .env("FAASW_DATA_DIR", self.data.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .current_dir(self.folder.path());
        command.output().unwrap()
    }

    /// Deploys a path and returns what was printed to standard error.
    fn deploy(&self, words: &[&str]) -> String {
        let output = self.run(&[&["deploy"], words].concat());
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(&[&["deploy"], words].concat());
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn ask(&self, name: &str, path: &str) -> String {
        let output = self.run(&["invoke", name, "--path", path]);
        assert!(output.status.success(), "{name}{path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn unpack_packages(folder: &Path) {
    tar::Archive::new(&PACKAGES[..]).unpack(folder).unwrap();
}

fn a_file_of_typescript_runs_and_its_errors_name_its_lines() {
    let scene = Scene::new();
    scene.write(
        "app.ts",
        "import { greet, type Greeting } from './lib/greet.js';\n\
         enum Kind { Polite = 'polite' }\n\
         interface Unused {\n  a: string;\n}\n\
         export default {\n  fetch(request: Request): Response {\n    \
         const greeting: Greeting = { kind: Kind.Polite };\n    \
         if (request.url.endsWith('/fail')) throw new Error('as wanted');\n    \
         return new Response(greet(greeting));\n  },\n};\n",
    );
    scene.write(
        "lib/greet.ts",
        "export interface Greeting { kind: string }\n\
         export const greet = ({ kind }: Greeting): string => `a ${kind} hello`;\n",
    );
    scene.deploy(&["app.ts"]);
    assert_eq!(scene.ask("app", "/"), "a polite hello");
    let failed = scene.run(&["invoke", "app", "--path", "/fail"]);
    assert!(!failed.status.success());
    let log = String::from_utf8(scene.run(&["logs", "app"]).stdout).unwrap();
    assert!(
        log.contains("as wanted") && log.contains("app.ts:9"),
        "{log}"
    );
    // The engine and not the preparation finds this.
    scene.write(
        "broken.ts",
        "\n\nconst a: number = missing.b;\nexport default a;\n",
    );
    let refused = scene.refused(&["broken.ts"]);
    assert!(refused.contains("broken.ts:3"), "{refused}");
}

fn packages_run_without_a_bundler() {
    let scene = Scene::new();
    scene.write("shop/package.json", "{ \"type\": \"module\" }");
    unpack_packages(&scene.folder.path().join("shop"));
    for (name, code, answer) in [
        (
            "hono",
            "import { Hono } from 'hono';\nimport { cors } from 'hono/cors';\n\
             import { etag } from 'hono/etag';\nconst app = new Hono();\n\
             app.use(cors(), etag());\napp.get('*', (c) => c.json({ path: c.req.path }));\n\
             export default app;",
            "{\"path\":\"/x\"}",
        ),
        (
            "itty",
            "import { AutoRouter } from 'itty-router';\n\
             const router = AutoRouter();\nrouter.get('*', ({ method }) => method);\n\
             export default router;",
            "\"GET\"",
        ),
        (
            "zod",
            "import { z } from 'zod';\nconst shape = z.object({ a: z.number().min(2) });\n\
             export default { fetch: () => new Response(JSON.stringify(\n\
             shape.safeParse({ a: 1 }).success)) };",
            "false",
        ),
        (
            "jose",
            "import { SignJWT, jwtVerify } from 'jose';\n\
             const key = new TextEncoder().encode('a secret of thirty-two bytes, yes');\n\
             export default { async fetch() {\n\
             const token = await new SignJWT({ a: 1 })\n\
             .setProtectedHeader({ alg: 'HS256' }).sign(key);\n\
             const { payload } = await jwtVerify(token, key);\n\
             return new Response(String(payload.a)); } };",
            "1",
        ),
        (
            "react",
            "import { renderToString } from 'react-dom/server';\n\
             const Page = ({ name }: { name: string }) => <p title=\"t\">hi {name}</p>;\n\
             export default { fetch: () => new Response(renderToString(<Page name=\"a\" />)) };",
            "<p title=\"t\">hi <!-- -->a</p>",
        ),
    ] {
        let extension = if name == "react" { "tsx" } else { "ts" };
        let entry = format!("{name}.{extension}");
        scene.write(&format!("shop/{entry}"), code);
        scene.deploy(&["shop", "--entry", &entry, "--name", name]);
        assert_eq!(scene.ask(name, "/x"), answer, "{name}");
    }
    // The validator is compiled at the top level, because it is code from text.
    scene.write(
        "shop/ajv.ts",
        "import Ajv from 'ajv';\n\
         const validate = new Ajv().compile({ type: 'object', required: ['a'] });\n\
         export default { fetch: () => new Response(`${validate({})} ${validate({ a: 1 })}`) };",
    );
    scene.deploy(&["shop", "--entry", "ajv.ts", "--name", "ajv"]);
    assert_eq!(scene.ask("ajv", "/"), "false true");
}

fn up_prepares_a_changed_module_again() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("package.json", "{}");
    write(
        "app.ts",
        "import { text } from './lib/text';\nexport default () => new Response(text);",
    );
    write("lib/text.ts", "export const text: string = 'one';");
    let path = folder.path().join("app.ts");
    let words = [
        "up",
        path.to_str().unwrap(),
        "--watch",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ];
    let mut up = Running::start(&words);
    let address = up.address();
    assert_eq!(get(address, "/app/").body, "one");
    up.said("watching for changes");
    // A module that the command line does not name.
    let began = Instant::now();
    write("lib/text.ts", "export const text: string = 'two';");
    up.line();
    println!("from the save to the deployment: {:?}", began.elapsed());
    assert_eq!(get(address, "/app/").body, "two");
    // An error keeps the old version, until the missing file appears.
    write("lib/text.ts", "export { text } from './more';");
    up.said("lib/text.ts:1: the import of \"./more\" cannot be resolved");
    assert_eq!(get(address, "/app/").body, "two");
    write("lib/more.ts", "export const text = 'three';");
    up.line();
    assert_eq!(get(address, "/app/").body, "three");
    write("lib/more.ts", "export const text = ;");
    up.said("lib/more.ts:1:21: ");
    write("lib/more.ts", "export const text = 'four';");
    up.line();
    assert_eq!(get(address, "/app/").body, "four");
    assert_eq!(up.stop("TERM"), Some(0));
}

fn a_new_project_of_typescript_runs() {
    let scene = Scene::new();
    let made = scene.run(&["new", "ts", "typed"]);
    assert!(made.status.success(), "{made:?}");
    scene.deploy(&["typed"]);
    assert_eq!(
        scene.ask("typed", "/?name=world&lang=de"),
        "Hallo, world!\n"
    );
}

/// The packages of the archive have the versions of the example's lock file.
fn the_example_project_runs() {
    let scene = Scene::new();
    for path in [
        "package.json",
        "tsconfig.json",
        "src/index.ts",
        "src/bookmarks.ts",
        "src/draft.ts",
        "src/page.tsx",
    ] {
        let text = e2e::file(&format!("examples/typescript/{path}"));
        scene.write(
            &format!("bookmarks/{path}"),
            std::str::from_utf8(&text).unwrap(),
        );
    }
    unpack_packages(&scene.folder.path().join("bookmarks"));
    scene.deploy(&["bookmarks"]);
    let send = |words: &[&str]| {
        let output = scene.run(&[&["invoke", "bookmarks", "--verbose"], words].concat());
        let head = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), head)
    };
    let (saved, head) = send(&[
        "--path",
        "/bookmarks",
        "-H",
        "content-type: application/json",
        "-d",
        r#"{"url":"https://a.example","title":" <A> "}"#,
    ]);
    let first = r#"{"id":1,"url":"https://a.example","title":"<A>"}"#;
    assert_eq!(saved, first, "{head}");
    assert!(head.contains("201"), "{head}");
    let (_, head) = send(&[
        "--path",
        "/bookmarks",
        "-H",
        "content-type: application/x-www-form-urlencoded",
        "-d",
        "url=https://b.example&title=B",
    ]);
    assert!(
        head.contains("303") && head.contains("location: /bookmarks/"),
        "{head}"
    );
    let (refused, head) = send(&[
        "--path",
        "/bookmarks",
        "-H",
        "content-type: application/json",
        "-d",
        r#"{"url":"javascript:1"}"#,
    ]);
    assert!(
        head.contains("422") && refused.contains(r#""path":"title""#),
        "{head} {refused}"
    );
    let page = scene.ask("bookmarks", "/");
    for part in [
        "action=\"/bookmarks/bookmarks\"",
        "<a href=\"https://a.example\">&lt;A&gt;</a>",
        "<a href=\"https://b.example\">B</a>",
    ] {
        assert!(page.contains(part), "{page}");
    }
    let deletion = ["--method", "DELETE", "--path", "/bookmarks/1"];
    let (_, head) = send(&deletion);
    assert!(head.contains("204"), "{head}");
    let (_, head) = send(&deletion);
    assert!(head.contains("404"), "{head}");
    let second = r#"[{"id":2,"url":"https://b.example","title":"B"}]"#;
    assert_eq!(scene.ask("bookmarks", "/bookmarks"), second);
}

fn hostile_sources_end_only_the_preparation() {
    let scene = Scene::new();
    scene.write(
        "good.ts",
        "export default () => new Response('good' as string);",
    );
    scene.deploy(&["good.ts"]);
    let deep = |open: &str| format!("export default {}1;", open.repeat(4 << 20));
    for (name, code) in [
        ("round.ts", deep("(")),
        ("square.ts", deep("[")),
        ("not.ts", deep("!")),
    ] {
        scene.write(name, &code);
        let refused = scene.refused(&[name]);
        assert!(
            refused.contains(name),
            "{}",
            refused.chars().take(500).collect::<String>()
        );
    }
    scene.write(
        "outside.ts",
        "import text from '/etc/passwd';\nexport default text;",
    );
    let refused = scene.refused(&["outside.ts"]);
    assert!(refused.contains("outside.ts:1: the import of"), "{refused}");
    assert_eq!(scene.ask("good", "/"), "good");
    assert_eq!(scene.node.stop("TERM"), Some(0));
}

fn a_node_rejects_what_was_not_prepared() {
    let upload = bundle(&[("handler.ts", "export default (a: number) => a")]);
    let deploying = BENCH.node.deploy("raw", upload, FunctionOptions::default());
    let error = BENCH.block_on(deploying).unwrap_err();
    assert!(matches!(error, DeployError::Unprepared { .. }), "{error}");
    assert!(error.to_string().contains("faasw deploy"), "{error}");
}

/// Measures a deployment of 50 modules and 5 packages. The limit is wide, because tests run without
/// optimisation; the figure is in the output.
fn a_project_of_fifty_modules_deploys_quickly() {
    let scene = Scene::new();
    scene.write("shop/package.json", "{ \"type\": \"module\" }");
    unpack_packages(&scene.folder.path().join("shop"));
    let mut code = String::from(
        "import { Hono } from 'hono';\nimport { AutoRouter } from 'itty-router';\n\
         import { z } from 'zod';\nimport { jwtVerify } from 'jose';\nimport Ajv from 'ajv';\n\
         let sum = [Hono, AutoRouter, z, jwtVerify, Ajv].length;\n",
    );
    for number in 0..49 {
        scene.write(
            &format!("shop/src/m{number}.ts"),
            "export interface Input { a: number }\n\
             export function add(input: Input): number { return input.a + 1 }\n",
        );
        code.push_str(&format!(
            "import {{ add as add{number} }} from './m{number}.js';\n\
             sum += add{number}({{ a: 0 }});\n"
        ));
    }
    code.push_str("export default { fetch: () => new Response(String(sum)) };\n");
    scene.write("shop/src/index.ts", &code);
    scene.deploy(&["shop"]);
    assert_eq!(scene.ask("shop", "/"), "54");
    scene.write(
        "shop/src/m0.ts",
        "export const add = ({ a }: { a: number }) => a + 2;",
    );
    let began = Instant::now();
    scene.deploy(&["shop"]);
    let took = began.elapsed();
    println!("a deployment of 50 modules and 5 packages: {took:?}");
    assert_eq!(scene.ask("shop", "/"), "55");
    assert!(took < time_limit(5), "{took:?}");
}

/// pip is replaced by a program that installs one package, so the test needs no network.
fn requirements_are_installed_once() {
    let scene = Scene::new();
    let python = scene.write(
        "bin/python3",
        "#!/bin/sh\necho run >> \"$(dirname \"$0\")/runs\"\n\
         while [ $# -gt 0 ]; do\n  [ \"$1\" = --target ] && target=$2\n  shift\ndone\n\
         mkdir -p \"$target/helped/__pycache__\"\n\
         echo 'def word(): return \"helped\"' > \"$target/helped/__init__.py\"\n\
         echo native > \"$target/helped/_speed.cpython-314-x86_64-linux-gnu.so\"\n",
    );
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        python.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    scene.write(
        "web.py",
        "import helped\ndef handler(request):\n    return helped.word()\n",
    );
    scene.write("requirements.txt", "helped==1\n");
    for _ in 0..2 {
        let mut command = faasw(&["deploy", "web.py"]);
        command
            .env("FAASW_DATA_DIR", scene.data.folder.path())
            .env("XDG_CACHE_HOME", scene.folder.path().join("cache"))
            .env("PATH", &path)
            .current_dir(scene.folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("native code was left out of helped"),
            "{said}"
        );
        assert_eq!(scene.ask("web", "/"), "helped");
    }
    let runs = fs::read_to_string(scene.folder.path().join("bin/runs")).unwrap();
    assert_eq!(runs.lines().count(), 1);
}

fn main() {
    e2e::main(tests![
        a_file_of_typescript_runs_and_its_errors_name_its_lines,
        packages_run_without_a_bundler,
        up_prepares_a_changed_module_again,
        a_new_project_of_typescript_runs,
        the_example_project_runs,
        hostile_sources_end_only_the_preparation,
        a_node_rejects_what_was_not_prepared,
        a_project_of_fifty_modules_deploys_quickly,
        requirements_are_installed_once,
    ]);
}
