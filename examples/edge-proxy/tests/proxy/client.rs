//! HTTP as bytes on a socket, with details that a client library would hide.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use crate::patience;

/// A parsed response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    /// Returns the value of a field, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let found = fields.find(|(other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value)
}

/// A connection.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(patience(60))).unwrap();
        Self(BufReader::new(stream))
    }

    pub fn get_mut(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    pub fn write(&mut self, text: &str) {
        self.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub fn read(&mut self) -> Response {
        self.response(true)
    }

    /// Reads a response as its body arrives, until the body ends with `text`.
    pub fn read_until(&mut self, text: &str) {
        let head = self.head();
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
        let mut body = Vec::new();
        while !body.ends_with(text.as_bytes()) {
            self.one_more_chunk(&mut body);
        }
    }

    /// Returns the next chunk of an unfinished body.
    pub fn next_chunk(&mut self) -> String {
        let mut body = Vec::new();
        self.one_more_chunk(&mut body);
        String::from_utf8(body).unwrap()
    }

    /// Returns whether the next chunk is the last one, of length 0.
    pub fn is_at_end_of_body(&mut self) -> bool {
        !self.chunk(&mut Vec::new())
    }

    fn one_more_chunk(&mut self, body: &mut Vec<u8>) {
        let more = self.chunk(body);
        assert!(more, "it ends with {:?}", String::from_utf8_lossy(body));
    }

    fn response(&mut self, with_body: bool) -> Response {
        let head = self.head();
        let body = if with_body {
            self.body(&head)
        } else {
            String::new()
        };
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Response {
            status: status.unwrap_or_else(|| panic!("no status: {head:?}")),
            head,
            body,
        }
    }

    /// Reads a request: its head with the empty line, and its body.
    pub fn message(&mut self) -> (String, String) {
        let head = self.head();
        let body = self.body(&head);
        (head, body)
    }

    fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).unwrap() > 0, "{head:?}");
        }
        head
    }

    fn body(&mut self, head: &str) -> String {
        let mut body = Vec::new();
        if let Some(length) = field(head, "content-length") {
            self.take(length.parse().unwrap(), &mut body);
        } else if field(head, "transfer-encoding").is_some() {
            while self.chunk(&mut body) {}
        }
        String::from_utf8(body).unwrap()
    }

    /// Reads a chunk, unless it is the last one, of length 0.
    fn chunk(&mut self, body: &mut Vec<u8>) -> bool {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        self.take(length, body);
        self.take(2, &mut Vec::new());
        length > 0
    }

    fn take(&mut self, length: usize, body: &mut Vec<u8>) {
        let start = body.len();
        body.resize(start + length, 0);
        self.0.read_exact(&mut body[start..]).unwrap();
    }
}

/// Sends a GET on a new connection.
pub fn get(address: SocketAddr, path: &str) -> Response {
    request(address, "GET", path, "", "")
}

/// Sends a request on a new connection. `fields` end in line breaks.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> Response {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    let mut client = Client::connect(address);
    client.write(&format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{length}{fields}\r\n{body}"
    ));
    client.response(method != "HEAD")
}
