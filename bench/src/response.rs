//! A parser for HTTP/1 responses, on the bytes that have arrived so far. It uses no sockets.

use anyhow::{Context, Result, bail, ensure};

/// The most header fields of a response.
const HEADERS_MAX: usize = 64;
/// The most bytes of a response's head.
const HEAD_MAX: usize = 64 << 10;

/// The parts of a response that benchmarks use.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// The decoded body.
    pub body: Vec<u8>,
    /// The field `Server-Timing`, from the head or from the trailers.
    pub server_timing: Option<String>,
    /// Whether the response has the field `Retry-After`.
    pub says_when_to_retry: bool,
    /// Whether another request may follow on the connection.
    pub keeps_connection: bool,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Response {
    /// Parses the response at the front of `bytes`. Returns it with its length once it is complete.
    /// `ended` means that no more bytes will arrive.
    ///
    /// # Errors
    /// Returns an error if the bytes are not HTTP/1, or end before the response does.
    pub fn parse(bytes: &[u8], ended: bool) -> Result<Option<(Self, usize)>> {
        let Some((mut response, framing, head)) = parse_head(bytes)? else {
            ensure!(bytes.len() < HEAD_MAX, "the response's head has no end");
            ensure!(!ended, "the connection was closed before a response");
            return Ok(None);
        };
        let mut rest = Rest(bytes.get(head..).unwrap_or_default());
        let whole = match framing {
            Framing::Length(length) => rest.take(length).map(|body| response.body.extend(body)),
            Framing::Chunked => rest.take_chunks(&mut response)?,
            Framing::UntilClose => ended.then(|| {
                response.keeps_connection = false;
                response.body.extend(rest.0);
                rest.0 = &[];
            }),
        };
        ensure!(whole.is_some() || !ended, "the body was cut short");
        Ok(whole.map(|()| (response, bytes.len() - rest.0.len())))
    }
}

/// Parses a head. Returns it with an empty body, how the body ends, and the head's length.
fn parse_head(bytes: &[u8]) -> Result<Option<(Response, Framing, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes)? else {
        return Ok(None);
    };
    let status = head.code.context("a response without a status")?;
    let mut response = Response {
        status,
        body: Vec::new(),
        server_timing: None,
        says_when_to_retry: false,
        keeps_connection: head.version == Some(1),
    };
    let mut framing = match status {
        204 | 304 => Framing::Length(0),
        _ => Framing::UntilClose,
    };
    for header in head.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(value.parse().context("content-length")?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                bail!("unknown transfer encoding {value}");
            }
            framing = Framing::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            response.keeps_connection &= !value.eq_ignore_ascii_case("close");
        } else if header.name.eq_ignore_ascii_case("retry-after") {
            response.says_when_to_retry = true;
        } else if header.name.eq_ignore_ascii_case("server-timing") {
            response.server_timing = Some(value.to_owned());
        }
    }
    Ok(Some((response, framing, length)))
}

/// Bytes that are not taken yet. Methods return `None` if there are too few.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn take_line(&mut self) -> Option<&'a [u8]> {
        let end = self.0.windows(2).position(|pair| pair == b"\r\n")?;
        let line = self.take(end)?;
        self.take(2)?;
        Some(line)
    }

    /// Appends all chunks to the body, and reads the trailers.
    fn take_chunks(&mut self, response: &mut Response) -> Result<Option<()>> {
        loop {
            let Some(line) = self.take_line() else {
                return Ok(None);
            };
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = usize::from_str_radix(std::str::from_utf8(digits)?.trim(), 16)
                .context("a chunk without a size")?;
            if size == 0 {
                return Ok(self.take_trailers(response));
            }
            let Some(chunk) = self.take(size) else {
                return Ok(None);
            };
            response.body.extend(chunk);
            match self.take_line() {
                None => return Ok(None),
                Some(end) => ensure!(end.is_empty(), "a chunk longer than its size"),
            }
        }
    }

    fn take_trailers(&mut self, response: &mut Response) -> Option<()> {
        loop {
            let line = self.take_line()?;
            if line.is_empty() {
                return Some(());
            }
            let field = std::str::from_utf8(line)
                .ok()
                .and_then(|line| line.split_once(':'));
            if let Some((name, value)) = field
                && name.eq_ignore_ascii_case("server-timing")
            {
                response.server_timing = Some(value.trim().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
        2\r\ntw\r\n1;x=y\r\no\r\n0\r\nServer-Timing: exec;dur=1\r\n\r\n";

    #[test]
    fn a_response_is_complete_only_at_its_last_byte() {
        for end in 0..CHUNKED.len() {
            let part = &CHUNKED.as_bytes()[..end];
            assert_eq!(Response::parse(part, false).unwrap(), None, "{end}");
            assert!(Response::parse(part, true).is_err(), "{end}");
        }
        let (response, length) = Response::parse(CHUNKED.as_bytes(), false).unwrap().unwrap();
        assert_eq!(length, CHUNKED.len());
        assert_eq!(response.body, b"two");
        assert_eq!(response.server_timing.as_deref(), Some("exec;dur=1"));
    }

    #[test]
    fn bytes_after_a_response_are_not_consumed() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\noneHTTP/1.1";
        let (response, length) = Response::parse(bytes, false).unwrap().unwrap();
        assert_eq!(
            (response.body.as_slice(), bytes.len() - length),
            (&b"one"[..], 8)
        );
        assert!(response.keeps_connection);
    }

    #[test]
    fn a_body_without_a_length_ends_with_its_connection() {
        let bytes = b"HTTP/1.1 200 OK\r\n\r\nto the end";
        assert_eq!(Response::parse(bytes, false).unwrap(), None);
        let (response, _) = Response::parse(bytes, true).unwrap().unwrap();
        assert_eq!(response.body, b"to the end");
        assert!(!response.keeps_connection);
    }
}
