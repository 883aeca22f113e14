//! Parses the server's answers and checks their form: other clients of the server may have written
//! to the stores' keys.

use ::redis::Value;
use faasw_abi::store::{KEY_MAX, VALUE_MAX};

use super::super::{Changed, Page, Values};

/// The answer does not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnexpectedReply;

/// The result of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Changed(Changed),
    /// The namespace would have more keys than its quota.
    Keys,
    /// The namespace would have more bytes than its quota.
    Bytes,
    /// The value to be incremented is not a number, or would not be one afterwards.
    NoNumber,
}

pub(super) fn number(answer: &Value) -> Result<u64, UnexpectedReply> {
    match answer {
        Value::Int(number) => u64::try_from(*number).map_err(|_| UnexpectedReply),
        Value::BulkString(text) => parsed(text),
        Value::Nil => Ok(0),
        _ => Err(UnexpectedReply),
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Result<T, UnexpectedReply> {
    let text = str::from_utf8(text).map_err(|_| UnexpectedReply)?;
    text.parse().map_err(|_| UnexpectedReply)
}

/// Parses a list of items.
pub(super) fn items(answer: Value) -> Result<Vec<Value>, UnexpectedReply> {
    match answer {
        Value::Array(items) => Ok(items),
        _ => Err(UnexpectedReply),
    }
}

pub(super) fn bytes(answer: Value) -> Result<Vec<u8>, UnexpectedReply> {
    match answer {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(UnexpectedReply),
    }
}

/// Parses a word and the item that follows it, if there is one.
fn word(answer: Value) -> Result<(Vec<u8>, Option<Value>), UnexpectedReply> {
    let mut items = items(answer)?.into_iter();
    let word = bytes(items.next().ok_or(UnexpectedReply)?)?;
    let with = items.next();
    match items.next() {
        None => Ok((word, with)),
        Some(_) => Err(UnexpectedReply),
    }
}

fn value(answer: Value) -> Result<Option<Vec<u8>>, UnexpectedReply> {
    match answer {
        Value::Nil => Ok(None),
        Value::BulkString(value) if value.len() <= VALUE_MAX => Ok(Some(value)),
        _ => Err(UnexpectedReply),
    }
}

/// Parses the values of `count` keys. Returns `None` if the values are too large.
pub(super) fn values(answer: Value, count: usize) -> Result<Option<Values>, UnexpectedReply> {
    match word(answer)? {
        (word, None) if word == b"too much" => Ok(None),
        (word, Some(found)) if word == b"values" => {
            let values = items(found)?.into_iter().map(value);
            let values = values.collect::<Result<Values, _>>()?;
            (values.len() == count)
                .then_some(Some(values))
                .ok_or(UnexpectedReply)
        }
        _ => Err(UnexpectedReply),
    }
}

/// Parses at most `most` keys, and whether there is one more.
pub(super) fn page(answer: Value, most: usize) -> Result<Page, UnexpectedReply> {
    let keys = items(answer)?.into_iter().map(|key| {
        let key = bytes(key)?;
        let is_one = (1..=KEY_MAX).contains(&key.len()) && str::from_utf8(&key).is_ok();
        is_one.then_some(key).ok_or(UnexpectedReply)
    });
    let mut keys = keys.collect::<Result<Vec<_>, _>>()?;
    let more = keys.len() > most;
    keys.truncate(most);
    Ok((keys, more))
}

/// Parses the result of a change.
pub(super) fn outcome(answer: Value) -> Result<Outcome, UnexpectedReply> {
    let (word, with) = word(answer)?;
    Ok(match (word.as_slice(), with) {
        (b"done", None) => Outcome::Changed(Changed::Done),
        (b"number", Some(Value::BulkString(text))) => {
            Outcome::Changed(Changed::Number(parsed(&text)?))
        }
        (b"stale", Some(now)) => Outcome::Changed(Changed::Stale(value(now)?)),
        (b"keys", None) => Outcome::Keys,
        (b"bytes", None) => Outcome::Bytes,
        (b"no number", None) => Outcome::NoNumber,
        _ => return Err(UnexpectedReply),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn array<const N: usize>(items: [Value; N]) -> Value {
        Value::Array(items.into())
    }

    #[test]
    fn script_replies_are_parsed() {
        let number = array([text("number"), text("-9223372036854775808")]);
        assert_eq!(
            outcome(number),
            Ok(Outcome::Changed(Changed::Number(i64::MIN)))
        );
        let stale = array([text("stale"), Value::Nil]);
        assert_eq!(outcome(stale), Ok(Outcome::Changed(Changed::Stale(None))));
        let found = array([text("values"), array([text("a"), Value::Nil])]);
        assert_eq!(values(found, 2), Ok(Some(vec![Some(b"a".to_vec()), None])));
        assert_eq!(values(array([text("too much")]), 2), Ok(None));
        let keys = array([text("a"), text("b")]);
        assert_eq!(page(keys.clone(), 1), Ok((vec![b"a".to_vec()], true)));
        assert!(!page(keys, 2).unwrap().1);
    }

    #[test]
    fn unexpected_replies_are_errors() {
        for answer in [
            Value::Nil,
            Value::Okay,
            text("done"),
            array([]),
            array([Value::Int(1)]),
            array([text("done"), Value::Nil]),
            array([text("number")]),
            array([text("number"), text("9223372036854775808")]),
            array([text("stale"), Value::Int(1)]),
            array([text("stale"), text(&"x".repeat(VALUE_MAX + 1))]),
            array([text("keys"), text("a"), text("b")]),
        ] {
            assert_eq!(outcome(answer.clone()), Err(UnexpectedReply), "{answer:?}");
            assert_eq!(values(answer, 1), Err(UnexpectedReply));
        }
        let large = text(&"x".repeat(KEY_MAX + 1));
        for key in [text(""), large, Value::BulkString(vec![0xff]), Value::Nil] {
            assert_eq!(page(array([key]), 9), Err(UnexpectedReply));
        }
        assert_eq!(
            values(array([text("values"), array([])]), 1),
            Err(UnexpectedReply)
        );
    }
}
