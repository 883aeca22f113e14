//! Tests of the client against fake nodes.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    task::{Context, Poll},
};

use tokio::io::ReadBuf;

use super::*;

fn name() -> FunctionName {
    FunctionName::new("f").unwrap()
}

#[tokio::test]
async fn options_too_long_for_a_request_are_an_error() {
    let folder = std::env::temp_dir().join("no node of faasw is here");
    let client = Client::new(&folder);
    let default = FunctionOptions::default;
    // Short keys and letters that are not ASCII are within the limits of a configuration.
    let short = (0..5000).fold(default(), |options, number| {
        let letters = [number / 676, number / 26, number].map(|at| b'a' + (at % 26) as u8);
        options.config(String::from_utf8_lossy(&letters), "")
    });
    let foreign = default().config("a", "\u{fc}".repeat(8000));
    let escaped = default().config("a", "\u{1}".repeat(16_000));
    let large = default().env("A", "b".repeat(OPTIONS_BYTES - 1000));
    for options in [short, foreign, escaped, large] {
        assert_eq!(options.check(), Ok(()));
        let asked = client.deploy(&name(), Bytes::new(), &options).await;
        assert!(
            matches!(asked, Err(ClientError::NotRunning(_))),
            "{asked:?}"
        );
    }
    let larger = default().env("A", "b".repeat(OPTIONS_BYTES));
    let asked = client.deploy(&name(), Bytes::new(), &larger).await;
    let told = asked.unwrap_err().to_string();
    for part in ["environment", "configuration", "warm-up", "114688"] {
        assert!(told.contains(part), "{told}");
    }
}

/// Starts a fake node that handles this many connections with `does`.
fn node(what: &str, times: usize, does: fn(UnixStream)) -> (Client, std::thread::JoinHandle<()>) {
    let folder = format!("faasw-client-{what}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let socket = UnixListener::bind(admin_socket(&folder)).unwrap();
    let client = Client::new(&folder);
    let node = std::thread::spawn(move || {
        for _ in 0..times {
            does(socket.accept().unwrap().0);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    });
    (client, node)
}

/// A node of an earlier version would ignore the field that carries the options.
#[tokio::test]
async fn nothing_is_deployed_on_a_node_without_a_limit_of_options() {
    let (client, node) = node("earlier", 1, |mut client| {
        let _ = client.read(&mut [0; 10_000]);
        let said = concat!(
            r#"{"version":"0.1.0","pid":1,"address":null,"data_dir":"/","functions":0,"#,
            r#""module_limit":1000,"defaults":{"memory":1,"times":{"cpu_time_us":1,"#,
            r#""first_byte_us":1,"idle_client_us":1,"idle_guest_us":1,"total_time_us":null}}}"#,
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-length";
        let answer = format!("{head}: {}\r\n\r\n{said}", said.len());
        client.write_all(answer.as_bytes()).unwrap();
    });
    let options = FunctionOptions::default();
    let error = client.deploy(&name(), Bytes::new(), &options).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("`options_limit`"), "{error}");
    node.join().unwrap();
}

/// A reader that never becomes ready, like a pipe whose writer pauses.
struct PausingReader;

impl AsyncRead for PausingReader {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_response_sent_before_the_upload_ends_is_received() {
    let (client, node) = node("late", 2, |mut client| {
        let _ = client.read(&mut [0; 10_000]);
        let said = r#"{"type":"t","title":"t","status":408,"detail":"too late"}"#;
        let head = "HTTP/1.1 408 Request Timeout\r\ncontent-length";
        let answer = format!("{head}: {}\r\n\r\n{said}", said.len());
        client.write_all(answer.as_bytes()).unwrap();
    });
    for bytes in [None, Some(100)] {
        let refused = client.import(PausingReader, bytes, None).await.unwrap_err();
        assert_eq!(refused.to_string(), "too late");
    }
    node.join().unwrap();
}

/// A reader that returns some bytes and then an error.
struct UnreadableReader(bool);

impl AsyncRead for UnreadableReader {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Err(io::Error::from_raw_os_error(5)));
        }
        into.put_slice(b"some");
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_unreadable_upload_is_a_file_error() {
    let (client, node) = node("unread", 3, |mut client| {
        let _ = client.read_to_end(&mut Vec::new());
    });
    for bytes in [Some(100), None] {
        let error = client.import(UnreadableReader(false), bytes, None).await;
        let error = error.unwrap_err();
        let is_so = |error: &io::Error| error.raw_os_error() == Some(5);
        assert!(
            matches!(&error, ClientError::File(error) if is_so(error)),
            "{error}"
        );
    }
    let short = client
        .import(&b"short"[..], Some(6), None)
        .await
        .unwrap_err();
    let is_so = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    assert!(
        matches!(&short, ClientError::File(error) if is_so(error)),
        "{short}"
    );
    node.join().unwrap();
}
