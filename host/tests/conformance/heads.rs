//! Header fields: their syntax, their number, and which of them a function sees.

use crate::case::{Answer, Case, Problem, Sees, Status, play};

const SEEN: Answer = Sees("GET /h", "");

fn get(fields: &str) -> String {
    format!("GET /f/h HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_host_field_is_required() {
    let bad = Problem(400, "bad-request");
    let head = |fields: &str| format!("GET /f/h HTTP/1.1\r\n{fields}\r\n");
    let mut cases = vec![
        Case::new("a name and a port", head("Host: a.b-c:81\r\n"), &[SEEN]).has("host: a.b-c:81"),
        Case::new("an address", head("Host: [::1]:81\r\n"), &[SEEN]).has("host: [::1]:81"),
        Case::new(
            "nothing, where there is no authority",
            head("Host:\r\n"),
            &[SEEN],
        ),
        Case::closing("HTTP/1.0 needs none", "GET /f/h HTTP/1.0\r\n\r\n", &[SEEN]),
    ];
    // RFC 9112, section 3.2: the answer to each is 400.
    for fields in [
        "",
        "Host: h\r\nHost: h\r\n",
        "Host: h\r\nHost: other\r\n",
        "Host: h\r\nX: y\r\nhOST: other\r\n",
        "Host: a b\r\n",
        "Host: h/x\r\n",
        "Host: u@h\r\n",
        "Host: h:x\r\n",
        "Host: h:80:80\r\n",
        "Host: [::1\r\n",
        "Host: http://h\r\n",
        "Host: \u{e9}\r\n",
    ] {
        cases.push(Case::closing(fields, head(fields), &[bad]));
    }
    let line = "GET http://h/f/h HTTP/1.1\r\n\r\n";
    cases.push(Case::closing(
        "not even with an absolute target",
        line,
        &[bad],
    ));
    let old = "GET /f/h HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n";
    cases.push(Case::closing("HTTP/1.0 has at most one", old, &[bad]));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_read_as_they_are_written() {
    let mut cases = vec![
        Case::new(
            "white space around values (RFC 9112, 5)",
            get("X-A: \t a b\t \r\nX-B:c\r\nX-Empty:"),
            &[SEEN],
        )
        .has("x-a: a b")
        .has("x-b: c")
        .has("x-empty: "),
        Case::new(
            "repeated fields in their order (RFC 9110, 5.3)",
            get("X-A: 1\r\nX-B: 2\r\nx-a: 3"),
            &[SEEN],
        )
        .has("x-a: 1")
        .has("x-a: 3"),
        Case::new(
            "every token character",
            get("!#$%&'*+-.^_`|~09: v"),
            &[SEEN],
        )
        .has("!#$%&'*+-.^_`|~09: v"),
        Case::new(
            "empty lines before a request (RFC 9112, 2.2)",
            format!("\r\n\r\n{}", get("X: y")),
            &[SEEN],
        ),
        Case::new(
            "LF alone ends lines of a head, as it may (RFC 9112, 2.2)",
            "GET /f/h HTTP/1.1\nHost: h\nX-A: 1\n\n",
            &[SEEN],
        )
        .has("x-a: 1"),
    ];
    // RFC 9112, sections 2.2, 5.1 and 5.2; RFC 9110, sections 5.1 and 5.5.
    for fields in [
        "X-A: 1\r\n folded",
        "X-A: 1\r\n\tfolded",
        "X-A: 1\rX-B: 2",
        "X-A: 1\r\rX-B: 2",
        "X-A: 1\0",
        "X-A: \x01",
        "X-A: \x7f",
        "X-A : 1",
        "X-A\t: 1",
        "X A: 1",
        ": 1",
        "X-A",
        "X-\u{e9}: 1",
        "X(A): 1",
        "X-A\0: 1",
        "\rX-A: 1",
    ] {
        cases.push(Case::closing(fields, get(fields), &[Status(400)]));
    }
    let leading = "GET /f/h HTTP/1.1\r\n Host: h\r\n\r\n";
    cases.push(Case::closing(
        "white space before the first field (RFC 9112, 2.2)",
        leading,
        &[Status(400)],
    ));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_connection_go_no_further() {
    play([
        Case::new(
            "those that Connection names (RFC 9110, 7.6.1)",
            get(
                "Connection: X-Hop, x-hop2\r\nX-Hop: gone\r\nConnection: x-HOP3\r\nX-Hop2: \
                 gone\r\nX-Hop3: gone\r\nX-Kept: 1",
            ),
            &[SEEN],
        )
        .has("x-kept: 1")
        .lacks("hop")
        .lacks("connection"),
        Case::new(
            "those that always are",
            get(
                "Keep-Alive: a\r\nProxy-Connection: a\r\nProxy-Authorization: a\r\nTE: \
                 trailers\r\nTrailer: x\r\nUpgrade: a\r\nHTTP2-Settings: a",
            ),
            &[SEEN],
        )
        .lacks("keep-alive")
        .lacks("proxy-")
        .lacks("te:")
        .lacks("trailer")
        .lacks("upgrade")
        .lacks("http2"),
        Case::new(
            "not the length, whoever names it",
            "POST /f/p HTTP/1.1\r\nHost: h\r\nConnection: content-length\r\nContent-Length: \
             3\r\n\r\nabc",
            &[Sees("POST /p", "abc")],
        )
        .has("content-length: 3"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let many = |count: usize| -> String {
        let fields: Vec<String> = (0..count).map(|number| format!("X-{number}: 1")).collect();
        fields.join("\r\n")
    };
    let large = Problem(431, "request-head-too-large");
    play([
        Case::new(
            "as many fields as may be, with Host",
            get(&many(99)),
            &[SEEN],
        ),
        Case::new("one more", get(&many(100)), &[large]),
        Case::closing("more than are read", get(&many(300)), &[Status(431)]),
        Case::new("large", get(&format!("X: {}", "x".repeat(30_000))), &[SEEN]),
        Case::new(
            "too large",
            get(&format!("X: {}", "x".repeat(33_000))),
            &[large],
        ),
        Case::closing(
            "larger than is read",
            get(&format!("X: {}", "x".repeat(200_000))),
            &[Status(431)],
        ),
    ])
    .await;
}
