//! `wasi:io/error` and `wasi:io/streams`.
//!
//! Reads take bytes from the body of the request, or of a response to an outbound call, as they
//! arrive. Writes go to the response, or to an outbound call, at the pace of the reader. Logs and
//! files are written at once.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use wasmtime::component::{Resource, ResourceTableError};
use wasmtime::{Error, Result};

use super::bindings::wasi::http::types::ErrorCode;
use super::bindings::wasi::io::{error, streams};
use super::poll::Pollable;
use crate::failure::RunEnd;
use crate::files::{FileError, Node};
use crate::http::call_failure;
use crate::invocation::{BodyId, CallId, InvocationNumber, WriteFailure};
use crate::platform::{Incoming, Platform};
use crate::state::State;

/// Maximum bytes of one read, whatever the function requests.
const MAX_READ: u64 = 64 << 10;

/// Maximum bytes that `check-write` permits.
const MAX_WRITE: u64 = 64 << 10;

/// Maximum bytes of the blocking writes, as `wasi:io` defines it.
const MAX_BLOCKING_WRITE: u64 = 4096;

/// The source of an input stream.
#[derive(Clone, Copy, Debug)]
pub enum InputStream {
    /// Nothing: the stream is closed from the start.
    Empty,
    /// The request body. All such streams share one position.
    RequestBody(InvocationNumber),
    /// The body of the request that a command answers.
    Stdin,
    /// The body of a response to an outbound call.
    Answer(CallId),
    /// A file, from this position on.
    File { node: Node, at: u64 },
}

/// The destination of an output stream.
#[derive(Clone, Copy, Debug)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The body of an outgoing message.
    Body(BodyId),
    /// A file, from this position on, or at its end.
    File { node: Node, at: Option<u64> },
}

impl InputStream {
    /// Returns the event to wait for before a read.
    fn pollable(self) -> Pollable {
        match self {
            Self::Empty | Self::File { .. } => Pollable::Ready,
            Self::RequestBody(invocation) => Pollable::Request(invocation),
            Self::Stdin => Pollable::Stdin,
            Self::Answer(call) => Pollable::AnswerBody(call),
        }
    }
}

impl OutputStream {
    /// Returns the event to wait for before a write.
    fn pollable(self) -> Pollable {
        match self {
            Self::Stdout => Pollable::Stdout,
            Self::Stderr | Self::File { .. } => Pollable::Ready,
            Self::Body(body) => Pollable::Writable(body),
        }
    }
}

/// The resource behind `wasi:io/error.error`.
#[derive(Debug)]
pub struct IoError {
    text: String,
    /// The error as a `wasi:http` code.
    pub(crate) code: Option<ErrorCode>,
    /// The error of a file, if it is one.
    pub(crate) file: Option<FileError>,
}

impl From<FileError> for StreamFailure {
    fn from(error: FileError) -> Self {
        Self::Failed(IoError {
            text: alloc::format!("the file: {error:?}"),
            code: None,
            file: Some(error),
        })
    }
}

/// The reason why a stream operation failed.
pub enum StreamFailure {
    /// The stream has ended.
    Closed,
    /// The operation failed; the function receives the error.
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

impl From<RunEnd> for StreamFailure {
    fn from(ended: RunEnd) -> Self {
        Self::Trap(ended.into())
    }
}

impl<P: Platform> State<P> {
    /// Reads at most `length` of the present bytes.
    fn read_stream(
        &mut self,
        stream: &Resource<InputStream>,
        length: u64,
    ) -> Result<Vec<u8>, StreamFailure> {
        match *self.table.get(stream)? {
            InputStream::Empty => Err(StreamFailure::Closed),
            InputStream::RequestBody(invocation) if invocation != self.invocation.number => {
                Err(StreamFailure::Closed)
            }
            InputStream::RequestBody(_) | InputStream::Stdin => {
                self.read_channel(Channel::INVOCATION, length, |_| StreamFailure::Closed)
            }
            InputStream::Answer(call) => match self.invocation.calls.channel(call) {
                Some(channel) => {
                    self.read_channel(channel, length, |state| state.end_of_answer(call, channel))
                }
                None => Err(StreamFailure::Closed),
            },
            InputStream::File { node, at } => {
                let bytes = self.read_file(node, at, length)?;
                if bytes.is_empty() && length > 0 {
                    return Err(StreamFailure::Closed);
                }
                let at = at.saturating_add(bytes.len() as u64);
                *self.table.get_mut(stream)? = InputStream::File { node, at };
                Ok(bytes)
            }
        }
    }

    /// Reads at most `length` of the present bytes of a channel's body. `end` returns the result at
    /// its end.
    fn read_channel(
        &mut self,
        channel: Channel,
        length: u64,
        end: impl FnOnce(&mut Self) -> StreamFailure,
    ) -> Result<Vec<u8>, StreamFailure> {
        if length == 0 {
            return Ok(Vec::new());
        }
        match self.platform.incoming(channel) {
            Incoming::Ready => {
                let most = usize::try_from(length.min(MAX_READ)).unwrap_or(usize::MAX);
                Ok(self.read_body(channel, most))
            }
            Incoming::Pending => Ok(Vec::new()),
            Incoming::End => Err(end(self)),
        }
    }

    /// Returns the result of a read at the end of an answer's body. If the body is incomplete, the
    /// first read returns the reason. All others report the end of the stream.
    fn end_of_answer(&mut self, call: CallId, channel: Channel) -> StreamFailure {
        match call_failure(&self.platform.tail(channel)) {
            Some(code) if self.invocation.calls.reports_failure(call) => {
                StreamFailure::Failed(IoError {
                    text: alloc::format!("the body is incomplete: {}", crate::http::spell(&code)),
                    code: Some(code),
                    file: None,
                })
            }
            _ => StreamFailure::Closed,
        }
    }

    /// Waits until there is something to read, or never will be.
    fn wait_to_read(&mut self, stream: &Resource<InputStream>) -> Result<(), StreamFailure> {
        let pollable = self.table.get(stream)?.pollable();
        self.wait_any(&[pollable])?;
        Ok(())
    }

    /// Returns how many bytes the stream takes now.
    fn permit(&self, stream: &Resource<OutputStream>) -> Result<u64, StreamFailure> {
        Ok(match *self.table.get(stream)? {
            OutputStream::Stdout => MAX_WRITE.min(self.stdout_room() as u64),
            OutputStream::Stderr | OutputStream::File { .. } => MAX_WRITE,
            OutputStream::Body(body) => {
                MAX_WRITE.min(self.invocation.bodies.room(body, &self.platform))
            }
        })
    }

    /// Waits until the stream takes at least one byte.
    fn wait_to_write(&mut self, stream: &Resource<OutputStream>) -> Result<(), StreamFailure> {
        let pollable = self.table.get(stream)?.pollable();
        self.wait_any(&[pollable])?;
        Ok(())
    }

    /// Writes all of `bytes`, waiting for space, and flushes.
    fn write_blocking(
        &mut self,
        stream: &Resource<OutputStream>,
        bytes: &[u8],
    ) -> Result<(), StreamFailure> {
        if bytes.len() as u64 > MAX_BLOCKING_WRITE {
            return Err(too_many(bytes.len() as u64, MAX_BLOCKING_WRITE));
        }
        let mut rest = bytes;
        // The loop runs once even without bytes, because a closed stream must report that.
        loop {
            let permit = usize::try_from(self.permit(stream)?).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(permit));
            self.write_stream(stream, now, MAX_BLOCKING_WRITE)?;
            if later.is_empty() {
                return self.flush_stream(stream);
            }
            rest = later;
            self.wait_to_write(stream)?;
        }
    }

    /// Flushes the stream.
    fn flush_stream(&mut self, stream: &Resource<OutputStream>) -> Result<(), StreamFailure> {
        match *self.table.get(stream)? {
            OutputStream::Stdout => self.flush_stdout(),
            OutputStream::Stderr | OutputStream::File { .. } => {}
            OutputStream::Body(body) => {
                if self.invocation.bodies.is_sent(body) {
                    self.platform.flush();
                }
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`. Traps if they are more than `most`, or more than the stream takes
    /// now.
    fn write_stream(
        &mut self,
        stream: &Resource<OutputStream>,
        bytes: &[u8],
        most: u64,
    ) -> Result<(), StreamFailure> {
        let permit = most.min(self.permit(stream)?);
        let length = bytes.len() as u64;
        if length > permit {
            return Err(too_many(length, permit));
        }
        match *self.table.get(stream)? {
            OutputStream::Stdout => self.write_stdout(bytes)?,
            OutputStream::Stderr => self.write_stderr(bytes),
            OutputStream::File { node, at } => {
                let end = self.write_file(node, at, bytes)?;
                let at = at.map(|_| end);
                *self.table.get_mut(stream)? = OutputStream::File { node, at };
            }
            OutputStream::Body(body) => self
                .invocation
                .bodies
                .write(body, bytes, &mut self.platform)
                .map_err(|failure| match failure {
                    WriteFailure::TooLong { declared } => StreamFailure::Failed(IoError {
                        text: alloc::format!(
                            "the body is longer than its content-length of {declared}"
                        ),
                        code: Some(if self.invocation.bodies.is_of_request(body) {
                            ErrorCode::HttpRequestBodySize(Some(declared))
                        } else {
                            ErrorCode::HttpResponseBodySize(Some(declared))
                        }),
                        file: None,
                    }),
                    WriteFailure::Finished => StreamFailure::Closed,
                })?,
        }
        Ok(())
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

/// Returns the trap for a write of more bytes than are permitted.
fn too_many(bytes: u64, permit: u64) -> StreamFailure {
    wasmtime::format_err!("wasi:io/streams: {bytes} bytes written where {permit} are permitted")
        .into()
}

/// Returns `length` zeroes. Traps if that is more than `most`.
fn zeroes(length: u64, most: u64) -> Result<Vec<u8>, StreamFailure> {
    if length > most {
        return Err(too_many(length, most));
    }
    Ok(vec![0; usize::try_from(length).unwrap_or_default()])
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
        self.wait_to_read(&stream)?;
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
        self.wait_to_read(&stream)?;
        Ok(self.read_stream(&stream, len)?.len() as u64)
    }

    fn subscribe(&mut self, stream: Resource<InputStream>) -> Result<Resource<Pollable>> {
        let pollable = self.table.get(&stream)?.pollable();
        Ok(self.table.push(pollable)?)
    }

    fn drop(&mut self, stream: Resource<InputStream>) -> Result<()> {
        if let InputStream::File { node, .. } = self.table.delete(stream)? {
            self.close_node(node);
        }
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
        self.write_blocking(&stream, &contents)
    }

    fn flush(&mut self, stream: Resource<OutputStream>) -> Result<(), StreamFailure> {
        self.flush_stream(&stream)
    }

    fn blocking_flush(&mut self, stream: Resource<OutputStream>) -> Result<(), StreamFailure> {
        self.flush_stream(&stream)
    }

    fn subscribe(&mut self, stream: Resource<OutputStream>) -> Result<Resource<Pollable>> {
        let pollable = self.table.get(&stream)?.pollable();
        Ok(self.table.push(pollable)?)
    }

    fn write_zeroes(
        &mut self,
        stream: Resource<OutputStream>,
        len: u64,
    ) -> Result<(), StreamFailure> {
        self.write_stream(&stream, &zeroes(len, MAX_WRITE)?, MAX_WRITE)
    }

    fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<OutputStream>,
        len: u64,
    ) -> Result<(), StreamFailure> {
        self.write_blocking(&stream, &zeroes(len, MAX_BLOCKING_WRITE)?)
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
        self.wait_to_read(&src)?;
        self.wait_to_write(&stream)?;
        self.splice_streams(&stream, &src, len)
    }

    fn drop(&mut self, stream: Resource<OutputStream>) -> Result<()> {
        if let OutputStream::File { node, .. } = self.table.delete(stream)? {
            self.close_node(node);
        }
        Ok(())
    }
}
