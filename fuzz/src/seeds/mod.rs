//! Valid messages of good sides, as inputs of the targets.

mod artifact;
mod egress;
mod files;

use crate::targets::mailbox::WORDS;
use crate::targets::{export, image};
use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::command::{Command, Commands};
use faasw_abi::isa::Isa;
use faasw_abi::mailbox::{GuestWords, LOG_RECORD_HEADER};
use faasw_abi::outcome::Outcome;
use faasw_abi::pages::{PageRange, Ranges};
use faasw_abi::trap::TrapKind;
use faasw_abi::wire::{
    FunctionKind, Pair, RequestHead, ResponseHead, SeedConfig, SeedFiles, encode_trailers,
};
use faasw_abi::{script, state, store};
use faasw_compiler_protocol::{CompileReport, Compiled, Refusal, RefusalKind, Wizer};
use faasw_fri::messages::{
    Activate, Answer, BackgroundGroupReport, Ended, Failed, Failure, Fork, Forked, Image,
    Introduced, KeepGroups, Kill, Launch, Limit, MAGIC, NamesOpened, OpenNames, Origin,
    PacketHeader, Prepared, Rang, Reset, Resume, SandboxStarted, Seal, Sealed, SetBackgroundGroup,
    SetPriority, SpawnEgress, SpawnFailed, SpawnHelper, SpawnSandbox, Spawned, Specialise, Survey,
    Used, VcpuState, Wake, WarmReport,
};
use faasw_fri::{Kind, Message};
use zerocopy::{FromZeros as _, IntoBytes as _};

/// An input, with the name of its target and its own name.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// Returns all seeds.
#[must_use]
pub fn all() -> Vec<Seed> {
    let mut all = messages();
    all.extend(packets());
    all.extend(reports());
    all.extend(mailboxes());
    all.extend(images());
    all.extend(exports());
    all.extend(store_records());
    all.extend(artifact::all());
    all.extend(egress::all());
    all.extend(files::all());
    all.push(("log", "two-streams", log()));
    let sets = [
        (1_u64).to_le_bytes().to_vec(),
        ranges(&[(1, 3), (0x800, 0x810)]),
        ranges(&[(0x200, 0x600)]),
        ranges(&[(0, 0x10), (0x40, 0x41)]),
        vec![3],
        [0_u64, 5, 100, 0, 7, 1].as_bytes().to_vec(),
    ];
    all.push(("working_set", "one-survey", sets.concat()));
    all
}

fn pair(name: &str, value: &str) -> Pair {
    (name.into(), value.into())
}

fn head() -> ResponseHead {
    ResponseHead {
        status: 200,
        headers: vec![
            pair("content-type", "text/plain"),
            pair("connection", "close, x-hop"),
            pair("x-hop", "1"),
            pair("content-length", "4"),
            pair("set-cookie", "a=b"),
        ],
    }
}

fn trailers() -> Vec<u8> {
    encode_trailers(&[pair("x-sum", "1"), pair("content-length", "9")])
}

fn script() -> Vec<u8> {
    let files: [script::File<'_>; 2] = [("handler.lua", b"return 1"), ("lib/a.txt", b"")];
    script::write(&files).unwrap_or_default()
}

/// Returns a request and an answer of each shape, without their lengths.
fn store_records() -> Vec<Seed> {
    let request = |name, operation| {
        let store = "default";
        let record = store::Request { store, operation }.encode();
        ("store", name, of_record(0, record))
    };
    let answer = |name, answer: store::Answer<'_>| ("store", name, of_record(1, answer.encode()));
    vec![
        request("get", store::Operation::Get(vec![b"a", b"b"])),
        request(
            "set",
            store::Operation::Set(vec![(b"a", b"1"), (b"b", b"")]),
        ),
        request(
            "keys",
            store::Operation::Keys(store::ListFrom::Behind(b"a")),
        ),
        request(
            "page",
            store::Operation::Keys(store::ListFrom::Number(1_000)),
        ),
        request("increment", store::Operation::Increment(b"a", -1)),
        request(
            "swap",
            store::Operation::Swap {
                key: b"a",
                seen: Some(b"1"),
                value: b"2",
            },
        ),
        answer("values", store::Answer::Values(vec![None, Some(b"1")])),
        answer("listed", store::Answer::Keys(vec![b"a", b"b"], true)),
        answer("number", store::Answer::Number(7)),
        answer("failed", store::Answer::Failed("no space is left")),
    ]
}

fn of_record(which: u8, record: Result<Vec<u8>, faasw_abi::wire::WireError>) -> Vec<u8> {
    let record = record.unwrap_or_default();
    let body = record.get(store::LENGTH_BYTES..).unwrap_or_default();
    [&[which], body].concat()
}

fn state() -> Vec<u8> {
    let value = state::Value {
        ty: state::ValueType::F64,
        bits: 7,
    };
    [
        &state::global("__wizer_global_1", value)[..],
        &state::memory("__wizer_memory_0", 1 << 16),
        &state::run(4096, 5),
        b"state",
        &state::run(1 << 15, 1),
        b"x",
        &state::run(0, 0),
        &state::end(),
    ]
    .concat()
}

fn messages() -> Vec<Seed> {
    let request = RequestHead {
        method: b"GET".to_vec(),
        scheme: b"http".to_vec(),
        authority: b"localhost".to_vec(),
        path_and_query: b"/a?b=c".to_vec(),
        script_name: b"/hello".to_vec(),
        remote_address: b"::1".to_vec(),
        protocol: b"HTTP/1.1".to_vec(),
        headers: vec![pair("accept", "*/*")],
    };
    let config = SeedConfig {
        kind: FunctionKind::CgiModule,
        tells_state: false,
        has_entry: false,
        memory_limit: 1 << 27,
        arguments: vec![b"hello".to_vec()],
        environment: vec![pair("A", "b")],
        configuration: vec![pair("c", "d")],
        secrets: vec![b"e".to_vec()],
        stores: vec![b"g".to_vec()],
        files: Some(SeedFiles {
            bytes: 8192,
            mount: "/f".into(),
            freeze_at: Some("/f/a".into()),
        }),
    };
    let commands = Commands::of(&[
        Command::Link,
        Command::Grow { ram_bytes: 1 << 28 },
        Command::Load {
            code_bytes: 4096,
            config: config.clone(),
        },
        Command::Instantiate,
        Command::Evaluate {
            export: "init".to_owned(),
        },
        Command::Script {
            config: config.clone(),
        },
        Command::WarmUp {
            request: request.clone(),
            body: b"a body".to_vec(),
        },
        Command::Run,
    ]);
    let wire = |which: u8, bytes: Vec<u8>| [vec![which], bytes].concat();
    let response = |how: u8, trailers: Vec<u8>| {
        let head = head().encode();
        let length = head.len() as u16;
        [vec![how], length.to_le_bytes().to_vec(), head, trailers].concat()
    };
    vec![
        ("script", "two-files", script()),
        ("state", "module", state()),
        ("wire", "request-head", wire(0, request.encode())),
        ("wire", "response-head", wire(1, head().encode())),
        ("wire", "trailers", wire(2, trailers())),
        ("wire", "commands", wire(3, commands.bytes().to_vec())),
        ("response", "http-1", response(0, encode_trailers(&[]))),
        ("response", "http-2-with-trailers", response(6, trailers())),
        ("response", "to-head", response(1, trailers())),
    ]
}

fn packet<M: Message>(message: &M) -> Vec<u8> {
    let header = PacketHeader {
        magic: MAGIC,
        kind: M::KIND,
    };
    [header.as_bytes(), message.as_bytes()].concat()
}

/// Returns a packet of zeroes, of a message that can be all zeroes.
fn zeroes<M: Message>() -> Vec<u8> {
    let zeroes = vec![0; size_of::<M>()];
    let message = M::try_read_from_bytes(&zeroes);
    packet(&message.unwrap_or_else(|_| panic!("{:?} of zeroes", M::KIND)))
}

fn packets() -> Vec<Seed> {
    let all = Kind::ALL.iter();
    let mut packets: Vec<Seed> = all.map(|kind| packet_of(*kind)).collect();
    packets.push(("fri", "failed-jail", packet(&failed(Failure::Jail))));
    packets
}

fn failed(failure: Failure) -> Failed {
    Failed {
        failure,
        detail: 12,
        instruction: 2,
    }
}

/// Returns a packet of each kind. A message has exactly one size, which random changes would not
/// find.
fn packet_of(kind: Kind) -> Seed {
    let (name, bytes) = match kind {
        Kind::Activate => ("activate", zeroes::<Activate>()),
        Kind::SandboxStarted => ("born", zeroes::<SandboxStarted>()),
        Kind::Ended => ("ended", zeroes::<Ended>()),
        Kind::Failed => ("failed-run", packet(&failed(Failure::Run))),
        Kind::Fork => ("fork", packet(&fork())),
        Kind::Forked => ("forked", zeroes::<Forked>()),
        Kind::Introduced => ("introduced", zeroes::<Introduced>()),
        Kind::KeepGroups => ("keep-groups", zeroes::<KeepGroups>()),
        Kind::Kill => ("kill", zeroes::<Kill>()),
        Kind::Launch => ("launch", zeroes::<Launch>()),
        Kind::Limit => ("limit", zeroes::<Limit>()),
        Kind::NamesOpened => ("names-opened", zeroes::<NamesOpened>()),
        Kind::OpenNames => ("open-names", zeroes::<OpenNames>()),
        Kind::WarmReport => ("warm", zeroes::<WarmReport>()),
        Kind::Prepared => ("prepared", zeroes::<Prepared>()),
        Kind::Specialise => ("specialise", zeroes::<Specialise>()),
        Kind::Rang => ("rang", packet(&rang())),
        Kind::Reset => ("reset", zeroes::<Reset>()),
        Kind::Resume => ("resume", zeroes::<Resume>()),
        Kind::Seal => ("seal", zeroes::<Seal>()),
        Kind::Sealed => ("sealed", zeroes::<Sealed>()),
        Kind::SetPriority => ("set-priority", zeroes::<SetPriority>()),
        Kind::SpawnEgress => ("spawn-egress", zeroes::<SpawnEgress>()),
        Kind::SpawnFailed => ("spawn-failed", zeroes::<SpawnFailed>()),
        Kind::SpawnHelper => ("spawn-helper", packet(&helper())),
        Kind::SpawnSandbox => ("spawn-sandbox", zeroes::<SpawnSandbox>()),
        Kind::Spawned => ("spawned", zeroes::<Spawned>()),
        Kind::SetBackgroundGroup => ("step-aside", zeroes::<SetBackgroundGroup>()),
        Kind::BackgroundGroupReport => ("stepped-aside", zeroes::<BackgroundGroupReport>()),
        Kind::Survey => ("survey", zeroes::<Survey>()),
        Kind::Used => ("used", packet(&used())),
        Kind::Wake => ("wake", zeroes::<Wake>()),
    };
    ("fri", name, bytes)
}

fn rang() -> Rang {
    Rang {
        doorbell: 3,
        fork_nanoseconds: 1,
        run_nanoseconds: 2,
        exits: 1,
        page_faults: 0,
    }
}

fn used() -> Used {
    let first = PageRange::of_bytes(0, 4096);
    Used {
        written: Ranges::covering(&first.into()),
        changed: 0,
        read: Ranges::default(),
        code: Ranges::default(),
    }
}

fn fork() -> Fork {
    Fork {
        code_bytes: 0,
        origin: Origin::Private,
        image: Image::empty(0, &VcpuState::new_zeroed()),
        filled: Ranges::default(),
        mapped: Ranges::default(),
        forgets_tables: Answer::No,
        code_set: Ranges::default(),
        reports_addresses: Answer::No,
        has_small_code: Answer::No,
    }
}

fn helper() -> SpawnHelper {
    SpawnHelper {
        token: 1,
        cpu_seconds: 2,
        memory_bytes: 3,
        isa: Isa::V2,
    }
}

/// Returns the golden images, whole, and taken apart, so that the target seals them after mutation.
fn images() -> Vec<Seed> {
    let image = |name: &'static str, how: u8, bytes: Vec<u8>| {
        let bytes = [&[how][..], &bytes].concat();
        ("image", name, bytes)
    };
    let split = |file: &[u8]| {
        let (header, pages) = image::split(file);
        let length = header.len() as u32;
        [&length.to_le_bytes()[..], &header, &pages].concat()
    };
    vec![
        image("parent-whole", 0, image::PARENT.to_vec()),
        image("child-whole", image::HAS_PARENT, image::CHILD.to_vec()),
        image("parent", image::IS_SEALED_HERE, split(image::PARENT)),
        image(
            "child",
            image::IS_SEALED_HERE | image::HAS_PARENT,
            split(image::CHILD),
        ),
    ]
}

/// Returns exports to be sealed: of a module, of a script, and with an image.
fn exports() -> Vec<Seed> {
    let export = |name: &'static str, module: &[u8]| {
        let note = faasw::fuzzing::note_of(module, name);
        let parts = [module.len() as u64, 12];
        let bytes = [
            &[export::IS_SEALED_HERE | export::IS_HONEST][..],
            &[0; 5],
            &(note.len() as u16).to_le_bytes(),
            &note,
            parts.as_bytes(),
            module,
            b"not an image",
        ];
        ("export", name, bytes.concat())
    };
    let with_image = || {
        let (module, (header, pages)) = (b"\0asm", image::split(image::PARENT));
        let note = faasw::fuzzing::note_of(module, "image");
        let parts = [module.len() as u64, 0];
        let bytes = [
            &[export::IS_SEALED_HERE | export::IS_HONEST | export::HAS_IMAGE][..],
            &[0; 5],
            &(note.len() as u16).to_le_bytes(),
            &note,
            parts.as_bytes(),
            module,
            &(header.len() as u32).to_le_bytes(),
            &header,
            &pages,
        ];
        ("export", "with-image", bytes.concat())
    };
    vec![
        export("module", b"\0asm"),
        export("script", &script()),
        with_image(),
    ]
}

fn reports() -> Vec<Seed> {
    let compiled = Compiled {
        kind: FunctionKind::HttpComponent,
        name_hint: Some("hello".to_owned()),
        imports: vec!["wasi:io/poll@0.2.0#poll".to_owned()],
        initial_memory_bytes: 65536,
        code_bytes: 12,
        cache_bytes: 7,
        cpu_milliseconds: 3,
        from_text: false,
        has_initialiser: false,
        is_engine: false,
        wizer: Some(Wizer::Refused("table.set".to_owned())),
    };
    let mut refusal = Refusal::new(RefusalKind::UnknownImports, "no such import\nenv.f");
    refusal.imports = vec!["env.f".to_owned()];
    let json = |result| CompileReport { result }.to_json().unwrap_or_default();
    vec![
        ("compile_report", "compiled", json(Ok(compiled))),
        ("compile_report", "refused", json(Err(refusal))),
    ]
}

fn log() -> Vec<u8> {
    let record = |stream: u8, text: &str| {
        let mut record = vec![stream, 0, 0, 0];
        record.extend((text.len() as u32).to_le_bytes());
        assert_eq!(record.len(), LOG_RECORD_HEADER);
        record.extend(text.as_bytes());
        record
    };
    [
        record(1, "out\nand "),
        record(2, "err"),
        record(1, "more\n"),
    ]
    .concat()
}

fn ranges(ranges: &[(u64, u64)]) -> Vec<u8> {
    let count = ranges.len() as u16;
    let numbers = ranges.iter().flat_map(|(start, end)| [*start, *end]);
    let numbers = numbers.flat_map(u64::to_le_bytes);
    count.to_le_bytes().into_iter().chain(numbers).collect()
}

/// Returns bytes for a place of an area. `area` is the index of the area in the target's list.
fn written(area: u8, at: u16, bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u16;
    let place = [&[area][..], &at.to_le_bytes(), &length.to_le_bytes()];
    [&place.concat(), bytes].concat()
}

fn round(words: &GuestWords, areas: &[Vec<u8>]) -> Vec<u8> {
    let words = words.as_bytes().get(..WORDS).unwrap_or_default();
    [words, &[areas.len() as u8], &areas.concat()].concat()
}

fn mailboxes() -> Vec<Seed> {
    let (head, log, trailers) = (head().encode(), log(), trailers());
    let mut done = GuestWords::new_zeroed();
    done.channels[Channel::INVOCATION] = ChannelWords {
        written: head.len() as u64 + 4,
        read: 6,
        head: head.len() as u32,
        end: ChannelWords::end_with(trailers.len() as u32),
        turn: 0,
    };
    done.log_written = log.len() as u64;
    done.outcome = Outcome::Response as u32;
    let response = [&head, b"body".as_slice(), &trailers].concat();
    let areas = [written(0, 0, &response), written(2, 0, &log)];
    let whole = round(&done, &areas);
    // A stream: its head, then a full ring, then a bit more past the ring's end.
    let mut words = GuestWords::new_zeroed();
    let told = &mut words.channels[Channel::INVOCATION];
    told.head = head.len() as u32;
    told.written = head.len() as u64;
    let mut stream = round(&words, &[written(0, 0, &head)]);
    let told = &mut words.channels[Channel::INVOCATION];
    told.written = Channel::INVOCATION.to_host().size();
    told.read = 1000;
    stream.extend(round(&words, &[written(0, 500, b"in the middle")]));
    words.channels[Channel::INVOCATION].written += 30_000;
    stream.extend(round(&words, &[written(0, 0, b"at the start")]));
    let mut trap = GuestWords::new_zeroed();
    trap.outcome = Outcome::Trap as u32;
    trap.trap = TrapKind::Unreachable as u32;
    trap.report_len = 11;
    let trap = round(&trap, &[written(1, 0, b"unreachable")]);
    for words in [&mut done, &mut words] {
        sandbox(words);
    }
    vec![
        ("mailbox", "whole", whole),
        ("mailbox", "stream", stream),
        ("mailbox", "trap", trap),
        ("sandbox_words", "wishes", words.as_bytes().to_vec()),
    ]
}

/// Sets the words on which the sandbox acts.
fn sandbox(words: &mut GuestWords) {
    words.wait_nanoseconds = 1_000_000;
    words.populate_start = 0x120_0000;
    words.populate_bytes = 0x8000;
}
