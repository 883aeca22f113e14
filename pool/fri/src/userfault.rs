//! Page faults of one process that another process serves (userfaultfd(2)).
//!
//! A sandbox creates [`Faults`] for its own memory when it is born, sends them to the node and
//! keeps no copy. The holder can make a process wait within a system call, which must not be
//! possible for a process that may be under attack. The device ([`Device`]) creates them even in a
//! user namespace, where the system call does not. They also report accesses by the kernel on the
//! process's behalf, which matters because KVM accesses a guest's memory.
//!
//! If the last descriptor of [`Faults`] is closed, no process gets an error: missing pages then
//! read as zeroes. A holder that closes them while one of their ranges is registered must have
//! ended the process before.
#![expect(unsafe_code, reason = "calls that no library makes")]

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, ioctl, opcode};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

// linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const GROUP: u8 = 0xaa;
const EVENT_PAGEFAULT: u8 = 0x12;
const REGISTER_MODE_MISSING: u64 = 1;

#[derive(Clone, Copy)]
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// A range of a process's addresses. Start and size must be multiples of the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Addresses {
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub bytes: u64,
}

#[repr(C)]
struct Register {
    range: Addresses,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct ZeroPage {
    range: Addresses,
    mode: u64,
    zeroed: i64,
}

/// `struct uffd_msg`, of a page fault.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Event {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const _: () = assert!(size_of::<Event>() == 32);

const NEW: Opcode = opcode::none(GROUP, 0x00);
const API: Opcode = opcode::read_write::<Api>(GROUP, 0x3f);
const REGISTER: Opcode = opcode::read_write::<Register>(GROUP, 0x00);
const UNREGISTER: Opcode = opcode::read::<Addresses>(GROUP, 0x01);
const WAKE: Opcode = opcode::read::<Addresses>(GROUP, 0x02);
const ZEROPAGE: Opcode = opcode::read_write::<ZeroPage>(GROUP, 0x04);

/// The ioctls that a holder of [`Faults`] makes, for its system-call filter.
pub const CALLS: [Opcode; 4] = [REGISTER, UNREGISTER, WAKE, ZEROPAGE];

/// `USERFAULTFD_IOC_NEW`, whose argument is a set of flags, and whose result is a descriptor.
struct CreateDescriptor(OFlags);

// SAFETY: the call takes a number, and returns a new descriptor that has no other owner.
unsafe impl Ioctl for CreateDescriptor {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NEW
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.bits() as usize)
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the descriptor that the call has returned.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// The device that creates [`Faults`]: `/dev/userfaultfd` (Linux 6.1).
#[derive(Debug)]
pub struct Device(OwnedFd);

impl From<OwnedFd> for Device {
    fn from(device: OwnedFd) -> Self {
        Self(device)
    }
}

impl From<Device> for OwnedFd {
    fn from(device: Device) -> Self {
        device.0
    }
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// Returns an error if there is no device, or this user may not open it.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open("/dev/userfaultfd", flags, Mode::empty()).map(Self)
    }

    /// Creates a descriptor for the page faults of the calling process. No range is registered yet.
    ///
    /// # Errors
    /// Returns the error of the ioctls.
    pub fn faults(&self) -> Result<Faults, Errno> {
        // SAFETY: `CreateDescriptor` describes this call.
        let made = unsafe {
            ioctl(
                &self.0,
                CreateDescriptor(OFlags::CLOEXEC | OFlags::NONBLOCK),
            )
        }?;
        let mut api = Api {
            api: UFFD_API,
            features: 0,
            ioctls: 0,
        };
        // SAFETY: the call reads and writes one structure of this type.
        unsafe { ioctl(&made, Updater::<API, _>::new(&mut api)) }?;
        Ok(Faults(made))
    }
}

/// A descriptor for the page faults of one process.
#[derive(Debug)]
pub struct Faults(OwnedFd);

impl From<OwnedFd> for Faults {
    fn from(faults: OwnedFd) -> Self {
        Self(faults)
    }
}

impl AsFd for Faults {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Faults {
    /// Registers a range: from now on, a thread that accesses a page there that is not in memory
    /// waits until it is woken, and then retries.
    ///
    /// # Errors
    /// Returns an error if nothing is mapped there, or memory of a kind that cannot be registered.
    pub fn register(&self, range: Addresses) -> Result<(), Errno> {
        let mut register = Register {
            range,
            mode: REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        // SAFETY: as above; it changes the effect of the process's page faults, not the contents of
        // memory.
        unsafe { ioctl(&self.0, Updater::<REGISTER, _>::new(&mut register)) }
    }

    /// Unregisters a range: threads no longer wait there, and those that do continue.
    ///
    /// # Errors
    /// Returns the error of the ioctl.
    pub fn unregister(&self, mut range: Addresses) -> Result<(), Errno> {
        // SAFETY: the call reads one structure of this type.
        unsafe { ioctl(&self.0, Updater::<UNREGISTER, _>::new(&mut range)) }
    }

    /// Wakes the threads that wait for a range; they retry their access.
    ///
    /// # Errors
    /// Returns the error of the ioctl.
    pub fn wake(&self, mut range: Addresses) -> Result<(), Errno> {
        // SAFETY: the call reads one structure of this type.
        unsafe { ioctl(&self.0, Updater::<WAKE, _>::new(&mut range)) }
    }

    /// Maps pages of zeroes to a range, and wakes the threads that wait for them. If a page is
    /// there already, it is left alone.
    ///
    /// # Errors
    /// Returns the error of the ioctl.
    pub fn zero(&self, range: Addresses) -> Result<(), Errno> {
        loop {
            let mut zero = ZeroPage {
                range,
                mode: 0,
                zeroed: 0,
            };
            // SAFETY: the call reads and writes one structure of this type; pages that are there
            // are left alone.
            match unsafe { ioctl(&self.0, Updater::<ZEROPAGE, _>::new(&mut zero)) } {
                Err(Errno::EXIST) => return self.wake(range),
                // The mapping is being changed at this moment.
                Err(Errno::AGAIN) => {}
                zeroed => return zeroed,
            }
        }
    }

    /// Returns the address of the next page that a thread waits for; `None` if there is no new one.
    ///
    /// # Errors
    /// Returns the error of reading the descriptor.
    pub fn next(&self) -> Result<Option<u64>, Errno> {
        loop {
            let mut event = Event::new_zeroed();
            match rustix::io::read(&self.0, event.as_mut_bytes()) {
                Ok(length) if length == size_of::<Event>() => {
                    if event.event == EVENT_PAGEFAULT {
                        return Ok(Some(event.address));
                    }
                }
                Ok(_) => return Err(Errno::IO),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `None`, with a message, if the device cannot be opened.
    fn faults() -> Option<Faults> {
        match Device::open() {
            Ok(device) => Some(device.faults().unwrap()),
            Err(errno) => {
                eprintln!("NOT TESTED: /dev/userfaultfd cannot be opened: {errno}");
                None
            }
        }
    }

    #[test]
    fn a_page_access_waits_until_the_page_is_filled() {
        const PAGE: u64 = 4096;
        let Some(faults) = faults() else { return };
        let file = faasw_seedtree::memory_file("faults").unwrap();
        rustix::fs::ftruncate(&file, 3 * PAGE).unwrap();
        // SAFETY: a new mapping.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                3 * PAGE as usize,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE,
                &file,
                0,
            )
        }
        .unwrap();
        let address = start.addr() as u64;
        let page = |number: u64| Addresses {
            start: address + number * PAGE,
            bytes: PAGE,
        };
        let all = Addresses {
            start: address,
            bytes: 3 * PAGE,
        };
        faults.register(all).unwrap();
        assert_eq!(faults.next(), Ok(None));
        rustix::io::pwrite(&file, &[7; PAGE as usize], 0).unwrap();
        let readers: Vec<_> = (0..3)
            .map(|number| {
                let at = address + number * PAGE;
                std::thread::spawn(move || {
                    let at = std::ptr::with_exposed_provenance::<u8>(at as usize);
                    // SAFETY: mapped as long as this test runs.
                    unsafe { at.read_volatile() }
                })
            })
            .collect();
        let mut waiting = Vec::new();
        while waiting.len() < 2 {
            let mut polled = [rustix::event::PollFd::new(
                &faults,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut polled, None).unwrap();
            waiting.extend(faults.next().unwrap());
        }
        waiting.sort_unstable();
        // The page that was written before is present.
        assert_eq!(waiting, [address + PAGE, address + 2 * PAGE]);
        rustix::io::pwrite(&file, &[8; PAGE as usize], PAGE).unwrap();
        faults.wake(page(1)).unwrap();
        faults.zero(page(2)).unwrap();
        let read: Vec<u8> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect();
        assert_eq!(read, [7, 8, 0]);
        faults.unregister(all).unwrap();
    }
}
