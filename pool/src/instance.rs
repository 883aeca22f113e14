//! A shell that is an instance, with what it was given.

use std::sync::Arc;
use std::time::Duration;

use crate::error::PlatformError;
use crate::frozen::Frozen;
use crate::function::Effort;
use crate::mailbox::Mailbox;
use crate::seed::Function;
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
    /// CPU time that its process had used when the last of them was over.
    pub cpu_before: Duration,
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
            cpu_before: Duration::ZERO,
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

    /// CPU time that this request has taken so far.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        let used = self.shell.cpu_time()?;
        Ok(used.saturating_sub(self.cpu_before))
    }

    /// Brings it back to its seed's state after a request; with `count_unused` the
    /// effort says what of its write set it did not use.
    ///
    /// # Errors
    /// When it cannot be brought back; it has ended then.
    pub async fn reset(&mut self, count_unused: bool) -> Result<Effort, PlatformError> {
        let effort = self.shell.reset(count_unused).await?;
        self.mailbox.was_wiped();
        self.uses += 1;
        self.cpu_before = self.shell.cpu_time()?;
        Ok(effort)
    }
}
