//! The output of commands, and the resulting responses.

use std::eprintln;
use std::string::ToString;

use super::*;
use crate::testing::MemoryPlatform;

/// Returns the response to output that is written in pieces of these sizes, in turn.
fn respond(output: &[u8], pieces: &[usize]) -> (Result<(), Failure>, MemoryPlatform) {
    let mut platform = MemoryPlatform::new(0);
    let mut written = Output::default();
    let mut rest = output;
    let mut sizes = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(1).clamp(1, rest.len());
        let (piece, after) = rest.split_at(size);
        written.write(piece, false, &mut platform).unwrap();
        rest = after;
    }
    (written.finish(false, &mut platform), platform)
}

/// Returns status, headers as text, and body of the response to `output`.
#[track_caller]
fn response(output: &str) -> (u16, Vec<String>, String) {
    let (result, platform) = respond(output.as_bytes(), &[usize::MAX]);
    result.unwrap();
    let head = platform.response_head.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| format!("{}: {}", text(name), text(value)))
        .collect();
    (head.status, headers, text(&platform.response_body))
}

const PLAIN: &str = "content-type: text/plain; charset=utf-8";

#[test]
fn header_blocks_become_heads() {
    for (output, status, headers, body) in [
        (
            "Content-Type: text/html\n\n<p>",
            200,
            vec!["content-type: text/html"],
            "<p>",
        ),
        (
            "Status: 404 Not Found\r\nX-A:  b \r\n\r\n",
            404,
            vec!["x-a: b"],
            "",
        ),
        ("Status: 204\n\n", 204, vec![], ""),
        ("Location: /a\n\n", 302, vec!["location: /a"], ""),
        (
            "Status: 301 Moved\nLocation: http://b/\n\n",
            301,
            vec!["location: http://b/"],
            "",
        ),
        ("Content-Type:\n\nx", 200, vec!["content-type: "], "x"),
        (
            "Status: 200\nContent-Length: 3\n\nabc",
            200,
            vec!["content-length: 3"],
            "abc",
        ),
        (
            "Status: 200\nContent-Length: +3\nUpgrade: h2c\nHost: a\n\nabc",
            200,
            vec![],
            "abc",
        ),
    ] {
        let got = response(output);
        assert_eq!(got.0, status, "{output:?}");
        assert_eq!(got.1, headers, "{output:?}");
        assert_eq!(got.2, body, "{output:?}");
    }
}

#[test]
fn everything_else_is_plain_text() {
    for output in [
        "hello",
        "hello\n\nworld",
        "\n",
        "\nContent-Type: a\n\n",
        "note: this is no CGI field\n\nbody",
        "Content-Type: text/html\n<p>",
        "Content-Type: text/html",
        "Content-Type: text/html\n",
        "Content-Type : a\n\n",
        ": a\nStatus: 200\n\n",
        "Status: 200\nX: \x01\n\n",
        "Status: 200\n folded\n\n",
        "{\"a\": 1}",
    ] {
        let (status, headers, body) = response(output);
        assert_eq!(
            (status, headers),
            (200, vec![PLAIN.to_string()]),
            "{output:?}"
        );
        assert_eq!(body, output);
    }
}

#[test]
fn nothing_is_no_response() {
    let (result, platform) = respond(b"", &[1]);
    assert_eq!(result.unwrap_err().outcome, Outcome::NoResponse);
    assert_eq!(platform.response_head, None);
}

#[test]
fn a_status_that_is_none_is_a_bad_response() {
    for status in [
        "",
        "abc",
        "20",
        "2000",
        "101 Switching",
        "+200",
        "-20",
        "1e2",
    ] {
        let output = format!("Status: {status}\n\nbody");
        let (result, platform) = respond(output.as_bytes(), &[usize::MAX]);
        let failure = result.unwrap_err();
        assert_eq!(failure.outcome, Outcome::BadResponse, "{status}");
        assert!(failure.report.contains(status));
        assert!(platform.response_body.is_empty());
    }
}

#[test]
fn text_that_can_be_no_block_is_not_held_back() {
    let mut platform = MemoryPlatform::new(0);
    for first in ["<html>", "{", "hello world", "\u{e9}", " "] {
        platform.response_body.clear();
        let mut output = Output::default();
        output
            .write(first.as_bytes(), false, &mut platform)
            .unwrap();
        assert_eq!(platform.response_body, first.as_bytes());
    }
}

#[test]
fn a_block_without_an_end_is_a_body_in_the_end() {
    let line = "x: y\n";
    let long = line.repeat(2 * MAX_BLOCK / line.len());
    let mut platform = MemoryPlatform::new(0);
    let mut output = Output::default();
    for line in long.split_inclusive('\n') {
        output.write(line.as_bytes(), false, &mut platform).unwrap();
    }
    assert!(matches!(
        output,
        Output::Body {
            reports_failure: false
        }
    ));
    output.finish(false, &mut platform).unwrap();
    assert_eq!(platform.response_body, long.as_bytes());
}

#[test]
fn an_oversized_header_block_is_not_sent() {
    let fields = "Set-Cookie: x\n".repeat(MAX_BLOCK / 10);
    let output = format!("Content-Type: text/plain\n{fields}\nbody");
    let (result, platform) = respond(output.as_bytes(), &[100]);
    let failure = result.unwrap_err();
    assert_eq!(failure.outcome, Outcome::BadResponse);
    assert!(failure.report.contains("65536 bytes"), "{failure}");
    assert!(platform.response_head.is_none() && platform.response_body.is_empty());
}

#[test]
fn the_answer_to_head_keeps_its_length() {
    let mut platform = MemoryPlatform::new(0);
    let mut output = Output::default();
    output
        .write(
            b"Status: 200\nContent-Length: 10\n\nnot sent",
            true,
            &mut platform,
        )
        .unwrap();
    output.finish(true, &mut platform).unwrap();
    assert!(platform.response_body.is_empty());
    let head = platform.response_head.unwrap();
    assert_eq!(head.headers.len(), 1);
}

#[test]
fn how_output_is_cut_into_writes_makes_no_difference() {
    const PARTS: [&str; 16] = [
        "Content-Type: text/plain",
        "Status: 404 No",
        "Status: x",
        "Location: /a",
        "X-Y: z",
        "note: a",
        "no field",
        ":",
        "\n",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "body",
        "\u{e9}",
        "Content-Length: 4",
    ];
    let given = std::env::var("FAASW_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |number| number.parse().unwrap());
    eprintln!("again with FAASW_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..3_000 {
        let parts = random.usize(1..=10);
        let output: String = (0..parts)
            .map(|_| PARTS[random.usize(..PARTS.len())])
            .collect();
        let pieces: Vec<usize> = (0..4).map(|_| random.usize(1..=12)).collect();
        let (whole, at_once) = respond(output.as_bytes(), &[usize::MAX]);
        let (cut, by_piece) = respond(output.as_bytes(), &pieces);
        assert_eq!(whole, cut, "{output:?} {pieces:?}");
        assert_eq!(
            at_once.response_head, by_piece.response_head,
            "{output:?} {pieces:?}"
        );
        assert_eq!(
            at_once.response_body, by_piece.response_body,
            "{output:?} {pieces:?}"
        );
    }
}
