//! A sandbox that is an instance, with what it was given.

use std::sync::Arc;
use std::time::Duration;

use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sandboxes::{CodePages, Ready, Sandbox};
use crate::seeds::FunctionVersion;
use crate::sink::LogSink;
use crate::snapshots::{Code, Frozen};

/// An instance and its mailbox, over one request or, reset in between, many.
#[derive(Debug)]
pub struct Instance {
    /// Its process.
    pub sandbox: Sandbox,
    /// What it exchanges requests through.
    pub mailbox: Mailbox,
    /// Requests that it has served.
    pub uses: u32,
    /// What it is or will be forked from: its function's seed, or an ancestor.
    pub from: Arc<Frozen>,
    /// Whether that is its function's seed.
    pub is_own: bool,
    /// Its function's code, until it is forked.
    code: Option<Arc<Code>>,
    /// Generation of the working set that it was forked with.
    pub generation: u32,
    /// Its guest looked for a request, and was claimed for the one that it serves.
    pub is_claimed: bool,
    /// In which pages it has its code, and whether the file had large ones when it was forked.
    code_pages: CodePages,
    had_large_code: bool,
}

impl Instance {
    /// A sandbox that is to be forked from `from`, with this code; `is_own` where that is its
    /// function's seed.
    pub fn new(ready: Ready, from: Arc<Frozen>, is_own: bool, code: Option<Arc<Code>>) -> Self {
        let Ready { sandbox, mailbox } = ready;
        Self {
            sandbox,
            mailbox,
            uses: 0,
            from,
            is_own,
            code,
            generation: 0,
            is_claimed: false,
            code_pages: CodePages::AsTheyAre,
            had_large_code: false,
        }
    }

    /// Makes its sandbox an instance of `version`, with its RAM and code.
    ///
    /// # Errors
    /// When the sandbox is gone.
    pub async fn fork(&mut self, version: &FunctionVersion) -> Result<(), PlatformError> {
        // The sandbox has it mapped then.
        let code = self.code.take();
        self.had_large_code = code.as_ref().is_some_and(|code| code.is_gathered());
        // All scripts of an engine have its code, in whatever pages that came to be when the first
        // of them was surveyed.
        self.code_pages = if self.is_own && self.from.working_set().is_wanted() {
            CodePages::Small
        } else {
            CodePages::AsTheyAre
        };
        let working_set = self.from.working_set().current();
        self.generation = working_set.generation;
        self.from.count_fork();
        self.sandbox
            .fork(
                &self.from,
                version.ram_bytes(),
                &working_set,
                &self.mailbox,
                code.as_deref().map(|code| (code, self.code_pages)),
                Some(version.holding().number()),
            )
            .await
    }

    /// Whether its code is in large pages, or has come to be in such since it was forked, which
    /// took away what it had mapped: which small ones it uses cannot be told then.
    pub fn has_code_in_large_pages(&self) -> bool {
        let code = self.from.state().code();
        if self.had_large_code {
            self.code_pages == CodePages::AsTheyAre
        } else {
            code.is_some_and(|code| code.is_being_gathered())
        }
    }

    /// Whether it was forked with the working set as that is now.
    pub fn is_current(&self) -> bool {
        self.generation == self.from.working_set().current().generation
    }

    /// The monotonic time that it continues from, in nanoseconds.
    pub fn monotonic_nanoseconds(&self) -> u64 {
        self.from.monotonic_nanoseconds()
    }

    /// From now on its CPU time is charged to `sink`, whose request it serves as instance
    /// `number`.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn charge_to(&self, sink: Arc<dyn LogSink>, number: u64) -> Result<(), PlatformError> {
        let account = self.sandbox.account();
        if self.uses == 0 {
            // What it was made with is nobody's.
            account.close(self.sandbox.cpu_time()?);
        }
        account.open(sink, number);
        Ok(())
    }

    /// CPU time that this request has taken so far.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        let used = self.sandbox.cpu_time()?;
        Ok(used.saturating_sub(self.sandbox.account().closed_at()))
    }

    /// It was brought back to its seed's state after a request, and then its guest has looked for
    /// the next one for so long as `polled`, which is nobody's.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn note_reset(&mut self, polled: Duration) -> Result<(), PlatformError> {
        self.mailbox.note_wiped();
        self.uses += 1;
        self.is_claimed = false;
        let used = self.sandbox.cpu_time()?;
        let account = self.sandbox.account();
        account.close(used.saturating_sub(polled));
        if !polled.is_zero() {
            account.close(used);
        }
        Ok(())
    }

    /// It was brought back, and its guest, which has looked for its next request for so long as
    /// `looked`, was claimed. None of that is anybody's. It is counted by the time that has passed,
    /// too: the system knows what a process has used only up to the last tick while it runs.
    ///
    /// # Errors
    /// The system's, when the process is gone.
    pub fn note_claimed(&mut self, looked: Duration) -> Result<(), PlatformError> {
        let account = self.sandbox.account();
        let counted = account.closed_at() + looked;
        self.note_reset(looked)?;
        self.sandbox.account().close(counted);
        self.is_claimed = true;
        Ok(())
    }
}
