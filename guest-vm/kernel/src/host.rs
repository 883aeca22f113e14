//! The way out: the doorbell, the boot page and the mailbox as the guest sees them.
//!
//! Everything the host writes here may change while the guest does not look
//! (it is another instance after a fork), so all of it is read by volatile
//! loads, and only right after a ring.

use core::arch::asm;
use core::fmt::{self, Write as _};
use core::ptr;

use faasw_abi::boot::{Activation, BOOT_MAGIC, BootPage};
use faasw_abi::doorbell::{PORT, Ring};
use faasw_abi::mailbox::{self, Area, Header};
use faasw_abi::memory_map::{BOOT_PAGE, MAILBOX};
use faasw_abi::outcome::Outcome;

/// Rings the doorbell and goes on when the host lets the guest resume, perhaps
/// in another VM and at another time.
pub fn ring(why: Ring) {
    // SAFETY: an `out` changes no memory by itself. The host may have changed the
    // boot page and the mailbox meanwhile, which the absence of `nomem` declares.
    unsafe { asm!("out dx, eax", in("dx") PORT, in("eax") why as u32, options(nostack)) }
}

/// The boot page as it is now.
pub fn boot_page() -> BootPage {
    // SAFETY: the host maps the page here and has written it before the guest runs.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance::<BootPage>(BOOT_PAGE as usize)) }
}

/// Stops unless the host speaks this guest's language.
pub fn check_boot_page(page: &BootPage) {
    if page.magic != BOOT_MAGIC || page.abi_version != faasw_abi::ABI_VERSION {
        fatal(format_args!(
            "the host speaks version {} of the boundary, this guest {}",
            page.abi_version,
            faasw_abi::ABI_VERSION
        ));
    }
}

/// Takes what the host says of this instance and wipes it, so that its entropy
/// exists once.
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

/// The mailbox header as it is now.
pub fn header() -> Header {
    // SAFETY: the host maps the mailbox here; every bit pattern is a header.
    unsafe { ptr::read_volatile(header_pointer()) }
}

/// Replaces the mailbox header.
pub fn set_header(header: &Header) {
    // SAFETY: as for reading; the guest is the only one to write while it runs.
    unsafe { ptr::write_volatile(header_pointer(), *header) }
}

/// Changes the mailbox header.
pub fn update_header(change: impl FnOnce(&mut Header)) {
    let mut now = header();
    change(&mut now);
    set_header(&now);
}

/// Says how much log there is, and nothing else: this is done for every record.
pub fn set_log_len(length: u32) {
    // SAFETY: a field of the mapped header; the guest is the only one to write
    // while it runs.
    unsafe { ptr::write_volatile(ptr::addr_of_mut!((*header_pointer()).log_len), length) }
}

fn header_pointer() -> *mut Header {
    ptr::with_exposed_provenance_mut(MAILBOX as usize)
}

/// Copies `out.len()` bytes from an area of the mailbox; fewer when it is shorter.
pub fn read_area(area: Area, offset: usize, out: &mut [u8]) -> usize {
    let room = (area.size as usize).saturating_sub(offset);
    let count = out.len().min(room);
    let from = ptr::with_exposed_provenance::<u8>((MAILBOX + area.offset) as usize + offset);
    // SAFETY: offset + count lies within the area, the area within the mailbox,
    // and `out` is the guest's own memory.
    unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), count) };
    count
}

/// Copies `bytes` into an area of the mailbox; says whether they fit, and takes
/// nothing of them where they do not.
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

/// Writes text into the report area, cut to its size; returns how much there is.
pub fn write_report(text: fmt::Arguments<'_>) -> u32 {
    let mut report = Report { used: 0 };
    // Report never fails: it cuts.
    let _ = report.write_fmt(text);
    report.used as u32
}

/// Ends the guest, saying why. Allocates nothing.
pub fn fatal(why: fmt::Arguments<'_>) -> ! {
    let length = write_report(why);
    update_header(|header| {
        header.outcome = Outcome::GuestFailed as u32;
        header.report_len = length;
    });
    loop {
        ring(Ring::Fatal);
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
