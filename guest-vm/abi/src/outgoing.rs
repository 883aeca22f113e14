//! Requests that a function makes: what passes on the channel of one.
//!
//! An outgoing request is an invocation with the sides changed: a message to the host
//! ([`OutgoingHead`], body, [`Tail`]) and one back ([`Answer`], body, [`Tail`]). Whoever speaks to
//! the server makes the one back, so the node has no part in it but to move it: it looks at the
//! head of the request alone. See `docs/decisions/0026-reaching-out.md`.

use alloc::vec::Vec;

use zerocopy::TryFromBytes;

use crate::wire::{Pair, Reader, ResponseHead, WireError, Writer};

/// The head of a request that a function makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingHead {
    /// Method.
    pub method: Vec<u8>,
    /// `http`, `https`, or another that nobody speaks.
    pub scheme: Vec<u8>,
    /// Host and port, as the function named them; empty when it did not.
    pub authority: Vec<u8>,
    /// Path and query; begins with `/`.
    pub path_and_query: Vec<u8>,
    /// Header fields in order, names in lower case.
    pub headers: Vec<Pair>,
    /// How long it may take.
    pub timeouts: Timeouts,
}

/// How long parts of a request may take, in nanoseconds; 0 where the function has not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection: name, connecting, TLS.
    pub connect: u64,
    /// From then to the answer's head.
    pub first_byte: u64,
    /// From one piece of the answer's body to the next.
    pub between_bytes: u64,
}

/// The head of what comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response: its body follows.
    Response(ResponseHead),
    /// None, and why: nothing follows.
    Failed(Failure),
}

/// What is behind a body, in both messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The body is whole, and these are its trailers.
    Trailers(Vec<Pair>),
    /// The body ends in the middle, and why.
    Failed(Failure),
}

/// Why a request failed: a case of `error-code` of `wasi:http/types`, with what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The case.
    pub code: FailureCode,
    /// A text, where the case has room for one: an rcode, a name of a field, a coding, a message.
    pub text: Option<Vec<u8>>,
    /// A number, where it has room for one: of an alert, of bytes.
    pub number: Option<u64>,
}

/// The cases of `error-code` of `wasi:http/types@0.2`, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
#[expect(missing_docs, reason = "wasi:http/types says what each means")]
pub enum FailureCode {
    DnsTimeout = 0,
    DnsError = 1,
    DestinationNotFound = 2,
    DestinationUnavailable = 3,
    DestinationIpProhibited = 4,
    DestinationIpUnroutable = 5,
    ConnectionRefused = 6,
    ConnectionTerminated = 7,
    ConnectionTimeout = 8,
    ConnectionReadTimeout = 9,
    ConnectionWriteTimeout = 10,
    ConnectionLimitReached = 11,
    TlsProtocolError = 12,
    TlsCertificateError = 13,
    TlsAlertReceived = 14,
    HttpRequestDenied = 15,
    HttpRequestLengthRequired = 16,
    HttpRequestBodySize = 17,
    HttpRequestMethodInvalid = 18,
    HttpRequestUriInvalid = 19,
    HttpRequestUriTooLong = 20,
    HttpRequestHeaderSectionSize = 21,
    HttpRequestHeaderSize = 22,
    HttpRequestTrailerSectionSize = 23,
    HttpRequestTrailerSize = 24,
    HttpResponseIncomplete = 25,
    HttpResponseHeaderSectionSize = 26,
    HttpResponseHeaderSize = 27,
    HttpResponseBodySize = 28,
    HttpResponseTrailerSectionSize = 29,
    HttpResponseTrailerSize = 30,
    HttpResponseTransferCoding = 31,
    HttpResponseContentCoding = 32,
    HttpResponseTimeout = 33,
    HttpUpgradeFailed = 34,
    HttpProtocolError = 35,
    LoopDetected = 36,
    ConfigurationError = 37,
    InternalError = 38,
}

/// What comes first in an [`Answer`] and a [`Tail`].
const WHOLE: u8 = 0;
const FAILED: u8 = 1;

impl OutgoingHead {
    /// The head as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let strings = [
            &self.method,
            &self.scheme,
            &self.authority,
            &self.path_and_query,
        ];
        let parts = strings.iter().map(|string| 4 + string.len());
        let fields = self.headers.iter();
        let fields = fields.map(|(name, value)| 8 + name.len() + value.len());
        // At once as large as it becomes: what grows leaves copies behind, of secrets for one.
        let mut writer = Writer::with_capacity(parts.chain(fields).sum::<usize>() + 4 + 3 * 8);
        for string in strings {
            writer.string(string);
        }
        writer.pairs(&self.headers);
        let Timeouts {
            connect,
            first_byte,
            between_bytes,
        } = self.timeouts;
        for nanoseconds in [connect, first_byte, between_bytes] {
            writer.bytes(&nanoseconds.to_le_bytes());
        }
        writer.into_bytes()
    }

    /// The head that `bytes` spell. Names and values are not looked at.
    ///
    /// # Errors
    /// When they are not exactly one head.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let head = Self {
            method: reader.string()?,
            scheme: reader.string()?,
            authority: reader.string()?,
            path_and_query: reader.string()?,
            headers: reader.pairs()?,
            timeouts: Timeouts {
                connect: u64::from_le_bytes(reader.array()?),
                first_byte: u64::from_le_bytes(reader.array()?),
                between_bytes: u64::from_le_bytes(reader.array()?),
            },
        };
        reader.end()?;
        Ok(head)
    }
}

impl Answer {
    /// The head as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Response(head) => {
                let mut bytes = alloc::vec![WHOLE];
                bytes.extend_from_slice(&head.encode());
                bytes
            }
            Self::Failed(failure) => failure.encode(),
        }
    }

    /// The head that `bytes` spell. Status, names and values are not looked at.
    ///
    /// # Errors
    /// When they are not exactly one head.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        match bytes.split_first() {
            Some((&WHOLE, head)) => ResponseHead::decode(head).map(Self::Response),
            Some((&FAILED, failure)) => Failure::decode(failure).map(Self::Failed),
            Some(_) => Err(WireError::BadValue),
            None => Err(WireError::Truncated),
        }
    }
}

impl Tail {
    /// The tail as bytes; none where nothing is to be said, which is a whole body without trailers.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Trailers(fields) if fields.is_empty() => Vec::new(),
            Self::Trailers(fields) => {
                let mut writer = Writer::default();
                writer.bytes(&[WHOLE]);
                writer.pairs(fields);
                writer.into_bytes()
            }
            Self::Failed(failure) => failure.encode(),
        }
    }

    /// The tail that `bytes` spell. Names and values are not looked at.
    ///
    /// # Errors
    /// When they are not exactly one tail.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        match bytes.split_first() {
            None => Ok(Self::Trailers(Vec::new())),
            Some((&WHOLE, fields)) => {
                let mut reader = Reader::new(fields);
                let fields = reader.pairs()?;
                reader.end()?;
                if fields.is_empty() {
                    Err(WireError::BadValue)
                } else {
                    Ok(Self::Trailers(fields))
                }
            }
            Some((&FAILED, failure)) => Failure::decode(failure).map(Self::Failed),
            Some(_) => Err(WireError::BadValue),
        }
    }
}

impl Failure {
    /// A failure that needs no further word.
    #[must_use]
    pub const fn new(code: FailureCode) -> Self {
        Self {
            code,
            text: None,
            number: None,
        }
    }

    /// The same with a text.
    #[must_use]
    pub fn with_text(code: FailureCode, text: &str) -> Self {
        Self {
            text: Some(text.as_bytes().to_vec()),
            ..Self::new(code)
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(&[FAILED, self.code as u8]);
        let has = u8::from(self.text.is_some()) | u8::from(self.number.is_some()) << 1;
        writer.bytes(&[has]);
        writer.string(self.text.as_deref().unwrap_or_default());
        writer.bytes(&self.number.unwrap_or_default().to_le_bytes());
        writer.into_bytes()
    }

    /// What is behind the byte that says it is one.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let [code, has] = reader.array()?;
        let text = reader.string()?;
        let number = u64::from_le_bytes(reader.array()?);
        reader.end()?;
        let has_nothing_else =
            (has & 1 != 0 || text.is_empty()) && (has & 2 != 0 || number == 0) && has < 4;
        match FailureCode::try_read_from_bytes(&[code]) {
            Ok(code) if has_nothing_else => Ok(Self {
                code,
                text: (has & 1 != 0).then_some(text),
                number: (has & 2 != 0).then_some(number),
            }),
            _ => Err(WireError::BadValue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs() -> Vec<Pair> {
        alloc::vec![(b"name".to_vec(), b"value".to_vec())]
    }

    fn failures() -> [Failure; 3] {
        let alert = Failure {
            number: Some(40),
            ..Failure::with_text(FailureCode::TlsAlertReceived, "handshake failure")
        };
        [
            Failure::new(FailureCode::DnsTimeout),
            Failure::with_text(FailureCode::InternalError, ""),
            alert,
        ]
    }

    #[test]
    fn heads_come_out_as_they_went_in() {
        let head = OutgoingHead {
            method: b"GET".to_vec(),
            scheme: b"https".to_vec(),
            authority: b"example.com:8443".to_vec(),
            path_and_query: b"/a?b".to_vec(),
            headers: pairs(),
            timeouts: Timeouts {
                connect: 1,
                first_byte: 2,
                between_bytes: u64::MAX,
            },
        };
        let bytes = head.encode();
        // Nothing of it was left behind by growing.
        assert_eq!(bytes.capacity(), bytes.len());
        assert_eq!(OutgoingHead::decode(&bytes), Ok(head));
        for end in 0..bytes.len() {
            assert!(OutgoingHead::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn answers_and_tails_come_out_as_they_went_in_and_pieces_of_them_do_not() {
        let head = ResponseHead {
            status: 200,
            headers: pairs(),
        };
        let failed = failures().map(Answer::Failed);
        for answer in failed.into_iter().chain([Answer::Response(head)]) {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes).as_ref(), Ok(&answer));
            for end in 0..bytes.len() {
                assert!(Answer::decode(&bytes[..end]).is_err(), "{answer:?} {end}");
            }
            assert!(Answer::decode(&[&bytes, &b"x"[..]].concat()).is_err());
        }
        let failed = failures().map(Tail::Failed);
        for tail in failed.into_iter().chain([Tail::Trailers(pairs())]) {
            let bytes = tail.encode();
            assert_eq!(Tail::decode(&bytes).as_ref(), Ok(&tail));
            for end in 1..bytes.len() {
                assert!(Tail::decode(&bytes[..end]).is_err(), "{tail:?} {end}");
            }
        }
        let nothing = Tail::Trailers(Vec::new());
        assert_eq!(nothing.encode(), b"");
        assert_eq!(Tail::decode(b""), Ok(nothing));
    }

    #[test]
    fn what_is_no_case_is_none() {
        let last = Failure::new(FailureCode::InternalError).encode();
        assert!(Answer::decode(&last).is_ok());
        let change = |at: usize, to: u8| {
            let mut bytes = last.clone();
            bytes[at] = to;
            bytes
        };
        // Not a case; a text that is not announced; a number likewise; an unknown bit.
        for bytes in [change(1, 39), change(7, 1), change(2, 4), change(0, 2)] {
            assert!(Answer::decode(&bytes).is_err(), "{bytes:?}");
        }
    }
}
