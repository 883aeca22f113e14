//! A parser for forms in multipart/form-data (RFC 7578).

use encoding_rs::UTF_8;

/// A part: its name, its file's name, its type and its content.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) file: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) content: Vec<u8>,
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// Parses a form into its parts. Returns `None` if the form is malformed.
pub(crate) fn parse(bytes: &[u8], boundary: &str) -> Option<Vec<Part>> {
    if boundary.is_empty() || boundary.len() > 70 {
        return None;
    }
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    // Bytes before the first delimiter belong to no part.
    let first = &delimiter[2..];
    let mut rest = match bytes.strip_prefix(first) {
        Some(rest) => rest,
        None => &bytes[find(bytes, &delimiter)? + delimiter.len()..],
    };
    let mut parts = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            return Some(parts);
        }
        let padding = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        rest = rest[padding..].strip_prefix(b"\r\n")?;
        // A part without header fields begins with the empty line itself.
        let (head, body) = match rest.strip_prefix(b"\r\n") {
            Some(body) => (&b""[..], body),
            None => {
                let end = find(rest, b"\r\n\r\n")?;
                (&rest[..end], &rest[end + 4..])
            }
        };
        let end = find(body, &delimiter)?;
        parts.push(part(head, &body[..end])?);
        rest = &body[end + delimiter.len()..];
    }
}

fn part(head: &[u8], content: &[u8]) -> Option<Part> {
    let (head, _) = UTF_8.decode_without_bom_handling(head);
    let (mut name, mut file, mut kind) = (None, None, None);
    for line in head.split("\r\n") {
        let (field, value) = line.split_once(':')?;
        let value = value.trim_matches([' ', '\t']);
        if field.eq_ignore_ascii_case("content-disposition") {
            name = parameter(value, "name");
            file = parameter(value, "filename");
        } else if field.eq_ignore_ascii_case("content-type") {
            kind = Some(value.to_owned());
        }
    }
    Some(Part {
        name: name?,
        file,
        kind,
        content: content.to_vec(),
    })
}

/// Returns a parameter of a disposition, with the characters that browsers escape restored.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (key, after) = rest.split_once('=')?;
        let (text, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => match after.find(';') {
                Some(end) => after.split_at(end),
                None => (after, ""),
            },
        };
        if key.trim().eq_ignore_ascii_case(wanted) {
            let text = text
                .replace("%22", "\"")
                .replace("%0D", "\r")
                .replace("%0A", "\n");
            return Some(text);
        }
        rest = next.trim_start_matches([' ', ';']);
        if rest.is_empty() {
            return None;
        }
    }
}
