//! Specialised zygotes: all work that functions have in common is done in advance.
//!
//! A sandbox that is made in advance (Catalyzer's sandbox Zygote, §3.4; AFaaS §4.2) becomes an
//! image of a seed from which others descend. Its guest then runs once and uses the pages that
//! every request uses. So memory slots, vCPU state and second-level tables are there before a
//! request needs them. The reset of warm instances undoes the effects of that run. The fork to a
//! descendant of the seed then adds only the differences:
//!
//! - *Copied*: pages that a function's instances write or are likely to use get the seed's contents
//!   in place, and their translations stay.
//! - *Mapped*: page tables, whose pages an instance must not have private (a private one is the
//!   mark of a guest that wrote there), and pages that are too many to copy.
//!
//! This changes page tables behind KVM's back. Additional mappings need no action: neither KVM's
//! shadows nor the CPU keep an entry that was not present. Whether any existing mapping has changed
//! is determined once for each seed, by the sender of the fork order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use faasw_abi::memory_map::{CODE, MAILBOX};
use faasw_abi::pages::PageSet;
use faasw_fri::messages::{Fork, Image, VcpuState};
use faasw_seedtree::Window;
use rustix::io::Errno;

use crate::instance::fork::{ForkDescriptors, ForkDifference, ImageSets, Instance, prefault_code};
use crate::instance::known::KnownPages;
use crate::instance::reset::ResetFailure;
use crate::instance::seed_memory::SeedMemory;
use crate::memory::guest_memory::{self, RoomyRam};
use crate::memory::mailbox::{self, Mailbox};
use crate::memory::mapping::Mapping;
use crate::memory::page_map::PageMap;
use crate::vm::{Slot, Vm};

/// Bytes reserved for compiled code. Making a slot takes 12 us and more while other VMs run, so the
/// slot is made before the code is there. Code that is larger gets another slot.
const CODE_ROOM: u64 = 16 << 20;

/// A zygote: an image of a seed whose guest has run once.
pub struct SpecialisedZygote {
    ram: RoomyRam,
    code: Mapping,
    /// The state between two requests.
    image: Instance,
    /// The private pages of its RAM.
    private: PageSet,
}

impl SpecialisedZygote {
    /// Makes `vm`, which has no memory yet, an image of a seed, and runs its guest once.
    ///
    /// # Errors
    /// Returns [`ResetFailure::System`] if the order is inconsistent, a system call fails or the
    /// guest's routine does not end as it should, and [`ResetFailure::Broken`] or
    /// [`ResetFailure::Changed`] if the guest did something that no guest of ours does.
    pub fn new(
        vm: &mut Vm,
        page_map: &PageMap,
        order: &Image,
        layers: Vec<OwnedFd>,
        mailbox: OwnedFd,
    ) -> Result<Self, ResetFailure> {
        let sets = ImageSets::of(order)?;
        let ram = RoomyRam::new(&mut vm.arena, &layers, order.ram_bytes, sets.windows)?;
        guest_memory::make_private(ram.mapping(), &sets.written);
        let mailbox = Mailbox::new(&mut vm.arena, mailbox)?;
        let code = vm.arena.reserve(CODE_ROOM)?;
        vm.place(ram.mapping(), mailbox.mapping(), Some(code))?;
        vm.restore(&order.state)?;
        vm.watch_registers();
        sets.prefault(vm);
        let source = SeedMemory::new(layers, sets.windows, sets.written.clone());
        let mut image = Instance {
            ram: ram.mapping(),
            mailbox,
            code: None,
            seed: Some(Box::new((source, order.state))),
            known: KnownPages::default(),
            is_done: true,
        };
        image.run_once(vm, &sets, &order.state)?;
        image.reset(vm, page_map, false)?;
        // A fork sets registers and nothing else.
        vm.complete_exit()?;
        Ok(Self {
            ram,
            code,
            private: page_map.all_written(image.ram)?,
            image,
        })
    }

    /// Makes the zygote an instance of its seed or of a descendant of that seed. `attached` are the
    /// layers that the descendant has in addition. The work does not depend on the depth of the
    /// descendant.
    ///
    /// # Errors
    /// Returns `INVAL` if the order is not for such a seed; otherwise the error of `mmap` or KVM.
    pub fn fork(
        self,
        vm: &mut Vm,
        order: &Fork,
        attached: ForkDescriptors,
    ) -> Result<Instance, Errno> {
        let Instance { mailbox, seed, .. } = self.image;
        let (parent, before) = *seed.ok_or(Errno::INVAL)?;
        let image = &order.image;
        let sets = ImageSets::of(image)?;
        let difference = ForkDifference::of(order)?;
        let SeedMemory {
            mut layers,
            windows,
            ..
        } = parent;
        if !descend(sets.windows, &windows, layers.len()) {
            return Err(Errno::INVAL);
        }
        layers.extend(attached.layers);
        let zygote_bytes = self.ram.mapping().bytes();
        let ram = if image.ram_bytes == zygote_bytes {
            self.ram.mapping()
        } else {
            self.ram.resize(image.ram_bytes)?
        };
        if ram.bytes() > zygote_bytes {
            vm.give(Slot::MoreRam, zygote_bytes, ram.from(zygote_bytes)?)?;
        }
        let gone = difference.mapped.union(&difference.filled);
        let mut source = SeedMemory::new(layers, sets.windows, sets.written.clone());
        for range in difference.mapped.iter() {
            source.map(ram, range)?;
        }
        source.lent = self.private.without(&gone);
        for range in difference.filled.iter() {
            source.fill(ram, range)?;
        }
        source.copied = difference.filled;
        let ahead = source.copied.union(&source.lent);
        guest_memory::make_private(ram, &sets.written.without(&ahead));
        let code = attached
            .code
            .map(|code| place_code(vm, self.code, code.as_fd(), order.code_bytes))
            .transpose()?;
        vm.turn(&before, &image.state)?;
        if difference.forgets_tables {
            if vm.page_walk().has_shadows() {
                vm.forget_tables()?;
            } else {
                vm.put_back(&image.state, true)?;
            }
        }
        sets.prefault(vm);
        prefault_code(vm, order, code)?;
        Ok(Instance {
            ram,
            mailbox,
            code,
            seed: Some(Box::new((source, image.state))),
            known: KnownPages::default(),
            is_done: false,
        })
    }
}

impl Instance {
    /// Lets the guest use the pages of `sets` in RAM, and the usual parts of the mailbox, without a
    /// change to anything but registers: the first run of a vCPU takes some time, and so do first
    /// translations.
    fn run_once(&self, vm: &mut Vm, sets: &ImageSets<'_>, state: &VcpuState) -> Result<(), Errno> {
        let pages = |set: &PageSet, from: u64| -> Vec<u64> {
            let pages = set.iter().flat_map(|range| range.pages());
            pages.map(|page| from + page.address().get()).collect()
        };
        let read = pages(&sets.read, 0);
        let mut written = pages(&sets.written, 0);
        written.extend(pages(&mailbox::usual(), MAILBOX));
        // The reset puts its own list there, too.
        let at = MAILBOX + self.mailbox.lend(&read)?;
        vm.touch(state, at, read.len() as u64)?;
        let at = MAILBOX + self.mailbox.lend(&written)?;
        vm.rewrite(state, at, written.len() as u64)
    }
}

/// Maps compiled code to `room`, which has a slot already, or elsewhere if it is too large.
fn place_code(
    vm: &mut Vm,
    room: Mapping,
    file: BorrowedFd<'_>,
    bytes: u64,
) -> Result<Mapping, Errno> {
    if bytes <= room.bytes() {
        return guest_memory::map_code(room, file, bytes);
    }
    let code = guest_memory::code(&mut vm.arena, file, bytes)?;
    vm.take(Slot::Code)?;
    vm.give(Slot::Code, CODE, code)?;
    Ok(code)
}

/// Whether `windows` can be those of a descendant of a seed with `depth` layers, which are mapped
/// by the windows `parent`. Each window of one of the parent's layers must lie in a window of the
/// parent with the same layer. Both lists are in order.
fn descend(windows: &[Window], parent: &[Window], depth: usize) -> bool {
    let mut parent = parent.iter().peekable();
    windows
        .iter()
        .filter(|window| (window.layer as usize) < depth)
        .all(|window| {
            while parent
                .next_if(|outer| outer.range.end <= window.range.start)
                .is_some()
            {}
            parent
                .peek()
                .is_some_and(|outer| outer.layer == window.layer && outer.range.holds(window.range))
        })
}
