//! Configuration, secrets, key-value stores and files of scripts on a node. The interfaces
//! for scripts are tested beside the engine: `guest-vm/runtime/tests/javascript_bindings`.

use std::fs;

use faasw::{FunctionName, FunctionOptions, OutboundGrant, SecretName, StoreName};

use super::{one, refused_with};
use crate::e2e::{
    self, BENCH,
    process::{Running, stdout_of},
};

fn example(name: &str) -> Vec<u8> {
    let text = e2e::file(&format!("examples/js/{name}.js"));
    one(&String::from_utf8(text).unwrap())
}

fn secret(name: &str) -> SecretName {
    SecretName::new(name).unwrap()
}

fn set_secret(function: &str, name: &str, value: &str) {
    let function = FunctionName::new(function).unwrap();
    let name = secret(name);
    let set = BENCH.node.set_secret(&function, &name, value.as_bytes());
    BENCH.block_on(set).unwrap();
}

pub fn scripts_read_configuration_and_secrets() {
    let text = "export default { fetch: (request, env) => Response.json(
        [env.COLOUR, env.api_url, env.KEY ?? null]) }";
    let options = FunctionOptions::default()
        .env("COLOUR", "green")
        .config("api_url", "https://example.org")
        .secret(secret("KEY"));
    let deployed = BENCH.deploy("settings", &one(text), options);
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    let said = |key: &str| format!(r#"["green","https://example.org",{key}]"#);
    assert_eq!(BENCH.text("/settings/"), said("null"));
    set_secret("settings", "KEY", "s3cret");
    assert_eq!(BENCH.text("/settings/"), said("\"s3cret\""));
    // A new value holds for the version that is deployed.
    set_secret("settings", "KEY", "another");
    assert_eq!(BENCH.text("/settings/"), said("\"another\""));
}

pub fn a_secret_at_the_top_level_is_refused() {
    let text = "import { env } from 'faasw';
const key = env.KEY;
export default () => new Response(key);";
    let options = FunctionOptions::default().secret(secret("KEY"));
    let error = refused_with(text, options).to_string();
    assert!(
        error.contains("handler.js:2: Error: the secret \"KEY\" is available only while a request"),
        "{error}"
    );
}

pub fn scripts_keep_data_in_stores() {
    let text = "import { kv } from 'faasw';
        export default { async fetch(request, env) {
            await env.shared.put('k', 'v');
            const denied = await kv.open('others').get('k').catch(String);
            const { keys } = await env.shared.list();
            const count = await env.default.increment('n');
            return Response.json([count, await env.shared.get('k'), keys, denied]);
        } }";
    let shared = StoreName::new("shared").unwrap();
    let options = FunctionOptions::default().store(shared);
    let deployed = BENCH.deploy("stores", &one(text), options);
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    for count in 1..4 {
        let told = BENCH.text("/stores/");
        let expected = format!(
            "[{count},\"v\",[{{\"name\":\"k\"}}],\"Error: access to the key-value store \
             \\\"others\\\" is denied: deploy the function with --kv others\"]"
        );
        assert_eq!(told, expected);
    }
}

pub fn the_examples_with_grants_behave_as_documented() {
    BENCH.deploy("counter", &example("counter"), FunctionOptions::default());
    assert_eq!(BENCH.text("/counter/a"), "visit 1 of /a\n");
    assert_eq!(BENCH.text("/counter/a"), "visit 2 of /a\n");
    assert_eq!(BENCH.text("/counter/b"), "visit 1 of /b\n");
    assert_eq!(BENCH.text("/counter/"), r#"{"visits:/a":2,"visits:/b":1}"#);
    assert_eq!(BENCH.request("DELETE", "/counter/a", "", "").status, 204);
    assert_eq!(BENCH.text("/counter/"), r#"{"visits:/b":1}"#);

    BENCH.deploy("lambda", &example("lambda"), FunctionOptions::default());
    let hello = BENCH.get("/lambda/?name=L%C3%BC");
    assert_eq!(hello.body, r#"{"message":"Hello, Lü!"}"#);
    // The node limits cookies to the function's path.
    let cookie = "name=L%C3%BC; Path=/lambda/; HttpOnly";
    let cookie = ("set-cookie".to_owned(), cookie.to_owned());
    assert!(hello.headers.contains(&cookie), "{hello:?}");
    let text = "content-type: text/plain\r\n";
    let created = BENCH.request("POST", "/lambda/", text, "grüße");
    assert_eq!((created.status, created.body.as_str()), (201, "grüße"));
    assert_eq!(BENCH.request("POST", "/lambda/", "", "\0").status, 415);
}

/// The origin of the examples is another function of the node.
pub fn the_examples_that_call_out_behave_as_documented() {
    let origin = "export default { async fetch(request, env) {
            const { pathname } = new URL(request.url);
            const count = await env.default.increment('calls');
            const isAllowed = request.headers.get('authorization') === 'Bearer s3cret';
            if (isAllowed && pathname === '/items/42') return Response.json({ id: 42 });
            if (pathname === '/items/43') return new Response(null, { status: 404 });
            if (pathname.startsWith('/items/')) return new Response(null, { status: 401 });
            return new Response(`${pathname} for the ${count}th time`);
        } }";
    BENCH.deploy("origin", &one(origin), FunctionOptions::default());
    let grant = OutboundGrant::new("http://self").unwrap();
    let options = FunctionOptions::default().allow_outbound(grant);

    let with_key = options
        .clone()
        .config("API_URL", "http://self/origin")
        .secret(secret("API_KEY"));
    BENCH.deploy("client", &example("api-client"), with_key);
    set_secret("client", "API_KEY", "s3cret");
    assert_eq!(BENCH.text("/client/42"), r#"{"id":42}"#);
    assert_eq!(BENCH.get("/client/43").status, 404);
    assert_eq!(BENCH.get("/client/a/b").status, 404);
    let failed = BENCH.get("/client/44");
    assert_eq!(failed.status, 502, "{failed:?}");
    assert!(!failed.body.contains("s3cret"), "{failed:?}");

    let proxy = options.config("ORIGIN", "http://self/origin");
    BENCH.deploy("cache", &example("cached-proxy"), proxy);
    let first = BENCH.get("/cache/page");
    assert!(first.body.starts_with("/page for the "), "{first:?}");
    let miss = ("x-cache".to_owned(), "miss".to_owned());
    assert!(first.headers.contains(&miss), "{first:?}");
    let hit = ("x-cache".to_owned(), "hit".to_owned());
    // The first response may be complete before its body is stored.
    e2e::until("the page is stored", || {
        BENCH.get("/cache/page").headers.contains(&hit)
    });
    let cached = BENCH.text("/cache/page");
    assert!(cached.starts_with("/page for the "), "{cached}");
}

pub fn scripts_serve_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("site.js");
    let text = "import { files } from 'faasw';
        const greeting = await files.text('/greeting.txt');
        export default { async fetch(request, env) {
            const { pathname } = new URL(request.url);
            if (pathname !== '/api') return env.ASSETS.fetch(request);
            const before = await files.exists('/tmp/a/b.txt');
            await files.write('/tmp/a/b.txt', 'temporary');
            return Response.json([greeting, before, await files.text('/tmp/a/b.txt')]);
        } }";
    fs::write(&script, text).unwrap();
    let public = folder.path().join("public");
    fs::create_dir_all(public.join("docs")).unwrap();
    fs::write(public.join("greeting.txt"), "hello").unwrap();
    fs::write(public.join("docs/index.html"), "<p>docs").unwrap();
    let data_dir = folder.path().join("data");
    let mut node = Running::serving(&data_dir, &[]);
    let address = node.address();
    let (script, public) = (script.to_str().unwrap(), public.to_str().unwrap());
    stdout_of(&["deploy", script, "--files", public], &data_dir);
    let get = |path: &str| e2e::process::get(address, path);

    let file = get("/site/greeting.txt");
    assert_eq!((file.status, file.body.as_str()), (200, "hello"));
    let kind = (
        "content-type".to_owned(),
        "text/plain;charset=utf-8".to_owned(),
    );
    assert!(file.headers.contains(&kind), "{file:?}");
    assert_eq!(get("/site/docs/").body, "<p>docs");
    let moved = get("/site/docs?a=b");
    assert_eq!(moved.status, 307, "{moved:?}");
    let to = ("location".to_owned(), "./docs/?a=b".to_owned());
    assert!(moved.headers.contains(&to), "{moved:?}");
    for path in [
        "/site/nothing",
        "/site/..%2f..%2fetc/passwd",
        "/site/greeting.txt/",
    ] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    for _ in 0..2 {
        assert_eq!(get("/site/api").body, r#"["hello",false,"temporary"]"#);
    }
    assert_eq!(node.stop("TERM"), Some(0));
}
