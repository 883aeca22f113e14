//! Secrets, as functions in real microVMs read them, as their operator sets them, and the places in
//! which they must not be found.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod bound;
mod canary;
#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use bound::a_bound_secret_is_sent_only_to_its_hosts;
use canary::a_secret_is_found_nowhere;
use common::raw;
use e2e::{
    BENCH, Bench, limits,
    process::{Running, faasw, stdout_of},
};
use faasw::{
    FreezePolicy, FunctionName, FunctionOptions, Node, SECRET_BYTES, SecretError, SecretName,
};

const PROBE: &str = "tests/fixtures/config-probe.wasm";

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

/// Returns the names of a function's secrets that have a value.
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

fn secrets_are_read_like_the_configuration() {
    // Secrets can be set before the function exists.
    set(&BENCH, "reader", "api_key", "s3cr\u{e9}t=1");
    set(&BENCH, "reader", "lines", "one\ntwo\n");
    set(&BENCH, "reader", "unasked", "for nobody");
    let options = reading(&["api_key", "lines", "not_set"]).config("colour", "green");
    let deployed = BENCH.deploy("reader", &e2e::file(PROBE), options);
    let notice = deployed.notice.as_deref();
    assert_eq!(notice, Some("its secret not_set has no value yet"));
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    assert_eq!(
        *deployed.function.options.secrets(),
        ["api_key", "lines", "not_set"].map(name).into()
    );
    // A new microVM, and one that was reset.
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

fn a_new_value_applies_to_the_next_request() {
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

fn no_function_reads_secrets_of_another() {
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

fn a_version_reads_the_secrets_of_its_deployment() {
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

fn secrets_are_removed_with_their_function() {
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

/// A function that reads a secret while it is initialised is initialised by each request, which has
/// the secrets.
fn a_secret_read_during_initialisation_moves_the_freeze_point() {
    set(&BENCH, "early", "colour", "red");
    let deployed = BENCH.deploy("early", &e2e::file(PROBE), reading(&["colour"]));
    assert!(!deployed.function.frozen_after_init, "{deployed:?}");
    let drawn = &deployed.function.drawn;
    assert!(drawn.contains("wasi:config/store#get: 1 read"), "{drawn}");
    for colour in ["red", "blue"] {
        set(&BENCH, "early", "colour", colour);
        assert_eq!(BENCH.text("/early/at-start"), format!("some {colour}"));
    }
    // With `AfterInit` it is frozen after its initialisation, with the answer that it received
    // then.
    let shared = reading(&["colour"]).freeze(FreezePolicy::AfterInit);
    BENCH.deploy("early", &e2e::file(PROBE), shared);
    let told = BENCH.text("/early/at-start");
    assert!(told.contains("only while a request is answered"), "{told}");
    assert_eq!(BENCH.text("/early/get/colour"), "some blue");
}

fn invalid_secrets_are_rejected() {
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
    // A value may replace another, and may use all the remaining space.
    set(&BENCH, "bounds", "b", largest);
    set(&BENCH, "bounds", "c", &largest[..SECRET_BYTES / 2]);
    BENCH.deploy("bounds", &e2e::file(PROBE), reading(&["a", "b", "c"]));
    for (secret, bytes) in [("a", SECRET_BYTES), ("c", SECRET_BYTES / 2)] {
        let told = BENCH.text(&format!("/bounds/get/{secret}"));
        assert_eq!(told.len(), "some ".len() + bytes);
    }
}

fn functions_that_do_not_read_secrets_get_a_notice() {
    let module = e2e::file("tests/fixtures/http-probe.wasm");
    let deployed = BENCH.deploy("deaf", &module, reading(&["key"]));
    let notice = deployed.notice.unwrap();
    assert!(notice.contains("it was given a secret"), "{notice}");
    assert_eq!(BENCH.text("/deaf/env"), "FAASW_BASE_PATH=/deaf\narg deaf\n");
}

/// Secrets survive with the key in the data directory, and not with another key.
fn secrets_survive_a_restart_only_with_their_key() {
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
    // A different key opens none of the secrets. A client that needs one does not learn the reason.
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
    refused(&bench, "encrypted with another key");
    let why = try_to_set(&bench, "other", "key", b"x").unwrap_err();
    assert!(why.to_string().contains("restore that key"), "{why}");
    bench.end();
    drop(bench);
    // A damaged key file is left for the operator to repair.
    fs::write(&own, &right[1..]).unwrap();
    let bench = start(None);
    refused(&bench, "does not have the size of a key");
    let why = try_to_set(&bench, "kept", "key", b"x").unwrap_err();
    assert!(why.to_string().contains("restore the right one"), "{why}");
    bench.end();
    drop(bench);
    assert_eq!(fs::read(&own).unwrap(), &right[1..]);
    fs::write(&own, &right).unwrap();
    expect_value("value");
    // If the key is missing, the node makes no new one while secrets exist that it opens.
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

/// A backup that follows docs/operating.md contains the functions with their stores and secrets.
fn a_backup_restores_functions_with_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let node = Bench::start(Node::builder().data_dir(&from), limits());
    set(&node, "kept", "key", "value");
    set(&node, "kept", "colour", "red");
    node.deploy("kept", &e2e::file(PROBE), reading(&["key", "colour"]));
    assert_eq!(node.text("/kept/get/key"), "some value");
    node.end();
    drop(node);

    let guide = fs::read_to_string(e2e::root().join("docs/operating.md")).unwrap();
    let (_, backup) = guide.split_once("<!-- backup -->").unwrap();
    let (backup, _) = backup.split_once("<!-- end of backup -->").unwrap();
    // The fenced blocks, without their language.
    let blocks = backup.split("```").skip(1).step_by(2);
    let script: Vec<_> = blocks.map(|block| &block["sh".len()..]).collect();
    let copied = Command::new("sh")
        .args(["-euc", &script.join("\n")])
        .env("DATA_DIR", &from)
        .env("BACKUP", folder.path().join("backup"))
        .env("KEYS", folder.path().join("keys"))
        .env("NEW_DATA_DIR", &to)
        .status();
    assert!(copied.unwrap().success());
    let mode = fs::metadata(to.join("secrets.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // The backup alone does not open any secret.
    assert!(!folder.path().join("backup/secrets.key").exists());
    fs::remove_dir_all(&from).unwrap();

    let node = Bench::start(Node::builder().data_dir(&to), limits());
    assert_eq!(node.text("/kept/get/key"), "some value");
    assert_eq!(node.text("/kept/at-start"), "some red");
    node.end();
}

/// However many requests arrive at once while the secret changes, each has a value that was set.
fn concurrent_requests_read_the_current_value() {
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

fn secrets_are_set_by_a_command(data_dir: &Path, arguments: &[&str], value: &str) {
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

fn commands_explain_errors() {
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
    assert!(said.contains("standard input is empty"), "{said}");
    for secret in ["a", "b"] {
        secrets_are_set_by_a_command(data_dir, &["several", secret], "x");
    }
    let said = failed(&["secret", "rm", "several", "a", "nope", "b"]);
    assert!(said.contains("several has no secret nope"), "{said}");
    assert!(!stdout_of(&["secret", "ls"], data_dir).contains("several"));
    let said = failed(&["secret", "rm", "nobody", "key"]);
    assert!(said.contains("nobody has no secret key"), "{said}");
    let large = folder.path().join("large");
    fs::write(&large, vec![b'x'; SECRET_BYTES + 1]).unwrap();
    let large = large.to_str().unwrap();
    let said = failed(&["secret", "set", "f", "key", "--file", large]);
    assert!(said.contains("at most 16384 bytes"), "{said}");
    let said = failed(&["deploy", PROBE, "--secret", "a", "--config", "a=b"]);
    assert!(said.contains("both a secret and a key"), "{said}");
    // The line break at the end of standard input is not part of the value; every byte of a file
    // is.
    secrets_are_set_by_a_command(data_dir, &["probe", "typed"], "a b\r\n");
    let file = folder.path().join("file");
    fs::write(&file, "a b\n").unwrap();
    secrets_are_set_by_a_command(
        data_dir,
        &["probe", "file", "--file", file.to_str().unwrap()],
        "",
    );
    let deploy = [
        "deploy", PROBE, "--name", "probe", "--secret", "typed", "--secret", "file",
    ];
    stdout_of(&deploy, data_dir);
    let invoked = stdout_of(&["invoke", "probe", "--path", "/all"], data_dir);
    assert_eq!(invoked, "file=a b\n\ntyped=a b\n");
    let inspected = stdout_of(&["inspect", "probe"], data_dir);
    assert!(
        inspected.contains("secret         file\n                 typed\n"),
        "{inspected}"
    );
    assert_eq!(node.stop("TERM"), Some(0));
}

fn main() {
    e2e::main(tests![
        secrets_are_read_like_the_configuration,
        a_new_value_applies_to_the_next_request,
        no_function_reads_secrets_of_another,
        a_version_reads_the_secrets_of_its_deployment,
        secrets_are_removed_with_their_function,
        a_secret_read_during_initialisation_moves_the_freeze_point,
        concurrent_requests_read_the_current_value,
        invalid_secrets_are_rejected,
        functions_that_do_not_read_secrets_get_a_notice,
        secrets_survive_a_restart_only_with_their_key,
        a_backup_restores_functions_with_their_secrets,
        commands_explain_errors,
        a_secret_is_found_nowhere,
        a_bound_secret_is_sent_only_to_its_hosts,
    ]);
}
