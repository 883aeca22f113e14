//! Secrets, as functions in real microVMs read them, as their operator sets them, and where they are looked
//! for in vain.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;
mod e2e;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::Path,
    process::{Child, Stdio},
};

use common::raw;
use e2e::{
    BENCH, Bench, limits,
    process::{Running, descendants, faasw, get, told},
};
use faasw::{
    FreezePolicy, FunctionName, FunctionOptions, Node, SECRET_BYTES, SecretError, SecretName,
};

const PROBE: &str = "fixtures/config-probe.wasm";

fn name(text: &str) -> SecretName {
    SecretName::new(text).unwrap()
}

fn reading(names: &[&str]) -> FunctionOptions {
    let names = names.iter().map(|text| name(text));
    names.fold(FunctionOptions::default(), FunctionOptions::secret)
}

fn set(bench: &Bench, function: &str, secret: &str, value: &str) {
    try_to_set(bench, function, secret, value.as_bytes()).unwrap();
}

fn try_to_set(
    bench: &Bench,
    function: &str,
    secret: &str,
    value: &[u8],
) -> Result<(), SecretError> {
    let function = FunctionName::new(function).unwrap();
    bench.block_on(bench.node.set_secret(&function, &name(secret), value))
}

fn remove(bench: &Bench, function: &str, secret: &str) -> Result<(), SecretError> {
    let function = FunctionName::new(function).unwrap();
    bench.block_on(bench.node.remove_secret(&function, &name(secret)))
}

/// Names of a function's secrets that have a value.
fn secrets(bench: &Bench, function: &str) -> Vec<String> {
    let function = FunctionName::new(function).unwrap();
    let listed = bench.block_on(bench.node.secrets(Some(function.clone())));
    let listed = listed.unwrap().into_iter();
    listed
        .map(|info| {
            assert_eq!(info.function, function);
            info.name.to_string()
        })
        .collect()
}

fn they_are_read_like_the_configuration() {
    // Before there is such a function.
    set(&BENCH, "reader", "api_key", "s3cr\u{e9}t=1");
    set(&BENCH, "reader", "lines", "one\ntwo\n");
    set(&BENCH, "reader", "unasked", "for nobody");
    let options = reading(&["api_key", "lines", "not_set"]).config("colour", "green");
    let deployed = BENCH.deploy("reader", &e2e::file(PROBE), options);
    let notice = deployed.notice.as_deref();
    assert_eq!(notice, Some("its secret not_set is not set yet"));
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    assert_eq!(
        deployed.function.secrets,
        ["api_key", "lines", "not_set"].map(name)
    );
    // A microVM that is new, and one that was brought back.
    for _ in 0..3 {
        for (path, expected) in [
            ("get/api_key", "some s3cr\u{e9}t=1"),
            ("get/lines", "some one\ntwo\n"),
            ("get/not_set", "none"),
            ("get/unasked", "none"),
            ("get/colour", "some green"),
            ("variable/api_key", "some s3cr\u{e9}t=1"),
            ("variable/not_set", "undefined not_set"),
            ("variable/unasked", "undefined unasked"),
            (
                "all",
                "colour=green\napi_key=s3cr\u{e9}t=1\nlines=one\ntwo\n\n",
            ),
            ("at-start", "some green"),
        ] {
            assert_eq!(BENCH.text(&format!("/reader/{path}")), expected, "{path}");
        }
    }
}

fn what_is_set_holds_for_the_next_request() {
    BENCH.deploy("turning", &e2e::file(PROBE), reading(&["key"]));
    assert_eq!(BENCH.text("/turning/get/key"), "none");
    for round in 0..10 {
        let value = "x".repeat(round * 1000) + "end";
        set(&BENCH, "turning", "key", &value);
        let told = BENCH.text("/turning/get/key");
        assert_eq!(told, format!("some {value}"));
    }
    assert_eq!(secrets(&BENCH, "turning"), ["key"]);
    remove(&BENCH, "turning", "key").unwrap();
    assert_eq!(BENCH.text("/turning/get/key"), "none");
    let again = remove(&BENCH, "turning", "key").unwrap_err();
    assert_eq!(again.to_string(), "turning has no secret key");
    assert!(secrets(&BENCH, "turning").is_empty());
}

fn no_function_has_anothers() {
    for function in ["one", "two"] {
        set(&BENCH, function, "key", function);
        BENCH.deploy(function, &e2e::file(PROBE), reading(&["key"]));
    }
    BENCH.deploy("none", &e2e::file(PROBE), FunctionOptions::default());
    for _ in 0..5 {
        assert_eq!(BENCH.text("/one/get/key"), "some one");
        assert_eq!(BENCH.text("/two/all"), "key=two\n");
        assert_eq!(BENCH.text("/none/get/key"), "none");
        assert_eq!(BENCH.text("/none/all"), "");
    }
}

fn a_version_reads_those_it_was_deployed_with() {
    set(&BENCH, "versions", "old", "1");
    set(&BENCH, "versions", "new", "2");
    BENCH.deploy("versions", &e2e::file(PROBE), reading(&["old"]));
    BENCH.deploy("versions", &e2e::file(PROBE), reading(&["new"]));
    assert_eq!(BENCH.text("/versions/all"), "new=2\n");
    BENCH
        .block_on(BENCH.node.rollback("versions", None))
        .unwrap();
    assert_eq!(BENCH.text("/versions/all"), "old=1\n");
}

fn they_go_with_their_function() {
    for at_once in [1, 2] {
        set(&BENCH, "gone", "key", "the first's");
        BENCH.deploy("gone", &e2e::file(PROBE), reading(&["key"]));
        for _ in 0..at_once {
            assert_eq!(BENCH.text("/gone/get/key"), "some the first's");
        }
        BENCH.block_on(BENCH.node.remove("gone")).unwrap();
        assert!(secrets(&BENCH, "gone").is_empty());
        BENCH.deploy("gone", &e2e::file(PROBE), reading(&["key"]));
        assert_eq!(BENCH.text("/gone/get/key"), "none");
        BENCH.block_on(BENCH.node.remove("gone")).unwrap();
    }
}

/// It asks while it is initialised, and so is initialised by each request, which has them.
fn to_ask_before_a_request_has_it_frozen_before_that() {
    set(&BENCH, "early", "colour", "red");
    let deployed = BENCH.deploy("early", &e2e::file(PROBE), reading(&["colour"]));
    assert!(!deployed.function.frozen_after_init, "{deployed:?}");
    let drawn = &deployed.function.drawn;
    assert!(drawn.contains("wasi:config/store#get: 1 read"), "{drawn}");
    for colour in ["red", "blue"] {
        set(&BENCH, "early", "colour", colour);
        assert_eq!(BENCH.text("/early/at-start"), format!("some {colour}"));
    }
    // It may be frozen behind that all the same: with what it was answered then.
    let shared = reading(&["colour"]).freeze(FreezePolicy::AfterInit);
    BENCH.deploy("early", &e2e::file(PROBE), shared);
    let told = BENCH.text("/early/at-start");
    assert!(told.contains("there are none before"), "{told}");
    assert_eq!(BENCH.text("/early/get/colour"), "some blue");
}

fn what_cannot_be_one_is_refused() {
    let larger = "x".repeat(SECRET_BYTES + 1);
    let refused = try_to_set(&BENCH, "bounds", "a", larger.as_bytes());
    assert!(matches!(refused, Err(SecretError::TooLong)), "{refused:?}");
    let refused = try_to_set(&BENCH, "bounds", "a", &[0xff, 0xfe]);
    assert!(matches!(refused, Err(SecretError::NoText)), "{refused:?}");
    let largest = &larger[1..];
    for secret in ["a", "b"] {
        set(&BENCH, "bounds", secret, largest);
    }
    let refused = try_to_set(&BENCH, "bounds", "c", largest.as_bytes());
    assert!(matches!(refused, Err(SecretError::TooMany)), "{refused:?}");
    // In place of another, and as much as there is room for.
    set(&BENCH, "bounds", "b", largest);
    set(&BENCH, "bounds", "c", &largest[..SECRET_BYTES / 2]);
    BENCH.deploy("bounds", &e2e::file(PROBE), reading(&["a", "b", "c"]));
    for (secret, bytes) in [("a", SECRET_BYTES), ("c", SECRET_BYTES / 2)] {
        let told = BENCH.text(&format!("/bounds/get/{secret}"));
        assert_eq!(told.len(), "some ".len() + bytes);
    }
}

fn who_cannot_read_them_is_told() {
    let module = e2e::file("fixtures/http-probe.wasm");
    let deployed = BENCH.deploy("deaf", &module, reading(&["key"]));
    let notice = deployed.notice.unwrap();
    assert!(notice.contains("it was given a secret"), "{notice}");
    assert_eq!(BENCH.text("/deaf/env"), "arg deaf\n");
}

/// By the key in the data directory, or another one.
fn they_survive_a_restart_with_the_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("secrets.key");
    let start = |key: Option<[u8; 32]>| {
        let builder = Node::builder().data_dir(folder.path());
        let builder = match key {
            Some(key) => builder.secret_key(key),
            None => builder,
        };
        Bench::start(builder, limits())
    };
    let bench = start(None);
    set(&bench, "kept", "key", "value");
    set(&bench, "kept", "colour", "red");
    bench.deploy("kept", &e2e::file(PROBE), reading(&["key", "colour"]));
    bench.end();
    drop(bench);
    let mode = fs::metadata(&own).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let expect_value = |value: &str| {
        let bench = start(None);
        for _ in 0..2 {
            assert_eq!(bench.text("/kept/get/key"), format!("some {value}"));
            assert_eq!(bench.text("/kept/at-start"), "some red");
        }
        bench.end();
    };
    expect_value("value");
    // Another key opens none of them, and whoever needs one hears nothing of why.
    let right = fs::read(&own).unwrap();
    let refused = |bench: &Bench, why: &str| {
        let answer = bench.get("/kept/get/key");
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(!answer.body.contains("key"), "{answer:?}");
        let log = bench.log("kept").join("\n");
        assert!(log.contains(why), "{log}");
        assert_eq!(secrets(bench, "kept"), ["colour", "key"]);
    };
    let bench = start(Some([7; 32]));
    refused(&bench, "sealed with another key");
    let why = try_to_set(&bench, "other", "key", b"x").unwrap_err();
    assert!(why.to_string().contains("put that one back"), "{why}");
    bench.end();
    drop(bench);
    // One that is damaged is left for its owner to mend.
    fs::write(&own, &right[1..]).unwrap();
    let bench = start(None);
    refused(&bench, "has not the size of a key");
    let why = try_to_set(&bench, "kept", "key", b"x").unwrap_err();
    assert!(why.to_string().contains("put the right one back"), "{why}");
    bench.end();
    drop(bench);
    assert_eq!(fs::read(&own).unwrap(), &right[1..]);
    fs::write(&own, &right).unwrap();
    expect_value("value");
    // Without it nothing takes its place while there is something that it opens.
    fs::remove_file(&own).unwrap();
    let bench = start(None);
    refused(&bench, "No such file");
    for secret in ["key", "colour"] {
        remove(&bench, "kept", secret).unwrap();
    }
    bench.end();
    drop(bench);
    assert!(!own.exists());
    let bench = start(None);
    set(&bench, "kept", "key", "again");
    set(&bench, "kept", "colour", "red");
    assert_eq!(bench.text("/kept/get/key"), "some again");
    bench.end();
    drop(bench);
    expect_value("again");
}

/// However many ask at once, and whatever is set meanwhile: each has one that was set.
fn many_at_once_have_what_is_set() {
    set(&BENCH, "busy", "key", "0");
    BENCH.deploy("busy", &e2e::file(PROBE), reading(&["key"]));
    let asking: Vec<_> = (0..16)
        .map(|_| {
            BENCH.runtime().spawn(async {
                let mut newest = 0;
                for _ in 0..20 {
                    let answer = raw::get(BENCH.address, "/busy/get/key").await;
                    let number = answer.body.strip_prefix("some ");
                    let number = number.and_then(|number| number.parse::<u32>().ok());
                    let number = number.unwrap_or_else(|| panic!("{answer:?}"));
                    assert!(number >= newest, "{number} after {newest}");
                    newest = number;
                }
            })
        })
        .collect();
    for number in 1..30_u32 {
        set(&BENCH, "busy", "key", &number.to_string());
        assert_eq!(BENCH.text("/busy/get/key"), format!("some {number}"));
    }
    for one in asking {
        BENCH.block_on(one).unwrap();
    }
}

/// The value that is looked for. It stands nowhere as a whole but where it was put.
fn canary() -> String {
    ["canary", "of", "this", "test", "7f3a9c"].join("-")
}

/// What is found in the same way, and is no secret.
fn marker() -> String {
    ["marker", "of", "this", "test", "51be02"].join("-")
}

fn set_by_command(data_dir: &Path, arguments: &[&str], value: &str) {
    let mut child: Child = faasw(&[&["secret", "set"], arguments].concat())
        .env("FAASW_DATA_DIR", data_dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(value.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// Where a text is in a process's memory: the line and the flags of each mapping that has it, and the files in memory
/// that it has open.
fn found_in_memory(pid: u32, text: &str) -> Vec<String> {
    let there = |result: io::Result<File>| match result {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // It has ended.
        Err(error) if error.raw_os_error() == Some(3) => None,
        Err(error) => panic!("process {pid}: {error}"),
    };
    let Some(memory) = there(File::open(format!("/proc/{pid}/mem"))) else {
        return Vec::new();
    };
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"));
    // It may end now.
    let smaps = smaps.unwrap_or_default();
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| {
            let (from, to) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some((hex(from)?, hex(to)?))
        });
        if let Some((from, to)) = range {
            // Reserved addresses have nothing behind them.
            let is_readable = line
                .split(' ')
                .nth(1)
                .is_some_and(|may| may.starts_with('r'));
            mapping = is_readable.then(|| (from, to, line.to_owned()));
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && let Some((from, to, told)) = mapping.take()
            && has(&memory, from, to, text.as_bytes())
        {
            found.push(format!("{told} [{flags} ]"));
        }
    }
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
    {
        let Ok(path) = entry.map(|entry| entry.path()) else {
            continue;
        };
        let name = fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().starts_with("/memfd:")
            && let Some(file) = there(File::open(&path))
            && has_data(&file, text.as_bytes())
        {
            found.push(name.display().to_string());
        }
    }
    found
}

/// Whether a file has a text in what there is of it.
fn has_data(file: &File, text: &[u8]) -> bool {
    let length = file.metadata().unwrap().len();
    let mut at = 0;
    while at < length {
        let Ok(from) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) else {
            return false;
        };
        let to = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(from)).unwrap_or(length);
        if has(file, from, to, text) {
            return true;
        }
        at = to;
    }
    false
}

fn has(memory: &File, from: u64, to: u64, text: &[u8]) -> bool {
    const PART: usize = 1 << 20;
    let mut buffer = vec![0; PART + text.len()];
    let mut at = from;
    while at < to {
        let wanted = usize::try_from(to - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let Ok(read) = memory.read_at(&mut buffer[..wanted], at) else {
            // A page that cannot be read, such as a device's.
            at += 4096;
            continue;
        };
        if memchr::memmem::find(&buffer[..read], text).is_some() {
            return true;
        }
        match read > text.len() {
            true => at += (read - text.len()) as u64,
            false => at += 4096,
        }
    }
    false
}

/// Every file below a folder that has a text.
fn found_in_files(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(found_in_files(&path, text));
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(&path)
            && memchr::memmem::find(&bytes, text.as_bytes()).is_some()
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A secret that was used is in no file, in no seed and in nobody's memory, but where the node keeps it.
fn a_canary_is_found_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path();
    let mut node = Running::serving(data_dir, &[]);
    node.address();
    set_by_command(data_dir, &["bird", "key"], &canary());
    set_by_command(data_dir, &["bird", "colour"], "red\n");
    let deploy = [
        "deploy", PROBE, "--name", "bird", "--secret", "key", "--secret", "colour",
    ];
    let configured = format!("marker={}", marker());
    told(
        &[&deploy[..], &["--config", &configured]].concat(),
        data_dir,
    );
    assert_eq!(node.stop("TERM"), Some(0));
    // The process that it was told to is gone. This one reads it from disk.
    let mut node = Running::serving(data_dir, &["--min-parked", "2"]);
    let address = node.address();
    let pid = node.child.id();
    for _ in 0..10 {
        let told = get(address, "/bird/variable/key").body;
        assert_eq!(told, format!("some {}", canary()));
        // What asks at its start has all of them while it is initialised.
        assert_eq!(get(address, "/bird/at-start").body, "some red");
    }
    for words in [
        &["secret", "ls", "--json"][..],
        &["inspect", "bird", "--json"],
        &["inspect", "bird"],
        &["ls", "--json"],
        &["logs", "bird"],
        &["tree"],
        &["stats"],
    ] {
        let told = told(words, data_dir);
        assert!(!told.contains(&canary()), "{words:?}: {told}");
    }
    let listed = told(&["secret", "ls", "bird"], data_dir);
    assert!(
        listed.contains("colour") && listed.contains("key"),
        "{listed}"
    );
    assert!(!node.stderr().contains(&canary()));
    // A configuration's value is in seeds and in whatever is made of them: so much is looked at.
    let seen = |text: &str| {
        let cells = descendants(pid).into_iter();
        let found = cells.flat_map(|cell| found_in_memory(cell, text));
        found.collect::<Vec<String>>()
    };
    e2e::until("a cell has what is no secret", || {
        let told = get(address, "/bird/get/marker").body;
        assert_eq!(told, format!("some {}", marker()));
        !seen(&marker()).is_empty()
    });
    let in_node = found_in_memory(pid, &marker());
    let is_layer = |place: &String| place.contains("memfd:faasw-level-");
    assert!(
        in_node.iter().any(is_layer),
        "nothing is found in seeds: {in_node:?}"
    );
    // Answers had it, too: what they lay in is used by others in time.
    e2e::until("no cell has it", || {
        assert_eq!(get(address, "/bird/get/nothing").body, "none");
        seen(&canary()).is_empty()
    });
    e2e::until("the node has it in one place", || {
        assert_eq!(get(address, "/bird/get/nothing").body, "none");
        let found = found_in_memory(pid, &canary());
        // Locked, and in no core file.
        let kept = |place: &String| place.contains(" lo ") && place.contains(" dd ");
        found.len() == 1 && found.iter().all(kept)
    });
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
    // Not only once somebody asks again.
    told(&["secret", "rm", "bird", "key"], data_dir);
    assert_eq!(found_in_memory(pid, &canary()), [""; 0]);
    told(&["rm", "bird"], data_dir);
    assert_eq!(node.stop("TERM"), Some(0));
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
}

fn commands_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path();
    let mut node = Running::serving(data_dir, &[]);
    node.address();
    let failed = |words: &[&str]| {
        let command = faasw(words)
            .env("FAASW_DATA_DIR", data_dir)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!command.status.success(), "{words:?}");
        String::from_utf8(command.stderr).unwrap()
    };
    let said = failed(&["secret", "set", "f", "key"]);
    assert!(said.contains("nothing came"), "{said}");
    for secret in ["a", "b"] {
        set_by_command(data_dir, &["several", secret], "x");
    }
    let said = failed(&["secret", "rm", "several", "a", "nope", "b"]);
    assert!(said.contains("several has no secret nope"), "{said}");
    assert!(!told(&["secret", "ls"], data_dir).contains("several"));
    let said = failed(&["secret", "rm", "nobody", "key"]);
    assert!(said.contains("nobody has no secret key"), "{said}");
    let large = folder.path().join("large");
    fs::write(&large, vec![b'x'; SECRET_BYTES + 1]).unwrap();
    let large = large.to_str().unwrap();
    let said = failed(&["secret", "set", "f", "key", "--file", large]);
    assert!(said.contains("16384 bytes at most"), "{said}");
    let said = failed(&["deploy", PROBE, "--secret", "a", "--config", "a=b"]);
    assert!(said.contains("both a secret and a key"), "{said}");
    // The line break that ends a line is none of it; in a file all counts.
    set_by_command(data_dir, &["probe", "typed"], "a b\r\n");
    let file = folder.path().join("file");
    fs::write(&file, "a b\n").unwrap();
    set_by_command(
        data_dir,
        &["probe", "file", "--file", file.to_str().unwrap()],
        "",
    );
    let deploy = [
        "deploy", PROBE, "--name", "probe", "--secret", "typed", "--secret", "file",
    ];
    told(&deploy, data_dir);
    let invoked = told(&["invoke", "probe", "--path", "/all"], data_dir);
    assert_eq!(invoked, "file=a b\n\ntyped=a b\n");
    let inspected = told(&["inspect", "probe"], data_dir);
    assert!(inspected.contains("file, typed"), "{inspected}");
    assert_eq!(node.stop("TERM"), Some(0));
}

fn main() {
    e2e::main(tests![
        they_are_read_like_the_configuration,
        what_is_set_holds_for_the_next_request,
        no_function_has_anothers,
        a_version_reads_those_it_was_deployed_with,
        they_go_with_their_function,
        to_ask_before_a_request_has_it_frozen_before_that,
        many_at_once_have_what_is_set,
        what_cannot_be_one_is_refused,
        who_cannot_read_them_is_told,
        they_survive_a_restart_with_the_key_alone,
        commands_say_what_is_wrong,
        a_canary_is_found_nowhere,
    ]);
}
