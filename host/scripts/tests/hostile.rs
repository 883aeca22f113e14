//! Projects that are wrong, broken or made to do harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::{fs, os::unix::fs::symlink};

use faasw_scripts::{Limits, PrepareError, prepare};
use support::{LIMITS, Project};

#[test]
fn errors_name_file_and_line_and_what_to_do() {
    for (code, expected) in [
        (
            "\n\nimport 'left-pad'",
            "\"left-pad\" cannot be resolved: no node_modules has left-pad: run npm install",
        ),
        ("import '@scope/x/y'", "npm install @scope/x "),
        (
            "import './nothing'",
            "app.ts:1: the import of \"./nothing\" cannot be resolved: there is no such file",
        ),
        ("import 'node:nothing'", "Node.js has no such module"),
        (
            "import 'https://example.test/a.js'",
            "modules of https: are not supported",
        ),
        (
            "import 'cloudflare:workers'",
            "modules of cloudflare: are not supported",
        ),
        ("let a = ;", "app.ts:1:9: "),
        ("let ä = 1;\n  let ö: = 2", "app.ts:2:10"),
        ("const a = 1; const a = 2;", "app.ts:1:"),
        ("import './\\0'", "NUL"),
    ] {
        let project = Project::new(&[("app.ts", code), ("package.json", "{}")]);
        let error = project.error("app.ts").to_string();
        assert!(error.contains(expected), "{code}: {error}");
    }
}

#[test]
fn optional_packages_are_no_errors() {
    let project = Project::new(&[
        ("package.json", "{}"),
        ("app.js", "import 'uses'; export default 1"),
        ("node_modules/uses/package.json", "{ \"main\": \"i.js\" }"),
        (
            "node_modules/uses/i.js",
            "try { require('optional') } catch {}\nexports.late = () => require('missing');",
        ),
    ]);
    let bundle = project.bundle("app.js");
    assert_eq!(bundle.0.warnings.len(), 1);
    assert!(
        bundle.0.warnings[0].contains("i.js:2: \"missing\""),
        "{:?}",
        bundle.0.warnings
    );
    assert_eq!(bundle.target("node_modules/uses/i.js", "optional"), "");
}

#[test]
fn nothing_outside_of_the_project_is_read() {
    let project = Project::new(&[
        ("package.json", "{}"),
        ("up.ts", "import x from '../secret.txt'; export default x"),
        ("root.ts", "import x from '/etc/hostname'; export default x"),
        ("link.ts", "import x from './link.txt'; export default x"),
        ("deep.ts", "import x from 'evil/link.txt'; export default x"),
        (
            "folder.ts",
            "import x from 'etc/hostname'; export default x",
        ),
        ("node_modules/evil/package.json", "{}"),
        ("paths.ts", "import x from 'hidden'; export default x"),
        (
            "tsconfig.json",
            "{ \"compilerOptions\": { \"paths\": { \"hidden\": [\"../secret.txt\"] } } }",
        ),
    ]);
    fs::write(project.around().join("secret.txt"), "secret").unwrap();
    symlink("../secret.txt", project.root().join("link.txt")).unwrap();
    let evil = project.root().join("node_modules/evil/link.txt");
    symlink("../../../secret.txt", evil).unwrap();
    symlink("/etc", project.root().join("node_modules/etc")).unwrap();
    for entry in ["up.ts", "link.ts", "deep.ts", "folder.ts", "paths.ts"] {
        let error = project.error(entry).to_string();
        assert!(error.contains("is outside of"), "{entry}: {error}");
    }
    assert!(project.prepare("root.ts").result.is_err());
}

#[test]
fn a_package_above_the_project_opens_nothing() {
    let project = Project::new(&[
        ("up.ts", "import x from '../secret.json'; export default x"),
        ("alias.ts", "import x from 'hidden'; export default x"),
        (
            "data.ts",
            "import x from 'hoisted/key.pem' with { type: 'text' }; export default x",
        ),
        (
            "dot.ts",
            "import x from 'hoisted/.env.json'; export default x",
        ),
        (
            "good.ts",
            "import x from 'hoisted/x.json'; export default x",
        ),
        (
            "tsconfig.json",
            "{ \"compilerOptions\": { \"paths\": { \"hidden\": [\"../secret.json\"] } } }",
        ),
    ]);
    let around = project.around();
    fs::create_dir_all(around.join("node_modules/hoisted")).unwrap();
    for path in [
        "package.json",
        "secret.json",
        "node_modules/hoisted/package.json",
        "node_modules/hoisted/key.pem",
        "node_modules/hoisted/.env.json",
        "node_modules/hoisted/x.json",
    ] {
        fs::write(around.join(path), "{}").unwrap();
    }
    for entry in ["up.ts", "alias.ts", "data.ts", "dot.ts"] {
        let error = project.error(entry).to_string();
        assert!(error.contains("is outside of"), "{entry}: {error}");
        // The folder of a file that is named alone.
        let alone = prepare(&project.root().join(entry), None, LIMITS, &mut |_| {}).result;
        let error = alone.unwrap_err().to_string();
        assert!(error.contains("is outside of"), "{entry}: {error}");
    }
    let bundle = project.bundle("good.ts");
    assert!(bundle.has("node_modules/hoisted/x.json"));
}

#[test]
fn links_in_circles_end() {
    let project = Project::new(&[
        ("package.json", "{}"),
        (
            "app.ts",
            "import './loop/a'; import './one'; export default 1",
        ),
        ("again.ts", "import './down/down/down/x'; export default 1"),
        ("x.ts", "export {}"),
    ]);
    symlink("loop", project.root().join("loop")).unwrap();
    symlink("two.ts", project.root().join("one.ts")).unwrap();
    symlink("one.ts", project.root().join("two.ts")).unwrap();
    symlink(".", project.root().join("down")).unwrap();
    assert!(matches!(
        project.error("app.ts"),
        PrepareError::Unresolved { .. }
    ));
    let bundle = project.bundle("again.ts");
    assert_eq!(bundle.target("again.ts", "./down/down/down/x"), "x.ts");
}

#[test]
fn absurd_packages_are_errors_and_no_crashes() {
    let deep = format!(
        "{{ \"exports\": {}\"./a.js\"{} }}",
        "{\"import\":".repeat(100),
        "}".repeat(100)
    );
    let nested = format!(
        "{{ \"exports\": {}{} }}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for package in [
        "{ \"exports\": \"../../../etc/hostname\" }",
        "{ \"exports\": \"/etc/hostname\" }",
        "{ \"exports\": { \".\": null } }",
        "{ \"exports\": { \".\": 5 } }",
        "{ \"exports\": { \".\": \"./a.js\", \"import\": \"./b.js\" } }",
        "{ \"exports\": [] }",
        "{ \"main\": \"../../secret.js\" }",
        "{ \"main\": {} }",
        "{ \"type\": 7, \"main\": \"none.js\" }",
        "not JSON",
        "",
        nested.as_str(),
    ] {
        let project = Project::new(&[
            ("package.json", "{}"),
            ("app.ts", "import x from 'odd'; export default x"),
            ("node_modules/odd/package.json", package),
            ("node_modules/odd/a.js", "export default 1"),
        ]);
        fs::write(project.around().join("secret.js"), "secret").unwrap();
        let short: String = package.chars().take(80).collect();
        let error = project.error("app.ts").to_string();
        assert!(error.starts_with("app.ts:1: "), "{short}: {error}");
        assert!(!error.contains("secret\""), "{short}: {error}");
    }
    let project = Project::new(&[
        ("package.json", "{}"),
        ("app.ts", "import x from 'deep'; export default x"),
        ("node_modules/deep/package.json", &deep),
        ("node_modules/deep/a.js", "export default 1"),
    ]);
    assert_eq!(
        project.bundle("app.ts").target("app.ts", "deep"),
        "node_modules/deep/a.js"
    );
}

#[test]
fn broken_settings_are_named() {
    let project = Project::new(&[
        ("app.ts", "export {}"),
        ("tsconfig.json", "{ \"compilerOptions\": 5"),
    ]);
    assert!(
        project
            .error("app.ts")
            .to_string()
            .contains("tsconfig.json")
    );
    let project = Project::new(&[
        ("app.ts", "export {}"),
        ("tsconfig.json", "{ \"extends\": \"./tsconfig.json\" }"),
    ]);
    assert!(project.error("app.ts").to_string().contains("circular"));
}

#[test]
fn limits_hold() {
    let project = Project::new(&[
        ("package.json", "{}"),
        ("app.ts", "import './a'; import './b'; export default 1"),
        ("a.ts", "export {}"),
        ("b.ts", "export {}"),
        ("big.ts", "import x from './big.txt'; export default x"),
        ("big.txt", &"x".repeat(2 << 20)),
    ]);
    let prepare = |entry: &str, limits| {
        prepare(&project.root().join(entry), None, limits, &mut |_| {}).result
    };
    let few = Limits { files: 6, ..LIMITS };
    assert!(matches!(
        prepare("app.ts", few),
        Err(PrepareError::TooManyFiles { limit: 6 })
    ));
    assert!(prepare("app.ts", Limits { files: 7, ..LIMITS }).is_ok());
    let small = Limits {
        bytes: 1 << 20,
        ..LIMITS
    };
    assert!(matches!(
        prepare("big.ts", small),
        Err(PrepareError::TooLarge { limit: 1 })
    ));
    assert!(prepare("big.ts", LIMITS).is_ok());
}

#[test]
fn odd_names_and_contents_are_rejected() {
    let project = Project::new(&[
        ("package.json", "{}"),
        ("name.ts", "import './a\\\\b.js'; export default 1"),
        ("a\\b.js", "export {}"),
        ("line.ts", "import './a\\nb.js'; export default 1"),
        ("a\nb.js", "export {}"),
        ("native.ts", "import './x.node'; export default 1"),
        ("x.node", ""),
        (
            "map.ts",
            "import map from './map.ts.map' with { type: 'json' }; export default map",
        ),
        ("map.ts.map", "{}"),
        ("pipe.ts", "import './queue.js'; export default 1"),
    ]);
    fs::write(project.root().join("bytes.ts"), [0xff, 0xfe]).unwrap();
    let pipe = project.root().join("queue.js");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for (entry, expected) in [
        ("name.ts", "characters"),
        ("line.ts", "characters"),
        ("native.ts", "native code"),
        ("map.ts", "source map"),
        ("bytes.ts", "not UTF-8"),
        ("pipe.ts", "queue.js"),
    ] {
        let error = project.error(entry).to_string();
        assert!(error.contains(expected), "{entry}: {error}");
    }
}
