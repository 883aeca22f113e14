//! Content codings of responses: what scripts read, and what a handler passes on.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use crate::support::scripts::asked;
use crate::support::values;
use crate::{answer, field, of, ok, run, run_with, text};
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_runtime::testing::MemoryAnswer;

/// The text whose coded forms the servers send.
const TEXT: &str = "grün und blau, grün und blau, grün und blau, grün und blau, ";

/// [`TEXT`] in Brotli, by Node.js.
const BROTLI: [u8; 37] = [
    0x1b, 0x3f, 0x00, 0xf8, 0x9d, 0x07, 0x76, 0xac, 0xc3, 0xb2, 0xf5, 0x2c, 0x09, 0xc5, 0x4b, 0xb7,
    0x33, 0xde, 0xac, 0x13, 0x63, 0x49, 0x10, 0x36, 0xb9, 0x06, 0x09, 0x23, 0x1b, 0x16, 0x4e, 0xc5,
    0x00, 0x6a, 0x3f, 0xc4, 0x29,
];

/// 64 MiB of zeroes in Brotli, by Node.js.
const BROTLI_ZEROES: [u8; 102] = [
    0xcb, 0xff, 0xff, 0x3f, 0x00, 0x24, 0x00, 0xe2, 0xb1, 0x40, 0x72, 0xef, 0xff, 0xf8, 0xff, 0xff,
    0x07, 0x80, 0x04, 0x40, 0x1c, 0x16, 0x80, 0xee, 0xfd, 0x1f, 0xff, 0xff, 0xff, 0x00, 0x90, 0x00,
    0x88, 0xc3, 0x02, 0xd0, 0xbd, 0xff, 0xe3, 0xff, 0xff, 0x1f, 0x00, 0x12, 0x00, 0x71, 0x58, 0x00,
    0xba, 0xf7, 0x7f, 0xfc, 0xff, 0xff, 0x03, 0x40, 0x02, 0x20, 0x0e, 0x0b, 0x40, 0xf7, 0xfe, 0x8f,
    0xff, 0xff, 0x7f, 0x00, 0x48, 0x00, 0xc4, 0x61, 0x01, 0xe8, 0xde, 0xff, 0xf1, 0xff, 0xff, 0x0f,
    0x00, 0x09, 0x80, 0x38, 0x2c, 0x00, 0xdd, 0xfb, 0xbf, 0xfc, 0xff, 0xff, 0x03, 0x20, 0x01, 0x10,
    0x87, 0x05, 0xa0, 0x7b, 0xff, 0x07,
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns an answer with that coding, whose body arrives in pieces of that size.
fn coded(coding: &str, body: &[u8], piece: usize) -> MemoryAnswer {
    let length = body.len().to_string();
    let fields = [("content-encoding", coding), ("content-length", &length)];
    MemoryAnswer {
        pieces: body.chunks(piece).map(<[u8]>::to_vec).collect(),
        ..answer(200, &fields, &[])
    }
}

#[test]
fn bodies_are_decoded_in_each_form_that_a_script_reads() {
    let plain = TEXT.as_bytes();
    let (first, second) = plain.split_at(20);
    for (coding, body) in [
        ("gzip", gzip(plain)),
        ("x-gzip", gzip(plain)),
        ("GZip", gzip(plain)),
        // Several members, and bytes that belong to none.
        ("gzip", [gzip(first), gzip(second)].concat()),
        ("gzip", [gzip(plain), vec![0; 9]].concat()),
        ("deflate", zlib(plain)),
        ("deflate", deflate(plain)),
        ("br", BROTLI.to_vec()),
        ("identity, br", BROTLI.to_vec()),
        ("deflate, gzip", gzip(&zlib(plain))),
        ("br, gzip", gzip(&BROTLI)),
    ] {
        for read in [
            "return response.text()",
            "return new TextDecoder().decode(await response.arrayBuffer())",
            "let all = ''; const to = new TextDecoder();
            for await (const piece of response.body) all += to.decode(piece, { stream: true });
            return all",
            "return (await Promise.all([response.clone().text(), response.text()]))[0]",
        ] {
            for piece in [1, 7, body.len()] {
                let (told, calls) = of(
                    &format!(
                        "const response = await fetch('http://a/');
                        const {{ headers }} = response;
                        if (headers.get('content-encoding') !== '{coding}') return 'not visible';
                        if (headers.get('content-length') !== '{}') return 'no length';
                        {read}",
                        body.len()
                    ),
                    vec![coded(coding, &body, piece)],
                );
                assert_eq!(told, TEXT, "{coding} in pieces of {piece}: {read}");
                assert!(calls[0].is_over);
            }
        }
    }
}

#[test]
fn a_request_accepts_the_codings_that_are_decoded() {
    for (headers, sent) in [
        ("{}", "br, gzip"),
        ("{ 'Accept-Encoding': 'identity' }", "identity"),
        ("{ 'accept-encoding': 'zstd' }", "zstd"),
        ("{ range: 'bytes=0-9' }", "identity"),
    ] {
        let (_, calls) = of(
            &format!("return (await fetch('http://a/', {{ headers: {headers} }})).text()"),
            vec![ok("")],
        );
        assert_eq!(field(&calls[0], "accept-encoding"), [sent], "{headers}");
    }
}

#[test]
fn bodies_that_need_no_decoding_stay_as_they_are() {
    let body = "a body that is not coded";
    for coding in ["zstd", "gzip, zstd", "identity", "", "br, br, br, br"] {
        let (told, _) = of(
            "return (await fetch('http://a/')).text()",
            vec![coded(coding, body.as_bytes(), 9)],
        );
        assert_eq!(told, body, "{coding}");
    }
    // There is no body.
    for coding in ["gzip", "deflate", "br"] {
        for status in [200, 204, 304] {
            let sent = answer(status, &[("content-encoding", coding)], &[]);
            let (told, _) = of(
                "const response = await fetch('http://a/');
                return [await response.text(), response.headers.get('content-encoding')]",
                vec![sent],
            );
            assert_eq!(told, format!("[\"\",\"{coding}\"]"), "{status}");
        }
        let fields = [("content-encoding", coding), ("content-length", "20")];
        let (told, _) = of(
            "const response = await fetch('http://a/', { method: 'HEAD' });
            return [response.body, response.headers.get('content-length')]",
            vec![answer(200, &fields, &[])],
        );
        assert_eq!(told, "[null,\"20\"]");
    }
}

#[test]
fn invalid_and_incomplete_bodies_are_type_errors() {
    let plain: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let cut = |body: Vec<u8>| body.split_at(body.len() / 2).0.to_vec();
    let mut changed = gzip(&plain);
    let at = changed.len() - 6;
    changed[at] ^= 1;
    for (coding, body, why) in [
        ("gzip", b"no gzip data at all".to_vec(), "invalid"),
        (
            "deflate",
            b"\xff\xff\xff no deflate data".to_vec(),
            "invalid",
        ),
        ("br", b"\xff\xff\xff no brotli data".to_vec(), "invalid"),
        ("gzip", changed, "invalid"),
        ("gzip", vec![0x1f], "incomplete"),
        ("deflate", vec![0x78], "incomplete"),
        ("gzip", cut(gzip(&plain)), "incomplete"),
        ("deflate", cut(zlib(&plain)), "incomplete"),
        ("deflate", cut(deflate(&plain)), "incomplete"),
        ("br", BROTLI[..30].to_vec(), "incomplete"),
        ("deflate, gzip", gzip(&cut(zlib(&plain))), "incomplete"),
    ] {
        for read in [
            "await response.text()",
            "await response.bytes()",
            "for await (const piece of response.body);",
            "await response.clone().text()",
        ] {
            let (told, calls) = of(
                &format!(
                    "const response = await fetch('http://a/');
                    try {{ {read} }} catch (error) {{
                        return [error instanceof TypeError, error.cause.code, error.message];
                    }}"
                ),
                vec![coded(coding, &body, 5000)],
            );
            let expected = format!(
                "[true,\"HTTP-response-content-coding\",\"cannot fetch http://a: \
                 HTTP-response-content-coding: the data is {why}\"]"
            );
            assert_eq!(told, expected, "{coding}: {read}");
            assert!(calls[0].is_over, "{coding}: {read}");
        }
    }
    // An incomplete message is reported as such.
    let mut sent = coded("gzip", &cut(gzip(&plain)), 5000);
    let failure = Failure::new(FailureCode::HttpResponseIncomplete);
    sent.tail = Some(Tail::Failed(failure).encode());
    let (told, _) = of("return (await fetch('http://a/')).text()", vec![sent]);
    assert!(told.contains("HTTP-response-incomplete"), "{told}");
}

#[test]
fn a_body_that_decodes_to_more_than_the_memory_is_streamed() {
    const SIZE: usize = 256 << 20;
    let zeroes = gzip(&vec![0; SIZE]);
    for (coding, body, size) in [
        ("gzip", zeroes.clone(), SIZE),
        ("br", BROTLI_ZEROES.to_vec(), 64 << 20),
        ("gzip, gzip", gzip(&zeroes), SIZE),
    ] {
        let script = "export default { async fetch() {
            const response = await fetch('http://a/');
            let bytes = 0;
            for await (const piece of response.body) bytes += piece.length;
            return new Response(String(bytes));
        } }";
        let call = asked("/").memory(48 << 20);
        let ready = run_with(script, call, 112 << 10, vec![coded(coding, &body, 60_000)]);
        assert_eq!(text(&ready), size.to_string(), "{coding}");
        // The whole body does not fit.
        let script = "export default { async fetch() {
            const response = await fetch('http://a/');
            try { await response.text() } catch (error) { return new Response(String(error)) }
        } }";
        let call = asked("/").memory(48 << 20);
        let ready = run_with(script, call, 112 << 10, vec![coded(coding, &body, 60_000)]);
        let told = text(&ready);
        assert!(told.contains("out of memory"), "{coding}: {told}");
    }
}

/// Returns the coding, the length and the body of a handler's response to a client that accepts all
/// codings.
#[track_caller]
fn passed_on(given: &str, sent: MemoryAnswer) -> (Option<String>, Option<String>, Vec<u8>) {
    passed_to(Some("gzip, deflate, br"), given, sent)
}

/// Returns the same for a client with that field `accept-encoding`.
#[track_caller]
fn passed_to(
    accepted: Option<&str>,
    given: &str,
    sent: MemoryAnswer,
) -> (Option<String>, Option<String>, Vec<u8>) {
    let script = format!(
        "export default {{ async fetch() {{
            const response = await fetch('http://a/');
            {given}
        }} }}"
    );
    let mut call = asked("/");
    if let Some(accepted) = accepted {
        call = call.header("accept-encoding", accepted);
    }
    let ready = run(&script, call, vec![sent]);
    let platform = ready.platform();
    let head = platform.response_head.as_ref().unwrap();
    let one = |name: &str| {
        let values = values(&head.headers, name);
        assert!(values.len() <= 1, "{name} twice: {given}");
        let value = values.first();
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let (coding, length) = (one("content-encoding"), one("content-length"));
    (coding, length, platform.response_body.clone())
}

#[test]
fn an_unread_body_is_passed_on_as_it_came_and_a_read_one_without_its_coding() {
    let body = gzip(TEXT.as_bytes());
    let length = body.len().to_string();
    for given in [
        "return response",
        "return new Response(response.body, response)",
        "return new Response(response.body, { headers: Object.fromEntries(response.headers) })",
    ] {
        let (coding, sent, passed) = passed_on(given, coded("gzip", &body, 11));
        assert_eq!(coding.as_deref(), Some("gzip"), "{given}");
        assert_eq!(sent.as_deref(), Some(length.as_str()), "{given}");
        assert_eq!(passed, body, "{given}");
    }
    // A body that cannot be decoded is no error if it is not decoded.
    let (_, _, passed) = passed_on("return response", coded("gzip", b"no gzip", 3));
    assert_eq!(passed, b"no gzip");
    for given in [
        "return new Response(await response.text(), response)",
        "return new Response(await response.bytes(), { headers: response.headers })",
        "return new Response(await response.text(), { headers: new Headers(response.headers) })",
        "return response.clone()",
        "return new Response(response.body)",
        "return new Response(response.body.pipeThrough(new TransformStream()), response)",
        "return new Response(response.body.tee()[0], response)",
        "const { headers } = new Response(null, response); headers.delete('content-encoding');
        return new Response(response.body, { headers })",
        "const { headers } = new Response(null, response); headers.set('x-a', 'b');
        return new Response(await response.blob(), { headers })",
    ] {
        let (coding, sent, passed) = passed_on(given, coded("gzip", &body, 11));
        assert_eq!(coding, None, "{given}");
        assert_eq!(sent, None, "{given}");
        assert_eq!(String::from_utf8_lossy(&passed), TEXT, "{given}");
    }
    // A script that codes the body itself says so itself.
    let again = "const to = new CompressionStream('gzip');
        const answer = new Response(response.body.pipeThrough(to), response);
        answer.headers.set('content-encoding', 'gzip');
        return answer";
    let (coding, _, passed) = passed_on(again, coded("br", &BROTLI, 11));
    assert_eq!(coding.as_deref(), Some("gzip"));
    assert!(passed.starts_with(&[0x1f, 0x8b]), "{passed:?}");
}

#[test]
fn a_client_that_does_not_accept_the_coding_gets_the_decoded_body() {
    let body = gzip(TEXT.as_bytes());
    for given in [
        "return response",
        "return new Response(response.body, response)",
        "return new Response(response.body, { headers: Object.fromEntries(response.headers) })",
    ] {
        for (accepted, coding, is_accepted) in [
            (None, "gzip", false),
            (Some(""), "gzip", false),
            (Some("identity"), "gzip", false),
            (Some("br, deflate"), "gzip", false),
            (Some("gzip;q=0, *"), "gzip", false),
            (Some("*;q=0"), "gzip", false),
            (Some("gzip ; Q=0.000"), "gzip", false),
            (Some("br, GZIP;q=0.1"), "gzip", true),
            (Some("x-gzip"), "gzip", true),
            (Some("gzip"), "x-gzip", true),
            (Some("br, *;q=0.5"), "gzip", true),
            (Some("gzip"), "identity, gzip", true),
        ] {
            let what = format!("{given}: {coding} for {accepted:?}");
            let (named, length, passed) = passed_to(accepted, given, coded(coding, &body, 11));
            assert_eq!(named.is_some(), is_accepted, "{what}");
            assert_eq!(length.is_some(), is_accepted, "{what}");
            let wanted = if is_accepted { &body } else { TEXT.as_bytes() };
            assert_eq!(passed, wanted, "{what}");
        }
    }
    let both = gzip(&BROTLI);
    let given = "return response";
    let (named, _, passed) = passed_to(Some("gzip"), given, coded("br, gzip", &both, 11));
    assert_eq!(named, None);
    assert_eq!(passed, TEXT.as_bytes());
    // An unknown coding cannot be decoded.
    let (named, _, passed) = passed_to(None, given, coded("zstd", b"coded", 5));
    assert_eq!(named.as_deref(), Some("zstd"));
    assert_eq!(passed, b"coded");
}

#[test]
fn an_upload_of_a_decoded_body_has_no_coding() {
    let body = gzip(TEXT.as_bytes());
    for given in ["response.body", "await response.bytes()"] {
        let (told, calls) = of(
            &format!(
                "const response = await fetch('http://a/');
                const {{ headers }} = response;
                const body = {given};
                return (await fetch('http://b/', {{
                    method: 'POST', body, headers, duplex: 'half',
                }})).text()"
            ),
            vec![
                coded("gzip", &body, 11),
                MemoryAnswer {
                    delay: 8,
                    ..ok("done")
                },
            ],
        );
        assert_eq!(told, "done");
        assert!(field(&calls[1], "content-encoding").is_empty(), "{given}");
        assert_eq!(String::from_utf8_lossy(&calls[1].body), TEXT, "{given}");
    }
}
