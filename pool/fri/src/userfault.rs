//! Page faults of one process that another one answers (userfaultfd(2)).
//!
//! A sandbox makes [`Faults`] of its own memory when it is born, hands them to the node and keeps
//! none: whoever has them can have a process wait in the middle of a system call, which is not
//! for what may be under attack. The device gives them ([`Device`]) also where the system call
//! does not, in a user namespace, and they tell of what the kernel touches in the process's name:
//! a guest's memory is touched by KVM.
//!
//! What happens when the last descriptor of [`Faults`] is closed is no error to anybody: pages
//! that are not there read as zeroes. Whoever lets go of them while something of theirs is
//! registered has to have ended the process.
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

/// Addresses of a process: where they begin, and how many bytes; both multiples of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Addresses {
    /// The first.
    pub start: u64,
    /// How many.
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

/// What whoever has [`Faults`] calls the system by, for its filter.
pub const CALLS: [Opcode; 4] = [REGISTER, UNREGISTER, WAKE, ZEROPAGE];

/// `USERFAULTFD_IOC_NEW`, whose argument are flags, and whose result is a descriptor.
struct New(OFlags);

// SAFETY: the call takes a number, and gives a new descriptor that nobody else owns.
unsafe impl Ioctl for New {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NEW
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.bits() as usize)
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: what the call gave.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// What gives [`Faults`]: `/dev/userfaultfd` (Linux 6.1).
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
    /// Opens it.
    ///
    /// # Errors
    /// The system's: where there is none, or it is not for this user.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::open("/dev/userfaultfd", flags, Mode::empty()).map(Self)
    }

    /// Those of the process that calls. Nothing is registered.
    ///
    /// # Errors
    /// The system's.
    pub fn faults(&self) -> Result<Faults, Errno> {
        // SAFETY: the call that `New` is.
        let made = unsafe { ioctl(&self.0, New(OFlags::CLOEXEC | OFlags::NONBLOCK)) }?;
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

/// Page faults of one process.
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
    /// From now on whoever touches a page there that is not in memory waits until it is woken, and
    /// looks again.
    ///
    /// # Errors
    /// The system's, where nothing is mapped or it is of another kind.
    pub fn register(&self, range: Addresses) -> Result<(), Errno> {
        let mut register = Register {
            range,
            mode: REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        // SAFETY: as above; it changes what the process's touching a page means, not what is in
        // memory.
        unsafe { ioctl(&self.0, Updater::<REGISTER, _>::new(&mut register)) }
    }

    /// Nobody waits there any more, and whoever does goes on.
    ///
    /// # Errors
    /// The system's.
    pub fn unregister(&self, mut range: Addresses) -> Result<(), Errno> {
        // SAFETY: the call reads one structure of this type.
        unsafe { ioctl(&self.0, Updater::<UNREGISTER, _>::new(&mut range)) }
    }

    /// Whoever waits there looks again.
    ///
    /// # Errors
    /// The system's.
    pub fn wake(&self, mut range: Addresses) -> Result<(), Errno> {
        // SAFETY: the call reads one structure of this type.
        unsafe { ioctl(&self.0, Updater::<WAKE, _>::new(&mut range)) }
    }

    /// Pages there are zeroes, and whoever waits for them goes on. Nothing is done where there is
    /// a page already.
    ///
    /// # Errors
    /// The system's.
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
                // What is mapped there is just being changed.
                Err(Errno::AGAIN) => {}
                zeroed => return zeroed,
            }
        }
    }

    /// The address of a page that somebody waits for, if there is one that was not told yet.
    ///
    /// # Errors
    /// The system's.
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

    /// Where there is no device, which is said.
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
    fn whoever_touches_a_page_waits_until_it_is_there() {
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
        // What was written before was there.
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
