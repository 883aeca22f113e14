//! HTTP as bytes on a socket: what a client library would hide.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// A response, taken apart.
#[derive(Debug)]
pub struct RawResponse {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Without its chunks' framing.
    pub body: String,
    /// Fields behind a body in chunks.
    pub trailers: Vec<(String, String)>,
    /// Whether the body came to the end that its framing announced.
    pub is_whole: bool,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A member of the problem body, which must be one.
    pub fn problem(&self, member: &str) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], self.status, "{self:?}");
        match &problem[member] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Sends bytes and reads until the server closes the connection.
pub async fn send(address: SocketAddr, bytes: &[u8]) -> RawResponse {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        parse(&answer)
    };
    timeout(super::patience(60), exchange)
        .await
        .expect("an answer in time")
}

/// A GET on a connection of its own.
pub async fn get(address: SocketAddr, path: &str) -> RawResponse {
    request(address, "GET", path, "", "").await
}

/// A request on a connection of its own. `headers` end in line breaks.
pub async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> RawResponse {
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{length}{headers}\r\n{body}"
    );
    send(address, text.as_bytes()).await
}

/// Takes the first final response apart; what follows its head is the body.
pub fn parse(answer: &[u8]) -> RawResponse {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no response: {text:?}"));
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    if status == 100 {
        return parse(body.as_bytes());
    }
    let headers = fields(lines);
    let header = |name: &str| {
        let found = headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    };
    // Offsets in the text would be wrong for bytes that are not UTF-8.
    let start = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap()
        + 4;
    let raw = &answer[start..];
    let (bytes, trailers, is_whole) = if header("transfer-encoding") == Some("chunked") {
        unchunk(raw)
    } else {
        let length = header("content-length").and_then(|length| length.parse().ok());
        let is_whole = length.is_none_or(|length: usize| raw.len() >= length);
        (raw.to_vec(), Vec::new(), is_whole)
    };
    RawResponse {
        status,
        body: String::from_utf8_lossy(&bytes).into_owned(),
        headers,
        trailers,
        is_whole,
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            (name.to_lowercase(), value.into())
        })
        .collect()
}

/// Content and trailers of a body in chunks, and whether it ends as it must.
fn unchunk(mut rest: &[u8]) -> (Vec<u8>, Vec<(String, String)>, bool) {
    let mut content = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (content, Vec::new(), false);
        };
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[end + 2..];
        if size == 0 {
            let text = String::from_utf8_lossy(rest);
            let lines = text.split("\r\n").filter(|line| !line.is_empty());
            return (content, fields(lines), text.ends_with("\r\n"));
        }
        if rest.len() < size + 2 {
            content.extend_from_slice(&rest[..size.min(rest.len())]);
            return (content, Vec::new(), false);
        }
        content.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}
