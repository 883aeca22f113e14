//! Outbound calls through a connector and a worker in their jails. The jails allow every system
//! call that these need, and no others ([`support::run`] fails if a filter has ended a process).
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use faasw_abi::outgoing::{Answer, FailureCode, OutgoingHead, Tail, Timeouts};
use faasw_egress::client::{Connector, ConnectorOptions, Part, Worker};
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::Destination;
use faasw_pool::EgressProcess;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use support::processes::{kill, name_of, our_processes};
use support::{Bench, give_up};

fn main() {
    support::main(|skip| {
        trials![skip;
            a_call_goes_through_both,
            bodies_of_megabytes_go_both_ways,
            a_name_is_queried_by_datagram_and_by_stream,
            an_unanswered_query_is_reported,
            tls_works_and_unknown_certificates_are_rejected,
            a_new_connector_serves_an_existing_worker,
        ]
    });
}

/// A connector and a worker, with the node's side of both.
struct Egress {
    connector: Connector,
    worker: Worker,
    _processes: [EgressProcess; 2],
}

async fn connector(bench: &Bench, options: &ConnectorOptions) -> (Connector, EgressProcess) {
    let made = bench.pool.egress().connector().await.unwrap();
    let connector = Connector::new(made.socket, options).unwrap();
    (connector, made.process)
}

impl Egress {
    async fn start(bench: &Bench, options: &ConnectorOptions, authorities: &[Bytes]) -> Self {
        let (connector, connecting) = connector(bench, options).await;
        let made = bench.pool.egress().worker().await.unwrap();
        let options = WorkerOptions::default();
        let worker = Worker::new(
            (made.socket, made.passing),
            &connector,
            1,
            options,
            authorities,
        );
        Self {
            connector,
            worker: worker.unwrap(),
            _processes: [connecting, made.process],
        }
    }

    async fn call(&self, scheme: &str, host: &str, port: u16, body: &[u8]) -> Outcome {
        let head = OutgoingHead {
            method: "POST".into(),
            scheme: scheme.into(),
            authority: format!("{host}:{port}").into_bytes(),
            path_and_query: "/".into(),
            headers: vec![(b"content-length".into(), body.len().to_string().into())],
            timeouts: Timeouts::default(),
        };
        let destination = Destination::of_request(&head.scheme, &head.authority).unwrap();
        let mut call = self.worker.begin(&head, destination).unwrap();
        let (mut sender, bytes) = (call.sender, Bytes::copy_from_slice(body));
        let sending = async move {
            if sender.send(bytes).await.is_ok() {
                sender.finish(b"");
            }
        };
        let receiving = async move {
            let mut outcome = Outcome {
                status: Err(FailureCode::InternalError),
                body: Vec::new(),
            };
            while let Some(part) = call.receiver.next().await {
                match part {
                    Part::Head(bytes) | Part::Failed(bytes) => {
                        outcome.status = match Answer::decode(&bytes).unwrap() {
                            Answer::Response(head) => Ok(head.status),
                            Answer::Failed(failure) => Err(failure.code),
                        }
                    }
                    Part::Refused(_) => {}
                    Part::Data(data) => outcome.body.extend_from_slice(&data),
                    Part::End(bytes) => {
                        assert!(matches!(Tail::decode(&bytes).unwrap(), Tail::Trailers(_)));
                    }
                }
            }
            outcome
        };
        tokio::join!(sending, receiving).1
    }
}

/// The result of a call.
#[derive(Debug)]
struct Outcome {
    status: Result<u16, FailureCode>,
    body: Vec<u8>,
}

impl Outcome {
    fn assert_is(&self, body: &[u8]) {
        assert_eq!(self.status, Ok(200));
        assert!(self.body == body, "{} bytes", self.body.len());
    }
}

/// Returns options that let functions reach this machine by the name `upstream.example`.
fn loopback() -> ConnectorOptions {
    ConnectorOptions {
        hosts: b"127.0.0.1 upstream.example\n::1 six.example\n".to_vec(),
        ..private()
    }
}

fn private() -> ConnectorOptions {
    ConnectorOptions {
        private: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        ..ConnectorOptions::default()
    }
}

/// Reads up to and including an empty line.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}

/// Answers each request of a connection with the request's own body.
fn echo(stream: &mut (impl Read + Write)) -> Option<()> {
    loop {
        let head = read_head(stream)?.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap_or("0");
        let mut body = vec![0; length.trim().parse().unwrap()];
        stream.read_exact(&mut body).ok()?;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()?;
        stream.flush().ok()?;
    }
}

/// Starts a server that runs `each` for every connection. Returns its address.
fn server(address: &str, each: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    serve(TcpListener::bind(address).unwrap(), each)
}

fn serve(listener: TcpListener, each: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    let each = Arc::new(each);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, each) = (stream.unwrap(), each.clone());
            thread::spawn(move || each(stream));
        }
    });
    address
}

fn echoing(address: &str) -> u16 {
    let each = |mut stream| {
        let _ = echo(&mut stream);
    };
    server(address, each).port()
}

async fn a_call_goes_through_both(bench: &Bench) {
    let egress = Egress::start(bench, &loopback(), &[]).await;
    let port = echoing("127.0.0.1:0");
    for host in ["127.0.0.1", "upstream.example", "UPSTREAM.example"] {
        // Over a new connection, and over one that was used before.
        for body in ["first", "", "second"] {
            let outcome = egress.call("http", host, port, body.as_bytes()).await;
            outcome.assert_is(body.as_bytes());
        }
    }
    match TcpListener::bind("[::1]:0") {
        Ok(_) => {
            let port = echoing("[::1]:0");
            egress
                .call("http", "six.example", port, b"six")
                .await
                .assert_is(b"six");
        }
        Err(error) => println!("WITHOUT IPv6: {error}"),
    }
}

async fn bodies_of_megabytes_go_both_ways(bench: &Bench) {
    let egress = Egress::start(bench, &loopback(), &[]).await;
    let port = echoing("127.0.0.1:0");
    let body: Vec<u8> = (0..4_u32 << 20).map(|byte| (byte % 251) as u8).collect();
    let calls = [(); 4].map(|()| egress.call("http", "127.0.0.1", port, &body));
    let [a, b, c, d] = calls;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    for outcome in [a, b, c, d] {
        outcome.assert_is(&body);
    }
}

/// Answers a question for an A record with this machine, and any other question with no records. If
/// `is_cut`, the answer is marked as truncated.
fn answered(question: &[u8], is_cut: bool) -> Vec<u8> {
    let mut end = 12;
    while question[end] != 0 {
        end += 1 + usize::from(question[end]);
    }
    let kind = u16::from_be_bytes([question[end + 1], question[end + 2]]);
    let mut answer = question[..end + 5].to_vec();
    answer[2..4].copy_from_slice(&[0x81 | if is_cut { 2 } else { 0 }, 0x80]);
    answer[6..12].fill(0);
    if kind == 1 && !is_cut {
        answer[7] = 1;
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend_from_slice(&Ipv4Addr::LOCALHOST.octets());
    }
    answer
}

/// Starts a name server. If `is_cut`, it answers by streams only, because its datagrams are
/// truncated.
fn names(is_cut: bool) -> SocketAddr {
    // Finds a port that is free for both protocols.
    let (socket, listener) = loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            break (socket, listener);
        }
    };
    let address = serve(listener, |mut stream| {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut question).unwrap();
            let answer = answered(&question, false);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            stream
                .write_all(&[&length, answer.as_slice()].concat())
                .unwrap();
        }
    });
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            socket
                .send_to(&answered(&bytes[..length], is_cut), from)
                .unwrap();
        }
    });
    address
}

async fn a_name_is_queried_by_datagram_and_by_stream(bench: &Bench) {
    let port = echoing("127.0.0.1:0");
    for is_cut in [false, true] {
        let options = ConnectorOptions {
            servers: vec![names(is_cut)],
            ..private()
        };
        let egress = Egress::start(bench, &options, &[]).await;
        let outcome = egress
            .call("http", "somewhere.example", port, b"hello")
            .await;
        outcome.assert_is(b"hello");
    }
}

async fn an_unanswered_query_is_reported(bench: &Bench) {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = ConnectorOptions {
        servers: vec![silent.local_addr().unwrap()],
        ..loopback()
    };
    let egress = Egress::start(bench, &options, &[]).await;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let refused = egress.call("http", "127.0.0.1", port, b"").await;
    assert_eq!(refused.status, Err(FailureCode::ConnectionRefused));
    let unheard = egress.call("http", "unknown.example", port, b"").await;
    assert_eq!(unheard.status, Err(FailureCode::DnsTimeout));
    let prohibited = egress.call("http", "169.254.169.254", 80, b"").await;
    assert_eq!(prohibited.status, Err(FailureCode::DestinationIpProhibited));
    // An upstream that ends amid its response, and one that sends no HTTP.
    for said in [&b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n"[..], b"\0\0"] {
        let cut = server("127.0.0.1:0", |mut stream| {
            let _ = read_head(&mut stream);
            stream.write_all(said).unwrap();
        });
        let failed = egress.call("http", "127.0.0.1", cut.port(), b"").await;
        assert!(failed.status.is_err(), "{failed:?}");
    }
    // The worker continues to serve.
    let port = echoing("127.0.0.1:0");
    egress
        .call("http", "127.0.0.1", port, b"well")
        .await
        .assert_is(b"well");
}

async fn tls_works_and_unknown_certificates_are_rejected(bench: &Bench) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let params = CertificateParams::new(vec!["upstream.example".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let address = server("127.0.0.1:0", move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let _ = echo(&mut StreamOwned::new(connection, stream));
    });
    let port = address.port();
    let authority = Bytes::copy_from_slice(authority.der());
    let egress = Egress::start(bench, &loopback(), &[authority]).await;
    let body = vec![7; 300_000];
    for _ in 0..2 {
        let outcome = egress.call("https", "upstream.example", port, &body).await;
        outcome.assert_is(&body);
    }
    let other = egress.call("https", "127.0.0.1", port, b"").await;
    assert_eq!(other.status, Err(FailureCode::TlsCertificateError));
    let egress = Egress::start(bench, &loopback(), &[]).await;
    let stranger = egress.call("https", "upstream.example", port, b"").await;
    assert_eq!(stranger.status, Err(FailureCode::TlsCertificateError));
}

async fn a_new_connector_serves_an_existing_worker(bench: &Bench) {
    let egress = Egress::start(bench, &loopback(), &[]).await;
    let port = echoing("127.0.0.1:0");
    egress
        .call("http", "127.0.0.1", port, b"one")
        .await
        .assert_is(b"one");
    let connectors = our_processes().into_iter();
    let connectors: Vec<u32> = connectors
        .filter(|pid| name_of(*pid) == "faasw-connector")
        .collect();
    assert_eq!(connectors.len(), 1);
    kill(connectors[0]);
    tokio::time::timeout(give_up(), egress.connector.closed())
        .await
        .unwrap();
    let (again, _process) = connector(bench, &loopback()).await;
    egress.worker.use_connector(&again).unwrap();
    // An origin to which no connection is open.
    let port = echoing("127.0.0.1:0");
    egress
        .call("http", "127.0.0.1", port, b"two")
        .await
        .assert_is(b"two");
}
