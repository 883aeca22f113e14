//! `traceparent` and `tracestate`: the position of a request in a distributed trace (W3C Trace
//! Context, levels 1 and 2).
//!
//! A node forwards both unchanged and removes those that it cannot parse, as proxies may (section
//! *Alternative Processing*): the function continues its caller's trace, or starts its own.

use faasw_client::TraceContext;
use http::{HeaderMap, HeaderName};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Maximum number of members of `tracestate` (section *list*).
const MEMBERS: usize = 32;
/// Maximum length of a member's key and value in bytes (section *list-members*).
const PART_BYTES: usize = 256;

/// The trace of a request, as its client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The ids; `None` without a valid `traceparent`.
    context: Option<TraceContext>,
    /// Whether the `tracestate` can be forwarded.
    has_state: bool,
}

impl Trace {
    /// Returns the trace of a request with these fields.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let context = values.next().and_then(|value| read(value.as_bytes()));
        // With two values, it is unknown which one counts.
        let context = context.filter(|_| values.next().is_none());
        Self {
            context,
            // Without `traceparent`, `tracestate` means nothing (section *No traceparent
            // Received*).
            has_state: context.is_some() && is_state(headers),
        }
    }

    /// Returns the ids, if there are any.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Whether a field of the request is hidden from its function.
    pub(super) fn hides(&self, name: &HeaderName) -> bool {
        (self.context.is_none() && *name == TRACEPARENT) || (!self.has_state && *name == TRACESTATE)
    }
}

/// Parses a `traceparent` (section 3.2.2), also one of a later version (section 3.2.4): the part
/// that version 00 defines.
fn read(value: &[u8]) -> Option<TraceContext> {
    let (version, rest) = part(value, 2)?;
    let (trace_id, rest) = part(rest.strip_prefix(b"-")?, 32)?;
    let (parent_id, rest) = part(rest.strip_prefix(b"-")?, 16)?;
    let (flags, rest) = part(rest.strip_prefix(b"-")?, 2)?;
    let is_hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let numbers = version.iter().chain(flags);
    let may_follow = match version {
        b"00" => rest.is_empty(),
        _ => rest.is_empty() || rest.starts_with(b"-"),
    };
    if version == b"ff" || !numbers.into_iter().all(is_hexadecimal) || !may_follow {
        return None;
    }
    TraceContext::read(trace_id, parent_id)
}

/// Splits a value after `bytes` bytes.
fn part(value: &[u8], bytes: usize) -> Option<(&[u8], &[u8])> {
    value.split_at_checked(bytes)
}

/// Whether the `tracestate` fields are a list of members (section 3.3). A key may occur twice; the
/// reader decides which one counts.
fn is_state(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TRACESTATE).iter();
    let members = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut count = 0;
    for member in members.map(<[u8]>::trim_ascii) {
        if member.is_empty() {
            continue;
        }
        count += 1;
        if count > MEMBERS || !is_member(member) {
            return false;
        }
    }
    count > 0
}

/// Whether a member is `key "=" value`. Keys follow level 2, which includes all keys of level 1.
fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
        return false;
    };
    let (key, value) = member.split_at(equals);
    let value = value.get(1..).unwrap_or_default();
    let fits = |part: &[u8]| (1..=PART_BYTES).contains(&part.len());
    let begins = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_of_key = |byte: &u8| begins(byte) || b"_-*/@".contains(byte);
    let is_of_value = |byte: &u8| matches!(byte, b' '..=b'~') && !b",=".contains(byte);
    fits(key)
        && fits(value)
        && key.first().is_some_and(begins)
        && key.iter().all(is_of_key)
        && value.iter().all(is_of_value)
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
