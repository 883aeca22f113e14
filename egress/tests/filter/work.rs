//! Calls that exercise the normal work of connector and worker.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::outgoing::{Answer, OutgoingHead, Timeouts};
use faasw_egress::client::{Connector, ConnectorOptions, Part, Worker};
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::{AllowPrivate, Destination};

use crate::secure;

/// Timeout for all calls together.
const LONG: Duration = Duration::from_secs(60);

/// Makes calls, and drops both processes' handles.
///
/// # Errors
/// Returns a description of the first unexpected result.
pub fn through(orders: OwnedFd, frames: OwnedFd, passing: OwnedFd) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let outcome = runtime.block_on(async {
        let servers = vec![failing_names(), names()];
        let mut hosts = b"127.0.0.1 known.example\n".to_vec();
        // More than fits in the heap, so that memory is mapped and unmapped.
        hosts.extend(b"# nobody\n".repeat(1 << 16));
        let options = ConnectorOptions {
            hosts,
            servers,
            private: ["127.0.0.0/8", "::1"]
                .map(|text| AllowPrivate::network(text).unwrap())
                .into(),
            ..ConnectorOptions::default()
        };
        let connector = Connector::new(orders, &options).unwrap();
        let (config, authority) = secure::config("known.example");
        let options = WorkerOptions::default();
        let sockets = (frames, passing);
        let worker = Worker::new(sockets, &connector, 1, options, &[authority]).unwrap();
        let port = echoing();
        let secure = secure::echoing(config).await;
        let calls = async {
            let large = vec![7; 4 << 20];
            for (scheme, host, port, body) in [
                ("http", "known.example", port, &b"hello"[..]),
                ("http", "127.0.0.1", port, &large),
                ("https", "known.example", secure, &large),
                ("https", "known.example", secure, b"hello"),
            ] {
                let echoed = call(&worker, scheme, host, port, body).await?;
                if echoed.as_deref().map_err(String::as_str) != Ok(body) {
                    let echoed = echoed.map(|echoed| echoed.len());
                    return Err(format!("{scheme}://{host} did not echo: {echoed:?}"));
                }
            }
            // The first name server fails, so that the second one is queried.
            call(&worker, "http", "asked.example", port, b"hello")
                .await?
                .ok();
            // No server listens there.
            call(&worker, "http", "[::1]", 1, b"").await.map(|_| ())
        };
        let timed_out = |_| Err("it takes too long".to_owned());
        tokio::time::timeout(LONG, calls)
            .await
            .unwrap_or_else(timed_out)
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

/// Returns the echoed body, or why the call fails.
async fn call(
    worker: &Worker,
    scheme: &str,
    host: &str,
    port: u16,
    body: &[u8],
) -> Result<Result<Vec<u8>, String>, String> {
    let head = OutgoingHead {
        method: "POST".into(),
        scheme: scheme.into(),
        authority: format!("{host}:{port}").into_bytes(),
        path_and_query: "/".into(),
        headers: vec![(b"content-length".into(), body.len().to_string().into())],
        timeouts: Timeouts::default(),
    };
    let destination = Destination::of_request(&head.scheme, &head.authority).unwrap();
    let call = worker.begin(&head, destination);
    let mut call = call.map_err(|failure| format!("{failure:?}"))?;
    let (mut sender, bytes) = (call.sender, Bytes::copy_from_slice(body));
    let sending = async move {
        if sender.send(bytes).await.is_ok() {
            sender.finish(b"");
        }
    };
    let receiving = async move {
        let mut echoed = Vec::new();
        while let Some(part) = call.receiver.next().await {
            match part {
                Part::Head(_) | Part::End(_) | Part::Refused(_) => {}
                Part::Data(data) => echoed.extend_from_slice(&data),
                Part::Failed(why) => return Err(format!("{:?}", Answer::decode(&why))),
            }
        }
        Ok(echoed)
    };
    Ok(tokio::join!(sending, receiving).1)
}

fn serve(listener: TcpListener, each: fn(&mut TcpStream) -> Option<()>) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || each(&mut stream));
        }
    });
}

/// Starts an echo server that closes the connection after each request. Returns its port.
fn echoing() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    serve(listener, |stream| {
        let mut head = Vec::new();
        let mut one = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut one).ok()?;
            head.push(one[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).ok()?;
        let head =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()
    });
    port
}

/// Starts a name server that answers every name with this machine's address.
fn names() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    answering(socket, answer);
    address
}

fn answering(socket: UdpSocket, answer: fn(&[u8]) -> Vec<u8>) {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&answer(&bytes[..length]), from).unwrap();
        }
    });
}

/// Starts a name server, over IPv6 if available, that always fails, so that the next one is
/// queried.
fn failing_names() -> SocketAddr {
    let nobody = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
    let Ok(socket) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) else {
        return nobody;
    };
    let address = socket.local_addr().unwrap();
    answering(socket, |question| {
        let mut answer = answer(question);
        answer.truncate(end_of_question(&answer));
        answer[7] = 0;
        answer[3] |= 2;
        answer
    });
    address
}

/// Returns where the question ends.
fn end_of_question(question: &[u8]) -> usize {
    let mut end = 12;
    while question[end] != 0 {
        end += 1 + usize::from(question[end]);
    }
    end + 5
}

/// Answers a question: this machine for an A record, nothing for any other.
fn answer(question: &[u8]) -> Vec<u8> {
    let end = end_of_question(question);
    let kind = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let mut answer = question[..end].to_vec();
    answer[2..4].copy_from_slice(&[0x81, 0x80]);
    answer[6..12].fill(0);
    if kind == 1 {
        answer[7] = 1;
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend_from_slice(&Ipv4Addr::LOCALHOST.octets());
    }
    answer
}
