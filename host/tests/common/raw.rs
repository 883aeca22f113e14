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
    pub body: String,
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
fn parse(answer: &[u8]) -> RawResponse {
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
    let headers = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            (name.to_lowercase(), value.into())
        })
        .collect();
    RawResponse {
        status,
        headers,
        body: body.into(),
    }
}
