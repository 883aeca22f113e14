//! Outbound calls of scripts to a real server, by unmodified clients from PyPI.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::LazyLock,
    thread,
};

use faasw::{FunctionOptions, Node, OutboundGrant, OutboundOptions};

use crate::e2e::{self, Bench, limits};
use crate::packages::{unpack, with};

static CLIENTS: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| unpack("tests/fixtures/scripts/client-packages.tar.zst"));

/// A node whose functions may call this machine.
static REACHING: LazyLock<Bench> = LazyLock::new(|| {
    e2e::at_end(|| REACHING.end());
    let options = OutboundOptions::default().allow_private("127.0.0.0/8".parse().unwrap());
    Bench::start(Node::builder().outbound(options), limits())
});

/// Starts a server for the rest of the process. It answers `GET /json` with JSON, a Stripe customer
/// to `POST /v1/customers`, nothing to `PUT`, and its method, path and body to any other request.
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
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
        let method = method.to_owned();
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
        let body = String::from_utf8_lossy(&body);
        let answer = match path.as_str() {
            "/json" => r#"{"a": 1}"#.to_owned(),
            "/v1/customers" => r#"{"id": "cus_1", "object": "customer"}"#.to_owned(),
            // S3 answers without a body. Its client takes other text for a failure.
            _ if method == "PUT" => String::new(),
            _ => format!("{method} {path} {body}"),
        };
        let size = answer.len();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{answer}"
        )?;
    }
}

fn granted(address: SocketAddr) -> FunctionOptions {
    let grant = OutboundGrant::new(format!("http://{address}")).unwrap();
    FunctionOptions::default().allow_outbound(grant)
}

pub fn clients_call_a_real_server() {
    let address = server();
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
    let address = server();
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
