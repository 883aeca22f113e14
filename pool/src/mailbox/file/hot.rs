//! The communication without system calls between the node and a hot instance: the instance's
//! ownership, the signal that there is a request for it, and the signal that its function is done.
//!
//! For an instance that was to be hot once, two pages of the mailbox's file are mapped: the page of
//! words and the control page ([`faasw_fri::control`]). Of a page that a guest writes, only single
//! words are read, by atomic loads. All other data is copied as usual, after a word has announced
//! it.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use faasw_abi::channel::ChannelWords;
use faasw_abi::mailbox::{GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, WORDS};
use faasw_fri::control::{Control, Refusal};
use faasw_fri::messages::Reset;
use faasw_fri::shared_page::SharedPage;
use faasw_sandbox::vm::clock;

use super::{Mailbox, system};
use crate::error::PlatformError;
use crate::sink::Effort;

const GO: usize = (HOST_WORDS.offset - WORDS.offset) as usize + offset_of!(HostWords, go);
const OUTCOME: usize =
    (GUEST_WORDS.offset - WORDS.offset) as usize + offset_of!(GuestWords, outcome);

const READ: usize = (GUEST_WORDS.offset - WORDS.offset) as usize
    + offset_of!(GuestWords, channels)
    + offset_of!(ChannelWords, read);

/// The mapped pages.
#[derive(Debug)]
pub(super) struct MappedPages {
    words: SharedPage,
    control: Control,
    is_report_due: bool,
}

impl MappedPages {
    /// Returns for how long the guest has polled until `now`, as the sandbox reports it.
    fn polled(&self, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.control.offered_at()))
    }
}

impl Mailbox {
    /// Maps the pages for a hot instance, unless they are mapped.
    ///
    /// # Errors
    /// Returns the error of the mapping.
    pub fn map(&mut self) -> Result<(), PlatformError> {
        if self.mapped.is_none() {
            self.mapped = Some(MappedPages {
                control: Control::map(&self.file).map_err(system)?,
                words: SharedPage::map(&self.file, WORDS.offset).map_err(system)?,
                is_report_due: false,
            });
        }
        Ok(())
    }

    fn control(&self) -> Option<&Control> {
        self.mapped.as_ref().map(|mapped| &mapped.control)
    }

    /// Passes an order to the sandbox. Returns false if the sandbox needs a message for it.
    pub fn order(&self, order: &Reset) -> bool {
        let control = self.control();
        control.is_some_and(|control| control.order(order))
    }

    /// Returns whether an order was passed that the sandbox has not taken: its guest runs.
    pub fn has_untaken_order(&self) -> bool {
        self.control().is_some_and(Control::has_untaken_order)
    }

    /// Claims the instance if its guest polls for a request; the request has to follow soon.
    /// Returns the effort of the reset, and for how long the guest has polled, both as the sandbox
    /// reports them.
    pub fn claim(&self) -> Option<(Effort, Duration)> {
        let mapped = self.mapped.as_ref()?;
        let now = clock::monotonic();
        let is_claimed = mapped.control.claim(now);
        is_claimed.then(|| (mapped.control.warm_report().into(), mapped.polled(now)))
    }

    /// Makes the instance wait warm instead of polling for a request. If it was offered already,
    /// returns for how long, as the sandbox reports it.
    pub fn refuse(&mut self) -> Option<Duration> {
        let mapped = self.mapped.as_mut()?;
        let refusal = mapped.control.refuse();
        if refusal == Refusal::Unwanted {
            mapped.is_report_due = false;
        }
        let is_offered = refusal == Refusal::TooLate && mapped.control.is_offered();
        is_offered.then(|| mapped.polled(clock::monotonic()))
    }

    /// Returns whether it was offered and not claimed: its guest polls for a request, or has polled
    /// in vain.
    pub fn is_offered(&self) -> bool {
        self.control().is_some_and(Control::is_offered)
    }

    /// Requests a report once it can be claimed. Returns false if it can be claimed now, or could
    /// before.
    pub fn request_report(&mut self) -> bool {
        let mapped = self.mapped.as_mut();
        mapped.is_some_and(|mapped| {
            let is_report_due = mapped.control.want();
            mapped.is_report_due |= is_report_due;
            is_report_due
        })
    }

    /// Returns whether the sandbox was to report that it can be claimed, and the report has not
    /// been received yet.
    pub fn is_report_due(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.is_report_due)
    }

    /// Records that the report was received.
    ///
    /// # Errors
    /// Returns [`PlatformError::Protocol`] if no report was requested.
    pub fn note_report(&mut self) -> Result<(), PlatformError> {
        match &mut self.mapped {
            Some(mapped) if mapped.is_report_due => {
                mapped.is_report_due = false;
                Ok(())
            }
            _ => {
                let what = "the sandbox reported without an order that its guest polls".to_owned();
                Err(PlatformError::Protocol(what))
            }
        }
    }

    /// Returns whether the sandbox may wipe it at this moment, because its guest has polled for
    /// long enough.
    pub fn is_ending_poll(&self) -> bool {
        self.control().is_some_and(Control::is_leaving)
    }

    /// Signals to a polling guest that there is a request. Everything that the guest reads first,
    /// such as the head, has to be written before.
    pub fn signal_request(&mut self) {
        self.host_words.go = 1;
        if let Some(mapped) = &self.mapped {
            mapped.words.word(GO).store(1, Ordering::Release);
        }
    }

    /// Returns whether the guest has reported how its function ended; always false for a guest that
    /// was never hot.
    pub fn has_outcome(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.words.word(OUTCOME).load(Ordering::Acquire) != 0)
    }

    /// Returns whether the guest has taken anything of its request, as it reports; always true for
    /// a guest that was never hot, because this cannot be known.
    pub fn has_begun(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_none_or(|mapped| mapped.words.long_word(READ).load(Ordering::Acquire) != 0)
    }

    /// Requests that the guest ring at its end, if its message did not request that. Returns
    /// whether the guest had ended before it could see the request.
    ///
    /// # Errors
    /// Returns the error of writing to the mailbox.
    pub fn request_end_ring(&mut self) -> Result<bool, PlatformError> {
        self.host_words.tell_end = 1;
        self.publish(offset_of!(HostWords, tell_end), &1_u32)?;
        // Either the guest sees the request, or this sees the outcome that the guest wrote before.
        fence(Ordering::SeqCst);
        Ok(self.has_outcome())
    }
}
