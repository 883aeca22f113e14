//! Communication with the host: the doorbells, the boot page and the mailbox as the guest sees
//! them.
//!
//! Everything that the host writes here may change at any time; after a fork it belongs to another
//! instance. Words are read by volatile loads, so that the value that is checked is the value that
//! is used. Bytes are copied out once, as many as a previously read word announced, and only the
//! copy is parsed.

use alloc::vec;
use alloc::vec::Vec;
use core::arch::asm;
use core::fmt::{self, Write as _};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence, fence};

use faasw_abi::boot::{Activation, BOOT_MAGIC, BootPage};
use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::doorbell::{Doorbell, PORT, PROGRESS};
use faasw_abi::mailbox::{self, Area, GUEST_WORDS, GuestWords, HOST_WORDS, HostWords};
use faasw_abi::memory_map::{BOOT_PAGE, MAILBOX};
use faasw_abi::outcome::Outcome;
use faasw_abi::ring::RingBuffer;

/// Rings the doorbell and returns when the host resumes the guest, perhaps in another VM and at
/// another time.
pub fn ring(doorbell: Doorbell) {
    // SAFETY: an `out` changes no memory by itself. The host may have changed the
    // boot page and the mailbox meanwhile, which the absence of `nomem` declares.
    unsafe { asm!("out dx, eax", in("dx") PORT, in("eax") doorbell as u32, options(nostack)) }
}

/// Notifies the node that the mailbox changed, and continues.
pub fn ring_progress() {
    // SAFETY: as above; the host sees everything that was written before, since
    // an `out` waits for all stores.
    unsafe { asm!("out dx, eax", in("dx") PROGRESS, in("eax") 0, options(nostack)) }
}

/// Requests that the host populate memory that was never used before.
pub fn populate(start: u64, bytes: u64) {
    publish!(populate_start, start);
    publish!(populate_bytes, bytes);
    ring(Doorbell::Populate);
}

/// Returns the current boot page.
pub fn boot_page() -> BootPage {
    // SAFETY: the host maps the page here and has written it before the guest runs.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance::<BootPage>(BOOT_PAGE as usize)) }
}

/// Ends the guest unless the host has this guest's ABI version.
pub fn check_boot_page(page: &BootPage) {
    if page.magic != BOOT_MAGIC || page.abi_version != faasw_abi::ABI_VERSION {
        fatal(format_args!(
            "the host has ABI version {}, this guest {}",
            page.abi_version,
            faasw_abi::ABI_VERSION
        ));
    }
}

/// Takes the activation from the boot page and wipes it there, so that only one copy of its entropy
/// exists.
pub fn take_activation() -> Activation {
    let page = ptr::with_exposed_provenance_mut::<BootPage>(BOOT_PAGE as usize);
    // SAFETY: the boot page is mapped writable and nothing else refers to it.
    unsafe {
        let activation = ptr::addr_of_mut!((*page).activation);
        let taken = ptr::read_volatile(activation);
        ptr::write_volatile(activation, Activation::default());
        taken
    }
}

/// A counter that the host writes.
#[derive(Clone, Copy)]
pub enum HostWord {
    /// [`ChannelWords::written`].
    Written(Channel),
    /// [`ChannelWords::read`].
    Read(Channel),
    /// [`HostWords::log_read`].
    LogRead,
    /// [`HostWords::commands_written`].
    CommandsWritten,
}

/// Returns the current value of a counter of the host. The host writes it by `pwrite`. Systems copy
/// words of eight bytes at once but do not promise it, so the counter is read until two loads
/// agree. That makes a half-written value unlikely, not impossible. A counter that cannot be true
/// counts as no new bytes ([`faasw_abi::ring::used`]). A wrong counter that could be true harms
/// this guest's own request only.
pub fn host_counter(word: HostWord) -> u64 {
    let words = host_words();
    // SAFETY: fields of the mapped host words.
    let at = unsafe {
        match word {
            HostWord::Written(channel) => ptr::addr_of!((*host_words_of(channel)).written),
            HostWord::Read(channel) => ptr::addr_of!((*host_words_of(channel)).read),
            HostWord::LogRead => ptr::addr_of!((*words).log_read),
            HostWord::CommandsWritten => ptr::addr_of!((*words).commands_written),
        }
    };
    // SAFETY: in bounds and aligned; every bit pattern is a number.
    let read = || unsafe { ptr::read_volatile(at) };
    let mut value = read();
    loop {
        let again = read();
        if again == value {
            // Fences, so that the bytes that the counter announces are copied after it was read.
            compiler_fence(Ordering::Acquire);
            return value;
        }
        value = again;
    }
}

/// Reads a word that the host writes once, or that has one of a few values.
macro_rules! read_host_word {
    ($field:ident) => {{
        let words = $crate::host::host_words();
        // SAFETY: the host maps the mailbox here; every bit pattern is a number.
        unsafe { core::ptr::read_volatile(core::ptr::addr_of!((*words).$field)) }
    }};
}
pub(crate) use read_host_word;

/// Returns the host's words of a channel. Its counters may be in the middle of a change, see
/// [`host_counter`].
pub fn host_channel_words(channel: Channel) -> ChannelWords {
    // SAFETY: the host maps the mailbox here; every bit pattern is valid.
    unsafe { ptr::read_volatile(host_words_of(channel)) }
}

/// Returns whether the host wants a notification of flushed bytes. A host that sets this word after
/// the read sees everything that was published before.
pub fn is_listening() -> bool {
    fence(Ordering::SeqCst);
    read_host_word!(listening) != 0
}

/// Changes one of the guest's words. A reader that sees the new value also sees everything that was
/// written to the mailbox before, because stores become visible in their order.
macro_rules! publish {
    ($field:ident, $value:expr) => {{
        let words = $crate::host::guest_words();
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::Release);
        // SAFETY: a field of the mapped guest words, which only the guest writes.
        unsafe { core::ptr::write_volatile(core::ptr::addr_of_mut!((*words).$field), $value) }
    }};
}
pub(crate) use publish;

/// Changes one of the guest's words of a channel, in the same way as `publish`.
macro_rules! publish_of {
    ($channel:expr, $field:ident, $value:expr) => {{
        let words = $crate::host::guest_words_of($channel);
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::Release);
        // SAFETY: a field of the mapped guest words, which only the guest writes.
        unsafe { core::ptr::write_volatile(core::ptr::addr_of_mut!((*words).$field), $value) }
    }};
}
pub(crate) use publish_of;

/// Returns the address of the guest's words.
pub fn guest_words() -> *mut GuestWords {
    ptr::with_exposed_provenance_mut((MAILBOX + GUEST_WORDS.offset) as usize)
}

/// Returns the address of the guest's words of a channel.
pub fn guest_words_of(channel: Channel) -> *mut ChannelWords {
    let words = GUEST_WORDS.offset as usize + offset_of!(GuestWords, channels);
    ptr::with_exposed_provenance_mut(MAILBOX as usize + words + within(channel))
}

/// Returns the address of the host's words.
pub fn host_words() -> *const HostWords {
    ptr::with_exposed_provenance((MAILBOX + HOST_WORDS.offset) as usize)
}

fn host_words_of(channel: Channel) -> *const ChannelWords {
    let words = HOST_WORDS.offset as usize + offset_of!(HostWords, channels);
    ptr::with_exposed_provenance(MAILBOX as usize + words + within(channel))
}

/// Returns the offset of a channel's words in the table of all channels.
fn within(channel: Channel) -> usize {
    channel.number() * size_of::<ChannelWords>()
}

/// Copies `out.len()` bytes out of a ring, from byte number `at` on.
pub fn read_ring(ring: RingBuffer, at: u64, out: &mut [u8]) {
    let mut rest = out;
    for piece in ring.pieces(at, rest.len()) {
        let (now, later) = rest.split_at_mut(piece.length.min(rest.len()));
        let from = ptr::with_exposed_provenance::<u8>((MAILBOX + piece.offset) as usize);
        // SAFETY: a piece lies within its ring, the ring within the mailbox.
        unsafe { ptr::copy_nonoverlapping(from, now.as_mut_ptr(), now.len()) };
        rest = later;
    }
}

/// Copies `bytes` into a ring, from byte number `at` on. The caller must ensure that there is space
/// for them.
pub fn write_ring(ring: RingBuffer, at: u64, bytes: &[u8]) {
    let mut rest = bytes;
    for piece in ring.pieces(at, rest.len()) {
        let (now, later) = rest.split_at(piece.length.min(rest.len()));
        let to = ptr::with_exposed_provenance_mut::<u8>((MAILBOX + piece.offset) as usize);
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(now.as_ptr(), to, now.len()) };
        rest = later;
    }
}

/// Returns a copy of `length` bytes of an area of the mailbox; fewer if the area is shorter.
pub fn take_area(area: Area, offset: usize, length: usize) -> Vec<u8> {
    let room = (area.size as usize).saturating_sub(offset);
    let mut bytes = vec![0; length.min(room)];
    let from = ptr::with_exposed_provenance::<u8>((MAILBOX + area.offset) as usize + offset);
    // SAFETY: the offset and the length lie within the area, the area within the mailbox, and
    // `bytes` is the guest's own memory.
    unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// Copies `bytes` into an area of the mailbox. Returns whether they fit; if they do not, nothing is
/// copied.
pub fn write_area(area: Area, offset: usize, bytes: &[u8]) -> bool {
    let room = (area.size as usize).saturating_sub(offset);
    if bytes.len() > room {
        return false;
    }
    let to = ptr::with_exposed_provenance_mut::<u8>((MAILBOX + area.offset) as usize + offset);
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    true
}

/// Writes text into the report area, cut to its size, and returns its length.
pub fn write_report(text: fmt::Arguments<'_>) -> u32 {
    let mut report = Report { used: 0 };
    // `Report` never fails: it cuts the text.
    let _ = report.write_fmt(text);
    report.used as u32
}

/// Ends the guest with a report of the reason. Allocates nothing.
pub fn fatal(why: fmt::Arguments<'_>) -> ! {
    let length = write_report(why);
    publish!(report_len, length);
    publish!(outcome, Outcome::GuestFailed as u32);
    loop {
        ring(Doorbell::Fatal);
    }
}

struct Report {
    used: usize,
}

impl fmt::Write for Report {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (mailbox::REPORT.size as usize).saturating_sub(self.used);
        let cut = text.floor_char_boundary(room);
        if let Some(text) = text.get(..cut)
            && write_area(mailbox::REPORT, self.used, text.as_bytes())
        {
            self.used += cut;
        }
        Ok(())
    }
}
