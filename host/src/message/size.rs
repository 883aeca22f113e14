//! Computes the size of a head's fields: their bytes for the limit, and their cost in memory.

use http::HeaderMap;

use super::RequestRejection;
use crate::limits::Limits;

/// Maximum length of path and query of a request to a function, in bytes. RFC 9110, section 4.1,
/// requires at least 8000 bytes. With the largest header fields it must fit into the mailbox.
pub(crate) const TARGET_BYTES: usize = 16 << 10;

/// Minimum bytes of memory that a `HeaderMap` takes for a field besides its name and value.
const FIELD: usize = 110;

/// Returns the bytes of the fields' names and values.
pub(crate) fn head_size(fields: &HeaderMap) -> usize {
    let each = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    each.sum()
}

/// Returns the minimum bytes of memory that the fields take.
pub(crate) fn head_cost(fields: &HeaderMap) -> u64 {
    (head_size(fields) + fields.len() * FIELD) as u64
}

/// Rejects a head that is larger than the node accepts.
pub(crate) fn check_size(fields: &HeaderMap, limits: &Limits) -> Result<(), RequestRejection> {
    let count = fields.len();
    if count > limits.request_fields {
        return Err(RequestRejection::HeadTooLarge {
            size: count,
            unit: "fields",
            limit: limits.request_fields,
        });
    }
    let size = head_size(fields);
    if size > limits.request_head {
        return Err(RequestRejection::HeadTooLarge {
            size,
            unit: "bytes",
            limit: limits.request_head,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn head(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        fields.iter().copied().map(field).collect()
    }

    #[test]
    fn large_heads_are_refused_by_count_and_by_size() {
        let limits = Limits {
            request_fields: 2,
            request_head: 10,
            ..Limits::default()
        };
        check_size(&head(&[("a", "12"), ("b", "12345")]), &limits).unwrap();
        let many = head(&[("a", ""), ("b", ""), ("c", "")]);
        let large = head(&[("a", "1234567890")]);
        for (fields, unit) in [(many, "fields"), (large, "bytes")] {
            let refused = check_size(&fields, &limits).unwrap_err();
            assert!(refused.to_string().contains(unit), "{refused}");
        }
    }

    #[test]
    fn each_field_counts_its_memory_overhead() {
        assert_eq!(head_cost(&head(&[("a", "12345")])), 6 + FIELD as u64);
        assert_eq!(head_cost(&HeaderMap::new()), 0);
    }
}
