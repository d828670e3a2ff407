//! The copy-both phase: a stream of replication and the client's answers to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use pg_proto::replication::StatusUpdate;
use pg_proto::wire::{ErrorFields, FrontendMessage};
use tokio::io::{ReadHalf, WriteHalf};

use crate::buffer::FrameBuffer;
use crate::cancel::CancelToken;
use crate::connection::Connection;
use crate::error::Error;
use crate::session::{Session, server_error};
use crate::transport::Transport;
use crate::wire::{Outbox, next_frame};

/// The size of reads. A decoding server sends small messages in quick succession: one read takes hundreds.
const READ_CHUNK: usize = 256 << 10;

/// The size of reads after the stream.
const READ_CHUNK_AFTER: usize = 16 << 10;

const RECEIVING: &str = "receiving the stream";
const SENDING: &str = "answering the stream";

/// A connection in the copy-both phase. [`CopyBoth::split`] gives its halves, for two tasks.
#[derive(Debug)]
pub struct CopyBoth {
    receiver: CopyReceiver,
    sender: CopySender,
}

/// The receiving half.
#[derive(Debug)]
pub struct CopyReceiver {
    reader: ReadHalf<Transport>,
    buffer: FrameBuffer,
    session: Session,
    cancel: CancelToken,
    /// The server has said that nothing more comes.
    ended: bool,
    /// The server is ready for a query.
    ready: bool,
}

/// The sending half.
#[derive(Debug)]
pub struct CopySender {
    writer: WriteHalf<Transport>,
    outbox: Outbox,
    done: bool,
}

impl CopyBoth {
    pub(crate) fn new(connection: Connection) -> Self {
        let Connection {
            transport,
            mut buffer,
            outbox,
            session,
            cancel,
            ..
        } = connection;
        buffer.set_chunk(READ_CHUNK);
        let (reader, writer) = tokio::io::split(transport);
        Self {
            receiver: CopyReceiver {
                reader,
                buffer,
                session,
                cancel,
                ended: false,
                ready: false,
            },
            sender: CopySender {
                writer,
                outbox,
                done: false,
            },
        }
    }

    /// The two halves.
    #[must_use]
    pub fn split(self) -> (CopyReceiver, CopySender) {
        (self.receiver, self.sender)
    }

    /// Puts the halves together again.
    pub fn join(receiver: CopyReceiver, sender: CopySender) -> Result<Self, Error> {
        if receiver.reader.is_pair_of(&sender.writer) {
            Ok(Self { receiver, sender })
        } else {
            Err(Error::NotOnePair)
        }
    }

    /// The receiving half.
    pub const fn receiver(&mut self) -> &mut CopyReceiver {
        &mut self.receiver
    }

    /// The sending half.
    pub const fn sender(&mut self) -> &mut CopySender {
        &mut self.sender
    }

    /// Ends the phase from this side, skips what the server still sends, and gives the connection back.
    pub async fn into_connection(mut self) -> Result<Connection, Error> {
        self.sender.copy_done().await?;
        self.receiver.skip_to_the_end().await?;
        let Self { receiver, sender } = self;
        let transport = receiver.reader.unsplit(sender.writer);
        let mut buffer = receiver.buffer;
        buffer.set_chunk(READ_CHUNK_AFTER);
        Ok(Connection::from_parts(
            transport,
            buffer,
            sender.outbox,
            receiver.session,
            receiver.cancel,
        ))
    }
}

impl CopyReceiver {
    /// The content of the next CopyData, which stays in the buffer: nothing is copied and, in steady state,
    /// nothing allocated. `None`: the server has ended the stream, in good order. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        while !self.ended {
            match self.buffer.first()? {
                Ok(len) if self.buffer.unused().first() == Some(&b'd') => {
                    return Ok(Some(self.buffer.take(len).body));
                }
                Ok(len) => self.take_other(len)?,
                Err(need) => self.fill(need).await?,
            }
        }
        Ok(None)
    }

    /// All whole CopyData that are there already, at least one, as they travel: `'d'`, length, content, one behind the
    /// other. For whoever passes them on to another thread. `None` and cancellation as in [`Self::next`].
    pub async fn next_batch(&mut self) -> Result<Option<Bytes>, Error> {
        while !self.ended {
            let run = self.buffer.run_of(b'd')?;
            if run > 0 {
                return Ok(Some(self.buffer.take_owned(run)));
            }
            match self.buffer.first()? {
                Ok(len) => self.take_other(len)?,
                Err(need) => self.fill(need).await?,
            }
        }
        Ok(None)
    }

    async fn fill(&mut self, need: usize) -> Result<(), Error> {
        let doing = RECEIVING;
        match self.buffer.fill(&mut self.reader, need).await {
            Ok(0) => Err(Error::Closed { doing }),
            Ok(_) => Ok(()),
            Err(source) => Err(Error::Io { doing, source }),
        }
    }

    /// [`Self::next`] as far as it is in the buffer: `None` if nothing more can be had without reading, or if the
    /// stream has ended.
    pub fn next_buffered(&mut self) -> Result<Option<&[u8]>, Error> {
        while !self.ended {
            match self.buffer.first()? {
                Ok(len) if self.buffer.unused().first() == Some(&b'd') => {
                    return Ok(Some(self.buffer.take(len).body));
                }
                Ok(len) => self.take_other(len)?,
                Err(_) => break,
            }
        }
        Ok(None)
    }

    /// Whether [`Self::next`] will return without reading. If not, it is a good moment to hand over what was
    /// collected.
    #[must_use]
    pub fn has_complete_frame(&self) -> bool {
        self.ended || self.buffer.has_frame()
    }

    /// Bytes that were read and not used.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.unused().len()
    }

    /// Whether the server has ended the stream.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// As [`Connection::parameters`].
    #[must_use]
    pub const fn parameters(&self) -> &BTreeMap<String, String> {
        &self.session.parameters
    }

    /// As [`Connection::take_notices`]. There may be warnings in the middle of a stream.
    pub fn take_notices(&mut self) -> Vec<ErrorFields> {
        self.session.notices.drain(..).collect()
    }

    /// A frame that is no CopyData.
    fn take_other(&mut self, len: usize) -> Result<(), Error> {
        let frame = self.buffer.take(len);
        match frame.tag {
            b'E' => {
                self.ended = true;
                Err(server_error(frame))
            }
            // A server that shuts down says CommandComplete without CopyDone.
            b'c' | b'C' => {
                self.ended = true;
                Ok(())
            }
            b'Z' => {
                self.ended = true;
                self.ready = true;
                self.session.note(frame).map(drop)
            }
            tag => {
                if self.session.note(frame)? {
                    Ok(())
                } else {
                    let doing = RECEIVING;
                    Err(Error::Unexpected { tag, doing })
                }
            }
        }
    }

    /// Reads up to ReadyForQuery. A keepalive may come even after the server's CopyDone.
    async fn skip_to_the_end(&mut self) -> Result<(), Error> {
        while !self.ready {
            let frame = next_frame(&mut self.buffer, &mut self.reader, "ending the stream").await?;
            match frame.tag {
                b'E' if !self.ended => return Err(server_error(frame)),
                tag => {
                    self.session.note(frame)?;
                    self.ready = tag == b'Z';
                }
            }
        }
        Ok(())
    }
}

impl CopySender {
    /// Sends a status update. Cancel safe: if this is dropped, the rest of it goes out before anything else.
    pub async fn status_update(&mut self, status: &StatusUpdate) -> Result<(), Error> {
        self.outbox.queue_with(|out| status.encode_frame(out));
        self.flush().await
    }

    /// Sends a CopyData with this content.
    pub async fn copy_data(&mut self, content: &[u8]) -> Result<(), Error> {
        self.outbox
            .queue_message(&FrontendMessage::CopyData(content));
        self.flush().await
    }

    /// Ends the phase from this side. The server answers with its own end, after what it is just sending.
    pub async fn copy_done(&mut self) -> Result<(), Error> {
        if !self.done {
            self.done = true;
            self.outbox.queue_message(&FrontendMessage::CopyDone);
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.outbox.flush(&mut self.writer, SENDING).await
    }
}
