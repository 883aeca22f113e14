//! Files and arguments of functions in real microVMs: what functions read, what becomes of their
//! writes, to which version the files belong, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::fs;

use e2e::{
    BENCH, Bench,
    data_dir::{TestDataDir, share_images},
    limits, until,
};
use faasw::{
    DeployError, FunctionOptions, Node,
    files::{CONTENTS_MAX, ENTRIES_MAX, Files, Kind},
};

const PROBE: &str = "tests/fixtures/files-probe.wasm";
const COMPONENT: &str = "tests/fixtures/files-probe-p2.wasm";

/// Size of the large file: more than a mailbox's ring, and no multiple of the page size.
const LARGE: usize = 3 * (1 << 20) + 17;

fn files(greeting: &str) -> Files {
    let mut files = Files::default();
    files.add(Kind::File, "greeting.txt", greeting.as_bytes());
    files.add(Kind::File, "lib/deep/module", b"module");
    files.add(Kind::File, "lib/large", &vec![b'x'; LARGE]);
    files.add(Kind::Link, "hello", b"greeting.txt");
    files.add(Kind::Folder, "empty", b"");
    files
}

/// Returns an upload of a module with these files in front of it.
fn upload(module: &str, greeting: &str) -> Vec<u8> {
    files(greeting).before(&e2e::file(module))
}

fn options() -> FunctionOptions {
    FunctionOptions::default()
}

#[track_caller]
fn assert_answer(bench: &Bench, name: &str, all: &[(&str, &str)]) {
    for (path, expected) in all {
        assert_eq!(bench.text(&format!("/{name}/{path}")), *expected, "{path}");
    }
}

const WHATEVER_IT_WRITES: [(&str, &str); 12] = [
    ("read/greeting.txt", "hello"),
    ("read/hello", "hello"),
    ("read/lib/deep/module", "module"),
    ("list/", "empty/ greeting.txt hello@ lib/ tmp/"),
    ("write/greeting.txt?other", "hello -> other"),
    ("read/greeting.txt", "hello"),
    ("write/empty/new?text", "NotFound -> text"),
    ("read/empty/new", "NotFound"),
    ("append/hello?-more", "hello-more"),
    ("change/made?x", "x three"),
    ("remove/lib/deep/module", "removed"),
    ("read/lib/deep/module", "module"),
];

/// Instances are reset in between, so a request does not find what another one wrote.
fn a_command_reads_its_files_and_each_request_gets_them_unchanged() {
    let deployed = BENCH.deploy("command", &upload(PROBE, "hello"), options());
    assert!(deployed.function.frozen_after_init);
    let files = deployed.function.files.unwrap();
    assert_eq!((files.at.as_str(), files.entries), ("/", 7));
    assert_eq!(files.bytes, 5 + 6 + LARGE as u64);
    assert!(deployed.function.layer_bytes > files.bytes);
    for _ in 0..3 {
        assert_answer(&BENCH, "command", &WHATEVER_IT_WRITES);
    }
    let size = format!("{LARGE} {LARGE}");
    assert_answer(&BENCH, "command", &[("size/lib/large", &size)]);
    let tree = BENCH.node.tree();
    let seed = tree.iter().find(|seed| seed.name == "command").unwrap();
    assert!(seed.hits > 10, "{seed:?}");
}

fn a_component_reads_its_files_and_each_request_gets_them_unchanged() {
    let deployed = BENCH.deploy("component", &upload(COMPONENT, "hello"), options());
    let imports = &deployed.function.imports;
    let by = "wasi:filesystem/types@";
    assert!(
        imports.iter().any(|import| import.starts_with(by)),
        "{imports:?}"
    );
    for _ in 0..2 {
        assert_answer(&BENCH, "component", &WHATEVER_IT_WRITES);
    }
    let size = format!("{LARGE} {LARGE}");
    assert_answer(&BENCH, "component", &[("size/lib/large", &size)]);
}

fn no_path_leads_out_of_the_files() {
    BENCH.deploy(
        "within",
        &upload(PROBE, "hello"),
        options().files_at("/data"),
    );
    for (path, expected) in [
        ("read/data/greeting.txt", "hello"),
        ("list/data", "empty/ greeting.txt hello@ lib/"),
    ] {
        assert_eq!(BENCH.text(&format!("/within/{path}")), expected, "{path}");
    }
    for path in [
        "etc/passwd",
        "data/../etc/passwd",
        "data/lib/../../x",
        "proc/self/environ",
    ] {
        let read = BENCH.text(&format!("/within/read/{path}"));
        // The word depends on the function's library.
        assert!(
            [
                "NotFound",
                "PermissionDenied",
                "Uncategorized",
                "Unsupported"
            ]
            .contains(&read.as_str()),
            "{path}: {read}"
        );
    }
}

fn no_other_function_sees_the_files() {
    BENCH.deploy("one", &upload(PROBE, "one"), options());
    BENCH.deploy("two", &upload(PROBE, "two"), options());
    BENCH.deploy("none", &e2e::file(PROBE), options());
    for _ in 0..4 {
        assert_answer(
            &BENCH,
            "one",
            &[
                ("write/empty/x?1", "NotFound -> 1"),
                ("read/greeting.txt", "one"),
            ],
        );
        assert_answer(
            &BENCH,
            "two",
            &[("read/empty/x", "NotFound"), ("read/greeting.txt", "two")],
        );
        let without = BENCH.text("/none/read/greeting.txt");
        assert!(
            !without.contains("one") && !without.contains("two"),
            "{without}"
        );
    }
    let details = BENCH.block_on(BENCH.node.inspect("none")).unwrap();
    assert_eq!(details.function.files, None);
}

fn written_files_count_towards_the_memory_limit() {
    let small = options().memory(24 << 20);
    BENCH.deploy("small", &upload(PROBE, "hello"), small);
    for _ in 0..2 {
        let told = BENCH.text("/small/fill/empty/large");
        let (written, error) = told.split_once(' ').unwrap();
        let written: u32 = written.parse().unwrap();
        assert!((16..24).contains(&written), "{told}");
        assert_eq!(error, "StorageFull");
        assert_answer(&BENCH, "small", &[("read/greeting.txt", "hello")]);
    }
}

fn files_belong_to_the_version() {
    for greeting in ["first", "second"] {
        BENCH.deploy("versions", &upload(PROBE, greeting), options());
        assert_answer(&BENCH, "versions", &[("read/greeting.txt", greeting)]);
    }
    BENCH.deploy("versions", &e2e::file(PROBE), options());
    BENCH
        .block_on(BENCH.node.rollback("versions", Some(2)))
        .unwrap();
    assert_answer(&BENCH, "versions", &[("read/greeting.txt", "second")]);
}

/// The deployed version stays, with all its files.
fn invalid_files_are_rejected_without_losing_the_old_version() {
    BENCH.deploy("kept", &upload(PROBE, "kept"), options());
    let refused = |upload: Vec<u8>, options: FunctionOptions| {
        let refused = BENCH.block_on(BENCH.node.deploy("kept", upload, options));
        refused.unwrap_err()
    };
    let one = |kind: Kind, path: &str, content: &[u8]| {
        let mut files = Files::default();
        files.add(kind, path, content);
        files.before(&e2e::file(PROBE))
    };
    let mut many = Files::default();
    for number in 0..=ENTRIES_MAX {
        many.add(Kind::File, &number.to_string(), b"");
    }
    let large = vec![0; CONTENTS_MAX as usize + 1];
    let mut pipe = one(Kind::File, "pipe", b"");
    // The kind of the first entry, which follows the magic bytes, the length and the count.
    pipe[20] = 9;
    let mut cut = one(Kind::File, "cut", b"cut");
    cut.truncate(25);
    let mut inner = one(Kind::File, "cut", b"cut");
    // The length of the entry's content.
    inner[28] = 200;
    for (upload, told) in [
        (
            one(Kind::Link, "out", b"../../etc/passwd"),
            "the link \"out\" leads out",
        ),
        (
            one(Kind::Link, "out", b"/etc/passwd"),
            "the link \"out\" leads out",
        ),
        (one(Kind::File, "../x", b""), "\"../x\" is not a valid path"),
        (one(Kind::File, "/x", b""), "\"/x\" is not a valid path"),
        (one(Kind::File, "a\0b", b""), "is not a valid path"),
        (many.before(&e2e::file(PROBE)), "more than 20000"),
        (one(Kind::File, "large", &large), "more than 64 MiB"),
        (pipe, "has no meaning"),
        (cut, "ends before"),
        (inner, "ends before"),
    ] {
        let error = refused(upload, options());
        assert!(matches!(error, DeployError::Files(_)), "{error:?}");
        assert!(error.to_string().contains(told), "{told}: {error}");
    }
    let nowhere = refused(upload(PROBE, "x"), options().files_at("relative"));
    assert!(matches!(nowhere, DeployError::Options(_)), "{nowhere:?}");
    let missing = refused(e2e::file(PROBE), options().files_at("/data"));
    assert!(
        missing.to_string().contains("but it has no files"),
        "{missing}"
    );
    let script = refused(
        files("x").before(&e2e::bundle(&[("handler.js", "1")])),
        options().freeze_at("/greeting.txt"),
    );
    assert!(
        script.to_string().contains("a script has no freeze point"),
        "{script}"
    );
    let details = BENCH.block_on(BENCH.node.inspect("kept")).unwrap();
    assert_eq!(details.function.version, 1);
    assert_answer(&BENCH, "kept", &[("read/greeting.txt", "kept")]);
}

/// Files come from the image, or are made anew from what is stored. Their memory is counted.
fn they_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = |image_bytes| {
        let builder = Node::builder().data_dir(folder.path());
        Bench::start(builder.image_disk(image_bytes), limits())
    };
    let bench = start(1 << 30);
    let seeds = |bench: &Bench| -> u64 { bench.node.stats().memory["seeds"] };
    let before = seeds(&bench);
    bench.deploy("f", &upload(PROBE, "hello"), options().argument("kept"));
    assert!(seeds(&bench) - before > LARGE as u64);
    assert_answer(&bench, "f", &WHATEVER_IT_WRITES);
    bench.deploy("other", &upload(PROBE, "hello"), options());
    bench.block_on(bench.node.remove("other")).unwrap();
    bench.end();
    // The data directory is locked until the node is dropped.
    drop(bench);
    for image_bytes in [1 << 30, 0] {
        let bench = start(image_bytes);
        assert_answer(&bench, "f", &WHATEVER_IT_WRITES);
        assert_answer(&bench, "f", &[("arguments", "f|kept")]);
        let details = bench.block_on(bench.node.inspect("f")).unwrap();
        assert_eq!(details.function.files.unwrap().entries, 7);
        bench.end();
    }
}

fn temporary_files_are_gone_with_their_request() {
    for (name, module) in [("temporary", PROBE), ("temporary-p2", COMPONENT)] {
        BENCH.deploy(name, &e2e::file(module), options());
        for _ in 0..3 {
            let all = [
                ("write/tmp/new?text", "NotFound -> text"),
                ("change/tmp/made?x", "x three"),
                ("list/tmp", ""),
            ];
            assert_answer(&BENCH, name, &all);
        }
    }
}

/// Tells whether a file can be opened before a request, and another one for it.
const SCRIPT: &str = "
    local function there(path)
        return tostring(package.searchpath(os.getenv('FILES') .. path, '?') ~= nil)
    end
    local early = there('/first')
    return function(request) return early .. ' ' .. there(request.path) end";

/// The script's answer if its files are as deployed.
const THERE: &str = "true true";

fn script(second: &str) -> Vec<u8> {
    let mut files = Files::default();
    files.add(Kind::File, "first", b"1");
    files.add(Kind::File, &format!("lib/{second}"), b"2");
    files.add(Kind::File, "large", &vec![b'x'; LARGE]);
    files.before(&e2e::bundle(&[("handler.lua", SCRIPT)]))
}

fn scripts_have_files_that_move_with_their_versions() {
    let [there, other] = [(); 2].map(|()| TestDataDir::new());
    let bench = there.start();
    let add_engine = |bench: &Bench| {
        let engine = e2e::file("tests/fixtures/lua-engine.wasm");
        let extensions = vec![faasw::Extension::new(".lua").unwrap()];
        bench
            .block_on(bench.node.add_engine("lua", engine, extensions))
            .unwrap();
    };
    add_engine(&bench);
    let at = |path: &str| match path {
        "/" => options().env("FILES", ""),
        path => options().env("FILES", path).files_at(path),
    };
    for path in ["/", "/srv/data", "/tmp/data"] {
        let deployed = bench.deploy("f", &script("second"), at(path));
        let files = deployed.function.files.unwrap();
        assert_eq!((files.at.as_str(), files.entries), (path, 4));
        assert!(deployed.function.layer_bytes > files.bytes);
        for _ in 0..3 {
            assert_answer(&bench, "f", &[("lib/second", THERE)]);
        }
    }
    bench.deploy("f", &script("other"), at("/srv"));
    assert_answer(
        &bench,
        "f",
        &[("lib/other", THERE), ("lib/second", "true false")],
    );
    bench.block_on(bench.node.rollback("f", None)).unwrap();
    assert_answer(&bench, "f", &[("lib/second", THERE)]);
    until("there is an image", || {
        there.tree()["f"]["image_bytes"].is_u64()
    });
    let export = there.export("f");
    bench.end();
    drop(bench);
    let bench = there.start();
    assert_answer(&bench, "f", &[("lib/second", THERE)]);
    bench.end();
    fs::copy(there.path("image.key"), other.path("image.key")).unwrap();
    let bench = other.start();
    add_engine(&bench);
    other.json(&["image", "import", export.to_str().unwrap()]);
    assert_answer(&bench, "f", &[("lib/second", THERE)]);
    bench.end();
}

/// Files move with the image if it can be used, and otherwise as stored in the export.
fn files_are_exported_with_their_function() {
    let [there, by_image, by_files] = [(); 3].map(|()| TestDataDir::new());
    let bench = there.start();
    bench.deploy("f", &upload(PROBE, "hello"), options());
    until("there is an image", || {
        there.tree()["f"]["image_bytes"].is_u64()
    });
    let export = there.export("f");
    bench.end();
    share_images(&there, &by_image);
    fs::copy(there.path("image.key"), by_files.path("image.key")).unwrap();
    for (here, is_rebuilt) in [(by_image, false), (by_files, true)] {
        let bench = here.start();
        let imported = here.json(&["image", "import", export.to_str().unwrap()]);
        assert_eq!(imported["rebuilt"].is_string(), is_rebuilt, "{imported}");
        assert_answer(&bench, "f", &WHATEVER_IT_WRITES);
        bench.end();
    }
}

fn arguments_belong_to_the_version() {
    let many = options().argument("-d").argument("a=b c").argument("");
    for (name, module) in [("argued", PROBE), ("argued-p2", COMPONENT)] {
        let deployed = BENCH.deploy(name, &e2e::file(module), many.clone());
        assert_eq!(deployed.function.options.arguments(), ["-d", "a=b c", ""]);
        let expected = format!("{name}|-d|a=b c|");
        assert_answer(&BENCH, name, &[("arguments", &expected)]);
        BENCH.deploy(name, &e2e::file(module), options());
        assert_answer(&BENCH, name, &[("arguments", name)]);
    }
    let too_many = (0..65).fold(options(), |options, _| options.argument("x"));
    let too_long = options().argument("x".repeat(8193));
    for wrong in [too_many, too_long, options().argument("a\0")] {
        let module = e2e::file(PROBE);
        let refused = BENCH.block_on(BENCH.node.deploy("argued", module, wrong));
        assert!(
            matches!(refused, Err(DeployError::Options(_))),
            "{refused:?}"
        );
    }
}

fn the_example_serves_its_site() {
    let mut site = Files::default();
    for name in ["index.html", "style.css"] {
        let content = e2e::file(&format!("examples/static-site/public/{name}"));
        site.add(Kind::File, name, &content);
    }
    site.add(Kind::File, "a b.txt", b"spaced");
    let module = e2e::file("examples/static-site/site.wasm");
    BENCH.deploy("site", &site.before(&module), options());
    let index = BENCH.get("/site/");
    assert_eq!(index.status, 200);
    assert!(
        index.body.contains("<h1>A site in a function</h1>"),
        "{index:?}"
    );
    assert_eq!(
        index.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(BENCH.text("/site/a%20b.txt"), "spaced");
    assert_eq!(BENCH.get("/site/nothing").status, 404);
    assert_eq!(BENCH.get("/site/%2e%2e/x").status, 404);
    assert_eq!(BENCH.request("POST", "/site/", "", "x").status, 405);
}

fn main() {
    e2e::main(tests![
        a_command_reads_its_files_and_each_request_gets_them_unchanged,
        a_component_reads_its_files_and_each_request_gets_them_unchanged,
        no_path_leads_out_of_the_files,
        no_other_function_sees_the_files,
        written_files_count_towards_the_memory_limit,
        files_belong_to_the_version,
        invalid_files_are_rejected_without_losing_the_old_version,
        temporary_files_are_gone_with_their_request,
        scripts_have_files_that_move_with_their_versions,
        they_survive_a_restart,
        files_are_exported_with_their_function,
        arguments_belong_to_the_version,
        the_example_serves_its_site,
    ]);
}
