//! `traceparent` and `tracestate`: where a request is in a distributed trace (W3C Trace Context,
//! levels 1 and 2).
//!
//! A node passes both on as they came and removes what cannot be read, as proxies may (section
//! *Alternative Processing*): the function goes on with its caller's trace, or begins its own.

use faasw_client::TraceContext;
use http::{HeaderMap, HeaderName};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Most members of `tracestate` (section *list*).
const MEMBERS: usize = 32;
/// Longest key and value of a member (section *list-members*).
const PART_BYTES: usize = 256;

/// The trace of a request, as its client says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// None where there is no `traceparent` that can be read.
    context: Option<TraceContext>,
    /// Its `tracestate` can be passed on.
    has_state: bool,
}

impl Trace {
    /// That of a request with these fields.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let context = values.next().and_then(|value| read(value.as_bytes()));
        // Of two nobody knows which one counts.
        let context = context.filter(|_| values.next().is_none());
        Self {
            context,
            // Without the one the other means nothing (section *No traceparent Received*).
            has_state: context.is_some() && is_state(headers),
        }
    }

    /// The ids, where there are any.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Whether a field of the request is not for its function.
    pub(super) fn hides(&self, name: &HeaderName) -> bool {
        (self.context.is_none() && *name == TRACEPARENT) || (!self.has_state && *name == TRACESTATE)
    }
}

/// Reads a `traceparent` (section 3.2.2), also one of a later version (section 3.2.4): as far as
/// version 00 says what it is.
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

/// The first so many bytes, and what is behind them.
fn part(value: &[u8], bytes: usize) -> Option<(&[u8], &[u8])> {
    value.split_at_checked(bytes)
}

/// Whether the `tracestate` fields are a list of members (section 3.3). Keys may come twice: who
/// reads them says which counts.
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

/// `key "=" value`. Keys are those of level 2, which has all that level 1 had.
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
