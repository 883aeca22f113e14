//! The interpreter through its three parts of life.

use std::cell::{Cell, RefCell};

use rquickjs::{
    CaughtError, Context, Ctx, FromJs, Function, Module, Object, Persistent, Runtime, Value,
    qjs::JSContext,
};

use crate::{
    bindings::{
        exports::faasw::engine::script::Error,
        wasi::{
            cli::environment::get_environment,
            http::types::{IncomingRequest, ResponseOutparam},
        },
    },
    event_loop,
    exchange::{self, Exchange},
    memory::{self, Memory},
    modules, native, random, script_error,
};

/// What is built in, as one function of what is native and of the streams' library.
const WEB: &str = concat!(
    "(function (native, streams) {\n\"use strict\";\n",
    "const { ReadableStream, WritableStream, TransformStream } = streams;\n",
    include_str!("../web/events.js"),
    include_str!("../web/console.js"),
    include_str!("../web/timers.js"),
    include_str!("../web/text.js"),
    include_str!("../web/pairs.js"),
    include_str!("../web/url.js"),
    include_str!("../web/headers.js"),
    include_str!("../web/blob.js"),
    include_str!("../web/body.js"),
    include_str!("../web/clone.js"),
    include_str!("../web/crypto.js"),
    include_str!("../web/serve.js"),
    "})"
);

/// npm's web-streams-polyfill, as build.sh puts it there.
const STREAMS: &str = include_str!("../vendor/web-streams.js");

/// How much of the stack in linear memory scripts may use; the rest is ours. The other stack,
/// of native frames, has 1 MiB: whatever recursion is tried, this one ends first.
const STACK: usize = 320 << 10;

/// What a request usually allocates.
const ROOM: usize = 512 << 10;

/// How much a request allocates before the first collection of garbage.
const UNCOLLECTED: usize = 2 << 20;

struct Interpreter {
    context: Context,
    runtime: Runtime,
    hooks: Hooks,
    /// Bytes that scripts had when they were frozen.
    allocated: Cell<usize>,
}

/// What `web/serve.js` gives to us.
struct Hooks {
    adopt: Hook,
    configure: Hook,
    dispatch: Hook,
    describe: Hook,
    frames: Hook,
    run_timer: Hook,
    unhandled: Hook,
    warm_up: Hook,
}

pub(crate) struct Hook(Persistent<Function<'static>>);

impl Hook {
    fn of<'js>(hooks: &Object<'js>, name: &str) -> rquickjs::Result<Self> {
        let function: Function = hooks.get(name)?;
        Ok(Self(Persistent::save(hooks.ctx(), function)))
    }

    pub(crate) fn get<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        self.0.clone().restore(ctx)
    }
}

thread_local! {
    static INTERPRETER: RefCell<Option<&'static Interpreter>> = const { RefCell::new(None) };
}

fn interpreter() -> &'static Interpreter {
    INTERPRETER.with(|it| it.borrow().expect("the interpreter was made"))
}

/// Makes the interpreter.
pub(crate) fn begin() {
    let runtime = Runtime::new_with_alloc(Memory).expect("a runtime");
    // Nothing is collected before a request: a collection writes to pages that all share.
    runtime.set_gc_threshold(usize::MAX);
    runtime.set_max_stack_size(STACK);
    runtime.set_host_promise_rejection_tracker(Some(Box::new(event_loop::rejected)));
    runtime.set_loader(modules::Resolver, modules::Loader);
    let context = Context::full(&runtime).expect("a context");
    random::reseed();
    let hooks = context.with(|ctx| match install(&ctx) {
        Ok(hooks) => hooks,
        Err(error) => panic!("{}", CaughtError::from_error(&ctx, error)),
    });
    let interpreter = Interpreter {
        context,
        runtime,
        hooks,
        allocated: Cell::new(0),
    };
    INTERPRETER.with(|it| *it.borrow_mut() = Some(Box::leak(Box::new(interpreter))));
    warm_up();
    make_room();
    make_lasting();
    memory::begin();
}

fn install(ctx: &Ctx<'_>) -> rquickjs::Result<Hooks> {
    // Made for CommonJS, among others.
    let streams =
        format!("(() => {{ const exports = {{}}, module = {{}};\n{STREAMS}\nreturn exports }})()");
    let streams: Object = built_in(ctx, "faasw:streams", &streams)?;
    let web: Function = built_in(ctx, "faasw:web", WEB)?;
    let hooks: Object = web.call((native::all(ctx)?, streams))?;
    Ok(Hooks {
        adopt: Hook::of(&hooks, "adopt")?,
        configure: Hook::of(&hooks, "configure")?,
        dispatch: Hook::of(&hooks, "dispatch")?,
        describe: Hook::of(&hooks, "describe")?,
        frames: Hook::of(&hooks, "frames")?,
        run_timer: Hook::of(&hooks, "runTimer")?,
        unhandled: Hook::of(&hooks, "unhandled")?,
        warm_up: Hook::of(&hooks, "warmUp")?,
    })
}

/// The value of an expression, whose functions have that name in stacks.
fn built_in<'js, T: FromJs<'js>>(
    ctx: &Ctx<'js>,
    name: &str,
    expression: &str,
) -> rquickjs::Result<T> {
    let module = Module::declare(ctx.clone(), name, format!("export default {expression}"))?;
    let (module, done) = module.eval()?;
    done.finish::<()>()?;
    module.get("default")
}

unsafe extern "C" {
    /// Of QuickJS as `lasting.py` changes it.
    fn JS_MakeLasting(ctx: *mut JSContext);
}

/// What is there now stays as long as the instance: nobody counts references to it any more,
/// nor do collections go through it, so that requests leave its pages alone.
fn make_lasting() {
    interpreter().context.with(|ctx| {
        // SAFETY: no script runs.
        unsafe { JS_MakeLasting(ctx.as_raw().as_ptr()) }
    });
}

/// Memory that one request grows is no part of what is forked ahead: have it grown.
fn make_room() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(ROOM)));
}

/// Has what every request does done once: tables have grown then, and what is free lies together.
fn warm_up() {
    let interpreter = interpreter();
    interpreter.context.with(|ctx| {
        let done = interpreter
            .hooks
            .warm_up
            .get(&ctx)
            .and_then(|hook| hook.call::<_, ()>(()));
        if let Err(error) = done {
            panic!("{}", CaughtError::from_error(&ctx, error));
        }
    });
}

/// Runs a script's modules and finds its handler.
pub(crate) fn init(files: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    let interpreter = interpreter();
    random::reseed();
    event_loop::start_clock();
    let Some(main) = files.first().map(|(path, _)| path.clone()) else {
        return Err(script_error::plain("the script has no files"));
    };
    modules::have(files);
    let made = interpreter.context.with(|ctx| evaluate(&ctx, &main));
    modules::forget_what_was_loaded();
    made?;
    interpreter
        .allocated
        .set(usize::try_from(interpreter.runtime.memory_usage().malloc_size).unwrap_or(0));
    make_room();
    make_lasting();
    memory::begin_request();
    Ok(())
}

fn evaluate(ctx: &Ctx<'_>, main: &str) -> Result<(), Error> {
    let told = |error| script_error::of(ctx, error);
    let hooks = &interpreter().hooks;
    let variables: Vec<Vec<String>> = get_environment()
        .into_iter()
        .map(|(name, value)| vec![name, value])
        .collect();
    let configured = hooks
        .configure
        .get(ctx)
        .and_then(|hook| hook.call::<_, ()>((variables,)));
    configured.map_err(told)?;
    let module = modules::load(ctx, main, None).map_err(told)?;
    let (module, done) = Module::eval(module).map_err(told)?;
    // A module may wait at its top level.
    event_loop::run(ctx, || {
        done.state() != rquickjs::promise::PromiseState::Pending
    });
    match done.result::<Value>() {
        Some(Ok(_)) => {}
        Some(Err(error)) => {
            event_loop::forget_rejections();
            return Err(told(error));
        }
        None => {
            let why = "its top level waits for what never comes";
            return Err(script_error::at(main, why));
        }
    }
    let namespace = module.namespace().map_err(told)?;
    let adopted = hooks
        .adopt
        .get(ctx)
        .and_then(|hook| hook.call((namespace,)));
    let missing: Option<String> = adopted.map_err(told)?;
    missing.map_or(Ok(()), |why| Err(script_error::at(main, &why)))
}

/// Answers the request.
pub(crate) fn handle(request: IncomingRequest, out: ResponseOutparam) {
    let interpreter = interpreter();
    random::reseed();
    event_loop::start_clock();
    let threshold = interpreter.allocated.get() + interpreter.allocated.get() / 2 + UNCOLLECTED;
    interpreter.runtime.set_gc_threshold(threshold);
    let method = exchange::method(&request);
    exchange::begin(Exchange::new(request, out));
    interpreter.context.with(|ctx| {
        let dispatched = interpreter.hooks.dispatch.get(&ctx);
        let dispatched = dispatched.and_then(|hook| hook.call::<_, ()>((method,)));
        if let Err(error) = dispatched {
            // Only what is built in could have thrown it, or memory was out.
            exchange::fail(&CaughtError::from_error(&ctx, error).to_string());
        }
        event_loop::run(&ctx, exchange::has_ended);
    });
    if exchange::is_unanswered() {
        let why =
            "the handler's promise never settles: there is nothing left that it could wait for";
        eprintln!("Uncaught {why}");
        exchange::fail(why);
    }
    exchange::end();
}

/// Has the next timer called that is due; see `web/timers.js`.
pub(crate) fn run_timer(ctx: &Ctx<'_>) -> f64 {
    let called = interpreter().hooks.run_timer.get(ctx);
    called.and_then(|hook| hook.call(())).unwrap_or(-1.0)
}

/// Tells of a rejection that nobody handles.
pub(crate) fn unhandled<'js>(ctx: &Ctx<'js>, promise: Value<'js>, reason: Value<'js>) {
    let told = interpreter().hooks.unhandled.get(ctx);
    // Where even that fails there is nobody to tell.
    let _ = told.and_then(|hook| hook.call::<_, ()>((promise, reason)));
}

/// What an error says.
pub(crate) fn describe<'js>(ctx: &Ctx<'js>, error: Value<'js>) -> Option<String> {
    interpreter()
        .hooks
        .describe
        .get(ctx)
        .and_then(|hook| hook.call((error,)))
        .ok()
}

/// A stack without what is built in.
pub(crate) fn frames(ctx: &Ctx<'_>, stack: String) -> Option<String> {
    interpreter()
        .hooks
        .frames
        .get(ctx)
        .and_then(|hook| hook.call((stack,)))
        .ok()
}
