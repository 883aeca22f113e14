//! What node and sandbox share of an instance that is hot: parked with its vCPU in the guest, which
//! looks for its next request.
//!
//! A page behind the mailbox in the mailbox's file, in no memory slot of the guest. Its first word
//! says whose the instance is. The sandbox offers it and takes it back, the node claims it; both by
//! one compare-and-exchange of that word, so exactly one of them has it, without a message and
//! however they run (`exactly_one_of_them_has_it` tries all ways). An instance that was taken back
//! is wiped before it is cold: until then nothing may be written to its mailbox.
//!
//! A second word says whether the sandbox, whose guest is done, has the order to bring the instance
//! back: the node gives it there as long as the sandbox looks, which it does for a moment before it
//! sleeps and wants a message. The other words have one writer each, and are there before a word
//! that says so.
//!
//! ```text
//!          sandbox: offer             node: claim
//!   Cold ───────────────▶ Hot ─────────────────────▶ Taken
//!    ▲                     │ sandbox: take back        │ sandbox: offer, after the reset
//!    └────── Leaving ◀─────┘                           └────▶ Hot
//!  sandbox: left
//! ```
//!
//! A node that wants what is not offered yet says so (from Cold or Taken to Wanted) and is told by
//! a message when it is, instead of looking for it. One that wants it not to be offered at all,
//! since its sandbox has no processor, says that, too (to Refused): then it is parked, unless it
//! was offered before.
//!
//! Neither side believes the other: a sandbox under attack that offers what it has not gets a
//! request that it does not answer, which it could get all the same.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::memory_map::PAGE;
use rustix::io::Errno;

use crate::messages::{Answer, Parked, Reset};
use crate::shared_page::SharedPage;

/// Where the page is in the mailbox's file.
pub const CONTROL: u64 = MAILBOX_BYTES;
/// Size of the file: mailbox and control page.
pub const FILE_BYTES: u64 = CONTROL + PAGE;

// Who writes them, in lines of the cache of their own: both; both; the node; the sandbox.
const STATE: usize = 0;
const ORDER: usize = 64;
const CLAIMED_AT: usize = 128;
const COUNT_UNUSED: usize = 136;
const POLL: usize = 144;
const WALL_EPOCH: usize = 152;
const REPORT: usize = 192;
const OFFERED_AT: usize = REPORT + REPORT_WORDS * size_of::<u64>();

/// Words of a report: those of [`Parked`] but for what was polled.
const REPORT_WORDS: usize = 7;

const COLD: u32 = 0;
const HOT: u32 = 1;
const TAKEN: u32 = 2;
const LEAVING: u32 = 3;
const WANTED: u32 = 4;
const REFUSED: u32 = 5;

/// The sandbox has no order, and looks for one when its guest is done.
const NONE: u32 = 0;
const ORDERED: u32 = 1;
const ASLEEP: u32 = 2;

/// A word that both write.
trait Word {
    fn get(&self) -> u32;
    fn set(&self, value: u32);
    /// Whether it was `from`, and so is `to` now.
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

/// What came of offering an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Whoever asks first may have it.
    Made,
    /// The same, which the node wants to be told of.
    Wanted,
    /// The node will not have it: it is to be parked.
    Refused,
}

/// What came of refusing an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It will not be offered.
    Made,
    /// The same, and the node will not be told of an offer that it wanted to be told of.
    Unwanted,
    /// It is offered already, or was.
    TooLate,
}

/// Whose an instance is.
struct Owner<W>(W);

impl<W: Word> Owner<W> {
    fn offer(&self) -> Offer {
        loop {
            let (before, offer) = match self.0.get() {
                REFUSED => {
                    // Nobody else goes on from there.
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

    fn take_back(&self) -> bool {
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

    /// After an offer: the node may want it again by then, or refuse it.
    fn is_claimed(&self) -> bool {
        matches!(self.0.get(), TAKEN | WANTED | REFUSED)
    }
}

/// Whether a sandbox has its order.
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
    /// Maps that of a mailbox's file, which has [`FILE_BYTES`].
    ///
    /// # Errors
    /// The system's.
    pub fn map(file: impl AsFd) -> Result<Self, Errno> {
        SharedPage::map(file, CONTROL).map(Self)
    }

    /// One that is mapped already.
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

    /// The node's: gives the order where the sandbox finds it, unless it sleeps: then it is to be
    /// sent. Whether it was given.
    pub fn order(&self, order: &Reset) -> bool {
        let put = |at, value| self.0.long_word(at).store(value, Ordering::Relaxed);
        put(COUNT_UNUSED, u64::from(order.count_unused.is_yes()));
        put(POLL, order.poll_nanoseconds);
        put(WALL_EPOCH, order.wall_epoch_nanoseconds);
        self.orders().give()
    }

    /// The node's: it gave an order that the sandbox has not taken.
    pub fn has_untaken_order(&self) -> bool {
        self.orders().is_untaken()
    }

    /// The sandbox's: the order, if there is one.
    pub fn take_order(&self) -> Option<Reset> {
        let get = |at| self.0.long_word(at).load(Ordering::Relaxed);
        self.orders().take().then(|| Reset {
            count_unused: (get(COUNT_UNUSED) != 0).into(),
            poll_nanoseconds: get(POLL),
            wall_epoch_nanoseconds: get(WALL_EPOCH),
        })
    }

    /// The sandbox's: looks no more; whether there is no order.
    pub fn sleep(&self) -> bool {
        self.orders().sleep()
    }

    /// The sandbox's: its guest runs, and the next order can be given here again.
    pub fn wake(&self) {
        self.orders().wake();
    }

    /// The sandbox's: says what bringing the instance back took, before it is offered.
    pub fn report(&self, parked: &Parked) {
        let words = [
            parked.filled,
            parked.outside,
            u64::from(parked.counted.is_yes()),
            parked.unused,
            parked.exits,
            parked.page_faults,
            parked.nanoseconds,
        ];
        for (at, word) in (REPORT..).step_by(size_of::<u64>()).zip(words) {
            self.0.long_word(at).store(word, Ordering::Relaxed);
        }
    }

    /// The node's: what the sandbox has said of an instance that was claimed. It is the sandbox's
    /// word.
    pub fn told(&self) -> Parked {
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
        Parked {
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

    /// The sandbox's: whoever asks first may have the instance, which is about to look for a
    /// request, unless the node will not have it. Now is `now` by the system's monotonic clock, in
    /// nanoseconds.
    pub fn offer(&self, now: u64) -> Offer {
        self.offered_at_word().store(now, Ordering::Relaxed);
        self.owner().offer()
    }

    /// The node's: when it was offered by the system's monotonic clock, in nanoseconds. The
    /// sandbox's word.
    pub fn offered_at(&self) -> u64 {
        self.offered_at_word().load(Ordering::Relaxed)
    }

    /// The node's: it is not to be offered, but parked. Where that comes too late it is offered
    /// already, or was. One that is refused when it was brought back by then will not be offered
    /// the next time.
    pub fn refuse(&self) -> Refusal {
        self.owner().refuse()
    }

    /// The node's: it was offered, and neither claimed nor parked since: its guest looks for a
    /// request, or has in vain.
    pub fn is_offered(&self) -> bool {
        self.owner().is_offered()
    }

    /// The node's: it wants to be told when the instance is offered; not where it is already, or
    /// was.
    pub fn want(&self) -> bool {
        self.owner().want()
    }

    /// The sandbox's: nobody gets it any more, unless somebody has it already. Whether nobody has.
    pub fn take_back(&self) -> bool {
        self.owner().take_back()
    }

    /// The sandbox's: what was taken back is as it was before it was offered.
    pub fn left(&self) {
        self.owner().left();
    }

    /// The node's: it was taken back, and its mailbox may be wiped at this moment.
    pub fn is_leaving(&self) -> bool {
        self.owner().is_leaving()
    }

    /// The sandbox's: whether the node has it.
    pub fn is_claimed(&self) -> bool {
        self.owner().is_claimed()
    }

    /// The sandbox's: when it was claimed by the system's monotonic clock, in nanoseconds. The
    /// node's word.
    pub fn claimed_at(&self) -> u64 {
        self.claimed_at_word().load(Ordering::Relaxed)
    }

    /// The node's: has it, if it is offered. Now is `now` by the system's monotonic clock, in
    /// nanoseconds.
    pub fn claim(&self, now: u64) -> bool {
        self.claimed_at_word().store(now, Ordering::Relaxed);
        self.owner().claim()
    }
}

#[cfg(test)]
mod tests;
