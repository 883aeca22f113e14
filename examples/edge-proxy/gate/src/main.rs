//! A function for a rewriting route: it admits members, and replaces their tokens with their names
//! for the upstream.
//!
//! This is a CGI program (RFC 3875). With status 204, the proxy adds the fields of the answer to
//! the message that the function received, and removes fields with an empty value.

use std::env;

/// Tokens and the members to which they belong.
const MEMBERS: [(&str, &str); 2] = [("tulip", "alice"), ("clog", "bob")];

fn main() {
    let answer = match variable("HTTP_X_EDGE_PHASE").as_str() {
        "request" => match member(&variable("HTTP_AUTHORIZATION")) {
            Some(name) => format!("Status: 204\nX-Member: {name}\nAuthorization:\n\n"),
            None => "Status: 401\nWWW-Authenticate: Bearer\nContent-Type: text/plain\n\n\
                     Members only.\n"
                .into(),
        },
        // The upstream's response.
        _ => "Status: 204\nServer:\nCache-Control: private\n\n".into(),
    };
    print!("{answer}");
}

fn member(authorization: &str) -> Option<&'static str> {
    let token = authorization.strip_prefix("Bearer ")?;
    let (_, name) = MEMBERS.iter().find(|(known, _)| *known == token)?;
    Some(name)
}

/// Returns an environment variable, or an empty string if it is not set.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
