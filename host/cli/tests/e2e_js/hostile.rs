//! Hostile or harmful scripts in JavaScript.

use faasw::{FunctionOptions, Node};

use crate::{
    HELLO,
    common::{give_up, time_limit},
    e2e::{Bench, limits},
    one,
};

pub fn hostile_scripts_affect_no_other_request() {
    // Scripts that never end have little time. Scripts that end by themselves are on a node that
    // gives them a minute, since a busy machine takes longer.
    let mut tight = limits();
    tight.instantiation = time_limit(3);
    tight.cpu_time = time_limit(2);
    tight.first_byte = time_limit(4);
    let tight = Bench::start(Node::builder(), tight);
    let mut roomy = limits();
    (roomy.first_byte, roomy.cpu_time) = (give_up(), give_up());
    let roomy = Bench::start(Node::builder(), roomy);
    let why = |bench: &Bench, text: &str| {
        let deploying = bench
            .node
            .deploy("bad", one(text), FunctionOptions::default());
        let deployed = bench.block_on(deploying);
        deployed
            .map(|done| panic!("{done:?}"))
            .unwrap_err()
            .to_string()
    };
    for bench in [&tight, &roomy] {
        bench.deploy("good", &one(HELLO), FunctionOptions::default());
    }
    for (text, wanted) in [
        (
            "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))",
            "out of memory",
        ),
        ("const a = []; for (;;) a.push({ a })", "out of memory"),
        ("let s = 'x'; for (;;) s += s", "string too long"),
        ("/(a+)+$/.test('a'.repeat(64) + 'b')", "ran longer"),
        ("for (;;) {}", "ran longer"),
        (
            "const next = () => queueMicrotask(next); next(); await new Promise(() => {})",
            "ran longer",
        ),
        // Each promise of the chain is kept alive by the one before, so either time or memory ends
        // first.
        (
            "const next = () => Promise.resolve().then(next); await next()",
            "",
        ),
        (
            "const next = () => setTimeout(next, 0); next(); await new Promise(() => {})",
            "ran longer",
        ),
        (
            "throw { get message() { throw 1 }, toString() { throw 2 } }",
            "Uncaught",
        ),
        (
            "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); \
             throw e",
            "",
        ),
        (
            "Error.prepareStackTrace = () => { throw 1 }; throw new Error('x')",
            "",
        ),
        (
            "globalThis.Response = null; String.prototype.includes = null; throw new Error('x')",
            "",
        ),
        (
            "for (const name of Reflect.ownKeys(globalThis)) try { delete globalThis[name] } catch \
             {}",
            "nothing to call",
        ),
    ] {
        let bench = match wanted {
            "ran longer" | "" => &tight,
            _ => &roomy,
        };
        let said = why(bench, text);
        assert!(said.contains(wanted), "{text}: {said}");
        assert!(!said.contains("Uncaught null"), "{text}: {said}");
    }
    let spoils = "export default { fetch() {
        const answer = new Response('spoilt');
        for (const kind of [Object, Array, Promise, String, Map, Set, Headers, Response, Request])
            for (const key of Reflect.ownKeys(kind.prototype))
                try { kind.prototype[key] = () => { throw 1 } } catch {}
        return answer;
    } }";
    roomy.deploy("spoils", &one(spoils), FunctionOptions::default());
    for _ in 0..3 {
        let answer = roomy.get("/spoils/");
        assert!(matches!(answer.status, 200 | 502), "{answer:?}");
    }
    let handlers = [
        ("fills", "const a = []; for (;;) a.push({ a })", 502),
        (
            "floods",
            "for (let i = 0; i < 5000; i++) console.log('x'.repeat(1000)); return new Response('')",
            200,
        ),
        (
            "sends",
            "return new Response(new \
             ReadableStream({ pull(to) { to.enqueue(new Uint8Array(0)) } }))",
            504,
        ),
        ("spins", "for (;;) {}", 504),
        (
            "queues",
            "const next = () => queueMicrotask(next); next(); return new Promise(() => {})",
            504,
        ),
        (
            "ticks",
            "const next = () => setTimeout(next, 0); next(); return new Promise(() => {})",
            504,
        ),
    ];
    for (name, body, status) in handlers {
        let text = format!("export default {{ fetch() {{ {body} }} }}");
        let bench = if status == 504 { &tight } else { &roomy };
        bench.deploy(name, &one(&text), FunctionOptions::default());
        let answer = bench.get(&format!("/{name}/"));
        let cut = answer.status == 200 && status == 504;
        assert!(answer.status == status || cut, "{name}: {answer:?}");
    }
    for bench in [tight, roomy] {
        assert_eq!(bench.text("/good/"), "hello");
        bench.end();
    }
}
