//! The boot page: the host's description of the machine and the instance, for the guest.
//!
//! The first half is written once, when the guest boots, and is frozen with the seed. The second
//! half ([`Activation`]) is written anew before each resume. The guest reads it before anything
//! else and then wipes the entropy.

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
    /// Bytes of RAM from guest-physical 0 that exist at boot. A function may have more, see
    /// [`crate::command::Command::Grow`].
    pub ram_bytes: u64,
    /// The identity, entropy and clocks of this instance; see [`Activation`].
    pub activation: Activation,
}

/// The part of the boot page that is new for every instance.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Activation {
    /// 0 while the seed is being made, then a number that no other instance has.
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
    /// Not 0 if no request exists yet: the number of ticks of the time-stamp counter for which the
    /// guest polls [`crate::mailbox::HostWords::go`]. The guest's monotonic time begins to run when
    /// that word is set. If the ticks pass without it, the guest rings
    /// [`crate::doorbell::Doorbell::Unasked`] and continues to poll. The wall time is current in
    /// both cases.
    pub poll_ticks: u64,
}

const _: () = assert!(
    size_of::<BootPage>() == 104,
    "the boot page changed: raise ABI_VERSION"
);
