//! Streams exports, which may not fit into memory.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that are read at once.
const PIECE: usize = 256 << 10;

/// A request body that is read while it is sent.
pub(super) struct Upload<R> {
    from: R,
    /// Bytes that are still to be sent. `None` if the length is unknown.
    left: Option<u64>,
    is_over: bool,
    piece: Vec<u8>,
}

impl<R> Upload<R> {
    /// Creates a body of the first `bytes` bytes of a reader, or of everything up to its end.
    pub(super) fn new(from: R, bytes: Option<u64>) -> Self {
        Self {
            from,
            left: bytes,
            is_over: bytes == Some(0),
            piece: vec![0; PIECE],
        }
    }
}

impl<R: AsyncRead + Unpin> Body for Upload<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let left = usize::try_from(this.left.unwrap_or(u64::MAX));
        let most = left.map_or(PIECE, |left| left.min(PIECE));
        let mut piece = ReadBuf::new(this.piece.get_mut(..most).unwrap_or_default());
        ready!(Pin::new(&mut this.from).poll_read(context, &mut piece))?;
        let read = piece.filled();
        if read.is_empty() {
            this.is_over = true;
            let short = this.left.map(|_| io::ErrorKind::UnexpectedEof);
            return Poll::Ready(short.map(|short| Err(short.into())));
        }
        if let Some(left) = &mut this.left {
            *left = left.saturating_sub(read.len() as u64);
            this.is_over = *left == 0;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(read)))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Writes all bytes.
pub(super) async fn write_all(
    to: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        let write = |context: &mut Context<'_>| Pin::new(&mut *to).poll_write(context, bytes);
        let written = poll_fn(write).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Flushes the writer.
pub(super) async fn flush(to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    poll_fn(|context| Pin::new(&mut *to).poll_flush(context)).await
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn an_upload_sends_exactly_the_announced_bytes() {
        let content: Vec<u8> = (0..PIECE + 10).map(|at| at as u8).collect();
        let body = Upload::new(&content[..], Some(content.len() as u64 - 1));
        assert_eq!(body.size_hint().exact(), Some(content.len() as u64 - 1));
        let sent = body.collect().await.unwrap().to_bytes();
        assert_eq!(sent, content[..content.len() - 1]);
        let short = Upload::new(&content[..], Some(content.len() as u64 + 1));
        let error = short.collect().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        for content in [&content[..], b""] {
            let whole = Upload::new(content, None);
            assert!(!whole.is_end_stream() && whole.size_hint().exact().is_none());
            assert_eq!(whole.collect().await.unwrap().to_bytes(), content);
        }
        let mut written = Vec::new();
        write_all(&mut written, &content).await.unwrap();
        flush(&mut written).await.unwrap();
        assert_eq!(written, content);
    }
}
