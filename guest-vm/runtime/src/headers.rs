//! Rules for header fields that `wasi:http` and CGI share (RFC 9110, section 5).

/// Fields that a function neither sees nor sets, because they belong to one connection or frame the
/// message, and the gateway is responsible for both. Names are in lower case. `trailer` is not
/// among them: the function decides which fields follow.
const FORBIDDEN: [&[u8]; 10] = [
    b"connection",
    b"host",
    b"http2-settings",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"transfer-encoding",
    b"upgrade",
];

/// The only field of a connection that functions may set, and its value. gRPC clients set it on
/// their requests. The node decides what goes over a connection: it drops the field from responses
/// and over HTTP/1, and sends it over HTTP/2.
const TRAILERS_ACCEPTED: (&[u8], &[u8]) = (b"te", b"trailers");

/// Returns whether functions may set the field to this value. The case of the name does not matter.
pub(crate) fn may_set(name: &[u8], value: &[u8]) -> bool {
    let (te, trailers) = TRAILERS_ACCEPTED;
    !is_forbidden(name) || name.eq_ignore_ascii_case(te) && value == trailers
}

/// Returns whether functions may change the field. Case does not matter.
pub(crate) fn may_change(name: &[u8]) -> bool {
    !is_forbidden(name) || name.eq_ignore_ascii_case(TRAILERS_ACCEPTED.0)
}

/// Returns whether functions must not use the field. Case does not matter.
pub(crate) fn is_forbidden(name: &[u8]) -> bool {
    FORBIDDEN
        .iter()
        .any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}

/// Returns whether `name` is a field name (a token).
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().copied().all(is_token_byte)
}

/// Returns whether `value` is a field value: visible bytes, spaces, tabs and bytes above ASCII.
/// Line ends and NUL would let a function forge other fields.
pub(crate) fn is_value(value: &[u8]) -> bool {
    value
        .iter()
        .all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

/// Returns whether `byte` may be in a token.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the number of a `content-length` value, which must consist of digits only.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens() {
        for good in ["a", "X-Y_z", "!#$%&'*+-.^_`|~09"] {
            assert!(is_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "a b", "a:", "é", "a\n", "(x)", "\"x\""] {
            assert!(!is_name(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn values_hold_no_line_ends_and_no_controls() {
        for good in ["", "a b\tc", "é"] {
            assert!(is_value(good.as_bytes()), "{good}");
        }
        for bad in ["a\r\nb", "a\nb", "\0", "\x7f"] {
            assert!(!is_value(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn forbidden_names_match_in_any_case() {
        assert!(is_forbidden(b"Transfer-Encoding"));
        assert!(is_forbidden(b"host"));
        assert!(!is_forbidden(b"content-length"));
    }

    #[test]
    fn te_is_set_to_trailers_and_to_nothing_else() {
        for (name, value, may) in [
            ("te", "trailers", true),
            ("TE", "trailers", true),
            ("te", "gzip", false),
            ("te", "trailers, gzip", false),
            ("te", "", false),
            ("connection", "trailers", false),
            ("x", "gzip", true),
        ] {
            assert_eq!(
                may_set(name.as_bytes(), value.as_bytes()),
                may,
                "{name}: {value}"
            );
        }
        assert!(may_change(b"Te") && may_change(b"x") && !may_change(b"upgrade"));
        // The field of a client concerns the connection between client and node.
        assert!(is_forbidden(b"te"));
    }

    #[test]
    fn a_content_length_is_digits_that_fit() {
        assert_eq!(content_length(b"0"), Some(0));
        assert_eq!(content_length(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "+1", "-1", "1 ", "0x1", "18446744073709551616", "1,1"] {
            assert_eq!(content_length(bad.as_bytes()), None, "{bad}");
        }
    }
}
