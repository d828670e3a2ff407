//! What every client of the replication protocol here says in the same way.

use pg_proto::replication::StatusUpdate;
use pg_proto::{Lsn, PgTimestamp};

use crate::scale::patience;
use crate::sql::{Endpoint, Session, SqlError};
use crate::wait_until;

/// SQLSTATE of a slot that another connection has.
const SLOT_IN_USE: &str = "55006";

/// Connects and starts `slot` with pgoutput options such as `proto_version '1'`.
pub(super) async fn start(
    to: &Endpoint,
    slot: &str,
    from: Lsn,
    options: &str,
) -> Result<Session, SqlError> {
    let mut session = Session::connect_for_replication(to).await?;
    let command = format!("START_REPLICATION SLOT \"{slot}\" LOGICAL {from} ({options})");
    session.start_copy(&command).await?;
    Ok(session)
}

/// Starts a slot whose last connection was closed a moment ago: the server may not have noticed yet. Any other error is the
/// answer.
pub async fn when_free<T, F>(start: impl Fn() -> F) -> Result<T, SqlError>
where
    F: Future<Output = Result<T, SqlError>>,
{
    wait_until("the slot is free", patience(), async || {
        match start().await {
            Err(error) if error.code == SLOT_IN_USE => Err(error.to_string()),
            answer => Ok(answer),
        }
    })
    .await
}

/// Tells the server that everything up to `flush` is safe here.
pub(super) async fn send_status(session: &mut Session, flush: Lsn, reply_requested: bool) {
    let mut content = Vec::new();
    StatusUpdate {
        write: flush,
        flush,
        apply: flush,
        client_time: PgTimestamp(0),
        reply_requested,
    }
    .encode(&mut content);
    session
        .send_copy_data(&content)
        .await
        .unwrap_or_else(|error| panic!("the stream failed: {error}"));
}
