//! Becoming an instance of a seed, and what an instance has.

use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::memory_map::{CODE, RAM_MAX};
use faasw_fri::messages::{Fork, FriExtent, FriWindow, Image, VcpuState};
use rustix::io::Errno;

use crate::guest_memory::{self, Mapping};
use crate::page_map::PageMap;
use crate::reset::{self, Manner, Restored, Tables, Trouble};
use crate::source::Source;
use crate::stretches::{split, union};
use crate::vm::Vm;

/// What a shell has once it is an instance.
pub struct Instance {
    /// Its RAM.
    pub ram: Mapping,
    /// Its mailbox.
    pub mailbox: Mapping,
    /// The file that the mailbox is mapped from.
    pub mailbox_file: OwnedFd,
    /// What it came from; nothing where a seed is being made in its root layer.
    pub seed: Option<Box<(Source, VcpuState)>>,
    /// It is done, and nothing is known against it.
    pub is_done: bool,
}

/// The descriptors of a fork.
pub struct Attached {
    /// The mailbox's file, unless the shell has one already.
    pub mailbox: Option<OwnedFd>,
    /// Compiled code.
    pub code: Option<OwnedFd>,
    /// Layers, root first.
    pub layers: Vec<OwnedFd>,
}

/// What an [`Image`] has of sets and windows, cut to what counts.
#[derive(Clone, Copy)]
pub struct Sets<'a> {
    /// Where the layers are mapped.
    pub windows: &'a [FriWindow],
    /// What will be written.
    pub written: &'a [FriExtent],
    /// What will be read.
    pub read: &'a [FriExtent],
}

impl<'a> Sets<'a> {
    /// Those of `image`.
    ///
    /// # Errors
    /// `INVAL` when it announces more than it has room for.
    pub fn of(image: &'a Image) -> Result<Self, Errno> {
        if image.ram_bytes > RAM_MAX {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            windows: counted(&image.windows, image.window_count)?,
            written: counted(&image.write_set, image.write_set_count)?,
            read: counted(&image.read_set, image.read_set_count)?,
        })
    }

    /// Fills second-level tables. First for what is private and writable by now, then
    /// for what stays shared: a page that is filled in before it is private faults twice.
    pub fn prefault(self, vm: &Vm) {
        for set in [self.written, self.read] {
            for stretch in set {
                vm.prefault(stretch.start, stretch.end.saturating_sub(stretch.start));
            }
        }
    }
}

/// Where a seed differs from what a shell was preset with.
#[derive(Clone, Copy)]
pub struct Difference<'a> {
    /// Its contents are to be copied.
    pub filled: &'a [FriExtent],
    /// Its last layer is to be mapped.
    pub mapped: &'a [FriExtent],
    /// Translations are others, and not only more.
    pub forgets_tables: bool,
}

impl<'a> Difference<'a> {
    /// That of `order`.
    ///
    /// # Errors
    /// `INVAL` when it announces more than it has room for.
    pub fn of(order: &'a Fork) -> Result<Self, Errno> {
        Ok(Self {
            filled: counted(&order.filled, order.filled_count)?,
            mapped: counted(&order.mapped, order.mapped_count)?,
            forgets_tables: order.forgets_tables != 0,
        })
    }
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
        let mailbox_file = attached.mailbox.ok_or(Errno::INVAL)?;
        let ram = if is_private {
            let ram =
                guest_memory::private_ram(&mut vm.arena, &layers, image.ram_bytes, sets.windows)?;
            guest_memory::make_private(ram, sets.written);
            ram
        } else {
            let layer = layers.first().ok_or(Errno::INVAL)?;
            guest_memory::shared_ram(&mut vm.arena, layer.as_fd(), image.ram_bytes)?
        };
        let mailbox = guest_memory::mailbox(&mut vm.arena, mailbox_file.as_fd())?;
        let code = attached
            .code
            .map(|code| guest_memory::code(&mut vm.arena, code.as_fd(), order.code_bytes))
            .transpose()?;
        vm.place(ram, mailbox, code)?;
        vm.restore(&image.state)?;
        if is_private {
            vm.watch_registers();
            sets.prefault(vm);
            vm.prefault(CODE, order.code_bytes);
        }
        let seed = is_private.then(|| {
            let source = Source::new(layers, sets.windows, sets.written);
            Box::new((source, image.state))
        });
        Ok(Self {
            ram,
            mailbox,
            mailbox_file,
            seed,
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
            shadowed: !vm.can_prefault(),
            counts_unused,
        };
        let restored = reset::memory(page_map, source, self.ram, manner)?;
        source.settle(self.ram)?;
        vm.check(state, restored.ring_0_entered)?;
        reset::translations(vm, state, self.mailbox, &restored.tables)?;
        reset::mailbox(&self.mailbox_file, self.mailbox)?;
        vm.put_back(state, restored.tables != Tables::Untouched)?;
        Ok(restored)
    }

    /// The pages that it has made its own, in order, as far as `page_map` can tell: of
    /// those that were made private ahead only what it changed.
    pub fn written(&self, page_map: &PageMap) -> Vec<FriExtent> {
        let private = page_map.all_written(self.ram).unwrap_or_default();
        let private = private.iter().map(|extent| FriExtent {
            start: extent.start,
            end: extent.end,
        });
        let Some((source, _)) = self.seed.as_deref() else {
            return private.collect();
        };
        let ahead = union(&source.copied, &source.lent);
        let mut written = Vec::new();
        for (piece, is_ahead) in private.flat_map(|stretch| split(stretch, &ahead)) {
            if !is_ahead {
                written.push(piece);
                continue;
            }
            let changes = source.changes(self.ram, piece).unwrap_or_default();
            written.extend(
                changes
                    .iter()
                    .filter_map(|(piece, differs)| differs.then_some(*piece)),
            );
        }
        written
    }
}

/// The first `count` of `all`.
fn counted<T>(all: &[T], count: u64) -> Result<&[T], Errno> {
    usize::try_from(count)
        .ok()
        .and_then(|count| all.get(..count))
        .ok_or(Errno::INVAL)
}
