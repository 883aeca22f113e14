use std::time::Duration;

use faasw_client::{FunctionName, HostName, NameError};
use faasw_pool::{ClientError, CompileError, TrapKind};

use super::*;
use crate::registry::RegistryError;

fn status_of(failure: Failure) -> (u16, &'static str, Fault) {
    let problem = failure.problem(Audience::Client);
    (problem.status.as_u16(), problem.slug, failure.fault().0)
}

#[test]
fn every_failure_has_the_status_of_its_fault() {
    let trap = InvokeError::Trap {
        kind: TrapKind::Unreachable,
        report: "unreachable in spin".into(),
    };
    let head = InvokeError::RequestTooLarge {
        part: RequestPart::Head,
        size: 9,
        limit: 8,
    };
    for (failure, expected) in [
        (
            Failure::UnknownFunction("f".into()),
            (404, "unknown-function", Fault::Caller),
        ),
        (
            RequestRejection::BodyTooLarge(1).into(),
            (413, "request-body-too-large", Fault::Caller),
        ),
        (
            RequestRejection::LengthUnknown(1).into(),
            (413, "request-body-too-large", Fault::Caller),
        ),
        (head.into(), (431, "request-head-too-large", Fault::Caller)),
        (trap.into(), (502, "trapped", Fault::Function)),
        (
            InvokeError::Exit { code: 3 }.into(),
            (502, "exited", Fault::Function),
        ),
        (
            InvokeError::NoResponse.into(),
            (502, "no-response", Fault::Function),
        ),
        (
            InvokeError::TimedOut(Duration::from_secs(10)).into(),
            (504, "timed-out", Fault::Function),
        ),
        (
            InvokeError::CpuLimit(Duration::from_secs(1)).into(),
            (504, "cpu-limit", Fault::Function),
        ),
        (
            InvokeError::RequestCpuLimit(Duration::from_secs(1)).into(),
            (504, "cpu-limit", Fault::Function),
        ),
        (
            InvokeError::IdleGuest(Duration::from_secs(1)).into(),
            (504, "idle-guest", Fault::Function),
        ),
        (
            InvokeError::TotalTime(Duration::from_secs(1)).into(),
            (504, "total-time", Fault::Function),
        ),
        (
            InvokeError::IdleClient(Duration::from_secs(1)).into(),
            (408, "idle-client", Fault::Caller),
        ),
        (
            InvokeError::Client(ClientError::TooSlow(9)).into(),
            (408, "request-body-timeout", Fault::Caller),
        ),
        (
            InvokeError::Client(ClientError::TooLarge(9)).into(),
            (413, "request-body-too-large", Fault::Caller),
        ),
        (
            InvokeError::ClientGone.into(),
            (400, "request-body-unreadable", Fault::Caller),
        ),
        (
            InvokeError::ResponseTooLarge {
                report: String::new(),
            }
            .into(),
            (502, "response-too-large", Fault::Function),
        ),
        (
            InvokeError::GuestFailed(String::new()).into(),
            (502, "microvm-failed", Fault::Function),
        ),
        (InvokeError::Evicted.into(), (503, "evicted", Fault::Caller)),
        (
            Failure::ShuttingDown,
            (503, "shutting-down", Fault::Platform),
        ),
        (Failure::NoRoom, (503, "over-capacity", Fault::Caller)),
        (
            RequestRejection::BodyTimeout(Duration::from_secs(1)).into(),
            (408, "request-body-timeout", Fault::Caller),
        ),
        (
            RequestRejection::BodyUnreadable(String::new()).into(),
            (400, "request-body-unreadable", Fault::Caller),
        ),
        (
            InvokeError::OverCapacity(4).into(),
            (503, "over-capacity", Fault::Caller),
        ),
        (
            InvokeError::SeedQueued { behind: 4 }.into(),
            (503, "initialisation-queued", Fault::Caller),
        ),
        (
            Failure::FunctionBusy(3),
            (503, "over-capacity", Fault::Caller),
        ),
        (
            PlatformError::OutOfMemory.into(),
            (503, "out-of-memory", Fault::Platform),
        ),
        (
            PlatformError::SpawnerGone.into(),
            (500, "platform-failure", Fault::Platform),
        ),
    ] {
        assert_eq!(status_of(failure), expected);
    }
}

/// Returns every failure whose message contains text of a guest, with this text.
fn failures_with_guest_text(text: &str) -> Vec<Failure> {
    let report = || text.to_owned();
    let trap = || InvokeError::Trap {
        kind: TrapKind::Unreachable,
        report: report(),
    };
    let errors = [
        trap(),
        InvokeError::Exit { code: 4711 },
        InvokeError::ResponseTooLarge { report: report() },
        InvokeError::FunctionError { report: report() },
        InvokeError::BadResponse { report: report() },
        InvokeError::LoadFailed { report: report() },
        InvokeError::GuestFailed(report()),
    ];
    let mut failures: Vec<Failure> = errors.map(Failure::from).into();
    failures.push(Failure::NotReady(SeedError::Function(trap()).into()));
    failures.push(Failure::NotReady(
        SeedError::WarmUp {
            request: "GET /".into(),
            error: trap(),
        }
        .into(),
    ));
    failures
}

#[test]
fn guest_text_is_shown_to_the_operator_only() {
    let text = "postgres://app:4711@db in trap_here";
    for failure in failures_with_guest_text(text) {
        let client = failure.problem(Audience::Client);
        assert!(!client.detail.contains("4711"), "{}", client.detail);
        assert!(!client.detail.contains("trap_here"), "{}", client.detail);
        assert!(
            client.detail.contains("log has the reason"),
            "{}",
            client.detail
        );
        let operator = failure.problem(Audience::Operator);
        assert!(operator.detail.contains("4711"), "{}", operator.detail);
        assert_eq!(operator.detail, failure.to_string());
        assert_eq!(
            (client.status, client.slug),
            (operator.status, operator.slug)
        );
    }
}

#[test]
fn every_problem_shows_the_exceeded_limit() {
    let failure = Failure::from(InvokeError::TimedOut(Duration::from_secs(10)));
    for audience in [Audience::Client, Audience::Operator] {
        let detail = failure.problem(audience).detail;
        assert!(detail.contains("10 s"), "{detail}");
    }
}

#[test]
fn problems_hide_the_reason_of_platform_failures() {
    let platform = Failure::from(PlatformError::SandboxEnded("signal 9".into()));
    for audience in [Audience::Client, Audience::Operator] {
        let detail = platform.problem(audience).detail;
        assert!(!detail.contains("signal"), "{detail}");
    }
    assert!(platform.to_string().contains("signal 9"));
}

#[test]
fn a_busy_node_sends_retry_after() {
    let problem = Failure::from(InvokeError::OverCapacity(4)).problem(Audience::Client);
    assert_eq!(problem.retry_after, Some(RETRY_AFTER));
    assert!(problem.detail.contains("4 requests at once"));
}

#[test]
fn a_full_disk_has_a_status_of_its_own() {
    let problem = DeployError::Registry(RegistryError::NoSpace).problem();
    assert_eq!((problem.status.as_u16(), problem.slug), (507, "no-space"));
    assert!(problem.detail.contains("free space"), "{}", problem.detail);
}

#[test]
fn a_faulty_module_is_422_unprocessable() {
    let error = DeployError::Compile(CompileError::Malformed("not Wasm".into()));
    let problem = error.problem();
    assert_eq!(
        (problem.status.as_u16(), problem.slug),
        (422, "malformed-module")
    );
    assert_eq!(problem.detail, "not Wasm");
}

#[test]
fn every_deployment_error_has_the_status_of_its_fault() {
    let platform = || PlatformError::SandboxEnded("signal 9".into());
    let warm_up = |error| SeedError::WarmUp {
        request: "GET /".into(),
        error,
    };
    let taken = DeployError::HostOfDomain {
        host: HostName::new("a.example").unwrap(),
        domain: HostName::new("example").unwrap(),
    };
    let engine = || RegistryError::EngineGone(FunctionName::new("lua").unwrap());
    let all: [(DeployError, (u16, &str, bool)); 19] = [
        (
            NameError::Reserved("healthz".into()).into(),
            (400, "bad-name", false),
        ),
        (taken, (409, "host-taken", false)),
        (
            DeployError::TooLarge { size: 2, limit: 1 },
            (413, "module-too-large", false),
        ),
        (RegistryError::NoSpace.into(), (507, "no-space", false)),
        (engine().into(), (409, "engine-gone", false)),
        (
            RegistryError::Interrupted.into(),
            (500, "platform-failure", false),
        ),
        (
            CompileError::CpuLimit(Duration::from_secs(1)).into(),
            (422, "compile-cpu-limit", false),
        ),
        (
            CompileError::MemoryLimit(1).into(),
            (422, "compile-memory-limit", false),
        ),
        (
            CompileError::Helper("signal 11".into()).into(),
            (422, "not-compilable", false),
        ),
        (
            CompileError::Platform(PlatformError::OutOfMemory).into(),
            (503, "out-of-memory", true),
        ),
        (
            CompileError::Platform(platform()).into(),
            (500, "platform-failure", false),
        ),
        (SeedError::WarmUpOfCommand.into(), (422, "no-seed", false)),
        (
            SeedError::Function(InvokeError::TimedOut(Duration::from_secs(1))).into(),
            (422, "no-seed", false),
        ),
        (
            SeedError::Function(InvokeError::OverCapacity(1)).into(),
            (503, "over-capacity", true),
        ),
        (
            SeedError::Function(platform().into()).into(),
            (500, "platform-failure", false),
        ),
        (
            warm_up(InvokeError::NoResponse).into(),
            (422, "no-seed", false),
        ),
        (
            warm_up(platform().into()).into(),
            (500, "platform-failure", false),
        ),
        (
            SeedError::Platform(PlatformError::OutOfMemory).into(),
            (503, "out-of-memory", true),
        ),
        (DeployError::ShuttingDown, (503, "shutting-down", true)),
    ];
    for (error, expected) in all {
        let problem = error.problem();
        let told = (problem.status.as_u16(), problem.slug);
        assert_eq!((told.0, told.1, problem.retry_after.is_some()), expected);
        assert_eq!(problem.detail, error.to_string(), "{told:?}");
    }
}
