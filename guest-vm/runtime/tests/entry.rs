//! The func-entry point: the state at the freeze, and the behaviour after it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::outcome::Outcome;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::MemoryPlatform;

use support::{Call, CgiModule, HttpComponent, Kind, compile, fixture, get};

const COMPONENT: &str = "host/cli/tests/e2e/entered-component.wat";

fn command(mode: &str) -> (Vec<u8>, Call) {
    let code = compile(CgiModule, &fixture("tests/fixtures/entry-c.wasm"));
    (code, get(CgiModule, "/p?q").environment("MODE", mode))
}

#[test]
fn a_command_runs_to_its_entry_point_without_a_request() {
    let (code, call) = command("a");
    let mut ready = call.ready(&code).unwrap();
    ready.platform_mut().request_head = call.request.clone();
    ready.run_to_entry().unwrap();
    assert_is_answered(ready.platform());
}

/// Without a seed, the request is present at the start, and the command does not see it before its
/// entry point.
#[test]
fn a_command_that_has_a_request_already_runs_the_same_way() {
    let (code, mut call) = command("a");
    call.config.has_entry = true;
    let mut ready = call.ready(&code).unwrap();
    ready.platform_mut().request_head = call.request.clone();
    ready.handle(call.request).unwrap();
    assert_is_answered(ready.platform());
}

fn assert_is_answered(platform: &MemoryPlatform) {
    let environment = "wasi_snapshot_preview1#environ_get: 1 read";
    assert_eq!(platform.frozen, [environment]);
    let log = platform.logged(LogStream::Out);
    assert_eq!(log, b"preparing, without a request\n");
    let body = String::from_utf8(platform.response_body.clone()).unwrap();
    assert!(
        body.starts_with("prepared 1\nGET /p q\nmode a\nbody \n"),
        "{body}"
    );
    assert_eq!(platform.response_head.as_ref().unwrap().status, 200);
    assert_eq!(platform.finished, Some(vec![]));
}

/// Returns a command that opens `/d/request`, and a call whose entry point is the file at `path`.
fn opening(path: &str) -> (Vec<u8>, Call) {
    let code = compile(CgiModule, &fixture("tests/fixtures/wat/entry-file.wasm"));
    let files: [(Kind, &str, &[u8]); 2] = [
        (Kind::File, "request", b"what was deployed"),
        (Kind::File, "other", b""),
    ];
    let mut call = get(CgiModule, "/p?q").environment("MODE", "a");
    call = call.files("/d", &files);
    call.config.has_entry = true;
    let files = call.config.files.as_mut().unwrap();
    files.freeze_at = Some(path.to_owned());
    (code, call)
}

#[test]
fn a_file_that_is_opened_may_be_it_and_has_the_requests_variables() {
    for is_ahead in [true, false] {
        let (code, call) = opening("/d/request");
        let mut ready = call.ready(&code).unwrap();
        ready.platform_mut().request_head = call.request.clone();
        if is_ahead {
            ready.run_to_entry().unwrap()
        } else {
            ready.handle(call.request).unwrap()
        }
        let platform = ready.platform();
        assert_eq!(platform.frozen.len(), 1);
        assert_eq!(platform.logged(LogStream::Out), b"preparing\n");
        let variables = platform.response_body.split(|byte| *byte == 0);
        let variables: Vec<_> = variables.collect();
        for variable in [
            "MODE=a",
            "REQUEST_METHOD=GET",
            "PATH_INFO=/p",
            "QUERY_STRING=q",
        ] {
            assert!(variables.contains(&variable.as_bytes()), "{variable}");
        }
        assert_eq!(variables.last().unwrap(), b"");
        assert_eq!(platform.finished, Some(vec![]));
    }
}

#[test]
fn opening_another_file_does_not_reach_the_entry_point() {
    let (code, call) = opening("/d/other");
    let failure = call.ready(&code).unwrap().run_to_entry().unwrap_err();
    assert_eq!(failure.outcome, Outcome::LoadFailed);
    for path in ["/d", "/d/none", "/request", "/dx/request"] {
        let (code, call) = opening(path);
        let failure = call.ready(&code).err().unwrap();
        assert_eq!(failure.outcome, Outcome::LoadFailed, "{path}");
        assert!(failure.report.contains(path), "{failure}");
    }
}

/// Returns the response body of a command that is frozen at `/d/request`, for a request of `path`,
/// and how often it was frozen.
fn answered(change: impl FnOnce(String) -> String, path: &str, mode: &str) -> (Vec<u8>, usize) {
    let text = String::from_utf8(fixture("tests/fixtures/wat/entry-file.wat")).unwrap();
    let changed = change(text.clone());
    let code = compile(CgiModule, changed.as_bytes());
    let files: [(Kind, &str, &[u8]); 3] = [
        (Kind::File, "request", b"what was deployed"),
        (Kind::File, "other", b"another one"),
        (Kind::Link, "linked", b"request"),
    ];
    let mut call = get(CgiModule, path).environment("MODE", mode);
    call = call.files("/d", &files);
    call.config.has_entry = true;
    call.config.files.as_mut().unwrap().freeze_at = Some("/d/linked".to_owned());
    let mut ready = call.ready(&code).unwrap();
    ready.platform_mut().request_head = call.request.clone();
    ready.run_to_entry().unwrap();
    let platform = ready.platform();
    (platform.response_body.clone(), platform.frozen.len())
}

#[test]
fn the_entry_file_is_recognised_by_any_path_and_any_number_of_opens() {
    const OPEN: &str = "(i32.const 3) (i32.const 0) (i32.const 80) (i32.const 7)";
    const LINKED: &str = "(i32.const 3) (i32.const 1) (i32.const 80) (i32.const 6)";
    let by_link = |text: String| {
        text.replace(OPEN, LINKED)
            .replace("\"request\"", "\"linked\"")
    };
    // A second descriptor of the file, opened with truncation: nothing is written to the file
    // again, and there is no second freeze.
    let twice = |text: String| {
        let (before, behind) = text.split_once("    (if (call $path_open").unwrap();
        let (opens, behind) = behind.split_once("unreachable))").unwrap();
        let opens = format!("    (if (call $path_open{opens}unreachable))");
        let cuts = opens.replace("(i32.const 7) (i32.const 0)", "(i32.const 7) (i32.const 8)");
        let cuts = cuts.replace("(i64.const 2)", "(i64.const 66)");
        assert!(cuts != opens);
        format!("{before}{opens}\n{cuts}{behind}")
    };
    let (body, times) = answered(by_link, "/p", "a");
    assert!(
        body.starts_with(b"MODE=a\0"),
        "{:?}",
        String::from_utf8_lossy(&body)
    );
    assert_eq!(times, 1);
    assert_eq!(answered(twice, "/p", "a"), (Vec::new(), 1));
}

#[test]
fn no_text_of_a_request_or_a_deployer_is_a_variable_of_its_own_there() {
    let path = "/a%0AB=1%00C=2?d%00E=3";
    let (body, _) = answered(|text| text, path, "x\ny=z=");
    let variables: Vec<_> = body.split(|byte| *byte == 0).collect();
    let of = |name: &str| {
        let begin = format!("{name}=");
        let mut of_name = variables
            .iter()
            .filter(|one| one.starts_with(begin.as_bytes()));
        let found = of_name
            .next()
            .map(|one| String::from_utf8(one.to_vec()).unwrap());
        assert!(of_name.next().is_none(), "{name} twice");
        found
    };
    assert_eq!(of("MODE").unwrap(), "MODE=x\ny=z=");
    assert_eq!(of("PATH_INFO").unwrap(), "PATH_INFO=/a\nB=1%00C=2");
    assert_eq!(of("QUERY_STRING").unwrap(), "QUERY_STRING=d%00E=3");
    for injected in ["B", "C", "E", "y"] {
        assert_eq!(of(injected), None);
    }
}

#[test]
fn draws_before_the_entry_point_are_reported_and_later_ones_are_not() {
    let (code, call) = command("draws");
    let mut ready = call.ready(&code).unwrap();
    ready.run_to_entry().unwrap();
    assert_eq!(
        ready.platform().frozen,
        ["wasi_snapshot_preview1#environ_get: 1 read\nwasi_snapshot_preview1#random_get: 8 bytes"]
    );
}

#[test]
fn the_point_means_nothing_twice_and_behind_a_request() {
    let (code, call) = command("twice");
    let mut ready = call.ready(&code).unwrap();
    ready.run_to_entry().unwrap();
    assert_eq!(ready.platform().frozen.len(), 1);
    let code = compile(HttpComponent, &fixture(COMPONENT));
    let later = String::from_utf8(fixture(COMPONENT)).unwrap();
    let later = later.replace("(call $freeze)", "");
    let later = compile(HttpComponent, later.as_bytes());
    for (code, times) in [(&code, 1), (&later, 0)] {
        let mut ready = get(HttpComponent, "/").ready(code).unwrap();
        // The function draws, and sends no response.
        let failure = ready.handle(get(HttpComponent, "/").request).unwrap_err();
        assert_eq!(failure.outcome, Outcome::NoResponse, "{failure}");
        ready.evaluate("prepare").unwrap();
        assert_eq!(ready.platform().frozen.len(), times);
    }
}

#[test]
fn a_component_reaches_the_entry_point_during_instantiation() {
    let code = compile(HttpComponent, &fixture(COMPONENT));
    let mut ready = get(HttpComponent, "/").ready(&code).unwrap();
    assert_eq!(ready.platform().frozen, [""]);
    // No further freeze occurs, neither through the export nor during a warm-up.
    ready.evaluate("prepare").unwrap();
    assert_eq!(ready.platform().frozen.len(), 1);
}

#[test]
fn a_function_that_never_reaches_its_entry_point_is_reported() {
    for (mode, outcome) in [
        ("never", Outcome::LoadFailed),
        ("exits", Outcome::Exit),
        ("traps", Outcome::Trap),
        ("traps-later", Outcome::Trap),
    ] {
        let (code, call) = command(mode);
        let failure = call.ready(&code).unwrap().run_to_entry().unwrap_err();
        assert_eq!(failure.outcome, outcome, "{failure}");
    }
    let code = compile(HttpComponent, &fixture(COMPONENT));
    let mut ready = get(HttpComponent, "/").ready(&code).unwrap();
    let failure = ready.run_to_entry().unwrap_err();
    assert_eq!(failure.outcome, Outcome::LoadFailed);
}
