//! Requests, header fields, redirects, and URLs that need no server.

use crate::support::calls::line;
use crate::{answer, field, of, ok, redirect};

#[test]
fn a_request_is_sent_and_its_response_is_received() {
    let (told, calls) = of(
        "const response = await fetch('https://api.example:8443/a/b?c=d#e', {
            headers: { 'X-Key': 'k', Host: 'other', connection: 'close' },
        });
        const { status, statusText, ok, url, redirected, type, bodyUsed } = response;
        const a = response.headers.get('x-a');
        const body = await response.json();
        return [status, statusText, ok, url, redirected, type, bodyUsed, a, body,
            response.bodyUsed];",
        vec![answer(
            201,
            &[("X-A", "b"), ("connection", "close")],
            &["{\"n\":", "7}"],
        )],
    );
    assert_eq!(
        told,
        "[201,\"Created\",true,\"https://api.example:8443/a/b?c=d\",false,\"basic\",false,\"b\",{\"n\":7},true]"
    );
    assert_eq!(line(&calls[0]), "GET https://api.example:8443/a/b?c=d");
    assert!(calls[0].is_whole && calls[0].is_over);
    let names: Vec<_> = calls[0]
        .head
        .headers
        .iter()
        .map(|(name, _)| name.as_slice())
        .collect();
    let expected: [&[u8]; 4] = [b"x-key", b"accept", b"accept-encoding", b"user-agent"];
    assert_eq!(names, expected);
    assert_eq!(field(&calls[0], "accept"), ["*/*"]);
    assert_eq!(field(&calls[0], "user-agent"), ["faasw"]);
}

#[test]
fn headers_of_a_response_cannot_be_changed_and_cookies_stay_apart() {
    let (told, _) = of(
        "const response = await fetch('http://a/');
        const cookies = response.headers.getSetCookie();
        let error; try { response.headers.set('a', 'b') } catch (caught) { error = caught }
        const copy = new Response(response.body, response);
        copy.headers.set('a', 'b');
        return [cookies, error instanceof TypeError, copy.headers.get('a'), await copy.text()];",
        vec![answer(
            200,
            &[("set-cookie", "a=1"), ("set-cookie", "b=2")],
            &["x"],
        )],
    );
    assert_eq!(told, "[[\"a=1\",\"b=2\"],true,\"b\",\"x\"]");
}

#[test]
fn redirects_are_followed_hop_by_hop() {
    for (status, method, then) in [
        (301, "GET", "GET"),
        (301, "POST", "GET"),
        (301, "PUT", "PUT"),
        (302, "POST", "GET"),
        (302, "HEAD", "HEAD"),
        (302, "DELETE", "DELETE"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
    ] {
        let has_body = matches!(method, "POST" | "PUT");
        let body = if has_body { ", body: 'abc'" } else { "" };
        let (told, calls) = of(
            &format!(
                "const response = await fetch('http://a/x/y?z#f', {{ method: '{method}'{body},
                    headers: {{ authorization: 'k', 'x-b': 'c' }} }});
                return [response.url, response.redirected, await response.text()]"
            ),
            vec![redirect(status, "../w?v"), ok("here")],
        );
        let text = if method == "HEAD" { "" } else { "here" };
        assert_eq!(
            told,
            format!("[\"http://a/w?v\",true,\"{text}\"]"),
            "{status} {method}"
        );
        assert_eq!(
            line(&calls[1]),
            format!("{then} http://a/w?v"),
            "{status} {method}"
        );
        let keeps_body = has_body && then == method;
        let sent = if keeps_body { "abc" } else { "" };
        assert_eq!(calls[1].body, sent.as_bytes(), "{status} {method}");
        assert_eq!(!field(&calls[1], "content-type").is_empty(), keeps_body);
        assert_eq!(field(&calls[1], "authorization"), ["k"]);
        assert_eq!(field(&calls[1], "x-b"), ["c"]);
        assert!(calls[0].is_over);
    }
}

#[test]
fn credentials_stay_with_their_origin() {
    for (location, stays) in [
        ("/other", true),
        ("http://a:80/other", true),
        ("https://a/", false),
        ("http://a:81/", false),
        ("//b/", false),
    ] {
        let (_, calls) = of(
            "return (await fetch('http://a/', { headers: { authorization: 'k', cookie: 'c=d', accept: 'x' } })).text()",
            vec![redirect(302, location), ok("")],
        );
        assert_eq!(
            !field(&calls[1], "authorization").is_empty(),
            stays,
            "{location}"
        );
        assert_eq!(!field(&calls[1], "cookie").is_empty(), stays, "{location}");
        assert_eq!(field(&calls[1], "accept"), ["x"]);
    }
    // A second redirect does not restore removed headers.
    let (_, calls) = of(
        "return (await fetch('http://a/', { headers: { authorization: 'k' } })).text()",
        vec![
            redirect(302, "http://b/"),
            redirect(302, "http://a/"),
            ok(""),
        ],
    );
    assert!(field(&calls[2], "authorization").is_empty());
}

#[test]
fn redirects_have_modes_and_a_limit() {
    let (told, calls) = of(
        "const response = await fetch('http://a/', { redirect: 'manual' });
        return [response.status, response.headers.get('location'), response.redirected,
            await response.text()]",
        vec![redirect(302, "/b")],
    );
    assert_eq!(
        (told.as_str(), calls.len()),
        ("[302,\"/b\",false,\"moved\"]", 1)
    );
    let (told, calls) = of(
        "return (await fetch('http://a/', { redirect: 'error' })).text()",
        vec![redirect(302, "/b")],
    );
    assert!(
        told.starts_with("TypeError: cannot fetch http://a: the server redirected"),
        "{told}"
    );
    assert!(calls.len() == 1 && calls[0].is_over);
    let (told, _) = of(
        "const response = await fetch('http://a/'); return [response.status, response.redirected]",
        vec![answer(302, &[], &[])],
    );
    assert_eq!(told, "[302,false]");
    for (count, wanted) in [(20, "here"), (21, "more than 20 redirects")] {
        let mut answers = vec![redirect(302, "/again"); count];
        answers.push(ok("here"));
        let (told, calls) = of("return (await fetch('http://a/')).text()", answers);
        assert!(told.contains(wanted), "{told}");
        assert_eq!(calls.len(), 21);
    }
    for (location, wanted) in [
        ("http://[", "the redirect's location is not a URL"),
        (
            "data:,x",
            "functions send requests to http: and https: only",
        ),
        (
            "file:///etc/passwd",
            "functions send requests to http: and https: only",
        ),
        ("http://user@b/", "the redirect names a user or a password"),
    ] {
        let (told, calls) = of(
            "return (await fetch('http://a/')).text()",
            vec![redirect(302, location), ok("here")],
        );
        assert!(
            told.starts_with("TypeError: cannot fetch ") && told.contains(wanted),
            "{told}"
        );
        assert_eq!(calls.len(), 1);
    }
    let (told, calls) = of(
        "const body = new ReadableStream({ start(to) { to.close() } });
        return (await fetch('http://a/', { method: 'POST', body, duplex: 'half' })).text()",
        vec![redirect(307, "/b"), ok("here")],
    );
    assert!(
        told.contains("cannot be sent again") && calls.len() == 1,
        "{told}"
    );
    let (told, calls) = of(
        "return (await fetch('http://a/#one')).text()",
        vec![redirect(302, "/gr\u{fc}n"), ok("here")],
    );
    assert_eq!(told, "here");
    assert_eq!(line(&calls[1]), "GET http://a/gr%C3%BCn");
}

#[test]
fn a_response_has_the_integrity_that_its_request_names() {
    const ABC: &str = "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
    let other = ABC.replace("ung", "unh");
    for (integrity, is_intact) in [
        (ABC.to_owned(), true),
        (format!("{other} {ABC}?option"), true),
        ("md5-x unknown".to_owned(), true),
        (other, false),
        // Only the strongest digests count.
        (format!("{ABC} sha512-AAAA"), false),
    ] {
        let (told, calls) = of(
            &format!("return (await fetch('http://a/', {{ integrity: '{integrity}' }})).text()"),
            vec![answer(200, &[], &["a", "bc"])],
        );
        assert_eq!(told == "abc", is_intact, "{integrity}: {told}");
        assert!(is_intact || told.contains("integrity"), "{told}");
        assert!(calls[0].is_over);
    }
}

#[test]
fn data_urls_need_no_server() {
    for (url, wanted) in [
        (
            "data:,a%20b",
            "[200,\"OK\",\"text/plain;charset=US-ASCII\",\"a b\"]",
        ),
        (
            "data:text/html;base64,PGI+",
            "[200,\"OK\",\"text/html\",\"<b>\"]",
        ),
        (
            "data:a/b;c=d,%00#hash",
            "[200,\"OK\",\"a/b;c=d\",\"\\u0000\"]",
        ),
    ] {
        let (told, calls) = of(
            &format!(
                "const response = await fetch('{url}');
                return [response.status, response.statusText, response.headers.get('content-type'),
            await response.text()]"
            ),
            vec![],
        );
        assert_eq!(told, wanted);
        assert!(calls.is_empty());
    }
    for url in ["data:no-comma", "data:;base64,?"] {
        let (told, _) = of(&format!("return fetch('{url}')"), vec![]);
        assert!(
            told.starts_with("TypeError: cannot fetch data:: "),
            "{told}"
        );
    }
    let (told, _) = of(
        "return [(await fetch('data:,x', { method: 'HEAD' })).body]",
        vec![],
    );
    assert_eq!(told, "[null]");
}
