//! Charging the CPU time of an instance's process.
//!
//! A process serves requests one after the other. What it uses is charged to each request when the
//! account is closed after it: when the instance was reset, or, however the instance ended, by the
//! code that learns of the process's end, from the kernel's own account. So nothing goes uncharged:
//! no failed request, none whose client disconnected, and no work of a guest after it had reported
//! that it was done.
//!
//! The reaper of a process holds its account until the process is gone, and with it the descriptor
//! of its page faults, which must not be closed before. A killed process that still runs would
//! otherwise continue as if missing pages of a seed were zeros, and touching such a page would make
//! it zero for all instances.

use std::sync::Arc;
use std::time::Duration;

use faasw_common::Lock;
use faasw_fri::userfault::Faults;

use crate::sink::LogSink;

/// The account of one process.
#[derive(Debug, Default)]
pub struct CpuAccount {
    state: Lock<State>,
    faults: Lock<Option<Arc<Faults>>>,
}

#[derive(Debug, Default)]
struct State {
    /// The total that the process had used when the account was last closed.
    closed_at: Duration,
    /// The sink that is charged for further use, and the instance number there.
    payer: Option<(Arc<dyn LogSink>, u64)>,
}

impl CpuAccount {
    /// Keeps the descriptor of the process's page faults open until the process is reaped.
    pub fn hold_faults(&self, faults: Arc<Faults>) {
        // There is one, which the sandbox hands over when it starts.
        *self.faults.lock() = Some(faults);
    }

    /// Closes the descriptor of page faults, because all pages that the process can touch are
    /// present.
    pub fn release_faults(&self) {
        drop(self.faults.lock().take());
    }

    /// Charges further use to `sink`, for a request that is served as instance `number`.
    pub fn open(&self, sink: Arc<dyn LogSink>, number: u64) {
        self.state.lock().payer = Some((sink, number));
    }

    /// Charges the payer for the difference to `total`, which the process has used so far, and ends
    /// the charging.
    pub fn close(&self, total: Duration) {
        let (payer, used) = {
            let mut state = self.state.lock();
            let used = total.saturating_sub(state.closed_at);
            state.closed_at = state.closed_at.max(total);
            (state.payer.take(), used)
        };
        if let Some((sink, number)) = payer {
            sink.charged(number, used);
        }
    }

    /// Returns the total that the process had used when the account was last closed.
    pub fn closed_at(&self) -> Duration {
        self.state.lock().closed_at
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
    fn each_request_is_charged_once_for_its_cpu_time() {
        let (bill, account) = (Arc::new(Bill::default()), CpuAccount::default());
        let millis = Duration::from_millis;
        // Making the process is charged to no request.
        account.close(millis(3));
        account.open(bill.clone(), 1);
        account.close(millis(10));
        // Resting and ending are charged to none, either.
        account.close(millis(11));
        account.open(bill.clone(), 2);
        assert_eq!(account.closed_at(), millis(11));
        account.close(millis(31));
        account.close(millis(40));
        assert_eq!(*bill.0.lock().unwrap(), [(1, millis(7)), (2, millis(20))]);
        assert_eq!(Arc::strong_count(&bill), 1, "whoever paid is let go");
    }
}
