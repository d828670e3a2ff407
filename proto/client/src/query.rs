//! Results of the simple query protocol.

use pg_proto::Oid;
use pg_proto::wire::{BackendMessage, ErrorFields, FieldDescription, Frame};

use crate::error::Error;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_oid: Oid,
}

/// What one statement gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// The columns; none if the statement gives no rows.
    pub columns: Vec<Column>,
    /// The values as text; null is `None`.
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag, such as `SELECT 1`; empty for an empty query.
    pub tag: String,
}

impl QueryResult {
    /// The value in this row and the column of this name. `None`: null, or not there.
    #[must_use]
    pub fn value(&self, row: usize, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|known| known.name == column)?;
        self.rows.get(row)?.get(at)?.as_deref()
    }
}

/// Puts the frames of an answer together.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    results: Vec<QueryResult>,
    current: QueryResult,
    /// The first thing that went wrong. The rest of the answer must be read all the same.
    failure: Option<Error>,
}

/// What to do after a frame.
pub(crate) enum Next {
    /// Read on.
    Frame,
    /// The server waits for data of a COPY, and there are none.
    RefuseCopy,
    /// The answer is complete.
    Done,
}

impl Answer {
    pub(crate) fn take(&mut self, frame: Frame<'_>) -> Result<Next, Error> {
        match BackendMessage::decode(frame)? {
            BackendMessage::RowDescription(fields) => {
                self.current.columns = fields.iter().map(column).collect();
            }
            BackendMessage::DataRow(values) => match self.row(&values) {
                Ok(row) => self.current.rows.push(row),
                Err(error) => self.fail(error),
            },
            BackendMessage::CommandComplete(tag) => {
                self.current.tag = String::from_utf8_lossy(tag).into_owned();
                self.results.push(std::mem::take(&mut self.current));
            }
            BackendMessage::EmptyQueryResponse => self.results.push(QueryResult::default()),
            BackendMessage::ErrorResponse(error) => return self.take_error(error),
            BackendMessage::ReadyForQuery(_) => return Ok(Next::Done),
            BackendMessage::CopyInResponse(_) | BackendMessage::CopyBothResponse(_) => {
                self.fail(unexpected(frame.tag));
                return Ok(Next::RefuseCopy);
            }
            BackendMessage::CopyOutResponse(_) => self.fail(unexpected(frame.tag)),
            BackendMessage::CopyData(_) | BackendMessage::CopyDone => {}
            _ => return Err(unexpected(frame.tag)),
        }
        Ok(Next::Frame)
    }

    /// After a fatal error nothing follows.
    fn take_error(&mut self, error: ErrorFields) -> Result<Next, Error> {
        let fatal = error.is_fatal();
        self.fail(Error::Server(Box::new(error)));
        match self.failure.take() {
            Some(failure) if fatal => Err(failure),
            failure => {
                self.failure = failure;
                Ok(Next::Frame)
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    fn row(&self, values: &[Option<&[u8]>]) -> Result<Vec<Option<String>>, Error> {
        let text = |(at, value): (usize, &Option<&[u8]>)| {
            let checked = value.map(std::str::from_utf8).transpose();
            checked
                .map(|text| text.map(str::to_owned))
                .map_err(|_| Error::NotUtf8 {
                    column: self.column_name(at),
                })
        };
        values.iter().enumerate().map(text).collect()
    }

    fn column_name(&self, at: usize) -> String {
        let known = self.current.columns.get(at);
        known.map_or_else(|| at.to_string(), |column| column.name.clone())
    }

    pub(crate) fn finish(self) -> Result<Vec<QueryResult>, Error> {
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.results),
        }
    }
}

const fn unexpected(tag: u8) -> Error {
    let doing = "answering a query";
    Error::Unexpected { tag, doing }
}

fn column(field: &FieldDescription<'_>) -> Column {
    Column {
        name: String::from_utf8_lossy(field.name).into_owned(),
        type_oid: field.type_oid,
    }
}
