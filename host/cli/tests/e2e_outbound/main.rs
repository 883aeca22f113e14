//! Outbound calls of functions in real microVMs to real servers, through the processes that make
//! them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;
mod inside;
mod scripts;
mod sharing;
mod upstream;

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    process::Command,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::tls::Files;
use e2e::{
    Bench, limits,
    process::{Running, descendants, faasw, get, stdout_of},
    until,
};
use faasw::{FunctionOptions, Node, OutboundGrant, OutboundOptions};
use inside::{
    a_call_loop_through_other_functions_ends, a_self_call_never_waits_for_a_permit,
    an_abandoned_self_call_ends_its_callee, bodies_and_failures_are_passed,
    functions_call_each_other_without_another_process, self_calls_need_a_grant,
};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
};
use scripts::{
    a_call_ends_with_the_request_of_a_script, a_script_aborts_its_calls, a_script_calls_a_server,
    a_script_learns_in_its_log_what_is_closed, each_hop_of_a_redirect_needs_its_grant,
    scripts_call_functions_of_the_node,
};
use sharing::{
    a_flood_leaves_a_neighbour_an_eighth_of_the_memory,
    a_flood_leaves_a_neighbour_an_eighth_of_the_permits,
    a_request_causes_a_bounded_number_of_invocations,
    invocations_use_the_cpu_time_of_the_request_that_caused_them,
    nested_calls_at_any_depth_count_for_the_clients_request,
};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use upstream::Upstream;

const PROBE: &str = "tests/fixtures/call-probe.wasm";

/// The runtime of upstreams.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A node whose functions may reach this machine.
static REACHING: LazyLock<Bench> = LazyLock::new(|| {
    e2e::at_end(|| REACHING.end());
    reaching()
});

fn reaching() -> Bench {
    let options = OutboundOptions::default().allow_private("127.0.0.0/8".parse().unwrap());
    Bench::start(Node::builder().outbound(options), limits())
}

fn upstream() -> Upstream {
    RUNTIME.block_on(Upstream::start(None))
}

fn granted(grants: &[&str]) -> FunctionOptions {
    let grants = grants
        .iter()
        .map(|grant| OutboundGrant::new(grant).unwrap());
    grants.fold(FunctionOptions::default(), FunctionOptions::allow_outbound)
}

/// Deploys a function that may send requests to any port of this machine.
fn probe(bench: &Bench, name: &str) {
    let deployed = bench.function(name, PROBE, granted(&["http://127.0.0.1:*"]));
    assert_eq!(deployed.notice, None);
}

fn processes(name: &str) -> Vec<u32> {
    let is_it = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    let all = descendants(std::process::id()).into_iter();
    let mut found: Vec<_> = all.filter(is_it).collect();
    found.sort_unstable();
    found
}

fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

fn granted_calls_are_answered() {
    let upstream = upstream();
    probe(&REACHING, "asks");
    let at = upstream.address;
    let answer = REACHING.text(&format!("/asks/get/{at}/a/b?c=d"));
    assert!(answer.starts_with("200 "), "{answer}");
    assert!(
        answer.contains(&format!("GET /a/b?c=d of {at}")),
        "{answer}"
    );
    let answers = REACHING.text(&format!("/asks/at-once/{at}/16"));
    let mut said: Vec<_> = answers
        .lines()
        .map(|line| line.split('"').nth(1).unwrap_or(line).to_owned())
        .collect();
    said.sort();
    let mut expected: Vec<_> = (0..16).map(|nth| format!("GET /{nth} of {at}")).collect();
    expected.sort();
    assert_eq!(said, expected);
    // Connections are reused.
    let before = upstream.counts.connections.load(Ordering::SeqCst);
    let answer = REACHING.text(&format!("/asks/in-turn/{at}/50"));
    assert!(answer.starts_with("50 good"), "{answer}");
    let after = upstream.counts.connections.load(Ordering::SeqCst);
    assert!(after <= before + 1, "{before} to {after}");
}

fn bodies_are_passed_in_both_directions() {
    let upstream = upstream();
    probe(&REACHING, "asks");
    let at = upstream.address;
    let megabytes = 8 << 20;
    let answer = REACHING.text(&format!("/asks/duplex/{at}/{megabytes}"));
    assert_eq!(
        answer,
        format!("sent {megabytes} got {megabytes} same true")
    );
    let path = format!("/asks/proxy/{at}/echo");
    REACHING.assert_echoes_bytes(&path);
}

fn calls_without_a_grant_are_denied_and_logged() {
    let upstream = upstream();
    let at = upstream.address;
    let options = granted(&["http://127.0.0.1:1", "https://127.0.0.1:*"]);
    REACHING.function("denied", PROBE, options);
    let answer = REACHING.text(&format!("/denied/get/{at}/"));
    assert!(answer.contains("HttpRequestDenied"), "{answer}");
    let log = REACHING.log("denied").join("\n");
    assert!(
        log.contains(&format!("deploy with --allow-outbound http://{at}")),
        "{log}"
    );
    assert_eq!(upstream.requests(), 0);
    let metrics = REACHING.node.metrics();
    let counted = r#"faasw_outbound_requests_total{function="denied",result="refused"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    // A function without grants is denied within its guest.
    REACHING.function("nothing", PROBE, FunctionOptions::default());
    let answer = REACHING.text(&format!("/nothing/get/{at}/"));
    assert!(answer.contains("HttpRequestDenied"), "{answer}");
}

fn a_grant_does_not_open_private_addresses() {
    let upstream = upstream();
    let closed = Bench::start(Node::builder(), limits());
    probe(&closed, "asks");
    let answer = closed.text(&format!("/asks/get/{}/", upstream.address));
    assert!(answer.contains("DestinationIpProhibited"), "{answer}");
    assert_eq!(upstream.requests(), 0);
    // The function does not learn which address it was. Its owner learns it from the log, with the
    // remedy.
    assert!(!answer.contains("--allow-private"), "{answer}");
    let log = closed.log("asks").join("\n");
    let expected = format!(
        "a request to http://{} was granted and not made: 127.0.0.1 is a loopback address",
        upstream.address
    );
    assert!(log.contains(&expected), "{log}");
    assert!(
        log.contains("start the node with --allow-private 127.0.0.1"),
        "{log}"
    );
    closed.end();
}

/// Functions make as many requests to dead names as their clients can cause.
fn unanswered_names_of_some_functions_affect_no_other() {
    const FUNCTIONS: usize = 5;
    const CLIENTS: usize = 8;
    let upstream = upstream();
    let port = upstream.address.port();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name_server = server.local_addr().unwrap();
    let dead = Arc::new(AtomicUsize::new(0));
    let counted = dead.clone();
    std::thread::spawn(move || answer_names(&server, &counted));
    let options = OutboundOptions::default()
        .allow_private("127.0.0.0/8".parse().unwrap())
        .name_servers([name_server]);
    let node = Bench::start(Node::builder().outbound(options), limits());
    for number in 0..FUNCTIONS {
        let options = granted(&["http://*.dead.test"]);
        node.function(&format!("evil{number}"), PROBE, options);
    }
    let options = granted(&[&format!("http://*.good.test:{port}")]);
    node.function("victim", PROBE, options);
    let address = node.address;
    let asking: Vec<_> = (0..FUNCTIONS * CLIENTS)
        .map(|client| {
            let function = client % FUNCTIONS;
            let path = format!("/evil{function}/at-once/n{client}.dead.test/16");
            node.runtime()
                .spawn(async move { common::raw::get(address, &path).await })
        })
        .collect();
    until("all of them ask", || {
        dead.load(Ordering::SeqCst) >= 2 * FUNCTIONS
    });
    for number in 0..20 {
        let answer = node.text(&format!("/victim/get/n{number}.good.test:{port}/"));
        assert!(answer.starts_with("200 "), "{answer}");
    }
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    node.end();
}

/// Answers queries for all names but dead ones, which it counts.
fn answer_names(server: &UdpSocket, dead: &AtomicUsize) {
    let mut bytes = [0; 4096];
    while let Ok((length, from)) = server.recv_from(&mut bytes) {
        let mut message = bytes[..length].to_vec();
        if message.windows(5).any(|window| window == b"\x04dead") {
            dead.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        message[2..4].copy_from_slice(&[0x81, 0x80]);
        // An address, if the query is for IPv4.
        if message[length - 3] == 1 {
            message[7] = 1;
            message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
        }
        let _ = server.send_to(&message, from);
    }
}

fn responses_to_abandoned_calls_are_discarded() {
    let upstream = upstream();
    let at = upstream.address;
    probe(&REACHING, "late");
    // The function drops these calls, and then makes another one. As many of them are dropped as
    // have left the node.
    let answer = REACHING.text(&format!("/late/flood/{at}/10"));
    assert!(answer.contains("GET /after"), "{answer}");
    // The call is abandoned when the request ends.
    let before = upstream.held().0;
    let answer = REACHING.text(&format!("/late/leave/{at}/begun"));
    assert_eq!((answer.as_str(), upstream.held().0), ("left", before + 1));
    until("all of them are given up", || {
        let (held, given_up) = upstream.held();
        held == given_up
    });
    upstream.release();
    for _ in 0..20 {
        let answer = REACHING.text(&format!("/late/get/{at}/next"));
        assert!(answer.contains("GET /next"), "{answer}");
    }
}

fn both_egress_processes_may_be_killed() {
    let upstream = upstream();
    let at = upstream.address;
    let node = reaching();
    let others: Vec<_> = ["faasw-worker", "faasw-connector"].map(processes).concat();
    probe(&node, "asks");
    for name in ["faasw-worker", "faasw-connector", "faasw-worker"] {
        let answer = node.text(&format!("/asks/get/{at}/"));
        assert!(answer.starts_with("200 "), "{name}: {answer}");
        let own = || -> Vec<u32> {
            let is_own = |pid: &u32| !others.contains(pid);
            processes(name).into_iter().filter(is_own).collect()
        };
        let found = own();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        if name == "faasw-worker" {
            // A call that is under way fails.
            let path = format!("/asks/get/{at}/held");
            let before = upstream.requests();
            let address = node.address;
            let asking = node
                .runtime()
                .spawn(async move { common::raw::get(address, &path).await });
            until("it is there", || upstream.requests() > before);
            kill(found[0]);
            let answer = node.block_on(asking).unwrap();
            assert!(answer.body.contains("ConnectionTerminated"), "{answer:?}");
        } else {
            kill(found[0]);
        }
        until("it is gone", || own() != found);
    }
    // The next call works, whatever connections there were.
    let answer = node.text(&format!("/asks/get/{at}/"));
    assert!(answer.starts_with("200 "), "{answer}");
    node.end();
    let mut left = processes("faasw-worker");
    left.extend(processes("faasw-connector"));
    left.retain(|pid| !others.contains(pid));
    assert_eq!(left, [] as [u32; 0]);
}

/// A process that neither ends nor responds is noticed by the calls that wait for it, and the next
/// process works.
fn both_egress_processes_may_hang() {
    let node = reaching();
    let others: Vec<_> = ["faasw-worker", "faasw-connector"].map(processes).concat();
    probe(&node, "asks");
    for name in ["faasw-connector", "faasw-worker"] {
        // A new upstream each time, so that a new connection is necessary.
        let at = upstream().address;
        let answer = node.text(&format!("/asks/get/{at}/"));
        assert!(answer.starts_with("200 "), "{name}: {answer}");
        let mut own = processes(name);
        own.retain(|pid| !others.contains(pid));
        assert_eq!(own.len(), 1, "{name}: {own:?}");
        let stopped = Command::new("kill")
            .args(["-STOP", &own[0].to_string()])
            .status();
        assert!(stopped.unwrap().success());
        let at = upstream().address;
        let answer = node.text(&format!("/asks/get/{at}/"));
        assert!(answer.contains("ConnectionTerminated"), "{name}: {answer}");
        let answer = node.text(&format!("/asks/get/{at}/"));
        assert!(answer.starts_with("200 "), "{name}: {answer}");
        until("it is gone", || !processes(name).contains(&own[0]));
    }
    node.end();
}

/// A realistic setup: a daemon that has confined itself, names, and a server whose certificate has
/// a private authority.
fn a_confined_node_reaches_by_name_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "upstream");
    let certificate = files.write(&["localhost"]);
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let upstream = RUNTIME.block_on(Upstream::start(Some(tls)));
    let port = upstream.address.port();
    let data_dir = folder.path().join("data");
    let trusted = files.certificate.to_str().unwrap();
    let options = [
        "--allow-private",
        "127.0.0.0/8",
        "--allow-private",
        "::1",
        "--egress-ca",
        trusted,
    ];
    let mut node = Running::serving(&data_dir, &options);
    let address: SocketAddr = node.address();
    let grant = format!("https://localhost:{port}");
    stdout_of(
        &[
            "deploy",
            PROBE,
            "--name",
            "asks",
            "--allow-outbound",
            &grant,
        ],
        &data_dir,
    );
    let shown = stdout_of(&["inspect", "asks"], &data_dir);
    assert!(shown.contains(&grant), "{shown}");
    let answer = get(address, &format!("/asks/https/localhost:{port}/named"));
    assert!(
        answer
            .body
            .contains(&format!("GET /named of localhost:{port}")),
        "{answer:?}"
    );
    // The IP address is another host name, which was not granted.
    let answer = get(address, &format!("/asks/https/127.0.0.1:{port}/"));
    assert!(answer.body.contains("HttpRequestDenied"), "{answer:?}");
    assert_eq!(node.stop("TERM"), Some(0));
    // Without that authority the node does not trust the server.
    let mut node = Running::serving(&data_dir, &["--allow-private", "127.0.0.0/8"]);
    let address = node.address();
    let answer = get(address, &format!("/asks/https/localhost:{port}/"));
    assert!(answer.body.contains("TlsCertificateError"), "{answer:?}");
    assert_eq!(node.stop("TERM"), Some(0));
    let refused = faasw(&["deploy", PROBE, "--allow-outbound", "https://a.test/path"])
        .env("FAASW_DATA_DIR", &data_dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("--allow-outbound"),
        "{said}"
    );
}

fn main() {
    let tests = tests![
        granted_calls_are_answered,
        bodies_are_passed_in_both_directions,
        calls_without_a_grant_are_denied_and_logged,
        a_grant_does_not_open_private_addresses,
        unanswered_names_of_some_functions_affect_no_other,
        responses_to_abandoned_calls_are_discarded,
        both_egress_processes_may_be_killed,
        both_egress_processes_may_hang,
        a_confined_node_reaches_by_name_and_tls,
        a_script_calls_a_server,
        each_hop_of_a_redirect_needs_its_grant,
        a_script_aborts_its_calls,
        scripts_call_functions_of_the_node,
        a_script_learns_in_its_log_what_is_closed,
        a_call_ends_with_the_request_of_a_script,
        functions_call_each_other_without_another_process,
        bodies_and_failures_are_passed,
        self_calls_need_a_grant,
        a_call_loop_through_other_functions_ends,
        a_self_call_never_waits_for_a_permit,
        an_abandoned_self_call_ends_its_callee,
        a_flood_leaves_a_neighbour_an_eighth_of_the_permits,
        a_flood_leaves_a_neighbour_an_eighth_of_the_memory,
        a_request_causes_a_bounded_number_of_invocations,
        nested_calls_at_any_depth_count_for_the_clients_request,
        invocations_use_the_cpu_time_of_the_request_that_caused_them,
    ];
    e2e::main(tests);
}
