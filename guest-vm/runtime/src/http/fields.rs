//! `wasi:http/types.fields`: headers and trailers.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faasw_abi::wire::Pair;
use wasmtime::component::Resource;
use wasmtime::{Error, Result};

use crate::failure::HostFailure;
use crate::headers;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{self, HeaderError};

/// Maximum bytes of one `fields`, as counted by [`cost`]: twice the capacity of a mailbox, so that
/// a complete incoming head can be cloned and extended.
const MAX_FIELDS: usize = 128 << 10;

/// Maximum bytes of fields that a function may make in one request; limits the total of thousands
/// of `fields` resources.
const MAX_FIELD_BYTES: usize = 16 << 20;

/// Added to each field's length, so that empty fields count as well.
const FIELD_OVERHEAD: usize = 32;

fn cost((name, value): &Pair) -> usize {
    name.len() + value.len() + FIELD_OVERHEAD
}

/// The reason why fields could not be changed.
pub type HeaderFailure = HostFailure<HeaderError>;

impl From<HeaderError> for HeaderFailure {
    fn from(error: HeaderError) -> Self {
        Self::Code(error)
    }
}

/// Header or trailer fields, in order, names in lower case.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    entries: Arc<Vec<Pair>>,
    mutable: bool,
}

impl Fields {
    /// Returns empty fields that the function may change.
    fn new() -> Self {
        Self {
            entries: Arc::default(),
            mutable: true,
        }
    }

    /// Returns the fields of received headers that a function may see.
    pub(super) fn received(headers: &[Pair]) -> Self {
        let seen = headers
            .iter()
            .filter(|(name, _)| !headers::is_forbidden(name))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        Self {
            entries: Arc::new(seen.collect()),
            mutable: false,
        }
    }

    /// Returns the same fields, which the function can no longer change.
    pub(super) fn frozen(self) -> Self {
        Self {
            mutable: false,
            ..self
        }
    }

    /// Returns the fields as they are sent.
    pub(super) fn into_pairs(self) -> Vec<Pair> {
        Arc::unwrap_or_clone(self.entries)
    }

    /// Returns the value of `content-length`, if it is a number.
    pub(super) fn content_length(&self) -> Option<u64> {
        self.values(b"content-length")
            .next()
            .and_then(headers::content_length)
    }

    fn values(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.entries
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    fn has(&self, name: &[u8]) -> bool {
        self.values(name).next().is_some()
    }

    /// Returns the fields for a change.
    fn change(&mut self) -> Result<&mut Vec<Pair>, HeaderError> {
        if self.mutable {
            Ok(Arc::make_mut(&mut self.entries))
        } else {
            Err(HeaderError::Immutable)
        }
    }

    /// Replaces all values of a name by `values`, and returns their cost in bytes.
    fn set(&mut self, name: &str, values: Vec<Vec<u8>>) -> Result<usize, HeaderError> {
        let name = checked_name(name)?;
        let one_at_most = name == b"content-length";
        if one_at_most && values.len() > 1 {
            return Err(HeaderError::InvalidSyntax);
        }
        values.iter().try_for_each(|value| check(&name, value))?;
        let entries = self.change()?;
        entries.retain(|(other, _)| *other != name);
        let mut added = 0;
        for value in values {
            let pair = (name.clone(), value);
            added += cost(&pair);
            entries.push(pair);
        }
        Ok(added)
    }

    /// Adds a value to a name, and returns its cost in bytes.
    fn append(&mut self, name: &str, value: Vec<u8>) -> Result<usize, HeaderError> {
        let name = checked_name(name)?;
        // Two lengths would frame the message twice.
        let second_length = name == b"content-length" && self.has(&name);
        if second_length {
            return Err(HeaderError::InvalidSyntax);
        }
        check(&name, &value)?;
        let pair = (name, value);
        let added = cost(&pair);
        self.change()?.push(pair);
        Ok(added)
    }

    fn delete(&mut self, name: &str) -> Result<(), HeaderError> {
        let name = checked_name(name)?;
        self.change()?.retain(|(other, _)| *other != name);
        Ok(())
    }

    fn size(&self) -> usize {
        self.entries.iter().map(cost).sum()
    }
}

/// Returns the name in lower case, if a function may use it.
fn checked_name(name: &str) -> Result<Vec<u8>, HeaderError> {
    let name = name.as_bytes();
    if !headers::is_name(name) {
        return Err(HeaderError::InvalidSyntax);
    }
    if !headers::may_change(name) {
        return Err(HeaderError::Forbidden);
    }
    Ok(name.to_ascii_lowercase())
}

/// Returns an error if a function may not set the field to the value.
fn check(name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
    let is_valid = headers::is_value(value)
        && (name != b"content-length" || headers::content_length(value).is_some());
    match (is_valid, headers::may_set(name, value)) {
        (false, _) => Err(HeaderError::InvalidSyntax),
        (true, false) => Err(HeaderError::Forbidden),
        (true, true) => Ok(()),
    }
}

impl<P: Platform> State<P> {
    /// Counts `added` bytes that were added to `fields`, which now have `size` bytes.
    fn count_fields(&mut self, size: usize, added: usize) -> Result<(), Error> {
        if size > MAX_FIELDS {
            wasmtime::bail!("wasi:http/types: fields of more than {MAX_FIELDS} bytes");
        }
        self.invocation.field_bytes = self.invocation.field_bytes.saturating_add(added);
        if self.invocation.field_bytes > MAX_FIELD_BYTES {
            wasmtime::bail!(
                "wasi:http/types: more than {MAX_FIELD_BYTES} bytes of fields in one request"
            );
        }
        Ok(())
    }

    fn change_fields(
        &mut self,
        fields: &Resource<Fields>,
        change: impl FnOnce(&mut Fields) -> Result<usize, HeaderError>,
    ) -> Result<(), HeaderFailure> {
        let fields = self.table.get_mut(fields)?;
        // A shared list is copied by its first change.
        let copied = if Arc::get_mut(&mut fields.entries).is_none() {
            fields.size()
        } else {
            0
        };
        let added = change(fields)?;
        let size = fields.size();
        Ok(self.count_fields(size, added.saturating_add(copied))?)
    }
}

impl<P: Platform> types::HostFields for State<P> {
    fn new(&mut self) -> Result<Resource<Fields>> {
        Ok(self.table.push(Fields::new())?)
    }

    fn from_list(
        &mut self,
        entries: Vec<(String, Vec<u8>)>,
    ) -> Result<Resource<Fields>, HeaderFailure> {
        let mut fields = Fields::new();
        for (name, value) in entries {
            fields.append(&name, value)?;
        }
        let size = fields.size();
        self.count_fields(size, size)?;
        Ok(self.table.push(fields)?)
    }

    fn get(&mut self, fields: Resource<Fields>, name: String) -> Result<Vec<Vec<u8>>> {
        let fields = self.table.get(&fields)?;
        Ok(fields.values(name.as_bytes()).map(<[u8]>::to_vec).collect())
    }

    fn has(&mut self, fields: Resource<Fields>, name: String) -> Result<bool> {
        Ok(self.table.get(&fields)?.has(name.as_bytes()))
    }

    fn set(
        &mut self,
        fields: Resource<Fields>,
        name: String,
        value: Vec<Vec<u8>>,
    ) -> Result<(), HeaderFailure> {
        self.change_fields(&fields, |fields| fields.set(&name, value))
    }

    fn delete(&mut self, fields: Resource<Fields>, name: String) -> Result<(), HeaderFailure> {
        self.change_fields(&fields, |fields| fields.delete(&name).map(|()| 0))
    }

    fn append(
        &mut self,
        fields: Resource<Fields>,
        name: String,
        value: Vec<u8>,
    ) -> Result<(), HeaderFailure> {
        self.change_fields(&fields, |fields| fields.append(&name, value))
    }

    fn entries(&mut self, fields: Resource<Fields>) -> Result<Vec<(String, Vec<u8>)>> {
        let fields = self.table.get(&fields)?;
        Ok(fields
            .entries
            .iter()
            .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.clone()))
            .collect())
    }

    fn clone(&mut self, fields: Resource<Fields>) -> Result<Resource<Fields>> {
        let copy = Fields {
            mutable: true,
            ..self.table.get(&fields)?.clone()
        };
        Ok(self.table.push(copy)?)
    }

    fn drop(&mut self, fields: Resource<Fields>) -> Result<()> {
        self.table.delete(fields)?;
        Ok(())
    }
}
