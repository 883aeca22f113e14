//! How many functions a request has passed through, in the header `CDN-Loop` (RFC 8586).
//!
//! The node writes this field into every outbound request of a function: the field of the request
//! that the function answers, followed by the node's word once more. The function cannot remove or
//! change the field. So a request in a loop carries one word for each turn, whether the loop runs
//! through the node's own functions or through other servers.

use faasw_abi::{outgoing::OutgoingHead, wire::Pair};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The field's name.
const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// The name that all nodes use, so that a loop between two nodes is detected, too.
const WORD: &str = "faasw";

/// The largest length of a received field that is passed on, in bytes. Of a longer one, only the
/// words of nodes are passed on.
const OTHERS_BYTES: usize = 1024;

/// Where a request has been, as its field lists it: one word for each function, and the words of
/// other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hops {
    /// The complete field.
    field: Vec<u8>,
    /// How often the node's word is in it.
    own: usize,
}

impl Hops {
    /// How often the word may be in an outbound request.
    pub(super) const MOST: usize = 8;

    /// Returns the hops of a request with these header fields.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(CDN_LOOP).iter();
        let values: Vec<_> = values.map(HeaderValue::as_bytes).collect();
        let field = values.join(&b", "[..]);
        let own = field
            .split(|byte| *byte == b',')
            .filter(|item| is_own(item));
        let own = own.count();
        if field.len() <= OTHERS_BYTES {
            Self { field, own }
        } else {
            Self {
                field: [WORD].repeat(own.min(Self::MOST)).join(", ").into(),
                own,
            }
        }
    }

    /// Writes the field into the head of a function's outbound request, in place of any that the
    /// function has set. Returns whether the request may be made.
    pub(super) fn write(&self, head: &mut OutgoingHead) -> bool {
        if self.own >= Self::MOST {
            return false;
        }
        head.headers.retain(|field| !is_in_the_way(field));
        let value = match self.field.as_slice() {
            [] => WORD.into(),
            field => [field, b", ", WORD.as_bytes()].concat(),
        };
        head.headers.push((CDN_LOOP.as_str().into(), value));
        true
    }
}

/// Whether a function's field is this field, or nominates it as belonging to one connection. An
/// intermediary would remove a nominated field (RFC 9110, 7.6.1).
fn is_in_the_way((name, value): &Pair) -> bool {
    let is_it = |text: &[u8]| {
        text.trim_ascii()
            .eq_ignore_ascii_case(CDN_LOOP.as_str().as_bytes())
    };
    let is_nominating = name.eq_ignore_ascii_case(header::CONNECTION.as_str().as_bytes());
    is_it(name) || is_nominating && value.split(|byte| *byte == b',').any(is_it)
}

/// Whether an item of the list is the node's word, with or without parameters.
fn is_own(item: &[u8]) -> bool {
    let word = item.split(|byte| *byte == b';').next().unwrap_or_default();
    word.trim_ascii().eq_ignore_ascii_case(WORD.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Hops {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CDN_LOOP, HeaderValue::from_str(value).unwrap());
        }
        Hops::of(&headers)
    }

    /// Returns the fields of a function's outbound request.
    fn next(hops: &Hops, fields: &[(&str, &str)]) -> Option<Vec<String>> {
        let pair = |(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
        let mut head = OutgoingHead {
            headers: fields.iter().map(pair).collect(),
            ..OutgoingHead::default()
        };
        let text = |(name, value)| {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            format!("{}: {}", text(name), text(value))
        };
        hops.write(&mut head)
            .then(|| head.headers.into_iter().map(text).collect())
    }

    #[test]
    fn hops_are_recorded_whatever_the_function_sends() {
        let first = next(
            &of(&[]),
            &[
                ("a", "b"),
                ("CDN-Loop", "nobody"),
                ("connection", "close, Cdn-Loop"),
                ("cdn-loop", "x"),
            ],
        );
        assert_eq!(first.unwrap(), ["a: b", "cdn-loop: faasw"]);
        let others = of(&["one; v=1", "Faasw;x, two"]);
        let said = next(&others, &[]).unwrap();
        assert_eq!(said, ["cdn-loop: one; v=1, Faasw;x, two, faasw"]);
    }

    #[test]
    fn a_ninth_hop_is_rejected() {
        let mut hops = of(&[]);
        for turn in 1..=Hops::MOST {
            let said = next(&hops, &[]).unwrap_or_else(|| panic!("{turn}"));
            let (_, value) = said[0].split_once(": ").unwrap();
            hops = of(&[value]);
            assert_eq!(hops.own, turn);
        }
        assert_eq!(next(&hops, &[]), None);
    }

    #[test]
    fn long_foreign_hop_lists_are_counted_but_not_forwarded() {
        let long = format!("{}faasw, faasw", "other, ".repeat(1000));
        let hops = of(&[&long]);
        assert_eq!(next(&hops, &[]).unwrap(), ["cdn-loop: faasw, faasw, faasw"]);
        let ours = "faasw,".repeat(10_000);
        assert_eq!(next(&of(&[&ours]), &[]), None);
    }
}
