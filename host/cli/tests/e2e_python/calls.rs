//! Outbound calls of scripts to a real server, by unmodified clients from PyPI.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::e2e::{
    archives::unpack,
    upstream::{REACHING, Received, Reply, granted, serve},
};
use crate::packages::with;

static CLIENTS: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| unpack("tests/fixtures/scripts/client-packages.tar.zst"));

/// Replies with JSON to `GET /json`, with a Stripe customer to `POST /v1/customers`, with nothing
/// to `PUT`, and to any other request with its method, path and body.
fn reply(request: &Received) -> Reply {
    let Received { method, path, body } = request;
    let body = match path.as_str() {
        "/json" => r#"{"a": 1}"#.to_owned(),
        "/v1/customers" => r#"{"id": "cus_1", "object": "customer"}"#.to_owned(),
        // S3 answers without a body. Its client takes other text for a failure.
        _ if method == "PUT" => String::new(),
        _ => format!("{method} {path} {body}"),
    };
    Reply { fields: "", body }
}

pub fn clients_call_a_real_server() {
    let address = serve(reply);
    let script = r#"
import asyncio, json, urllib.request
import aiohttp, httpx, requests
session = requests.Session()
async def many(url):
    async with httpx.AsyncClient() as client, aiohttp.ClientSession() as other:
        async def by_httpx(n):
            return (await client.get(f"{url}/{n}")).text
        async def by_aiohttp(n):
            async with other.get(f"{url}/{n}") as r:
                return await r.text()
        return await asyncio.gather(*map(by_httpx, range(3)), *map(by_aiohttp, range(3, 6)))
def handler(request):
    url = "http://ADDRESS"
    with urllib.request.urlopen(url + "/json") as r:
        said = [json.load(r)["a"]]
    said.append(session.get(url + "/json").json()["a"])
    said.append(session.post(url + "/p", data=b"x" * 300000).text.count("x"))
    said.append(httpx.get(url + "/json").json()["a"])
    said += asyncio.run(many(url))
    try:
        requests.get("http://denied.example/")
    except requests.ConnectionError as e:
        said.append("--allow-outbound http://denied.example" in str(e))
    return said
"#;
    let script = script.replace("ADDRESS", &address.to_string());
    let packages = [
        "requests",
        "urllib3",
        "certifi",
        "idna",
        "charset_normalizer",
        "httpx",
        "httpcore",
        "h11",
        "anyio",
        "typing_extensions",
        "aiohttp",
        "aiohappyeyeballs",
        "aiosignal",
        "attr",
        "attrs",
        "frozenlist",
        "multidict",
        "propcache",
        "yarl",
    ];
    let files = with(&CLIENTS, &[("main.py", &script)], &packages);
    REACHING.deploy("clients", &files, granted(address));
    for _ in 0..3 {
        assert_eq!(
            REACHING.text("/clients/"),
            "[1, 1, 300000, 1, \"GET /0 \", \"GET /1 \", \"GET /2 \", \"GET /3 \", \"GET /4 \", \
             \"GET /5 \", true]"
        );
    }
}

pub fn software_development_kits_call_a_real_server() {
    let address = serve(reply);
    let script = r#"
import boto3, stripe
URL = "http://ADDRESS"
client = stripe.StripeClient("sk_test_x", base_addresses={"api": URL})
s3 = boto3.client("s3", region_name="eu-central-1", endpoint_url=URL,
                  aws_access_key_id="a", aws_secret_access_key="b")
def handler(request):
    customer = client.v1.customers.create({"email": "a@b.c"}).id
    s3.put_object(Bucket="b", Key="k", Body=b"hello")
    return f"{customer} {s3.get_object(Bucket='b', Key='k')['Body'].read().decode()}"
"#;
    let script = script.replace("ADDRESS", &address.to_string());
    let packages = [
        "requests",
        "urllib3",
        "certifi",
        "idna",
        "charset_normalizer",
        "stripe",
        "typing_extensions",
        "boto3",
        "botocore",
        "s3transfer",
        "jmespath",
        "dateutil",
        "six",
    ];
    let files = with(&CLIENTS, &[("main.py", &script)], &packages);
    REACHING.deploy("kits", &files, granted(address));
    assert_eq!(REACHING.text("/kits/"), "cus_1 GET /b/k ");
}
