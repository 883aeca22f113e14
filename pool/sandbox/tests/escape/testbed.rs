//! The process that makes a jail and runs an attack in it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::pages::PageRange;
use faasw_fri::{FriError, receive_from_untrusted};
use faasw_jail::filter::rule;
use faasw_jail::{ForkSide, dup_to_high_fd};
use faasw_sandbox::spawner::resources::JailResources;
use faasw_sandbox::{process::jail, sandbox};
use faasw_seedtree::LayerBuilder;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::RecvFlags;
use rustix::process::{Pid, WaitOptions};

use crate::attacks::attacks;
use crate::escape::{attack::Scene, outcome::Outcome, suite::Order};

/// All numbers of system calls, and some more.
const CALLS: std::ops::Range<libc::c_long> = 0..600;

/// Makes two jails, runs the attack in one of them, and prints how it ended.
pub fn run(order: &Order) -> ! {
    let mut attacks = attacks().into_iter();
    let attack = attacks.find(|known| known.name == order.attack).unwrap();
    // Low numbers are for jails, like in the spawner.
    let maker = JailResources::prepare(order.level, |host| {
        if order.is_filtered {
            jail::all_rules(host)
        } else {
            CALLS.map(|call| rule("anything", call, &[])).collect()
        }
    })
    .unwrap();
    let (sibling, _sibling_socket) = inmate(&maker, 1, |_| {
        loop {
            std::thread::park();
        }
    });
    let (pid, socket) = inmate(&maker, 2, |_| {
        let scene = Scene {
            sibling: sibling.as_raw_nonzero().get(),
            outside: order.outside.clone(),
        };
        match (attack.run)(&scene) {
            0.. => 0,
            refused => i32::try_from(-refused).unwrap(),
        }
    });
    let before = open_descriptors();
    // Like the node, which accepts no descriptors.
    while !matches!(
        receive_from_untrusted(&socket, RecvFlags::empty()),
        Err(FriError::Closed | FriError::System(_))
    ) {}
    assert_eq!(open_descriptors(), before, "descriptors came in");
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::empty())
        .unwrap()
        .unwrap();
    let outcome = Outcome::of(status);
    println!("{outcome}");
    rustix::process::kill_process(sibling, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(sibling), WaitOptions::empty()).unwrap();
    if let Ok(groups) = &maker.groups {
        groups.remove();
    }
    std::process::exit(0);
}

fn open_descriptors() -> usize {
    (0..1024)
        // SAFETY: only reads flags.
        .filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0)
        .count()
}

/// Makes a jail in which a process runs `act`. Returns the process, and the node's end of its
/// socket.
fn inmate(maker: &JailResources, number: u32, act: impl FnOnce(&OwnedFd) -> i32) -> (Pid, OwnedFd) {
    let site = maker.site.as_ref().unwrap();
    let (ours, theirs) = faasw_fri::pair().unwrap();
    let ours = dup_to_high_fd(ours).unwrap();
    let group = maker.groups.as_ref().ok();
    let group = group.map(|groups| groups.group(number).unwrap());
    match site.fork(number, group.as_ref()).unwrap() {
        ForkSide::Parent(pid) => (pid, ours),
        ForkSide::Child(jail) => {
            drop(ours);
            let theirs = at(jail::SOCKET, theirs);
            let files = files();
            // The number that it has in the spawner: next to the socket.
            let progress = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
            let progress = at(jail::SOCKET + 1, progress.unwrap());
            let sandboxes = maker.sandboxes.as_ref().unwrap();
            let code = match sandbox::enclose(
                jail,
                &theirs,
                progress,
                &sandboxes.template,
                &sandboxes.filter,
            ) {
                Ok(made) => {
                    let code = act(&theirs);
                    // Dropping them takes calls that a sandbox never makes.
                    std::mem::forget((made, files));
                    code
                }
                // No error number is so large.
                Err(_) => 255,
            };
            // SAFETY: ends this process.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Gives a descriptor this number.
fn at(number: u32, fd: OwnedFd) -> OwnedFd {
    let number = number.cast_signed();
    if fd.as_raw_fd() == number {
        return fd;
    }
    // SAFETY: this number is unused, or its owner no longer uses it.
    unsafe {
        libc::dup2(fd.as_raw_fd(), number);
        drop(fd);
        <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number)
    }
}

/// Makes the files that a node sends a sandbox: a mailbox, code and a layer, at their numbers.
fn files() -> [OwnedFd; 3] {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mailbox = rustix::fs::memfd_create("mailbox", flags).unwrap();
    rustix::fs::ftruncate(&mailbox, MAILBOX_BYTES).unwrap();
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&mailbox, size).unwrap();
    let layer = |name| {
        let builder = LayerBuilder::new(name, 1 << 20).unwrap();
        builder.write(0, &[1; 4096]).unwrap();
        let own = PageRange::of_bytes(0, 4096);
        let layer = builder.freeze_at(own.into()).unwrap();
        layer.as_fd().try_clone_to_owned().unwrap()
    };
    let (code, layer) = (layer("code"), layer("layer"));
    [
        at(jail::MAILBOX, dup_to_high_fd(mailbox).unwrap()),
        at(jail::LAYERS, dup_to_high_fd(code).unwrap()),
        at(jail::LAYERS + 1, dup_to_high_fd(layer).unwrap()),
    ]
}
