//! A sandbox on a thread of the program that embeds faasw: a VM without a process or jail of its
//! own.
//!
//! This is the same sandbox with the same interface to the node, over a socket of its own. This
//! module does the work that the kernel does when a process ends: the VM's descriptors are closed
//! and its memory is unmapped before the end is reported. A panic ends this sandbox alone, in the
//! same way.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use faasw_fri::messages::{Failure, Prepared};
use faasw_fri::userfault::Device;
use kvm_ioctls::Kvm;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::Pid;

use crate::memory::page_map::PageMap;
use crate::process::priority;
use crate::sandbox::{End, FAILED, PANICKED, Sandbox, hand_over_faults, report};
use crate::vm::clock;
use crate::vm::signals;
use crate::vm::{Vm, VmTemplate};

/// The properties of the host that all sandboxes of a program share.
pub struct ThreadHost {
    template: VmTemplate,
    /// Sandboxes made in advance can run at a low priority until they are needed.
    can_restore: bool,
}

impl std::fmt::Debug for ThreadHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadHost").finish_non_exhaustive()
    }
}

impl ThreadHost {
    /// Determines the host's properties.
    ///
    /// # Errors
    /// Returns an error if KVM cannot be opened or does not run a trial guest.
    pub fn prepare() -> io::Result<Self> {
        let device = Kvm::open_with_cloexec(true)?;
        // SAFETY: the descriptor is new and has no other owner.
        let kvm = unsafe { Kvm::from_raw_fd(device) };
        Ok(Self {
            template: VmTemplate::new(kvm)?.with_faults(Device::open().ok()),
            can_restore: priority::can_restore(),
        })
    }
}

/// The phase of a thread's life. Once the thread is over, its handle and number may identify
/// another thread, so they are used only while this is locked.
#[derive(Debug)]
enum Phase {
    Begins,
    Runs {
        handle: libc::pthread_t,
        number: Pid,
    },
    Over,
}

/// A sandbox's thread, as seen by other threads.
#[derive(Debug)]
pub struct SandboxThread {
    socket: OwnedFd,
    stop: Arc<AtomicBool>,
    phase: Mutex<Phase>,
    is_ahead: AtomicBool,
}

impl SandboxThread {
    /// Starts a sandbox that communicates over `socket` and whose guest signals `progress`. With
    /// `is_ahead` it runs only when nothing else wants to, if the host allows that to be undone. As
    /// the last thing that the thread does, when nothing is left of its VM, it calls `ended` with
    /// its exit code.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start(
        host: Arc<ThreadHost>,
        socket: OwnedFd,
        progress: OwnedFd,
        is_ahead: bool,
        ended: impl FnOnce(i32) + Send + 'static,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let is_ahead = is_ahead && host.can_restore;
        let life = move |thread: &Self, blocked| thread.live(&host, progress, blocked);
        Self::start_with(socket, is_ahead, life, ended)
    }

    fn start_with(
        socket: OwnedFd,
        is_ahead: bool,
        life: impl FnOnce(&Self, u64) -> i32 + Send + 'static,
        ended: impl FnOnce(i32) + Send + 'static,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let thread = Arc::new(Self {
            socket,
            stop: Arc::default(),
            phase: Mutex::new(Phase::Begins),
            is_ahead: AtomicBool::new(is_ahead),
        });
        let own = thread.clone();
        let joined = Builder::new()
            .name("faasw-sandbox".to_owned())
            .spawn(move || {
                let code = match own.begin() {
                    Ok(blocked) => catch_unwind(AssertUnwindSafe(|| life(&own, blocked))),
                    Err(_) => Ok(FAILED),
                }
                .unwrap_or(PANICKED);
                own.end();
                ended(code);
            })?;
        Ok((thread, joined))
    }

    /// Ends the sandbox, whatever its guest does. Does not wait.
    pub fn kill(&self) {
        // Set before the signal, because the sandbox checks it after one; and before the lock, for
        // a thread that begins after it.
        self.stop.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        if let Phase::Runs { handle, .. } = *self.phase() {
            // SAFETY: the thread is not over while the phase is locked.
            let _ = unsafe { libc::pthread_kill(handle, signals::STOP) };
        }
    }

    /// Restores the usual priority of a sandbox that was made in advance, once its function is
    /// known.
    pub fn restore_priority(&self) {
        if let Phase::Runs { number, .. } = *self.phase()
            && self.is_ahead.swap(false, Ordering::Relaxed)
        {
            priority::restore(number);
        }
    }

    /// Runs the sandbox at the background priority, or at the usual one.
    pub fn set_background(&self, background: bool) {
        if let Phase::Runs { number, .. } = *self.phase() {
            priority::set_background(number, background);
        }
    }

    /// Returns the CPU time that the sandbox and its guest have used.
    ///
    /// # Errors
    /// Returns `SRCH` if the thread does not run; otherwise the error of reading its clock.
    pub fn cpu_time(&self) -> Result<Duration, Errno> {
        let phase = self.phase();
        let Phase::Runs { handle, .. } = *phase else {
            return Err(Errno::SRCH);
        };
        let mut clock = 0;
        let mut time = MaybeUninit::uninit();
        // SAFETY: the thread is not over while the phase is locked; both calls write one value of
        // their parameter's type.
        let time = unsafe {
            match libc::pthread_getcpuclockid(handle, &raw mut clock) {
                0 => {}
                error => return Err(Errno::from_raw_os_error(error)),
            }
            if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
                return Err(Errno::SRCH);
            }
            time.assume_init()
        };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
        Ok(Duration::new(seconds, nanoseconds))
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread ready to be stopped; returns the mask of blocked signals.
    fn begin(&self) -> Result<u64, Errno> {
        // First: the signal's default action ends the program.
        let blocked = signals::block()?;
        *self.phase() = Phase::Runs {
            // SAFETY: the call returns the calling thread's own handle.
            handle: unsafe { libc::pthread_self() },
            number: rustix::thread::gettid(),
        };
        Ok(blocked)
    }

    fn end(&self) {
        *self.phase() = Phase::Over;
        // For a process the kernel closes it.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    fn live(&self, host: &ThreadHost, progress: OwnedFd, blocked: u64) -> i32 {
        if self.is_ahead.load(Ordering::Relaxed) {
            priority::lower();
        }
        let started = clock::monotonic();
        match self.make(host, progress, blocked) {
            Ok((vm, page_map)) => {
                let mut sandbox = Sandbox::new(&self.socket, &host.template, vm, page_map);
                let lived = sandbox.live(Prepared {
                    nanoseconds: clock::monotonic() - started,
                    jail_nanoseconds: 0,
                    born_nanoseconds: 0,
                });
                match lived {
                    Ok(()) | Err(End::Dismissed) => 0,
                    Err(End::Failed) => FAILED,
                }
            }
            Err(errno) => {
                report(
                    &self.socket,
                    Failure::Create,
                    errno.raw_os_error() as u64,
                    0,
                );
                FAILED
            }
        }
    }

    fn make(
        &self,
        host: &ThreadHost,
        progress: OwnedFd,
        blocked: u64,
    ) -> Result<(Vm, PageMap), Errno> {
        hand_over_faults(&self.socket, &host.template);
        let page_map = PageMap::open()?;
        let mut vm = Vm::new(&host.template, progress)?;
        vm.stop_with(self.stop.clone(), blocked)?;
        // SAFETY: only the sandbox that owns this VM has mappings of its arena, and it has the VM
        // to the end.
        unsafe { vm.release_memory_at_end() };
        Ok((vm, page_map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::signals::{STOP, bit};
    use std::sync::mpsc;

    fn started(life: impl FnOnce(&SandboxThread, u64) -> i32 + Send + 'static) -> (i32, OwnedFd) {
        let (node, sandbox) = faasw_fri::pair().unwrap();
        let (sender, ended) = mpsc::channel();
        let told = move |code| sender.send(code).unwrap();
        let (thread, joined) = SandboxThread::start_with(sandbox, false, life, told).unwrap();
        let code = ended.recv().unwrap();
        joined.join().unwrap();
        assert_eq!(thread.cpu_time(), Err(Errno::SRCH));
        // A thread that is over is not affected.
        thread.kill();
        (code, node)
    }

    fn is_closed(node: &OwnedFd) -> bool {
        let received = faasw_fri::receive(node, rustix::net::RecvFlags::empty());
        matches!(received, Err(faasw_fri::FriError::Closed))
    }

    #[test]
    fn a_panic_ends_only_the_sandbox_and_is_reported() {
        let (code, node) = started(|_, _| panic!("this panic is a test's"));
        assert_eq!(code, PANICKED);
        assert!(is_closed(&node));
        let (code, node) = started(|_, _| 7);
        assert_eq!(code, 7);
        assert!(is_closed(&node));
    }

    /// The signal's default action ends the program, and so this test.
    #[test]
    fn a_thread_can_be_ended_from_its_first_moment_to_its_last() {
        for _ in 0..500 {
            let (_node, sandbox) = faasw_fri::pair().unwrap();
            let until_shut = |thread: &SandboxThread, _| i32::from(is_closed(&thread.socket));
            let (sender, ended) = mpsc::channel();
            let told = move |code| sender.send(code).unwrap();
            let (thread, joined) =
                SandboxThread::start_with(sandbox, false, until_shut, told).unwrap();
            while ended.try_recv() != Ok(1) {
                thread.kill();
            }
            joined.join().unwrap();
        }
    }

    #[test]
    fn the_signal_reaches_only_its_thread_and_stays_pending() {
        let (code, _node) = started(|thread, blocked| {
            assert_ne!(blocked & bit(STOP), 0);
            assert_ne!(blocked & bit(libc::SIGTERM), 0);
            assert_eq!(blocked & bit(libc::SIGSEGV), 0);
            // The signal's default action would end the program.
            thread.kill();
            let mut pending = MaybeUninit::uninit();
            // SAFETY: the call writes the set that is read then.
            unsafe {
                libc::sigpending(pending.as_mut_ptr());
                libc::sigismember(pending.as_ptr(), STOP)
            }
        });
        assert_eq!(code, 1);
    }
}
