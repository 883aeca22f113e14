//! Becoming an instance of a seed, and what an instance has.

use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::memory_map::{CODE, RAM_MAX};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_fri::messages::{Fork, Image, VcpuState};
use faasw_seedtree::Window;
use rustix::io::Errno;

use crate::instance::known::Known;
use crate::instance::reset::{self, Manner, Restored, Tables, Trouble};
use crate::instance::source::Source;
use crate::memory::guest_memory;
use crate::memory::mailbox::Mailbox;
use crate::memory::mapping::Mapping;
use crate::memory::page_map::PageMap;
use crate::vm::Vm;

/// What a sandbox has once it is an instance.
pub struct Instance {
    /// Its RAM.
    pub ram: Mapping,
    /// Its mailbox.
    pub mailbox: Mailbox,
    /// Its compiled code, where it has any.
    pub code: Option<Mapping>,
    /// What it came from; nothing where a seed is being made in its root layer.
    pub seed: Option<Box<(Source, VcpuState)>>,
    /// What is known of its private pages.
    pub known: Known,
    /// It is done, and nothing is known against it.
    pub is_done: bool,
}

/// The descriptors of a fork.
pub struct Attached {
    /// The mailbox's file, unless the sandbox has one already.
    pub mailbox: Option<OwnedFd>,
    /// Compiled code.
    pub code: Option<OwnedFd>,
    /// Layers, root first.
    pub layers: Vec<OwnedFd>,
}

/// Fills second-level tables for what of the code is told to be there and of use, in small pages if
/// the order says so.
///
/// # Errors
/// `INVAL` when that is no set of pages of the code.
pub fn prefault_code(vm: &Vm, order: &Fork, mapped: Option<Mapping>) -> Result<(), Errno> {
    if let Some(mapped) = mapped.filter(|_| order.has_small_code.is_yes()) {
        guest_memory::in_small_pages(mapped);
    }
    let code = PageRange::around(0, order.code_bytes);
    let told = PageSet::of_all_told(order.code_set.told(), code).ok_or(Errno::INVAL)?;
    for range in told.iter() {
        vm.prefault(CODE + range.start.address().get(), range.bytes());
    }
    Ok(())
}

/// What an [`Image`] has of sets and windows.
pub struct Sets<'a> {
    /// Where the layers are mapped.
    pub windows: &'a [Window],
    /// What will be written.
    pub written: PageSet,
    /// What will be read.
    pub read: PageSet,
}

impl<'a> Sets<'a> {
    /// Those of `image`.
    ///
    /// # Errors
    /// `INVAL` when it has more RAM than there can be, or sets that are none.
    pub fn of(image: &'a Image) -> Result<Self, Errno> {
        if image.ram_bytes > RAM_MAX {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            windows: image.windows.told(),
            written: set(image.write_set.told())?,
            read: set(image.read_set.told())?,
        })
    }

    /// Fills second-level tables. First for what is private and writable by now, then
    /// for what stays shared: a page that is filled in before it is private faults twice.
    pub fn prefault(&self, vm: &Vm) {
        for range in self.written.iter().chain(self.read.iter()) {
            vm.prefault(range.start.address().get(), range.bytes());
        }
    }
}

/// Where a seed differs from what a sandbox was preset with.
pub struct Difference {
    /// Its contents are to be copied.
    pub filled: PageSet,
    /// Its layers are to be mapped, as its windows say.
    pub mapped: PageSet,
    /// Translations are others, and not only more.
    pub forgets_tables: bool,
}

impl Difference {
    /// That of `order`.
    ///
    /// # Errors
    /// `INVAL` when its ranges are no sets.
    pub fn of(order: &Fork) -> Result<Self, Errno> {
        Ok(Self {
            filled: set(order.filled.told())?,
            mapped: set(order.mapped.told())?,
            forgets_tables: order.forgets_tables.is_yes(),
        })
    }
}

/// What the node told, which knows that it has to be in order; where it lies is looked at
/// wherever it is used.
fn set(told: &[PageRange]) -> Result<PageSet, Errno> {
    PageSet::of_all_told(told, PageRange::ALL).ok_or(Errno::INVAL)
}

impl Instance {
    /// Makes `vm`, which has no memory yet, an instance of a seed (the sfork of
    /// Catalyzer, §5: map the template's memory copy-on-write, restore its state).
    /// Without `is_private` its RAM is the first layer itself.
    ///
    /// # Errors
    /// `INVAL` when the order makes no sense; the system's.
    pub fn fork(
        vm: &mut Vm,
        order: &Fork,
        attached: Attached,
        is_private: bool,
    ) -> Result<Self, Errno> {
        let image = &order.image;
        let sets = Sets::of(image)?;
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
            let source = Source::new(layers, sets.windows, sets.written);
            Box::new((source, image.state))
        });
        Ok(Self {
            ram,
            mailbox,
            code,
            seed,
            known: Known::default(),
            is_done: false,
        })
    }

    /// Has resets read its seed where it is mapped, if there is room.
    pub fn open_view(&mut self, vm: &mut Vm) {
        if let Some((source, _)) = self.seed.as_deref_mut() {
            source.open_view(vm);
        }
    }

    /// Becomes as it was before its guest ran, which stands still.
    ///
    /// # Errors
    /// Why it cannot; it is of no use then.
    pub fn reset(
        &mut self,
        vm: &mut Vm,
        page_map: &PageMap,
        counts_unused: bool,
    ) -> Result<Restored, Trouble> {
        let Some((source, state)) = self.seed.as_deref_mut() else {
            return Err(Errno::INVAL.into());
        };
        let manner = Manner {
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
        vm.put_back(state, restored.tables != Tables::Untouched)?;
        Ok(restored)
    }

    /// The pages that it has made its own, as far as `page_map` can tell: of those that
    /// were made private ahead only what it changed.
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
