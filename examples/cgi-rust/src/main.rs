//! A CGI program (RFC 3875) in Rust: the request arrives in environment
//! variables and on standard input, the response leaves on standard output.

use std::env;
use std::io::{self, Read as _, Write as _};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();

    // Headers first; an empty line ends them.
    writeln!(out, "Content-Type: text/plain\n")?;

    for name in [
        "REQUEST_METHOD",
        "PATH_INFO",
        "QUERY_STRING",
        "CONTENT_LENGTH",
    ] {
        writeln!(out, "{name} {}", variable(name))?;
    }
    writeln!(out)?;

    // CONTENT_LENGTH says how much body there is to read.
    let length = variable("CONTENT_LENGTH").parse().unwrap_or(0);
    io::copy(&mut io::stdin().lock().take(length), &mut out)?;
    out.flush()
}

/// An absent variable reads as an empty one.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
