//! What passes without a system call between the node and an instance that is hot: whose it is,
//! that there is a request for it, and that its function is done.
//!
//! Two pages of the mailbox's file are mapped for that, of an instance that was to be hot once: the
//! page of words and the control page ([`faasw_fri::control`]). Of a page that a guest writes only
//! single words are read, by atomic loads; all else passes by copy as ever, behind a word that says
//! that it is there.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use faasw_abi::channel::ChannelWords;
use faasw_abi::mailbox::{GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, WORDS};
use faasw_fri::control::{Control, Refusal};
use faasw_fri::messages::Reset;
use faasw_fri::shared_page::SharedPage;
use rustix::time::{ClockId, clock_gettime};

use super::file::{Mailbox, system};
use crate::error::PlatformError;
use crate::sink::Effort;

const GO: usize = (HOST_WORDS.offset - WORDS.offset) as usize + offset_of!(HostWords, go);
const OUTCOME: usize =
    (GUEST_WORDS.offset - WORDS.offset) as usize + offset_of!(GuestWords, outcome);

const READ: usize = (GUEST_WORDS.offset - WORDS.offset) as usize
    + offset_of!(GuestWords, channels)
    + offset_of!(ChannelWords, read);

/// The pages that are mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    words: SharedPage,
    control: Control,
    is_told_of: bool,
}

fn monotonic_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Mailbox {
    /// Maps what it takes to be hot, unless it is mapped.
    ///
    /// # Errors
    /// The system's.
    pub fn map(&mut self) -> Result<(), PlatformError> {
        if self.mapped.is_none() {
            self.mapped = Some(Mapped {
                control: Control::map(&self.file).map_err(system)?,
                words: SharedPage::map(&self.file, WORDS.offset).map_err(system)?,
                is_told_of: false,
            });
        }
        Ok(())
    }

    /// Gives the sandbox its order, unless that wants it by a message.
    pub fn order(&self, order: &Reset) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.control.order(order))
    }

    /// Whether it was given an order that the sandbox has not taken: its guest runs.
    pub fn has_untaken_order(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.control.has_untaken_order())
    }

    /// Takes the instance, if its guest looks for a request: that has to come soon. What bringing
    /// it back took, and for how long it has looked, by the sandbox's word.
    pub fn claim(&self) -> Option<(Effort, Duration)> {
        let control = &self.mapped.as_ref()?.control;
        let now = monotonic_nanoseconds();
        control.claim(now).then(|| {
            let looked = now.saturating_sub(control.offered_at());
            (control.told().into(), Duration::from_nanos(looked))
        })
    }

    /// Has the instance be parked instead of looking for a request. If it was offered already: for
    /// how long, by the sandbox's word.
    pub fn refuse(&mut self) -> Option<Duration> {
        let mapped = self.mapped.as_mut()?;
        let control = &mapped.control;
        let refusal = control.refuse();
        if refusal == Refusal::Unwanted {
            mapped.is_told_of = false;
        }
        let is_offered = refusal == Refusal::TooLate && control.is_offered();
        is_offered.then(|| {
            let looked = monotonic_nanoseconds().saturating_sub(control.offered_at());
            Duration::from_nanos(looked)
        })
    }

    /// Whether it was offered, and not claimed: its guest looks for a request, or has in vain.
    pub fn is_offered(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.control.is_offered())
    }

    /// Wants to be told when it can be claimed; not where it can be, or could.
    pub fn want(&mut self) -> bool {
        let mapped = self.mapped.as_mut();
        mapped.is_some_and(|mapped| {
            let is_told_of = mapped.control.want();
            mapped.is_told_of |= is_told_of;
            is_told_of
        })
    }

    /// Whether the sandbox was to tell when it can be claimed, and that was not heard yet.
    pub fn is_told_of(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.is_told_of)
    }

    /// It was heard.
    ///
    /// # Errors
    /// When nobody wanted to hear it.
    pub fn note_told_of(&mut self) -> Result<(), PlatformError> {
        match &mut self.mapped {
            Some(mapped) if mapped.is_told_of => {
                mapped.is_told_of = false;
                Ok(())
            }
            _ => {
                let what = "the sandbox said unasked that its guest looks for a request".to_owned();
                Err(PlatformError::Protocol(what))
            }
        }
    }

    /// Whether it may be wiped at this moment: its guest has looked for a request for long enough.
    pub fn is_leaving(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.control.is_leaving())
    }

    /// Tells a guest that looks for a request that it is all there.
    pub fn go(&mut self) {
        self.said.go = 1;
        if let Some(mapped) = &self.mapped {
            mapped.words.word(GO).store(1, Ordering::Release);
        }
    }

    /// Whether the guest has said how its function ended; of one that was never hot nobody knows.
    pub fn has_outcome(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.words.word(OUTCOME).load(Ordering::Acquire) != 0)
    }

    /// Whether the guest has taken anything of its request, by its word; of one that was never hot
    /// nobody knows, and it has.
    pub fn has_begun(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_none_or(|mapped| mapped.words.long_word(READ).load(Ordering::Acquire) != 0)
    }

    /// Asks the guest to ring at its end, if it was not asked when the message for it came; whether
    /// it had ended before it could see that.
    ///
    /// # Errors
    /// The system's.
    pub fn ask_for_end(&mut self) -> Result<bool, PlatformError> {
        self.said.tell_end = 1;
        self.say(offset_of!(HostWords, tell_end), &1_u32)?;
        // Either the guest sees that, or this sees what it wrote before.
        fence(Ordering::SeqCst);
        Ok(self.has_outcome())
    }
}
