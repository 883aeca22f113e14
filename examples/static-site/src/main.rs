//! A web site as a function: a CGI program (RFC 3875) that answers with the files it was deployed
//! with.

use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let method = variable("REQUEST_METHOD");
    if method != "GET" && method != "HEAD" {
        return write!(out, "Status: 405\nAllow: GET, HEAD\n\n");
    }
    match open(&decoded(&variable("PATH_INFO"))) {
        Ok((path, mut file)) => {
            let length = file.metadata()?.len();
            let kind = content_type(&path);
            write!(out, "Content-Type: {kind}\nContent-Length: {length}\n\n")?;
            if method == "GET" {
                io::copy(&mut file, &mut out)?;
            }
        }
        Err(_) => write!(out, "Status: 404\nContent-Type: text/plain\n\nnot found\n")?,
    }
    out.flush()
}

/// The file of a path; of a folder its index.
fn open(path: &str) -> io::Result<(PathBuf, File)> {
    let mut file = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => file.push(part),
            Component::RootDir | Component::CurDir => {}
            // The system would refuse it, too.
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::NotFound.into());
            }
        }
    }
    if file.is_dir() {
        file.push("index.html");
    }
    let opened = File::open(&file)?;
    Ok((file, opened))
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// A path without its percent signs; what is no UTF-8 then names nothing.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let digits: Option<Vec<u8>> = match byte {
            b'%' => Some(rest.by_ref().take(2).collect()),
            _ => None,
        };
        let decoded = digits.and_then(|digits| {
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
        });
        bytes.push(decoded.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An absent variable reads as an empty one.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
