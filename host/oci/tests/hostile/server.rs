//! A registry that a test makes up: it reads a request's head and what is announced of its body,
//! and answers as the test decides, validly or not.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// A request as the server received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub authorization: Option<String>,
    pub body: String,
}

impl ReceivedRequest {
    /// Method and path.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The bytes that follow a response's head.
pub enum Body {
    /// This, as long as it is.
    Whole(Vec<u8>),
    /// This of so many bytes, and then the end of the connection.
    Cut(Vec<u8>, usize),
    /// This of so many bytes, and then nothing more.
    Stalled(Vec<u8>, usize),
    /// This over and over, in chunks.
    Endless(Vec<u8>),
    /// A byte now and then, of this many.
    Dripping(usize),
    /// Not even a head.
    Nothing,
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

impl Answer {
    pub fn of(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::Whole(Vec::new()),
        }
    }

    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::of(200).body(Body::Whole(body.into()))
    }

    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server; it ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers each request by `answer`.
    pub async fn start(
        answer: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let (answer, all) = (Arc::new(answer), requests.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, all) = (answer.clone(), all.clone());
                connections.spawn(async move {
                    // A client that goes away is what most tests are about.
                    let _ = serve(stream, &*answer, &all).await;
                });
            }
        });
        Self {
            address,
            requests,
            task: task.abort_handle(),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests that it received, in order.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.requests().iter().map(ReceivedRequest::line).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&ReceivedRequest) -> Answer + ?Sized),
    all: &Mutex<Vec<ReceivedRequest>>,
) -> std::io::Result<()> {
    let mut read = Vec::new();
    let end = loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        read.extend_from_slice(&piece[..count]);
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let mut request = ReceivedRequest {
        method: first.next().unwrap_or_default().to_owned(),
        path: first.next().unwrap_or_default().to_owned(),
        authorization: field("authorization"),
        body: String::new(),
    };
    let answer = answer(&request);
    if matches!(answer.body, Body::Nothing) {
        all.lock().unwrap().push(request);
        tokio::time::sleep(Duration::from_secs(600)).await;
        return Ok(());
    }
    let length: usize = field("content-length").map_or(0, |text| text.parse().unwrap());
    while read.len() < end + length {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        read.extend_from_slice(&piece[..count]);
    }
    request.body = String::from_utf8_lossy(&read[end..]).into_owned();
    let is_head = request.method == "HEAD";
    all.lock().unwrap().push(request);
    let mut head = format!("HTTP/1.1 {} Told\r\nConnection: close\r\n", answer.status);
    for (name, value) in answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let length = match &answer.body {
        Body::Whole(bytes) => Some(bytes.len()),
        Body::Cut(_, length) | Body::Stalled(_, length) | Body::Dripping(length) => Some(*length),
        Body::Endless(_) | Body::Nothing => None,
    };
    head += &match length {
        Some(length) => format!("Content-Length: {length}\r\n\r\n"),
        None => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
    };
    stream.write_all(head.as_bytes()).await?;
    if is_head {
        return stream.shutdown().await;
    }
    match answer.body {
        Body::Whole(bytes) | Body::Cut(bytes, _) => stream.write_all(&bytes).await?,
        Body::Stalled(bytes, _) => {
            stream.write_all(&bytes).await?;
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        Body::Endless(bytes) => loop {
            stream
                .write_all(format!("{:x}\r\n", bytes.len()).as_bytes())
                .await?;
            stream.write_all(&bytes).await?;
            stream.write_all(b"\r\n").await?;
        },
        Body::Dripping(count) => {
            for _ in 0..count {
                stream.write_all(b"x").await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Body::Nothing => {}
    }
    stream.shutdown().await
}
