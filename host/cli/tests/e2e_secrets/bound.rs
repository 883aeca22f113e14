//! Secrets that are bound to hosts: those hosts receive them, and no others do.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
};

use crate::{
    canary::{canary, found_in_files, found_in_memory},
    common::{give_up, tls::Files},
    e2e::{
        self,
        process::{Running, descendants, faasw, get, stdout_of},
    },
    secrets_are_set_by_a_command,
};

/// An example function that queries an API, to which it sends its key.
const API: &str = "examples/api-with-key/api-with-key.wasm";

/// Starts an API over TLS. Returns its address, and the `Authorization` field of each request.
fn api(files: &Files) -> (SocketAddr, mpsc::Receiver<String>) {
    let certificate = files.write(&["localhost"]);
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, tell) = (config.clone(), tell.clone());
            thread::spawn(move || {
                let tls = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(tls, stream);
                let mut head = Vec::new();
                let mut piece = [0; 4096];
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(0) | Err(_) => return,
                        Ok(read) => head.extend_from_slice(&piece[..read]),
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let of_key = head
                    .lines()
                    .find_map(|line| line.strip_prefix("authorization: "));
                tell.send(of_key.unwrap_or("nothing").to_owned()).unwrap();
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
                     2\r\n\r\n{}";
                let _ = stream.write_all(answer.as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    (address, asked)
}

fn asked(of: &mpsc::Receiver<String>) -> String {
    of.recv_timeout(give_up()).unwrap()
}

pub fn a_bound_secret_is_sent_only_to_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(folder.path(), "api");
    let (api, told_key) = api(&files);
    let data_dir = &folder.path().join("data");
    let authority = files.certificate.to_str().unwrap();
    let serving = [
        "--allow-private",
        "127.0.0.0/8",
        "--allow-private",
        "::1",
        "--egress-ca",
        authority,
    ];
    let mut node = Running::serving(data_dir, &serving);
    node.address();
    secrets_are_set_by_a_command(data_dir, &["api", "api_key"], &canary());
    assert_eq!(node.stop("TERM"), Some(0));
    // Buffers of the process that received the value contained it, and may still do so. This
    // process reads the value from disk.
    let mut node = Running::serving(data_dir, &serving);
    let (address, pid) = (node.address(), node.child.id());
    let origin = format!("https://localhost:{}", api.port());
    let url = format!("api_url={origin}/v1/items");
    let deploy = |bound: &str| {
        let bound = format!("api_key={bound}");
        let words = [
            "deploy",
            API,
            "--name",
            "api",
            "--bind-secret",
            &bound,
            "--config",
            &url,
            "--allow-outbound",
            &origin,
        ];
        stdout_of(&words, data_dir)
    };
    deploy(&origin);
    for _ in 0..10 {
        assert_eq!(get(address, "/api/42").body, "{}");
        assert_eq!(asked(&told_key), format!("Bearer {}", canary()));
        // No microVM has the secret, not even the one that has just sent a request.
        let jails = descendants(pid).into_iter();
        let sandboxes = jails.filter(|pid| e2e::process::name_of(*pid) == "faasw-sandbox");
        let found: Vec<_> = sandboxes
            .flat_map(|pid| found_in_memory(pid, &canary()))
            .collect();
        assert_eq!(found, [""; 0]);
    }
    for words in [
        &["inspect", "api"][..],
        &["inspect", "api", "--json"],
        &["ls", "--json"],
        &["logs", "api"],
        &["secret", "ls", "--json"],
    ] {
        let told = stdout_of(words, data_dir);
        assert!(!told.contains(&canary()), "{words:?}: {told}");
    }
    let shown = stdout_of(&["inspect", "api"], data_dir);
    assert!(
        shown.contains(&format!("bind-secret    api_key={origin}")),
        "{shown}"
    );
    e2e::until("the node has it in one place", || {
        assert_eq!(get(address, "/api/of/nothing").status, 404);
        let found = found_in_memory(pid, &canary());
        let kept = |place: &String| place.contains(" lo ") && place.contains(" dd ");
        found.len() == 1 && found.iter().all(kept)
    });
    // A new value applies from the next request on.
    secrets_are_set_by_a_command(data_dir, &["api", "api_key"], "another\n");
    assert_eq!(get(address, "/api/42").body, "{}");
    assert_eq!(asked(&told_key), "Bearer another");
    // A host to which the secret is not bound receives the placeholder that the function has, and
    // the function's log gives the reason.
    secrets_are_set_by_a_command(data_dir, &["api", "api_key"], &canary());
    deploy("https://localhost:1");
    assert_eq!(get(address, "/api/42").body, "{}");
    let text = asked(&told_key);
    assert!(
        text.starts_with("Bearer bound-secret-") && text.len() == 7 + 13 + 32,
        "{text}"
    );
    let log = stdout_of(&["logs", "api"], data_dir);
    assert!(log.contains("bound to other hosts"), "{log}");
    // A value that is not valid in a header is not sent.
    secrets_are_set_by_a_command(data_dir, &["api", "api_key"], "two\r\nx-lines: 1");
    deploy(&origin);
    assert_eq!(get(address, "/api/42").status, 502);
    let log = stdout_of(&["logs", "api"], data_dir);
    assert!(
        log.contains("api_key cannot be part of a header field"),
        "{log}"
    );
    stdout_of(&["secret", "rm", "api", "api_key"], data_dir);
    assert!(get(address, "/api/42").status >= 500);
    assert!(told_key.try_recv().is_err());
    for wrong in [
        format!("api_key={}", canary()),
        "api_key=http://api.test".to_owned(),
        "api_key=https://*".to_owned(),
        "api_key".to_owned(),
    ] {
        let words = ["deploy", API, "--name", "wrong", "--bind-secret", &wrong];
        let refused = faasw(&words)
            .env("FAASW_DATA_DIR", data_dir)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("https://"),
            "{said}"
        );
    }
    assert_eq!(node.stop("TERM"), Some(0));
    assert_eq!(found_in_files(data_dir, &canary()), [""; 0]);
}
