//! The properties of `env`, and the module `faasw`.

use crate::support::Call;
use crate::support::scripts::{JAVASCRIPT, asked};
use crate::support::stores::value;
use faasw_abi::mailbox::DRAW_STORE;
use faasw_runtime::platform::LogStream;

/// Returns the response of a handler with this body, which has `env` and `request`.
fn handled(body: &str, call: Call) -> String {
    let script =
        format!("export default {{ async fetch(request, env) {{ {body} }} }};").into_bytes();
    JAVASCRIPT.answer(&[("a.js", &script)], call)
}

#[test]
fn variables_configuration_secrets_and_stores_are_properties_of_env() {
    let call = asked("/")
        .environment("COLOUR", "gr\u{fc}n")
        .environment("BOTH", "environment")
        .environment("KEY", "environment")
        .environment("__proto__", "x")
        .config("BOTH", "configuration")
        .config("api.url", "https://example.org")
        .config("stock", "configuration")
        .secret_value("KEY", "s3cret")
        .secret("UNSET")
        .store("stock");
    let body = "return Response.json([Object.keys(env), env.COLOUR, env.BOTH, env['api.url'], \
        env.KEY, typeof env.UNSET, String(env.stock), String(env.default), 'UNSET' in env, \
        env.ASSETS ?? null]);";
    assert_eq!(
        handled(body, call),
        concat!(
            r#"[["COLOUR","BOTH","__proto__","api.url","KEY","UNSET","stock","default"],"#,
            r#""grün","configuration","https://example.org","s3cret","undefined","#,
            r#""[object KeyValueStore]","[object KeyValueStore]",true,null]"#
        )
    );
}

#[test]
fn the_module_has_the_same_environment() {
    let call = asked("/")
        .environment("A", "b")
        .config("c", "d")
        .secret_value("KEY", "s3cret");
    let script = b"import faasw, { env, kv, secrets, config, files } from 'faasw';
        import { again } from './lib/b.js';
        export default { async fetch(request, argument) {
            const missing = await (async () => secrets.get('OTHER'))().catch(String);
            return Response.json([env === argument, env === again, faasw.kv === kv, env.A,
                config.get('c'), config.get('A') ?? null, secrets.get('KEY'), missing,
                String(kv.open())]);
        } };";
    let files: [(&str, &[u8]); 2] = [
        ("a.js", script),
        ("lib/b.js", b"export { env as again } from 'faasw';"),
    ];
    assert_eq!(
        JAVASCRIPT.answer(&files, call),
        concat!(
            r#"[true,true,true,"b","d",null,"s3cret","#,
            r#""Error: the function has no secret \"OTHER\": deploy it with --secret OTHER","#,
            r#""[object KeyValueStore]"]"#
        )
    );
}

#[test]
fn commonjs_modules_require_the_same_module() {
    let script = b"const { env, config, default: whole } = require('faasw');
        module.exports = { fetch: (request, argument) => Response.json([
            env === argument, env.A, config.get('c'), whole.env === env,
            require('faasw').env === env, require('./lib/b.mjs').again === env]) };";
    let files: [(&str, &[u8]); 2] = [
        ("a.cjs", script),
        ("lib/b.mjs", b"export { env as again } from 'faasw';"),
    ];
    let call = asked("/").environment("A", "b").config("c", "d");
    assert_eq!(
        JAVASCRIPT.answer(&files, call),
        r#"[true,"b","d",true,true,true]"#
    );
}

/// A secret at the top level would become a part of the seed.
#[test]
fn what_only_a_request_may_use_fails_at_the_top_level_with_file_and_line() {
    let secret = "the secret \"KEY\" is available only while a request is answered";
    let own = "the key-value store \"default\" is available only while a request is answered";
    let stock = "the key-value store \"stock\" is available only while a request is answered";
    for (text, wanted) in [
        ("import { env } from 'faasw';\n\nenv.KEY;", secret),
        (
            "import { env } from 'faasw';\n\nconst all = { ...env };",
            secret,
        ),
        (
            "import { secrets } from 'faasw';\n\nsecrets.get('KEY');",
            secret,
        ),
        (
            "import { env } from 'faasw';\n\nenv.default.put('a', 'b');",
            own,
        ),
        (
            "import { env } from 'faasw';\n\nawait env.stock.get('a');",
            stock,
        ),
        (
            "import { kv } from 'faasw';\n\nawait kv.open('stock').list();",
            stock,
        ),
    ] {
        let call = asked("/").secret_value("KEY", "s3cret").store("stock");
        let failure = JAVASCRIPT.init(&[("a.js", text.as_bytes())], &call).err();
        let report = failure.expect("it was taken").report;
        assert!(report.starts_with("a.js:3: Error: "), "{text}: {report}");
        assert!(report.contains(wanted), "{text}: {report}");
        assert!(
            !report.contains("s3cret") && !report.contains("faasw:"),
            "{report}"
        );
    }
    // A name alone reads nothing, and no part of this is a draw.
    let script = b"import { env, kv } from 'faasw';
        const { stock } = env, own = kv.open(), names = Object.keys(env).length;
        export default { fetch: async () => new Response(await own.get('a')) };";
    let call = asked("/").secret_value("KEY", "s3cret").store("stock");
    let ready = JAVASCRIPT.init(&[("a.js", script)], &call).unwrap();
    assert_eq!(ready.draws().bits() & DRAW_STORE, 0, "{}", ready.draws());
    assert_eq!(ready.draws().bits(), 0, "{}", ready.draws());
}

#[test]
fn process_env_has_the_texts_of_the_handlers_environment() {
    let script = b"const isThere = 'KEY' in process.env;
        export default { fetch() {
            const { env } = process;
            const seen = [isThere, env.NODE_ENV, env.KEY, 'MISSING' in env, 'stock' in env];
            env.NODE_ENV = 'mine';
            seen.push(env.NODE_ENV);
            delete env.NODE_ENV;
            delete env.KEY;
            seen.push(env.NODE_ENV ?? null, 'KEY' in env);
            return Response.json(seen);
        } };";
    let call = asked("/")
        .config("NODE_ENV", "staging")
        .secret_value("KEY", "s3cret")
        .store("stock");
    assert_eq!(
        JAVASCRIPT.answer(&[("a.js", script)], call),
        r#"[true,"staging","s3cret",false,false,"mine",null,false]"#
    );
}

#[test]
fn secrets_stay_out_of_the_log() {
    let script = b"export default { fetch(request, env) {
        console.log(env, [env], { env });
        console.error('%o', env);
        return new Response(env.KEY.length);
    } };";
    let call = asked("/")
        .secret_value("KEY", "s3cret")
        .environment("A", "b");
    let ready = JAVASCRIPT.answered(&[("a.js", script)], call);
    let platform = ready.platform();
    let logged = [LogStream::Out, LogStream::Err].map(|stream| platform.logged(stream));
    let logged = String::from_utf8(logged.concat()).unwrap();
    assert!(
        logged.contains("KEY: [Getter]") && logged.contains("A: \"b\""),
        "{logged}"
    );
    assert!(!logged.contains("s3cret"), "{logged}");
    assert_eq!(platform.response_body, b"6");
}

/// The engine takes nothing from prototypes that a script can change.
#[test]
fn changed_prototypes_reveal_and_change_nothing() {
    let script = b"import { secrets } from 'faasw';
        const seen = [];
        const spy = (name) => ({ configurable: true, get() { seen.push(name); return 'planted'; },
            set(value) { seen.push([name, value]); } });
        const names = ['KEY', 'default', 'ASSETS', 'cookie', 'then', 'handler', 'type', 'keys'];
        for (const name of names)
            Object.defineProperty(Object.prototype, name, spy(name));
        Array.prototype.includes = function (value) { seen.push(value); return true; };
        Map.prototype.get = () => 'planted';
        String.prototype.toWellFormed = function () { seen.push(1); return String(this); };
        export default { async fetch(request, env) {
            const got = await env.default.get('k');
            return new Response([env.KEY, secrets.get('KEY'), got].join(' '));
        } };";
    let call = asked("/").secret_value("KEY", "s3cret");
    let mut ready = JAVASCRIPT.init(&[("a.js", script)], &call).unwrap();
    ready.platform_mut().store_answers = Some(value("v").encode().unwrap().into());
    ready.handle(call.request).unwrap();
    assert_eq!(ready.platform().response_body, b"s3cret s3cret v");
}
