//! Whom the CPU time of an instance's process is charged to.
//!
//! A process serves requests one after the other, and what it uses is charged to each as
//! the account is closed behind it: when the instance was reset; or, whatever became of
//! it, by whoever learns of the process's end, from the system's own account. So nothing
//! goes uncharged: no request that failed, none whose client went away, and nothing that a
//! guest did after it had said that it was done.
//!
//! Whoever reaps a process has its account until then, and with it what must not be closed before:
//! what its page faults are told by. A process that is ended but not gone would go on as if pages
//! of a seed that are still to come were zeroes, and touching one makes it so for everybody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faasw_fri::userfault::Faults;

use crate::sink::LogSink;

/// The account of one process.
#[derive(Debug, Default)]
pub struct Account {
    state: Mutex<State>,
    faults: Mutex<Option<Arc<Faults>>>,
}

#[derive(Debug, Default)]
struct State {
    /// What the process had used in all when the account was last closed.
    closed_at: Duration,
    /// Who pays for what it uses now, and by which number it is known there.
    payer: Option<(Arc<dyn LogSink>, u64)>,
}

impl Account {
    /// The process's page faults are told by this as long as it is not reaped.
    pub fn hold(&self, faults: Arc<Faults>) {
        // There is one, which it hands over when it is born.
        *self.faults() = Some(faults);
    }

    /// Nothing of the process's is told by its page faults, or ever will be: whatever it touches is
    /// there.
    pub fn let_go(&self) {
        drop(self.faults().take());
    }

    fn faults(&self) -> MutexGuard<'_, Option<Arc<Faults>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `sink` pays, for a request that is served as instance `number`.
    pub fn open(&self, sink: Arc<dyn LogSink>, number: u64) {
        self.state().payer = Some((sink, number));
    }

    /// The process has used `total` so far: who pays is charged for what is new of it, and
    /// pays for nothing more.
    pub fn close(&self, total: Duration) {
        let (payer, used) = {
            let mut state = self.state();
            let used = total.saturating_sub(state.closed_at);
            state.closed_at = state.closed_at.max(total);
            (state.payer.take(), used)
        };
        if let Some((sink, number)) = payer {
            sink.charged(number, used);
        }
    }

    /// What the process had used in all when the account was last closed.
    pub fn closed_at(&self) -> Duration {
        self.state().closed_at
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It changes by single assignments.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::LogStream;

    #[derive(Debug, Default)]
    struct Bill(Mutex<Vec<(u64, Duration)>>);

    impl LogSink for Bill {
        fn line(&self, _: u64, _: LogStream, _: &[u8]) {}

        fn charged(&self, instance: u64, cpu: Duration) {
            self.0.lock().unwrap().push((instance, cpu));
        }
    }

    #[test]
    fn each_request_is_charged_once_for_what_it_used() {
        let (bill, account) = (Arc::new(Bill::default()), Account::default());
        let millis = Duration::from_millis;
        // Making it is nobody's.
        account.close(millis(3));
        account.open(bill.clone(), 1);
        account.close(millis(10));
        // Resting and ending are nobody's either.
        account.close(millis(11));
        account.open(bill.clone(), 2);
        assert_eq!(account.closed_at(), millis(11));
        account.close(millis(31));
        account.close(millis(40));
        assert_eq!(*bill.0.lock().unwrap(), [(1, millis(7)), (2, millis(20))]);
        assert_eq!(Arc::strong_count(&bill), 1, "whoever paid is let go");
    }
}
