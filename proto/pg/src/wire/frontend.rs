//! What a client says after start-up.

use super::frame::{Frame, put_cstr, put_frame};
use crate::read::{ReadError, Reader};

/// A client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendMessage<'a> {
    /// 'Q': a query string, or a replication command.
    Query(&'a [u8]),
    /// 'p': an answer to an authentication request; which one, only the request tells.
    /// See [`password_text`] and [`SaslInitialResponse::decode`]; of SASLResponse the body is the data.
    AuthenticationResponse(&'a [u8]),
    /// 'd'.
    CopyData(&'a [u8]),
    /// 'c'.
    CopyDone,
    /// 'f', with the reason.
    CopyFail(&'a [u8]),
    /// 'X'.
    Terminate,
    /// 'S': the end of a batch of the extended query protocol.
    Sync,
    /// 'H'.
    Flush,
    /// 'F': the fast path.
    FunctionCall,
    /// Parse, Bind, Describe, Execute or Close, by its type byte. After an error the server ignores all up
    /// to [`FrontendMessage::Sync`].
    Extended(u8),
}

impl<'a> FrontendMessage<'a> {
    /// Decodes a frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, ReadError> {
        let mut reader = Reader::new(frame.body);
        let message = match frame.tag {
            b'Q' => Self::Query(reader.cstr("query")?),
            b'p' => return Ok(Self::AuthenticationResponse(frame.body)),
            b'd' => return Ok(Self::CopyData(frame.body)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(reader.cstr("reason")?),
            b'X' => Self::Terminate,
            b'S' => Self::Sync,
            b'H' => Self::Flush,
            b'F' => return Ok(Self::FunctionCall),
            b'P' | b'B' | b'D' | b'E' | b'C' => return Ok(Self::Extended(frame.tag)),
            other => return Err(reader.invalid("frontend message type", other)),
        };
        reader.finish("the message")?;
        Ok(message)
    }

    /// Appends the frame. [`Self::Extended`] and [`Self::FunctionCall`], of which only the kind is known here,
    /// get an empty body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Query(text) => put_frame(b'Q', out, |out| put_cstr(text, out)),
            Self::AuthenticationResponse(body) => {
                put_frame(b'p', out, |out| out.extend_from_slice(body));
            }
            Self::CopyData(body) => put_frame(b'd', out, |out| out.extend_from_slice(body)),
            Self::CopyDone => put_frame(b'c', out, |_| ()),
            Self::CopyFail(reason) => put_frame(b'f', out, |out| put_cstr(reason, out)),
            Self::Terminate => put_frame(b'X', out, |_| ()),
            Self::Sync => put_frame(b'S', out, |_| ()),
            Self::Flush => put_frame(b'H', out, |_| ()),
            Self::FunctionCall => put_frame(b'F', out, |_| ()),
            Self::Extended(tag) => put_frame(tag, out, |_| ()),
        }
    }

    /// Appends a PasswordMessage.
    pub fn encode_password(password: &[u8], out: &mut Vec<u8>) {
        put_frame(b'p', out, |out| put_cstr(password, out));
    }
}

/// The password of a PasswordMessage's body.
pub fn password_text(body: &[u8]) -> Result<&[u8], ReadError> {
    let mut reader = Reader::new(body);
    let password = reader.cstr("password")?;
    reader.finish("the password")?;
    Ok(password)
}

/// SASLInitialResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslInitialResponse<'a> {
    /// The mechanism that the client chose.
    pub mechanism: &'a [u8],
    /// Its first message.
    pub data: Option<&'a [u8]>,
}

impl<'a> SaslInitialResponse<'a> {
    /// Decodes the body of an authentication response.
    pub fn decode(body: &'a [u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(body);
        let mechanism = reader.cstr("SASL mechanism")?;
        let data = match reader.i32("SASL data length")? {
            -1 => None,
            length => {
                let need = usize::try_from(length);
                let need = need.map_err(|_| reader.invalid("SASL data length", length))?;
                Some(reader.bytes(need, "SASL data")?)
            }
        };
        reader.finish("the SASL response")?;
        Ok(Self { mechanism, data })
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_frame(b'p', out, |out| {
            put_cstr(self.mechanism, out);
            let sized = self
                .data
                .and_then(|data| Some((data, i32::try_from(data.len()).ok()?)));
            let (data, length) = sized.unwrap_or((&[], -1));
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(data);
        });
    }
}
