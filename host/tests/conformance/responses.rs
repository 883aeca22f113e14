//! Responses: a function's response reaches the client unchanged, or not at all.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::common::{self, FakeBackend, give_up, raw::parse_all};

/// Sends bytes and returns all bytes that come back.
async fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        received
    };
    timeout(give_up(), exchange).await.unwrap()
}

/// Returns the bytes of the response of a function that answers with these fields.
async fn responds(address: SocketAddr, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let pairs: Vec<_> = fields
        .iter()
        .map(|(name, value)| [*name, *value].join(&0x1f))
        .collect();
    let body = pairs.join(&0x1e);
    let length = body.len();
    let head = format!(
        "POST /f/respond HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: \
         {length}\r\n\r\n"
    );
    raw(address, &[head.as_bytes(), &body].concat()).await
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_survive_both_ways_byte_for_byte() {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let address = node.address().unwrap();
    let every: Vec<u8> = (0x20..=0xff).filter(|byte| *byte != 0x7f).collect();
    let every = [b"x".as_slice(), &every, b"\t x"].concat();
    let request = [
        b"GET /f/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-A: \xe9\xff\r\nX-Every: "
            .as_slice(),
        &every,
        b"\r\nx-a: 2\r\n\r\n",
    ]
    .concat();
    raw(address, &request).await;
    let seen = backend.take_seen().remove(0).head.headers;
    let of = |name: &[u8]| -> Vec<_> {
        let found = seen.iter().filter(|(other, _)| other == name);
        found.map(|(_, value)| value.clone()).collect()
    };
    assert_eq!(of(b"x-a"), [b"\xe9\xff".to_vec(), b"2".to_vec()]);
    assert_eq!(of(b"x-every"), std::slice::from_ref(&every));

    let answer = responds(
        address,
        &[
            (b"X-A", b"\xe9\xff"),
            (b"x-a", b"2"),
            (b"x-every", &every),
            (b"x-empty", b""),
        ],
    )
    .await;
    for line in [
        b"\r\nx-a: \xe9\xff\r\nx-a: 2\r\n".as_slice(),
        &[b"\r\nx-every: ", every.as_slice(), b"\r\n"].concat(),
        b"\r\nx-empty: \r\n",
    ] {
        assert!(contains(&answer, line), "{}", answer.escape_ascii());
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_cannot_be_split() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let injected: [&[u8]; 7] = [
        b"a\r\nx-injected: 1",
        b"a\nx-injected: 1",
        b"a\rx-injected: 1",
        b"a\r\n\r\nHTTP/1.1 200 OK\r\nx-injected: 1\r\n\r\n",
        b"a\0x-injected",
        b"a\x7fx-injected",
        b"\r\n x-injected",
    ];
    for bytes in injected {
        for fields in [(b"x-a".as_slice(), bytes), (bytes, b"1")] {
            let answer = responds(address, &[fields]).await;
            let responses = parse_all(&answer, &[]);
            assert_eq!(
                (responses.len(), responses[0].status),
                (1, 502),
                "{}",
                answer.escape_ascii()
            );
            assert_eq!(
                responses[0].problem("type"),
                "urn:faasw:problem:bad-response"
            );
            assert!(
                !contains(&answer, b"\nx-injected"),
                "{}",
                answer.escape_ascii()
            );
        }
    }
    let names: [&[u8]; 6] = [b"", b"a b", b"a:", b"a:b", b"\xe9", b"(a)"];
    for name in names {
        let answer = responds(address, &[(name, b"1")]).await;
        assert_eq!(
            parse_all(&answer, &[])[0].status,
            502,
            "{}",
            answer.escape_ascii()
        );
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_cannot_set_the_response_framing() {
    let node = common::node().await;
    let address = node.address().unwrap();
    for fields in [
        [
            (b"Transfer-Encoding".as_slice(), b"chunked".as_slice()),
            (b"Content-Length", b"7"),
        ],
        [(b"Connection", b"keep-alive, x-hop"), (b"X-Hop", b"gone")],
        [(b"Connection", b"upgrade"), (b"Upgrade", b"h2c")],
        [(b"Keep-Alive", b"timeout=9"), (b"Trailer", b"x-hop")],
        [(b"Proxy-Connection", b"keep-alive"), (b"TE", b"gzip")],
    ] {
        let answer = responds(address, &fields).await;
        let responses = parse_all(&answer, &[]);
        assert_eq!(
            (responses.len(), responses[0].status),
            (1, 200),
            "{}",
            answer.escape_ascii()
        );
        let lengths = responses[0]
            .headers
            .iter()
            .filter(|(name, _)| name == "content-length");
        assert_eq!(
            lengths.map(|(_, value)| value.as_str()).collect::<Vec<_>>(),
            ["0"]
        );
        let connection = responses[0].header("connection");
        assert_eq!(connection, Some("close"), "{}", answer.escape_ascii());
        for name in [
            "transfer-encoding",
            "x-hop",
            "upgrade",
            "keep-alive",
            "proxy-connection",
            "te",
        ] {
            assert_eq!(responses[0].header(name), None, "{name}");
        }
    }
    for lengths in [
        [b"5".as_slice(), b"6"],
        [b"+5", b"+5"],
        [b"5, 5", b"5"],
        [b"", b""],
        [b"99999999999999999999", b"1"],
    ] {
        let fields = lengths.map(|length| (b"content-length".as_slice(), length));
        let answer = responds(address, &fields).await;
        assert_eq!(
            parse_all(&answer, &[])[0].status,
            502,
            "{}",
            answer.escape_ascii()
        );
    }
    node.shutdown().await;
}
