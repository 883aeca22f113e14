//! Tests that counts are reported, and that a function's series are removed with it.

use super::*;
use crate::failure::Audience;
use faasw_pool::{
    BacklogLimits, Confinement, GroupStats, MemoryStats, PollingStats, ResetEffort, ResetStats,
    ShortfallCause, ShortfallStats, WarmShortfall, ZygotePoolStats,
};

fn name(name: &str) -> FunctionName {
    FunctionName::new(name).unwrap()
}

fn has(text: &str, line: &str) {
    assert!(
        text.lines().any(|other| other == line),
        "no {line} in {text}"
    );
}

fn recorded() -> Metrics {
    let metrics = Metrics::default();
    let timing = Timing {
        fork: Duration::from_micros(90),
        exec: Duration::from_millis(3),
        served: Served::Warm,
        ..Timing::default()
    };
    metrics.record_answer(&name("f"), StatusCode::OK, Some(&timing));
    let effort = Effort {
        exits: 2,
        page_faults: 7,
        reset: Some(ResetEffort {
            took: Duration::from_micros(80),
            ..ResetEffort::default()
        }),
    };
    metrics.record_retirement(&name("f"), &effort);
    metrics.record_cpu_time(&name("f"), Duration::from_millis(250));
    metrics.record_cpu_time(&name("f"), Duration::from_millis(500));
    metrics.record_answer(&name("f"), StatusCode::IM_A_TEAPOT, None);
    let trap = Failure::Invoke(InvokeError::Trap {
        kind: TrapKind::Unreachable,
        report: "wasm trap: wasm `unreachable` instruction executed in function 'x'".into(),
    });
    metrics.record_failure(&name("g"), &trap, &trap.problem(Audience::Client));
    metrics.record_unknown_function();
    metrics.record_deployment(true);
    metrics
}

#[test]
fn recorded_values_are_in_the_metrics_text() {
    let stats = PoolStats {
        zygotes: 2,
        specialised: 1,
        zygote_pool: ZygotePoolStats {
            wanted: 6,
            low: 4,
            high: 32,
            hits: 90,
            near: 80,
            parents: 3,
            misses: 10,
            specialise_failures: 9,
            abandoned: 1,
        },
        groups: GroupStats {
            free: 11,
            used: 7,
            free_max: 256,
            hits: 80,
            misses: 18,
        },
        memory: MemoryStats {
            used: Some(5000),
            max: 6000,
            out_of_memory: 2,
        },
        warm: 4,
        shortfall: {
            let mut lacking = ShortfallStats::default();
            lacking.add(WarmShortfall {
                instances: 5,
                why: ShortfallCause::OpenFiles,
            });
            lacking
        },
        polling: PollingStats {
            found: 8,
            strayed: 2,
            cpu: Duration::from_millis(1500),
        },
        resets: ResetStats {
            done: 77,
            failed: 6,
        },
        busy: 1,
        waiting: 6,
        evicted: 5,
        memory_taken: 700,
        forbidden_calls: 3,
        confinement: Confinement::Reduced,
        seed_bytes: 300,
        warm_bytes: 200,
        seed_budget: u64::MAX,
        function_budget: 1000,
    };
    let backlog = Backlog::new(BacklogLimits::default());
    let connection = backlog.connection();
    connection.take(42);
    let text = recorded().encode_text(&CurrentValues {
        functions: &[name("f"), name("g")],
        under_way: 1,
        vms: stats,
        backlog: &backlog,
    });
    for line in [
        r#"faasw_requests_total{function="f",status="200"} 1"#,
        r#"faasw_requests_total{function="f",status="418"} 1"#,
        r#"faasw_requests_total{function="g",status="502"} 1"#,
        r#"faasw_requests_total{function="",status="404"} 1"#,
        r#"faasw_failures_total{function="g",problem="trapped"} 1"#,
        r#"faasw_traps_total{function="g",kind="unreachable"} 1"#,
        r#"faasw_request_stage_seconds_bucket{le="0.0001",stage="fork"} 1"#,
        r#"faasw_request_stage_seconds_bucket{le="0.0025",stage="exec"} 0"#,
        r#"faasw_request_stage_seconds_bucket{le="0.0001",stage="reset"} 1"#,
        r#"faasw_request_stage_seconds_bucket{le="+Inf",stage="exec"} 1"#,
        r#"faasw_request_stage_seconds_count{stage="exec"} 1"#,
        r#"faasw_request_stage_seconds_sum{stage="exec"} 0.003"#,
        r#"faasw_page_faults_total{function="f"} 7"#,
        r#"faasw_vm_exits_total{function="f"} 2"#,
        r#"faasw_instance_cpu_seconds_total{function="f"} 0.75"#,
        r#"faasw_served_total{function="f",by="warm"} 1"#,
        r#"faasw_microvms{state="warm"} 4"#,
        r#"faasw_instances_lacking{why="open-files"} 5"#,
        r#"faasw_instances_lacking{why="seed-memory"} 0"#,
        r#"faasw_zygotes{state="generic"} 1"#,
        r#"faasw_zygotes{state="specialised"} 1"#,
        r#"faasw_zygotes_wanted{mark="low"} 4"#,
        r#"faasw_zygotes_wanted{mark="now"} 6"#,
        r#"faasw_zygotes_wanted{mark="high"} 32"#,
        r#"faasw_zygote_takes_total{result="hit"} 90"#,
        r#"faasw_zygote_takes_total{result="miss"} 10"#,
        "faasw_zygote_near_hits_total 80",
        "faasw_zygote_parents 3",
        "faasw_zygote_specialise_failures_total 9",
        "faasw_zygote_parents_abandoned_total 1",
        r#"faasw_resets_total{result="done"} 77"#,
        r#"faasw_resets_total{result="failed"} 6"#,
        r#"faasw_groups{state="free"} 11"#,
        r#"faasw_groups{state="used"} 7"#,
        "faasw_groups_free_max 256",
        r#"faasw_group_takes_total{result="hit"} 80"#,
        r#"faasw_group_takes_total{result="miss"} 18"#,
        "faasw_instance_memory_used_bytes 5000",
        "faasw_instance_memory_max_bytes 6000",
        "faasw_out_of_memory_total 2",
        r#"faasw_memory_held_bytes{of="seeds"} 300"#,
        r#"faasw_memory_held_bytes{of="warm"} 200"#,
        r#"faasw_memory_held_bytes{of="busy"} 700"#,
        r#"faasw_memory_held_bytes{of="undelivered"} 42"#,
        r#"faasw_memory_budget_bytes{of="undelivered"} 134217728"#,
        "faasw_requests_waiting 6",
        "faasw_evicted_total 5",
        "faasw_slow_connections_closed_total 0",
        "faasw_requests_found_total 8",
        "faasw_polling_cpu_seconds_total 1.5",
        "faasw_polling_strayed_total 2",
        r#"faasw_memory_budget_bytes{of="seeds"} 9223372036854775807"#,
        r#"faasw_memory_budget_bytes{of="function"} 1000"#,
        r#"faasw_deployments_total{result="done"} 1"#,
        "faasw_forbidden_calls_total 3",
        r#"faasw_confinement{level="reduced"} 1"#,
        "faasw_functions 2",
        "faasw_requests_under_way 1",
        "# EOF",
    ] {
        has(&text, line);
    }
}

#[test]
fn removing_a_function_removes_its_series() {
    let metrics = recorded();
    metrics.remove_function(&name("f"));
    metrics.remove_function(&name("g"));
    let backlog = Backlog::new(BacklogLimits::default());
    let text = metrics.encode_text(&CurrentValues {
        functions: &[],
        under_way: 0,
        vms: PoolStats::default(),
        backlog: &backlog,
    });
    assert!(
        !text.contains(r#"function="f""#) && !text.contains(r#"function="g""#),
        "{text}"
    );
}
