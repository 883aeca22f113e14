//! A node with a low limit of open files: no client takes them from other clients or from the
//! operator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
};

use common::time_limit;
use e2e::process::{Running, stdout_of};
use socket2::{Domain, Socket, Type};

/// Number of files that the node may have open.
const FILES: usize = 512;

/// Starts a node that may have [`FILES`] files open.
fn node(data_dir: &std::path::Path) -> (Running, SocketAddr) {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {FILES} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_faasw"))
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data_dir)
        .current_dir(e2e::root())
        .env_remove("FAASW_DATA_DIR");
    let mut node = Running::start_command(command);
    let address = node.address();
    stdout_of(
        &[
            "deploy",
            "tests/fixtures/http-probe.wasm",
            "--name",
            "probe",
        ],
        data_dir,
    );
    (node, address)
}

/// Connects from one of this machine's addresses.
fn connect(to: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), time_limit(30))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(time_limit(30)))?;
    Ok(stream)
}

/// Returns the status of a response; `None` if the node closed the connection.
fn status(stream: &mut TcpStream, path: &str) -> Option<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    std::str::from_utf8(&answer[9..]).ok()?.parse().ok()
}

/// Asserts that neighbours are served and that the operator's commands work.
#[track_caller]
fn assert_healthy(node: &Running, address: SocketAddr, data_dir: &std::path::Path) {
    for number in 1..=12 {
        let from = Ipv4Addr::new(127, 0, 1, number);
        let mut stream = connect(address, from).unwrap();
        assert_eq!(
            status(&mut stream, "/probe/hello"),
            Some(200),
            "{}",
            node.stderr()
        );
    }
    let name = format!("new-{}", rand::random::<u32>());
    stdout_of(
        &["deploy", "tests/fixtures/wat/hello.wat", "--name", &name],
        data_dir,
    );
    assert!(stdout_of(&["ls"], data_dir).contains(&name));
    let log = node.stderr();
    assert!(!log.contains("os error 24"), "{log}");
}

fn many_connections_of_one_address_lock_out_no_other_client() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = node(folder.path());
    let from = Ipv4Addr::new(127, 66, 0, 1);
    let mut held = Vec::new();
    for _ in 0..FILES + 200 {
        let mut stream = connect(address, from).unwrap();
        // The connection is idle after one response.
        let _ = status(&mut stream, "/healthz");
        held.push(stream);
    }
    assert_healthy(&node, address, folder.path());
    drop(held);
    assert_eq!(node.stop("TERM"), Some(0));
}

fn slow_clients_from_many_addresses_lock_out_no_other_client() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = node(folder.path());
    let log = node.stderr();
    assert!(
        log.contains("the limit of open files lowers other limits"),
        "{log}"
    );
    let mut held = Vec::new();
    for number in 0..FILES + 200 {
        let [high, low] = u16::try_from(number + 1).unwrap().to_be_bytes();
        let mut stream = connect(address, Ipv4Addr::new(127, 67, high, low)).unwrap();
        match number % 3 {
            // No data, the beginning of a head, or a body that does not arrive.
            0 => {}
            1 => drop(stream.write_all(b"GET / HT")),
            _ => drop(
                stream.write_all(b"POST /probe/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"),
            ),
        }
        held.push(stream);
    }
    assert_healthy(&node, address, folder.path());
    drop(held);
    // Half-open connections that never close keep no client out, either.
    let mut held = Vec::new();
    for number in 0..FILES + 200 {
        let [high, low] = u16::try_from(number + 1).unwrap().to_be_bytes();
        let stream = connect(address, Ipv4Addr::new(127, 68, high, low)).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        held.push(stream);
    }
    assert_healthy(&node, address, folder.path());
    drop(held);
    assert_eq!(node.stop("TERM"), Some(0));
}

fn requests_beyond_the_open_files_are_served_or_get_503() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = node(folder.path());
    // Each request has an instance of its own while it sleeps.
    let clients: Vec<_> = (0..200_u16)
        .map(|number| {
            std::thread::spawn(move || {
                let [high, low] = number.to_be_bytes();
                let from = Ipv4Addr::new(127, 69, high, low + 1);
                let mut stream = connect(address, from).ok()?;
                status(&mut stream, "/probe/sleep/300")
            })
        })
        .collect();
    let statuses: Vec<_> = clients
        .into_iter()
        .filter_map(|client| client.join().unwrap())
        .collect();
    assert!(statuses.contains(&200), "{statuses:?} {}", node.stderr());
    let others: Vec<_> = statuses
        .iter()
        .filter(|status| ![200, 503].contains(*status))
        .collect();
    assert!(others.is_empty(), "{others:?} {}", node.stderr());
    assert_healthy(&node, address, folder.path());
    assert_eq!(node.stop("TERM"), Some(0));
}

fn doctor_reports_the_effect_of_a_low_limit() {
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -n {FILES} && exec \"$0\" doctor --json"),
        ])
        .arg(env!("CARGO_BIN_EXE_faasw"))
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|found| found["what"] == "open files");
    let found = found.unwrap();
    assert_eq!(found["state"], "poor", "{found}");
    let detail = found["detail"].as_str().unwrap();
    assert!(
        detail.contains("512") && detail.contains("connections"),
        "{detail}"
    );
}

fn main() {
    e2e::main(tests![
        many_connections_of_one_address_lock_out_no_other_client,
        slow_clients_from_many_addresses_lock_out_no_other_client,
        requests_beyond_the_open_files_are_served_or_get_503,
        doctor_reports_the_effect_of_a_low_limit,
    ]);
}
