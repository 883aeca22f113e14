//! The input of a language engine, the resulting function, and errors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::mailbox::DRAW_ENTROPY;
use faasw_abi::outcome::Outcome;
use faasw_abi::script;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::testing::MemoryPlatform;

use support::{Call, CgiModule, HttpComponent, Kind, bytes, compile, fixture, get};

static LUA: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/lua-engine.wasm")));

/// Returns an engine that received `sent`, to become the function of `call`.
fn given(code: &[u8], sent: Vec<u8>, call: &Call) -> Result<Ready<MemoryPlatform>, Failure> {
    let mut ready = get(call.config.kind, "/").ready(code).unwrap();
    ready.platform_mut().script = Some((sent, 0));
    let bytes = ready.script_length()?;
    ready.take_script(bytes, call.config.clone(), call.files)?;
    Ok(ready)
}

fn lua(text: &str, call: &Call) -> Result<Ready<MemoryPlatform>, Failure> {
    let script = script::write(&[("a.lua", text.as_bytes())]).unwrap();
    given(&LUA, script, call)
}

#[track_caller]
fn refused(made: Result<Ready<MemoryPlatform>, Failure>, outcome: Outcome) -> String {
    match made {
        Ok(_) => panic!("it was taken"),
        Err(failure) => {
            assert_eq!(failure.outcome, outcome, "{failure}");
            failure.report
        }
    }
}

#[test]
fn an_engine_becomes_the_function_of_its_script() {
    let call = get(HttpComponent, "/x").environment("A", "b");
    let text = "local a = os.getenv('A') return function(r) return a .. r.path end";
    let mut ready = lua(text, &call).unwrap();
    ready.handle(call.request).unwrap();
    assert_eq!(ready.platform().response_body, bytes("b/x"));
}

#[test]
fn draws_of_the_script_are_reported_and_those_of_the_engine_are_not() {
    let call = get(HttpComponent, "/");
    let ready = lua("return function() return random(4) end", &call).unwrap();
    assert!(ready.draws().is_empty());
    let ready = lua("local a = random(4) return function() return a end", &call).unwrap();
    assert_eq!(ready.draws().bits(), DRAW_ENTROPY);
    let told = ready.draws().to_string();
    assert!(told.ends_with(": 4 bytes"), "{told}");
}

#[test]
fn an_error_is_reported_with_file_line_and_stack() {
    let call = get(HttpComponent, "/");
    let text = "local function f() error('no\\nway') end\nf()";
    let report = refused(lua(text, &call), Outcome::LoadFailed);
    assert!(report.starts_with("a.lua:1: no\nway\n  "), "{report}");
    assert!(report.contains("\n  \ta.lua:2: in main chunk"), "{report}");
    // Reports have a maximum length.
    let long = format!("error(('x'):rep({}))", 1 << 19);
    let report = refused(lua(&long, &call), Outcome::LoadFailed);
    assert_eq!(report.len(), 4096);
}

#[test]
fn a_script_has_its_own_memory_limit() {
    let grows = "local t = ('x'):rep(8 << 20) return function() return #t .. '' end";
    let mut ready = lua(grows, &get(HttpComponent, "/").memory(64 << 20)).unwrap();
    ready.handle(get(HttpComponent, "/").request).unwrap();
    assert_eq!(ready.platform().response_body, bytes("8388608"));
    let small = get(HttpComponent, "/").memory(4 << 20);
    let report = refused(lua(grows, &small), Outcome::LoadFailed);
    assert!(report.contains("not enough memory"), "{report}");
    let less = get(HttpComponent, "/").memory(64 << 10);
    let report = refused(lua("return print", &less), Outcome::LoadFailed);
    assert!(report.contains("memory limit is 64 KiB"), "{report}");
}

#[test]
fn an_invalid_script_or_engine_is_refused() {
    let call = get(HttpComponent, "/");
    let script = script::write(&[("a.lua", b"return print")]).unwrap();
    let cut = script[..script.len() - 1].to_vec();
    let report = refused(given(&LUA, cut, &call), Outcome::LoadFailed);
    assert!(report.contains("the script is malformed"), "{report}");
    let none = get(HttpComponent, "/").ready(&LUA).unwrap();
    let mut none = none;
    let failure = none.script_length().unwrap_err();
    assert_eq!(failure.outcome, Outcome::GuestFailed);
    let probe = compile(HttpComponent, &fixture("tests/fixtures/http-probe.wasm"));
    let report = refused(given(&probe, script.clone(), &call), Outcome::LoadFailed);
    assert!(
        report.contains("faasw:engine/script@0.1.0#init"),
        "{report}"
    );
    let command = compile(CgiModule, &fixture("tests/fixtures/cgi-probe.wasm"));
    let report = refused(
        given(&command, script, &get(CgiModule, "/")),
        Outcome::LoadFailed,
    );
    assert!(report.contains("module"), "{report}");
}

/// Tells which files can be opened, before and during a request. The engine has no library to read
/// them.
const LOOKS: &str = "
    local function there(path) return tostring(package.searchpath(path, '?') ~= nil) end
    local early = there('/data/first')
    return function()
        return table.concat({ early, there('/data/lib/second'), there('/data/none') }, ' ')
    end";

#[test]
fn a_script_has_its_files_before_and_during_a_request() {
    let files: [(Kind, &str, &[u8]); 2] = [
        (Kind::File, "first", b"1"),
        (Kind::File, "lib/second", b"2"),
    ];
    let told = |call: &Call| {
        let mut ready = lua(LOOKS, call).unwrap();
        assert!(ready.draws().is_empty(), "{}", ready.draws());
        ready.handle(call.request.clone()).unwrap();
        String::from_utf8(ready.platform().response_body.clone()).unwrap()
    };
    let call = get(HttpComponent, "/").files("/data", &files);
    assert_eq!(told(&call), "true true false");
    let call = get(HttpComponent, "/").files("/", &[(Kind::File, "data/first", b"1")]);
    assert_eq!(told(&call), "true false false");
    assert_eq!(told(&get(HttpComponent, "/")), "false false false");
}

#[test]
fn invalid_files_of_a_script_are_refused() {
    let mut call = get(HttpComponent, "/").files("/", &[(Kind::File, "a", b"a")]);
    call.files = call.files.map(|bundle| &bundle[..bundle.len() / 2]);
    refused(lua("return print", &call), Outcome::LoadFailed);
}

#[test]
fn a_script_of_the_maximum_size_is_loaded() {
    let text: &[u8] = b"return function() return 'loaded' end";
    let data = vec![b'x'; script::SCRIPT_MAX - text.len() - 100];
    let sent = script::write(&[("a.lua", text), ("data", &*data)]).unwrap();
    assert!(sent.len() > script::SCRIPT_MAX - 100);
    // The engine has the list of the files, and copies of their contents.
    let call = get(HttpComponent, "/").memory(160 << 20);
    let mut ready = given(&LUA, sent.clone(), &call).unwrap();
    ready.handle(call.request).unwrap();
    assert_eq!(ready.platform().response_body, bytes("loaded"));
    let small = get(HttpComponent, "/").memory(32 << 20);
    let failure = given(&LUA, sent, &small).err().unwrap();
    let report = &failure.report;
    assert!(report.contains("memory limit of 32 MiB"), "{report}");
}
