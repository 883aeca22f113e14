//! The limit of an invocation that expires next, and what happens when it does.

use std::time::Duration;

use tokio::time::Instant;

use super::admission::RunPermit;
use super::following::Invocation;
use super::timeline::{Limit, Phase};
use crate::error::InvokeError;
use crate::instances::Unsettled;

impl Invocation {
    /// Returns the next deadline, and the limit that it belongs to.
    pub(super) fn deadline(&mut self, phase: Phase) -> (Instant, Limit) {
        let client_owes = self.client_owes();
        let turn = self.turn.as_ref().map(RunPermit::has_waiters);
        let Some(calls) = &self.calls else {
            return self.timeline.deadline(phase, client_owes, turn);
        };
        // After its response a guest has only its own time, because no client waits for it any
        // more.
        let waits = phase != Phase::Afterwards && !client_owes && calls.is_owed();
        let is_upstream = self.timeline.note_upstream(waits);
        let phase = match phase {
            Phase::Head | Phase::Guest if is_upstream => Phase::Upstream,
            phase => phase,
        };
        let mut earliest = self.timeline.deadline(phase, client_owes, turn);
        let of_calls = [
            (
                calls.deadline(self.timeline.limits.idle_call),
                Limit::IdleCall,
            ),
            (calls.look_again(), Limit::Look),
            (calls.owed_until().filter(|_| is_upstream), Limit::Upstream),
        ];
        for (deadline, limit) in of_calls {
            if let Some(deadline) = deadline
                && deadline < earliest.0
            {
                earliest = (deadline, limit);
            }
        }
        earliest
    }

    /// Handles the expiry of a limit.
    pub(super) fn expired(&mut self, limit: Limit) -> Result<(), InvokeError> {
        let limits = &self.timeline.limits;
        Err(match limit {
            Limit::Turn => {
                self.turn = None;
                return Ok(());
            }
            Limit::Short => {
                self.timeline.is_listening = true;
                self.instance.mailbox.listen()?;
                // Either the guest sees the request to ring, or this look sees what it wrote
                // before.
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                return self.look();
            }
            Limit::Aside => {
                self.come_back();
                return Ok(());
            }
            Limit::Cpu => {
                let used = self.instance.cpu_time()?;
                let left = limits.cpu.saturating_sub(used);
                let account = self.client.budget.as_deref();
                let shared = account.map(|account| account.charge_and_limit(used));
                if left.is_zero() {
                    return Err(if self.is_over {
                        InvokeError::GuestFailed(Unsettled::WentOn.to_string())
                    } else {
                        InvokeError::CpuLimit(limits.cpu)
                    });
                }
                // A guest that is done has a few milliseconds of its own to stop.
                let shared = shared.filter(|_| !self.is_over).unwrap_or(Duration::MAX);
                if let Some(account) = account.filter(|_| shared.is_zero()) {
                    return Err(InvokeError::RequestCpuLimit(account.budget().cpu()));
                }
                self.timeline.cpu = Instant::now() + left.min(shared).min(limits.cpu_check);
                return Ok(());
            }
            Limit::Look => return self.look(),
            Limit::IdleCall => return self.end_idle_calls(),
            Limit::Return | Limit::Grace | Limit::Upstream => return Ok(()),
            Limit::FirstByte => InvokeError::TimedOut(limits.first_byte),
            Limit::IdleClient => InvokeError::IdleClient(limits.idle_client),
            Limit::IdleGuest => InvokeError::IdleGuest(limits.idle_guest),
            Limit::Total => InvokeError::TotalTime(limits.total.unwrap_or_default()),
        })
    }
}
