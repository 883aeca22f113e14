//! When calls end: aborted, several at once, after the response.

use crate::support::scripts::asked;
use crate::{never, of, ok, run, text, unfinished};
use faasw_abi::outgoing::Tail;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::MemoryAnswer;

#[test]
fn calls_are_aborted_at_any_moment() {
    // Before.
    let (told, calls) = of(
        "return fetch('http://a/', { signal: AbortSignal.abort('why') })",
        vec![],
    );
    assert_eq!((told.as_str(), calls.len()), ("why", 0));
    let (told, calls) = of(
        "let reason;
        const body = new ReadableStream({ cancel(given) { reason = given } });
        const request = new Request('http://a/', { method: 'POST', body, duplex: 'half', signal: AbortSignal.abort(7) });
        await fetch(request).catch(() => {});
        return [reason, request.bodyUsed]",
        vec![],
    );
    assert_eq!((told.as_str(), calls.len()), ("[7,true]", 0));
    // While the server does not answer.
    for (signal, wanted) in [
        ("AbortSignal.timeout(50)", "TimeoutError"),
        (
            "AbortSignal.any([new AbortController().signal, AbortSignal.timeout(50)])",
            "TimeoutError",
        ),
        (
            "(() => { const c = new AbortController();
            setTimeout(() => c.abort(), 20); return c.signal })()",
            "AbortError",
        ),
    ] {
        let (told, calls) = of(
            &format!(
                "const signal = {signal};
                try {{ await fetch('http://a/', {{ signal }}) }} catch (error) {{ return [error.name, error === signal.reason] }}"
            ),
            vec![never()],
        );
        assert_eq!(told, format!("[\"{wanted}\",true]"), "{signal}");
        assert!(calls[0].is_over);
    }
    // While the request's body is sent.
    let (told, calls) = of(
        "let reason;
        const controller = new AbortController();
        const body = new ReadableStream({
            pull(to) { to.enqueue(new Uint8Array(10));
            if (!this.n) { this.n = 1; return } return new Promise(() => {}) },
            cancel(given) { reason = given } });
        const sent = fetch('http://a/', { method: 'POST', body, duplex: 'half', signal: controller.signal });
        setTimeout(() => controller.abort('enough'), 10);
        try { await sent } catch (error) { return [error, reason] }",
        vec![never()],
    );
    assert_eq!(told, "[\"enough\",\"enough\"]");
    assert!(calls[0].is_over && !matches!(calls[0].tail, Some(Tail::Trailers(_))));
    // In the middle of the response's body.
    for read in [
        "response.text()",
        "(async () => { for await (const piece of response.body); })()",
        "new Response(response.body).text()",
        "response.clone().text()",
    ] {
        let (told, calls) = of(
            &format!(
                "const controller = new AbortController();
                const response = await fetch('http://a/', {{ signal: controller.signal }});
                setTimeout(() => controller.abort(), 10);
                try {{ await {read} }} catch (error) {{
            return [error.name, error === controller.signal.reason] }}"
            ),
            vec![unfinished("abc")],
        );
        assert_eq!(told, "[\"AbortError\",true]", "{read}");
        assert!(calls[0].is_over, "{read}");
    }
    // Afterwards.
    let (told, _) = of(
        "const controller = new AbortController();
        const text = await (await fetch('http://a/', { signal: controller.signal })).text();
        controller.abort();
        return text",
        vec![ok("all")],
    );
    assert_eq!(told, "all");
    // A cancelled body closes its call.
    let (_, calls) = of(
        "const response = await fetch('http://a/'); await response.body.cancel(); await null; return ''",
        vec![unfinished("abc")],
    );
    assert!(calls[0].is_over);
}

#[test]
fn several_calls_run_at_once() {
    let answers = (0..16)
        .map(|nth| MemoryAnswer {
            delay: (nth * 7) % 5,
            ..ok(&format!("{nth} "))
        })
        .collect();
    let (told, calls) = of(
        "const all = Array.from({ length: 16 }, (_, nth) => fetch(`http://a/${nth}`).then((response) => response.text()));
        return (await Promise.all(all)).join('')",
        answers,
    );
    assert_eq!(told, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ");
    assert_eq!(calls.len(), 16);
}

#[test]
fn only_wait_until_keeps_a_call_beyond_the_response() {
    let script = "export default { fetch() { fetch('http://a/').then(() => console.log('never')); return new Response('x') } }";
    let ready = run(script, asked("/"), vec![ok("late")]);
    assert_eq!(text(&ready), "x");
    assert_eq!(ready.platform().logged(LogStream::Out), b"");
    assert!(ready.platform().calls.asked[0].is_over);
    let script = "export default { fetch(request, env, ctx) {
        ctx.waitUntil(fetch('http://a/').then((response) => response.text()).then(console.log));
        return new Response('x') } }";
    let ready = run(
        script,
        asked("/"),
        vec![MemoryAnswer {
            delay: 5,
            ..ok("late")
        }],
    );
    assert_eq!(ready.platform().logged(LogStream::Out), b"late\n");
}

#[test]
fn a_script_that_waits_for_calls_and_timers_gets_both() {
    let (told, _) = of(
        "const ticks = [];
        const timer = setInterval(() => ticks.push(1), 1);
        const text = await (await fetch('http://a/')).text();
        clearInterval(timer);
        return [text, ticks.length > 0]",
        vec![MemoryAnswer {
            // The platform's time passes slowly while it waits for calls.
            delay: 5_000,
            ..ok("x")
        }],
    );
    assert_eq!(told, "[\"x\",true]");
}
