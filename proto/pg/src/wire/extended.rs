//! A client's messages of the extended query protocol.

use super::frame::{Frame, put_cstr, put_frame};
use crate::Oid;
use crate::read::{ReadError, Reader};

/// A message of the extended query protocol. `Flush` and `Sync` are in [`super::FrontendMessage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtendedQuery<'a> {
    /// 'P'.
    Parse {
        /// The statement's name, empty for the unnamed one.
        statement: &'a [u8],
        /// The SQL.
        query: &'a [u8],
        /// Types of parameters; 0 for those that the server is to find out.
        types: Vec<Oid>,
    },
    /// 'B'.
    Bind {
        /// The portal's name, empty for the unnamed one.
        portal: &'a [u8],
        /// The statement's name.
        statement: &'a [u8],
        /// Formats of the parameters, their values, formats of the results: as they travel.
        values: &'a [u8],
    },
    /// 'D'.
    Describe {
        /// A statement or a portal.
        what: Named,
        /// Its name.
        name: &'a [u8],
    },
    /// 'E'.
    Execute {
        /// The portal's name.
        portal: &'a [u8],
        /// Rows to give at most, 0 for all.
        rows_max: i32,
    },
    /// 'C'.
    Close {
        /// A statement or a portal.
        what: Named,
        /// Its name.
        name: &'a [u8],
    },
}

/// What a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Named {
    /// A prepared statement.
    Statement = b'S',
    /// A portal.
    Portal = b'P',
}

impl<'a> ExtendedQuery<'a> {
    /// Decodes a frame; `None` if it is of another type.
    pub fn decode(frame: Frame<'a>) -> Option<Result<Self, ReadError>> {
        let reader = Reader::new(frame.body);
        match frame.tag {
            b'P' => Some(parse(reader)),
            b'B' => Some(bind(reader)),
            b'D' => Some(named(reader).map(|(what, name)| Self::Describe { what, name })),
            b'C' => Some(named(reader).map(|(what, name)| Self::Close { what, name })),
            b'E' => Some(execute(reader)),
            _ => None,
        }
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Parse {
                statement,
                query,
                types,
            } => put_frame(b'P', out, |out| {
                put_cstr(statement, out);
                put_cstr(query, out);
                let count = u16::try_from(types.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&count.to_be_bytes());
                for oid in types.iter().take(usize::from(count)) {
                    out.extend_from_slice(&oid.0.to_be_bytes());
                }
            }),
            Self::Bind {
                portal,
                statement,
                values,
            } => put_frame(b'B', out, |out| {
                put_cstr(portal, out);
                put_cstr(statement, out);
                out.extend_from_slice(values);
            }),
            Self::Describe { what, name } => put_named(b'D', *what, name, out),
            Self::Close { what, name } => put_named(b'C', *what, name, out),
            Self::Execute { portal, rows_max } => put_frame(b'E', out, |out| {
                put_cstr(portal, out);
                out.extend_from_slice(&rows_max.to_be_bytes());
            }),
        }
    }
}

/// What a Bind gives for the parameters, without the formats of results: text is asked for.
pub fn parameters_only(values: &[u8]) -> Result<Vec<u8>, ReadError> {
    let mut reader = Reader::new(values);
    skip_parameters(&mut reader)?;
    let length = values.len() - reader.rest().len();
    let mut own = values.get(..length).unwrap_or_default().to_vec();
    own.extend_from_slice(&[0; 2]);
    Ok(own)
}

fn skip_parameters(reader: &mut Reader<'_>) -> Result<(), ReadError> {
    for _ in 0..reader.u16("count of parameter formats")? {
        reader.i16("parameter format")?;
    }
    for _ in 0..reader.u16("count of parameters")? {
        if let Ok(length) = usize::try_from(reader.i32("parameter length")?) {
            reader.bytes(length, "parameter")?;
        }
    }
    Ok(())
}

fn parse(mut reader: Reader<'_>) -> Result<ExtendedQuery<'_>, ReadError> {
    let statement = reader.cstr("statement name")?;
    let query = reader.cstr("query")?;
    let count = usize::from(reader.u16("count of parameter types")?);
    let mut types = Vec::with_capacity(count.min(reader.rest().len() / 4));
    for _ in 0..count {
        types.push(Oid(reader.u32("parameter type")?));
    }
    reader.finish("the message")?;
    Ok(ExtendedQuery::Parse {
        statement,
        query,
        types,
    })
}

fn bind(mut reader: Reader<'_>) -> Result<ExtendedQuery<'_>, ReadError> {
    let portal = reader.cstr("portal name")?;
    let statement = reader.cstr("statement name")?;
    let values = reader.rest();
    skip_parameters(&mut reader)?;
    for _ in 0..reader.u16("count of result formats")? {
        reader.i16("result format")?;
    }
    reader.finish("the message")?;
    Ok(ExtendedQuery::Bind {
        portal,
        statement,
        values,
    })
}

fn execute(mut reader: Reader<'_>) -> Result<ExtendedQuery<'_>, ReadError> {
    let portal = reader.cstr("portal name")?;
    let rows_max = reader.i32("count of rows")?;
    reader.finish("the message")?;
    Ok(ExtendedQuery::Execute { portal, rows_max })
}

fn named(mut reader: Reader<'_>) -> Result<(Named, &[u8]), ReadError> {
    let what = match reader.u8("kind of name")? {
        b'S' => Named::Statement,
        b'P' => Named::Portal,
        other => return Err(reader.invalid("kind of name", other)),
    };
    let name = reader.cstr("name")?;
    reader.finish("the message")?;
    Ok((what, name))
}

fn put_named(tag: u8, what: Named, name: &[u8], out: &mut Vec<u8>) {
    put_frame(tag, out, |out| {
        out.push(what as u8);
        put_cstr(name, out);
    });
}
