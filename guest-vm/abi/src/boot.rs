//! The boot page: what the host tells the guest about itself.
//!
//! The first half is written once, when the guest boots, and frozen with the
//! seed. The second half ([`Activation`]) is written anew before each resume;
//! the guest reads it before anything else and wipes the entropy.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First word of every boot page.
pub const BOOT_MAGIC: u64 = u64::from_le_bytes(*b"faasw-bp");

/// [`BootPage::flags`]: page-table entries may carry the no-execute bit.
pub const FLAG_NX: u32 = 1;

/// The boot page, at [`crate::memory_map::BOOT_PAGE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BootPage {
    /// [`BOOT_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`] of the host.
    pub abi_version: u32,
    /// `FLAG_*`.
    pub flags: u32,
    /// RAM from guest-physical 0 that there is at boot, in bytes. A function may
    /// have more, see [`crate::command::Command::Grow`].
    pub ram_bytes: u64,
    /// What this instance is; see [`Activation`].
    pub activation: Activation,
}

/// The part of the boot page that is new for every instance.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Activation {
    /// 0 while the seed is being made, then unlike any other instance's number.
    pub instance: u64,
    /// Fresh from the host's generator; the guest derives all randomness from it.
    pub entropy: [u8; 32],
    /// Wall time at activation, whole seconds since 1970.
    pub wall_seconds: u64,
    /// Wall time at activation, nanoseconds of the second.
    pub wall_nanoseconds: u64,
    /// Monotonic time at activation in nanoseconds: the value at the freeze, or 0.
    pub monotonic_nanoseconds: u64,
    /// Ticks of the time-stamp counter per millisecond.
    pub tsc_khz: u64,
    /// Not 0 where there is no request yet: for so many ticks of the time-stamp counter the guest
    /// looks for [`crate::mailbox::HostWords::go`], with which its monotonic time begins to
    /// run; without it rings [`crate::doorbell::Doorbell::Unasked`], and looks on. The wall time is
    /// that of now all the same.
    pub poll_ticks: u64,
}

const _: () = assert!(
    size_of::<BootPage>() == 104,
    "the boot page changed: raise ABI_VERSION"
);
