//! Unmodified packages from npm in real microVMs. Their interfaces are tested beside the engine:
//! `guest-vm/runtime/tests/javascript_packages`.

use std::{collections::BTreeMap, sync::LazyLock};

use faasw::FunctionOptions;

use crate::e2e::{
    BENCH,
    archives::unpack,
    bundle,
    upstream::{REACHING, Received, Reply, granted, serve},
};

/// The texts of the archive, by the paths of their files.
static TREE: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| unpack("tests/fixtures/scripts/npm-tree.tar.zst"));

/// Returns a script of the archive, changed by `change`, with all packages.
fn script(name: &str, change: impl Fn(&str) -> String) -> Vec<u8> {
    let text = change(&TREE[name]);
    let rest = TREE.iter().filter(|(path, _)| *path != name);
    let rest = rest.map(|(path, text)| (path.as_str(), text.as_str()));
    let files: Vec<(&str, &str)> = [(name, text.as_str())].into_iter().chain(rest).collect();
    bundle(&files)
}

/// Replies as Stripe and OpenAI do.
fn reply(request: &Received) -> Reply {
    let body = match request.path.as_str() {
        "/v1/customers" => r#"{"id": "cus_1", "object": "customer"}"#,
        "/v1/files" if request.body.contains("train.jsonl") => {
            r#"{"id": "file-1", "object": "file"}"#
        }
        "/v1/chat/completions" => {
            return Reply {
                fields: "content-type: text/event-stream\r\n",
                body: "data: {\"choices\": [{\"delta\": {\"content\": \"one\"}}]}\n\n\
                       data: {\"choices\": [{\"delta\": {\"content\": \"two\"}}]}\n\n\
                       data: [DONE]\n\n"
                    .to_owned(),
            };
        }
        _ => "{}",
    };
    Reply {
        fields: "content-type: application/json\r\nrequest-id: req_1\r\n",
        body: body.to_owned(),
    }
}

pub fn clients_from_npm_call_a_real_server() {
    let address = serve(reply);
    let port = address.port();
    let upload = script("clients.mjs", |text| {
        let retries = "maxNetworkRetries: 1";
        let stripe = format!("{retries}, host: '127.0.0.1', port: {port}, protocol: 'http'");
        let key = "apiKey: \"sk-1\"";
        let openai = format!("{key}, baseURL: 'http://{address}/v1'");
        assert!(text.contains(retries) && text.contains(key));
        text.replace(retries, &stripe).replace(key, &openai)
    });
    REACHING.deploy("clients", &upload, granted(address));
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
