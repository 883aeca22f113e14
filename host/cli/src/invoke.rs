//! `invoke`: sends a request to a function without the gateway.

use std::io::Read as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use serde::Serialize;

use super::{
    args::Invoke,
    exit::Exit,
    output::{ContentForm, print_content, print_json, say},
};

/// Requests the timing of a request from the node.
const TIMING: HeaderName = HeaderName::from_static("x-faasw-timing");

/// A response as `--json` prints it.
#[derive(Serialize)]
struct ResponseOutput {
    status: u16,
    headers: Vec<(String, String)>,
    /// The body as text. Bytes that are not UTF-8 are replaced.
    body: String,
}

/// Sends the request and prints the response.
pub async fn invoke(args: Invoke) -> Result<(), Exit> {
    let verbose = args.verbose;
    let json = args.format.json;
    let form = ContentForm::of_stdout(args.raw);
    let name = args.name.clone();
    let client = args.node.clone().client()?;
    let response = client.invoke(&name, request(args)?).await?;
    let status = response.status();
    if verbose {
        show_head(&response);
    }
    if json {
        print_json(&response_output(&response))?;
    } else {
        print_content(response.body(), form)?;
    }
    if status.as_u16() < 400 {
        Ok(())
    } else {
        Err(Exit::bad_status())
    }
}

fn request(args: Invoke) -> Result<Request<Bytes>, Exit> {
    let default = if args.data.is_some() {
        Method::POST
    } else {
        Method::GET
    };
    let body = args
        .data
        .map_or(Ok(Bytes::new()), |data| read_data(&data))?;
    if !args.path.starts_with('/') {
        return Err(Exit::usage(format_args!(
            "the path {:?} does not begin with /",
            args.path
        )));
    }
    let mut request = Request::builder()
        .method(args.method.unwrap_or(default))
        .uri(&args.path)
        .body(body)
        .map_err(|error| Exit::usage(format_args!("the path {:?}: {error}", args.path)))?;
    let headers = request.headers_mut();
    for (name, value) in args.headers {
        headers.append(name, value);
    }
    headers
        .entry(header::HOST)
        .or_insert(HeaderValue::from_static("localhost"));
    if args.verbose {
        headers.insert(TIMING, HeaderValue::from_static("1"));
    }
    Ok(request)
}

pub fn read_data(data: &str) -> Result<Bytes, Exit> {
    let Some(file) = data.strip_prefix('@') else {
        return Ok(Bytes::copy_from_slice(data.as_bytes()));
    };
    let bytes = if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    bytes
        .map(Bytes::from)
        .map_err(|error| Exit::failure(format_args!("{file} cannot be read: {error}")))
}

fn show_head(response: &Response<Bytes>) {
    say(response.status());
    for (name, value) in fields(response.headers()) {
        say(format_args!("{name}: {value}"));
    }
    say("");
}

fn response_output(response: &Response<Bytes>) -> ResponseOutput {
    ResponseOutput {
        status: response.status().as_u16(),
        headers: fields(response.headers()),
        body: String::from_utf8_lossy(response.body()).into_owned(),
    }
}

fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect()
}
