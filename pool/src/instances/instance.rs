//! An instance: a sandbox, its mailbox and what it is forked from.

use std::sync::Arc;
use std::time::Duration;

use faasw_fri::messages::FunctionNumber;

use crate::error::PlatformError;
use crate::mailbox::Mailbox;
use crate::sandboxes::{CodePages, Sandbox, Zygote};
use crate::sink::LogSink;
use crate::snapshots::{Code, SeedSnapshot};

/// An instance and its mailbox, for one request or, with resets in between, for many.
#[derive(Debug)]
pub struct Instance {
    /// The process of the instance.
    pub sandbox: Sandbox,
    /// The mailbox through which it exchanges requests and responses.
    pub mailbox: Mailbox,
    /// The number of requests that it has served.
    pub uses: u32,
    /// The snapshot that it is or will be forked from: its function's seed, or an ancestor.
    pub from: Arc<SeedSnapshot>,
    /// Whether `from` is its function's seed.
    pub is_own: bool,
    /// The code of the function, until the fork.
    code: Option<Arc<Code>>,
    /// The generation of the working set that it was forked with.
    pub generation: u32,
    /// Set if the guest polled for a request and was claimed for the one that it serves.
    pub is_claimed: bool,
    /// The kind of pages that hold its code, and whether the file had large pages at the fork.
    code_pages: CodePages,
    had_large_code: bool,
}

impl Instance {
    /// Returns a sandbox that is to be forked from `from`, with this code. `is_own` means that
    /// `from` is its function's seed.
    pub fn new(
        ready: Zygote,
        from: Arc<SeedSnapshot>,
        is_own: bool,
        code: Option<Arc<Code>>,
    ) -> Self {
        let Zygote { sandbox, mailbox } = ready;
        Self {
            sandbox,
            mailbox,
            uses: 0,
            from,
            is_own,
            code,
            generation: 0,
            is_claimed: false,
            code_pages: CodePages::AsStored,
            had_large_code: false,
        }
    }

    /// Makes the sandbox an instance with its code and this RAM, which shares processors with the
    /// other instances of `function`.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if the sandbox is gone.
    pub async fn fork(
        &mut self,
        ram_bytes: u64,
        function: FunctionNumber,
    ) -> Result<(), PlatformError> {
        // From then on the sandbox has the code mapped.
        let code = self.code.take();
        self.had_large_code = code.as_ref().is_some_and(|code| code.is_gathered());
        // All scripts of an engine share its code, which may be in large pages before the first
        // survey of this script. So the code is mapped in small pages until a survey is done.
        self.code_pages = if self.is_own && self.from.working_set().is_wanted() {
            CodePages::Small
        } else {
            CodePages::AsStored
        };
        let working_set = self.from.working_set().current();
        self.generation = working_set.generation;
        self.from.count_fork();
        self.sandbox
            .fork(
                &self.from,
                ram_bytes,
                &working_set,
                &self.mailbox,
                code.as_deref().map(|code| (code, self.code_pages)),
                Some(function),
            )
            .await
    }

    /// Returns whether the code is in large pages, or was moved to large pages after the fork,
    /// which removed the existing mappings. In both cases it is unknown which small pages the
    /// instance uses.
    pub fn has_code_in_large_pages(&self) -> bool {
        let code = self.from.state().code();
        if self.had_large_code {
            self.code_pages == CodePages::AsStored
        } else {
            code.is_some_and(|code| code.is_being_gathered())
        }
    }

    /// Returns whether the instance was forked with the current working set.
    pub fn is_current(&self) -> bool {
        self.generation == self.from.working_set().current().generation
    }

    /// Returns the monotonic time that the instance continues from, in nanoseconds.
    pub fn monotonic_nanoseconds(&self) -> u64 {
        self.from.monotonic_nanoseconds()
    }

    /// Charges the CPU time of the instance to `sink` from now on. The instance serves that sink's
    /// request under the number `number`.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if the process is gone.
    pub fn charge_to(&self, sink: Arc<dyn LogSink>, number: u64) -> Result<(), PlatformError> {
        let account = self.sandbox.account();
        if self.uses == 0 {
            // The CPU time of making the instance is charged to no function.
            account.close(self.sandbox.cpu_time()?);
        }
        account.open(sink, number);
        Ok(())
    }

    /// Returns the CPU time that this request has taken so far.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if the process is gone.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        let used = self.sandbox.cpu_time()?;
        Ok(used.saturating_sub(self.sandbox.account().closed_at()))
    }

    /// Notes that the instance was reset after a request, and that its guest then polled for the
    /// next one for `polled`. That time is charged to no function.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if the process is gone.
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

    /// Notes that the instance was reset, and that its guest, which polled for its next request for
    /// `looked`, was claimed. None of that time is charged to a function. The elapsed time counts
    /// as well, because while a process runs, the kernel knows its CPU time only up to the last
    /// tick.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if the process is gone.
    pub fn note_claimed(&mut self, looked: Duration) -> Result<(), PlatformError> {
        let account = self.sandbox.account();
        let counted = account.closed_at() + looked;
        self.note_reset(looked)?;
        self.sandbox.account().close(counted);
        self.is_claimed = true;
        Ok(())
    }
}
