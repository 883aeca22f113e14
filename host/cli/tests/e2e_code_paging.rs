//! A function's code and memory are read from disk while its guests run. A guest that needs a piece
//! which is not loaded yet waits for it, and runs the compiled code over the frozen memory.
//! Otherwise the request is answered without the stored code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    fs,
    net::{Shutdown, SocketAddr, TcpStream},
    path::PathBuf,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use e2e::{Bench, limits, random, until};
use faasw::{Event, FunctionOptions, Node, NodeBuilder, SeedInfo};
use faasw_pool::trial::PagerHold;
use fastrand::Rng;
use tempfile::TempDir;
use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ElementSection, Elements, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, ImportSection, MemArg, MemorySection, MemoryType,
    Module, RefType, TableSection, TableType, TypeSection, ValType,
};

/// Number of functions in the module, each with some 70 KiB of code. A request calls one of them.
const PARTS: usize = 64;
const STEPS: usize = 6000;

/// A table in the module's memory. Each part adds one of its words, far from the other parts'
/// words.
const TABLE_BYTES: usize = 3 << 20;
const TABLE_AT: usize = 1 << 20;
const BETWEEN: usize = 48_000;

fn table() -> Vec<u8> {
    let mut random = Rng::with_seed(99);
    (0..TABLE_BYTES).map(|_| random.u8(..)).collect()
}

/// The part that requests call before the working set is known.
const USED: usize = 20;

/// Returns the factor and summand of each step of a part.
fn steps(part: usize) -> impl Iterator<Item = (u32, u32)> {
    let mut random = Rng::with_seed(part as u64);
    (0..STEPS).map(move |_| (random.u32(..) | 1, random.u32(1 << 16..)))
}

fn result(part: usize) -> u32 {
    static TABLE: LazyLock<Vec<u8>> = LazyLock::new(table);
    let value = steps(part).fold(1_u32, |value, (factor, summand)| {
        value.wrapping_mul(factor).wrapping_add(summand)
    });
    let word = TABLE[part * BETWEEN..].first_chunk().unwrap();
    value.wrapping_add(u32::from_le_bytes(*word))
}

const HEAD: &[u8] = b"Status: 200 OK\nContent-Type: text/plain\n\n";

/// A command that reads two digits, calls the part of that number, adds its word of the table, and
/// writes the result.
static MODULE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    /// Addresses of its input, its response head and its answer. The two vectors begin at 8 and 16.
    const INPUT: i32 = 64;
    const HEAD_AT: i32 = 128;
    const ANSWER: i32 = 256;
    let at = |offset: u64| MemArg {
        offset,
        align: 0,
        memory_index: 0,
    };
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    types.ty().function([ValType::I32], [ValType::I32]);
    types.ty().function([], []);
    let mut imports = ImportSection::new();
    for name in ["fd_read", "fd_write"] {
        imports.import("wasi_snapshot_preview1", name, EntityType::Function(0));
    }
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    for part in 0..PARTS {
        functions.function(1);
        let mut body = Function::new([]);
        let mut to = body.instructions();
        to.local_get(0);
        for (factor, summand) in steps(part) {
            to.i32_const(factor.cast_signed()).i32_mul();
            to.i32_const(summand.cast_signed()).i32_add();
        }
        to.end();
        code.function(&body);
    }
    functions.function(2);
    let mut body = Function::new([(2, ValType::I32)]);
    let mut to = body.instructions();
    to.i32_const(0)
        .i32_const(0)
        .i32_const(1)
        .i32_const(32)
        .call(0)
        .drop();
    to.i32_const(1);
    for (digit, weight) in [(0, 10), (1, 1)] {
        to.i32_const(INPUT)
            .i32_load8_u(at(digit))
            .i32_const(48)
            .i32_sub();
        to.i32_const(weight).i32_mul();
    }
    to.i32_add().local_tee(1).call_indirect(0, 1);
    to.local_get(1).i32_const(BETWEEN as i32).i32_mul();
    to.i32_load(at(TABLE_AT as u64)).i32_add().local_set(0);
    for nibble in 0..8 {
        let place = ANSWER + nibble;
        to.i32_const(place);
        to.local_get(0)
            .i32_const(28 - 4 * nibble)
            .i32_shr_u()
            .i32_const(15)
            .i32_and();
        to.i32_const(i32::from(b'a')).i32_add().i32_store8(at(0));
    }
    for vector in [8, 16] {
        to.i32_const(1)
            .i32_const(vector)
            .i32_const(1)
            .i32_const(32)
            .call(1)
            .drop();
    }
    to.end();
    code.function(&body);
    let mut tables = TableSection::new();
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum: PARTS as u64,
        maximum: None,
        shared: false,
    });
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: ((TABLE_AT + TABLE_BYTES) >> 16) as u64,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let start = 2 + PARTS as u32;
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("_start", ExportKind::Func, start);
    let parts: Vec<u32> = (2..start).collect();
    let mut elements = ElementSection::new();
    elements.active(
        None,
        &ConstExpr::i32_const(0),
        Elements::Functions(parts.into()),
    );
    let vectors = [(INPUT, 2), (HEAD_AT, HEAD.len() as i32), (ANSWER, 8)];
    let vectors = vectors.map(|(start, length)| [start.to_le_bytes(), length.to_le_bytes()]);
    let mut data = DataSection::new();
    data.active(
        0,
        &ConstExpr::i32_const(0),
        vectors.as_flattened().as_flattened().to_vec(),
    );
    data.active(0, &ConstExpr::i32_const(HEAD_AT), HEAD.to_vec());
    data.active(0, &ConstExpr::i32_const(TABLE_AT as i32), table());
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions);
    module.section(&tables).section(&memories).section(&exports);
    module.section(&elements).section(&code).section(&data);
    module.finish()
});

/// Returns the answer to a request for a part.
fn answer(part: usize) -> String {
    let value = result(part);
    let nibble = |place: u32| char::from(b'a' + (value >> (28 - 4 * place) & 15) as u8);
    (0..8).map(nibble).collect()
}

/// A data directory with the module's code, and an image in which the working set for one part is
/// recorded; and the number of compilations since.
struct Disk {
    folder: TempDir,
    compiled: Arc<AtomicUsize>,
}

impl Disk {
    fn deployed() -> Self {
        let disk = Self {
            folder: tempfile::tempdir().unwrap(),
            compiled: Arc::default(),
        };
        let bench = disk.start(|builder| builder);
        bench.deploy("large", &MODULE, FunctionOptions::default());
        for _ in 0..6 {
            assert_answer(&bench, USED);
        }
        until("what requests use of its code is known", || {
            large(&bench).is_some_and(|seed| seed.code_pages > 0)
        });
        // The image writer has finished when the node has ended.
        bench.end();
        disk.compiled();
        disk
    }

    fn start(&self, with: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Bench {
        let compiled = self.compiled.clone();
        let builder = Node::builder()
            .data_dir(self.folder.path())
            .observe(move |event| {
                if let Event::Compiling { .. } = event {
                    compiled.fetch_add(1, Ordering::Relaxed);
                }
            });
        Bench::start(with(builder), limits())
    }

    /// Returns how many modules were compiled since the last call.
    fn compiled(&self) -> usize {
        self.compiled.swap(0, Ordering::Relaxed)
    }

    fn artifact(&self) -> PathBuf {
        e2e::artifact(self.folder.path())
    }

    fn images(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder.path().join("images")).unwrap();
        // A node that ends may leave a partial image, which is removed at the next start.
        let files = files.map(Result::unwrap);
        let whole = files.filter(|file| !file.file_name().to_string_lossy().starts_with('.'));
        let mut files: Vec<_> = whole.map(|file| file.path()).collect();
        files.sort();
        files
    }
}

fn large(bench: &Bench) -> Option<SeedInfo> {
    let seeds = bench.node.tree().into_iter();
    let mut large = seeds.filter(|seed| seed.name == "large" && seed.is_in_memory);
    large.next()
}

#[track_caller]
fn assert_answer_of(bench: &Bench, name: &str, part: usize) {
    let response = bench.request("POST", &format!("/{name}/"), "", format!("{part:02}"));
    assert_eq!(response.status, 200, "{part}: {response:?}");
    assert_eq!(response.body, answer(part), "{part}");
}

#[track_caller]
fn assert_answer(bench: &Bench, part: usize) {
    assert_answer_of(bench, "large", part);
}

fn wait_until_fully_loaded(bench: &Bench) {
    until("its seed is whole", || {
        large(bench).is_some_and(|seed| seed.is_whole)
    });
}

/// Sends `count` requests at once, each for another part.
fn assert_answers_at_once(bench: &Bench, random: &mut Rng, count: usize) {
    let mut parts: Vec<usize> = (0..PARTS).collect();
    random.shuffle(&mut parts);
    std::thread::scope(|scope| {
        for part in parts.into_iter().take(count) {
            scope.spawn(move || assert_answer(bench, part));
        }
    });
}

fn the_working_set_of_code_is_recorded_and_small() {
    let disk = Disk::deployed();
    let bytes = fs::metadata(disk.artifact()).unwrap().len();
    assert!(bytes > 4 << 20, "{bytes}");
    let bench = disk.start(|builder| builder);
    assert_answer(&bench, USED);
    let seed = large(&bench).unwrap();
    assert!(seed.code_pages > 16, "{seed:?}");
    assert!(seed.code_pages * 4096 < bytes / 4, "{seed:?} of {bytes}");
    wait_until_fully_loaded(&bench);
    bench.end();
}

fn requests_wait_for_code_that_is_not_loaded() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let mut late = 0;
    for start in 0..6 {
        let held = (start == 0).then(PagerHold::new);
        let bench = disk.start(|builder| builder);
        // All requests share one reading of the code, and at most one of them finds its part loaded
        // when it begins.
        assert_answers_at_once(&bench, &mut random, 12);
        drop(held);
        wait_until_fully_loaded(&bench);
        assert_answers_at_once(&bench, &mut random, 6);
        late += large(&bench).unwrap().late_pages;
        bench.end();
    }
    assert!(late > 0, "no guest had to wait");
    assert_eq!(disk.compiled(), 0);
}

/// After a start, requests use other parts than before. The next start knows the pages for those,
/// too.
fn code_that_requests_waited_for_is_in_the_next_working_set() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let known_at_a_start = || {
        let bench = disk.start(|builder| builder);
        assert_answer(&bench, USED);
        let known = large(&bench).unwrap().code_pages;
        bench.end();
        known
    };
    let before = known_at_a_start();
    let held = PagerHold::new();
    let bench = disk.start(|builder| builder);
    assert_answers_at_once(&bench, &mut random, 12);
    drop(held);
    wait_until_fully_loaded(&bench);
    bench.end();
    drop(bench);
    let after = known_at_a_start();
    assert!(after > before, "{before} pages of code, then {after}");
    assert_eq!(disk.compiled(), 0);
}

fn damaged_code_is_compiled_again_whenever_it_is_found() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let path = disk.artifact();
    let whole = fs::read(&path).unwrap();
    let images = disk.images();
    let places = [
        0,
        whole.len() / 2,
        whole.len() - 100,
        random.usize(..whole.len()),
    ];
    for place in places {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let bench = disk.start(|builder| builder);
        assert_answers_at_once(&bench, &mut random, 8);
        until("it was compiled again, and stored", || {
            fs::read(&path).is_ok_and(|now| now != damaged)
        });
        assert_answers_at_once(&bench, &mut random, 4);
        bench.end();
        assert_eq!(disk.compiled(), 1, "{place}");
        assert_eq!(disk.images(), images);
    }
    // The stored code is good.
    let bench = disk.start(|builder| builder);
    assert_answers_at_once(&bench, &mut random, 8);
    bench.end();
    assert_eq!(disk.compiled(), 0);
}

/// Sends a request without waiting for its response.
fn start_request(address: SocketAddr, part: usize) -> TcpStream {
    let request = format!("POST /large/ HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{part:02}");
    e2e::start_request(address, &request)
}

fn disconnected_clients_do_not_delay_other_requests() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    for _ in 0..4 {
        let bench = disk.start(|builder| builder);
        let address = bench.address;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let part = random.usize(..PARTS);
                let wait = random::up_to(&mut random, Duration::from_millis(30));
                scope.spawn(move || {
                    let client = start_request(address, part);
                    std::thread::sleep(wait);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
            for _ in 0..4 {
                let part = random.usize(..PARTS);
                let bench = &bench;
                scope.spawn(move || assert_answer(bench, part));
            }
        });
        assert_answers_at_once(&bench, &mut random, 2);
        bench.end();
    }
    // A node that is stopped in the middle of loading ends, and so do all its processes.
    for _ in 0..4 {
        let bench = disk.start(|builder| builder);
        let clients: Vec<_> = (0..4)
            .map(|_| start_request(bench.address, random.usize(..PARTS)))
            .collect();
        std::thread::sleep(random::up_to(&mut random, Duration::from_millis(20)));
        bench.end();
        drop((bench, clients));
        until("no code is left", || e2e::code_files().is_empty());
    }
    assert_eq!(disk.compiled(), 0);
}

/// Another function of the same module needs all of the code, and another version is compiled in
/// the meantime.
fn code_is_shared_and_recompiled_while_it_is_loading() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    for round in 0..3 {
        let bench = disk.start(|builder| builder);
        std::thread::scope(|scope| {
            let bench = &bench;
            for _ in 0..6 {
                let part = random.usize(..PARTS);
                scope.spawn(move || assert_answer(bench, part));
            }
            scope.spawn(move || {
                let name = format!("other-{round}");
                let options = FunctionOptions::default().env("ROUND", round.to_string());
                bench.deploy(&name, &MODULE, options);
                assert_answer_of(bench, &name, PARTS - 1);
            });
            scope.spawn(move || {
                bench.deploy("large", &MODULE, FunctionOptions::default());
                assert_answer(bench, 1);
            });
        });
        assert_answers_at_once(&bench, &mut random, 6);
        bench.end();
    }
    assert_eq!(disk.compiled(), 0);
}

/// A seed leaves memory while it is still being filled, and comes back.
fn partially_loaded_code_is_evicted_and_loaded_again() {
    let mut random = random::rng();
    let disk = Disk::deployed();
    let bench = disk.start(|builder| builder.seed_memory(0).max_warm(0));
    bench.deploy(
        "small",
        &e2e::file("tests/fixtures/wat/hello.wat"),
        FunctionOptions::default(),
    );
    for _ in 0..10 {
        assert_answer(&bench, random.usize(..PARTS));
        assert_eq!(bench.text("/small/"), "hello from wat\n");
        std::thread::sleep(random::up_to(&mut random, Duration::from_millis(10)));
    }
    bench.end();
}

fn main() {
    e2e::main(tests![
        the_working_set_of_code_is_recorded_and_small,
        requests_wait_for_code_that_is_not_loaded,
        code_that_requests_waited_for_is_in_the_next_working_set,
        damaged_code_is_compiled_again_whenever_it_is_found,
        disconnected_clients_do_not_delay_other_requests,
        code_is_shared_and_recompiled_while_it_is_loading,
        partially_loaded_code_is_evicted_and_loaded_again,
    ]);
}
