//! The steps of a hostile guest.

use std::mem::offset_of;

use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::doorbell::{Doorbell, PORT, PROGRESS};
use faasw_abi::mailbox::{
    Area, COMMANDS, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords, LOG, LOG_RECORD_HEADER, REPORT,
};
use faasw_abi::memory_map::{IDT, MAILBOX};
use faasw_abi::outcome::Outcome;
use faasw_pool::ResponseHead;

/// The operations of the interpreter. The second to fourth words of a step are `a`, `b` and `c`.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Op {
    /// Stores `b` at `a`.
    Store = 1,
    /// Writes `b` to the port `a`.
    Doorbell = 2,
    /// Adds `b` to the word at `a`.
    Add = 3,
    /// Continues at step `b`.
    Jump = 4,
    /// Copies `c` bytes from `b` to `a`.
    Copy = 5,
    /// Starts the random words at `a`; only their bits in `b` are stored.
    Dice = 6,
    /// Stores `c` random words, each at `a` plus a random subset of the bits of `b`.
    Race = 7,
    /// Decrements the word at `a`; continues at step `b` unless it is now 0.
    Again = 8,
    /// Runs the gate of vector 3.
    Breakpoint = 9,
    /// Continues when the word at `a` is `b`.
    Until = 10,
}

/// The areas that a guest writes: its response, which begins with the head, and the others.
pub const RESPONSE: Area = Channel::INVOCATION.to_host().area;
pub const AREAS: [Area; 3] = [RESPONSE, LOG.area, REPORT];
/// The area of a script that came with a request; no lie uses it.
pub const SCRIPT: Area = COMMANDS;

/// Returns the guest address of a word that the guest writes.
macro_rules! word {
    (response_written) => {
        crate::script::word!(of written)
    };
    (response_head) => {
        crate::script::word!(of head)
    };
    (response_end) => {
        crate::script::word!(of end)
    };
    (request_read) => {
        crate::script::word!(of read)
    };
    (of $field:ident) => {
        crate::script::word!(channels)
            + std::mem::offset_of!(faasw_abi::channel::ChannelWords, $field) as u64
    };
    ($field:ident) => {
        faasw_abi::memory_map::MAILBOX
            + faasw_abi::mailbox::GUEST_WORDS.offset
            + std::mem::offset_of!(faasw_abi::mailbox::GuestWords, $field) as u64
    };
}
pub(crate) use word;

/// Returns the guest address of an area.
pub fn place(area: Area) -> u64 {
    MAILBOX + area.offset
}

/// Address of the word in which the node stores how much of the response it has read.
const RESPONSE_TAKEN: u64 = MAILBOX
    + HOST_WORDS.offset
    + (offset_of!(HostWords, channels) + offset_of!(ChannelWords, read)) as u64;

fn good_head() -> ResponseHead {
    ResponseHead {
        status: 200,
        headers: Vec::new(),
    }
}

/// Steps, and the data that they use.
#[derive(Clone, Debug, Default)]
pub struct Script {
    steps: Vec<[u64; 4]>,
}

impl Script {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn step(mut self, op: Op, a: u64, b: u64, c: u64) -> Self {
        self.steps.push([op as u64, a, b, c]);
        self
    }

    pub fn store(self, address: u64, value: u64) -> Self {
        self.step(Op::Store, address, value, 0)
    }

    /// Writes to the doorbell that stops the guest.
    pub fn rings(self, value: u32) -> Self {
        self.step(Op::Doorbell, PORT.into(), value.into(), 0)
    }

    pub fn ring(self, ring: Doorbell) -> Self {
        self.rings(ring as u32)
    }

    /// Writes to the doorbell that does not stop the guest.
    pub fn progress(self) -> Self {
        self.step(Op::Doorbell, PROGRESS.into(), 0, 0)
    }

    /// Stores random words, masked with `bits`, all over `size` bytes. `size` is a power of two.
    pub fn race(self, at: u64, size: u64, seed: u64, bits: u64, count: u64) -> Self {
        self.step(Op::Dice, seed | 1, bits, 0)
            .step(Op::Race, at, (size - 1) & !7, count)
    }

    /// Stores two adjacent 32-bit words at once.
    pub fn store_pair(self, address: u64, first: u32, second: u32) -> Self {
        self.store(address, u64::from(first) | u64::from(second) << 32)
    }

    /// Stores bytes at `address`, eight at a time.
    pub fn write(mut self, address: u64, bytes: &[u8]) -> Self {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self = self.store(address + 8 * index as u64, u64::from_le_bytes(word));
        }
        self
    }

    /// Writes and announces the head of a good response.
    pub fn head(self) -> Self {
        let head = good_head().encode();
        let length = head.len() as u32;
        self.write(place(RESPONSE), &head)
            .store(word!(response_written), length.into())
            .store_pair(word!(response_head), length, 0)
    }

    /// Rings that the guest is done.
    pub fn done(self) -> Self {
        self.ring(Doorbell::Done)
    }

    /// Runs the gate of vector 3.
    pub fn breakpoint(self) -> Self {
        self.step(Op::Breakpoint, 0, 0, 0)
    }

    /// Announces an end, but no head.
    pub fn end_without_head(self) -> Self {
        self.store_pair(word!(response_head), 0, 1).store_pair(
            word!(outcome),
            Outcome::Response as u32,
            0,
        )
    }

    /// Spins until the node has read the head that [`Script::head`] announces.
    pub fn until_head_is_taken(self) -> Self {
        let length = good_head().encode().len() as u64;
        self.step(Op::Until, RESPONSE_TAKEN, length, 0)
    }

    /// Announces the end of a good response without a body.
    pub fn end(self) -> Self {
        let length = ResponseHead::default().encode().len() as u32;
        self.store_pair(word!(response_head), length, 1).store_pair(
            word!(outcome),
            Outcome::Response as u32,
            0,
        )
    }

    /// Writes two log records of line breaks, each half the ring.
    pub fn whole_log(mut self) -> Self {
        let half = LOG.size() / 2;
        for at in [place(LOG.area), place(LOG.area) + half] {
            let length = half - LOG_RECORD_HEADER as u64;
            let content = at + LOG_RECORD_HEADER as u64;
            self = self
                .store_pair(at, 1, length as u32)
                .store(content, u64::from_le_bytes([b'\n'; 8]))
                .step(Op::Copy, content + 8, content, length - 8);
        }
        self
    }

    /// Points vector 3 to `address`, in ring 0.
    pub fn gate(self, address: u64) -> Self {
        // An interrupt gate that ring 3 may use, to the segment of ring-0 code.
        const GATE: u64 = 0xee00_0008_0000;
        let low = address & 0xffff | GATE | (address >> 16 & 0xffff) << 48;
        self.store(IDT + 3 * 16, low)
            .store(IDT + 3 * 16 + 8, address >> 32)
    }

    /// Returns the number of the next step.
    pub fn here(&self) -> u64 {
        self.steps.len() as u64
    }

    /// Jumps back to a step for ever.
    pub fn for_ever_from(self, step: u64) -> Self {
        self.step(Op::Jump, 0, step, 0)
    }

    /// Jumps back to a step until the steps behind it have run `count` times. This works only in a
    /// request's body, because it writes to the script.
    pub fn repeat_from(self, step: u64, count: u64) -> Self {
        let own = place(SCRIPT) + 32 * self.here();
        self.step(Op::Again, own + 24, step, count)
    }

    /// Returns this script with its jump targets moved by `by` steps, to be placed behind that many
    /// steps of another script.
    pub fn moved(&self, by: u64) -> Self {
        let mut moved = self.clone();
        for [op, _, step, _] in &mut moved.steps {
            if [Op::Jump as u64, Op::Again as u64].contains(op) {
                *step += by;
            }
        }
        moved
    }

    pub fn then(mut self, other: Self) -> Self {
        self.steps.extend(other.steps);
        self
    }

    /// Encodes the script for the interpreter. The data behind the last step is no operation that
    /// the interpreter has.
    pub fn bytes(&self) -> Vec<u8> {
        let words = self.steps.iter().flatten();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

const _: () = assert!(
    offset_of!(ChannelWords, end) == offset_of!(ChannelWords, head) + 4
        && offset_of!(GuestWords, exit_code) == offset_of!(GuestWords, outcome) + 4
        && GUEST_WORDS.size >= 0x100,
    "the words that are stored in pairs"
);
