//! The queue of frames to the node, and its writer.

use std::cell::RefCell;
use std::io;
use std::mem;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::frames::{FrameKind, put};

/// A buffer that has grown beyond this is dropped after it was written, because most of the time it
/// would be empty.
const CAPACITY_MAX: usize = 1 << 20;

/// Frames that wait to be written, in one buffer: bodies are copied once, and forwarding them
/// allocates no memory. Credit bounds the data, and the number of calls bounds everything else.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    frames: RefCell<BytesMut>,
    is_some: Notify,
}

impl FrameBuffer {
    /// Appends a frame.
    pub fn add<K: FrameKind>(&self, call: u64, kind: K, bytes: &[u8]) {
        put(&mut self.frames.borrow_mut(), call, kind, bytes);
        self.is_some.notify_one();
    }

    /// Writes all frames as they are added, as many as there are at once, until writing fails.
    ///
    /// # Errors
    /// Returns the writer's error.
    pub async fn write_to(&self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut now = BytesMut::new();
        loop {
            self.is_some.notified().await;
            mem::swap(&mut now, &mut *self.frames.borrow_mut());
            writer.write_all(&now).await?;
            now.clear();
            if now.capacity() > CAPACITY_MAX {
                now = BytesMut::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::frames::{Frame, FromWorker};

    #[tokio::test]
    async fn frames_are_written_in_order_while_others_are_added() {
        let frames = FrameBuffer::default();
        let (writer, mut reader) = tokio::io::duplex(100);
        let adding = async {
            for number in 0..1000_u64 {
                frames.add(number, FromWorker::Data, &[7; 300]);
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let reading = async {
            let mut received = BytesMut::new();
            let mut next = 0;
            while next < 1000 {
                let read = reader.read_buf(&mut received).await.unwrap();
                assert_ne!(read, 0);
                while let Some(frame) = Frame::<FromWorker>::take(&mut received).unwrap() {
                    assert_eq!((frame.call, &frame.bytes[..]), (next, &[7; 300][..]));
                    next += 1;
                }
            }
        };
        tokio::select! {
            written = frames.write_to(writer) => panic!("{written:?}"),
            _ = async { tokio::join!(adding, reading) } => {}
        }
    }

    #[tokio::test]
    async fn a_closed_reader_is_reported() {
        let frames = FrameBuffer::default();
        let (writer, reader) = tokio::io::duplex(100);
        drop(reader);
        frames.add(1, FromWorker::Need, &[]);
        assert!(frames.write_to(writer).await.is_err());
    }
}
