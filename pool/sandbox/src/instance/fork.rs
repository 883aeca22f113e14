//! Making a sandbox an instance of a seed, and the parts of an instance.

use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::memory_map::{CODE, RAM_MAX};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_fri::messages::{Fork, Image, VcpuState};
use faasw_seedtree::Window;
use rustix::io::Errno;

use crate::instance::known::KnownPages;
use crate::instance::reset::{self, PageTableState, ResetConditions, ResetFailure, ResetWork};
use crate::instance::seed_memory::SeedMemory;
use crate::memory::guest_memory;
use crate::memory::mailbox::Mailbox;
use crate::memory::mapping::Mapping;
use crate::memory::page_map::PageMap;
use crate::vm::Vm;

/// The parts of a sandbox that is an instance.
pub struct Instance {
    /// The guest's RAM.
    pub ram: Mapping,
    /// The mailbox.
    pub mailbox: Mailbox,
    /// The compiled code, if the seed has any.
    pub code: Option<Mapping>,
    /// The seed and its vCPU state; `None` while a seed is being made in its root layer.
    pub seed: Option<Box<(SeedMemory, VcpuState)>>,
    /// The private pages that are known without a search.
    pub known: KnownPages,
    /// The guest has rung that it is done; only then is a reset accepted.
    pub is_done: bool,
}

/// The descriptors of a fork.
pub struct ForkDescriptors {
    /// The mailbox's file, unless the sandbox has one already.
    pub mailbox: Option<OwnedFd>,
    /// Compiled code.
    pub code: Option<OwnedFd>,
    /// Layers, root first.
    pub layers: Vec<OwnedFd>,
}

/// Fills second-level tables for the pages of the code that the order lists as present and in use.
/// If the order asks for small pages, the code is mapped in small pages.
///
/// # Errors
/// Returns `INVAL` if the list is not a set of pages of the code.
pub fn prefault_code(vm: &Vm, order: &Fork, mapped: Option<Mapping>) -> Result<(), Errno> {
    if let Some(mapped) = mapped.filter(|_| order.has_small_code.is_yes()) {
        guest_memory::in_small_pages(mapped);
    }
    let code = PageRange::around(0, order.code_bytes);
    let present = PageSet::from_reported(order.code_set.as_slice(), code).ok_or(Errno::INVAL)?;
    for range in present.iter() {
        vm.prefault(CODE + range.start.address().get(), range.bytes());
    }
    Ok(())
}

/// The page sets and windows of an [`Image`].
pub struct ImageSets<'a> {
    /// The windows through which layers are mapped.
    pub windows: &'a [Window],
    /// Pages that the guest is expected to write.
    pub written: PageSet,
    /// Pages that the guest is expected to read.
    pub read: PageSet,
}

impl<'a> ImageSets<'a> {
    /// Returns the sets of `image`.
    ///
    /// # Errors
    /// Returns `INVAL` if the image has more RAM than [`RAM_MAX`], or ranges that do not make a
    /// set.
    pub fn of(image: &'a Image) -> Result<Self, Errno> {
        if image.ram_bytes > RAM_MAX {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            windows: image.windows.as_slice(),
            written: set(image.write_set.as_slice())?,
            read: set(image.read_set.as_slice())?,
        })
    }

    /// Fills second-level tables: first for the pages that are private and writable by now, then
    /// for those that stay shared. A page that is filled in before it is private faults twice.
    pub fn prefault(&self, vm: &Vm) {
        for range in self.written.iter().chain(self.read.iter()) {
            vm.prefault(range.start.address().get(), range.bytes());
        }
    }
}

/// The differences between a seed and the image that a zygote holds.
pub struct ForkDifference {
    /// Pages whose contents are copied.
    pub filled: PageSet,
    /// Pages to which the seed's layers are mapped, by its windows.
    pub mapped: PageSet,
    /// Translations change or disappear; otherwise the seed only adds some.
    pub forgets_tables: bool,
}

impl ForkDifference {
    /// Returns the difference that `order` lists.
    ///
    /// # Errors
    /// Returns `INVAL` if its ranges do not make sets.
    pub fn of(order: &Fork) -> Result<Self, Errno> {
        Ok(Self {
            filled: set(order.filled.as_slice())?,
            mapped: set(order.mapped.as_slice())?,
            forgets_tables: order.forgets_tables.is_yes(),
        })
    }
}

/// Returns the set that the node sent as ranges, which must be in order. Where the ranges lie is
/// checked at each use.
fn set(ranges: &[PageRange]) -> Result<PageSet, Errno> {
    PageSet::from_reported(ranges, PageRange::ALL).ok_or(Errno::INVAL)
}

impl Instance {
    /// Makes `vm`, which has no memory yet, an instance of a seed (the sfork of Catalyzer, §4: map
    /// the template's memory copy-on-write, restore its state). Without `is_private` its RAM is the
    /// first layer itself.
    ///
    /// # Errors
    /// Returns `INVAL` if the order is inconsistent or a descriptor is missing; otherwise the error
    /// of `mmap` or KVM.
    pub fn fork(
        vm: &mut Vm,
        order: &Fork,
        attached: ForkDescriptors,
        is_private: bool,
    ) -> Result<Self, Errno> {
        let image = &order.image;
        let sets = ImageSets::of(image)?;
        let layers = attached.layers;
        let mailbox = attached.mailbox.ok_or(Errno::INVAL)?;
        let ram = if is_private {
            let ram =
                guest_memory::private_ram(&mut vm.arena, &layers, image.ram_bytes, sets.windows)?;
            guest_memory::make_private(ram, &sets.written);
            ram
        } else {
            let layer = layers.first().ok_or(Errno::INVAL)?;
            guest_memory::shared_ram(&mut vm.arena, layer.as_fd(), image.ram_bytes)?
        };
        let mailbox = Mailbox::new(&mut vm.arena, mailbox)?;
        let code = attached
            .code
            .map(|code| guest_memory::code(&mut vm.arena, code.as_fd(), order.code_bytes))
            .transpose()?;
        vm.place(ram, mailbox.mapping(), code)?;
        vm.restore(&image.state)?;
        if is_private {
            vm.watch_registers();
            sets.prefault(vm);
            prefault_code(vm, order, code)?;
        }
        let seed = is_private.then(|| {
            let source = SeedMemory::new(layers, sets.windows, sets.written);
            Box::new((source, image.state))
        });
        Ok(Self {
            ram,
            mailbox,
            code,
            seed,
            known: KnownPages::default(),
            is_done: false,
        })
    }

    /// Maps the seed once more for resets to read from, if there is address space for it.
    pub fn open_view(&mut self, vm: &mut Vm) {
        if let Some((source, _)) = self.seed.as_deref_mut() {
            source.open_view(vm);
        }
    }

    /// Resets the instance to the state before its guest ran. The guest must be stopped.
    ///
    /// # Errors
    /// Returns the reason for which the reset failed. The instance cannot be used afterwards.
    pub fn reset(
        &mut self,
        vm: &mut Vm,
        page_map: &PageMap,
        counts_unused: bool,
    ) -> Result<ResetWork, ResetFailure> {
        let Some((source, state)) = self.seed.as_deref_mut() else {
            return Err(Errno::INVAL.into());
        };
        let manner = ResetConditions {
            page_walk: vm.page_walk(),
            counts_unused,
            faults: vm.fault_count(),
        };
        let restored = reset::memory(page_map, source, self.ram, &mut self.known, manner)?;
        source.settle(self.ram)?;
        source.close_layers();
        vm.check(state, restored.ring_0_entered)?;
        reset::translations(vm, state, &self.mailbox, &restored.tables)?;
        self.mailbox.wipe()?;
        vm.put_back(state, restored.tables != PageTableState::Untouched)?;
        Ok(restored)
    }

    /// Returns the pages that the instance has written, as far as `page_map` shows them. Pages that
    /// were made private in advance count only if their contents have changed.
    pub fn written(&self, page_map: &PageMap) -> PageSet {
        let private = page_map.all_written(self.ram).unwrap_or_default();
        let Some((source, _)) = self.seed.as_deref() else {
            return private;
        };
        let ahead = source.copied.union(&source.lent);
        let mut written = private.without(&ahead);
        for piece in private.intersection(&ahead).iter() {
            let changes = source.changes(self.ram, piece).unwrap_or_default();
            written = written.union(&changes);
        }
        written
    }
}
