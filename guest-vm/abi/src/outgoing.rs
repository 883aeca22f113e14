//! Outbound calls: the messages on the channel of one.
//!
//! An outbound call is an invocation with reversed sides: a message to the host ([`OutgoingHead`],
//! body, [`Tail`]) and one back ([`Answer`], body, [`Tail`]). For a call to another host, the
//! egress worker encodes the message back; the node only moves both messages, and reads the head of
//! the request alone. The node encodes the message back of a self call. See
//! `docs/decisions/0026-reaching-out.md`.

use alloc::vec::Vec;

use zerocopy::TryFromBytes;

use crate::wire::{
    Pair, Reader, ResponseHead, WireError, Writer, decode_trailers, encode_trailers,
};

/// The head of an outbound request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingHead {
    /// Method.
    pub method: Vec<u8>,
    /// `http`, `https`, or another scheme, which is not supported.
    pub scheme: Vec<u8>,
    /// Host and port, as the function named them; empty if it did not.
    pub authority: Vec<u8>,
    /// Path and query; begins with `/`.
    pub path_and_query: Vec<u8>,
    /// Header fields in order, names in lower case.
    pub headers: Vec<Pair>,
    /// Timeouts of the request.
    pub timeouts: Timeouts,
}

/// Timeouts of the phases of a request, in nanoseconds; 0 if the function has set none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout of the connection: name resolution, connecting, TLS.
    pub connect: u64,
    /// Timeout from then to the head of the response.
    pub first_byte: u64,
    /// Timeout from one piece of the response's body to the next.
    pub between_bytes: u64,
}

/// The head of the message back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response, whose body follows.
    Response(ResponseHead),
    /// The reason why there is no response. Nothing follows.
    Failed(Failure),
}

/// The tail behind a body, in both messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The body is complete, and has these trailers.
    Trailers(Vec<Pair>),
    /// The reason why the body is incomplete.
    Failed(Failure),
}

/// The reason why a request failed: a case of `error-code` of `wasi:http/types`, with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The case.
    pub code: FailureCode,
    /// A text, if the case has one: an rcode, a field name, a coding, a message.
    pub text: Option<Vec<u8>>,
    /// A number, if the case has one: of an alert, or of bytes.
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

/// First byte of an [`Answer`] and of a [`Tail`].
const WHOLE: u8 = 0;
const FAILED: u8 = 1;

impl OutgoingHead {
    /// Returns the encoded head.
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
        // The final capacity is allocated at once, because a vector that grows leaves copies
        // behind, for example of secrets.
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

    /// Decodes a request head. Names and values are not checked.
    ///
    /// # Errors
    /// Returns a [`WireError`] if `bytes` are not exactly one head.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Reader::decode(bytes, |reader| {
            Ok(Self {
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
            })
        })
    }
}

impl Answer {
    /// Returns the encoded head.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Response(head) => [&[WHOLE], head.encode().as_slice()].concat(),
            Self::Failed(failure) => failure.encode(),
        }
    }

    /// Decodes the head of an answer. Status, names and values are not checked.
    ///
    /// # Errors
    /// Returns a [`WireError`] if `bytes` are not exactly one head.
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
    /// Returns the encoded tail; no bytes for a complete body without trailers.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Trailers(fields) if fields.is_empty() => Vec::new(),
            Self::Trailers(fields) => [&[WHOLE], encode_trailers(fields).as_slice()].concat(),
            Self::Failed(failure) => failure.encode(),
        }
    }

    /// Decodes a tail. Names and values are not checked.
    ///
    /// # Errors
    /// Returns a [`WireError`] if `bytes` are not exactly one tail.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        match bytes.split_first() {
            None => Ok(Self::Trailers(Vec::new())),
            Some((&WHOLE, [])) => Err(WireError::Truncated),
            Some((&WHOLE, fields)) => decode_trailers(fields).map(Self::Trailers),
            Some((&FAILED, failure)) => Failure::decode(failure).map(Self::Failed),
            Some(_) => Err(WireError::BadValue),
        }
    }
}

impl Failure {
    /// Returns a failure without text and number.
    #[must_use]
    pub const fn new(code: FailureCode) -> Self {
        Self {
            code,
            text: None,
            number: None,
        }
    }

    /// Returns a failure with a text.
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

    /// Decodes the bytes behind the byte that marks a failure.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let ([code, has], text, number) = Reader::decode(bytes, |reader| {
            let (head, text) = (reader.array()?, reader.string()?);
            Ok((head, text, u64::from_le_bytes(reader.array()?)))
        })?;
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
        // Growing left no copies behind.
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
    fn an_unknown_failure_code_is_none() {
        let last = Failure::new(FailureCode::InternalError).encode();
        assert!(Answer::decode(&last).is_ok());
        let change = |at: usize, to: u8| {
            let mut bytes = last.clone();
            bytes[at] = to;
            bytes
        };
        // Not a case; a text that is not announced; a number that is not announced; an unknown bit.
        for bytes in [change(1, 39), change(7, 1), change(2, 4), change(0, 2)] {
            assert!(Answer::decode(&bytes).is_err(), "{bytes:?}");
        }
    }
}
