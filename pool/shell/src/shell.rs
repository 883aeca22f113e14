//! A shell: a process or thread with one VM that becomes one instance and then ends.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use faasw_abi::boot::Activation;
use faasw_abi::doorbell::Ring;
use faasw_abi::memory_map::PAGE;
use faasw_cell::filter::Filter;
use faasw_cell::{Cell, Step, without_privilege};
use faasw_fri::messages::{
    Activate, Failed, Failure, Fork, FriExtent, OWN_MAX, PRESET, PRIVATE, Parked, Prepared,
    Preset as PresetOrder, Rang, Reset, SET_MAX, SET_PAGES_MAX, SHARED, Sealed, Used,
};
use faasw_fri::{FriError, Kind, Message, Packet, receive, send};
use faasw_seedtree::{Extent, coalesce};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::clock;
use crate::fork::{Attached, Instance};
use crate::guest_memory::{self, Mapping};
use crate::page_map::PageMap;
use crate::preset::Preset;
use crate::priority;
use crate::reset::Trouble;
use crate::seal;
use crate::source::Source;
use crate::spawner::{name_process, unblock_signals};
use crate::vm::{Stop, Template, Vm};

/// Longest single wait that a guest gets, in nanoseconds: an hour. It asks
/// again if it wants more, and the node's time limit holds meanwhile.
const WAIT_MAX: u64 = 3_600_000_000_000;

/// Why a shell ends.
enum End {
    /// The node is done with it, or gone.
    Dismissed,
    /// It cannot go on; the node has been told if it could be.
    Failed,
}

/// Exit code of a shell that could not go on.
pub(crate) const FAILED: i32 = 1;

pub(crate) struct Shell<'a> {
    socket: &'a OwnedFd,
    template: &'a Template,
    vm: Vm,
    page_map: PageMap,
    preset: Option<Box<Preset>>,
    instance: Option<Instance>,
    fork_nanoseconds: u64,
    /// Page faults before the request.
    faults_before: u64,
    activated: u64,
    exits: u64,
}

/// Exit code of a shell that panicked.
pub(crate) const PANICKED: i32 = 101;

/// How a shell came to be.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Nobody waits for it: it runs when nothing else wants to, until the spawner says
    /// otherwise.
    pub is_ahead: bool,
    /// Time from the beginning of the fork until it ran in its control group, in
    /// nanoseconds.
    pub nanoseconds: u64,
}

/// Lives as the shell of a cell; answers with the exit code. The guest's progress
/// doorbell signals `progress`. The cell is closed as soon as the VM is made, before
/// anything of a tenant's comes.
pub fn run(
    cell: Cell,
    socket: OwnedFd,
    progress: OwnedFd,
    template: &Template,
    filter: &Filter,
    birth: Birth,
) -> i32 {
    if birth.is_ahead {
        priority::lower();
    }
    name_process(c"faasw-shell");
    unblock_signals();
    // What is said on standard error would only get an attacker heard.
    std::panic::set_hook(Box::new(|_| {
        // SAFETY: ends this process without running anything.
        unsafe { libc::_exit(PANICKED) }
    }));
    let started = clock::monotonic();
    let made = enclose(cell, &socket, progress, template, filter);
    let (vm, page_map, closing) = match made {
        Ok(made) => made,
        Err((failure, errno, step)) => {
            report(&socket, failure, errno.raw_os_error() as u64, step);
            return FAILED;
        }
    };
    // Neither is dropped: the system lets go of everything by itself.
    let socket = ManuallyDrop::new(socket);
    let mut shell = ManuallyDrop::new(Shell::new(&socket, template, vm, page_map));
    shell.live(Prepared {
        nanoseconds: clock::monotonic() - started,
        cell_nanoseconds: closing,
        born_nanoseconds: birth.nanoseconds,
    })
}

/// Makes the VM and closes the cell round it. Beside `socket` and `progress` no number
/// may be in use that a cell has. Also says what closing took, in nanoseconds.
///
/// # Errors
/// What failed, and at which step of closing.
pub fn enclose(
    cell: Cell,
    socket: &OwnedFd,
    progress: OwnedFd,
    template: &Template,
    filter: &Filter,
) -> Result<(Vm, PageMap, u64), (Failure, Errno, u64)> {
    fault_by_default();
    let moved = rustix::io::fcntl_dupfd_cloexec(&progress, crate::cell::PROGRESS.cast_signed())
        .map_err(|errno| (Failure::Create, errno, 0))?;
    drop(progress);
    let progress = moved;
    // While this process may still look at itself; but not as one that is shown where
    // in the host's memory its pages are.
    let page_map = without_privilege(PageMap::open)
        .flatten()
        .map_err(|errno| (Failure::Create, errno, 0))?;
    let vm = Vm::new(template, progress).map_err(|errno| (Failure::Create, errno, 0))?;
    let made_at = clock::monotonic();
    let [machine, vcpu, statistics, progress] = vm.descriptors();
    let page_map_fd = Some(page_map.as_raw_fd());
    let made = [page_map_fd, machine, vcpu, statistics, progress];
    crate::cell::arrange(socket, made)
        .map_err(Step::Descriptors.failed())
        .and_then(|()| cell.close(crate::cell::LIMITS, filter))
        .map_err(|error| (Failure::Cell, error.errno, error.step as u64))?;
    Ok((vm, page_map, clock::monotonic() - made_at))
}

pub(crate) fn report(socket: impl AsFd, failure: Failure, detail: u64, instruction: u64) {
    let message = Failed {
        failure: failure as u64,
        detail,
        instruction,
    };
    // A node that is gone needs no report.
    let _ = send(socket, &message, &[], SendFlags::empty());
}

impl<'a> Shell<'a> {
    pub(crate) fn new(
        socket: &'a OwnedFd,
        template: &'a Template,
        vm: Vm,
        page_map: PageMap,
    ) -> Self {
        Self {
            socket,
            template,
            vm,
            page_map,
            preset: None,
            instance: None,
            fork_nanoseconds: 0,
            faults_before: 0,
            activated: 0,
            exits: 0,
        }
    }

    /// Tells the node that the VM is there, and serves it to the end; answers with the
    /// exit code.
    pub(crate) fn live(&mut self, prepared: Prepared) -> i32 {
        match self.tell(&prepared).and_then(|()| self.serve()) {
            Err(End::Failed) => FAILED,
            Ok(()) | Err(End::Dismissed) => 0,
        }
    }

    fn tell<M: Message>(&self, message: &M) -> Result<(), End> {
        send(self.socket, message, &[], SendFlags::empty()).map_err(|_| End::Dismissed)
    }

    fn fail(&self, failure: Failure, detail: u64) -> End {
        report(self.socket, failure, detail, self.vm.instruction());
        End::Failed
    }

    fn fail_system(&self, failure: Failure, errno: Errno) -> End {
        self.fail(failure, errno.raw_os_error() as u64)
    }

    fn fail_trouble(&self, failure: Failure, trouble: Trouble) -> End {
        match trouble {
            Trouble::Broken(page) => self.fail(Failure::Broken, page),
            Trouble::Changed(change) => self.fail(Failure::Changed, change as u64),
            Trouble::System(errno) => self.fail_system(failure, errno),
        }
    }

    fn serve(&mut self) -> Result<(), End> {
        loop {
            let packet = match receive(self.socket, RecvFlags::empty()) {
                Ok(packet) => packet,
                Err(FriError::Closed) => return Ok(()),
                Err(_) => return Err(self.fail(Failure::Message, 0)),
            };
            let kind = packet.kind();
            match (kind, &mut self.instance) {
                (Some(Kind::Preset), None) if self.preset.is_none() => self.preset(packet)?,
                (Some(Kind::Fork), None) => self.fork(packet)?,
                (Some(Kind::Activate), Some(instance)) => {
                    instance.is_done = false;
                    let ram = instance.ram;
                    let order = packet
                        .message::<Activate>()
                        .map_err(|_| self.fail(Failure::Message, 0))?;
                    self.activate(&order, ram)?;
                    self.run()?;
                }
                (Some(Kind::Reset), Some(instance)) if instance.is_done => self.reset(&packet)?,
                (Some(Kind::Resume), Some(_)) => self.run()?,
                // For a wait that is over.
                (Some(Kind::Wake), Some(_)) => {}
                (Some(Kind::Survey), Some(_)) => self.survey()?,
                (Some(Kind::Seal), Some(_)) => return self.seal(packet),
                _ => return Err(self.fail(Failure::Message, kind.map_or(0, |kind| kind as u64))),
            }
        }
    }

    /// Says what the instance has used; nothing where the system cannot tell.
    fn survey(&self) -> Result<(), End> {
        let mut used = Used {
            written_count: 0,
            written: [FriExtent::default(); SET_MAX],
            changed: 0,
            read_count: 0,
            read: [FriExtent::default(); SET_MAX],
        };
        if let Some(instance) = &self.instance {
            let page_map = &self.page_map;
            let ram = instance.ram;
            let written: Vec<Extent> = instance
                .written(page_map)
                .iter()
                .map(|stretch| Extent {
                    start: stretch.start,
                    end: stretch.end,
                })
                .collect();
            used.written_count = put(&mut used.written, &written);
            if let Some((source, _)) = instance.seed.as_deref() {
                used.changed = changed(source, ram, &written);
            }
            let read = page_map.all_read(ram).unwrap_or_default();
            used.read_count = put(&mut used.read, &read);
        }
        self.tell(&used)
    }

    /// Hands over what a seed is made of, and ends.
    fn seal(&mut self, mut packet: Packet) -> Result<(), End> {
        let state = self
            .vm
            .save()
            .map_err(|errno| self.fail_system(Failure::Run, errno))?;
        let mut sealed = Sealed {
            own_count: 0,
            own: [FriExtent::default(); OWN_MAX],
            state,
        };
        let [layer, ..] = packet.take_fds();
        let is_private = self
            .instance
            .as_ref()
            .is_some_and(|instance| instance.seed.is_some());
        if is_private {
            let (Some(instance), Some(layer)) = (&self.instance, layer) else {
                return Err(self.fail(Failure::Message, 0));
            };
            let own = seal::write(&self.page_map, instance.ram, &layer)
                .map_err(|errno| self.fail_system(Failure::Fork, errno))?;
            for (slot, extent) in sealed.own.iter_mut().zip(own) {
                *slot = extent;
                sealed.own_count += 1;
            }
        }
        self.tell(&sealed)
    }

    /// Becomes as it was before its request. Whatever fails ends the shell.
    fn reset(&mut self, packet: &Packet) -> Result<(), End> {
        let order = packet
            .message::<Reset>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let started = clock::monotonic();
        let page_faults = self.request_faults();
        let Some(instance) = &mut self.instance else {
            return Err(self.fail(Failure::Message, 0));
        };
        instance.open_view(&mut self.vm);
        let restored = instance
            .reset(&mut self.vm, &self.page_map, order.count_unused != 0)
            .map_err(|trouble| self.fail_trouble(Failure::Reset, trouble))?;
        self.faults_before = self.vm.page_faults();
        self.fork_nanoseconds = 0;
        self.tell(&Parked {
            filled: restored.filled,
            let_go: restored.let_go,
            outside: restored.outside,
            counted: u64::from(order.count_unused != 0),
            unused: restored.unused,
            tables_changed: u64::from(restored.tables.have_changed()),
            exits: self.exits,
            page_faults,
            nanoseconds: clock::monotonic() - started,
        })
    }

    /// Does ahead what the functions of a seed have in common. Whatever fails ends the
    /// shell.
    fn preset(&mut self, mut packet: Packet) -> Result<(), End> {
        let started = clock::monotonic();
        let order = packet
            .message::<PresetOrder>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let mut attached = packet.take_fds().into_iter().flatten();
        let Some(mailbox) = attached.next() else {
            return Err(self.fail(Failure::Message, 0));
        };
        let preset = Preset::new(
            &mut self.vm,
            &self.page_map,
            &order.image,
            attached.collect(),
            mailbox,
        );
        let preset = preset.map_err(|trouble| self.fail_trouble(Failure::Preset, trouble))?;
        self.preset = Some(Box::new(preset));
        self.faults_before = self.vm.page_faults();
        self.tell(&Prepared {
            nanoseconds: clock::monotonic() - started,
            cell_nanoseconds: 0,
            born_nanoseconds: 0,
        })
    }

    /// Becomes an instance.
    fn fork(&mut self, mut packet: Packet) -> Result<(), End> {
        let started = clock::monotonic();
        let order = packet
            .message::<Fork>()
            .map_err(|_| self.fail(Failure::Message, 0))?;
        let mut fds = packet.take_fds().into_iter().flatten();
        let mailbox = match order.origin {
            PRESET => None,
            _ => fds.next(),
        };
        let code = (order.code_bytes > 0).then(|| fds.next()).flatten();
        let attached = Attached {
            mailbox,
            code,
            layers: fds.collect(),
        };
        if attached.code.is_some() != (order.code_bytes > 0) || attached.layers.is_empty() {
            return Err(self.fail(Failure::Message, 0));
        }
        let vm = &mut self.vm;
        let forked = match (order.origin, self.preset.take()) {
            (SHARED, None) => Instance::fork(vm, &order, attached, false),
            (PRIVATE, None) => Instance::fork(vm, &order, attached, true),
            (PRESET, Some(preset)) => preset.fork(vm, &order, attached),
            _ => Err(Errno::INVAL),
        };
        self.instance = Some(forked.map_err(|errno| self.fail_system(Failure::Fork, errno))?);
        self.fork_nanoseconds = clock::monotonic() - started;
        Ok(())
    }

    fn activate(&mut self, order: &Activate, ram: Mapping) -> Result<(), End> {
        let mut entropy = [0; 32];
        // Without entropy no instance may run.
        fill_with_entropy(&mut entropy).map_err(|errno| self.fail_system(Failure::Run, errno))?;
        self.activated = clock::monotonic();
        // Since the epoch it is counted here: the order took a moment to arrive.
        let wall = Duration::from_nanos(order.wall_epoch_nanoseconds)
            .saturating_add(Duration::from_nanos(self.activated));
        guest_memory::write_activation(
            ram,
            &Activation {
                instance: order.instance,
                entropy,
                wall_seconds: wall.as_secs(),
                wall_nanoseconds: u64::from(wall.subsec_nanos()),
                monotonic_nanoseconds: order.monotonic_nanoseconds,
                tsc_khz: self.template.tsc_khz(),
            },
        );
        self.exits = 0;
        Ok(())
    }

    /// Runs the guest until it rings for the node.
    fn run(&mut self) -> Result<(), End> {
        loop {
            let stop = self
                .vm
                .run()
                .map_err(|errno| self.fail_system(Failure::Run, errno))?;
            self.exits += 1;
            match stop {
                Stop::Rang(value) if value == Ring::Wait as u32 => self.wait()?,
                Stop::Rang(value) if value == Ring::Populate as u32 => self.populate(),
                Stop::Rang(value) => {
                    let is_done = value == Ring::Done as u32;
                    if let Some(instance) = &mut self.instance {
                        instance.is_done = is_done;
                    }
                    return match self.ordered_already(is_done)? {
                        Some(order) => self.reset(&order),
                        None => self.tell(&self.rang(value)),
                    };
                }
                Stop::Shutdown => return Err(self.fail(Failure::Shutdown, 0)),
                Stop::Other(reason) => return Err(self.fail(Failure::Exit, u64::from(reason))),
            }
        }
    }

    /// The order to reset, if the node, which was told of the end already, has sent
    /// it: then nobody waits for the ring.
    fn ordered_already(&self, is_done: bool) -> Result<Option<Packet>, End> {
        if !is_done {
            return Ok(None);
        }
        match waiting_order(self.socket) {
            Ok(Some(packet)) => match packet.kind() {
                Some(Kind::Reset) => Ok(Some(packet)),
                kind => Err(self.fail(Failure::Message, kind.map_or(0, |kind| kind as u64))),
            },
            Ok(None) => Ok(None),
            Err(FriError::Closed) => Err(End::Dismissed),
            Err(_) => Err(self.fail(Failure::Message, 0)),
        }
    }

    fn rang(&self, value: u32) -> Rang {
        Rang {
            ring: u64::from(value),
            fork_nanoseconds: self.fork_nanoseconds,
            run_nanoseconds: clock::monotonic() - self.activated,
            exits: self.exits,
            page_faults: self.request_faults(),
        }
    }

    fn request_faults(&self) -> u64 {
        self.vm.page_faults().saturating_sub(self.faults_before)
    }

    /// Makes memory ready that the guest says it will write: private pages, and
    /// second-level tables where the host fills those in advance. A wish that makes
    /// no sense is none.
    fn populate(&self) {
        let Some(instance) = &self.instance else {
            return;
        };
        let wish = guest_memory::populate_wanted(instance.mailbox);
        guest_memory::make_private(instance.ram, &[wish]);
        if wish.start < wish.end && wish.end <= instance.ram.bytes() {
            self.vm.prefault(wish.start, wish.end - wish.start);
        }
    }

    /// Sleeps for the guest, until its time has come or the node wakes it. The
    /// socket is watched, so a node that goes away ends the wait, too.
    fn wait(&self) -> Result<(), End> {
        let wanted = self
            .instance
            .as_ref()
            .map_or(0, |instance| guest_memory::wait_wanted(instance.mailbox))
            .min(WAIT_MAX);
        let timeout = Timespec {
            tv_sec: (wanted / 1_000_000_000) as i64,
            tv_nsec: (wanted % 1_000_000_000) as i64,
        };
        let mut events = [PollFd::new(self.socket, PollFlags::IN)];
        match poll(&mut events, Some(&timeout)) {
            // Woken early: the guest asks again.
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => match receive(self.socket, RecvFlags::empty()) {
                Ok(packet) if packet.kind() == Some(Kind::Wake) => Ok(()),
                Err(FriError::Closed) => Err(End::Dismissed),
                _ => Err(self.fail(Failure::Message, 0)),
            },
            Err(errno) => Err(self.fail_system(Failure::Run, errno)),
        }
    }
}

/// The order that waits in a socket, if there is one. Those to wake are for waits that are
/// over, however many there are.
fn waiting_order(socket: &OwnedFd) -> Result<Option<Packet>, FriError> {
    loop {
        match receive(socket, RecvFlags::DONTWAIT) {
            Ok(packet) if packet.kind() == Some(Kind::Wake) => {}
            Ok(packet) => return Ok(Some(packet)),
            Err(FriError::System(Errno::AGAIN)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Has a fault of this process end it by its own signal, as the system does. The standard
/// library's handlers tell of it first, which takes calls that no cell allows: a fault
/// would end as a forbidden call, and be taken for somebody who broke out.
fn fault_by_default() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: no handler of this program's is replaced that anything relies on.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Puts a set where there is room for so many stretches, the nearest ones joined;
/// says how many there are then.
fn put(slots: &mut [FriExtent; SET_MAX], set: &[Extent]) -> u64 {
    let joined = coalesce(set, PAGE, SET_MAX);
    for (slot, extent) in slots.iter_mut().zip(&joined) {
        *slot = FriExtent {
            start: extent.start,
            end: extent.end,
        };
    }
    joined.len() as u64
}

/// How many pages of these stretches differ from the seed's, as far as they make a set.
fn changed(source: &Source, ram: Mapping, stretches: &[Extent]) -> u64 {
    let mut pages = 0;
    stretches
        .iter()
        .take_while(|stretch| {
            pages += stretch.bytes() / PAGE;
            pages <= SET_PAGES_MAX
        })
        .map(|stretch| {
            let stretch = FriExtent {
                start: stretch.start,
                end: stretch.end,
            };
            source.changed(ram, stretch).unwrap_or(0)
        })
        .sum()
}

/// Fills `out` from the system's generator.
fn fill_with_entropy(out: &mut [u8; 32]) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..)
        && !rest.is_empty()
    {
        match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_fri::messages::Wake;

    #[test]
    fn a_flood_of_wakes_takes_no_stack() {
        let (ours, theirs) = faasw_fri::pair().unwrap();
        // As many as root may have wait.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&ours, 16 << 20);
        let mut sent = 0;
        while send(&ours, &Wake { reserved: 0 }, &[], SendFlags::DONTWAIT).is_ok() {
            sent += 1;
        }
        assert!(sent > 100, "{sent}");
        // A small part of what a process has.
        let asks = std::thread::Builder::new().stack_size(128 << 10);
        let asks = asks.spawn(move || {
            assert!(matches!(waiting_order(&theirs), Ok(None)));
            theirs
        });
        let theirs = asks.unwrap().join().unwrap();
        for order in 0..3 {
            send(&ours, &Wake { reserved: 0 }, &[], SendFlags::DONTWAIT).unwrap();
            let count_unused = order;
            send(&ours, &Reset { count_unused }, &[], SendFlags::DONTWAIT).unwrap();
            let packet = waiting_order(&theirs).unwrap().unwrap();
            assert_eq!(packet.message::<Reset>().unwrap().count_unused, order);
        }
        drop(ours);
        assert!(matches!(waiting_order(&theirs), Err(FriError::Closed)));
    }
}
