//! A shell that is an instance, with what it was given.

use std::sync::Arc;
use std::time::Duration;

use crate::error::PlatformError;
use crate::frozen::Frozen;
use crate::function::{Effort, LogSink};
use crate::mailbox::Mailbox;
use crate::seed::Function;
use crate::settle::{Settling, Unsettled};
use crate::shell::Shell;
use crate::stock::Ready;

/// An instance and its mailbox, over one request or, reset in between, many.
#[derive(Debug)]
pub struct Instance {
    /// Its process.
    pub shell: Shell,
    /// What it exchanges requests through.
    pub mailbox: Mailbox,
    /// Requests that it has served.
    pub uses: u32,
    /// What it is or will be forked from: its function's seed, or an ancestor.
    pub from: Arc<Frozen>,
    /// Generation of the working set that it was forked with.
    pub generation: u32,
}

impl Instance {
    /// A shell that is to be forked from `from`.
    pub fn new(ready: Ready, from: Arc<Frozen>) -> Self {
        let Ready { shell, mailbox } = ready;
        Self {
            shell,
            mailbox,
            uses: 0,
            from,
            generation: 0,
        }
    }

    /// Makes its shell an instance of `function`.
    ///
    /// # Errors
    /// When the shell is gone.
    pub async fn fork(&mut self, function: &Function) -> Result<(), PlatformError> {
        let working_set = self.from.working_set.current();
        self.generation = working_set.generation;
        self.from.count_fork();
        let (ram, code) = (function.ram_bytes(), Some(function.code()));
        self.shell
            .fork(&self.from, ram, &working_set, &self.mailbox, code)
            .await
    }

    /// Whether it was forked with the working set as that is now.
    pub fn is_current(&self) -> bool {
        self.generation == self.from.working_set.current().generation
    }

    /// The monotonic time that it continues from, in nanoseconds.
    pub fn monotonic_nanoseconds(&self) -> u64 {
        self.from.seed.monotonic_nanoseconds
    }

    /// From now on its CPU time is charged to `sink`, whose request it serves as instance
    /// `number`.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn is_charged_to(&self, sink: Arc<dyn LogSink>, number: u64) -> Result<(), PlatformError> {
        let account = self.shell.account();
        if self.uses == 0 {
            // What it was made with is nobody's.
            account.close(self.shell.cpu_time()?);
        }
        account.open(sink, number);
        Ok(())
    }

    /// CPU time that this request has taken so far.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        let used = self.shell.cpu_time()?;
        Ok(used.saturating_sub(self.shell.account().closed_at()))
    }

    /// Brings it back to its seed's state after a request; with `count_unused` the
    /// effort says what of its write set it did not use. What the guest still does
    /// meanwhile is held to what `settling` leaves it.
    ///
    /// # Errors
    /// When it cannot be brought back, and is to be ended.
    pub async fn reset(
        &mut self,
        settling: &mut Settling,
        count_unused: bool,
    ) -> Result<Effort, Unsettled> {
        let effort = settling.reset(self, count_unused).await?;
        self.mailbox.was_wiped();
        self.uses += 1;
        self.shell.account().close(self.shell.cpu_time()?);
        Ok(effort)
    }
}
