//! Bodies of scripts in JavaScript: text, binary data and forms, whole and streamed.

use faasw::Digest;

use crate::{
    deploy,
    e2e::{BENCH, binary},
};

pub fn bodies_stream_both_ways() {
    deploy(
        "stream",
        "export default { async fetch(request, env, ctx) {
            const path = new URL(request.url).pathname;
            if (path === '/through') return new Response(request.body);
            if (path === '/upper') return new Response(request.body
                .pipeThrough(new TextDecoderStream())
                .pipeThrough(new TransformStream({
                    transform: (text, to) => to.enqueue(text.toUpperCase()),
                }))
                .pipeThrough(new TextEncoderStream()));
            if (path === '/form') {
                const form = await request.formData();
                return Response.json(await Promise.all([...form].map(async ([name, value]) =>
                    [name, typeof value === 'string' ? value
                        : `${value.name} ${value.type} ${await value.text()}`])));
            }
            ctx.waitUntil((async () => {
                await new Promise((done) => setTimeout(done, 5));
                console.log('after the response');
            })());
            let count = 0;
            return new Response(new ReadableStream({ async pull(to) {
                await new Promise((done) => setTimeout(done, 1));
                to.enqueue(new TextEncoder().encode(`${++count} `));
                if (count === 5) to.close();
            } }));
        } }",
    );
    let body = "aé🦀".repeat(100_000);
    let through = BENCH.request("POST", "/stream/through", "", &body);
    assert_eq!(through.body, body);
    let upper = BENCH.request("POST", "/stream/upper", "", &body);
    assert_eq!(upper.body, body.to_uppercase());
    assert_eq!(BENCH.text("/stream/"), "1 2 3 4 5 ");
    BENCH.log_once("stream", |lines| {
        lines.iter().any(|line| line.text == "after the response")
    });
    let form = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nü\r\n--b\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"n.txt\"\r\n\
        Content-Type: text/x\r\n\r\nx\r\n--b--\r\n";
    let told = BENCH.request(
        "POST",
        "/stream/form",
        "content-type: multipart/form-data; boundary=b\r\n",
        form,
    );
    assert_eq!(told.body, r#"[["a","ü"],["f","n.txt text/x x"]]"#);
    // Some forms are empty, and some are malformed.
    for (form, status) in [
        ("--b--", 200),
        ("\r\n--b--", 200),
        ("", 502),
        ("--b", 502),
        ("--b\r\n", 502),
        ("--b\r\n\r\n", 502),
        ("--bb\r\n\r\n--b--", 502),
        ("--b\r\nno field\r\n\r\n\r\n--b--", 502),
    ] {
        let kind = "content-type: multipart/form-data; boundary=b\r\n";
        let answer = BENCH.request("POST", "/stream/form", kind, form);
        assert_eq!(answer.status, status, "{form:?}: {answer:?}");
    }
}

/// A script receives and returns bytes unchanged, in every way that it may read and write them.
pub fn binary_bodies_arrive_as_they_were_sent() {
    deploy(
        "binary",
        "const inPieces = (stream) => {
            const reader = stream.getReader();
            return new ReadableStream({ async pull(to) {
                const { done, value } = await reader.read();
                if (done) return to.close();
                to.enqueue(value.slice(0, 3));
                if (value.length > 3) to.enqueue(value.subarray(3));
            } });
         };
         const ways = {
            arrayBuffer: (request) => request.arrayBuffer(),
            bytes: (request) => request.bytes(),
            blob: (request) => request.blob(),
            body: (request) => request.body,
            pieces: (request) => inPieces(request.body),
            clone: (request) => request.clone().body,
            async digest(request) {
                const digest = await crypto.subtle.digest('SHA-256', await request.arrayBuffer());
                const digit = (byte) => byte.toString(16).padStart(2, '0');
                return [...new Uint8Array(digest)].map(digit).join('');
            },
            async iterated(request) {
                let count = 0;
                const values = new Set();
                for await (const piece of request.body) {
                    count += piece.length;
                    for (const value of piece) values.add(value);
                }
                return `${count} ${values.size}`;
            },
         };
         export default { async fetch(request) {
            const way = new URL(request.url).pathname.slice(1);
            return new Response(await ways[way](request));
         } }",
    );
    for way in ["arrayBuffer", "bytes", "blob", "body", "pieces", "clone"] {
        BENCH.assert_echoes_bytes(&format!("/binary/{way}"));
    }
    // Errors in both directions could cancel each other.
    let body = binary();
    let ask = |way: &str| BENCH.request("POST", &format!("/binary/{way}"), "", &body);
    assert_eq!(ask("digest").body, Digest::of(&body).to_string());
    assert_eq!(ask("iterated").body, format!("{} 256", body.len()));
}
