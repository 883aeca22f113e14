//! The event loop: jobs of promises, timers, and streams of the request.

use std::cell::{Cell, RefCell};

use rquickjs::{Ctx, Function, Persistent, Promise, Value};

use crate::{
    bindings::wasi::{
        clocks::{monotonic_clock, wall_clock},
        io::poll::{Pollable, poll},
    },
    interpreter, native,
};

/// A pollable, the function that fulfils its promise, and the number of the outbound call that the
/// pollable belongs to, or 0.
type Wait = (Pollable, Persistent<Function<'static>>, u32);
type Rejection = (Persistent<Value<'static>>, Persistent<Value<'static>>);

thread_local! {
    static WAITS: RefCell<Vec<Wait>> = const { RefCell::new(Vec::new()) };
    static REJECTIONS: RefCell<Vec<Rejection>> = const { RefCell::new(Vec::new()) };
    static BEGAN: Cell<u64> = const { Cell::new(0) };
}

/// Restarts the clock of `performance.now()`. The clock is read at its first use, because few
/// scripts use it.
pub(crate) fn start_clock() {
    BEGAN.set(0);
}

/// Returns the milliseconds since the first reading of this request.
pub(crate) fn now() -> f64 {
    let now = monotonic_clock::now();
    if BEGAN.get() == 0 {
        BEGAN.set(now);
    }
    now.saturating_sub(BEGAN.get()) as f64 / 1e6
}

/// Returns the time at which [`now`] was zero, in milliseconds since 1970.
pub(crate) fn origin() -> f64 {
    let wall = wall_clock::now();
    wall.seconds as f64 * 1e3 + f64::from(wall.nanoseconds) / 1e6 - now()
}

/// Returns a promise that is fulfilled when `pollable` is ready.
pub(crate) fn wait_for<'js>(ctx: &Ctx<'js>, pollable: Pollable) -> rquickjs::Result<Promise<'js>> {
    wait_for_call(ctx, pollable, 0)
}

/// Returns a promise that is fulfilled when `pollable` is ready, or its outbound call is closed.
pub(crate) fn wait_for_call<'js>(
    ctx: &Ctx<'js>,
    pollable: Pollable,
    call: u32,
) -> rquickjs::Result<Promise<'js>> {
    let (promise, fulfil, _) = ctx.promise()?;
    let fulfil = Persistent::save(ctx, fulfil);
    WAITS.with_borrow_mut(|waits| waits.push((pollable, fulfil, call)));
    Ok(promise)
}

/// Drops the pollables of an outbound call and fulfils their promises.
pub(crate) fn forget_call(ctx: &Ctx<'_>, call: u32) {
    fulfil_what_is(ctx, |waits| {
        waits.iter().map(|(_, _, other)| *other == call).collect()
    });
}

/// Records a rejection without a handler, or removes one that got a handler after all. The
/// interpreter calls this.
pub(crate) fn rejected<'js>(
    ctx: Ctx<'js>,
    promise: Value<'js>,
    reason: Value<'js>,
    is_handled: bool,
) {
    REJECTIONS.with_borrow_mut(|rejections| {
        if is_handled {
            rejections.retain(|(other, _)| {
                let other = other.clone().restore(&ctx);
                !other.is_ok_and(|other| other == promise)
            });
        } else {
            rejections.push((
                Persistent::save(&ctx, promise),
                Persistent::save(&ctx, reason),
            ));
        }
    });
}

/// Drops all recorded rejections, because their error is reported in another way.
pub(crate) fn forget_rejections() {
    REJECTIONS.take();
}

fn tell_rejections(ctx: &Ctx<'_>) {
    for (promise, reason) in REJECTIONS.take() {
        if let (Ok(promise), Ok(reason)) = (promise.restore(ctx), reason.restore(ctx)) {
            interpreter::unhandled(ctx, promise, reason);
        }
    }
}

/// Fulfils the promises of the waits that `ready` marks as ready.
fn fulfil_what_is(ctx: &Ctx<'_>, ready: impl FnOnce(&[Wait]) -> Vec<bool>) {
    let waits = WAITS.take();
    let ready = ready(&waits);
    let mut rest = Vec::new();
    for (wait, is_ready) in waits.into_iter().zip(ready) {
        if !is_ready {
            rest.push(wait);
            continue;
        }
        let (pollable, fulfil, _) = wait;
        drop(pollable);
        // The function that resolves a promise does not fail.
        let _ = fulfil
            .restore(ctx)
            .and_then(|fulfil| fulfil.call::<_, ()>(()));
    }
    WAITS.with_borrow_mut(|waits| {
        rest.append(waits);
        *waits = rest;
    });
}

/// Runs until `is_done` returns true, or nothing is left to wait for.
pub(crate) fn run(ctx: &Ctx<'_>, is_done: impl Fn() -> bool) {
    loop {
        // The code before is another task: the script's top level, the handler, or a timer.
        native::leave_async_context(ctx);
        while ctx.execute_pending_job() {}
        let is_done = is_done();
        tell_rejections(ctx);
        if is_done {
            break;
        }
        let delay = interpreter::run_timer(ctx);
        // A timer may have made more work, but streams get their turn, too.
        if delay == 0.0 {
            fulfil_what_is(ctx, |waits| {
                let ready = waits.iter().map(|(pollable, ..)| pollable.ready());
                ready.collect()
            });
            continue;
        }
        let timer =
            (delay > 0.0).then(|| monotonic_clock::subscribe_duration((delay * 1e6) as u64 + 1));
        if timer.is_none() && WAITS.with_borrow(Vec::is_empty) {
            break;
        }
        fulfil_what_is(ctx, |waits| {
            let pollables: Vec<&Pollable> = waits
                .iter()
                .map(|(pollable, ..)| pollable)
                .chain(&timer)
                .collect();
            let ready = poll(&pollables);
            (0..waits.len())
                .map(|index| ready.contains(&(index as u32)))
                .collect()
        });
    }
    // The pollables are children of streams that end now.
    WAITS.take();
}
