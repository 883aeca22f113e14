//! A VM with a hand-made guest: identity-mapped tables, and a program in memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::memory_map::{
    CODE, EXCEPTION_STACK_TOP, GDT, IDT, MAILBOX, PAGE, PML4, REWRITE, RODATA_END, STACK_TOP,
    TABLE_ZONE, TABLE_ZONE_END, TOUCH, TSS,
};
use faasw_abi::pages::{Page, PageRange};
use faasw_fri::messages::VcpuState;
use faasw_sandbox::instance::known::KnownPages;
use faasw_sandbox::instance::reset::{
    self, PageTableState, ResetConditions, ResetFailure, ResetWork,
};
use faasw_sandbox::instance::seed_memory::SeedMemory;
use faasw_sandbox::memory::arena::Arena;
use faasw_sandbox::memory::guest_memory;
use faasw_sandbox::memory::mailbox::Mailbox;
use faasw_sandbox::memory::mapping::Mapping;
use faasw_sandbox::memory::page_map::PageMap;
use faasw_sandbox::vm::state::StateError;
use faasw_sandbox::vm::{Stop, Vm, VmTemplate};
use faasw_seedtree::Window;
use kvm_bindings::{kvm_dtable, kvm_regs, kvm_segment, kvm_sregs, kvm_xcrs};
use kvm_ioctls::Kvm;
use rustix::fs::MemfdFlags;
use rustix::mm::Advice;
use zerocopy::IntoBytes;

use crate::programs;

/// The size of the guest's RAM.
pub const RAM: u64 = 64 << 20;
/// The address of its program.
pub const PROGRAM: u64 = 0x80_0000;
/// The page in which a run finds its number, as a real guest finds its activation.
pub const NUMBER: u64 = 0x1000;
/// A virtual address without a mapping, below a table that exists.
pub const UNMAPPED: u64 = 0x80_0000_0000;
/// The table for that address. A program may map a frame there.
pub const LAST_TABLE: u64 = TABLE_ZONE + 2 * PAGE;
/// A virtual address whose table lies beyond the zone for tables, and that table: only in
/// [`seed_with_a_full_zone`].
pub const UNMAPPED_BEYOND: u64 = UNMAPPED + LARGE;
pub const TABLE_BEYOND: u64 = (20 << 20) + PAGE;

/// The large page of fresh memory that has a few pages in the write set.
pub const KEPT: u64 = 36 << 20;
const LARGE: u64 = 2 << 20;
const GIB: u64 = 1 << 30;
const TABLE: u64 = 0x67;
const LEAF: u64 = 0xe7;
const HOST_TABLES: [u64; 5] = [
    PML4 + PAGE,
    PML4 + 2 * PAGE,
    PML4 + 3 * PAGE,
    PML4 + 4 * PAGE,
    PML4 + 5 * PAGE,
];

/// The privilege level at which the guest starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Ring0,
    Ring3,
}

/// A VM, and the seed that it was forked from.
pub struct Machine {
    pub vm: Vm,
    pub ram: Mapping,
    pub source: SeedMemory,
    pub known: KnownPages,
    pub state: VcpuState,
    pub mailbox: Mailbox,
    pub level: Level,
    pub page_map: PageMap,
}

/// Makes resets find private pages as on kernels without `PAGEMAP_SCAN`. Tests run one after the
/// other.
pub static WITHOUT_SCAN: AtomicBool = AtomicBool::new(false);

fn page_map() -> PageMap {
    let map = PageMap::open().unwrap();
    if WITHOUT_SCAN.load(Ordering::Relaxed) {
        map.without_scan()
    } else {
        map
    }
}

pub fn pages(start: u64, count: u64) -> PageRange {
    PageRange::of_bytes(start, start + count * PAGE)
}

pub fn memory(name: &str, bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

fn put(file: &OwnedFd, at: u64, bytes: &[u8]) {
    assert_eq!(rustix::io::pwrite(file, bytes, at).unwrap(), bytes.len());
}

/// Writes tables that map all of RAM, the mailbox and the code slot one to one, and lead to an
/// empty table for [`UNMAPPED`].
fn write_tables(layer: &OwnedFd) {
    let set = |table: u64, index: u64, entry: u64| put(layer, table + index * 8, entry.as_bytes());
    let [directories, low, mailbox, code, _] = HOST_TABLES;
    set(PML4, 0, directories | TABLE);
    set(directories, 0, low | TABLE);
    for index in 0..RAM / LARGE {
        set(low, index, (index * LARGE) | LEAF);
    }
    set(directories, MAILBOX / GIB, mailbox | TABLE);
    for index in 0..MAILBOX_BYTES.div_ceil(LARGE) {
        set(mailbox, index, (MAILBOX + index * LARGE) | LEAF);
    }
    set(directories, CODE / GIB, code | TABLE);
    set(code, 0, CODE | LEAF);
    set(PML4, UNMAPPED >> 39, TABLE_ZONE | TABLE);
    set(TABLE_ZONE, 0, (TABLE_ZONE + PAGE) | TABLE);
    set(TABLE_ZONE + PAGE, 0, LAST_TABLE | TABLE);
    // An entry that maps nothing.
    set(LAST_TABLE, 511, 0);
}

/// Writes segments, a task with a ring-0 stack, and one gate, for breakpoints, that ring 3 may use.
/// Every other exception shuts the guest down.
fn write_descriptors(layer: &OwnedFd) {
    let task = 0x89 << 40 | 0x67 | (TSS & 0xff_ffff) << 16;
    let segments: [u64; 8] = [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0,
        0x00cf_f300_0000_ffff,
        0x00af_fb00_0000_ffff,
        task,
        0,
    ];
    put(layer, GDT, segments.as_bytes());
    put(layer, TSS + 4, EXCEPTION_STACK_TOP.as_bytes());
    let target = PROGRAM + programs::trip_gate();
    let gate: [u64; 2] = [
        target & 0xffff | 8 << 16 | 0xee << 40 | (target >> 16 & 0xffff) << 48,
        target >> 32,
    ];
    put(layer, IDT + 3 * 16, gate.as_bytes());
}

fn segment(selector: u16, type_: u8, level: u8, long: u8) -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: level,
        db: 1 - long,
        s: 1,
        l: long,
        g: 1,
        ..kvm_segment::default()
    }
}

fn first_state(level: Level) -> VcpuState {
    let ring = if level == Level::Ring0 { 0 } else { 3 };
    let data = segment(0x20 | u16::from(ring), 3, ring, 0);
    let sregs = kvm_sregs {
        cs: segment(0x28 | u16::from(ring), 11, ring, 1),
        ds: data,
        es: data,
        fs: data,
        gs: data,
        ss: data,
        ldt: kvm_segment {
            type_: 2,
            unusable: 1,
            ..kvm_segment::default()
        },
        tr: kvm_segment {
            base: TSS,
            limit: 0x67,
            selector: 0x30,
            type_: 11,
            present: 1,
            ..kvm_segment::default()
        },
        gdt: kvm_dtable {
            base: GDT,
            limit: 63,
            ..kvm_dtable::default()
        },
        idt: kvm_dtable {
            base: IDT,
            limit: 511,
            ..kvm_dtable::default()
        },
        cr0: 0x8005_0033,
        cr3: PML4,
        cr4: 1 << 5 | 1 << 9 | 1 << 10 | 1 << 18,
        efer: 1 << 8 | 1 << 10,
        apic_base: 0xfee0_0900,
        ..kvm_sregs::default()
    };
    let regs = kvm_regs {
        rip: PROGRAM,
        rsp: STACK_TOP,
        rflags: 1 << 1 | 3 << 12,
        ..kvm_regs::default()
    };
    let mut xcrs = kvm_xcrs {
        nr_xcrs: 1,
        ..kvm_xcrs::default()
    };
    xcrs.xcrs[0].value = if has_avx() { 0b111 } else { 0b011 };
    let mut state = VcpuState {
        regs: [0; 144],
        sregs: [0; 312],
        xcrs: [0; 392],
        xsave: [0; 4096],
    };
    state.regs.copy_from_slice(regs.as_bytes());
    state.sregs.copy_from_slice(sregs.as_bytes());
    state.xcrs.copy_from_slice(xcrs.as_bytes());
    state.xsave[0..2].copy_from_slice(&0x037f_u16.to_le_bytes());
    state.xsave[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    state
}

/// Whether the machine is QEMU's emulation, which passes a guest's `xsetbv` through to the CPU of
/// the guest's host.
pub fn is_emulated() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    leaf.ebx.to_le_bytes() == *b"TCGT"
}

pub fn has_avx() -> bool {
    std::arch::is_x86_feature_detected!("avx")
}

pub fn new_vm() -> Vm {
    let template = VmTemplate::new(Kvm::new().unwrap()).unwrap();
    let progress = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    Vm::new(&template, progress).unwrap()
}

/// Returns a child over a part of its parent, as in a tree of seeds. The table entry for
/// [`UNMAPPED`] leads to `frames`, the parent's first.
pub fn seed(program: &[u8], frames: [u64; 2]) -> SeedMemory {
    let [layer, child] = [memory("layer", RAM), memory("child", RAM)];
    write_tables(&layer);
    write_descriptors(&layer);
    put(&layer, PROGRAM, program);
    put(&layer, REWRITE, programs::rewrite());
    put(&layer, TOUCH, programs::touch());
    // Every window has data that a reset could forget.
    for at in (RODATA_END..RAM).step_by(1 << 20).skip(1) {
        put(&layer, at + 24, &at.to_le_bytes());
    }
    for at in (24 << 20..44 << 20).step_by(1 << 20) {
        put(
            &child,
            at + 24,
            &[at, at + 1].map(u64::to_le_bytes).concat(),
        );
    }
    // A page that the child has emptied.
    put(&layer, (26 << 20) + PAGE, &[1; 64]);
    for (layer, frame) in [&layer, &child].into_iter().zip(frames) {
        let entry = if frame == 0 { 0 } else { frame | TABLE };
        put(layer, LAST_TABLE, entry.as_bytes());
    }
    let window = |start, end, layer| Window {
        range: PageRange::of_bytes(start, end),
        layer,
    };
    SeedMemory::new(
        vec![layer, child],
        &[
            window(0, LAST_TABLE, 0),
            window(LAST_TABLE, LAST_TABLE + PAGE, 1),
            window(LAST_TABLE + PAGE, 24 << 20, 0),
            window(24 << 20, 28 << 20, 1),
            window(28 << 20, 32 << 20, 0),
            window(40 << 20, 44 << 20, 1),
        ],
        [pages(NUMBER, 1), pages(9 << 20, 4), pages(KEPT, 4)]
            .into_iter()
            .collect(),
    )
}

/// Returns a seed that has taken the last page for tables, and one beyond, which maps nothing.
pub fn seed_with_a_full_zone(program: &[u8]) -> SeedMemory {
    let source = seed(program, [0, 0]);
    let layer = &source.layers[0];
    put(layer, TABLE_ZONE_END - PAGE, 1_u64.as_bytes());
    let directory = TABLE_ZONE + PAGE;
    put(layer, directory + 8, (TABLE_BEYOND | TABLE).as_bytes());
    source
}

/// Returns a child of the child of [`seed`]: half of that child's last window is its own.
pub fn grandchild(program: &[u8]) -> SeedMemory {
    let SeedMemory {
        mut layers,
        mut windows,
        write_set,
        ..
    } = seed(program, [0, 0]);
    let own = memory("grandchild", RAM);
    for at in [42 << 20, 43 << 20] {
        put(
            &own,
            at + 24,
            &[at + 2, at + 3].map(u64::to_le_bytes).concat(),
        );
    }
    layers.push(own);
    let last = windows.last_mut().unwrap();
    let range = PageRange::of_bytes(42 << 20, 44 << 20);
    last.range.end = range.start;
    windows.push(Window { range, layer: 2 });
    SeedMemory::new(layers, &windows, write_set)
}

/// Keeps `khugepaged` from completing the large page that an instance keeps a part of: that would
/// happen at any time, and tests count pages.
pub fn keep_small(ram: Mapping) {
    advise(ram, Advice::LinuxNoHugepage);
}

fn advise(ram: Mapping, advice: Advice) {
    let at = ram.from(KEPT).unwrap().address() as usize;
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: advice on memory of this VM.
    unsafe { rustix::mm::madvise(at, LARGE as usize, advice) }.unwrap();
}

impl Machine {
    /// Forks a VM that is about to run `program` from a seed.
    pub fn new(level: Level, program: &[u8]) -> Self {
        Self::forked(level, seed(program, [0, 0]))
    }

    /// Forks a VM from a seed.
    pub fn forked(level: Level, source: SeedMemory) -> Self {
        Self::forked_with(level, source, Advice::LinuxNoHugepage)
    }

    /// Does the same, with this advice for the large page that an instance keeps a part of.
    pub fn forked_with(level: Level, source: SeedMemory, advice: Advice) -> Self {
        // The arena leaves its ranges mapped when it is dropped.
        let mut arena = Arena::default();
        let ram =
            guest_memory::private_ram(&mut arena, &source.layers, RAM, &source.windows).unwrap();
        advise(ram, advice);
        guest_memory::make_private(ram, &source.write_set);
        let mailbox_file = memory("mailbox", MAILBOX_BYTES);
        let mailbox = Mailbox::new(&mut arena, mailbox_file).unwrap();
        let code_file = memory("code", LARGE);
        let code = guest_memory::code(&mut arena, code_file.as_fd(), LARGE).unwrap();
        let mut vm = new_vm();
        vm.place(ram, mailbox.mapping(), Some(code)).unwrap();
        vm.restore(&first_state(level)).unwrap();
        // In KVM's form: it fills in limits and unused fields of segments.
        let state = vm.save().unwrap();
        vm.watch_registers();
        Self {
            vm,
            ram,
            source,
            known: KnownPages::default(),
            state,
            mailbox,
            level,
            page_map: page_map(),
        }
    }

    /// Runs the guest as number `number` until it rings; `None` if it shut down.
    pub fn run(&mut self, number: u64) -> Option<u32> {
        let file = memory("number", NUMBER + PAGE);
        put(&file, NUMBER, &number.to_le_bytes());
        self.ram.fill(file.as_fd(), pages(NUMBER, 1)).unwrap();
        match self.vm.run().unwrap() {
            Stop::Rang(value) => Some(value),
            Stop::Shutdown => None,
            Stop::Other(reason) => panic!("KVM exit reason {reason}"),
        }
    }

    pub fn reset_memory(&mut self) -> Result<ResetWork, ResetFailure> {
        let manner = ResetConditions {
            page_walk: self.vm.page_walk(),
            counts_unused: true,
            faults: self.vm.fault_count(),
        };
        self.source.open_view(&mut self.vm);
        let restored = reset::memory(
            &self.page_map,
            &self.source,
            self.ram,
            &mut self.known,
            manner,
        )?;
        self.source.settle(self.ram)?;
        Ok(restored)
    }

    pub fn reset_vcpu(&mut self, restored: &ResetWork) -> Result<(), StateError> {
        // A test's guest may start in ring 0, and so without entering it.
        let ring_0 = restored.ring_0_entered || self.level == Level::Ring0;
        self.vm.check(&self.state, ring_0)?;
        let tables = &restored.tables;
        reset::translations(&mut self.vm, &self.state, &self.mailbox, tables)?;
        self.mailbox.wipe()?;
        Ok(self
            .vm
            .put_back(&self.state, *tables != PageTableState::Untouched)?)
    }

    pub fn reset(&mut self) -> ResetWork {
        let restored = self.reset_memory().unwrap();
        self.reset_vcpu(&restored).unwrap();
        restored
    }

    /// Asserts that every byte of memory equals the seed's.
    pub fn assert_memory(&self) {
        for page in (0..RAM).step_by(PAGE as usize) {
            // By hand, because the windows above are what is tested.
            let layer = match page >> 20 {
                _ if page == LAST_TABLE => Some(1),
                0..24 | 28..32 => Some(0),
                24..28 | 40..42 => Some(1),
                // The child's, or the grandchild's.
                42..44 => Some(self.source.layers.len() - 1),
                _ => None,
            };
            let mut expected = [0; PAGE as usize];
            if let Some(layer) = layer {
                rustix::io::pread(&self.source.layers[layer], &mut expected, page).unwrap();
            }
            let now = self.ram.page(pages(page, 1).start).unwrap();
            assert!(now == expected, "page {page:#x}");
        }
        for page in (0..MAILBOX_BYTES).step_by(PAGE as usize) {
            let now = self.mailbox.mapping().page(pages(page, 1).start).unwrap();
            assert!(now == [0; PAGE as usize], "mailbox page {page:#x}");
        }
    }

    /// Returns the first page of the mailbox.
    pub fn output(&self) -> [u8; PAGE as usize] {
        self.mailbox.mapping().page(Page::new(0)).unwrap()
    }
}
