//! The position of a request in a distributed trace (W3C Trace Context).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The number of digits of both ids (W3C Trace Context, sections 3.2.2.3 and 3.2.2.4).
const TRACE_DIGITS: usize = 32;
const PARENT_DIGITS: usize = 16;

/// A trace and the operation in it that made a request: `trace-id` and `parent-id` of
/// `traceparent`. Neither is zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: u128,
    parent_id: u64,
}

impl TraceContext {
    /// Parses both ids: exactly 32 and 16 lower-case hexadecimal digits, not all of them zeros.
    #[must_use]
    pub fn read(trace_id: &[u8], parent_id: &[u8]) -> Option<Self> {
        let trace_id = number(trace_id, TRACE_DIGITS)?;
        let parent_id = number(parent_id, PARENT_DIGITS)?;
        let is_valid = trace_id != 0 && parent_id != 0;
        is_valid.then_some(Self {
            trace_id,
            // Sixteen digits are 64 bits.
            parent_id: parent_id as u64,
        })
    }

    /// Returns the id of the trace.
    #[must_use]
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Returns the id of the operation, its span.
    #[must_use]
    pub fn parent_id(&self) -> u64 {
        self.parent_id
    }
}

/// Parses a number with exactly this many hexadecimal digits.
fn number(text: &[u8], digits: usize) -> Option<u128> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = text.len() == digits && text.iter().all(is_digit);
    let text = str::from_utf8(text).ok().filter(|_| is_number)?;
    u128::from_str_radix(text, 16).ok()
}

impl fmt::Display for TraceContext {
    /// Writes both ids with `-` between them, as in `traceparent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:016x}", self.trace_id, self.parent_id)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

/// The ids as logs spell them.
#[derive(Serialize, Deserialize)]
struct TraceContextText {
    trace_id: String,
    parent_id: String,
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let spelled = TraceContextText {
            trace_id: format!("{:032x}", self.trace_id),
            parent_id: format!("{:016x}", self.parent_id),
        };
        spelled.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spelled = TraceContextText::deserialize(deserializer)?;
        Self::read(spelled.trace_id.as_bytes(), spelled.parent_id.as_bytes())
            .ok_or_else(|| D::Error::custom("no ids of a trace"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7");
        let context = TraceContext::read(trace.as_bytes(), parent.as_bytes()).unwrap();
        assert_eq!(
            context.trace_id(),
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c
        );
        assert_eq!(context.parent_id(), 0x00f0_67aa_0ba9_02b7);
        assert_eq!(context.to_string(), format!("{trace}-{parent}"));
        let json = serde_json::to_value(context).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"trace_id": trace, "parent_id": parent})
        );
        assert_eq!(
            serde_json::from_value::<TraceContext>(json).unwrap(),
            context
        );
    }

    #[test]
    fn other_trace_parents_are_rejected() {
        let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7");
        let long = format!("0{trace}");
        for (trace, parent) in [
            (&trace.to_uppercase()[..], parent),
            (trace, "00F067AA0BA902B7"),
            ("00000000000000000000000000000000", parent),
            (trace, "0000000000000000"),
            ("+af7651916cd43dd8448eb211c80319c", parent),
            (trace, "+0f067aa0ba902b7"),
            (&trace[1..], parent),
            (&long, parent),
            (trace, &parent[1..]),
            (trace, "000f067aa0ba902b7"),
            ("", ""),
            ("0af7651916cd43dd8448eb211c8031\u{e9}", parent),
        ] {
            let read = TraceContext::read(trace.as_bytes(), parent.as_bytes());
            assert_eq!(read, None, "{trace} {parent}");
        }
    }
}
