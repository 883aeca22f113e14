//! Secrets, configuration and key-value stores.

use crate::support::scripts::{PYTHON, asked};
use crate::support::stores::{assert_operations, records, value};
use crate::{answer, stored};
use faasw_abi::mailbox::{DRAW_SECRET, DRAW_STORE};
use faasw_abi::store::{Answer, ListFrom, Operation};

/// Checks an expression's value and the operations on the function's own store.
#[track_caller]
fn check(expression: &str, answers: &[Answer<'_>], operations: &[Operation<'_>], expected: &str) {
    let (text, sent) = stored(expression, answers);
    assert_eq!(text, expected, "{expression}");
    assert_operations(&sent, operations, expression);
}

#[test]
fn secrets_and_configuration_are_mappings() {
    let call = asked("/")
        .config("colour", "gr\u{fc}n")
        .config("api.url", "https://example.org")
        .secret_value("KEY", "s3cret")
        .secret("UNSET");
    let text = "import faasw
from faasw import config, secrets
EARLY = config['colour'], config.get('no'), sorted(config), sorted(secrets), 'KEY' in secrets
def error(name):
    try:
        return secrets[name]
    except KeyError as error:
        return error.args[0]
def handler(request):
    return repr([EARLY, dict(config), secrets['KEY'], secrets.get('UNSET'), secrets.get('no', 7),
        'no' in secrets, 'KEY' in config, repr(secrets), repr(secrets.items()), error('no'), \
                error('UNSET')])
";
    assert_eq!(
        answer(text, call),
        "[('grün', None, ['api.url', 'colour'], ['KEY', 'UNSET'], True), \
         {'colour': 'grün', 'api.url': 'https://example.org'}, 's3cret', None, 7, False, False, \
         '<secrets: KEY, UNSET>', 'ItemsView(<secrets: KEY, UNSET>)', \
         \"no secret 'no' is granted: deploy with --secret no\", \
         \"the secret 'UNSET' has no value: set it with `faasw secret set`\"]"
    );
}

/// A secret at the top level would become a part of the seed.
#[test]
fn what_only_a_request_may_use_fails_at_the_top_level_with_file_and_line() {
    let secret = "the secret 'KEY' is only available while a request is answered";
    let store = "the key-value store 'default' is only available while a request is answered";
    for (text, wanted) in [
        ("import faasw\n\nfaasw.secrets['KEY']", secret),
        ("import faasw\n\nfaasw.secrets.get('KEY')", secret),
        ("from faasw import secrets\n\ndict(secrets)", secret),
        ("import faasw\n\nfaasw.kv.open()", store),
        ("from faasw.kv import open\n\nopen('default')", store),
        (
            "import threading\n\nthreading.Timer(1, print).start()",
            "a timer is only available while a request is answered",
        ),
    ] {
        let call = asked("/").secret_value("KEY", "s3cret");
        match PYTHON.init(&[("a.py", text.as_bytes())], &call) {
            Ok(_) => panic!("it was taken: {text}"),
            Err(failure) => {
                let start = format!("a.py:3: RuntimeError: {wanted}");
                assert!(failure.report.starts_with(&start), "{}", failure.report);
            }
        }
    }
    // The node does not depend on the engine for this.
    for text in [
        "import faasw, _faasw.phase\n_faasw.phase.in_request = True\nfaasw.secrets['KEY']",
        "import faasw, _faasw.phase\n_faasw.phase.in_request = True\nfaasw.kv.open().get('k')",
        "import faasw\nfrom wit_world.imports import wasi_config_store as s\ns.get('KEY')",
    ] {
        let call = asked("/").secret_value("KEY", "s3cret");
        match PYTHON.init(&[("a.py", text.as_bytes())], &call) {
            Ok(_) => panic!("it was taken: {text}"),
            Err(failure) => {
                let report = failure.report;
                assert!(
                    report.starts_with("a.py:3: ") && !report.contains("s3cret"),
                    "{report}"
                );
            }
        }
    }
    // Nothing of a failed attempt remains, and the node knows of no draw.
    let text = "import faasw
try:
    faasw.secrets['KEY']
except RuntimeError:
    pass
def handler(request):
    return faasw.secrets['KEY']
";
    let call = asked("/").secret_value("KEY", "s3cret");
    let mut ready = PYTHON.init(&[("a.py", text.as_bytes())], &call).unwrap();
    assert_eq!(ready.draws().bits() & (DRAW_SECRET | DRAW_STORE), 0);
    ready.handle(call.request).unwrap();
    assert_eq!(ready.platform().response_body, b"s3cret");
}

#[test]
fn stores_are_read_and_changed() {
    use Operation::{Delete, Exists, Get, Set};
    let key = || Get(vec![b"k".as_slice()]);
    let none = || Answer::Values(vec![None]);
    let done = Answer::Done;
    check("store.get('k')", &[value("v")], &[key()], "b'v'");
    check("store.get('k', 1)", &[none()], &[key()], "1");
    check("store.get_text('k')", &[value("ü")], &[key()], "'ü'");
    check("store.get_json('k')", &[value("[1]")], &[key()], "[1]");
    check("store.get_json('k', {})", &[none()], &[key()], "{}");
    for (expression, bytes) in [
        ("store.set('k', 'ü')", "ü".as_bytes()),
        ("store.set('k', b'\\xff')", b"\xff"),
        ("store.set('k', memoryview(b'ab'))", b"ab"),
        (
            "store.set_json('k', {'a': 'ü'})",
            "{\"a\": \"ü\"}".as_bytes(),
        ),
    ] {
        let set = Set(vec![(b"k", bytes)]);
        check(expression, std::slice::from_ref(&done), &[set], "None");
    }
    let delete = Delete(vec![b"k"]);
    check(
        "store.delete('k')",
        std::slice::from_ref(&done),
        &[delete],
        "None",
    );
    let exists = [Answer::Exists(true)];
    check("store.exists('k')", &exists, &[Exists(b"k")], "True");
    let many = [Answer::Values(vec![Some(b"1"), None])];
    let get = Get(vec![b"a", b"b"]);
    check("store.get_many(['a', 'b'])", &many, &[get], "{'a': b'1'}");
    let set = Set(vec![(b"a", b"1"), (b"b", b"2")]);
    let two = [done];
    check(
        "store.set_many({'a': '1', 'b': b'2'})",
        &two,
        &[set],
        "None",
    );
    let delete = Delete(vec![b"a", b"b"]);
    check("store.delete_many(iter('ab'))", &two, &[delete], "None");
    let add = Operation::Increment(b"n", -2);
    let sum = [Answer::Number(-7)];
    check("store.increment('n', -2)", &sum, &[add], "-7");
}

#[test]
fn keys_are_listed_by_pages_and_by_prefix() {
    let page = |keys: &[&'static str], has_more| {
        Answer::Keys(keys.iter().map(|key| key.as_bytes()).collect(), has_more)
    };
    let pages = [page(&["a", "b"], true), page(&["c"], false)];
    let from = Operation::Keys;
    let lists = [from(ListFrom::Start), from(ListFrom::Behind(b"b"))];
    check("list(store.keys())", &pages, &lists, "['a', 'b', 'c']");
    // A list of a prefix begins there and ends behind it.
    let pages = [Answer::Exists(true), page(&["a:1", "a:2", "b"], true)];
    let lists = [Operation::Exists(b"a:"), from(ListFrom::Behind(b"a:"))];
    check(
        "list(store.keys('a:'))",
        &pages,
        &lists,
        "['a:', 'a:1', 'a:2']",
    );
}

#[test]
fn a_value_is_replaced_only_if_it_has_not_changed() {
    let done = Answer::Done;
    let swap = |seen, value| Operation::Swap {
        key: b"k",
        seen,
        value,
    };
    let read = || Operation::Get(vec![b"k".as_slice()]);
    check(
        "store.compare_and_swap('k', 'old', 'new')",
        &[value("old"), done.clone()],
        &[read(), swap(Some(b"old"), b"new")],
        "True",
    );
    check(
        "store.compare_and_swap('k', None, 'new')",
        &[value("old")],
        &[read()],
        "False",
    );
    check(
        "store.update('k', lambda value: (value or b'') + b'x')",
        &[value("1"), value("2"), value("2"), done],
        &[
            read(),
            swap(Some(b"1"), b"1x"),
            read(),
            swap(Some(b"2"), b"2x"),
        ],
        "b'2x'",
    );
}

#[test]
fn errors_of_stores_have_the_store_s_words() {
    let failed = [Answer::Failed("the store is full")];
    let (text, _) = stored("store.set('k', 'v')", &failed);
    assert_eq!(text, "StoreError: the store is full");
    let (text, _) = stored("store.increment('k')", &failed);
    assert_eq!(text, "StoreError: the store is full");
    let refused = [Answer::Denied];
    let (text, _) = stored("faasw.kv.open('other')", &refused);
    assert_eq!(
        text,
        "AccessDenied: the store 'other' is not granted: deploy with --kv other"
    );
    for expression in [
        "store.get(1)",
        "store.set('k', 1)",
        "store.get('\\ud800')",
        "faasw.kv.open(b'x')",
        "store.increment('k', 1 << 63)",
    ] {
        let (text, sent) = stored(expression, &[]);
        let is_refused = ["TypeError", "UnicodeEncodeError", "OverflowError"]
            .iter()
            .any(|name| text.starts_with(name));
        assert!(is_refused, "{expression}: {text}");
        assert_eq!(records(&sent).len(), 0, "{expression}");
    }
}
