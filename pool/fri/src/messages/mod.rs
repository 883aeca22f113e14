//! The messages, each of a fixed size.

use faasw_abi::boot::Activation;
use faasw_abi::pages::Ranges;
use faasw_seedtree::UsedPages;
use faasw_seedtree::limits::{FILLED_MAX, MAPPED_MAX, OWN_MAX, SET_MAX};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// First word of every packet.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FRI\x07");

/// Applies a macro to all messages: `$does` is a macro that takes `Name = number, …`. `Name` is the
/// name of a message and of its [`Kind`], and `number` identifies it in a packet. So code that
/// handles all messages cannot omit one.
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
            SetBackgroundGroup = 11,
            BackgroundGroupReport = 12,
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
            Specialise = 23,
            SetPriority = 24,
            Prepared = 32,
            Rang = 33,
            Sealed = 34,
            Failed = 35,
            Used = 36,
            WarmReport = 37,
            SandboxStarted = 38,
            Forked = 39,
        }
    };
}

macro_rules! kinds {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// The kind of message that a packet holds.
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
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

each_message!(kinds);

/// A message of the interface.
pub trait Message: IntoBytes + TryFromBytes + Immutable + KnownLayout {
    /// The message's kind.
    const KIND: Kind;
}

/// The header of every packet.
#[derive(Clone, Copy, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PacketHeader {
    /// [`MAGIC`]; its last byte is the version.
    pub magic: u32,
    /// The kind of the message that follows.
    pub kind: Kind,
}

macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty),* $(,)? }
    ) => {
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

/// A boolean in a message, whose fields are all words.
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
    /// Whether the answer is yes.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// The memory of which an instance is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Origin {
    /// The layer itself: writes go there. Only for making a seed.
    Shared = 1,
    /// The seed's layers: writes go to private copies.
    Private = 2,
    /// A sandbox that is an image of the seed, or of an ancestor of it ([`Specialise`]); only the
    /// differences are applied.
    Zygote = 3,
}

message! {
    /// Node to sandbox: become an image of a seed, ahead of a [`Fork`] to a descendant of it. The
    /// guest runs once: it writes the write set and reads the read set, and then the sandbox is
    /// reset. Attached: the mailbox, which stays with the sandbox, and the layers, root first. The
    /// sandbox replies with [`Prepared`]. Only before a fork, once in a sandbox's life.
    Specialise {
        /// The seed.
        image: Image,
    }
}

message! {
    /// Node to sandbox: become an instance of a seed. Attached: the mailbox unless the sandbox was
    /// specialised, the compiled code if there is any, and the layers, root first. A sandbox that
    /// was specialised receives only the layers that its image lacks, or none if it was specialised
    /// for the seed itself. Only once in a sandbox's life.
    Fork {
        /// Compiled code, in bytes; 0 for a guest without a function.
        code_bytes: u64,
        /// The memory of which the instance is made.
        origin: Origin,
        /// The seed.
        image: Image,
        /// With [`Origin::Zygote`], pages in which the seed differs from the zygote's image, and to
        /// which its contents are copied.
        filled: Ranges<FILLED_MAX>,
        /// With [`Origin::Zygote`], other pages that differ: they are mapped as the image's windows
        /// say.
        mapped: Ranges<MAPPED_MAX>,
        /// Whether translations in the zygote's page tables have changed or disappeared in
        /// the seed's, so that KVM and the CPU must forget them. Additional translations do not
        /// count.
        forgets_tables: Answer,
        /// Pages of the code, counted from its beginning, for which second-level tables are filled
        /// in advance.
        code_set: Ranges<SET_MAX>,
        /// Whether to reply with [`Forked`], because pages of its seed or of its code are still
        /// missing.
        reports_addresses: Answer,
        /// Whether to map the code in small pages, whatever its file has, so that a survey shows
        /// which of them are used.
        has_small_code: Answer,
    }
}

message! {
    /// Node to sandbox: run as this instance. The sandbox adds entropy and the current clocks.
    Activate {
        /// Number of the instance.
        instance: u64,
        /// Monotonic time from which the instance continues, in nanoseconds.
        monotonic_nanoseconds: u64,
        /// Wall time when the host's monotonic clock was zero, in nanoseconds since 1970.
        wall_epoch_nanoseconds: u64,
    }
}

message! {
    /// Node to sandbox: continue after a ring that the sandbox reported.
    Resume {
        /// Unused; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Node to sandbox: end the guest's wait, if it is in one. The event that the guest waits for
    /// has occurred, but may be over again; the guest checks for it itself.
    Wake {
        /// Unused; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Node to sandbox: report which pages the instance has used. Its guest must be stopped.
    Survey {
        /// Unused; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Node to sandbox: reset the instance to its seed's state as soon as it has rung that it is
    /// done, or now if it has. The node must have read everything that it needs from the mailbox,
    /// which is wiped.
    Reset {
        /// Whether to count the unused pages of the write set, which takes longer.
        count_unused: Answer,
        /// Nanoseconds for which the guest polls for its next request afterwards, before the vCPU
        /// leaves it ([`crate::control`]); 0 for no polling.
        poll_nanoseconds: u64,
        /// Wall time when the host's monotonic clock was zero, in nanoseconds since 1970, for a
        /// guest that polls.
        wall_epoch_nanoseconds: u64,
    }
}

message! {
    /// Node to sandbox: send the vCPU's state and end. Attached, if the instance is private: the
    /// file to which its changed pages are written, each at its own address.
    Seal {
        /// Unused; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Sandbox to node, before all other messages, from a new sandbox that has received no tenant's
    /// data: the node can serve its page faults. Attached: the descriptor that reports them
    /// ([`Faults`](crate::userfault::Faults)), of which the sandbox keeps no copy. Not sent if the
    /// host does not support that.
    SandboxStarted {
        /// Unused; a message has a body.
        reserved: u64,
    }
}

message! {
    /// Sandbox to node: it is an instance. Its memory has not been accessed, except for the write
    /// set and pages that were copied. It continues with [`Activate`].
    Forked {
        /// The start of its RAM in its address space.
        ram: u64,
        /// The start of its code in its address space; 0 without code.
        code: u64,
    }
}

message! {
    /// Sandbox to node: a VM is ready to be forked into, or a [`Specialise`] is done.
    Prepared {
        /// Time that this took, in nanoseconds, from the sandbox's first instruction, or from the
        /// order.
        nanoseconds: u64,
        /// The part of it for closing the jail, in nanoseconds; 0 for a [`Specialise`], and without
        /// a jail.
        jail_nanoseconds: u64,
        /// Time before that, from the beginning of the spawner's fork until the sandbox ran in its
        /// control group, in nanoseconds; 0 for a [`Specialise`], and without a spawner.
        born_nanoseconds: u64,
    }
}

message! {
    /// Sandbox to node: the guest rang for an operation that the sandbox does not carry out itself.
    Rang {
        /// The value that the guest wrote to the doorbell. It may be any value: the guest is not
        /// trusted.
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
    /// Sandbox to node: the pages that the instance has used, in order. If there are too many
    /// ranges, the nearest ones are joined.
    Used {
        /// Pages that are private to the instance.
        written: Ranges<SET_MAX>,
        /// The number of them that differ from its seed, among the first
        /// [`SET_PAGES_MAX`](faasw_seedtree::limits::SET_PAGES_MAX) pages of `written`.
        changed: u64,
        /// Pages that it shares with its seed. The kernel maps a few more around each page that is
        /// accessed.
        read: Ranges<SET_MAX>,
        /// Pages of its code, counted from the beginning of the code. They include a few more
        /// around each page that is accessed, like `read`, or whole large pages if the code has
        /// those.
        code: Ranges<SET_MAX>,
    }
}

impl From<Used> for UsedPages {
    fn from(used: Used) -> Self {
        Self {
            written: used.written.as_slice().to_vec(),
            changed: used.changed,
            read: used.read.as_slice().to_vec(),
            code: used.code.as_slice().to_vec(),
        }
    }
}

message! {
    /// Sandbox to node: the instance is in the state in which it was forked, and waits for the next
    /// [`Activate`].
    WarmReport {
        /// Pages filled again from the seed.
        filled: u64,
        /// Private pages that were not in the write set.
        outside: u64,
        /// Whether `unused` was counted.
        counted: Answer,
        /// Private pages of the write set whose contents equal the seed's.
        unused: u64,
        /// Exits from the VM to the sandbox for the request.
        exits: u64,
        /// Page faults that KVM fixed for the request.
        page_faults: u64,
        /// Time that the reset took, in nanoseconds.
        nanoseconds: u64,
        /// Nanoseconds for which its guest has polled for the next request in vain.
        polled_nanoseconds: u64,
        /// The instance does not wait: its guest polls for the next request from now on, and the
        /// node had asked for this message ([`crate::control`]). If the polling ends without a
        /// request, another message follows.
        is_offered: Answer,
    }
}

message! {
    /// Sandbox to node: the state at the freeze point, and the memory that was written.
    Sealed {
        /// Pages that differ from the parent and were written to the new layer, in order.
        own: Ranges<OWN_MAX>,
        /// The vCPU's state.
        state: VcpuState,
    }
}

message! {
    /// Sandbox to node: the VM cannot continue.
    Failed {
        /// The kind of failure.
        failure: Failure,
        /// Error number or exit reason, depending on the failure.
        detail: u64,
        /// Instruction pointer of the guest, if there is one.
        instruction: u64,
    }
}

/// Why a sandbox cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Failure {
    /// Making the VM failed; detail: error number.
    Create = 1,
    /// Mapping or restoring the seed failed; detail: error number.
    Fork = 2,
    /// Running or saving the vCPU failed, or a system call for it; detail: error number.
    Run = 3,
    /// The guest left for a reason for which no guest of ours leaves; detail: KVM exit reason.
    Exit = 4,
    /// The guest shut down (triple fault).
    Shutdown = 5,
    /// A message came that is not allowed in this state; detail: its kind.
    Message = 6,
    /// Resetting an instance failed; detail: error number.
    Reset = 7,
    /// The guest has written a page that no guest writes, or a page is private although the counts
    /// of page faults exclude it; detail: its address.
    Broken = 8,
    /// The guest has changed state that only ring 0 can change; detail: which part.
    Changed = 9,
    /// The sandbox's jail could not be closed; detail: error number, instruction: the step.
    Jail = 10,
    /// Specialising failed; detail: error number.
    Specialise = 11,
    /// Writing the pages of a seed failed; detail: error number.
    Seal = 12,
    /// A guest that was polling for its next request did something else, or polled for too long;
    /// detail: the value that it rang with, or 0.
    Strayed = 13,
}

// `Activate` carries parts of the activation; this notices a change of its size.
const _: () = assert!(
    size_of::<Activation>() == 80,
    "the activation changed: see whether Activate must change too"
);
