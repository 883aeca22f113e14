//! Through how many functions a request has come: `CDN-Loop` (RFC 8586).
//!
//! Every request that the node makes for a function says in this field where it has been: what the
//! request that the function answers said, and once more the node's word. The function cannot leave
//! it out or say something else, so a loop comes back with as many words as it has turns, through
//! the node's own functions and through others' servers alike.

use faasw_abi::{outgoing::OutgoingHead, wire::Pair};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The field's name.
const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// What all nodes call themselves: a loop between two of them is one, too.
const WORD: &str = "faasw";

/// Most bytes of what others have said that are passed on: with more, the node's own words are.
const OTHERS_BYTES: usize = 1024;

/// Where a request has been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hops {
    /// All that it says.
    said: Vec<u8>,
    /// How often it is the node's word.
    own: usize,
}

impl Hops {
    /// How often the word may stand in a request that is made.
    pub(super) const MOST: usize = 8;

    /// Those of a request with these fields.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(CDN_LOOP).iter();
        let values: Vec<_> = values.map(HeaderValue::as_bytes).collect();
        let said = values.join(&b", "[..]);
        let own = said.split(|byte| *byte == b',').filter(|item| is_own(item));
        let own = own.count();
        if said.len() <= OTHERS_BYTES {
            Self { said, own }
        } else {
            Self {
                said: [WORD].repeat(own.min(Self::MOST)).join(", ").into(),
                own,
            }
        }
    }

    /// Writes it into the head of a request that a function of this node makes, in place of what
    /// that says; whether it may be made.
    pub(super) fn write(&self, head: &mut OutgoingHead) -> bool {
        if self.own >= Self::MOST {
            return false;
        }
        head.headers.retain(|field| !is_in_the_way(field));
        let value = match self.said.as_slice() {
            [] => WORD.into(),
            said => [said, b", ", WORD.as_bytes()].concat(),
        };
        head.headers.push((CDN_LOOP.as_str().into(), value));
        true
    }
}

/// Whether a field of a function's is this one, or says that it is of one connection: whoever sends
/// the request on would take it out (RFC 9110, 7.6.1).
fn is_in_the_way((name, value): &Pair) -> bool {
    let is_it = |text: &[u8]| {
        text.trim_ascii()
            .eq_ignore_ascii_case(CDN_LOOP.as_str().as_bytes())
    };
    let is_nominating = name.eq_ignore_ascii_case(header::CONNECTION.as_str().as_bytes());
    is_it(name) || is_nominating && value.split(|byte| *byte == b',').any(is_it)
}

/// Whether an item of the list is the node's word, whatever parameters are behind it.
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

    /// What a request that a function makes says.
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
    fn each_request_says_where_it_has_been_whatever_the_function_says() {
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
    fn after_eight_there_is_no_other() {
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
    fn long_lists_of_others_are_not_passed_on_and_counted_all_the_same() {
        let long = format!("{}faasw, faasw", "other, ".repeat(1000));
        let hops = of(&[&long]);
        assert_eq!(next(&hops, &[]).unwrap(), ["cdn-loop: faasw, faasw, faasw"]);
        let ours = "faasw,".repeat(10_000);
        assert_eq!(next(&of(&[&ours]), &[]), None);
    }
}
