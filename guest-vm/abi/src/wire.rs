//! Encoding of request heads, response heads and parts of commands.
//!
//! Integers are little-endian. A string is a `u32` length and that many bytes. A list is a `u32`
//! count and its items. [`Reader`] checks every length against the remaining bytes, so a count
//! never sizes an allocation by itself.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use zerocopy::TryFromBytes;

/// The reason why a message is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The message ends before what it announces.
    Truncated,
    /// Bytes follow the end of the message.
    TrailingBytes,
    /// A number has no meaning at this position.
    BadValue,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message ends before what it announces",
            Self::TrailingBytes => "bytes follow the end of the message",
            Self::BadValue => "a number in the message has no meaning",
        })
    }
}

impl core::error::Error for WireError {}

/// A name and a value, both as bytes: headers, environment variables.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The head of a request as the function sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// Method, as sent.
    pub method: Vec<u8>,
    /// `http` or `https`.
    pub scheme: Vec<u8>,
    /// Host and port, as the client named them; may be empty.
    pub authority: Vec<u8>,
    /// Path and query that the function sees; begins with `/`.
    pub path_and_query: Vec<u8>,
    /// The part of the path that led to the function (`/name`), CGI's SCRIPT_NAME.
    pub script_name: Vec<u8>,
    /// The client's address without its port, CGI's REMOTE_ADDR.
    pub remote_address: Vec<u8>,
    /// `HTTP/1.1` and the like, CGI's SERVER_PROTOCOL.
    pub protocol: Vec<u8>,
    /// Header fields in order, names in lower case.
    pub headers: Vec<Pair>,
}

/// The head of a response, as the function sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code, 100 to 999 unless the guest lies.
    pub status: u16,
    /// Header fields in order.
    pub headers: Vec<Pair>,
}

/// The kind of a function, which decides how it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
pub enum FunctionKind {
    /// A component that exports `wasi:http/incoming-handler`.
    HttpComponent = 1,
    /// A component that exports `wasi:cli/run`, called in CGI style.
    CliComponent = 2,
    /// A WASI preview 1 command module, called in CGI style.
    CgiModule = 3,
}

impl FunctionKind {
    /// Returns the kind that a number stands for.
    #[must_use]
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::try_read_from_bytes(&[value]).ok()
    }
}

/// The configuration that the guest needs to make a seed of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedConfig {
    /// How the function is called.
    pub kind: FunctionKind,
    /// Whether a request is answered with the function's state ([`crate::state`]), which requires
    /// instrumented code.
    pub tells_state: bool,
    /// Whether the function imports the func-entry point ([`crate::entry`]), or one of its files
    /// stands for it. A command sees no request before it reaches that point.
    pub has_entry: bool,
    /// Maximum bytes of all linear memories, tables and written files together.
    pub memory_limit: u64,
    /// Program arguments; the first is the program's name.
    pub arguments: Vec<Vec<u8>>,
    /// Environment of the function; CGI variables are added to it.
    pub environment: Vec<Pair>,
    /// Configuration of the function: keys and values, which the configuration interfaces return.
    pub configuration: Vec<Pair>,
    /// The function's files, if it has any. Their bundle arrives on
    /// [`crate::channel::Channel::SCRIPT`].
    pub files: Option<SeedFiles>,
    /// Names of the function's secrets. The values arrive with each invocation
    /// ([`crate::secrets`]), and the function reads them like its configuration.
    pub secrets: Vec<Vec<u8>>,
    /// Names of the shared key-value stores that the function may open. The store's service grants
    /// the access; a language engine shows its scripts the names.
    pub stores: Vec<Vec<u8>>,
}

/// The data of a function's files that the guest needs before it receives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedFiles {
    /// Bytes of the bundle ([`crate::files::bundle`]).
    pub bytes: u64,
    /// Absolute path at which the function sees its files.
    pub mount: String,
    /// Absolute path of the file whose opening is the function's func-entry point
    /// ([`crate::entry`]).
    pub freeze_at: Option<String>,
}

/// Encodes a message by appending to it.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn count(&mut self, count: usize) {
        // A length above u32::MAX cannot fit any mailbox area. Saturating makes the reader refuse
        // it, so that this side does not panic.
        self.bytes
            .extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }

    pub(crate) fn string(&mut self, string: &[u8]) {
        self.count(string.len());
        self.bytes.extend_from_slice(string);
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.count(items.len());
        for one in items {
            item(self, one);
        }
    }

    pub(crate) fn strings(&mut self, strings: &[impl AsRef<[u8]>]) {
        self.list(strings, |writer, string| writer.string(string.as_ref()));
    }

    pub(crate) fn pairs<S: AsRef<[u8]>>(&mut self, pairs: &[(S, S)]) {
        self.list(pairs, |writer, (name, value)| {
            writer.string(name.as_ref());
            writer.string(value.as_ref());
        });
    }
}

/// Decodes a message from front to back.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn count(&mut self) -> Result<usize, WireError> {
        usize::try_from(u32::from_le_bytes(self.array()?)).map_err(|_| WireError::BadValue)
    }

    pub(crate) fn slice(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.count()?;
        self.take(length)
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>, WireError> {
        Ok(self.slice()?.to_vec())
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.count()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(crate) fn pairs(&mut self) -> Result<Vec<Pair>, WireError> {
        self.list(|reader| Ok((reader.string()?, reader.string()?)))
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Decodes a message, of which `read` must leave nothing.
    pub(crate) fn decode<T>(
        bytes: &'a [u8],
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let mut reader = Self::new(bytes);
        let message = read(&mut reader)?;
        match reader.left() {
            0 => Ok(message),
            _ => Err(WireError::TrailingBytes),
        }
    }
}

impl RequestHead {
    /// Returns the encoded head.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        for string in [
            &self.method,
            &self.scheme,
            &self.authority,
            &self.path_and_query,
            &self.script_name,
            &self.remote_address,
            &self.protocol,
        ] {
            writer.string(string);
        }
        writer.pairs(&self.headers);
        writer.bytes
    }

    /// Decodes a request head.
    ///
    /// # Errors
    /// Returns a [`WireError`] if `bytes` are not exactly one head.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Reader::decode(bytes, |reader| {
            Ok(Self {
                method: reader.string()?,
                scheme: reader.string()?,
                authority: reader.string()?,
                path_and_query: reader.string()?,
                script_name: reader.string()?,
                remote_address: reader.string()?,
                protocol: reader.string()?,
                headers: reader.pairs()?,
            })
        })
    }
}

impl ResponseHead {
    /// Returns the encoded head.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes.extend_from_slice(&self.status.to_le_bytes());
        writer.pairs(&self.headers);
        writer.bytes
    }

    /// Decodes a response head. Names and values are not checked.
    ///
    /// # Errors
    /// Returns a [`WireError`] if `bytes` are not exactly one head.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Reader::decode(bytes, |reader| {
            Ok(Self {
                status: u16::from_le_bytes(reader.array()?),
                headers: reader.pairs()?,
            })
        })
    }
}

/// Returns trailers as the tail of a message; no bytes if there are no trailers.
#[must_use]
pub fn encode_trailers(fields: &[Pair]) -> Vec<u8> {
    let mut writer = Writer::default();
    if !fields.is_empty() {
        writer.pairs(fields);
    }
    writer.bytes
}

/// Decodes the trailers in a message's tail. Names and values are not checked.
///
/// # Errors
/// Returns a [`WireError`] if `bytes` are neither empty nor exactly one list of at least one field.
pub fn decode_trailers(bytes: &[u8]) -> Result<Vec<Pair>, WireError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    match Reader::decode(bytes, Reader::pairs)? {
        fields if fields.is_empty() => Err(WireError::BadValue),
        fields => Ok(fields),
    }
}

impl SeedConfig {
    /// Returns the number of bytes that the configuration takes as a part of a message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut writer = Writer::default();
        self.write(&mut writer);
        writer.into_bytes().len()
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.bytes(&[self.kind as u8]);
        writer.bytes(&[u8::from(self.tells_state), u8::from(self.has_entry)]);
        writer.bytes(&self.memory_limit.to_le_bytes());
        writer.strings(&self.arguments);
        writer.pairs(&self.environment);
        writer.pairs(&self.configuration);
        writer.strings(&self.secrets);
        writer.strings(&self.stores);
        writer.bytes(&[u8::from(self.files.is_some())]);
        if let Some(files) = &self.files {
            writer.bytes(&files.bytes.to_le_bytes());
            writer.string(files.mount.as_bytes());
            // No path is empty.
            writer.string(files.freeze_at.as_deref().unwrap_or_default().as_bytes());
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let [kind, tells_state, has_entry] = reader.array()?;
        let text = |reader: &mut Reader<'_>| {
            String::from_utf8(reader.string()?).map_err(|_| WireError::BadValue)
        };
        let flag = |byte| match byte {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::BadValue),
        };
        Ok(Self {
            kind: FunctionKind::from_u8(kind).ok_or(WireError::BadValue)?,
            tells_state: flag(tells_state)?,
            has_entry: flag(has_entry)?,
            memory_limit: u64::from_le_bytes(reader.array()?),
            arguments: reader.list(Reader::string)?,
            environment: reader.pairs()?,
            configuration: reader.pairs()?,
            secrets: reader.list(Reader::string)?,
            stores: reader.list(Reader::string)?,
            files: if reader.array().map(|[has_files]| flag(has_files))?? {
                Some(SeedFiles {
                    bytes: u64::from_le_bytes(reader.array()?),
                    mount: text(reader)?,
                    freeze_at: Some(text(reader)?).filter(|path| !path.is_empty()),
                })
            } else {
                None
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn pair(name: &str, value: &[u8]) -> Pair {
        (name.as_bytes().to_vec(), value.to_vec())
    }

    fn response() -> ResponseHead {
        ResponseHead {
            status: 200,
            headers: vec![pair("x-a", b"1"), pair("x-a", &[0xe9])],
        }
    }

    #[test]
    fn heads_and_trailers_survive_the_trip() {
        let request = RequestHead {
            method: b"GET".to_vec(),
            scheme: b"http".to_vec(),
            authority: b"localhost:1".to_vec(),
            path_and_query: b"/a?b".to_vec(),
            script_name: b"/f".to_vec(),
            remote_address: b"::1".to_vec(),
            protocol: b"HTTP/1.1".to_vec(),
            headers: vec![pair("accept", b"*/*")],
        };
        assert_eq!(RequestHead::decode(&request.encode()).unwrap(), request);
        assert_eq!(
            ResponseHead::decode(&response().encode()).unwrap(),
            response()
        );
        let trailers = [pair("x-t", b""), pair("x-u", &[0xff])];
        assert_eq!(
            decode_trailers(&encode_trailers(&trailers)).unwrap(),
            trailers
        );
        assert_eq!(decode_trailers(&encode_trailers(&[])).unwrap(), []);
    }

    #[test]
    fn every_prefix_of_a_message_is_refused() {
        let bytes = response().encode();
        for end in 0..bytes.len() {
            assert_eq!(
                ResponseHead::decode(&bytes[..end]),
                Err(WireError::Truncated)
            );
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(ResponseHead::decode(&longer), Err(WireError::TrailingBytes));
    }

    #[test]
    fn a_lying_count_is_refused_without_allocating_for_it() {
        let mut bytes = vec![200, 0];
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(ResponseHead::decode(&bytes), Err(WireError::Truncated));
    }
}
