//! The messages, each of a fixed size.

use faasw_abi::boot::Activation;
use faasw_abi::pages::Ranges;
use faasw_seedtree::UsedPages;
use faasw_seedtree::limits::{FILLED_MAX, MAPPED_MAX, OWN_MAX, SET_MAX};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// First word of every packet.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FRI\x07");

/// Does something with all messages there are: `$does` is a macro that takes
/// `Name = number, …`, the name of a message and of its [`Kind`] and the number that it travels
/// as. So nobody who has to know all of them can forget one.
#[macro_export]
macro_rules! each_message {
    ($does:ident) => {
        $does! {
            SpawnSandbox = 1,
            SpawnHelper = 2,
            Kill = 3,
            Spawned = 4,
            Limit = 7,
            Introduced = 8,
            SpawnFailed = 5,
            Ended = 6,
            KeepGroups = 9,
            Launch = 10,
            StepAside = 11,
            SteppedAside = 12,
            SpawnEgress = 13,
            OpenNames = 14,
            NamesOpened = 15,
            Fork = 16,
            Activate = 17,
            Resume = 18,
            Seal = 19,
            Wake = 20,
            Survey = 21,
            Reset = 22,
            Preset = 23,
            SetPriority = 24,
            Prepared = 32,
            Rang = 33,
            Sealed = 34,
            Failed = 35,
            Used = 36,
            Parked = 37,
            Born = 38,
            Forked = 39,
        }
    };
}

macro_rules! kinds {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// What a packet holds.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout,
        )]
        #[repr(u32)]
        pub enum Kind {
            $(
                #[doc = concat!("[`", stringify!($name), "`].")]
                $name = $number,
            )*
        }

        impl Kind {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

each_message!(kinds);

/// A message of the interface.
pub trait Message: IntoBytes + TryFromBytes + Immutable + KnownLayout {
    /// Its kind.
    const KIND: Kind;
}

/// What begins every packet.
#[derive(Clone, Copy, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PacketHeader {
    /// [`MAGIC`]; its last byte is the version.
    pub magic: u32,
    /// What follows.
    pub kind: Kind,
}

macro_rules! message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type),* }

        impl Message for $name {
            const KIND: Kind = Kind::$name;
        }
    };
}

mod image;
mod spawning;

pub use image::*;
pub use spawning::*;

/// Yes or no, where messages have words only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Answer {
    /// No.
    No = 0,
    /// Yes.
    Yes = 1,
}

impl From<bool> for Answer {
    fn from(is_so: bool) -> Self {
        if is_so { Self::Yes } else { Self::No }
    }
}

impl Answer {
    /// Whether it is yes.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// What an instance is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Origin {
    /// The layer itself: writes go there. Only for making a seed.
    Shared = 1,
    /// The seed's layers: writes go to private copies.
    Private = 2,
    /// A sandbox that is an image of an ancestor of the seed, or of the seed itself
    /// ([`Preset`]); only what differs is done.
    Preset = 3,
}

message! {
    /// Node to sandbox: become an image of a seed, and run once, ahead of a [`Fork`] to one
    /// that descends from it: its write set is written, its read set read, by the guest,
    /// and everything brought back. Attached: the mailbox, which stays with the sandbox, and
    /// the layers, root first. The sandbox answers with [`Prepared`]. Only before a fork, once
    /// in a sandbox's life.
    Preset {
        /// The seed.
        image: Image,
    }
}

message! {
    /// Node to sandbox: become an instance of a seed. Attached: the mailbox unless the
    /// sandbox was preset, the compiled code if there is any, and the layers, root first; of
    /// those a sandbox that was preset is sent the ones that its image has not, or none if it
    /// was preset with the seed itself. Only once in a sandbox's life.
    Fork {
        /// Compiled code, in bytes; 0 for a guest without a function.
        code_bytes: u64,
        /// What the instance is made of.
        origin: Origin,
        /// The seed.
        image: Image,
        /// With [`Origin::Preset`], where the seed differs from what the sandbox was preset with,
        /// and its contents are to be copied to.
        filled: Ranges<FILLED_MAX>,
        /// With [`Origin::Preset`], where it differs otherwise: to be mapped as the image's
        /// windows say.
        mapped: Ranges<MAPPED_MAX>,
        /// Whether translations that the preset's page tables have are others in the
        /// seed's, and not only more: KVM and the CPU are to forget them.
        forgets_tables: Answer,
        /// Pages of the code, counted from its beginning, for which second-level tables are to be
        /// filled in advance.
        code_set: Ranges<SET_MAX>,
        /// Whether to answer with [`Forked`]: pages of its seed or of its code are not there yet.
        tells_addresses: Answer,
        /// Whether to map the code in small pages, whatever its file has: a survey is to tell which
        /// of them are used.
        has_small_code: Answer,
    }
}

message! {
    /// Node to sandbox: run, as this instance. The sandbox fills in entropy and the clocks
    /// of this moment.
    Activate {
        /// Number of the instance.
        instance: u64,
        /// Monotonic time that it continues from, in nanoseconds.
        monotonic_nanoseconds: u64,
        /// Wall time when the host's monotonic clock was zero, in nanoseconds since 1970.
        wall_epoch_nanoseconds: u64,
    }
}

message! {
    /// Node to sandbox: go on after a ring that it was told of.
    Resume {
        /// Nothing; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Node to sandbox: end the guest's wait, if it is in one. What it waits for
    /// is there, or was a moment ago; the guest looks for itself.
    Wake {
        /// Nothing; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Node to sandbox: say which pages the instance has used. Its guest must stand
    /// still.
    Survey {
        /// Nothing; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Node to sandbox: bring the instance back to its seed's state when it has rung
    /// that it is done, or now if it has. Only after everything was taken from its
    /// mailbox, which is wiped.
    Reset {
        /// Whether to count the unused pages of the write set, which takes longer.
        count_unused: Answer,
        /// Nanoseconds for which the guest is to look for its next request by itself then, before
        /// the vCPU leaves it ([`crate::control`]); 0 for none.
        poll_nanoseconds: u64,
        /// Wall time when the host's monotonic clock was zero, in nanoseconds since 1970, where it
        /// is to look.
        wall_epoch_nanoseconds: u64,
    }
}

message! {
    /// Node to sandbox: hand over the vCPU's state and end. Attached, when the instance
    /// is private: the file that its changed pages are to be written to, each at its
    /// own address.
    Seal {
        /// Nothing; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Sandbox to node, before anything else, from one that is new and has seen nothing of anybody:
    /// its page faults can be answered. Attached: what they are told by
    /// ([`Faults`](crate::userfault::Faults)), of which the sandbox keeps none. Not sent where the
    /// system does not tell.
    Born {
        /// Nothing; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Sandbox to node: it is an instance, whose memory nobody has touched but for the write set
    /// and what was copied. It goes on with [`Activate`].
    Forked {
        /// Where its RAM begins in its address space.
        ram: u64,
        /// Where its code does; 0 without any.
        code: u64,
    }
}

message! {
    /// Sandbox to node: a VM is ready to be forked into, or a [`Preset`] is done.
    Prepared {
        /// Time it took to make, in nanoseconds, from the sandbox's first instruction, or
        /// from the order.
        nanoseconds: u64,
        /// How much of it closing the jail took, in nanoseconds; 0 for a [`Preset`], and
        /// where there is no jail.
        jail_nanoseconds: u64,
        /// Time before that, from the beginning of the spawner's fork until the sandbox ran
        /// in its control group, in nanoseconds; 0 for a [`Preset`], and without a spawner.
        born_nanoseconds: u64,
    }
}

message! {
    /// Sandbox to node: the guest rang for something that the sandbox does not do itself.
    Rang {
        /// Value the guest wrote to the doorbell: any, since it is the guest's to make
        /// sense.
        doorbell: u64,
        /// Time that the last [`Fork`] took, in nanoseconds.
        fork_nanoseconds: u64,
        /// Time since the last [`Activate`], in nanoseconds.
        run_nanoseconds: u64,
        /// Exits from the VM to the sandbox since then.
        exits: u64,
        /// Page faults that KVM fixed for this vCPU in this request.
        page_faults: u64,
    }
}

message! {
    /// Sandbox to node: the pages that the instance has used, in order; where there are
    /// too many ranges, the nearest are joined.
    Used {
        /// Pages that it has made its own.
        written: Ranges<SET_MAX>,
        /// Those of them that differ from its seed, as far as `written` goes with
        /// [`SET_PAGES_MAX`](faasw_seedtree::limits::SET_PAGES_MAX) pages.
        changed: u64,
        /// Pages that it shares with its seed. The system maps a few more around
        /// each that is touched.
        read: Ranges<SET_MAX>,
        /// Pages of its code, counted from the beginning of that, with as many around them, or
        /// large ones where those are.
        code: Ranges<SET_MAX>,
    }
}

impl From<Used> for UsedPages {
    fn from(used: Used) -> Self {
        Self {
            written: used.written.told().to_vec(),
            changed: used.changed,
            read: used.read.told().to_vec(),
            code: used.code.told().to_vec(),
        }
    }
}

message! {
    /// Sandbox to node: the instance is as it was when it was forked, and waits for
    /// the next [`Activate`].
    Parked {
        /// Pages filled again from the seed.
        filled: u64,
        /// Private pages that were not in the write set.
        outside: u64,
        /// Whether `unused` was counted.
        counted: Answer,
        /// Private pages of the write set that were as the seed has them.
        unused: u64,
        /// Exits from the VM to the sandbox for the request.
        exits: u64,
        /// Page faults that KVM fixed for the request.
        page_faults: u64,
        /// Time it took, in nanoseconds.
        nanoseconds: u64,
        /// Nanoseconds for which its guest has looked for the next request in vain.
        polled_nanoseconds: u64,
        /// It does not wait: its guest looks for the next request from now on, which somebody
        /// wanted to be told ([`crate::control`]). It is told once more when that is over.
        is_offered: Answer,
    }
}

message! {
    /// Sandbox to node: the state at the freeze point, and what was written of memory.
    Sealed {
        /// What differs from the parent and was written to the new layer, in order.
        own: Ranges<OWN_MAX>,
        /// The state.
        state: VcpuState,
    }
}

message! {
    /// Sandbox to node: the VM cannot go on.
    Failed {
        /// What it was.
        failure: Failure,
        /// Error number or exit reason, by failure.
        detail: u64,
        /// Instruction pointer of the guest, where it has one.
        instruction: u64,
    }
}

/// What a sandbox found that it cannot go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Failure {
    /// Making the VM failed; detail: error number.
    Create = 1,
    /// Mapping or restoring the seed failed; detail: error number.
    Fork = 2,
    /// `KVM_RUN` failed; detail: error number.
    Run = 3,
    /// The guest left for a reason that no guest of ours has; detail: KVM exit reason.
    Exit = 4,
    /// The guest shut down (triple fault).
    Shutdown = 5,
    /// A message came that does not fit here; detail: its kind.
    Message = 6,
    /// Bringing an instance back failed; detail: error number.
    Reset = 7,
    /// The guest has written a page that no guest writes; detail: its address.
    Broken = 8,
    /// The guest has changed state that takes ring 0; detail: which.
    Changed = 9,
    /// Its jail could not be closed; detail: error number, instruction: the step.
    Jail = 10,
    /// Presetting failed; detail: error number.
    Preset = 11,
    /// What a seed is made of could not be taken over; detail: error number.
    Seal = 12,
    /// A guest that was to look for its next request did something else, or went on for too
    /// long; detail: what it rang for, or 0.
    Strayed = 13,
}

// Activation travels in parts; this pins that it still has those parts.
const _: () = assert!(
    size_of::<Activation>() == 80,
    "the activation changed: see whether Activate must change too"
);
