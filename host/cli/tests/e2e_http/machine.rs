//! The environment of a function: a machine of its own, in its seed's state.

use std::{collections::HashSet, time::SystemTime};

use faasw::{FreezePolicy, FunctionOptions};

use crate::common::{raw, time_limit};
use crate::e2e::BENCH;
use crate::{has_line, value};

pub fn each_request_gets_a_fresh_machine() {
    BENCH.probe();
    BENCH.cgi();
    for path in ["/probe/count", "/cgi/count"] {
        for _ in 0..5 {
            assert_eq!(BENCH.text(path), "1\n");
        }
    }
    let all = BENCH.block_on(async {
        let requests = (0..8).map(|_| tokio::spawn(raw::get(BENCH.address, "/probe/count")));
        let mut answers = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            answers.push(request.await.unwrap().body);
        }
        answers
    });
    assert!(all.iter().all(|body| body == "1\n"), "{all:?}");
}

pub fn random_numbers_never_agree_after_the_fork() {
    BENCH.probe();
    BENCH.cgi();
    let mut seen = HashSet::new();
    for _ in 0..4 {
        let component = BENCH.text("/probe/random");
        for line in ["random", "insecure", "seed"] {
            assert!(
                seen.insert(value(&component, line).to_owned()),
                "{component}"
            );
        }
        let command = BENCH.text("/cgi/random");
        assert!(
            seen.insert(value(&command, "random").to_owned()),
            "{command}"
        );
    }
}

pub fn clocks_are_real_and_advance() {
    BENCH.probe();
    let unix = |text: &str| {
        value(text, "wall")
            .split('.')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let monotonic = |text: &str| value(text, "monotonic").parse::<u64>().unwrap();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let first = BENCH.text("/probe/clock");
    let tolerance = time_limit(5).as_secs();
    assert!(
        unix(&first).abs_diff(now) <= tolerance,
        "{first} is not {now}"
    );
    assert!(monotonic(&first) > 0);

    let slept: u64 = BENCH.text("/probe/sleep/120").trim().parse().unwrap();
    assert!(slept >= 120, "{slept} ms");
    assert_eq!(BENCH.text("/probe/poll"), "ready 1\n");
    let slept: u64 = BENCH.text("/cgi/sleep/50").trim().parse().unwrap();
    assert!(slept >= 50, "{slept} ms");
}

pub fn the_environment_is_the_functions_own() {
    BENCH.probe();
    let seen = BENCH.text("/probe/env");
    has_line(&seen, "COLOUR=green");
    has_line(&seen, "arg probe");
    // The node adds the path at which it serves the function.
    has_line(&seen, "FAASW_BASE_PATH=/probe");
    assert_eq!(seen.lines().count(), 3, "{seen}");
}

pub fn functions_have_no_access_to_the_host() {
    BENCH.probe();
    assert_eq!(BENCH.text("/probe/fs"), "preopens 1\n/tmp\n");
    assert_eq!(BENCH.text("/probe/stdin"), "stdin 0\n");
    let sockets = BENCH.text("/probe/sockets");
    assert!(sockets.contains("access-denied"), "{sockets}");
    assert!(
        !sockets.lines().any(|line| line.contains("-bind ok")),
        "{sockets}"
    );
    let outgoing = BENCH.text("/probe/outgoing");
    assert!(outgoing.to_lowercase().contains("denied"), "{outgoing}");
    assert!(!outgoing.starts_with("answered"), "{outgoing}");
    let command = BENCH.text("/cgi/fs");
    assert!(
        !command.contains("open ok") && command.contains("preopen yes"),
        "{command}"
    );
}

pub fn functions_compute_what_they_should() {
    BENCH.probe();
    assert_eq!(BENCH.text("/probe/compute"), "196418\n");
    let grown = BENCH.text("/probe/grow/100");
    assert!(
        grown.starts_with("old ") && grown.contains(" new "),
        "{grown}"
    );
    assert_eq!(BENCH.text("/probe/grow/65000"), "grow by 65000 failed\n");
}

/// Deploys `init-draws` with a freeze policy. Returns the answers to two requests, too.
fn draws(name: &str, policy: FreezePolicy) -> (faasw::DeployOutcome, [String; 2]) {
    let options = FunctionOptions::default().freeze(policy);
    let deployed = BENCH.function(name, "tests/fixtures/init-draws.wasm", options);
    let path = format!("/{name}/");
    (deployed, [BENCH.text(&path), BENCH.text(&path)])
}

pub fn entropy_drawn_at_initialisation_needs_an_explicit_option() {
    let (auto, [one, two]) = draws("draws-auto", FreezePolicy::Auto);
    assert!(!auto.function.frozen_after_init);
    let notice = auto.notice.unwrap();
    assert!(
        notice.contains("random") && notice.contains("--freeze after-init"),
        "{notice}"
    );
    assert_ne!(value(&one, "init-random"), value(&two, "init-random"));

    let (before, [one, two]) = draws("draws-before", FreezePolicy::BeforeInit);
    assert!(!before.function.frozen_after_init);
    assert_ne!(value(&one, "init-random"), value(&two, "init-random"));

    let (after, [one, two]) = draws("draws-after", FreezePolicy::AfterInit);
    assert!(after.function.frozen_after_init && after.notice.is_some());
    assert_eq!(value(&one, "init-random"), value(&two, "init-random"));
    assert_ne!(value(&one, "now-random"), value(&two, "now-random"));
}
