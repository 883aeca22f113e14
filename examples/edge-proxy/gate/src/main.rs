//! A function for a rewriting route: it lets members in, and tells the upstream
//! who they are instead of how they proved it.
//!
//! It is a CGI program (RFC 3875). With status 204 its fields go onto the
//! message that it was shown; a field without a value is taken off.

use std::env;

/// Tokens and whose they are.
const MEMBERS: [(&str, &str); 2] = [("tulip", "alice"), ("clog", "bob")];

fn main() {
    let answer = match variable("HTTP_X_EDGE_PHASE").as_str() {
        "request" => match member(&variable("HTTP_AUTHORIZATION")) {
            Some(name) => format!("Status: 204\nX-Member: {name}\nAuthorization:\n\n"),
            None => "Status: 401\nWWW-Authenticate: Bearer\nContent-Type: text/plain\n\n\
                     Members only.\n"
                .into(),
        },
        // The response, on its way back.
        _ => "Status: 204\nServer:\nCache-Control: private\n\n".into(),
    };
    print!("{answer}");
}

fn member(authorization: &str) -> Option<&'static str> {
    let token = authorization.strip_prefix("Bearer ")?;
    let (_, name) = MEMBERS.iter().find(|(known, _)| *known == token)?;
    Some(name)
}

/// An absent variable reads as an empty one.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
