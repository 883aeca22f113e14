//! The limit of an invocation that expires next, and what happens when it does.

use std::time::Duration;

use tokio::time::Instant;

use super::admission::RunPermit;
use super::deadlines::{Deadline, Limit, Phase};
use super::run::Invocation;
use crate::error::InvokeError;
use crate::instances::ResetError;

impl Invocation {
    /// Returns the next deadline.
    pub(super) fn deadline(&mut self, phase: Phase) -> Deadline {
        let awaits_request = self.awaits_request();
        let run_permit = self.run_permit.as_ref().map(RunPermit::has_waiters);
        let Some(calls) = &self.calls else {
            return self.deadlines.deadline(phase, awaits_request, run_permit);
        };
        // After its response a guest has only its own time, because no client waits for it any
        // more.
        let waits = phase != Phase::AfterResponse && !awaits_request && calls.awaits_answers();
        let is_upstream = self.deadlines.note_upstream(waits);
        let phase = match phase {
            Phase::Head | Phase::Guest if is_upstream => Phase::Upstream,
            phase => phase,
        };
        let earliest = self.deadlines.deadline(phase, awaits_request, run_permit);
        let of_calls = [
            (
                calls.deadline(self.deadlines.limits.idle_call),
                Limit::IdleCall,
            ),
            (calls.look_again(), Limit::LookAgain),
            (
                calls.awaits_answers_until().filter(|_| is_upstream),
                Limit::Upstream,
            ),
        ];
        let of_calls = of_calls.into_iter();
        of_calls
            .filter_map(|(at, limit)| Some(Deadline { at: at?, limit }))
            .fold(earliest, Deadline::or_earlier)
    }

    /// Handles the expiry of a limit.
    pub(super) fn handle_expiry(&mut self, limit: Limit) -> Result<(), InvokeError> {
        let limits = &self.deadlines.limits;
        Err(match limit {
            Limit::RunPermit => {
                self.run_permit = None;
                return Ok(());
            }
            Limit::StartListening => {
                self.deadlines.is_listening = true;
                self.instance.mailbox.listen()?;
                // Either the guest sees the request to ring, or this look sees what it wrote
                // before.
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                return self.look();
            }
            Limit::Background => {
                self.leave_background();
                return Ok(());
            }
            Limit::Cpu => {
                let used = self.instance.cpu_time()?;
                let left = limits.cpu.saturating_sub(used);
                let account = self.client.budget.as_deref();
                let shared = account.map(|account| account.charge_and_limit(used));
                if left.is_zero() {
                    return Err(if self.is_over {
                        InvokeError::GuestFailed(ResetError::WentOn.to_string())
                    } else {
                        InvokeError::CpuLimit(limits.cpu)
                    });
                }
                // A guest that is done has a few milliseconds of its own to stop.
                let shared = shared.filter(|_| !self.is_over).unwrap_or(Duration::MAX);
                if let Some(account) = account.filter(|_| shared.is_zero()) {
                    return Err(InvokeError::RequestCpuLimit(account.budget().cpu()));
                }
                self.deadlines.cpu = Instant::now() + left.min(shared).min(limits.cpu_check);
                return Ok(());
            }
            Limit::LookAgain => return self.look(),
            Limit::IdleCall => return self.end_idle_calls(),
            Limit::HandlerReturn | Limit::Grace | Limit::Upstream => return Ok(()),
            Limit::FirstByte => InvokeError::TimedOut(limits.first_byte),
            Limit::IdleClient => InvokeError::IdleClient(limits.idle_client),
            Limit::IdleGuest => InvokeError::IdleGuest(limits.idle_guest),
            Limit::Total => InvokeError::TotalTime(limits.total.unwrap_or_default()),
        })
    }
}
