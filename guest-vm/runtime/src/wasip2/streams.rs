//! `wasi:io/error` and `wasi:io/streams`.
//!
//! Reads take from the request body, which is there as a whole; writes are
//! taken at once. So blocking and non-blocking calls do the same, and flushing
//! does nothing.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use wasmtime::component::{Resource, ResourceTableError};
use wasmtime::{Error, Result};

use super::bindings::wasi::http::types::ErrorCode;
use super::bindings::wasi::io::{error, streams};
use super::poll::{NEVER, Pollable};
use crate::failure::Ended;
use crate::http::{BodyId, WriteFailure};
use crate::platform::Platform;
use crate::state::State;

/// Most bytes of one read, whatever the function asks for.
const MAX_READ: u64 = 64 << 10;

/// Most bytes that `check-write` permits.
const MAX_WRITE: u64 = 64 << 10;

/// Most bytes of the blocking writes, as `wasi:io` sets it.
const MAX_BLOCKING_WRITE: u64 = 4096;

/// Where a function reads from.
#[derive(Clone, Copy, Debug)]
pub enum InputStream {
    /// Nothing to read: closed from the start.
    Empty,
    /// The request body. All such streams share one position.
    RequestBody,
}

/// Where a function writes to.
#[derive(Clone, Copy, Debug)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The body of an outgoing message.
    Body(BodyId),
}

/// The resource behind `wasi:io/error.error`.
#[derive(Debug)]
pub struct IoError {
    text: String,
    /// The same in the words of `wasi:http`.
    pub(crate) code: Option<ErrorCode>,
}

/// Why a stream operation failed.
pub enum StreamFailure {
    /// There is nothing more.
    Closed,
    /// The operation failed; the function is told why.
    Failed(IoError),
    /// The function broke the rules, or is over.
    Trap(Error),
}

impl From<Error> for StreamFailure {
    fn from(error: Error) -> Self {
        Self::Trap(error)
    }
}

impl From<ResourceTableError> for StreamFailure {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

impl From<Ended> for StreamFailure {
    fn from(ended: Ended) -> Self {
        Self::Trap(ended.into())
    }
}

impl<P: Platform> State<P> {
    /// Reads at most `length` bytes.
    fn read_stream(
        &mut self,
        stream: &Resource<InputStream>,
        length: u64,
    ) -> Result<Vec<u8>, StreamFailure> {
        match *self.table.get(stream)? {
            InputStream::Empty => Err(StreamFailure::Closed),
            InputStream::RequestBody if length == 0 => Ok(Vec::new()),
            InputStream::RequestBody => {
                let most = usize::try_from(length.min(MAX_READ)).unwrap_or(usize::MAX);
                let bytes = self.read_body(most);
                if bytes.is_empty() {
                    Err(StreamFailure::Closed)
                } else {
                    Ok(bytes)
                }
            }
        }
    }

    /// How many bytes the stream takes now.
    fn permit(&self, stream: &Resource<OutputStream>) -> Result<u64, StreamFailure> {
        Ok(match *self.table.get(stream)? {
            OutputStream::Stdout | OutputStream::Stderr => MAX_WRITE,
            OutputStream::Body(body) => MAX_WRITE.min(self.exchange.bodies.room(body)),
        })
    }

    /// Writes `bytes`, of which there may be `most`.
    fn write_stream(
        &mut self,
        stream: &Resource<OutputStream>,
        bytes: &[u8],
        most: u64,
    ) -> Result<(), StreamFailure> {
        let permit = most.min(self.permit(stream)?);
        let length = bytes.len() as u64;
        if length > permit {
            return Err(wasmtime::format_err!(
                "wasi:io/streams: {length} bytes written where {permit} are permitted"
            )
            .into());
        }
        match *self.table.get(stream)? {
            OutputStream::Stdout => self.write_stdout(bytes)?,
            OutputStream::Stderr => self.write_stderr(bytes),
            OutputStream::Body(body) => self
                .exchange
                .bodies
                .write(body, bytes, &mut self.platform)
                .map_err(|failure| match failure {
                    WriteFailure::TooLong { declared } => StreamFailure::Failed(IoError {
                        text: alloc::format!(
                            "the body is longer than its content-length of {declared}"
                        ),
                        code: Some(ErrorCode::HttpResponseBodySize(Some(declared))),
                    }),
                    WriteFailure::Finished => StreamFailure::Closed,
                    WriteFailure::Refused(refusal) => Ended::Refused(refusal).into(),
                })?,
        }
        Ok(())
    }

    /// Writes `length` zeroes, of which there may be `most`.
    fn write_zeroes_to(
        &mut self,
        stream: &Resource<OutputStream>,
        length: u64,
        most: u64,
    ) -> Result<(), StreamFailure> {
        if length > most {
            return Err(wasmtime::format_err!(
                "wasi:io/streams: {length} zeroes written where {most} are permitted"
            )
            .into());
        }
        // At most MAX_WRITE, by the check above.
        let zeroes = vec![0; usize::try_from(length).unwrap_or_default()];
        self.write_stream(stream, &zeroes, most)
    }

    /// Moves at most `length` bytes from one stream to another.
    fn splice_streams(
        &mut self,
        to: &Resource<OutputStream>,
        from: &Resource<InputStream>,
        length: u64,
    ) -> Result<u64, StreamFailure> {
        let permit = self.permit(to)?;
        let bytes = self.read_stream(from, length.min(permit))?;
        self.write_stream(to, &bytes, permit)?;
        Ok(bytes.len() as u64)
    }
}

impl<P: Platform> error::Host for State<P> {}

impl<P: Platform> error::HostError for State<P> {
    fn to_debug_string(&mut self, error: Resource<IoError>) -> Result<String> {
        Ok(self.table.get(&error)?.text.clone())
    }

    fn drop(&mut self, error: Resource<IoError>) -> Result<()> {
        self.table.delete(error)?;
        Ok(())
    }
}

impl<P: Platform> streams::Host for State<P> {
    fn convert_stream_error(&mut self, failure: StreamFailure) -> Result<streams::StreamError> {
        match failure {
            StreamFailure::Closed => Ok(streams::StreamError::Closed),
            StreamFailure::Failed(error) => Ok(streams::StreamError::LastOperationFailed(
                self.table.push(error)?,
            )),
            StreamFailure::Trap(error) => Err(error),
        }
    }
}

impl<P: Platform> streams::HostInputStream for State<P> {
    fn read(&mut self, stream: Resource<InputStream>, len: u64) -> Result<Vec<u8>, StreamFailure> {
        self.read_stream(&stream, len)
    }

    fn blocking_read(
        &mut self,
        stream: Resource<InputStream>,
        len: u64,
    ) -> Result<Vec<u8>, StreamFailure> {
        self.read_stream(&stream, len)
    }

    fn skip(&mut self, stream: Resource<InputStream>, len: u64) -> Result<u64, StreamFailure> {
        Ok(self.read_stream(&stream, len)?.len() as u64)
    }

    fn blocking_skip(
        &mut self,
        stream: Resource<InputStream>,
        len: u64,
    ) -> Result<u64, StreamFailure> {
        Ok(self.read_stream(&stream, len)?.len() as u64)
    }

    fn subscribe(&mut self, stream: Resource<InputStream>) -> Result<Resource<Pollable>> {
        self.table.get(&stream)?;
        Ok(self.table.push(Pollable::Ready)?)
    }

    fn drop(&mut self, stream: Resource<InputStream>) -> Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

impl<P: Platform> streams::HostOutputStream for State<P> {
    fn check_write(&mut self, stream: Resource<OutputStream>) -> Result<u64, StreamFailure> {
        self.permit(&stream)
    }

    fn write(
        &mut self,
        stream: Resource<OutputStream>,
        contents: Vec<u8>,
    ) -> Result<(), StreamFailure> {
        self.write_stream(&stream, &contents, MAX_WRITE)
    }

    fn blocking_write_and_flush(
        &mut self,
        stream: Resource<OutputStream>,
        contents: Vec<u8>,
    ) -> Result<(), StreamFailure> {
        self.write_stream(&stream, &contents, MAX_BLOCKING_WRITE)
    }

    fn flush(&mut self, stream: Resource<OutputStream>) -> Result<(), StreamFailure> {
        self.table.get(&stream)?;
        Ok(())
    }

    fn blocking_flush(&mut self, stream: Resource<OutputStream>) -> Result<(), StreamFailure> {
        self.table.get(&stream)?;
        Ok(())
    }

    fn subscribe(&mut self, stream: Resource<OutputStream>) -> Result<Resource<Pollable>> {
        let pollable = match *self.table.get(&stream)? {
            OutputStream::Stdout | OutputStream::Stderr => Pollable::Ready,
            OutputStream::Body(body) => Pollable::Writable(body),
        };
        Ok(self.table.push(pollable)?)
    }

    fn write_zeroes(
        &mut self,
        stream: Resource<OutputStream>,
        len: u64,
    ) -> Result<(), StreamFailure> {
        self.write_zeroes_to(&stream, len, MAX_WRITE)
    }

    fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<OutputStream>,
        len: u64,
    ) -> Result<(), StreamFailure> {
        self.write_zeroes_to(&stream, len, MAX_BLOCKING_WRITE)
    }

    fn splice(
        &mut self,
        stream: Resource<OutputStream>,
        src: Resource<InputStream>,
        len: u64,
    ) -> Result<u64, StreamFailure> {
        self.splice_streams(&stream, &src, len)
    }

    fn blocking_splice(
        &mut self,
        stream: Resource<OutputStream>,
        src: Resource<InputStream>,
        len: u64,
    ) -> Result<u64, StreamFailure> {
        if self.permit(&stream)? == 0 {
            return Err(wasmtime::format_err!("{NEVER}").into());
        }
        self.splice_streams(&stream, &src, len)
    }

    fn drop(&mut self, stream: Resource<OutputStream>) -> Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}
