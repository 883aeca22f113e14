//! The cases follow the test suite of the specification (w3c/trace-context, `test/test.py`), and
//! the section that each names.

use super::*;
use http::HeaderValue;

const TRACE: &str = "12345678901234567890123456789012";
const PARENT: &str = "1234567890123456";
const SENT: &str = "00-12345678901234567890123456789012-1234567890123456-01";

fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        headers.append(*name, value);
    }
    headers
}

fn expected() -> Option<TraceContext> {
    TraceContext::read(TRACE.as_bytes(), PARENT.as_bytes())
}

#[track_caller]
fn assert_nothing_passes(headers: &HeaderMap) {
    let trace = Trace::of(headers);
    assert_eq!(trace.context(), None, "{headers:?}");
    assert!(
        trace.hides(&TRACEPARENT) && trace.hides(&TRACESTATE),
        "{headers:?}"
    );
}

#[test]
fn valid_trace_parents_are_forwarded() {
    for value in [
        SENT,
        "00-12345678901234567890123456789012-1234567890123456-00",
        // test_propagates_random_flag, and unknown flags (section 3.2.2.5.3).
        "00-12345678901234567890123456789012-1234567890123456-02",
        "00-12345678901234567890123456789012-1234567890123456-ff",
        // test_traceparent_version_0xcc.
        "cc-12345678901234567890123456789012-1234567890123456-01",
        "cc-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like",
        "01-12345678901234567890123456789012-1234567890123456-01-",
    ] {
        assert_eq!(read(value.as_bytes()), expected(), "{value}");
        let sent = Trace::of(&fields(&[("traceparent", value)]));
        assert_eq!(sent.context(), expected());
        assert!(!sent.hides(&TRACEPARENT), "{value}");
    }
}

#[test]
fn invalid_trace_parents_are_removed() {
    for value in [
        "",
        "-",
        "00",
        "00-",
        // test_traceparent_version_0x00.
        "00-12345678901234567890123456789012-1234567890123456-01.",
        "00-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like",
        "00-12345678901234567890123456789012-1234567890123456-01-",
        // test_traceparent_version_0xcc.
        "cc-12345678901234567890123456789012-1234567890123456-01.what-the-future-will-be-like",
        // test_traceparent_version_0xff.
        "ff-12345678901234567890123456789012-1234567890123456-01",
        // test_traceparent_version_illegal_characters.
        ".0-12345678901234567890123456789012-1234567890123456-01",
        "0.-12345678901234567890123456789012-1234567890123456-01",
        "CC-12345678901234567890123456789012-1234567890123456-01",
        // test_traceparent_version_too_long and _too_short.
        "000-12345678901234567890123456789012-1234567890123456-01",
        "0000-12345678901234567890123456789012-1234567890123456-01",
        "0-12345678901234567890123456789012-1234567890123456-01",
        // test_traceparent_trace_id_…
        "00-00000000000000000000000000000000-1234567890123456-01",
        "00-.2345678901234567890123456789012-1234567890123456-01",
        "00-1234567890123456789012345678901.-1234567890123456-01",
        "00-123456789012345678901234567890123-1234567890123456-01",
        "00-1234567890123456789012345678901-1234567890123456-01",
        "00-1234567890123456789012345678901A-1234567890123456-01",
        // test_traceparent_parent_id_…
        "00-12345678901234567890123456789012-0000000000000000-01",
        "00-12345678901234567890123456789012-.234567890123456-01",
        "00-12345678901234567890123456789012-123456789012345.-01",
        "00-12345678901234567890123456789012-12345678901234567-01",
        "00-12345678901234567890123456789012-123456789012345-01",
        // test_traceparent_trace_flags_…
        "00-12345678901234567890123456789012-1234567890123456-.0",
        "00-12345678901234567890123456789012-1234567890123456-0.",
        "00-12345678901234567890123456789012-1234567890123456-001",
        "00-12345678901234567890123456789012-1234567890123456-1",
        "00-12345678901234567890123456789012-1234567890123456-0A",
        // Other delimiters, a list, and a character that is not ASCII.
        "00_12345678901234567890123456789012_1234567890123456_01",
        "00-12345678901234567890123456789012-1234567890123456",
        "00-12345678901234567890123456789012-1234567890123456-01, 00-1",
        "00-12345678901234567890123456789012-1234567890123456-\u{e9}",
        &"0".repeat(20_000),
    ] {
        assert_eq!(read(value.as_bytes()), None, "{value}");
        let headers = fields(&[("traceparent", value), ("tracestate", "foo=1")]);
        assert_nothing_passes(&headers);
    }
}

#[test]
fn two_trace_parents_are_removed() {
    // test_traceparent_duplicated.
    let other = SENT.replace("9012-1", "9011-1");
    for second in [SENT, &other, ""] {
        let headers = fields(&[("traceparent", SENT), ("traceparent", second)]);
        assert_nothing_passes(&headers);
    }
}

#[test]
fn a_state_without_a_parent_is_discarded() {
    // test_tracestate_included_traceparent_missing.
    assert_nothing_passes(&fields(&[("tracestate", "foo=1,bar=2")]));
}

fn state(values: &[&str]) -> bool {
    let mut pairs = vec![("traceparent", SENT)];
    pairs.extend(values.iter().map(|value| ("tracestate", *value)));
    let trace = Trace::of(&fields(&pairs));
    // The state makes no difference to the parent (section 3.3).
    assert_eq!(trace.context(), expected());
    assert!(!trace.hides(&TRACEPARENT));
    !trace.hides(&TRACESTATE)
}

#[test]
fn valid_trace_states_are_forwarded() {
    let members = |from: usize, to: usize| {
        let members: Vec<_> = (from..=to).map(|n| format!("bar{n:02}={n:02}")).collect();
        members.join(",")
    };
    let long = |bytes| format!("{}=1", "z".repeat(bytes));
    let long_value = |bytes| format!("a={}", "z".repeat(bytes));
    let all_of_value: String = (b' '..=b'~')
        .map(char::from)
        .filter(|c| !",=".contains(*c))
        .collect();
    for (values, kept) in [
        // test_tracestate_included_traceparent_included, _multiple_headers_different_keys.
        (&["foo=1,bar=2"][..], true),
        (&["foo=1,bar=2", "rojo=1,congo=2", "baz=3"], true),
        // test_tracestate_empty_header.
        (&[], false),
        (&[""], false),
        (&["foo=1", ""], true),
        (&["", "foo=1"], true),
        (&[",,foo=1,"], true),
        // test_tracestate_duplicated_keys.
        (&["foo=1,foo=1"], true),
        (&["foo=1", "foo=2"], true),
        // test_tracestate_all_allowed_characters.
        (&["abcdefghijklmnopqrstuvwxyz0123456789_-*/=1"], true),
        (&["0abc_-*/@a-z0=1"], true),
        (&[&format!("a={all_of_value}")], true),
        // test_tracestate_ows_handling.
        (&["foo=1 \t , \t bar=2, \t baz=3"], true),
        (&["\t foo=1 \t"], true),
        // test_tracestate_key_illegal_characters, _key_illegal_vendor_format.
        (&["foo =1"], false),
        (&["FOO=1"], false),
        (&["foo.bar=1"], false),
        (&["foo@=1,bar=2"], true),
        (&["@foo=1,bar=2"], false),
        (&["foo@bar@baz=1,bar=2"], true),
        (&["_foo=1"], false),
        // test_tracestate_member_count_limit.
        (&[&members(1, 20), &members(21, 32)], true),
        (&[&members(1, 20), &members(21, 33)], false),
        // test_tracestate_key_length_limit, and the same limit for values.
        (&["foo=1", &long(256)], true),
        (&["foo=1", &long(257)], false),
        (&[&long_value(256)], true),
        (&[&long_value(257)], false),
        // test_tracestate_value_illegal_characters.
        (&["foo=bar=baz"], false),
        (&["foo=,bar=3"], false),
        (&["foo"], false),
        (&["=1"], false),
        (&["foo=a\tb"], false),
        (&["foo=\u{e9}"], false),
    ] {
        assert_eq!(state(values), kept, "{values:?}");
    }
}

#[test]
fn trace_parsing_never_panics() {
    let mut random = fastrand::Rng::new();
    for _ in 0..20_000 {
        let mut value = SENT.as_bytes().to_vec();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(0..value.len());
            match random.u8(0..3) {
                0 => value[at] = random.u8(..),
                1 => {
                    value.remove(at);
                }
                _ => value.insert(at, random.u8(..)),
            }
        }
        // An accepted context is what the bytes say.
        if let Some(context) = read(&value) {
            let ids = context.to_string();
            assert!(value[3..].starts_with(ids.as_bytes()), "{value:?}");
        }
    }
}
