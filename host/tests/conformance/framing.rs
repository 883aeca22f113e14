//! Where a request ends: lengths, chunks, and contradictions between them. A mistake here is a
//! smuggled request.

use crate::case::{Answer, Case, Problem, Sees, Status, play};

const BROKEN: Answer = Problem(400, "request-body-unreadable");

fn post(fields: &str, body: &str) -> String {
    format!("POST /f/p HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked", body)
}

#[tokio::test(flavor = "multi_thread")]
async fn content_lengths_are_one_number() {
    let abc = Sees("POST /p", "abc");
    let mut cases = vec![
        Case::new("a length", post("Content-Length: 3", "abc"), &[abc]).has("content-length: 3"),
        Case::new(
            "leading zeros are digits (RFC 9110, 8.6)",
            post("Content-Length: 0000000000000000000003", "abc"),
            &[abc],
        )
        .has("content-length: 3"),
        Case::new(
            "the same length twice is one (RFC 9112, 6.3)",
            post("Content-Length: 3\r\nContent-Length: 3", "abc"),
            &[abc],
        ),
        Case::new(
            "white space around (RFC 9112, 5)",
            post("Content-Length: \t 3\t ", "abc"),
            &[abc],
        ),
        Case::new(
            "GET may have one, too",
            "GET /f/p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
            &[Sees("GET /p", "abc")],
        ),
        Case::new(
            "none is none (RFC 9112, 6.3)",
            post("X: y", ""),
            &[Sees("POST /p", "")],
        ),
        Case::new(
            "a name that only looks like one",
            post("Content_Length: 3\r\nContent-Lengt: 3", ""),
            &[Sees("POST /p", "")],
        ),
    ];
    // RFC 9112, section 6.3: the answer is 400, and the connection is closed.
    for value in [
        "+3",
        "-3",
        "0x3",
        "3,3",
        "3, 3",
        "3 3",
        "3;",
        "3a",
        "",
        "1e1",
        "\"3\"",
        "3.0",
        "18446744073709551616",
        "99999999999999999999999999",
        "\u{663}",
    ] {
        let fields = format!("Content-Length: {value}");
        cases.push(Case::closing(&fields, post(&fields, "abc"), &[Status(400)]));
    }
    for fields in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: +3",
        "Content-Length: 3\r\ncontent-length:",
    ] {
        cases.push(Case::closing(fields, post(fields, "abc"), &[Status(400)]));
    }
    // The node refuses it by its length, before the body comes.
    let large = post("Content-Length: 1073741825\r\nExpect: 100-continue", "");
    let too_large = Problem(413, "request-body-too-large");
    cases.push(Case::closing("too large", large, &[too_large]));
    // hyper reports this as a head that is too large.
    let huge = post("Content-Length: 18446744073709551614", "");
    cases.push(Case::closing("larger than any", huge, &[Status(431)]));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codings_are_chunked_alone() {
    let coding = Problem(501, "not-implemented");
    let abc = Sees("POST /p", "abc");
    let body = "3\r\nabc\r\n0\r\n\r\n";
    let mut cases = vec![
        Case::new("chunked", chunked(body), &[abc]).lacks("transfer-encoding"),
        Case::new(
            "in any case (RFC 9112, 7)",
            post("tRANSFER-eNCODING: cHUNKED", body),
            &[abc],
        ),
        // RFC 9112, section 6.3: the coding overrides the length, and the connection is closed.
        Case::closing(
            "a length before a coding",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked", body),
            &[abc],
        )
        .lacks("content-length"),
        Case::closing(
            "a length behind a coding",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5", body),
            &[abc],
        )
        .lacks("content-length"),
        Case::closing(
            "a length that is none behind a coding",
            post("Transfer-Encoding: chunked\r\nContent-Length: +5", body),
            &[abc],
        )
        .lacks("content-length"),
        Case::new(
            "a name that only looks like one",
            post("Transfer_Encoding: chunked\r\nContent-Length: 3", "abc"),
            &[abc],
        ),
        Case::closing(
            "HTTP/1.0 has no codings (RFC 9112, 6.1)",
            "POST /f/p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            &[Status(400)],
        ),
    ];
    // RFC 9112, section 6.3: chunked is not the last coding, so the length is unknown.
    for value in [
        "identity",
        "chunked, identity",
        "chunked, gzip",
        "xchunked",
        "chunkedx",
        "chunked;q=1",
        "\"chunked\"",
        "",
        "chunked,",
        "chunk",
        "chunked\u{e9}",
    ] {
        let fields = format!("Transfer-Encoding: {value}");
        cases.push(Case::closing(&fields, post(&fields, body), &[Status(400)]));
    }
    for fields in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: chunked\0",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: chunked\rX: y",
    ] {
        let fields = format!("Content-Length: 3\r\n{fields}");
        cases.push(Case::closing(&fields, post(&fields, body), &[Status(400)]));
    }
    // RFC 9112, section 6.1: the answer to an unknown coding is 501.
    for fields in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        cases.push(Case::closing(fields, post(fields, body), &[coding]));
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_bodies_are_decoded_strictly() {
    let abc = Sees("POST /p", "abc");
    let mut cases: Vec<_> = [
        ("three chunks", "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"),
        (
            "extensions (RFC 9112, 7.1.1)",
            "3;a;b=c;d=\"e;f\"\r\nabc\r\n0;x\r\n\r\n",
        ),
        (
            "white space before one (RFC 9112, 7.1.1)",
            "3 ; a\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "white space behind a size, which is not said to be wrong for readers",
            "3 \r\nabc\r\n0\r\n\r\n",
        ),
        (
            "leading zeros (RFC 9112, 7.1)",
            "000000000000000000000000003\r\nabc\r\n000\r\n\r\n",
        ),
        (
            "trailers (RFC 9112, 7.1.2)",
            "3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n",
        ),
        (
            "trailers that may not be (RFC 9110, 6.5.1)",
            "3\r\nabc\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: gzip\r\nHost: x\r\n\r\n",
        ),
    ]
    .map(|(name, body)| Case::new(name, chunked(body), &[abc]))
    .into();
    let line: &'static str = "0123456789abcdef0123456789";
    cases.push(Case::new(
        "sizes in either case",
        chunked(&format!("1a\r\n{line}\r\n1A\r\n{line}\r\n0\r\n\r\n")),
        &[Sees(
            "POST /p",
            "0123456789abcdef01234567890123456789abcdef0123456789",
        )],
    ));
    // A parser may accept LF alone as the end of a line, and then finds a request here. hyper finds
    // none and drops it: the function sees less than was sent, and never more.
    cases.push(Case::new(
        "an empty line of LF among trailers (RFC 9112, 2.2)",
        chunked("3\r\nabc\r\n0\r\nX: a\n\nGET /f/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"),
        &[abc],
    ));
    for body in [
        "+3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3h\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        ";a\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        "3_0\r\nabc\r\n0\r\n\r\n",
        "10000000000000000\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffffffffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\rabc\r\n0\r\n\r\n",
        "3\r\r\nabc\r\n0\r\n\r\n",
        "3;a\nabc\r\n0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc\r0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX\r\n\r\n",
        "3\r\nabc\r\n0\r\nX : y\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: a\rb\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: a\nY: b\r\n\r\n",
        "3\r\nabc\r\n0\r\n\rX",
        "3\r\nabc\r\n0\n\n",
    ] {
        cases.push(Case::closing(body, chunked(body), &[BROKEN]));
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_and_trailers_are_bounded() {
    let long = "x".repeat(20_000);
    play([
        Case::closing(
            "an extension",
            chunked(&format!("3;{long}\r\nabc\r\n0\r\n\r\n")),
            &[BROKEN],
        ),
        Case::closing(
            "trailers",
            chunked(&format!("3\r\nabc\r\n0\r\nX: {long}\r\n\r\n")),
            &[BROKEN],
        ),
        Case::closing(
            "many trailers",
            chunked(&format!("3\r\nabc\r\n0\r\n{}\r\n", "X: y\r\n".repeat(300))),
            &[BROKEN],
        ),
    ])
    .await;
}
