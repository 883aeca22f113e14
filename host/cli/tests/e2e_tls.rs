//! The program with certificates, on real KVM: how it reports invalid ones, how it loads new ones,
//! and what functions see.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::net::SocketAddr;

use common::{
    raw::RawResponse,
    tls::{Client, Files},
};
use e2e::process::{Running, faasw, get};
use rustls::pki_types::CertificateDer;

fn get_tls(root: &CertificateDer<'static>, address: SocketAddr, path: &str) -> RawResponse {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(Client::new(root).get(address, "one.test", path))
}

fn certificates_are_read_at_the_start_and_on_sighup() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "first");
    let old = files.write(&["one.test"]);
    let words = [
        "up",
        "tests/fixtures/cgi-probe.wasm",
        "--name",
        "probe",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        files.certificate.to_str().unwrap(),
        "--tls-key",
        files.key.to_str().unwrap(),
        "--redirect-http",
        "127.0.0.1:0",
        "--json",
    ];
    let start = || {
        let mut node = Running::start(&words);
        let line = node.line();
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?} {}", node.stderr()));
        let address = |member: &str| ready[member].as_str().unwrap().parse().unwrap();
        let addresses: [SocketAddr; 2] = [address("address"), address("redirect")];
        (node, addresses)
    };
    let (node, [address, redirect]) = start();
    let seen = get_tls(&old, address, "/probe/env").body;
    for line in ["HTTPS=on", "SERVER_NAME=one.test", "SERVER_PORT=443"] {
        assert!(
            seen.lines().any(|other| other == line),
            "no {line} in {seen}"
        );
    }
    // No certificate is valid for the host of this request.
    assert_eq!(get(redirect, "/probe/env").status, 421);

    std::fs::write(&files.key, "no key").unwrap();
    node.signal("HUP");
    node.said("the previous ones stay in use");
    assert!(node.stderr().contains("first.key"), "{}", node.stderr());
    assert_eq!(get_tls(&old, address, "/probe/count").status, 200);

    let new = files.write(&["one.test"]);
    node.signal("HUP");
    node.said("certificates reloaded");
    assert_eq!(get_tls(&new, address, "/probe/count").status, 200);
    assert_eq!(node.stop("TERM"), Some(0));

    std::fs::write(&files.key, "no key").unwrap();
    let refused = faasw(&words).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("first.key") && said.contains("no usable private key"),
        "{said}"
    );
}

fn main() {
    e2e::main(tests![certificates_are_read_at_the_start_and_on_sighup]);
}
