//! The spawner's loop: it makes processes, reaps them, and reports both.

mod exit_status;
mod kill_queue;
pub mod resources;
mod shares;
mod sharing;
mod spawn;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use faasw_fri::messages::{
    BackgroundGroupReport, Ended, FriGroups, GroupVersion, Introduced, KeepGroups, Kill, Limit,
    SetBackgroundGroup, SetPriority, SpawnEgress, SpawnFailed, SpawnHelper, SpawnSandbox,
};
use faasw_fri::{FriError, Kind, Message, Packet, receive, send};
use faasw_jail::filter::Rule;
use faasw_jail::group::{self, CgroupVersion, Groups};
use faasw_jail::{ConfinementLevel, Obstacle, Site, Step, dup_to_high_fd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal};

use crate::process::processors;
use crate::process::programs::{self, Programs};
use crate::process::{child_signal, close_from, drain_signal, name_process};
use crate::spawner::kill_queue::{KillQueue, KillStep};
use crate::spawner::resources::JailResources;
use crate::spawner::sharing::{Member, Sharing};
use crate::{NODE_FD, process::jail, process::priority};

/// A process that the spawner made and has not reaped.
struct Child {
    token: u64,
    pid: Pid,
    /// The number of its jail, which no other living child has.
    number: u32,
    /// The child's part in sharing processors, once its function is known.
    member: Option<Member>,
    is_background: bool,
}

struct Spawner {
    node: OwnedFd,
    programs: Programs,
    maker: JailResources,
    children: Vec<Child>,
    ending: KillQueue,
    sharing: Sharing,
    /// Sandboxes made in advance can run at a low priority until they are needed.
    can_restore: bool,
}

/// Runs until the node is gone. Jails have this level, and sandboxes may make the calls that
/// `rules` allows.
///
/// # Errors
/// Returns the error of [`JailResources::prepare`], or an error if a system call fails or a packet
/// of the node is invalid.
pub fn run(
    level: ConfinementLevel,
    rules: impl FnOnce(jail::HostFeatures) -> Vec<Rule>,
) -> io::Result<()> {
    run_with(c"faasw-spawner", || JailResources::prepare(level, rules))
}

/// Does the same as [`run`] in the host's network. It makes no sandboxes, and no jails but the
/// connector's.
///
/// # Errors
/// Returns an error if a system call fails or a packet of the node is invalid.
pub fn run_outside(level: ConfinementLevel) -> io::Result<()> {
    run_with(c"faasw-outside", || {
        Ok(JailResources::prepare_in_host_network(level))
    })
}

fn run_with(name: &CStr, prepare: impl FnOnce() -> io::Result<JailResources>) -> io::Result<()> {
    // A terminal's Ctrl-C is for the node, which ends this process in its own time.
    let _ = rustix::process::setsid();
    name_process(name);
    // SAFETY: the node starts this program with this descriptor, and nothing else in it
    // owns it.
    let node = unsafe { OwnedFd::from_raw_fd(NODE_FD) };
    close_from(programs::END);
    let programs = Programs::inherited()?;
    // Low numbers are for descriptors that go to jails.
    let (node, programs) = (dup_to_high_fd(node)?, programs.dup_to_high_fd()?);
    let ended = dup_to_high_fd(child_signal()?)?;
    warm_up_cgroup_move();
    let can_restore = priority::can_restore();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let mut spawner = Spawner {
        node,
        programs,
        maker: prepare()?,
        children: Vec::new(),
        ending: KillQueue::default(),
        // Under a CPU quota each processor may be used, but only for part of the time.
        sharing: Sharing::new(count, processors::usable() == Some(count), Instant::now()),
        can_restore,
    };
    spawner.introduce();
    let mut is_node_gone = false;
    loop {
        let ends_in = spawner.go_on_ending(Instant::now());
        if is_node_gone && spawner.children.is_empty() && !spawner.ending.is_settling() {
            spawner.clear_up();
            return Ok(());
        }
        let groups = spawner.maker.groups.as_ref().ok();
        let moves_in = groups.and_then(|groups| groups.return_from_background(Instant::now()));
        let looks_in = spawner.share(Instant::now());
        let rest = [ends_in, moves_in, looks_in].into_iter().flatten().min();
        let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
        let mut events = vec![PollFd::new(&ended, PollFlags::IN)];
        if !is_node_gone {
            events.push(PollFd::new(&spawner.node, PollFlags::IN));
        }
        match poll(&mut events, rest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = events.into_iter().map(|event| !event.revents().is_empty());
        let (has_ended, has_order) = (ready.next() == Some(true), ready.next() == Some(true));
        if has_ended {
            drain_signal(&ended);
            spawner.reap();
        }
        if has_order {
            match receive(&spawner.node, RecvFlags::empty()) {
                Ok(packet) => spawner.serve(packet),
                Err(FriError::Closed) => {
                    is_node_gone = true;
                    spawner.end();
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Lets the kernel begin with work that the first sandbox's move to its group waits for, while this
/// process determines the host's properties ([`group::warm_up_cgroup_move`]). A child does it, and
/// is reaped like any other.
fn warm_up_cgroup_move() {
    // SAFETY: this process has one thread; the child has a copy of everything.
    if unsafe { libc::fork() } == 0 {
        group::warm_up_cgroup_move();
        // The spawner's own clean-up must not run in the child.
        // SAFETY: ends this process without running anything.
        unsafe { libc::_exit(0) }
    }
}

impl Spawner {
    /// Reports to the node what this host provides for jails.
    fn introduce(&self) {
        let maker = &self.maker;
        let introduced = Introduced {
            own_users: maker.site.as_ref().is_ok_and(Site::has_identities).into(),
            groups: match &maker.groups {
                Ok(groups) if groups.version() == CgroupVersion::One => GroupVersion::One,
                Ok(_) => GroupVersion::Two,
                Err(_) => GroupVersion::None,
            },
        };
        let usage = maker.groups.as_ref().ok().map(Groups::usage);
        let usage = usage.and_then(Result::ok);
        let attached: Vec<_> = usage.iter().map(AsFd::as_fd).collect();
        // If the node is gone, the loop notices it.
        let _ = send(&self.node, &introduced, &attached, SendFlags::empty());
    }

    /// Orders all processes to end.
    fn end(&mut self) {
        for child in &self.children {
            self.ending.order(child.token);
        }
    }

    /// Ends processes that are to end, as many as may end now. Returns the time after which to call
    /// this again, if that is due before a child is reaped.
    fn go_on_ending(&mut self, now: Instant) -> Option<Duration> {
        loop {
            match self.ending.next(now) {
                KillStep::Kill(token) => {
                    // A process that is not there has ended meanwhile.
                    let child = self.children.iter().find(|child| child.token == token);
                    if let Some(child) = child {
                        kill_queue::kill(child.pid);
                        self.ending.killed(child.pid, now);
                    }
                }
                KillStep::Settle => self.ending.settles(kill_queue::settle()),
                KillStep::Wait(rest) => return rest,
            }
        }
    }

    /// Removes the control groups of processes that have ended.
    fn clear_up(&self) {
        if let Ok(groups) = &self.maker.groups {
            groups.remove();
        }
    }

    fn serve(&mut self, mut packet: Packet) {
        let [first, second, third, ..] = packet.take_fds();
        match packet.kind() {
            Some(Kind::SpawnSandbox) => {
                if let (Ok(order), Some(socket), Some(progress)) =
                    (packet.message::<SpawnSandbox>(), first, second)
                {
                    self.spawn_sandbox(&order, socket, progress);
                }
            }
            Some(Kind::SpawnHelper) => {
                if let (Ok(order), Some(input), Some(output), Some(report)) =
                    (packet.message::<SpawnHelper>(), first, second, third)
                {
                    self.spawn_helper(&order, [input.as_fd(), output.as_fd(), report.as_fd()]);
                }
            }
            Some(Kind::SpawnEgress) => {
                if let (Ok(order), Some(socket)) = (packet.message::<SpawnEgress>(), first) {
                    self.spawn_egress(&order, &socket, second);
                }
            }
            Some(Kind::Limit) => {
                if let Ok(order) = packet.message() {
                    self.limit(&order);
                }
            }
            Some(Kind::SetPriority) => {
                if let Ok(SetPriority { token, background }) = packet.message() {
                    self.set_priority(token, background.is_yes());
                }
            }
            Some(Kind::SetBackgroundGroup) => {
                if let Ok(SetBackgroundGroup { token, background }) = packet.message() {
                    self.set_background_group(token, background.is_yes());
                }
            }
            Some(Kind::KeepGroups) => {
                if let (Ok(order), Ok(groups)) = (packet.message(), &self.maker.groups) {
                    let KeepGroups {
                        free_max,
                        memory_bytes,
                    } = order;
                    groups.keep(usize::try_from(free_max).unwrap_or(usize::MAX));
                    if let Err(error) = groups.limit_all(memory_bytes) {
                        eprintln!(
                            "faasw spawner: the memory of all microVMs is not limited: {error}"
                        );
                    }
                }
            }
            Some(Kind::Kill) => {
                if let Ok(Kill { token }) = packet.message() {
                    self.ending.order(token);
                }
            }
            _ => {}
        }
    }

    /// Returns how groups are used, for the node.
    fn groups(&self) -> FriGroups {
        let groups = self.maker.groups.as_ref();
        let counts = groups.map(Groups::counts).unwrap_or_default();
        FriGroups {
            free: counts.free,
            used: counts.used,
            free_max: counts.free_max,
            hits: counts.hits,
            misses: counts.misses,
        }
    }

    fn report_failed(&self, token: u64, error: io::Error, step: Step) {
        let errno = Errno::from_io_error(&error);
        let is_of_namespaces = matches!(step, Step::Fork | Step::Namespaces | Step::Root);
        let obstacle =
            errno.filter(|_| is_of_namespaces && self.maker.level == ConfinementLevel::Full);
        self.send(&SpawnFailed {
            token,
            errno: error.raw_os_error().unwrap_or(0) as u64,
            step,
            obstacle: obstacle.map_or(Obstacle::Unknown, Obstacle::of_failure),
        });
    }

    /// Sets the limits of a sandbox once its function is known.
    fn limit(&mut self, order: &Limit) {
        let mut children = self.children.iter_mut();
        let Some(child) = children.find(|child| child.token == order.token) else {
            return;
        };
        if self.can_restore {
            priority::restore(child.pid);
        }
        if let Ok(groups) = &self.maker.groups {
            // If that fails, the process has ended or keeps the limit that it was born with.
            let _ = groups.limit_memory(child.number, order.memory_bytes);
            let member = Member::of(order.function, child.is_background);
            let member = child.member.insert(member);
            let member = (child.number, child.pid, member);
            self.sharing
                .join(member, groups, sharing::total, Instant::now());
        }
    }

    /// Runs a sandbox at the background priority, or at the usual one.
    fn set_priority(&mut self, token: u64, background: bool) {
        let mut children = self.children.iter_mut();
        let Some(child) = children.find(|child| child.token == token) else {
            return;
        };
        child.is_background = background;
        // The group's weight decides among sandboxes, and without groups the nice value does.
        if let Ok(groups) = &self.maker.groups
            && let Some(member) = &mut child.member
        {
            let member = (child.number, child.pid, member);
            self.sharing.set_background(member, background, groups);
        }
        priority::set_background(child.pid, background);
    }

    /// Shares processors among functions. Returns the time until the next call is due.
    fn share(&mut self, now: Instant) -> Option<Duration> {
        let groups = self.maker.groups.as_ref().ok()?;
        let members = self.children.iter_mut();
        let members = members.filter_map(|child| {
            let member = child.member.as_mut()?;
            Some((child.number, child.pid, member))
        });
        self.sharing.look(members, groups, sharing::total, now)
    }

    /// Puts a sandbox behind all others, or ends that.
    fn set_background_group(&mut self, token: u64, background: bool) {
        let child = self.children.iter().find(|child| child.token == token);
        let Some(child) = child else {
            return;
        };
        let done = match &self.maker.groups {
            Ok(groups) => groups.set_background_group(child.number, child.pid, background),
            Err(_) => Err(Errno::NOTSUP),
        };
        let report = BackgroundGroupReport {
            token,
            background: (background && done.is_ok()).into(),
            // If the process has just ended, or many are in the background now, that does not
            // concern others.
            refused: (background
                && done.is_err_and(|errno| !matches!(errno, Errno::SRCH | Errno::AGAIN)))
            .into(),
        };
        self.send(&report);
    }

    fn give_back(&self, number: u32, may_be_kept: bool) {
        if let Ok(groups) = &self.maker.groups {
            groups.give_back(number, may_be_kept);
        }
    }

    /// Whether the kernel killed a child because of its memory limit.
    fn is_out_of_memory(&self, number: u32, signal: u64) -> bool {
        let groups = self.maker.groups.as_ref();
        signal == u64::from(Signal::KILL.as_raw().cast_unsigned())
            && groups.is_ok_and(|groups| groups.is_out_of_memory(number))
    }

    fn reap(&mut self) {
        while let Some(pid) = exit_status::ended() {
            let of = |child: &Child| child.pid == pid;
            let index = self.children.iter().position(of);
            let child = index.map(|index| self.children.swap_remove(index));
            if let Some(child) = &child
                && let (Some(member), Ok(groups)) = (&child.member, &self.maker.groups)
            {
                let member = (child.number, pid, member);
                self.sharing.leave(member, groups, sharing::total);
            }
            self.ending.reaped(pid);
            let Some(status) = exit_status::reap(pid) else {
                return;
            };
            let Some(child) = child else {
                continue;
            };
            let out_of_memory = self.is_out_of_memory(child.number, status.signal);
            self.give_back(child.number, !out_of_memory);
            self.send(&Ended {
                token: child.token,
                signal: status.signal,
                code: status.code,
                out_of_memory: out_of_memory.into(),
                cpu_nanoseconds: status.cpu_nanoseconds,
                groups: self.groups(),
            });
        }
    }

    fn send<M: Message>(&self, message: &M) {
        // If the node is gone, the loop notices it.
        let _ = send(&self.node, message, &[], SendFlags::empty());
    }
}
