//! The reports of a sandbox, as far as the node trusts them.

use std::time::Duration;

use faasw_abi::doorbell::Doorbell;
use faasw_fri::Packet;
use faasw_fri::messages::{Failed, Failure, Prepared, Rang, WarmReport};
use faasw_jail::{Obstacle, Step};
use rustix::io::Errno;

use crate::error::{PlatformError, errno_from_report};
use crate::sandboxes::process::ProcessCreationTimes;
use crate::sink::{Effort, ResetEffort};

/// An event of a sandbox.
#[derive(Debug)]
pub enum SandboxEvent {
    /// The guest signals that its mailbox needs attention, and continues to run.
    Progress,
    /// The guest rang and has stopped.
    Rang(RingReport),
    /// The VM cannot continue. The text states the reason.
    Failed(String),
}

/// A ring of the doorbell, with the sandbox's measurements.
#[derive(Clone, Copy, Debug)]
pub struct RingReport {
    /// Why the guest rang; `None` for a value that has no meaning.
    pub doorbell: Option<Doorbell>,
    /// The time that turning the sandbox into an instance took.
    pub fork: Duration,
    /// The time since the activation.
    pub run: Duration,
    /// The number of exits from the VM since then.
    pub exits: u64,
    /// The number of page faults that KVM fixed for this request.
    pub page_faults: u64,
}

/// How long the steps of making a sandbox took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxCreationTimes {
    /// Finding or making its control group.
    pub group: Duration,
    /// The fork into its namespaces, in the spawner.
    pub fork: Duration,
    /// From there until it ran in its group.
    pub enter: Duration,
    /// Making its VM and the means to inspect its own memory.
    pub vm: Duration,
    /// Closing its jail.
    pub jail: Duration,
    /// Specialising it; zero for a generic zygote.
    pub specialising: Duration,
}

impl SandboxCreationTimes {
    /// Returns the times of a sandbox that has made its VM, in a process with this birth.
    pub fn of(times: ProcessCreationTimes, prepared: &Prepared) -> Self {
        let closing = prepared.jail_nanoseconds;
        let born = Duration::from_nanos(prepared.born_nanoseconds);
        Self {
            group: times.group,
            fork: times.fork,
            enter: born.saturating_sub(times.fork),
            vm: Duration::from_nanos(prepared.nanoseconds.saturating_sub(closing)),
            jail: Duration::from_nanos(closing),
            specialising: Duration::ZERO,
        }
    }
}

impl From<Rang> for RingReport {
    fn from(rang: Rang) -> Self {
        Self {
            doorbell: u32::try_from(rang.doorbell)
                .ok()
                .and_then(Doorbell::from_u32),
            fork: Duration::from_nanos(rang.fork_nanoseconds),
            run: Duration::from_nanos(rang.run_nanoseconds),
            exits: rang.exits,
            page_faults: rang.page_faults,
        }
    }
}

impl From<WarmReport> for Effort {
    fn from(warm: WarmReport) -> Self {
        Self {
            exits: warm.exits,
            page_faults: warm.page_faults,
            reset: Some(ResetEffort {
                filled: warm.filled,
                outside: warm.outside,
                unused: warm.counted.is_yes().then_some(warm.unused),
                took: Duration::from_nanos(warm.nanoseconds),
            }),
        }
    }
}

/// Returns the error for a message of a sandbox that has no meaning.
pub fn protocol_error(error: impl std::fmt::Display) -> PlatformError {
    PlatformError::Protocol(error.to_string())
}

/// Returns the reason why a sandbox could not make its VM.
pub fn preparation_error(packet: &Packet) -> PlatformError {
    let failed: Result<Failed, _> = packet.message();
    match failed {
        Ok(failed) if failed.failure == Failure::Jail => match Step::from_u64(failed.instruction) {
            Some(step) => {
                let errno = errno_from_report(failed.detail);
                let is_over_limit = matches!(errno, Errno::NOSPC | Errno::USERS);
                PlatformError::Jail {
                    error: step.failed()(errno),
                    // A sandbox makes its own user namespace while it changes its user.
                    obstacle: if step == Step::Identity && is_over_limit {
                        Obstacle::of_limits()
                    } else {
                        Obstacle::Unknown
                    },
                }
            }
            None => protocol_error("an unknown step of closing a jail"),
        },
        _ => start_error(packet),
    }
}

/// Returns the reason why a sandbox whose guest has not run yet cannot be used.
pub fn start_error(packet: &Packet) -> PlatformError {
    let failed: Result<Failed, _> = packet.message();
    let is_for_memory = failed.is_ok_and(|failed| {
        let is_systems = matches!(
            failed.failure,
            Failure::Create | Failure::Specialise | Failure::Fork
        );
        is_systems && errno_from_report(failed.detail) == Errno::NOMEM
    });
    if is_for_memory {
        PlatformError::OutOfMemory
    } else {
        PlatformError::SandboxEnded(failure_text(packet))
    }
}

/// Returns whether a [`Failed`] packet reports something that an intact guest never does, rather
/// than a refusal of the kernel.
pub fn is_by_guest(packet: &Packet) -> bool {
    let failed: Result<Failed, _> = packet.message();
    failed.is_ok_and(|failed| match failed.failure {
        Failure::Exit
        | Failure::Shutdown
        | Failure::Broken
        | Failure::Changed
        | Failure::Strayed => true,
        Failure::Create
        | Failure::Fork
        | Failure::Run
        | Failure::Message
        | Failure::Reset
        | Failure::Jail
        | Failure::Specialise
        | Failure::Seal => false,
    })
}

/// Returns the meaning of a [`Failed`] packet, in words.
pub fn failure_text(packet: &Packet) -> String {
    let Ok(Failed {
        failure,
        detail,
        instruction,
    }) = packet.message()
    else {
        return "its report is invalid".to_owned();
    };
    let errno = || {
        i32::try_from(detail).map_or_else(
            |_| format!("error {detail}"),
            |errno| std::io::Error::from_raw_os_error(errno).to_string(),
        )
    };
    match failure {
        Failure::Create => format!("the VM could not be created: {}", errno()),
        Failure::Specialise => format!("the sandbox could not be specialised: {}", errno()),
        Failure::Seal => match errno_from_report(detail) {
            Errno::TOOBIG => {
                "it has written to more separate ranges than a seed can have".to_owned()
            }
            errno => format!("its memory could not be made a seed: {errno}"),
        },
        Failure::Fork => format!("the seed could not be mapped: {}", errno()),
        Failure::Run => format!("the VM stopped at {instruction:#x}: {}", errno()),
        Failure::Exit => {
            format!("the guest left its VM at {instruction:#x} for KVM reason {detail}")
        }
        Failure::Shutdown => format!("the guest shut down near {instruction:#x}"),
        Failure::Reset => format!("the instance could not be reset: {}", errno()),
        Failure::Broken => {
            format!("the guest has written its own text or tables at {detail:#x}")
        }
        Failure::Changed => format!("the guest has changed its vCPU (class {detail})"),
        Failure::Jail => format!("its jail could not be set up: {}", errno()),
        Failure::Strayed if detail == 0 => "it continued to poll".to_owned(),
        Failure::Strayed => format!("it rang {detail} without a request"),
        Failure::Message => format!("the sandbox was sent message {detail} out of order"),
    }
}
