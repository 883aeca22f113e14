//! A client whose requests all fail does not fill the node's own log.

use std::net::SocketAddr;

use crate::e2e::{
    process::{Running, get, stdout_of},
    until,
};

/// Returns how many lines of the node's own log report a failed request, and how many more were
/// suppressed.
fn counted(log: &str) -> (usize, usize) {
    let lines = log.lines().filter(|line| line.contains("request failed"));
    let (sums, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains("more suppressed"));
    let sums = sums.iter().map(|line| {
        let (before, _) = line.split_once(" more suppressed").unwrap();
        let (_, count) = before.rsplit_once(' ').unwrap();
        count.parse::<usize>().unwrap()
    });
    (lines.len(), sums.sum())
}

fn suppressed(metrics: SocketAddr) -> usize {
    let metrics = get(metrics, "/metrics").body;
    let line = metrics
        .lines()
        .find(|line| line.starts_with("faasw_log_suppressed_total"));
    let (_, count) = line.unwrap().split_once(' ').unwrap();
    count.parse().unwrap()
}

pub fn repeated_failures_are_summarised_in_the_nodes_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Running::serving(folder.path(), &["--metrics", "127.0.0.1:0"]);
    let ready: serde_json::Value = serde_json::from_str(&node.line()).unwrap();
    let address = |of: &str| ready[of].as_str().unwrap().parse().unwrap();
    let (address, metrics) = (address("address"), address("metrics"));
    stdout_of(
        &[
            "deploy",
            "tests/fixtures/http-probe.wasm",
            "--name",
            "noisy",
        ],
        folder.path(),
    );
    stdout_of(
        &[
            "deploy",
            "tests/fixtures/http-probe.wasm",
            "--name",
            "quiet",
        ],
        folder.path(),
    );
    let mut failed = 0;
    while failed < 100 || suppressed(metrics) == 0 {
        assert_eq!(get(address, "/noisy/trap/unreachable").status, 502);
        failed += 1;
    }
    assert_eq!(get(address, "/quiet/trap/unreachable").status, 502);
    until("the quiet function's failure is in the log", || {
        let log = node.stderr();
        log.lines()
            .any(|line| line.contains("request failed") && line.contains("quiet"))
    });
    let in_metrics = suppressed(metrics);
    // The node reports the rest when it ends.
    node.signal("TERM");
    assert_eq!(node.ended(), Some(0));
    until("all failures are in the log or its sums", || {
        let (lines, sums) = counted(&node.stderr());
        lines + sums == failed + 1 && sums == in_metrics
    });
}
