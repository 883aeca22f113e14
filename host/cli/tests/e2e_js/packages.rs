//! Unmodified packages from npm in real microVMs. Their interfaces are tested beside the engine:
//! `guest-vm/runtime/tests/javascript_packages.rs`.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::LazyLock,
    thread,
};

use faasw::{FunctionOptions, Node, OutboundGrant, OutboundOptions};

use crate::e2e::{self, BENCH, Bench, bundle, limits};

/// The texts of the archive, by the paths of their files.
static TREE: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let packed = e2e::file("tests/fixtures/scripts/npm-tree.tar.zst");
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    let mut files = Vec::new();
    for entry in tar::Archive::new(decoder).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.push((path.trim_start_matches("./").to_owned(), text));
        }
    }
    files
});

/// A node whose functions may call this machine.
static REACHING: LazyLock<Bench> = LazyLock::new(|| {
    e2e::at_end(|| REACHING.end());
    let options = OutboundOptions::default().allow_private("127.0.0.0/8".parse().unwrap());
    Bench::start(Node::builder().outbound(options), limits())
});

/// Returns a script of the archive, changed by `change`, with all packages.
fn script(name: &str, change: impl Fn(&str) -> String) -> Vec<u8> {
    let (_, text) = TREE.iter().find(|(path, _)| path == name).unwrap();
    let text = change(text);
    let rest = TREE.iter().filter(|(path, _)| path != name);
    let rest = rest.map(|(path, text)| (path.as_str(), text.as_str()));
    let files: Vec<(&str, &str)> = [(name, text.as_str())].into_iter().chain(rest).collect();
    bundle(&files)
}

/// Starts a server for the rest of the process, which answers as Stripe and OpenAI do.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers the requests of a connection until the client closes it.
fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap().to_owned();
        let mut length = 0;
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            let field = field.trim_end().to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if field.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (kind, answer) = match path.as_str() {
            "/v1/customers" => (
                "application/json",
                r#"{"id": "cus_1", "object": "customer"}"#,
            ),
            "/v1/files" if String::from_utf8_lossy(&body).contains("train.jsonl") => {
                ("application/json", r#"{"id": "file-1", "object": "file"}"#)
            }
            "/v1/chat/completions" => (
                "text/event-stream",
                "data: {\"choices\": [{\"delta\": {\"content\": \"one\"}}]}\n\n\
                 data: {\"choices\": [{\"delta\": {\"content\": \"two\"}}]}\n\n\
                 data: [DONE]\n\n",
            ),
            _ => ("application/json", "{}"),
        };
        let size = answer.len();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nrequest-id: req_1\r\n\
             content-length: {size}\r\n\r\n{answer}"
        )?;
    }
}

pub fn clients_from_npm_call_a_real_server() {
    let address = server();
    let port = address.port();
    let upload = script("clients.mjs", |text| {
        let retries = "maxNetworkRetries: 1";
        let stripe = format!("{retries}, host: '127.0.0.1', port: {port}, protocol: 'http'");
        let key = "apiKey: \"sk-1\"";
        let openai = format!("{key}, baseURL: 'http://{address}/v1'");
        assert!(text.contains(retries) && text.contains(key));
        text.replace(retries, &stripe).replace(key, &openai)
    });
    let grant = OutboundGrant::new(format!("http://{address}")).unwrap();
    let options = FunctionOptions::default().allow_outbound(grant);
    REACHING.deploy("clients", &upload, options);
    for (path, wanted) in [
        ("stripe/create", r#"["cus_1","req_1"]"#),
        ("openai/stream", r#"["one","two"]"#),
        ("openai/upload", r#""file-1""#),
    ] {
        assert_eq!(REACHING.text(&format!("/clients/{path}")), wanted, "{path}");
    }
}

/// A subscription is a response that streams; the page of React arrives in two parts.
pub fn libraries_from_npm_stream_responses() {
    let upload = script("libraries.mjs", str::to_owned);
    BENCH.deploy("libraries", &upload, FunctionOptions::default());
    let fields = "content-type: application/json\r\naccept: text/event-stream\r\n";
    let query = r#"{"query": "subscription { count(to: 3) }"}"#;
    let events = BENCH.request("POST", "/libraries/graphql", fields, query);
    assert_eq!(events.status, 200, "{events:?}");
    for count in 1..4 {
        let event = format!(r#"data: {{"data":{{"count":{count}}}}}"#);
        assert!(events.body.contains(&event), "{events:?}");
    }
    let page = BENCH.text("/libraries/react");
    assert!(page.contains("<b>late</b>"), "{page}");
}
