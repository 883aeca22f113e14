//! The page that node and sandbox share for a hot instance: warm with its vCPU in the guest,
//! which polls for its next request.
//!
//! The page lies after the mailbox in the mailbox's file, and in no memory slot of the guest. Its
//! first word says who owns the instance. The sandbox offers the instance and takes it back, and
//! the node claims it. Each does so by one compare-and-exchange of that word, without a message. So
//! exactly one of them has the instance, in every order of their steps
//! (`exactly_one_of_them_has_it` tries all orders). An instance that was taken back is wiped before
//! it is cold: until then nothing may be written to its mailbox.
//!
//! A second word says whether the sandbox, whose guest is done, has the order to reset the
//! instance. The node writes the order to the page as long as the sandbox polls for it. The sandbox
//! does so for a moment before it sleeps and needs a message. All other words have one writer each,
//! which writes them before the word that announces them.
//!
//! ```text
//!          sandbox: offer             node: claim
//!   Cold ───────────────▶ Hot ─────────────────────▶ Taken
//!    ▲                     │ sandbox: take back        │ sandbox: offer, after the reset
//!    └────── Leaving ◀─────┘                           └────▶ Hot
//!  sandbox: left
//! ```
//!
//! If the node wants an instance that is not offered yet, it changes the word from Cold or Taken to
//! Wanted. It then receives a message when the instance is offered, and need not poll. If the node
//! does not want it to be offered at all, because its sandbox has no processor, it changes the word
//! to Refused. Then the instance waits warm, unless it was offered before.
//!
//! Neither side trusts the other. A sandbox under attack that offers an instance without having one
//! gets a request that it does not answer. It could get such a request in any case.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::memory_map::PAGE;
use rustix::io::Errno;

use crate::messages::{Answer, Reset, WarmReport};
use crate::shared_page::SharedPage;

/// The offset of the page in the mailbox's file.
pub const CONTROL: u64 = MAILBOX_BYTES;
/// The size of the file: mailbox and control page.
pub const FILE_BYTES: u64 = CONTROL + PAGE;

// The writers of the words, each in cache lines of their own: both; both; the node; the sandbox.
const STATE: usize = 0;
const ORDER: usize = 64;
const CLAIMED_AT: usize = 128;
const COUNT_UNUSED: usize = 136;
const POLL: usize = 144;
const WALL_EPOCH: usize = 152;
const REPORT: usize = 192;
const OFFERED_AT: usize = REPORT + REPORT_WORDS * size_of::<u64>();

/// Words of a report: those of [`WarmReport`] except `polled_nanoseconds` and `is_offered`.
const REPORT_WORDS: usize = 7;

const COLD: u32 = 0;
const HOT: u32 = 1;
const TAKEN: u32 = 2;
const LEAVING: u32 = 3;
const WANTED: u32 = 4;
const REFUSED: u32 = 5;

/// The sandbox has no order, and polls for one when its guest is done.
const NONE: u32 = 0;
const ORDERED: u32 = 1;
const ASLEEP: u32 = 2;

/// A word that both sides write.
trait Word {
    fn get(&self) -> u32;
    fn set(&self, value: u32);
    /// Changes the word to `to` if it is `from`; returns whether it did.
    fn change(&self, from: u32, to: u32) -> bool;
}

impl Word for &AtomicU32 {
    fn get(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }

    fn set(&self, value: u32) {
        self.store(value, Ordering::SeqCst);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// The result of offering an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The instance is offered: the next claim gets it.
    Made,
    /// The instance is offered, and the node has asked for a message about that.
    Wanted,
    /// The node refuses the offer: the instance is to wait warm instead.
    Refused,
}

/// The result of refusing an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The instance will not be offered.
    Made,
    /// The instance will not be offered, and so the node gets no message about an offer that it had
    /// asked for.
    Unwanted,
    /// The instance is offered already, or was.
    TooLate,
}

/// The word that says who owns an instance.
struct Owner<W>(W);

impl<W: Word> Owner<W> {
    fn offer(&self) -> Offer {
        loop {
            let (before, offer) = match self.0.get() {
                REFUSED => {
                    // No other step leads on from here.
                    self.0.set(COLD);
                    return Offer::Refused;
                }
                WANTED => (WANTED, Offer::Wanted),
                before => (before, Offer::Made),
            };
            if self.0.change(before, HOT) {
                return offer;
            }
        }
    }

    fn refuse(&self) -> Refusal {
        let refuses = |from| self.0.change(from, REFUSED);
        match () {
            () if refuses(WANTED) => Refusal::Unwanted,
            () if refuses(TAKEN) || refuses(COLD) => Refusal::Made,
            () => Refusal::TooLate,
        }
    }

    fn is_offered(&self) -> bool {
        matches!(self.0.get(), HOT | LEAVING)
    }

    fn want(&self) -> bool {
        self.0.change(TAKEN, WANTED) || self.0.change(COLD, WANTED)
    }

    fn withdraw_offer(&self) -> bool {
        self.0.change(HOT, LEAVING)
    }

    fn left(&self) {
        self.0.set(COLD);
    }

    fn is_leaving(&self) -> bool {
        self.0.get() == LEAVING
    }

    fn claim(&self) -> bool {
        self.0.change(HOT, TAKEN)
    }

    /// Valid after an offer: the node may have wanted the instance again by then, or refused it.
    fn is_claimed(&self) -> bool {
        matches!(self.0.get(), TAKEN | WANTED | REFUSED)
    }
}

/// The word that says whether a sandbox has its order.
struct Order<W>(W);

impl<W: Word> Order<W> {
    fn give(&self) -> bool {
        self.0.change(NONE, ORDERED)
    }

    fn take(&self) -> bool {
        self.0.change(ORDERED, NONE)
    }

    fn sleep(&self) -> bool {
        self.0.change(NONE, ASLEEP)
    }

    fn wake(&self) {
        self.0.set(NONE);
    }

    fn is_untaken(&self) -> bool {
        self.0.get() == ORDERED
    }
}

/// The control page of one instance.
#[derive(Debug)]
pub struct Control(SharedPage);

impl Control {
    /// Maps the control page of a mailbox's file, whose size must be [`FILE_BYTES`].
    ///
    /// # Errors
    /// Returns the error of `mmap`.
    pub fn map(file: impl AsFd) -> Result<Self, Errno> {
        SharedPage::map(file, CONTROL).map(Self)
    }

    /// Takes a page that is mapped already.
    #[must_use]
    pub fn new(page: SharedPage) -> Self {
        Self(page)
    }

    fn owner(&self) -> Owner<&AtomicU32> {
        Owner(self.0.word(STATE))
    }

    fn orders(&self) -> Order<&AtomicU32> {
        Order(self.0.word(ORDER))
    }

    /// For the node: writes the order for the sandbox to find. Returns `false` if the sandbox
    /// sleeps: then the order must be sent.
    pub fn order(&self, order: &Reset) -> bool {
        let put = |at, value| self.0.long_word(at).store(value, Ordering::Relaxed);
        put(COUNT_UNUSED, u64::from(order.count_unused.is_yes()));
        put(POLL, order.poll_nanoseconds);
        put(WALL_EPOCH, order.wall_epoch_nanoseconds);
        self.orders().give()
    }

    /// For the node: whether it has written an order that the sandbox has not taken.
    pub fn has_untaken_order(&self) -> bool {
        self.orders().is_untaken()
    }

    /// For the sandbox: takes the order, if there is one.
    pub fn take_order(&self) -> Option<Reset> {
        let get = |at| self.0.long_word(at).load(Ordering::Relaxed);
        self.orders().take().then(|| Reset {
            count_unused: (get(COUNT_UNUSED) != 0).into(),
            poll_nanoseconds: get(POLL),
            wall_epoch_nanoseconds: get(WALL_EPOCH),
        })
    }

    /// For the sandbox: stops polling for an order. Returns `false` if there is one.
    pub fn sleep(&self) -> bool {
        self.orders().sleep()
    }

    /// For the sandbox: its guest is about to run, and the next order can be written here again.
    pub fn wake(&self) {
        self.orders().wake();
    }

    /// For the sandbox: writes the report of the reset, before the instance is offered.
    pub fn report(&self, warm: &WarmReport) {
        let words = [
            warm.filled,
            warm.outside,
            u64::from(warm.counted.is_yes()),
            warm.unused,
            warm.exits,
            warm.page_faults,
            warm.nanoseconds,
        ];
        for (at, word) in (REPORT..).step_by(size_of::<u64>()).zip(words) {
            self.0.long_word(at).store(word, Ordering::Relaxed);
        }
    }

    /// For the node: returns the sandbox's report of a claimed instance. The sandbox is not
    /// trusted.
    pub fn warm_report(&self) -> WarmReport {
        let word = |at| self.0.long_word(REPORT + at * size_of::<u64>());
        let words: [u64; REPORT_WORDS] = std::array::from_fn(|at| word(at).load(Ordering::Relaxed));
        let [
            filled,
            outside,
            counted,
            unused,
            exits,
            page_faults,
            nanoseconds,
        ] = words;
        WarmReport {
            filled,
            outside,
            counted: (counted != 0).into(),
            unused,
            exits,
            page_faults,
            nanoseconds,
            polled_nanoseconds: 0,
            is_offered: Answer::Yes,
        }
    }

    fn offered_at_word(&self) -> &AtomicU64 {
        self.0.long_word(OFFERED_AT)
    }

    fn claimed_at_word(&self) -> &AtomicU64 {
        self.0.long_word(CLAIMED_AT)
    }

    /// For the sandbox: offers the instance, which is about to poll for a request, unless the node
    /// refuses it. `now` is the time of the monotonic clock in nanoseconds.
    pub fn offer(&self, now: u64) -> Offer {
        self.offered_at_word().store(now, Ordering::Relaxed);
        self.owner().offer()
    }

    /// For the node: returns the time of the offer by the monotonic clock, in nanoseconds. The
    /// sandbox writes it and is not trusted.
    pub fn offered_at(&self) -> u64 {
        self.offered_at_word().load(Ordering::Relaxed)
    }

    /// For the node: refuses an instance, which is then warm instead of offered. That is too late
    /// if it is offered already, or was. If it is already reset and warm when it is refused, the
    /// refusal applies to the next time that it would be offered.
    pub fn refuse(&self) -> Refusal {
        self.owner().refuse()
    }

    /// For the node: whether the instance was offered, and neither claimed nor warm since: its
    /// guest polls for a request, or has done so in vain.
    pub fn is_offered(&self) -> bool {
        self.owner().is_offered()
    }

    /// For the node: asks for a message when the instance is offered. Returns `false` if it is
    /// offered already, or was.
    pub fn want(&self) -> bool {
        self.owner().want()
    }

    /// For the sandbox: takes the instance back. Returns `false` if the node has claimed it.
    pub fn withdraw_offer(&self) -> bool {
        self.owner().withdraw_offer()
    }

    /// For the sandbox: the instance that was taken back is in the state from before the offer.
    pub fn left(&self) {
        self.owner().left();
    }

    /// For the node: whether the instance was taken back and its mailbox may be being wiped.
    pub fn is_leaving(&self) -> bool {
        self.owner().is_leaving()
    }

    /// For the sandbox: whether the node has the instance.
    pub fn is_claimed(&self) -> bool {
        self.owner().is_claimed()
    }

    /// For the sandbox: returns the time of the claim by the monotonic clock, in nanoseconds. The
    /// node writes it.
    pub fn claimed_at(&self) -> u64 {
        self.claimed_at_word().load(Ordering::Relaxed)
    }

    /// For the node: claims the instance, and returns whether it was offered. `now` is the time of
    /// the monotonic clock in nanoseconds.
    pub fn claim(&self, now: u64) -> bool {
        self.claimed_at_word().store(now, Ordering::Relaxed);
        self.owner().claim()
    }
}

#[cfg(test)]
mod tests;
