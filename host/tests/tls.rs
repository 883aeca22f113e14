//! TLS of the gateway: the choices that clients have, and the answers that hostile clients get.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use common::{
    FakeBackend, raw, time_limit,
    tls::{ALL, Client, Files, get, read_all, replace},
};
use faasw::{FunctionOptions, Limits, Node, NodeBuilder, StartError, TlsError};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Starts a node whose gateway has a certificate for these names.
async fn node(folder: &Path, names: &[&str]) -> (Node, SocketAddr, CertificateDer<'static>) {
    let files = Files::new(folder, "first");
    let root = files.write(names);
    let node = common::start(with(&files)).await;
    let address = node.address().unwrap();
    (node, address, root)
}

fn with(files: &Files) -> NodeBuilder {
    common::builder().tls(&files.certificate, &files.key)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_are_spoken_and_functions_see_https() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "first");
    let root = files.write(&["one.test"]);
    let backend = FakeBackend::default();
    let node = common::start_on(with(&files), &backend).await;
    let address = node.address().unwrap();
    for (version, expected) in ALL.iter().zip(["TLSv1_3", "TLSv1_2"]) {
        let client = Client {
            versions: std::slice::from_ref(version),
            ..Client::new(&root)
        };
        let mut stream = client.connect(address, "one.test").await.unwrap();
        let spoken = stream.get_ref().1.protocol_version().unwrap();
        assert_eq!(format!("{spoken:?}"), expected);
        // The request came by TLS, whatever scheme the client claims.
        let answer = get(&mut stream, "one.test", "http://one.test/f/x").await;
        assert_eq!(answer.status, 200);
        let seen = backend.take_seen();
        assert_eq!(seen[0].head.scheme, b"https");
        assert_eq!(seen[0].head.path_and_query, b"/x");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_gateway_never_calls_a_request_https() {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let address = node.address().unwrap();
    assert_eq!(raw::get(address, "https://h/f/").await.status, 200);
    assert_eq!(backend.take_seen()[0].head.scheme, b"http");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_chosen_by_alpn() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address, root) = node(folder.path(), &["one.test"]).await;
    for (protocols, expected) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let client = Client {
            protocols,
            ..Client::new(&root)
        };
        let mut stream = client.connect(address, "one.test").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), expected);
        if expected != Some(b"h2") {
            assert_eq!(get(&mut stream, "one.test", "/f/").await.status, 200);
            continue;
        }
        let (mut requests, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let driver = tokio::spawn(connection);
        let request = http::Request::get("https://one.test/f/big");
        let request = request.body(String::new()).unwrap();
        let answer = timeout(time_limit(60), requests.send_request(request)).await;
        assert_eq!(answer.unwrap().unwrap().status(), 200);
        driver.abort();
    }
    // Without a common protocol, the handshake fails with that error.
    let stranger = Client {
        protocols: &["spdy/1"],
        ..Client::new(&root)
    };
    let error = stranger.connect(address, "one.test").await.unwrap_err();
    assert!(
        error.to_string().contains("NoApplicationProtocol"),
        "{error}"
    );
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_choose_among_certificates_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["one", "two", "three"].map(|name| Files::new(folder.path(), name));
    let names: [&[&str]; 3] = [&["one.test"], &["two.test"], &["*.wild.test"]];
    let roots = [0, 1, 2].map(|number: usize| files[number].write(names[number]));
    let builder = files.iter().fold(common::builder(), |builder, files| {
        builder.tls(&files.certificate, &files.key)
    });
    let node = common::start(builder).await;
    let address = node.address().unwrap();
    for (name, expected) in [
        ("one.test", 0),
        ("two.test", 1),
        ("f.wild.test", 2),
        ("TWO.test", 1),
    ] {
        let client = Client::new(&roots[expected]);
        assert_eq!(client.get(address, name, "/f/").await.status, 200, "{name}");
    }
    // A request's host may differ from the handshake's name: clients send requests for all names of
    // a certificate on one connection, and routing uses the host.
    let mut stream = Client::new(&roots[1])
        .connect(address, "two.test")
        .await
        .unwrap();
    assert_eq!(get(&mut stream, "one.test", "/f/").await.status, 200);
    // A client that asks for another name gets the first certificate, and may reject it.
    let mut all = Client::new(&roots[0]);
    all.roots = roots.to_vec();
    let error = all.connect(address, "other.test").await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let error = all.connect(address, "127.0.0.1").await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_certificates_are_loaded_and_bad_ones_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "first");
    let old = files.write(&["one.test"]);
    let node = common::start(with(&files)).await;
    let address = node.address().unwrap();
    let speaks = async |root: &CertificateDer<'static>| {
        let shaken = Client::new(root).connect(address, "one.test").await;
        shaken.is_ok()
    };
    let mut before = Client::new(&old)
        .connect(address, "one.test")
        .await
        .unwrap();

    // An explicit reload while the key is invalid: the error names the file, and nothing changes.
    let key = std::fs::read_to_string(&files.key).unwrap();
    replace(&files.key, "no key");
    let error = node.reload_certificates().await.unwrap_err();
    assert!(matches!(error, TlsError::Key { .. }), "{error}");
    assert!(error.to_string().contains("first.key"), "{error}");
    assert!(speaks(&old).await);
    replace(&files.key, &key);

    // An explicit reload of a new certificate.
    let new = files.write(&["one.test"]);
    node.reload_certificates().await.unwrap();
    assert!(speaks(&new).await && !speaks(&old).await);
    // A connection that existed before goes on.
    assert_eq!(get(&mut before, "one.test", "/f/").await.status, 200);

    // The node notices the newest certificate by itself.
    let newest = files.write(&["one.test"]);
    let seen = async {
        while !speaks(&newest).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(time_limit(60), seen)
        .await
        .expect("a change is seen");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_start_with_unusable_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "first");
    files.write(&["one.test"]);
    let start = |builder: NodeBuilder| builder.start_on(Arc::new(FakeBackend::default()));
    std::fs::write(&files.key, "nothing").unwrap();
    let error = start(with(&files)).await.unwrap_err();
    assert!(matches!(error, StartError::Tls(_)), "{error}");
    assert!(error.to_string().contains("first.key"), "{error}");
    let alone = common::builder().redirect_http("127.0.0.1:0".parse().unwrap());
    let error = start(alone).await.unwrap_err();
    assert!(matches!(error, StartError::RedirectNeedsTls), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_a_tls_port_is_rejected_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address, root) = node(folder.path(), &["one.test"]).await;
    let hello_of_64k = {
        // A handshake message that announces 16 MB, in full records.
        let mut bytes = Vec::new();
        for number in 0..32 {
            bytes.extend([0x16, 3, 1, 0x40, 0]);
            let mut fragment = vec![0; 0x4000];
            if number == 0 {
                fragment[..4].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
            }
            bytes.extend(fragment);
        }
        bytes
    };
    for (what, bytes) in [
        (
            "plain http",
            b"GET /f/ HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        ),
        ("http/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("noise", vec![0xa5; 100_000]),
        (
            "data before a handshake",
            vec![0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5],
        ),
        (
            "a hello that is none",
            vec![0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0],
        ),
        ("a hello without end", hello_of_64k),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The node may close before it has received all bytes.
        let _ = stream.write_all(&bytes).await;
        let mut answer = Vec::new();
        let reading = timeout(time_limit(60), stream.read_to_end(&mut answer)).await;
        let _ = reading.expect("an end in time");
        // The node sends an alert and nothing else. If it closed before it had read everything, the
        // alert may be lost.
        let is_alert = answer.len() == 7 && answer[0] == 0x15;
        assert!(
            is_alert || (bytes.len() > 1000 && answer.is_empty()),
            "{what}: {answer:?}"
        );
    }
    // The node does not support TLS 1.1: the alert is fatal.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    let alert = read_all(&mut stream).await;
    assert_eq!((alert[0], alert[5], alert.len()), (0x15, 2, 7), "{alert:?}");
    let answer = Client::new(&root).get(address, "one.test", "/f/").await;
    assert_eq!(answer.status, 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_stalls_ends_with_the_time_for_a_head() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "first");
    let root = files.write(&["one.test"]);
    let mut limits = Limits::default();
    limits.request_read = Duration::from_millis(300);
    let node = common::start(with(&files).limits(limits)).await;
    let address = node.address().unwrap();
    // A silent connection, half a record, and a handshake without a request.
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(&[0x16, 3, 1, 1, 0, 1, 0]).await.unwrap();
    let mut shaken = Client::new(&root)
        .connect(address, "one.test")
        .await
        .unwrap();
    let mut rest = Vec::new();
    // No client gets an answer. Each one sees only the end of the socket or, where the node left
    // bytes unread, a reset.
    let ended = timeout(time_limit(30), shaken.read_to_end(&mut rest)).await;
    let _ = ended.expect("the node closes it");
    for stream in [&mut silent, &mut half] {
        let ended = timeout(time_limit(30), stream.read_to_end(&mut rest)).await;
        let _ = ended.expect("the node closes it");
    }
    assert_eq!(rest, b"");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_under_way_do_not_hold_up_others_or_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address, root) = node(folder.path(), &["one.test"]).await;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[0x16, 3, 1]).await.unwrap();
        stalled.push(stream);
    }
    let answer = Client::new(&root).get(address, "one.test", "/f/").await;
    assert_eq!(answer.status, 200);
    // If handshakes had no limit at a shutdown, the node would wait for ever.
    let limit = node.limits().shutdown + common::give_up();
    timeout(limit, node.shutdown()).await.expect("an end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cuts_the_connection_short_is_no_truncation_of_a_response() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address, root) = node(folder.path(), &["one.test"]).await;
    // TLS, and not the socket alone, signals the end of a response.
    let mut stream = Client::new(&root)
        .connect(address, "one.test")
        .await
        .unwrap();
    stream
        .write_all(b"GET /f/ HTTP/1.0\r\nHost: one.test\r\n\r\n")
        .await
        .unwrap();
    // `read_to_end` fails if the end comes without a close_notify.
    let answer = raw::parse(&read_all(&mut stream).await);
    assert_eq!(answer.status, 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_is_redirected_and_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "first");
    let root = files.write(&["one.test", "*.wild.test"]);
    let backend = FakeBackend::default();
    let builder = with(&files).redirect_http("127.0.0.1:0".parse().unwrap());
    let node = common::start_on(builder, &backend).await;
    let (gateway, plain) = (node.address().unwrap(), node.redirect_address().unwrap());
    let ask = async |host: &str, target: &str| {
        let text = format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: \
             2\r\n\r\nab"
        );
        raw::send(plain, text.as_bytes()).await
    };
    let port = gateway.port();
    for (host, target, location) in [
        (
            "one.test",
            "/f/x?y",
            format!("https://one.test:{port}/f/x?y"),
        ),
        ("ONE.test:80", "/", format!("https://one.test:{port}/")),
        (
            "a.wild.test",
            "//b",
            format!("https://a.wild.test:{port}//b"),
        ),
    ] {
        let answer = ask(host, target).await;
        assert_eq!(answer.status, 308, "{host}");
        assert_eq!(answer.header("location"), Some(&*location));
    }
    for (host, status) in [
        ("evil.test", 421),
        ("one.test.evil.test", 421),
        ("a@one.test", 400),
    ] {
        let answer = ask(host, "/").await;
        assert_eq!(answer.status, status, "{host}");
        assert_eq!(answer.header("location"), None);
    }
    assert!(backend.take_seen().is_empty());
    let answer = Client::new(&root).get(gateway, "one.test", "/f/").await;
    assert_eq!(answer.status, 200);
    node.deploy("g", "module", FunctionOptions::default())
        .await
        .unwrap();
    node.shutdown().await;
}
