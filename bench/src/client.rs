//! A small HTTP/1.1 client: one request at a time on one socket.
//!
//! A load generator's own work is part of every latency that it measures. This one does one write
//! and few reads per request, on the measuring thread itself.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::response::Response;

/// How long any operation may take before the benchmark gives up.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// An `http://` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port, in the form in which a socket connects to them.
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

/// How connections are used after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// The next request uses the connection again.
    Keep,
    /// Each request opens a connection of its own.
    Close,
}

/// Returns the bytes of a GET request for `path`, with further header `fields`, each of which ends
/// with a line end.
pub fn request(url: &Url, path: &str, connections: Connections, fields: &str) -> Vec<u8> {
    let close = match connections {
        Connections::Keep => "",
        Connections::Close => "connection: close\r\n",
    };
    let authority = &url.authority;
    format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n{close}{fields}\r\n").into_bytes()
}

/// Returns the bytes of a POST request for an address, with JSON as its body.
pub fn posting(url: &Url, connections: Connections, json: &[u8]) -> Vec<u8> {
    let length = json.len();
    let fields = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    let get = request(url, &url.path, connections, &fields);
    let behind_method = get.strip_prefix(b"GET").unwrap_or(&get);
    [b"POST", behind_method, json].concat()
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    url: Url,
    fields: &'static str,
    connection: Option<Connection>,
}

impl Client {
    /// Returns a client that connects when it is first used, and keeps its connection.
    pub fn new(url: &Url) -> Self {
        Self::with_fields(url, "")
    }

    /// Returns a client as [`Client::new`] does, with further header fields in each request.
    pub fn with_fields(url: &Url, fields: &'static str) -> Self {
        Self {
            url: url.clone(),
            fields,
            connection: None,
        }
    }

    /// Connects ahead of the first request.
    ///
    /// # Errors
    /// Returns an error if the connection cannot be opened.
    pub fn connect(&mut self) -> Result<()> {
        self.connection = Some(Connection::open(&self.url)?);
        Ok(())
    }

    /// Requests `path`.
    ///
    /// # Errors
    /// Returns an error if the connection or the request fails. It does so as well if the status is
    /// not one of success, because an error page is not what the benchmark measures.
    pub fn get(&mut self, path: &str) -> Result<Response> {
        let request = request(&self.url, path, Connections::Keep, self.fields);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.url)?,
        };
        let response = connection
            .send(&request)
            .and_then(|()| connection.receive())
            .with_context(|| format!("http://{}{path}", self.url.authority))?;
        ensure_success(&response)
            .with_context(|| format!("http://{}{path}", self.url.authority))?;
        if response.keeps_connection {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

/// Returns an error if the status is not one of success.
pub fn ensure_success(response: &Response) -> Result<()> {
    ensure!(
        (200..300).contains(&response.status),
        "answered {}: {}",
        response.status,
        String::from_utf8_lossy(&response.body).trim_end()
    );
    Ok(())
}

/// A socket and the bytes that were read from it but are not used yet.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    /// Connects and waits until the connection is established.
    ///
    /// # Errors
    /// Returns an error if the address does not resolve or the connection fails.
    pub fn open(url: &Url) -> Result<Self> {
        let mut connection = Self {
            stream: connect(url, None)?,
            unread: Vec::with_capacity(16 << 10),
        };
        connection.finish_connecting()?;
        Ok(connection)
    }

    /// Begins to connect without waiting, from the address `from` of this machine if there is one.
    /// Returns whether the connection is established already. If it is not, the socket becomes
    /// writable when it is, and the caller then calls [`Self::finish_connecting`].
    ///
    /// # Errors
    /// Returns an error if the address does not resolve or the connection fails at once.
    pub fn begin(url: &Url, from: Option<Ipv4Addr>) -> Result<(Self, bool)> {
        let (stream, is_made) = begin_to_connect(&url.authority, from)
            .with_context(|| format!("cannot connect to {}", url.authority))?;
        let mut connection = Self {
            stream,
            unread: Vec::with_capacity(16 << 10),
        };
        if is_made {
            connection.finish_connecting()?;
        }
        Ok((connection, is_made))
    }

    /// Finishes connecting and sets the options of the socket.
    ///
    /// # Errors
    /// Returns the error of the connection attempt, or of setting an option.
    pub fn finish_connecting(&mut self) -> Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error).context("cannot connect");
        }
        self.stream.set_nonblocking(false)?;
        self.stream.set_nodelay(true)?;
        self.stream.set_read_timeout(Some(TIMEOUT))?;
        self.stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(())
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be written to within [`TIMEOUT`].
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).context("cannot send")
    }

    /// Waits for a complete response.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be read within [`TIMEOUT`], or if the bytes are no
    /// valid response.
    pub fn receive(&mut self) -> Result<Response> {
        loop {
            if let Some(response) = self.receive_part()? {
                return Ok(response);
            }
        }
    }

    /// Reads once, and waits if there is nothing to read. Returns the response if it is complete.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be read within [`TIMEOUT`], or if the bytes are no
    /// valid response.
    pub fn receive_part(&mut self) -> Result<Option<Response>> {
        let ended = !self.read_more()?;
        Ok(
            Response::parse(&self.unread, ended)?.map(|(response, length)| {
                self.unread.drain(..length);
                response
            }),
        )
    }

    /// Reads the available bytes. Returns `false` at the end of the stream.
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
}

/// Opens a socket to the server, from the address `from` of this machine if there is one. With such
/// an address the connection may still be in progress; the first write then waits for it.
///
/// # Errors
/// Returns an error if the address does not resolve or the connection fails.
pub fn connect(url: &Url, from: Option<Ipv4Addr>) -> Result<TcpStream> {
    let authority = &url.authority;
    let connected = match from {
        None => TcpStream::connect(authority).map_err(anyhow::Error::from),
        Some(_) => begin_to_connect(authority, from).and_then(|(stream, _)| {
            stream.set_nonblocking(false)?;
            Ok(stream)
        }),
    };
    connected.with_context(|| format!("cannot connect to {authority}"))
}

/// Returns a socket that connects without waiting, and whether it is connected already.
fn begin_to_connect(authority: &str, from: Option<Ipv4Addr>) -> Result<(TcpStream, bool)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let mut addresses = authority.to_socket_addrs()?;
    let target = addresses.next().context("no address")?;
    let family = match target {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(from) = from {
        bind(&socket, &SocketAddr::from((from, 0)))?;
    }
    let is_made = match connect(&socket, &target) {
        Ok(()) => true,
        Err(rustix::io::Errno::INPROGRESS) => false,
        Err(error) => return Err(error.into()),
    };
    Ok((socket.into(), is_made))
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    fn body(client: &mut Client) -> String {
        String::from_utf8(client.get("/").unwrap().body).unwrap()
    }

    #[test]
    fn addresses_are_parsed() {
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
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\ntw\r\n1;x=y\r\no\r\n0\r\nt: \
             1\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast",
        ]]);
        let mut client = Client::new(&url);
        for expected in ["one", "two", "", "last"] {
            assert_eq!(body(&mut client), expected);
        }
    }

    #[test]
    fn a_closed_connection_is_replaced() {
        let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end";
        let url = server(vec![vec![closing], vec![closing]]);
        let mut client = Client::new(&url);
        assert_eq!(body(&mut client), "to the end");
        assert_eq!(body(&mut client), "to the end");
    }

    #[test]
    fn an_error_status_is_an_error_with_its_body() {
        let url = server(vec![vec![
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone",
        ]]);
        let error = Client::new(&url).get("/").unwrap_err();
        assert!(
            format!("{error:#}").ends_with("answered 404: none"),
            "{error:#}"
        );
    }
}
