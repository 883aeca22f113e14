//! A server that answers with the request that it received.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::client::Client;

/// A server on a free port that runs until the tests end. The body of a response is the request,
/// byte by byte.
pub struct Upstream {
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Upstream {
    pub fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        thread::spawn(move || {
            for stream in socket.incoming() {
                let counter = counter.clone();
                thread::spawn(move || answer(stream.unwrap(), &counter));
            }
        });
        Self { address, requests }
    }

    /// Returns the number of requests received.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(stream: TcpStream, requests: &AtomicUsize) {
    let mut stream = Client::over(stream);
    let (head, body) = stream.message();
    requests.fetch_add(1, Ordering::SeqCst);
    let fields = if head.contains("/many-fields ") {
        (0..200).map(|n| format!("X-{n}: {n}\r\n")).collect()
    } else {
        String::new()
    };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nServer: upstream\r\nX-Upstream: yes\r\n{fields}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{head}{body}",
        head.len() + body.len(),
    );
    // The proxy may have closed the connection.
    let _ = stream.get_mut().write_all(answer.as_bytes());
}
