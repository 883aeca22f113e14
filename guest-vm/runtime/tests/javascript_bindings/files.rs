//! Files and assets.

use crate::SITE;
use crate::support::scripts::{JAVASCRIPT, asked};
use crate::support::{Kind, values};

/// Returns status, content type, ETag, location and body of an asset.
fn asset(mount: &str, request: &str) -> String {
    let script = format!(
        "const request = () => {request};
         export default {{ async fetch(_, env) {{
             const {{ status, headers, body }} = await env.ASSETS.fetch(request());
             const text = body === null ? 'none' : await new Response(body).text();
             const [kind, length, tag, location] =
                 ['type', 'length'].map((name) => headers.get('content-' + name))
                 .concat(headers.get('etag'), headers.get('location'));
             return new Response([status, kind, length,
                 /^\"[\\da-f]+-[\\da-f]{{16}}\"$/.test(tag), location, text].join(' '));
         }} }};"
    );
    let call = asked("/").files(mount, SITE);
    JAVASCRIPT.answer(&[("a.js", script.as_bytes())], call)
}

#[test]
fn assets_are_served_from_the_files_of_the_function() {
    let css = "200 text/css;charset=utf-8 4 true  p {}";
    for mount in ["/", "/site", "/var/lib/site"] {
        for (request, expected) in [
            ("'/'", "200 text/html;charset=utf-8 7 true  <p>home"),
            ("'http://any.example/a%20b/page.css?q#f'", css),
            ("new URL('http://x/link.css')", css),
            ("new Request('http://x//a%20b//page.css')", css),
            ("'/docs/'", "200 text/html;charset=utf-8 7 true  <p>docs"),
            (
                "'/docs/.hidden'",
                "200 application/octet-stream 6 true  hidden",
            ),
            ("'/docs?q=1'", "307   false ./docs/?q=1 none"),
            (
                "'/noextension'",
                "200 application/octet-stream 1 true  \u{fffd}",
            ),
            (
                "new Request('http://x/index.html', { method: 'HEAD' })",
                "200 text/html;charset=utf-8 7 true  none",
            ),
        ] {
            assert_eq!(asset(mount, request), expected, "{mount}: {request}");
        }
        for path in [
            "/empty",
            "/empty/",
            "/nothing",
            "/index.html/",
            "/index.html/x",
            "/..%2f..%2fetc",
            "/%2e%2e/%2e%2e/x",
            "/a%00",
            "/%",
            "/%ff",
            "/a%20b%2fpage.css",
        ] {
            let told = asset(mount, &format!("'{path}'"));
            assert_eq!(
                told, "404 text/plain;charset=UTF-8  false  404 Not Found\n",
                "{path}"
            );
        }
        let told = asset(
            mount,
            "new Request('http://x/', { method: 'POST', body: '' })",
        );
        assert!(told.starts_with("405 "), "{told}");
    }
}

#[test]
fn unchanged_assets_are_not_sent_again() {
    let script = b"export default { async fetch(request, env) {
        const first = await env.ASSETS.fetch('/index.html');
        const etag = first.headers.get('etag');
        const status = async (value) => {
            const headers = { 'if-none-match': value };
            const response = await env.ASSETS.fetch('http://x/index.html', { headers });
            const isSame = response.headers.get('etag') === etag;
            return [response.status, isSame, (await response.text()).length].join(' ');
        };
        const other = (await env.ASSETS.fetch('/docs/')).headers.get('etag');
        const all = [etag, 'W/' + etag, '\"x\", ' + etag, '*', '\"x\"', other];
        return Response.json(await Promise.all(all.map(status)));
    } };";
    let call = asked("/").files("/site", SITE);
    let expected =
        r#"["304 true 0","304 true 0","304 true 0","304 true 0","200 true 7","200 true 7"]"#;
    assert_eq!(JAVASCRIPT.answer(&[("a.js", script)], call), expected);
}

/// The file is larger than the memory limit, which counts only what the script reads or writes.
#[test]
fn large_assets_are_streamed() {
    let large: &'static [u8] = vec![b'x'; 24 << 20].leak();
    let script = b"export default { fetch: (request, env) => env.ASSETS.fetch('/large.txt') };";
    let call = asked("/")
        .files("/", &[(Kind::File, "large.txt", large)])
        .memory(16 << 20);
    let ready = JAVASCRIPT.answered(&[("a.js", script)], call);
    let platform = ready.platform();
    assert!(
        platform.response_body == large,
        "{}",
        platform.response_body.len()
    );
    let head = platform.response_head.as_ref().unwrap();
    assert_eq!(values(&head.headers, "content-length"), [b"25165824"]);
}

#[test]
fn files_are_read_everywhere_and_written_for_one_request() {
    let script = b"import { files } from 'faasw';
        const home = await files.text('/site/index.html');
        const listed = await files.list('/site/docs');
        const failed = async (path) => files.read(path).catch((error) => error.message);
        export default { async fetch() {
            await files.write('/tmp/a/b/c.txt', 'text');
            await files.write('/tmp/a/bytes', new Uint8Array(200000).fill(7));
            await files.write('tmp/stream', new Blob(['st', 'ream']).stream());
            const bytes = await files.read('/tmp/a/bytes');
            const names = (await files.list('/tmp/a')).map(({ name, kind }) => `${name}: ${kind}`);
            await files.delete('/tmp/a/bytes');
            return Response.json([home, listed, await files.text('/tmp/a/b/c.txt'), bytes.length,
                bytes[199999], names, await files.exists('/tmp/a/bytes'),
                await files.exists('/tmp/a/b'), await files.text('/tmp/stream'),
                await failed('/nothing'), await failed('/site/docs'),
                await failed('/site/../../etc/passwd')]);
        } };";
    let call = asked("/").files("/site", SITE);
    let expected = concat!(
        r#"["<p>home",[{"name":".hidden","kind":"file"},{"name":"index.html","kind":"file"}],"#,
        r#""text",200000,7,["b: folder","bytes: file"],false,true,"stream","#,
        r#""/nothing: there is no such file or folder","/site/docs: this is a folder","#,
        r#""/site/../../etc/passwd: the path leads out of the function's files"]"#
    );
    assert_eq!(JAVASCRIPT.answer(&[("a.js", script)], call), expected);
}
