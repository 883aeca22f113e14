//! Specialised zygotes: an instance that is forked in two steps equals one that is forked in
//! one step, bit for bit.

use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{PageRange, PageSet, Ranges};
use faasw_fri::messages::{Answer, Fork, Image, Origin, VcpuState};
use faasw_sandbox::instance::fork::{ForkDescriptors, Instance};
use faasw_sandbox::instance::seed_memory::SeedMemory;
use faasw_sandbox::instance::zygote::SpecialisedZygote;
use faasw_sandbox::memory::page_map::PageMap;
use faasw_sandbox::vm::Stop;
use faasw_seedtree::{Window, Windows};
use rustix::io::Errno;

use crate::machine::{self, LAST_TABLE, Level, Machine, NUMBER, RAM, UNMAPPED, pages};
use crate::{DONE, private, private_pages, programs};

fn ranges<const MOST: usize>(list: &[PageRange]) -> Ranges<MOST> {
    let set: PageSet = list.iter().copied().collect();
    Ranges::of(&set).unwrap()
}

fn image(windows: &[Window], written: &PageSet, state: VcpuState) -> Image {
    let mut image = Image::empty(RAM, &state);
    image.windows = Windows::of(windows).unwrap();
    image.write_set = Ranges::of(written).unwrap();
    image
}

/// Returns the order with the differences of the child that [`machine::seed`] makes.
fn order(source: &SeedMemory, state: VcpuState) -> Fork {
    let filled = [pages(26 << 20, 2), pages(27 << 20, 1), pages(41 << 20, 1)];
    let mapped = [
        pages(LAST_TABLE, 1),
        pages(24 << 20, 512),
        pages(40 << 20, 1),
        pages(42 << 20, 512),
    ];
    Fork {
        code_bytes: LARGE_PAGE,
        origin: Origin::Zygote,
        image: image(&source.windows, &source.write_set, state),
        filled: ranges(&filled),
        mapped: ranges(&mapped),
        forgets_tables: Answer::No,
        code_set: ranges(&[PageRange::of_bytes(0, LARGE_PAGE)]),
        reports_addresses: Answer::No,
        has_small_code: Answer::No,
    }
}

/// Returns a parent's state in which registers differ from those in `state`.
fn other(state: &VcpuState) -> VcpuState {
    let mut other = *state;
    for word in other.regs[..16 * 8]
        .chunks_exact_mut(8)
        .filter(|word| word[7] == 0)
    {
        word[5] ^= 0x55;
    }
    // SSE's registers are in use, and not zero.
    other.xsave[512] |= 2;
    other.xsave[160..416].fill(0xa5);
    other
}

/// Makes a sandbox that is specialised for the parent of `source`.
fn specialised(machine: &mut Machine, parent: VcpuState, read: &[PageRange]) -> SpecialisedZygote {
    let source = &machine.source;
    let windows = [Window {
        range: PageRange::of_bytes(0, 32 << 20),
        layer: 0,
    }];
    // Some of these pages differ in the child, some are usual there, some are neither.
    let written = [
        pages(NUMBER, 1),
        pages(9 << 20, 2),
        pages(20 << 20, 80),
        pages(25 << 20, 3),
        pages(26 << 20, 3),
        pages(36 << 20, 1),
        pages(41 << 20, 2),
    ];
    let mut image = image(&windows, &written.into_iter().collect(), parent);
    image.read_set = ranges(read);
    let layers = vec![source.layers[0].try_clone().unwrap()];
    let mailbox = machine::memory("mailbox", MAILBOX_BYTES);
    machine.vm = machine::new_vm();
    let map = PageMap::open().unwrap();
    SpecialisedZygote::new(&mut machine.vm, &map, &image, layers, mailbox).unwrap()
}

/// Returns all layers that the zygote's image lacks.
fn attached(source: &SeedMemory) -> ForkDescriptors {
    let later = source.layers.iter().skip(1);
    ForkDescriptors {
        mailbox: None,
        code: Some(machine::memory("code", LARGE_PAGE)),
        layers: later.map(|layer| layer.try_clone().unwrap()).collect(),
    }
}

/// Makes the machine the instance that `zygote` becomes by `order`.
fn fork(machine: &mut Machine, zygote: SpecialisedZygote, order: &Fork) -> Result<(), Errno> {
    let attached = attached(&machine.source);
    let Instance {
        ram,
        mailbox,
        seed,
        known,
        ..
    } = zygote.fork(&mut machine.vm, order, attached)?;
    let (source, state) = *seed.unwrap();
    machine::keep_small(ram);
    machine.ram = ram;
    machine.mailbox = mailbox;
    machine.source = source;
    machine.known = known;
    machine.state = state;
    Ok(())
}

/// Returns a machine that was made by a specialised zygote; [`Machine::new`] forks a bare one.
pub fn two_steps(program: &[u8]) -> Machine {
    let mut machine = Machine::new(Level::Ring3, program);
    let state = machine.state;
    let zygote = specialised(&mut machine, other(&state), &[]);
    let order = order(&machine.source, state);
    fork(&mut machine, zygote, &order).unwrap();
    machine
}

pub fn a_fork_in_two_steps_is_a_fork() {
    let mut bare = Machine::new(Level::Ring3, programs::everything());
    let mut machine = two_steps(programs::everything());
    machine.assert_memory();
    bare.assert_memory();
    for round in 0..3 {
        assert_eq!((machine.run(round), bare.run(round)), (DONE, DONE));
        // Every register that the guest can read, vectors too.
        assert_eq!(machine.output()[..2048], bare.output()[..2048]);
        let restored = machine.reset();
        machine.assert_memory();
        assert!(restored.released > 10_000, "{restored:?}");
        assert!(private_pages(&machine) < 110, "{:?}", private(&machine));
        bare.reset();
    }
    let (now, wanted) = (machine.vm.save().unwrap(), bare.vm.save().unwrap());
    assert_eq!(now.regs, wanted.regs);
    assert_eq!(now.sregs, wanted.sregs);
    assert_eq!(now.xcrs, wanted.xcrs);
    assert_eq!(now.xsave, wanted.xsave);
}

pub fn a_fork_two_steps_down_the_tree_is_a_fork() {
    let source = machine::grandchild(programs::poke());
    let mut machine = Machine::forked(Level::Ring3, source);
    let state = machine.state;
    let zygote = specialised(&mut machine, other(&state), &[]);
    let mut order = order(&machine.source, state);
    // The last range is of both layers.
    order.mapped = ranges(&[
        pages(LAST_TABLE, 1),
        pages(24 << 20, 512),
        pages(40 << 20, 1024),
    ]);
    fork(&mut machine, zygote, &order).unwrap();
    machine.assert_memory();
    for address in [26 << 20, 41 << 20, 42 << 20, 43 << 20] {
        assert_eq!(machine.run(address), DONE);
        machine.reset();
        machine.assert_memory();
    }
}

pub fn nothing_of_the_run_ahead_is_left() {
    let mut machine = two_steps(programs::poke());
    // Before anything has run in it, as after a bare fork.
    let mut bare = Machine::new(Level::Ring3, programs::poke());
    let (now, wanted) = (machine.vm.save().unwrap(), bare.vm.save().unwrap());
    assert_eq!(now.regs, wanted.regs);
    assert_eq!(now.sregs, wanted.sregs);
    assert_eq!(now.xcrs, wanted.xcrs);
    assert_eq!(now.xsave, wanted.xsave);
    machine.vm.check(&machine.state, true).unwrap();
    machine.assert_memory();
}

pub fn what_was_done_ahead_goes_back() {
    let mut machine = two_steps(programs::poke());
    let lent = private_pages(&machine);
    assert!(lent > 80, "{lent}");
    // The guest uses one of the lent pages.
    assert_eq!(machine.run((20 << 20) + PAGE), DONE);
    let restored = machine.reset();
    machine.assert_memory();
    // The guest wrote the values that were there: no page counts as used, and all are released.
    assert!(
        restored.released >= 80 && restored.outside < 5,
        "{restored:?}"
    );
    let usual: u64 = 1 + 4 + 4;
    let kept = private_pages(&machine);
    assert!((usual..=usual + 5).contains(&kept), "{kept}");
    for _ in 0..2 {
        assert_eq!(machine.run(26 << 20), DONE);
        machine.reset();
        machine.assert_memory();
    }
    // The page itself, and tables that the hardware has walked.
    assert!(private_pages(&machine) <= kept + 6);
}

pub fn a_specialised_zygote_takes_fewer_faults() {
    let mut bare = Machine::new(Level::Ring3, programs::writer());
    let mut machine = two_steps(programs::writer());
    let before = machine.vm.page_faults();
    assert_eq!((machine.run(2), bare.run(2)), (DONE, DONE));
    let now = machine.vm.page_faults() - before;
    println!("{now} faults instead of {}", bare.vm.page_faults());
    assert!(now < bare.vm.page_faults());
}

/// Returns what a guest finds at [`UNMAPPED`] if its seed maps `frames[1]` there and the zygote
/// image maps `frames[0]`.
fn found(frames: [u64; 2], forgets_tables: bool) -> u64 {
    let source = machine::seed(programs::glance(), frames);
    let mut machine = Machine::forked(Level::Ring3, source);
    let state = machine.state;
    // The run in advance translates the address if it can be translated.
    let read: &[PageRange] = match frames[0] {
        0 => &[],
        _ => &[pages(UNMAPPED, 1)],
    };
    let zygote = specialised(&mut machine, state, read);
    let mut order = order(&machine.source, state);
    order.forgets_tables = forgets_tables.into();
    fork(&mut machine, zygote, &order).unwrap();
    assert_eq!(machine.run(1), DONE);
    u64::from_le_bytes(machine.output()[..8].try_into().unwrap())
}

pub fn translations_are_the_childs() {
    let [here, there] = [17 << 20, 18 << 20];
    assert_eq!(found([0, there], false), there, "one more");
    assert_eq!(found([here, here], false), here, "the same");
    assert_eq!(found([here, there], true), there, "another");
    // If KVM keeps shadows, the guest finds the parent's page unless tables are forgotten.
    if machine::new_vm().page_walk().has_shadows() {
        assert_eq!(found([here, there], false), here, "not forgotten");
    }
}

pub fn memory_that_a_function_does_not_have_cannot_be_used() {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    let state = machine.state;
    let zygote = specialised(&mut machine, state, &[]);
    let mut order = order(&machine.source, state);
    order.image.ram_bytes = 48 << 20;
    let number = pages(NUMBER, 1);
    fork(&mut machine, zygote, &order).unwrap();
    for (address, is_there) in [(47_u64 << 20, true), (50 << 20, false)] {
        let file = machine::memory("number", NUMBER + PAGE);
        rustix::io::pwrite(&file, &address.to_le_bytes(), NUMBER).unwrap();
        machine
            .ram
            .fill(std::os::fd::AsFd::as_fd(&file), number)
            .unwrap();
        match machine.vm.run() {
            Ok(Stop::Rang(value)) => assert!(is_there && value == Doorbell::Done as u32),
            Ok(_) => panic!("the guest left for another reason"),
            Err(errno) => assert_eq!((errno, is_there), (Errno::FAULT, false)),
        }
    }
}

pub fn a_seed_that_does_not_descend_is_refused() {
    let mut machine = Machine::new(Level::Ring3, programs::poke());
    let state = machine.state;
    let zygote = specialised(&mut machine, state, &[]);
    let mut order = order(&machine.source, state);
    // The parent has no window of its layer there.
    let mut windows = order.image.windows.as_slice().to_vec();
    windows[4].range.end = pages(36 << 20, 1).start;
    order.image.windows = Windows::of(&windows).unwrap();
    assert_eq!(fork(&mut machine, zygote, &order), Err(Errno::INVAL));
}
