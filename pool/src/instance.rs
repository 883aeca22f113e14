//! A shell that is an instance, with what it was given.

use std::time::Duration;

use crate::error::PlatformError;
use crate::function::ResetEffort;
use crate::mailbox::Mailbox;
use crate::seed::Seed;
use crate::shell::Shell;

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
    /// Generation of the working set that it was forked with.
    pub generation: u32,
}

impl Instance {
    /// A shell that serves nothing yet.
    pub fn new(shell: Shell, mailbox: Mailbox) -> Self {
        Self {
            shell,
            mailbox,
            uses: 0,
            cpu_before: Duration::ZERO,
            generation: 0,
        }
    }

    /// Makes its shell an instance of `seed`.
    ///
    /// # Errors
    /// When the shell is gone.
    pub async fn fork(&mut self, seed: &Seed) -> Result<(), PlatformError> {
        let working_set = seed.working_set().current();
        self.generation = working_set.generation;
        self.shell
            .fork(
                seed.layer(),
                &working_set,
                &self.mailbox,
                seed.code(),
                seed.state(),
            )
            .await
    }

    /// CPU time that this request has taken so far.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        let used = self.shell.cpu_time()?;
        Ok(used.saturating_sub(self.cpu_before))
    }

    /// Brings it back to its seed's state after a request.
    ///
    /// # Errors
    /// When it cannot be brought back; it has ended then.
    pub async fn reset(&mut self) -> Result<ResetEffort, PlatformError> {
        let resetting = self.shell.reset().await?;
        self.mailbox.was_wiped();
        self.uses += 1;
        self.cpu_before = self.shell.cpu_time()?;
        Ok(resetting)
    }
}
