//! Scripts from the command line: engines, folders, projects.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use crate::{
    e2e::{
        self,
        process::{Running, faasw, get},
    },
    good, run,
};

pub fn scripts_run_by_engines_that_the_command_adds() {
    let data = tempfile::tempdir().unwrap();
    let data_dir = data.path().join("state");
    let folder = data.path().join("my shop");
    std::fs::create_dir_all(folder.join("lib")).unwrap();
    let handler = "local f = require 'lib.f' return function() return f end";
    std::fs::write(folder.join("handler.lua"), handler).unwrap();
    std::fs::write(folder.join("lib/f.lua"), "return 'of a folder'").unwrap();
    let script = data.path().join("hello.lua");
    std::fs::write(&script, "return function() return 'of a file' end").unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (folder, script) = (path(&folder), path(&script));
    let state = path(&data_dir);
    let node = Running::start(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &state]);
    node.said("ready on ");
    let early = run(&["deploy", &script], &data_dir);
    let said = String::from_utf8_lossy(&early.stderr);
    assert!(
        !early.status.success() && said.contains("engine add"),
        "{said}"
    );
    let add = [
        "engine",
        "add",
        "tests/fixtures/lua-engine.wasm",
        "--name",
        "lua",
        "--extension",
        ".lua",
    ];
    assert_eq!(
        good(run(&add, &data_dir)),
        "lua: runs scripts that end with .lua\n"
    );
    let deployed = good(run(&["deploy", &script], &data_dir));
    assert!(
        deployed.starts_with("hello: version 1, run by lua; seed made in "),
        "{deployed}"
    );
    good(run(&["deploy", &folder], &data_dir));
    assert_eq!(good(run(&["invoke", "hello"], &data_dir)), "of a file");
    assert_eq!(good(run(&["invoke", "my-shop"], &data_dir)), "of a folder");
    let engines = good(run(&["engine", "ls"], &data_dir));
    let line = engines
        .lines()
        .find(|line| line.starts_with("lua "))
        .unwrap();
    let line: Vec<&str> = line.split_whitespace().collect();
    assert!(engines.contains("comes with faasw"), "{engines}");
    assert_eq!(
        (line[0], line[1], line[4], line[5]),
        ("lua", ".lua", "2", "yes")
    );
    assert!(good(run(&["ls"], &data_dir)).contains("script of lua"));
    let inspected = good(run(&["inspect", "hello"], &data_dir));
    assert!(
        inspected.contains("run by lua with the digest "),
        "{inspected}"
    );
    let tree = good(run(&["tree"], &data_dir));
    assert!(
        tree.contains("\n   └─ lua ") && tree.contains("\n      ├─ "),
        "{tree}"
    );
    // Editors often leave scripts that do not run.
    std::fs::write(&script, "return function( return 1 end").unwrap();
    let bad = run(&["deploy", &script], &data_dir);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(said.contains("hello.lua:1: <name> or"), "{said}");
    assert_eq!(good(run(&["invoke", "hello"], &data_dir)), "of a file");
    good(run(&["engine", "warm", "lua"], &data_dir));
    good(run(&["engine", "rm", "lua"], &data_dir));
    assert_eq!(
        run(&["engine", "rm", "lua"], &data_dir).status.code(),
        Some(1)
    );
    assert_eq!(good(run(&["invoke", "hello"], &data_dir)), "of a file");
    assert_eq!(node.stop("TERM"), Some(0));
}

pub fn a_new_folder_is_a_function() {
    let folder = tempfile::tempdir().unwrap();
    let new = |words: &[&str]| {
        let mut command = faasw(&[&["new"][..], words].concat());
        command.current_dir(folder.path()).output().unwrap()
    };
    let made = new(&["js", "greeter"]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(
        String::from_utf8(made.stderr).unwrap(),
        "greeter: created; continue with greeter/README.md\n"
    );
    let again = new(&["rust", "greeter"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let kept = std::fs::read_to_string(folder.path().join("greeter/README.md")).unwrap();
    assert!(kept.starts_with("# greeter\n"), "{kept}");
    for refused in [["js", "../up"], ["js", "A B"], ["cobol", "x"]] {
        assert_eq!(new(&refused).status.code(), Some(2), "{refused:?}");
    }
    // The Python template's content is tested with the other scripts in Python, because their
    // engine takes long to compile.
    good(new(&["python", "snake"]));
    assert!(folder.path().join("snake/handler.py").exists());
    good(new(&["rust", "crab"]));
    let manifest = std::fs::read_to_string(folder.path().join("crab/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"crab\""), "{manifest}");
    let script = folder.path().join("greeter/request.sh");
    let mode = std::fs::metadata(script).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);

    let data = tempfile::tempdir().unwrap();
    let state = data.path().to_str().unwrap();
    let node = Running::start(&["serve", "--listen", "127.0.0.1:0", "--data-dir", state]);
    node.said("ready on ");
    let made = folder.path().join("greeter");
    good(run(&["deploy", made.to_str().unwrap()], data.path()));
    let ask = |path: &str| good(run(&["invoke", "greeter", "--path", path], data.path()));
    assert_eq!(ask("/?name=world"), "Hello, world!\n");
    assert_eq!(ask("/?name=%C3%BC&lang=de"), "Hallo, ü!\n");
}

pub fn up_runs_a_folder_and_watches_it() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("shop");
    std::fs::create_dir(&folder).unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).unwrap();
    write(
        "main.lua",
        "local f = require 'f' return function() return f end",
    );
    write("f.lua", "return 'one'");
    let mut up = Running::start(&[
        "up",
        folder.to_str().unwrap(),
        "--engine",
        ".lua=tests/fixtures/lua-engine.wasm",
        "--watch",
        "--listen",
        "127.0.0.1:0",
    ]);
    let line = up.line();
    let address = line
        .strip_prefix("  curl http://")
        .and_then(|rest| rest.strip_suffix("/shop/\n"));
    let address = address.unwrap().parse().unwrap();
    assert_eq!(get(address, "/shop/").body, "one");
    up.said("watching for changes");
    write("f.lua", "return 'two'");
    up.said("shop: redeployed");
    assert_eq!(get(address, "/shop/").body, "two");
    assert_eq!(up.stop("TERM"), Some(0));
}

/// Runs the first script of README.md. The program reports that the script's engine is
/// compiled first.
pub fn up_runs_the_readmes_first_example() {
    let readme = String::from_utf8(e2e::file("README.md")).unwrap();
    let (_, script) = readme.split_once("```js\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    assert_eq!(script.lines().count(), 3, "{script}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hello.js");
    std::fs::write(&file, script).unwrap();
    let mut up = Running::start(&["up", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let line = up.line();
    let address = line
        .strip_prefix("  curl http://")
        .and_then(|rest| rest.strip_suffix("/hello/\n"));
    let address = address
        .unwrap_or_else(|| panic!("{line:?} {}", up.stderr()))
        .parse()
        .unwrap();
    let answer = get(address, "/hello/").body;
    assert!(answer.starts_with("Hello from http://"), "{answer}");
    up.said("compiling the language engine js, 4");
    up.said("hello: making the seed…");
    assert_eq!(up.stop("TERM"), Some(0));
}
