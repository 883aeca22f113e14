//! Guests that are to poll for their next request, and do something else. A function compiled by
//! the ordinary compiler cannot do that. So these guests never return from their instantiation: the
//! seed is frozen amid a script, which continues in each instance in place of guest kernel and
//! runtime.

use std::mem::offset_of;
use std::time::Instant;

use faasw_abi::boot::{Activation, BootPage};
use faasw_abi::channel::Waits;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::{HOST_WORDS, HostWords};
use faasw_abi::memory_map::{BOOT_PAGE, MAILBOX, PML4, TEXT};
use faasw_pool::{FreezePolicy, FunctionVersion};

use crate::carrier::Carrier;
use crate::script::{Op, SCRIPT, Script, place, word};
use crate::support::processes::sandboxes;
use crate::support::{Bench, bytes_of, call, give_up};
use crate::{far_limits, good, short_limits};

/// Address of a word that is not 0 in an instance that is to poll for a request.
const POLL_TICKS: u64 =
    BOOT_PAGE + (offset_of!(BootPage, activation) + offset_of!(Activation, poll_ticks)) as u64;
/// Address of a word that is not 0 once the instance has a request.
const GO: u64 = MAILBOX + HOST_WORDS.offset + offset_of!(HostWords, go) as u64;

/// Repeats a script for ever.
fn for_ever(script: Script) -> Script {
    script.for_ever_from(0)
}

/// Returns the script of the seed's guest: it reports that it is instantiated, and is frozen there.
/// An instance of it answers requests well, and runs `instead` if it is to poll for one.
fn guest(instead: &Script) -> Script {
    let scratch = place(SCRIPT);
    let begun = Script::new()
        // Marks the last of its commands as done.
        .step(Op::Add, word!(commands_done), 1, 0)
        .ring(Doorbell::Ready)
        .step(Op::Copy, scratch, POLL_TICKS, 8)
        .step(Op::Add, scratch, 1, 0);
    let answers = Script::new().head().end().done();
    let other = begun.here() + 1 + answers.here();
    begun
        .step(Op::Again, scratch, other, 0)
        .then(answers)
        .then(instead.moved(other))
}

async fn seed(bench: &Bench, instead: &Script) -> FunctionVersion {
    let carrier = Carrier::of_instantiation(bench, &guest(instead)).await;
    carrier.seed(bench).await.unwrap()
}

/// Sends a request, whose response is empty, and waits until the request is over.
async fn asks(bench: &Bench, function: &FunctionVersion) {
    let order = faasw_pool::InvocationRequest {
        limits: far_limits(),
        ..call("/")
    };
    let reply = bench.pool.invoke(function, order).await.unwrap();
    assert_eq!(bytes_of(reply.body).await.unwrap(), b"");
    bench
        .settles("the request is over", |stats| stats.busy == 0)
        .await;
}

/// Sends requests until `is_so` holds.
async fn asks_until(
    bench: &Bench,
    function: &FunctionVersion,
    what: &str,
    is_so: impl Fn() -> bool,
) {
    let begun = Instant::now();
    while !is_so() {
        asks(bench, function).await;
        let stats = bench.pool.stats();
        assert!(begun.elapsed() < give_up(), "{what}: {stats:?}");
    }
}

pub async fn a_guest_that_strays_ends_and_only_its_function_is_not_hot(bench: &Bench) {
    let honest = good(bench).await;
    let polling = || bench.pool.stats().polling;
    for (what, instead) in [
        ("spins", for_ever(Script::new())),
        ("rings for progress", for_ever(Script::new().progress())),
        (
            "writes all over its mailbox",
            for_ever(Script::new().race(MAILBOX, 1 << 21, 7, u64::MAX, 1 << 20)),
        ),
        ("says that it is done", Script::new().done()),
        ("waits", for_ever(Script::new().ring(Doorbell::Wait))),
        (
            "wishes for memory",
            for_ever(Script::new().ring(Doorbell::Populate)),
        ),
        ("rings nonsense", Script::new().rings(77)),
        (
            "looks for far too long",
            Script::new()
                .race(place(SCRIPT), 1 << 12, 7, 0, 1 << 30)
                .ring(Doorbell::Unasked),
        ),
        ("has no tables", Script::new().store(PML4, 0).progress()),
        (
            "writes its text, and looks in vain",
            Script::new().store(TEXT, 0).ring(Doorbell::Unasked),
        ),
    ] {
        let function = seed(bench, &instead).await;
        let before = polling();
        asks_until(bench, &function, what, || {
            polling().strayed > before.strayed
        })
        .await;
        // The sandbox of the stray guest has ended without an error for any client.
        bench
            .settles("its sandbox has ended", |stats| {
                sandboxes().len() == stats.zygotes + stats.warm
            })
            .await;
        let strayed = polling();
        assert_eq!(strayed.strayed, before.strayed + 1, "{what}");
        // The function still serves, as without polling instances, and so do the others. Those are
        // not counted as strayed here: a guest also strays if the hypervisor of this machine takes
        // its processor away while it polls.
        for _ in 0..10 {
            asks(bench, &function).await;
        }
        assert_eq!(polling().strayed, strayed.strayed, "{what}");
        for _ in 0..10 {
            let text = bench.text(&honest, "/hello").await;
            assert_eq!(text.trim(), "hello");
        }
    }
    // The function's loss of hot instances does not affect other functions.
    let before = polling();
    let begun = Instant::now();
    while polling().found == before.found {
        let text = bench.text(&honest, "/hello").await;
        assert_eq!(text.trim(), "hello");
        assert!(begun.elapsed() < give_up(), "{:?}", bench.pool.stats());
    }
}

pub async fn words_that_a_polling_guest_writes_early_affect_only_itself(bench: &Bench) {
    // The guest polls, writes an answer before it has a request, and asks to be woken for the log
    // only. Then it reports that no request came, or answers when one does.
    let writes = Script::new()
        .store(word!(wait_for), Waits::LOG.word())
        .head()
        .end_without_head();
    let polling = || bench.pool.stats().polling;
    let leaves = for_ever(writes.clone().ring(Doorbell::Unasked));
    // A guest whose processor is taken away while it polls strays, too. One that strays because of
    // its writes does so in each of these functions.
    let mut functions_strayed = 0;
    for _ in 0..8 {
        let (function, before) = (seed(bench, &leaves).await, polling());
        let begun = Instant::now();
        let (mut asked, mut now) = (0, before);
        while now.strayed == before.strayed && (asked < 50 || now.cpu == before.cpu) {
            assert!(begun.elapsed() < give_up(), "no guest polls: {now:?}");
            asks(bench, &function).await;
            (asked, now) = (asked + 1, polling());
        }
        if now.strayed == before.strayed {
            break;
        }
        functions_strayed += 1;
    }
    assert!(
        functions_strayed < 8,
        "a guest that polls in vain may write"
    );
    let stays = writes.step(Op::Until, GO, 1, 0).head().end().done();
    let stays = seed(bench, &stays).await;
    let begun = Instant::now();
    let (before, mut answered) = (polling(), 0);
    while polling().found == before.found || answered < 20 {
        let order = faasw_pool::InvocationRequest {
            limits: short_limits(),
            ..call("/")
        };
        // The content of its answer does not matter, but an answer or an error must arrive soon.
        let reply = bench.pool.invoke(&stays, order).await;
        if let Ok(reply) = reply {
            let _ = bytes_of(reply.body).await;
            answered += 1;
        }
        assert!(begun.elapsed() < give_up(), "{:?}", bench.pool.stats());
    }
    bench
        .settles("all of it is over", |stats| {
            stats.busy == 0 && sandboxes().len() == stats.zygotes + stats.warm
        })
        .await;
    let honest = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await;
    let text = bench.text(&honest.unwrap(), "/hello").await;
    assert_eq!(text.trim(), "hello");
}
