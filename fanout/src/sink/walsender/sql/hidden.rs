//! Statements of this endpoint's own on a client's connection to the source: inside the client's transaction, and
//! without a trace in what the client sees.

use pg_client::{Connection, Error, TransactionStatus};
use pg_proto::Oid;
pub(super) use pg_proto::quote::literal;
use pg_proto::wire::{BackendMessage, ErrorFields, ExtendedQuery, Named};
use tokio_util::sync::CancellationToken;

use super::super::backends::Cancelling;

/// The name of statement and portal. No client's name has a line feed.
const NAME: &[u8] = b"decant\n";
/// No parameters, results as text.
const NO_VALUES: &[u8] = &[0; 6];

/// A statement of this endpoint's own, and the parameters of the client's that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden<'a> {
    pub(super) text: &'a [u8],
    pub(super) types: &'a [Oid],
    /// Formats and values as they travel.
    pub(super) values: Option<&'a [u8]>,
    /// Ends with Sync. Otherwise the client's Sync is still to come.
    pub(super) sync: bool,
}

/// Why it gave no rows.
#[derive(Debug)]
pub(super) enum HiddenError {
    /// The source said no. Without Sync it now skips everything up to it.
    Said(Box<ErrorFields>),
    /// The connection is lost.
    Lost(Error),
}

impl From<Error> for HiddenError {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

/// What ends a statement before it is done. To the client it is a part of its own, so a request to cancel means it, too.
pub(super) struct Interrupts<'a> {
    cancelling: &'a mut Cancelling,
    ending: [&'a CancellationToken; 2],
    ends: bool,
}

impl<'a> Interrupts<'a> {
    /// Requests to cancel, and what ends the session.
    pub(super) const fn new(
        cancelling: &'a mut Cancelling,
        ending: [&'a CancellationToken; 2],
    ) -> Self {
        Self {
            cancelling,
            ending,
            ends: false,
        }
    }

    /// Returns when the statement is to be cancelled. Cancel safe.
    async fn next(&mut self) {
        let [one, other] = self.ending;
        tokio::select! {
            () = self.cancelling.next() => {}
            () = one.cancelled(), if !self.ends => self.ends = true,
            () = other.cancelled(), if !self.ends => self.ends = true,
        }
    }
}

/// Runs a statement to its end: the first column of each row. Nothing may be unanswered on the connection.
pub(super) async fn run(
    connection: &mut Connection,
    hidden: Hidden<'_>,
    mut interrupts: Interrupts<'_>,
) -> Result<Vec<Option<String>>, HiddenError> {
    send(connection, hidden);
    let mut rows = Vec::new();
    let mut failure = None;
    let mut closed = 0;
    let token = connection.cancel_token();
    loop {
        let frame = tokio::select! {
            biased;
            () = interrupts.next() => {
                let token = token.clone();
                tokio::spawn(async move { token.cancel().await });
                continue;
            }
            frame = connection.next_frame() => frame?,
        };
        match BackendMessage::decode(frame.as_frame()).map_err(Error::Message)? {
            BackendMessage::DataRow(values) => {
                let value = values.first().copied().flatten();
                rows.push(value.map(|value| String::from_utf8_lossy(value).into_owned()));
            }
            BackendMessage::Extended(b'3') => closed += 1,
            BackendMessage::ErrorResponse(error) if error.is_fatal() || !hidden.sync => {
                return Err(HiddenError::Said(Box::new(plain(&error))));
            }
            BackendMessage::ErrorResponse(error) => failure = Some(Box::new(plain(&error))),
            BackendMessage::ReadyForQuery(_) => break,
            _ => {}
        }
        if closed == 3 && !hidden.sync {
            break;
        }
    }
    failure.map_or(Ok(rows), |error| Err(HiddenError::Said(error)))
}

fn send(connection: &mut Connection, hidden: Hidden<'_>) {
    let close = |what| ExtendedQuery::Close { what, name: NAME };
    connection.queue_extended(&close(Named::Statement));
    connection.queue_extended(&ExtendedQuery::Parse {
        statement: NAME,
        query: hidden.text,
        types: hidden.types.to_vec(),
    });
    connection.queue_extended(&ExtendedQuery::Bind {
        portal: NAME,
        statement: NAME,
        values: hidden.values.unwrap_or(NO_VALUES),
    });
    connection.queue_extended(&ExtendedQuery::Execute {
        portal: NAME,
        rows_max: 0,
    });
    connection.queue_extended(&close(Named::Portal));
    connection.queue_extended(&close(Named::Statement));
    connection.queue_frame(if hidden.sync { b'S' } else { b'H' }, &[]);
}

/// The error without a position, which would be one in another text than the client's.
fn plain(error: &ErrorFields) -> ErrorFields {
    let mut plain = if error.is_fatal() {
        ErrorFields::fatal(error.code(), error.message())
    } else {
        ErrorFields::error(error.code(), error.message())
    };
    if let Some(detail) = error.detail() {
        plain = plain.with_detail(detail);
    }
    if let Some(hint) = error.hint() {
        plain = plain.with_hint(hint);
    }
    plain
}

/// A statement that gives a setting of the session a value, whatever its characters.
pub(super) fn set(setting: &str, value: &str) -> String {
    let value = literal(value);
    format!("SELECT pg_catalog.set_config('{setting}', {value}, false)")
}

/// Whether statements would be refused because the transaction has failed.
pub(super) fn has_failed(connection: &Connection) -> bool {
    connection.transaction_status() == TransactionStatus::Failed
}
