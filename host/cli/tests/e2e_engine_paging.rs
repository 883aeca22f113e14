//! A language engine is read from disk while its scripts run. The part of the engine's code and
//! memory that a script uses is loaded first, and a guest that needs more waits for it. Damaged
//! files are made again.

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
    net::{Shutdown, SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use e2e::{Bench, bundle, limits, random, until};
use faasw::{FreezePolicy, FunctionOptions, Node, NodeBuilder, SeedInfo};
use faasw_pool::trial::PagerHold;
use fastrand::Rng;
use tempfile::TempDir;

/// Expressions that a request can choose from, with their results. Each makes the engine run other
/// code.
const PARTS: [(&str, &str); 9] = [
    (
        r#"JSON.stringify(JSON.parse('{"a":[1,2,{"b":null}]}'))"#,
        r#"{"a":[1,2,{"b":null}]}"#,
    ),
    (
        r#""a1b22c333".replace(/[a-z](\d+)/g, (_, digits) => digits.length)"#,
        "123",
    ),
    (r#"[5, 3, 9, 1].sort((a, b) => a - b).join("")"#, "1359"),
    ("(2n ** 100n).toString()", "1267650600228229401496703205376"),
    (
        "new Date(86400000).toISOString()",
        "1970-01-02T00:00:00.000Z",
    ),
    (
        r#"[...new Map([[1, 2], [3, 4]]).entries()].flat().join("")"#,
        "1234",
    ),
    ("Math.sin(0.5).toFixed(6)", "0.479426"),
    (r#"encodeURIComponent("\u00e4 b")"#, "%C3%A4%20b"),
    ("new Uint8Array([3, 1, 2]).sort().reverse().join()", "3,2,1"),
];

/// Expressions in Python, with their results.
const PYTHON: [(&str, &str); 6] = [
    ("'plain'", "plain"),
    (
        r#"json.dumps(json.loads('[1, {"a": null}]'))"#,
        r#"[1, {"a": null}]"#,
    ),
    (
        r#"re.sub(r"[a-z](\d+)", lambda found: str(len(found.group(1))), "a1b22c333")"#,
        "123",
    ),
    ("str(2**100)", "1267650600228229401496703205376"),
    (r#""%.6f" % math.sin(0.5)"#, "0.479426"),
    (r#"base64.b64encode(b"abc").decode()"#, "YWJj"),
];

/// The two scripts, with the part that is requested of each before its working set is known.
const SCRIPTS: [(&str, usize); 2] = [("first", 0), ("second", 3)];

/// Returns a script that evaluates any of the expressions.
fn script() -> Vec<u8> {
    let parts: Vec<String> = PARTS
        .iter()
        .map(|(part, _)| format!("() => {part}"))
        .collect();
    let text = format!(
        r#"const parts = [{}];
        let count = 0;
        const drawn = crypto.randomUUID();
        export default {{
          fetch(request) {{
            const query = new URL(request.url).searchParams;
            if (query.has("drawn")) return new Response(drawn);
            const asked = Number(query.get("part"));
            return new Response(`${{++count}} ${{parts[asked]()}}`);
          }},
        }};"#,
        parts.join(",")
    );
    bundle(&[("handler.js", &text)])
}

/// Returns options by which all requests share what the script drew at its top level.
fn shared() -> FunctionOptions {
    FunctionOptions::default().freeze(FreezePolicy::AfterInit)
}

/// A data directory with both scripts, and images in which their working sets are recorded.
struct Disk {
    folder: TempDir,
}

impl Disk {
    fn deployed() -> Self {
        let disk = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let bench = disk.start(|builder| builder);
        for (name, part) in SCRIPTS {
            bench.deploy(name, &script(), shared());
            for _ in 0..6 {
                assert_answer(&bench, name, part);
            }
            until("what requests use of its engine is known", || {
                seed(&bench, name).is_some_and(|seed| seed.code_pages > 0)
            });
        }
        // The image writer has finished when the node has ended.
        bench.end();
        disk
    }

    fn start(&self, with: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Bench {
        let builder = Node::builder().data_dir(self.folder.path());
        Bench::start(with(builder), limits())
    }

    /// Makes a data directory with only one script, whose engine is ten times as large.
    fn with_python() -> Self {
        let disk = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let bench = disk.start(|builder| builder);
        let parts: Vec<String> = PYTHON
            .iter()
            .map(|(part, _)| format!("lambda: {part}"))
            .collect();
        let text = format!(
            "import base64, json, math, re\n\nparts = [{}]\n\ndef handler(request):\n    \
             return parts[int(request.query[\"part\"])]()\n",
            parts.join(", ")
        );
        let script = bundle(&[("handler.py", &text)]);
        bench.deploy("of-python", &script, FunctionOptions::default());
        for _ in 0..6 {
            assert_eq!(bench.text("/of-python/?part=0"), PYTHON[0].1);
        }
        until("what requests use of its engine is known", || {
            seed(&bench, "of-python").is_some_and(|seed| seed.code_pages > 0)
        });
        bench.end();
        disk
    }

    /// Returns the file of the engine's code.
    fn artifact(&self) -> PathBuf {
        e2e::artifact(self.folder.path())
    }

    /// Returns the file of the engine's image.
    fn image(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.folder.path().join("images")).ok()?;
        let mut files = files.map(|file| file.unwrap().path());
        files.find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("engine-")
        })
    }
}

fn seed(bench: &Bench, name: &str) -> Option<SeedInfo> {
    let seeds = bench.node.tree().into_iter();
    let mut of = seeds.filter(|seed| seed.name == name && seed.is_in_memory);
    of.next()
}

/// Returns the engines and scripts that are in memory.
fn large(bench: &Bench) -> Vec<SeedInfo> {
    let seeds = bench.node.tree().into_iter();
    seeds
        .filter(|seed| seed.level >= 2 && seed.is_in_memory)
        .collect()
}

#[track_caller]
fn assert_answer(bench: &Bench, name: &str, part: usize) {
    let expected = format!("1 {}", PARTS[part].1);
    assert_eq!(bench.text(&format!("/{name}/?part={part}")), expected);
}

/// Sends requests to both scripts at once.
fn assert_answers_at_once(bench: &Bench, random: &mut Rng, count: usize) {
    std::thread::scope(|scope| {
        for number in 0..count {
            let (name, part) = (SCRIPTS[number % 2].0, random.usize(..PARTS.len()));
            scope.spawn(move || assert_answer(bench, name, part));
        }
    });
}

fn wait_until_fully_loaded(bench: &Bench) {
    until("all of it is there", || {
        let seeds = large(bench);
        seeds.len() == 3 && seeds.iter().all(|seed| seed.is_whole)
    });
}

/// The second script's working set is recorded even though the engine's code is in large pages by
/// then.
fn each_script_records_its_working_set_of_the_engines_code() {
    let disk = Disk::deployed();
    let bytes = fs::metadata(disk.artifact()).unwrap().len();
    let bench = disk.start(|builder| builder);
    for (name, part) in SCRIPTS {
        assert_answer(&bench, name, part);
        let seed = seed(&bench, name).unwrap();
        assert!(seed.code_pages > 16, "{seed:?}");
        assert!(
            seed.code_pages * 4096 < bytes * 2 / 3,
            "{seed:?} of {bytes}"
        );
    }
    bench.end();
}

fn scripts_share_one_loading_of_their_engine() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let (artifact, image) = (disk.artifact(), disk.image().unwrap());
    let whole = [&artifact, &image].map(|path| fs::read(path).unwrap());
    for round in 0..8 {
        let bench = disk.start(|builder| builder);
        let (name, part) = SCRIPTS[round % 2];
        assert_answer(&bench, name, part);
        assert_answers_at_once(&bench, &mut random, 8);
        wait_until_fully_loaded(&bench);
        assert_answers_at_once(&bench, &mut random, 4);
        bench.end();
    }
    let now = [&artifact, &image].map(|path| fs::read(path).unwrap());
    assert!(now == whole);
}

fn scripts_start_before_their_engine_is_fully_loaded() {
    let disk = Disk::with_python();
    let mut late = 0;
    for start in 0..4 {
        let held = (start == 0).then(PagerHold::new);
        let bench = disk.start(|builder| builder);
        std::thread::scope(|scope| {
            for (part, (_, expected)) in PYTHON.iter().enumerate() {
                let bench = &bench;
                scope.spawn(move || {
                    assert_eq!(bench.text(&format!("/of-python/?part={part}")), *expected);
                });
            }
        });
        drop(held);
        until("all of it is there", || {
            let seeds = large(&bench);
            seeds.len() == 2 && seeds.iter().all(|seed| seed.is_whole)
        });
        late += large(&bench)
            .iter()
            .map(|seed| seed.late_pages)
            .sum::<u64>();
        bench.end();
    }
    // A guest that waited began before all of its engine was loaded.
    assert!(late > 0, "no guest had to wait");
}

fn damaged_engine_code_is_compiled_again() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let path = disk.artifact();
    let whole = fs::read(&path).unwrap();
    let drawn = |bench: &Bench| SCRIPTS.map(|(name, _)| bench.text(&format!("/{name}/?drawn")));
    let before = {
        let bench = disk.start(|builder| builder);
        let before = drawn(&bench);
        bench.end();
        before
    };
    for place in [100, whole.len() - 100, random.usize(..whole.len())] {
        println!("damaged at {place}");
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let bench = disk.start(|builder| builder);
        assert_answers_at_once(&bench, &mut random, 8);
        until("it was compiled again, and stored", || {
            fs::read(&path).is_ok_and(|now| now != damaged)
        });
        assert_answers_at_once(&bench, &mut random, 4);
        // The images remained valid, so no script was initialised again.
        assert_eq!(drawn(&bench), before, "{place}");
        bench.end();
    }
    let bench = disk.start(|builder| builder);
    assert_answers_at_once(&bench, &mut random, 4);
    bench.end();
}

fn damaged_engine_memory_is_rebuilt() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    for damage in 0..3 {
        let path = disk.image().unwrap();
        let mut image = fs::read(&path).unwrap();
        let length = image.len();
        match damage {
            0 => image[length - 100] ^= 1,
            1 => image[length / 2] ^= 1,
            _ => image.truncate(length - (64 << 10)),
        }
        fs::write(&path, &image).unwrap();
        let bench = disk.start(|builder| builder);
        assert_answers_at_once(&bench, &mut random, 8);
        until("there is another image", || {
            let another = disk.image().map(|path| fs::read(path).unwrap_or_default());
            another.is_some_and(|another| !another.is_empty() && another != image)
        });
        assert_answers_at_once(&bench, &mut random, 4);
        bench.end();
    }
}

/// Sends a request without waiting for its response.
fn start_request(address: SocketAddr, number: usize, part: usize) -> TcpStream {
    let name = SCRIPTS[number % 2].0;
    let request = format!("GET /{name}/?part={part} HTTP/1.1\r\nHost: a\r\n\r\n");
    e2e::start_request(address, &request)
}

fn disconnected_clients_do_not_delay_other_requests() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    for _ in 0..3 {
        let bench = disk.start(|builder| builder);
        let address = bench.address;
        std::thread::scope(|scope| {
            for number in 0..8 {
                let part = random.usize(..PARTS.len());
                let wait = random::up_to(&mut random, Duration::from_millis(40));
                scope.spawn(move || {
                    let client = start_request(address, number, part);
                    std::thread::sleep(wait);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
            for number in 0..4 {
                let (name, part) = (SCRIPTS[number % 2].0, random.usize(..PARTS.len()));
                let bench = &bench;
                scope.spawn(move || assert_answer(bench, name, part));
            }
        });
        bench.end();
    }
    // A node that is stopped in the middle of loading ends, and so do all its processes.
    for _ in 0..3 {
        let bench = disk.start(|builder| builder);
        let clients: Vec<_> = (0..4)
            .map(|number| start_request(bench.address, number, random.usize(..PARTS.len())))
            .collect();
        std::thread::sleep(random::up_to(&mut random, Duration::from_millis(30)));
        bench.end();
        drop((bench, clients));
        until("no code is left", || e2e::code_files().is_empty());
    }
}

/// A script is made from an engine that is still being loaded. Then all seeds leave memory, and
/// come back.
fn scripts_are_deployed_while_their_engine_is_loading() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let bench = disk.start(|builder| builder.seed_memory(0).max_warm(0));
    std::thread::scope(|scope| {
        let bench = &bench;
        scope.spawn(|| assert_answer(bench, "first", 1));
        scope.spawn(|| {
            bench.deploy("third", &script(), shared());
            assert_answer(bench, "third", 2);
        });
    });
    bench.deploy(
        "small",
        &e2e::file("tests/fixtures/wat/hello.wat"),
        FunctionOptions::default(),
    );
    for round in 0..12 {
        let name = ["first", "second", "third"][round % 3];
        assert_answer(&bench, name, random.usize(..PARTS.len()));
        assert_eq!(bench.text("/small/"), "hello from wat\n");
        std::thread::sleep(random::up_to(&mut random, Duration::from_millis(10)));
    }
    bench.end();
}

fn main() {
    e2e::main(tests![
        each_script_records_its_working_set_of_the_engines_code,
        scripts_share_one_loading_of_their_engine,
        scripts_start_before_their_engine_is_fully_loaded,
        damaged_engine_code_is_compiled_again,
        damaged_engine_memory_is_rebuilt,
        disconnected_clients_do_not_delay_other_requests,
        scripts_are_deployed_while_their_engine_is_loading,
    ]);
}
