//! Which kind of trap a report tells of.
//!
//! The report is the guest's word, so the kinds are a fixed set: a hostile
//! guest can choose among them and no more.

/// What is said of a trap that is none of the known, or not Wasmtime's.
const OTHER: &str = "other";

/// Beginnings of Wasmtime's messages, and what we call them.
const MESSAGES: [(&str, &str); 9] = [
    ("wasm `unreachable`", "unreachable"),
    ("out of bounds memory access", "memory-out-of-bounds"),
    (
        "undefined element: out of bounds table",
        "table-out-of-bounds",
    ),
    ("uninitialized element", "null-element"),
    ("indirect call type mismatch", "signature-mismatch"),
    ("integer divide by zero", "divide-by-zero"),
    ("integer overflow", "integer-overflow"),
    ("invalid conversion to integer", "bad-conversion"),
    ("call stack exhausted", "stack-exhausted"),
];

/// Every kind there is.
pub(super) const KINDS: [&str; 11] = [
    "unreachable",
    "memory-out-of-bounds",
    "table-out-of-bounds",
    "null-element",
    "signature-mismatch",
    "divide-by-zero",
    "integer-overflow",
    "bad-conversion",
    "stack-exhausted",
    "memory-limit",
    OTHER,
];

/// The kind of trap that a report tells of.
pub(super) fn kind(report: &str) -> &'static str {
    if report.starts_with("memory limit of ") {
        return "memory-limit";
    }
    let message = report.strip_prefix("wasm trap: ").unwrap_or(report);
    MESSAGES
        .into_iter()
        .find(|(beginning, _)| message.starts_with(beginning))
        .map_or(OTHER, |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_kinds() {
        for (report, expected) in [
            (
                "wasm trap: integer divide by zero in function 'x'",
                "divide-by-zero",
            ),
            ("wasm `unreachable` instruction executed", "unreachable"),
            (
                "memory limit of 1 MiB was reached\nwasm trap: wasm `unreachable`",
                "memory-limit",
            ),
            ("the function holds too many resources", "other"),
            ("", "other"),
        ] {
            assert_eq!(kind(report), expected, "{report}");
        }
    }

    #[test]
    fn every_kind_is_listed() {
        for (_, kind) in MESSAGES {
            assert!(KINDS.contains(&kind), "{kind}");
        }
    }
}
