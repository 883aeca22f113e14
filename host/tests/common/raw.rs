//! HTTP as bytes on a socket, which shows what a client library would hide.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// A parsed response.
#[derive(Debug)]
pub struct RawResponse {
    pub status: u16,
    /// The names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body without chunk framing. Bytes that are not UTF-8 show as U+FFFD.
    pub body: String,
    /// The body as the bytes that came.
    pub bytes: Vec<u8>,
    /// The trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// Whether the body came to the end that its framing announced.
    pub is_whole: bool,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a member of the body, which must be a problem document.
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
    timeout(super::time_limit(120), exchange)
        .await
        .expect("an answer in time")
}

/// Sends a GET request on a connection of its own.
pub async fn get(address: SocketAddr, path: &str) -> RawResponse {
    request(address, "GET", path, "", "").await
}

/// Sends a request on a connection of its own. `headers` end in line breaks.
pub async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: impl AsRef<[u8]>,
) -> RawResponse {
    let body = body.as_ref();
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{length}{headers}\r\n"
    );
    send(address, &[head.as_bytes(), body].concat()).await
}

/// Parses the first final response. The bytes that follow its head are the body.
pub fn parse(answer: &[u8]) -> RawResponse {
    let text = String::from_utf8_lossy(answer);
    let (head, _) = text
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
    // Offsets in the text would be wrong for bytes that are not UTF-8.
    let start = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap()
        + 4;
    let raw = &answer[start..];
    if status == 100 {
        return parse(raw);
    }
    let headers = fields(lines);
    let header = |name: &str| {
        let found = headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    };
    let (bytes, trailers, is_whole) = if header("transfer-encoding") == Some("chunked") {
        let (bytes, trailers, rest) = unchunk(raw);
        (bytes, trailers, rest.is_some())
    } else {
        let length = header("content-length").and_then(|length| length.parse().ok());
        let is_whole = length.is_none_or(|length: usize| raw.len() >= length);
        (raw.to_vec(), Vec::new(), is_whole)
    };
    RawResponse {
        status,
        body: String::from_utf8_lossy(&bytes).into_owned(),
        bytes,
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

type Fields = Vec<(String, String)>;

/// Returns the content and the trailers of a chunked body, and the bytes that follow it if the body
/// ends as it must.
fn unchunk(mut rest: &[u8]) -> (Vec<u8>, Fields, Option<&[u8]>) {
    let mut content = Vec::new();
    loop {
        let Some((size, after)) = line(rest) else {
            return (content, Vec::new(), None);
        };
        let size = usize::from_str_radix(&size, 16).unwrap();
        rest = after;
        if size == 0 {
            break;
        }
        if rest.len() < size + 2 {
            content.extend_from_slice(&rest[..size.min(rest.len())]);
            return (content, Vec::new(), None);
        }
        content.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
    let mut trailers = Vec::new();
    loop {
        let Some((line, after)) = line(rest) else {
            return (content, fields(trailers.iter().map(String::as_str)), None);
        };
        rest = after;
        if line.is_empty() {
            let trailers = fields(trailers.iter().map(String::as_str));
            return (content, trailers, Some(rest));
        }
        trailers.push(line);
    }
}

/// Splits off a line and returns it with the rest.
fn line(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Some((line, &bytes[end + 2..]))
}

/// Parses all responses that came on a connection, interim ones too. The final responses whose
/// numbers are in `heads` answer HEAD requests.
pub fn parse_all(mut bytes: &[u8], heads: &[usize]) -> Vec<RawResponse> {
    let mut all = Vec::new();
    let mut finals = 0;
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end =
            end.unwrap_or_else(|| panic!("half a head: {:?}", bytes.escape_ascii().to_string()));
        let mut response = parse_head(&bytes[..end]);
        bytes = &bytes[end + 4..];
        let is_final = response.status >= 200;
        let bodiless = !is_final || heads.contains(&finals) || matches!(response.status, 204 | 304);
        finals += usize::from(is_final);
        if !bodiless {
            let length = response
                .header("content-length")
                .map(|text| text.parse().unwrap());
            let content = if response.header("transfer-encoding").is_some() {
                assert_eq!(length, None, "two framings: {response:?}");
                let (content, trailers, rest) = unchunk(bytes);
                response.is_whole = rest.is_some();
                response.trailers = trailers;
                bytes = rest.unwrap_or_default();
                content
            } else {
                // Without a length, the body ends with the connection.
                let length: usize = length.unwrap_or(bytes.len());
                response.is_whole = bytes.len() >= length;
                let (content, rest) = bytes.split_at(length.min(bytes.len()));
                bytes = rest;
                content.to_vec()
            };
            response.body = String::from_utf8_lossy(&content).into_owned();
            response.bytes = content;
        }
        all.push(response);
    }
    all
}

fn parse_head(head: &[u8]) -> RawResponse {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .or(first.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3)?.parse().ok());
    RawResponse {
        status: status.unwrap_or_else(|| panic!("no status line: {first:?}")),
        headers: fields(lines),
        body: String::new(),
        bytes: Vec::new(),
        trailers: Vec::new(),
        is_whole: true,
    }
}
