//! Clients from PyPI.

use crate::support::calls::{answer, failed};
use crate::support::values;
use crate::{called, json, lines};
use faasw_abi::outgoing::FailureCode;

const REQUESTS: &[&str] = &[
    "requests",
    "urllib3",
    "certifi",
    "idna",
    "charset_normalizer",
];

const HTTPX: &[&str] = &[
    "httpx",
    "httpcore",
    "h11",
    "certifi",
    "idna",
    "anyio",
    "typing_extensions",
];

const BOTO3: &[&str] = &[
    "boto3",
    "botocore",
    "s3transfer",
    "jmespath",
    "dateutil",
    "six",
    "urllib3",
    "certifi",
];

const URLLIB3: &str = r#"
import PATH
import urllib3
pool = urllib3.PoolManager()
def handler(request):
    said = [urllib3.__version__[0]]
    r = pool.request("GET", "https://a.example/1")
    said.append(r.data.decode())
    r = pool.request("POST", "https://a.example/2", body=b"abc", headers={"X-A": "b"})
    said.append(r.data.decode())
    r = pool.request("GET", "http://b.example:81/3", preload_content=False)
    said.append(r.read(2).decode())
    r.release_conn()
    try:
        pool.request("GET", "https://a.example/4", retries=False)
    except urllib3.exceptions.HTTPError as e:
        said.append(str(e)[:100])
    return " ".join(said)
"#;

#[test]
fn urllib3_works_in_both_versions() {
    for (path, packages, version) in [
        ("sys", &["urllib3"], "2"),
        (
            "sys; sys.path.insert(0, '/app/urllib3-1')",
            &["urllib3-1"],
            "1",
        ),
    ] {
        let answers = vec![
            json("1"),
            answer(200, &[], &["two", " and"]),
            answer(200, &[], &["three"]),
            failed(FailureCode::TlsCertificateError),
        ];
        let called = called(&URLLIB3.replace("PATH", path), packages, answers);
        let wanted = format!("{version} 1 two and th ");
        assert!(called.text.starts_with(&wanted), "{}", called.text);
        assert!(
            called.text.contains("TLS-certificate-error"),
            "{}",
            called.text
        );
        // The clock of these tests begins in 1970, which urllib3 2 reports.
        let reported = |line: &str| line.contains("System time") || line.contains("warnings.warn(");
        assert!(called.log.lines().all(reported), "{}", called.log);
        assert_eq!(
            lines(&called.asked),
            [
                "GET https://a.example/1",
                "POST https://a.example/2 abc",
                "GET http://b.example:81/3",
                "GET https://a.example/4",
            ]
        );
    }
}

#[test]
fn requests_works() {
    let script = r#"
import requests
session = requests.Session()
def handler(request):
    said = [session.get("https://a.example/1", params={"q": "ü"}).json()["a"]]
    r = session.post("https://a.example/2", json={"b": 1})
    said.append(f"{r.status_code} {r.url} {r.history[0].status_code} {r.cookies.get('c', '-')}")
    said.append(session.post("http://a.example/3", data=(p for p in [b"x", b"yz"])).text)
    with session.get("http://a.example/4", stream=True) as r:
        said.append(b"|".join(r.iter_lines()).decode())
    said.append(requests.get("http://a.example/5", auth=("u", "p"), timeout=(1, 2)).text)
    try:
        session.get("https://a.example/6")
    except requests.exceptions.SSLError as e:
        said.append("--egress-ca" in str(e))
    try:
        session.get("http://other.example/7")
    except requests.ConnectionError as e:
        said.append("--allow-outbound http://other.example" in str(e))
    said.append(session.get("https://a.example/8", verify=False).text)
    return " ".join(map(str, said))
"#;
    let answers = vec![
        json(r#"{"a": "one"}"#),
        answer(
            303,
            &[
                ("location", "https://b.example/2b"),
                ("content-length", "0"),
            ],
            &[],
        ),
        json("2"),
        json("3"),
        answer(200, &[], &["a\nb", "c\nd"]),
        json("5"),
        failed(FailureCode::TlsCertificateError),
        failed(FailureCode::HttpRequestDenied),
        json("8"),
    ];
    let called = called(script, REQUESTS, answers);
    assert_eq!(
        called.text,
        "one 200 https://b.example/2b 303 - 3 a|bc|d 5 True True 8"
    );
    assert_eq!(
        lines(&called.asked),
        [
            "GET https://a.example/1?q=%C3%BC",
            "POST https://a.example/2 {\"b\": 1}",
            "GET https://b.example/2b",
            "POST http://a.example/3 xyz",
            "GET http://a.example/4",
            "GET http://a.example/5",
            "GET https://a.example/6",
            "GET http://other.example/7",
            "GET https://a.example/8",
        ]
    );
    let timeouts = &called.asked[5].head.timeouts;
    assert_eq!(timeouts.connect, 1_000_000_000);
    assert!(
        called
            .log
            .contains("switching verification off has no effect"),
        "{}",
        called.log
    );
}

#[test]
fn httpx_works_with_and_without_asyncio() {
    let script = r#"
import asyncio, httpx
client = httpx.Client()
async def many():
    async with httpx.AsyncClient() as client:
        async def get(n):
            return (await client.get(f"https://a.example/{n}")).json()
        said = await asyncio.gather(*map(get, range(3)))
        async def pieces():
            yield b"ab"
            await asyncio.sleep(0)
            yield b"c"
        r = await client.post("http://a.example/p", content=pieces())
        said.append(r.text)
        try:
            await client.get("http://a.example/late", timeout=0.005)
        except httpx.ReadTimeout:
            said.append("late")
        return said
def handler(request):
    said = [client.get("https://a.example/s").json()]
    with client.stream("POST", "http://a.example/t", content=b"abc") as r:
        said += list(r.iter_text())
    try:
        client.get("https://a.example/f")
    except httpx.ReadError as e:
        said.append("no grant" in str(e))
    said += asyncio.run(many())
    return str(said)
"#;
    let mut first = json("10");
    first.delay = 5;
    let answers = vec![
        json("1"),
        answer(200, &[], &["one", "two"]),
        failed(FailureCode::HttpRequestDenied),
        first,
        json("11"),
        json("12"),
        json("4"),
    ];
    let called = called(script, HTTPX, answers);
    assert_eq!(
        called.text,
        "[1, 'one', 'two', True, 10, 11, 12, '4', 'late']"
    );
    let told = lines(&called.asked);
    assert_eq!(told[0], "GET https://a.example/s");
    assert_eq!(told[1], "POST http://a.example/t abc");
    assert_eq!(
        told[3..],
        [
            "GET https://a.example/0",
            "GET https://a.example/1",
            "GET https://a.example/2",
            "POST http://a.example/p abc",
            "GET http://a.example/late",
        ]
    );
}

#[test]
fn boto3_puts_and_gets_objects() {
    let script = r#"
import boto3
from botocore.config import Config
def handler(request):
    s3 = boto3.client("s3", region_name="eu-central-1", endpoint_url="http://s3.example:9000",
                      aws_access_key_id="a", aws_secret_access_key="b")
    tag = s3.put_object(Bucket="b", Key="k", Body=b"hello")["ETag"]
    body = s3.get_object(Bucket="b", Key="k")["Body"].read().decode()
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket="b")["Contents"]]
    return f"{tag} {body} {keys}"
"#;
    let list = "<?xml version=\"1.0\"?><ListBucketResult><Contents><Key>k</Key></Contents>\
                </ListBucketResult>";
    let answers = vec![
        answer(200, &[("etag", "\"t\""), ("content-length", "0")], &[]),
        answer(200, &[("content-length", "5")], &["hello"]),
        answer(200, &[("content-type", "application/xml")], &[list]),
    ];
    let called = called(script, BOTO3, answers);
    assert_eq!(called.text, "\"t\" hello ['k']");
    let told = lines(&called.asked);
    assert_eq!(told[0], "PUT http://s3.example:9000/b/k hello");
    assert_eq!(told[1], "GET http://s3.example:9000/b/k");
    assert!(!values(&called.asked[0].head.headers, "authorization").is_empty());
}

#[test]
fn stripe_creates_a_customer() {
    let script = r#"
import stripe
client = stripe.StripeClient("sk_test_x")
def handler(request):
    return client.v1.customers.create({"email": "a@b.c"}).id
"#;
    let packages = [REQUESTS, &["stripe", "typing_extensions"]].concat();
    let called = called(
        script,
        &packages,
        vec![json(r#"{"id": "cus_1", "object": "customer"}"#)],
    );
    assert_eq!(called.text, "cus_1");
    assert_eq!(
        lines(&called.asked),
        ["POST https://api.stripe.com/v1/customers email=a%40b.c"]
    );
    let head = &called.asked[0].head;
    assert_eq!(
        values(&head.headers, "authorization"),
        [b"Bearer sk_test_x"]
    );
}
