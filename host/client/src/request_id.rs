//! The id of a request, by which logs and reports about it are found.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// Maximum length in bytes: that of the ids of common proxies.
const LONGEST: usize = 64;

/// The id of a request: 1 to 64 ASCII letters, digits, `-`, `_`, `.` and `:`.
///
/// An id can be written to any log unescaped. An id from a node has 128 random bits, as 32
/// lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Bytes after the text are zero.
    bytes: [u8; LONGEST],
    length: u8,
}

/// The error that a text is not an id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a request's id is 1 to {LONGEST} ASCII letters, digits, `-`, `_`, `.` and `:`")]
pub struct RequestIdError;

impl RequestId {
    /// Creates an id from 128 bits, as hexadecimal digits.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        let mut bytes = [0; LONGEST];
        for (two, byte) in bytes.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
            two.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xF)]);
        }
        Self { bytes, length: 32 }
    }

    /// Parses an id from a client.
    ///
    /// # Errors
    /// Returns [`RequestIdError`] if the id is empty, too long, or has another character.
    pub fn read(text: &[u8]) -> Result<Self, RequestIdError> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
        let mut bytes = [0; LONGEST];
        let room = bytes.get_mut(..text.len()).ok_or(RequestIdError)?;
        if text.is_empty() || !text.iter().all(is_allowed) {
            return Err(RequestIdError);
        }
        room.copy_from_slice(text);
        // The text is at most as long as the array.
        let length = text.len() as u8;
        Ok(Self { bytes, length })
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..usize::from(self.length));
        str::from_utf8(text.unwrap_or_default()).unwrap_or_default()
    }
}

/// Returns the hexadecimal digit of four bits.
fn digit(bits: u8) -> u8 {
    match bits {
        0..10 => b'0' + bits,
        bits => b'a' + (bits - 10),
    }
}

impl FromStr for RequestId {
    type Err = RequestIdError;

    fn from_str(text: &str) -> Result<Self, RequestIdError> {
        Self::read(text.as_bytes())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestId").field(&self.as_str()).finish()
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spelled_as_hexadecimal_digits() {
        for (bits, text) in [
            (0, "00000000000000000000000000000000"),
            (u128::MAX, "ffffffffffffffffffffffffffffffff"),
            (
                0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
                "0123456789abcdeffedcba9876543210",
            ),
        ] {
            let id = RequestId::from_bits(bits);
            assert_eq!(id.as_str(), text);
            assert_eq!(text.parse(), Ok(id));
        }
    }

    #[test]
    fn foreign_request_ids_are_checked_for_characters_and_length() {
        let longest = "x".repeat(LONGEST);
        for text in ["a", "A-b_c.d:9", "-", longest.as_str()] {
            assert_eq!(RequestId::read(text.as_bytes()).unwrap().as_str(), text);
        }
        let longer = "x".repeat(LONGEST + 1);
        let huge = "x".repeat(20_000);
        for text in [
            "",
            " ",
            "a b",
            " a",
            "a ",
            "a\tb",
            "a\r\nb: c",
            "a\nb",
            "a\0",
            "\u{1b}[2J",
            "a/b",
            "a,b",
            "a;b",
            "a=b",
            "\"",
            "'",
            "\\",
            "<a>",
            "{}",
            "%0a",
            "\u{e9}",
            "\u{202e}",
            &longer,
            &huge,
        ] {
            assert_eq!(
                RequestId::read(text.as_bytes()),
                Err(RequestIdError),
                "{text:?}"
            );
        }
        assert_eq!(RequestId::read(b"\xff"), Err(RequestIdError));
    }

    #[test]
    fn unused_bytes_of_a_request_id_do_not_affect_equality() {
        let (long, short) = (
            RequestId::read(b"abc").unwrap(),
            RequestId::read(b"ab").unwrap(),
        );
        assert_ne!(long, short);
        assert_eq!(short, "ab".parse().unwrap());
        assert_eq!(
            format!("{short}|{short:>4}|{short:?}"),
            "ab|  ab|RequestId(\"ab\")"
        );
    }
}
