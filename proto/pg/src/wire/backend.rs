//! What a server says.

use super::error_fields::ErrorFields;
use super::frame::{Frame, put_cstr, put_frame};
use super::row::{FieldDescription, put_data_row, put_fields, take_fields, take_values};
use crate::read::{ReadError, Reader};

/// A server's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendMessage<'a> {
    /// 'R': what the server wants to be shown, or that it is satisfied.
    Authentication(Authentication<'a>),
    /// 'S': a setting that clients want to know.
    ParameterStatus {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// 'K': how to cancel.
    BackendKeyData {
        /// The server process.
        pid: u32,
        /// The secret: 4 bytes with protocol 3.0, up to 256 with 3.2.
        key: &'a [u8],
    },
    /// 'Z'.
    ReadyForQuery(TransactionStatus),
    /// 'T'.
    RowDescription(Vec<FieldDescription<'a>>),
    /// 'D'.
    DataRow(Vec<Option<&'a [u8]>>),
    /// 'C', with the command tag.
    CommandComplete(&'a [u8]),
    /// 'I'.
    EmptyQueryResponse,
    /// 'E'.
    ErrorResponse(ErrorFields),
    /// 'N'.
    NoticeResponse(ErrorFields),
    /// 'A'.
    NotificationResponse {
        /// The notifying process.
        pid: u32,
        /// The channel.
        channel: &'a [u8],
        /// What it says.
        payload: &'a [u8],
    },
    /// 'W'.
    CopyBothResponse(CopyResponse),
    /// 'G'.
    CopyInResponse(CopyResponse),
    /// 'H'.
    CopyOutResponse(CopyResponse),
    /// 'd'.
    CopyData(&'a [u8]),
    /// 'c'.
    CopyDone,
    /// 'v'.
    NegotiateProtocolVersion(NegotiateProtocolVersion),
    /// An answer of the extended query protocol, by its type byte: none of these is asked for here.
    Extended(u8),
}

/// A request for authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// 0: satisfied.
    Ok,
    /// 3: the password.
    CleartextPassword,
    /// 5: the password, hashed with the salt.
    Md5Password {
        /// The salt.
        salt: [u8; 4],
    },
    /// 10: one of these mechanisms.
    Sasl {
        /// Their names, the server's favourite first.
        mechanisms: Vec<&'a [u8]>,
    },
    /// 11.
    SaslContinue(&'a [u8]),
    /// 12.
    SaslFinal(&'a [u8]),
    /// Kerberos, GSSAPI, SSPI and what may come.
    Other(u32),
}

/// In which state a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TransactionStatus {
    /// Outside a transaction.
    Idle = b'I',
    /// Inside one.
    Transaction = b'T',
    /// Inside one that failed.
    Failed = b'E',
}

/// How a COPY sends: 0 text or 1 binary, per row and per column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyResponse {
    /// Of the whole.
    pub format: u8,
    /// Of each column; none in a replication stream.
    pub columns: Vec<i16>,
}

/// What the server does not know of what the client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiateProtocolVersion {
    /// The newest minor version of major version 3 that it knows.
    pub newest_minor: u32,
    /// The `_pq_.` options it does not know.
    pub unrecognized: Vec<String>,
}

impl<'a> BackendMessage<'a> {
    /// Decodes a frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, ReadError> {
        let mut reader = Reader::new(frame.body);
        let message = match frame.tag {
            b'd' => return Ok(Self::CopyData(frame.body)),
            b'D' => Self::DataRow(take_values(&mut reader)?),
            b'T' => Self::RowDescription(take_fields(&mut reader)?),
            b'C' => Self::CommandComplete(reader.cstr("command tag")?),
            b'Z' => Self::ReadyForQuery(take_status(&mut reader)?),
            b'E' => return ErrorFields::decode(frame.body).map(Self::ErrorResponse),
            b'N' => return ErrorFields::decode(frame.body).map(Self::NoticeResponse),
            b'R' => Self::Authentication(Authentication::take(&mut reader)?),
            b'S' => Self::ParameterStatus {
                name: reader.cstr("parameter name")?,
                value: reader.cstr("parameter value")?,
            },
            b'K' => Self::BackendKeyData {
                pid: reader.u32("process id")?,
                key: take_key(&mut reader)?,
            },
            b'A' => Self::NotificationResponse {
                pid: reader.u32("process id")?,
                channel: reader.cstr("channel")?,
                payload: reader.cstr("payload")?,
            },
            b'I' => Self::EmptyQueryResponse,
            b'W' => Self::CopyBothResponse(CopyResponse::take(&mut reader)?),
            b'G' => Self::CopyInResponse(CopyResponse::take(&mut reader)?),
            b'H' => Self::CopyOutResponse(CopyResponse::take(&mut reader)?),
            b'c' => Self::CopyDone,
            b'v' => Self::NegotiateProtocolVersion(NegotiateProtocolVersion::take(&mut reader)?),
            b'1' | b'2' | b'3' | b'n' | b's' | b't' | b'V' => return Ok(Self::Extended(frame.tag)),
            other => return Err(reader.invalid("backend message type", other)),
        };
        reader.finish("the message")?;
        Ok(message)
    }

    /// Appends the frame. [`Self::Extended`] gets an empty body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Authentication(request) => put_frame(b'R', out, |out| request.put(out)),
            Self::ParameterStatus { name, value } => put_frame(b'S', out, |out| {
                put_cstr(name, out);
                put_cstr(value, out);
            }),
            Self::BackendKeyData { pid, key } => put_frame(b'K', out, |out| {
                out.extend_from_slice(&pid.to_be_bytes());
                out.extend_from_slice(key);
            }),
            Self::ReadyForQuery(status) => put_frame(b'Z', out, |out| out.push(*status as u8)),
            Self::RowDescription(fields) => put_frame(b'T', out, |out| put_fields(fields, out)),
            Self::DataRow(values) => put_data_row(values.iter().copied(), out),
            Self::CommandComplete(tag) => put_frame(b'C', out, |out| put_cstr(tag, out)),
            Self::EmptyQueryResponse => put_frame(b'I', out, |_| ()),
            Self::ErrorResponse(error) => put_frame(b'E', out, |out| error.encode_body(out)),
            Self::NoticeResponse(notice) => put_frame(b'N', out, |out| notice.encode_body(out)),
            Self::NotificationResponse {
                pid,
                channel,
                payload,
            } => put_frame(b'A', out, |out| {
                out.extend_from_slice(&pid.to_be_bytes());
                put_cstr(channel, out);
                put_cstr(payload, out);
            }),
            Self::CopyBothResponse(copy) => put_frame(b'W', out, |out| copy.put(out)),
            Self::CopyInResponse(copy) => put_frame(b'G', out, |out| copy.put(out)),
            Self::CopyOutResponse(copy) => put_frame(b'H', out, |out| copy.put(out)),
            Self::CopyData(content) => put_frame(b'd', out, |out| out.extend_from_slice(content)),
            Self::CopyDone => put_frame(b'c', out, |_| ()),
            Self::NegotiateProtocolVersion(negotiate) => {
                put_frame(b'v', out, |out| negotiate.put(out));
            }
            Self::Extended(tag) => put_frame(*tag, out, |_| ()),
        }
    }
}

fn take_status(reader: &mut Reader<'_>) -> Result<TransactionStatus, ReadError> {
    match reader.u8("transaction status")? {
        b'I' => Ok(TransactionStatus::Idle),
        b'T' => Ok(TransactionStatus::Transaction),
        b'E' => Ok(TransactionStatus::Failed),
        other => Err(reader.invalid("transaction status", other)),
    }
}

fn take_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], ReadError> {
    let length = reader.rest().len();
    if (4..=256).contains(&length) {
        reader.bytes(length, "cancel key")
    } else {
        let shown = i64::try_from(length).unwrap_or(i64::MAX);
        Err(reader.invalid("length of the cancel key", shown))
    }
}

impl<'a> Authentication<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, ReadError> {
        Ok(match reader.u32("authentication request")? {
            0 => Self::Ok,
            3 => Self::CleartextPassword,
            5 => Self::Md5Password {
                salt: reader.u32("salt")?.to_be_bytes(),
            },
            10 => {
                let mut mechanisms = Vec::new();
                loop {
                    match reader.cstr("SASL mechanism")? {
                        [] => break,
                        mechanism => mechanisms.push(mechanism),
                    }
                }
                Self::Sasl { mechanisms }
            }
            11 => Self::SaslContinue(take_rest(reader)?),
            12 => Self::SaslFinal(take_rest(reader)?),
            other => {
                take_rest(reader)?;
                Self::Other(other)
            }
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u32, rest: &[u8]| {
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(rest);
        };
        match self {
            Self::Ok => put(0, &[]),
            Self::CleartextPassword => put(3, &[]),
            Self::Md5Password { salt } => put(5, salt),
            Self::Sasl { mechanisms } => {
                put(10, &[]);
                for mechanism in mechanisms.iter().filter(|mechanism| !mechanism.is_empty()) {
                    put_cstr(mechanism, out);
                }
                out.push(0);
            }
            Self::SaslContinue(data) => put(11, data),
            Self::SaslFinal(data) => put(12, data),
            Self::Other(kind) => put(*kind, &[]),
        }
    }
}

fn take_rest<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], ReadError> {
    reader.bytes(reader.rest().len(), "authentication data")
}

impl CopyResponse {
    fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let format = reader.u8("copy format")?;
        let count = usize::from(reader.u16("copy column count")?);
        let mut columns = Vec::with_capacity(count.min(reader.rest().len() / 2));
        for _ in 0..count {
            columns.push(reader.i16("copy column format")?);
        }
        Ok(Self { format, columns })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.format);
        let count = u16::try_from(self.columns.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        for column in self.columns.iter().take(usize::from(count)) {
            out.extend_from_slice(&column.to_be_bytes());
        }
    }
}

impl NegotiateProtocolVersion {
    fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        // Servers send the whole version here since 3.2 exists, the minor number alone by the letter.
        let newest_minor = reader.u32("newest minor version")? & 0xFFFF;
        let count = reader.u32("option count")?;
        let mut unrecognized = Vec::new();
        for _ in 0..count {
            let option = String::from_utf8_lossy(reader.cstr("option")?);
            unrecognized.push(option.into_owned());
        }
        Ok(Self {
            newest_minor,
            unrecognized,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(3 << 16 | self.newest_minor & 0xFFFF).to_be_bytes());
        let count = u32::try_from(self.unrecognized.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        for option in &self.unrecognized {
            put_cstr(option.as_bytes(), out);
        }
    }
}
