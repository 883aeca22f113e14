//! The spawner's loop: make processes, reap them, say so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use faasw_fri::messages::{Ended, Kill, SpawnFailed, SpawnHelper, SpawnShell, Spawned};
use faasw_fri::{FriError, Kind, Message, Packet, receive, send};
use kvm_ioctls::Kvm;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::vm::Template;
use crate::{HELPER_FD, NODE_FD, helper, shell};

/// A process that the spawner made and has not reaped.
struct Child {
    token: u64,
    pid: Pid,
}

struct Spawner {
    node: OwnedFd,
    helper_program: OwnedFd,
    template: Template,
    children: Vec<Child>,
}

/// Runs until the node is gone.
pub fn run() -> io::Result<()> {
    // A terminal's Ctrl-C is for the node, which ends this process in its own time.
    let _ = rustix::process::setsid();
    name_process(c"faasw-spawner");
    // SAFETY: the node starts this program with these two descriptors, and
    // nothing else in it owns them.
    let (node, helper_program) = unsafe {
        (
            OwnedFd::from_raw_fd(NODE_FD),
            OwnedFd::from_raw_fd(HELPER_FD),
        )
    };
    for fd in [&node, &helper_program] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    close_from(HELPER_FD + 1);
    let ended = child_signal()?;
    let template = Template::new(Kvm::new()?)?;
    let mut spawner = Spawner {
        node,
        helper_program,
        template,
        children: Vec::new(),
    };
    loop {
        let mut events = [
            PollFd::new(&spawner.node, PollFlags::IN),
            PollFd::new(&ended, PollFlags::IN),
        ];
        match poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [node_event, child_event] = events.map(|event| event.revents());
        if !child_event.is_empty() {
            drain_signal(&ended);
            spawner.reap();
        }
        if !node_event.is_empty() {
            match receive(&spawner.node, RecvFlags::empty()) {
                Ok(packet) => spawner.serve(packet),
                Err(FriError::Closed) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl Spawner {
    fn serve(&mut self, mut packet: Packet) {
        let [first, second, third, ..] = packet.take_fds();
        match packet.kind() {
            Some(Kind::SpawnShell) => {
                if let (Ok(order), Some(socket), Some(progress)) =
                    (packet.message::<SpawnShell>(), first, second)
                {
                    self.spawn_shell(&order, socket, progress);
                }
            }
            Some(Kind::SpawnHelper) => {
                if let (Ok(order), Some(input), Some(output), Some(report)) =
                    (packet.message::<SpawnHelper>(), first, second, third)
                {
                    let child = helper::spawn(
                        &self.helper_program,
                        &order,
                        [input.as_fd(), output.as_fd(), report.as_fd()],
                    );
                    self.note(order.token, child);
                }
            }
            Some(Kind::Kill) => {
                if let Ok(Kill { token }) = packet.message() {
                    self.kill(token);
                }
            }
            _ => {}
        }
    }

    fn spawn_shell(&mut self, order: &SpawnShell, socket: OwnedFd, progress: OwnedFd) {
        let is_ahead = order.is_ahead != 0;
        // Asked before: a child that is alone already would take its next parent's
        // number for this one's, and live on with the node's socket.
        let this = rustix::process::getpid();
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { libc::fork() } {
            0 => {
                let code = shell::run(this, socket, progress, &self.template, is_ahead);
                // The spawner's own clean-up is not the child's to do.
                // SAFETY: ends this process without running anything.
                unsafe { libc::_exit(code) }
            }
            pid => self.note(order.token, child_of(pid)),
        }
    }

    /// Tells the node what became of a request for a process.
    fn note(&mut self, token: u64, child: io::Result<Pid>) {
        match child {
            Ok(pid) => {
                self.children.push(Child { token, pid });
                self.tell(&Spawned {
                    token,
                    pid: pid.as_raw_nonzero().get() as u64,
                });
            }
            Err(error) => self.tell(&SpawnFailed {
                token,
                errno: error.raw_os_error().unwrap_or(0) as u64,
            }),
        }
    }

    fn kill(&self, token: u64) {
        if let Some(child) = self.children.iter().find(|child| child.token == token) {
            // Not reaped yet, so the number is still this child's.
            let _ = rustix::process::kill_process(child.pid, Signal::KILL);
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(index) = self.children.iter().position(|child| child.pid == pid) else {
                continue;
            };
            let child = self.children.swap_remove(index);
            self.tell(&Ended {
                token: child.token,
                signal: status.terminating_signal().unwrap_or(0) as u64,
                code: status.exit_status().unwrap_or(0) as u64,
            });
        }
    }

    fn tell<M: Message>(&self, message: &M) {
        // A node that is gone is noticed by the loop.
        let _ = send(&self.node, message, &[], SendFlags::empty());
    }
}

/// The child behind the answer of `fork`.
pub fn child_of(pid: libc::pid_t) -> io::Result<Pid> {
    match Pid::from_raw(pid) {
        Some(child) if pid > 0 => Ok(child),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process when its parent ends; says whether the parent is still there.
pub fn end_with_parent(parent: Pid) -> bool {
    let set = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have ended before the call, and then no signal comes.
    set.is_ok() && rustix::process::getppid() == Some(parent)
}

/// Names this process, for those who look at a list of processes.
pub fn name_process(name: &std::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: i32) {
    // SAFETY: nothing in this process owns descriptors there that it would use again.
    unsafe {
        libc::close_range(first as libc::c_uint, libc::c_uint::MAX, 0);
    }
}

/// A descriptor that becomes readable when a child has ended.
fn child_signal() -> io::Result<OwnedFd> {
    // SAFETY: `set` is a plain bit set that the calls fill in; the descriptor is new.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Lets signals through again in a child.
pub fn unblock_signals() {
    // SAFETY: as above.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

fn drain_signal(ended: impl AsFd) {
    let mut record = [0; size_of::<libc::signalfd_siginfo>()];
    let fd: BorrowedFd<'_> = ended.as_fd();
    while rustix::io::read(fd, &mut record).is_ok_and(|read| read > 0) {}
}
