//! TLS: which servers a worker trusts, and how it reports the others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use common::tls::{Identity, authority, https, identity, trusting};
use common::{Egress, Outcome, Upstream, is_closed, runtime};
use faasw_abi::outgoing::FailureCode as Code;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

type Stream = StreamOwned<ServerConnection, TcpStream>;

fn read_head(stream: &mut Stream) -> Option<String> {
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

/// A server with this certificate that reports the requested name and the protocol.
fn server(identity: Identity, versions: &[&'static rustls::SupportedProtocolVersion]) -> Upstream {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.0], identity.1)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    Upstream::new(move |stream, _| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        while read_head(&mut stream).is_some() {
            let name = stream.conn.server_name().unwrap_or("nobody").to_owned();
            let protocol = stream.conn.alpn_protocol().unwrap_or_default().to_vec();
            let body = format!("{name} {}", String::from_utf8(protocol).unwrap());
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream
                .write_all(format!("{head}{body}").as_bytes())
                .unwrap();
            stream.flush().unwrap();
        }
    })
}

async fn get(egress: &Egress, host: &str, upstream: &Upstream) -> Outcome {
    egress.call(&https(host, upstream.address), b"").await
}

#[test]
fn tls_sends_the_server_name_and_supports_both_versions() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let names = ["upstream.example", "127.0.0.1"];
            let upstream = server(identity(Some(&authority), &names, false), &[version]);
            for _ in 0..2 {
                let outcome = get(&egress, "upstream.example", &upstream).await;
                assert_eq!(
                    outcome.body,
                    b"upstream.example http/1.1",
                    "{:?}",
                    outcome.failure()
                );
            }
            // The second request used the first one's connection; a request to the address uses
            // another.
            assert_eq!(upstream.count(), 1);
            let outcome = get(&egress, "127.0.0.1", &upstream).await;
            assert_eq!(outcome.body, b"nobody http/1.1", "{:?}", outcome.failure());
            assert_eq!(upstream.count(), 2);
        }
    });
}

#[test]
fn a_certificate_for_another_name_or_issuer_is_refused() {
    runtime().block_on(async {
        let (known, unknown) = (authority(), authority());
        let egress = trusting(&known);
        let name = ["upstream.example"];
        let identities = [
            (
                "of another name",
                identity(Some(&known), &["other.example"], false),
            ),
            (
                "of a part of the name",
                identity(Some(&known), &["example"], false),
            ),
            ("expired", identity(Some(&known), &name, true)),
            ("of its own", identity(None, &name, false)),
            (
                "of an unknown authority",
                identity(Some(&unknown), &name, false),
            ),
        ];
        for (what, identity) in identities {
            let upstream = server(identity, rustls::ALL_VERSIONS);
            let outcome = get(&egress, "upstream.example", &upstream).await;
            assert_eq!(outcome.failure(), Some(Code::TlsCertificateError), "{what}");
        }
        // The certificate must match the name, not the address of the server.
        let upstream = server(
            identity(Some(&known), &["127.0.0.1"], false),
            rustls::ALL_VERSIONS,
        );
        let outcome = get(&egress, "upstream.example", &upstream).await;
        assert_eq!(outcome.failure(), Some(Code::TlsCertificateError));
    });
}

#[test]
fn a_failed_handshake_has_its_error_code() {
    runtime().block_on(async {
        let egress = trusting(&authority());
        // An alert: `handshake_failure`.
        let alerting = Upstream::new(|mut stream, _| {
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"\x15\x03\x03\0\x02\x02\x28").unwrap();
        });
        let outcome = get(&egress, "upstream.example", &alerting).await;
        assert_eq!(outcome.failure(), Some(Code::TlsAlertReceived));
        let plain = Upstream::saying("HTTP/1.1 400 Bad Request\r\n\r\n");
        let speaking = Upstream::new(|mut stream, _| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        drop(plain);
        let outcome = get(&egress, "upstream.example", &speaking).await;
        assert_eq!(outcome.failure(), Some(Code::TlsProtocolError));
        let closing = Upstream::new(|mut stream, _| drop(stream.read(&mut [0; 4096])));
        let outcome = get(&egress, "upstream.example", &closing).await;
        assert_eq!(outcome.failure(), Some(Code::ConnectionTerminated));
        // A silent server is waited for as long as connecting may take.
        let silent = Upstream::new(|mut stream, _| {
            let _ = stream.read(&mut [0; 4096]);
            assert!(is_closed(&mut stream));
        });
        let mut request = https("upstream.example", silent.address);
        request.timeouts.connect = 200_000_000;
        let outcome = egress.call(&request, b"").await;
        assert_eq!(outcome.failure(), Some(Code::ConnectionTimeout));
        assert!(!egress.worker.is_closed());
    });
}

#[test]
fn a_truncated_tls_stream_is_not_taken_for_a_complete_response() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let identity = identity(Some(&authority), &["upstream.example"], false);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.0], identity.1)
            .unwrap();
        let config = Arc::new(config);
        let upstream = Upstream::new(move |stream, number| {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            read_head(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nto the end")
                .unwrap();
            if number == 0 {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
        });
        let outcome = get(&egress, "upstream.example", &upstream).await;
        assert_eq!(
            (&outcome.body[..], outcome.failure()),
            (&b"to the end"[..], None)
        );
        // Without TLS's close notification, an attacker may have ended the body.
        let outcome = get(&egress, "upstream.example", &upstream).await;
        assert_eq!(outcome.failure(), Some(Code::HttpResponseIncomplete));
    });
}
