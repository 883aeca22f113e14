//! Bodies and trailers, whole and streamed.

use faasw::FunctionOptions;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::common::{raw, time_limit};
use crate::e2e::BENCH;

pub fn bodies_of_every_size_are_passed() {
    BENCH.probe();
    for size in [0, 1, 4095, 65_537, 1 << 20, 5_000_000] {
        let body = BENCH.text(&format!("/probe/body/{size}"));
        assert_eq!(body.len(), size);
        let pattern = b"0123456789abcdef".iter().cycle();
        assert!(
            body.bytes().zip(pattern).all(|(one, other)| one == *other),
            "{size}"
        );
    }
    BENCH.cgi();
    let largest = "x".repeat(1 << 20);
    let answer = BENCH.request("POST", "/cgi/echo", "", "");
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    let answer = BENCH.request("POST", "/cgi/echo", "", &largest);
    assert!(answer.status == 200 && answer.body == largest);
}

pub fn a_stream_is_passed_chunk_by_chunk() {
    BENCH.function(
        "drip",
        "tests/fixtures/wat/drip.wasm",
        FunctionOptions::default(),
    );
    let answer = BENCH.block_on(async {
        let mut stream = TcpStream::connect(BENCH.address).await.unwrap();
        let request = b"GET /drip/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTE: \
             trailers\r\nX-Faasw-Timing: 1\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut seen = Vec::new();
        while !contains(&seen, b"drip 1\n") {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        }
        // The function pauses four times before the last line.
        assert!(!contains(&seen, b"drip 5\n"));
        stream.read_to_end(&mut seen).await.unwrap();
        raw::parse(&seen)
    });
    assert!(answer.is_whole);
    assert_eq!(answer.body, "drip 1\ndrip 2\ndrip 3\ndrip 4\ndrip 5\n");
    // The timing is known only at the end.
    let (name, timing) = &answer.trailers[0];
    assert_eq!(name, "server-timing");
    assert!(timing.contains("exec;dur="), "{timing}");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

pub fn trailers_pass_both_ways() {
    BENCH.probe();
    let asked = BENCH.request("GET", "/probe/trailers", "TE: trailers\r\n", "");
    assert_eq!(asked.body, "body before trailers\n");
    let expected = ("x-trailer".to_owned(), "after the body".to_owned());
    assert_eq!(asked.trailers, [expected]);
    // A client that does not accept trailers receives none.
    let deaf = BENCH.get("/probe/trailers");
    assert_eq!(deaf.body, "body before trailers\n");
    assert_eq!(deaf.trailers, []);
    let sent = b"POST /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTrailer: \
         X-T\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n";
    let echoed = BENCH.block_on(raw::send(BENCH.address, sent));
    assert!(
        echoed.status == 200 && echoed.body.ends_with("\n\nabc"),
        "{echoed:?}"
    );
}

pub fn large_bodies_pass_through_constant_memory() {
    BENCH.probe();
    // Emulated machines are slow, and a smaller size shows the same.
    let size = (256 << 20) / time_limit(1).as_secs().max(1);
    let echoed = BENCH.block_on(async {
        let stream = TcpStream::connect(BENCH.address).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let sending = tokio::spawn(async move {
            let head = format!(
                "POST /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: \
                 {size}\r\n\r\n"
            );
            writer.write_all(head.as_bytes()).await.unwrap();
            let piece = [b'x'; 64 << 10];
            let mut left = size as usize;
            while left > 0 {
                let now = left.min(piece.len());
                writer.write_all(&piece[..now]).await.unwrap();
                left -= now;
            }
            writer
        });
        let mut buffer = vec![0; 64 << 10];
        let mut received = 0;
        loop {
            match reader.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received += buffer[..count].iter().filter(|byte| **byte == b'x').count(),
            }
        }
        sending.await.unwrap();
        received as u64
    });
    // The echoed head contains a few of these bytes, too.
    assert!(echoed >= size && echoed < size + 100, "{echoed} of {size}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|size| size.trim().strip_suffix(" kB"))
        .and_then(|size| size.parse::<u64>().ok())
        .unwrap();
    assert!(peak < 200 << 10, "the node took {peak} kB");
}
