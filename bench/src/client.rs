//! A small HTTP/1.1 client: blocking, one request at a time on one socket.
//!
//! A load generator's own work is part of every latency it measures. This one
//! does one write and few reads a request, on the measuring thread itself.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most header fields of a response.
const HEADERS_MAX: usize = 64;
/// Most bytes of a response's head.
const HEAD_MAX: usize = 64 << 10;

/// An `http://` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port, as a socket is opened to them.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err("only http:// addresses can be measured".to_owned());
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        if authority.is_empty() {
            return Err("the address names no host".to_owned());
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self {
            authority: if has_port {
                authority.to_owned()
            } else {
                format!("{authority}:80")
            },
            path: path.to_owned(),
        })
    }
}

/// What becomes of a connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// The next request uses it again.
    Keep,
    /// Each request opens its own.
    Close,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    authority: String,
    connections: Connections,
    connection: Option<Connection>,
}

impl Client {
    /// A client that connects when it is first used.
    pub fn new(url: &Url, connections: Connections) -> Self {
        Self {
            authority: url.authority.clone(),
            connections,
            connection: None,
        }
    }

    /// Requests `path`, and returns the body and the time from before the
    /// request, or before connecting, to the body's last byte.
    ///
    /// # Errors
    /// Also when the status is not one of success: an error page is not what
    /// was to be measured.
    pub fn get(&mut self, path: &str) -> Result<(Vec<u8>, Duration)> {
        let close = match self.connections {
            Connections::Keep => "",
            Connections::Close => "connection: close\r\n",
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\n{close}\r\n",
            self.authority
        );
        let begun = Instant::now();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.authority)?,
        };
        let response = connection
            .exchange(request.as_bytes())
            .with_context(|| format!("http://{}{path}", self.authority))?;
        let took = begun.elapsed();
        ensure!(
            (200..300).contains(&response.status),
            "http://{}{path} answered {}: {}",
            self.authority,
            response.status,
            String::from_utf8_lossy(&response.body).trim_end()
        );
        if self.connections == Connections::Keep && response.keeps_connection {
            self.connection = Some(connection);
        }
        Ok((response.body, took))
    }
}

#[derive(Debug)]
struct Response {
    status: u16,
    body: Vec<u8>,
    keeps_connection: bool,
}

/// A socket and what was read from it but not used yet.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Connection {
    fn open(authority: &str) -> Result<Self> {
        let stream = TcpStream::connect(authority)
            .with_context(|| format!("cannot connect to {authority}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            unread: Vec::with_capacity(16 << 10),
        })
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Response> {
        self.stream.write_all(request).context("cannot send")?;
        let (head, framing, keeps_connection, status) = loop {
            if let Some(head) = Head::parse(&self.unread)? {
                break (head.bytes, head.framing, head.keeps_connection, head.status);
            }
            ensure!(
                self.unread.len() < HEAD_MAX,
                "the response's head has no end"
            );
            ensure!(
                self.read_more()?,
                "the connection was closed before a response"
            );
        };
        self.unread.drain(..head);
        let body = match framing {
            Framing::Length(length) => self.take(length)?,
            Framing::Chunked => self.take_chunks()?,
            Framing::UntilClose => {
                while self.read_more()? {}
                std::mem::take(&mut self.unread)
            }
        };
        Ok(Response {
            status,
            body,
            keeps_connection: keeps_connection && framing != Framing::UntilClose,
        })
    }

    /// Reads what there is; `false` at the end of the stream.
    fn read_more(&mut self) -> Result<bool> {
        let mut part = [0; 16 << 10];
        loop {
            match self.stream.read(&mut part) {
                Ok(count) => {
                    self.unread.extend(part.iter().take(count));
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.unread.len() < count {
            ensure!(self.read_more()?, "the body was cut short");
        }
        Ok(self.unread.drain(..count).collect())
    }

    fn take_line(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let mut line = self.take(end + 2)?;
                line.truncate(end);
                return Ok(line);
            }
            ensure!(self.read_more()?, "the body was cut short");
        }
    }

    fn take_chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line()?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = usize::from_str_radix(std::str::from_utf8(digits)?.trim(), 16)
                .context("a chunk without a size")?;
            if size == 0 {
                // Trailers, if any, then an empty line.
                while !self.take_line()?.is_empty() {}
                return Ok(body);
            }
            body.append(&mut self.take(size)?);
            ensure!(self.take_line()?.is_empty(), "a chunk longer than its size");
        }
    }
}

/// What matters of a response's head.
#[derive(Debug)]
struct Head {
    bytes: usize,
    status: u16,
    framing: Framing,
    keeps_connection: bool,
}

impl Head {
    /// The head at the front of `bytes`, once it is whole.
    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = response.parse(bytes)? else {
            return Ok(None);
        };
        let status = response.code.context("a response without a status")?;
        let mut head = Self {
            bytes: length,
            status,
            framing: if status == 204 || status == 304 {
                Framing::Length(0)
            } else {
                Framing::UntilClose
            },
            keeps_connection: response.version == Some(1),
        };
        for header in response.headers.iter() {
            let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
            if header.name.eq_ignore_ascii_case("content-length") {
                head.framing = Framing::Length(value.parse().context("content-length")?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    bail!("unknown transfer encoding {value}");
                }
                head.framing = Framing::Chunked;
            } else if header.name.eq_ignore_ascii_case("connection") {
                head.keeps_connection &= !value.eq_ignore_ascii_case("close");
            }
        }
        Ok(Some(head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    /// A server that answers each connection's requests with `answers` in turn.
    fn server(connections: Vec<Vec<&'static str>>) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        request.push(byte[0]);
                    }
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        format!("http://{address}/").parse().unwrap()
    }

    fn body(client: &mut Client) -> String {
        String::from_utf8(client.get("/").unwrap().0).unwrap()
    }

    #[test]
    fn addresses_are_taken_apart() {
        let url: Url = "http://localhost:8080/hello/?a=b".parse().unwrap();
        assert_eq!(url.authority, "localhost:8080");
        assert_eq!(url.path, "/hello/?a=b");
        let url: Url = "http://example.org".parse().unwrap();
        assert_eq!(
            (url.authority.as_str(), url.path.as_str()),
            ("example.org:80", "/")
        );
        assert!("https://example.org/".parse::<Url>().is_err());
        assert!("http:///path".parse::<Url>().is_err());
    }

    #[test]
    fn a_kept_connection_serves_every_framing_with_a_length() {
        let url = server(vec![vec![
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\ntw\r\n1;x=y\r\no\r\n0\r\nt: 1\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast",
        ]]);
        let mut client = Client::new(&url, Connections::Keep);
        for expected in ["one", "two", "", "last"] {
            assert_eq!(body(&mut client), expected);
        }
    }

    #[test]
    fn a_closed_connection_is_followed_by_a_new_one() {
        let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end";
        let url = server(vec![vec![closing], vec![closing]]);
        let mut client = Client::new(&url, Connections::Keep);
        assert_eq!(body(&mut client), "to the end");
        assert_eq!(body(&mut client), "to the end");
    }

    #[test]
    fn an_error_status_is_an_error_with_its_body() {
        let url = server(vec![vec![
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone",
        ]]);
        let error = Client::new(&url, Connections::Close).get("/").unwrap_err();
        assert!(error.to_string().ends_with("answered 404: none"), "{error}");
    }
}
