//! What PostgreSQL asks of the transaction in which a slot with a snapshot is created (`CreateReplicationSlot`), in the
//! same order and words.

use pg_client::{Connection, Error};
use pg_proto::wire::{ErrorFields, TransactionStatus, sqlstate};

use super::super::upstream::lost;
use super::super::version::ServerVersion;

/// Changes nothing, and fails where importing a snapshot would: both statements may neither follow a query nor stand in
/// a subtransaction, and PostgreSQL says which it is. Neither takes a snapshot itself.
const TRY: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                   SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// `export` needs a transaction of its own.
pub(super) fn export(version: ServerVersion, status: TransactionStatus) -> Result<(), ErrorFields> {
    if status == TransactionStatus::Idle {
        return Ok(());
    }
    let what = if version.has_slot_option_lists() {
        "(SNAPSHOT 'export')"
    } else {
        "EXPORT_SNAPSHOT"
    };
    Err(refused(what, "must not be called inside a transaction"))
}

/// `use` is for a transaction that the client has begun.
pub(super) fn inside_transaction(
    version: ServerVersion,
    status: TransactionStatus,
) -> Result<(), ErrorFields> {
    if status == TransactionStatus::Idle {
        let rule = "must be called inside a transaction";
        return Err(refused(using_words(version), rule));
    }
    Ok(())
}

/// That transaction must be able to take a snapshot, and nothing else may have been read in it.
pub(super) async fn using(
    version: ServerVersion,
    connection: &mut Connection,
) -> Result<(), ErrorFields> {
    let what = using_words(version);
    if show(connection, "transaction_isolation").await? != "repeatable read" {
        let rule = "must be called in REPEATABLE READ isolation mode transaction";
        return Err(refused(what, rule));
    }
    if version.uses_snapshots_read_only()
        && show(connection, "transaction_read_only").await? != "on"
    {
        return Err(refused(what, "must be called in a read-only transaction"));
    }
    match connection.simple_query(TRY).await {
        Ok(_) => Ok(()),
        Err(Error::Server(error)) if error.code() == sqlstate::ACTIVE_SQL_TRANSACTION => {
            let in_subtransaction = error.message().contains("subtransaction");
            Err(refused(
                what,
                if in_subtransaction {
                    "must not be called in a subtransaction"
                } else {
                    "must be called before any query"
                },
            ))
        }
        Err(error) => Err(said(&error)),
    }
}

async fn show(connection: &mut Connection, name: &str) -> Result<String, ErrorFields> {
    let shown = connection.query_one_value(&format!("SHOW {name}")).await;
    Ok(shown.map_err(|error| said(&error))?.unwrap_or_default())
}

fn said(error: &Error) -> ErrorFields {
    error.server().cloned().unwrap_or_else(|| lost(error))
}

const fn using_words(version: ServerVersion) -> &'static str {
    if version.has_slot_option_lists() {
        "(SNAPSHOT 'use')"
    } else {
        "USE_SNAPSHOT"
    }
}

fn refused(what: &str, rule: &str) -> ErrorFields {
    let message = format!("CREATE_REPLICATION_SLOT ... {what} {rule}");
    ErrorFields::error(sqlstate::INTERNAL_ERROR, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_version() {
        let version = |text| ServerVersion::parse(text).unwrap();
        let message = |result: Result<(), ErrorFields>| result.unwrap_err().message().to_owned();
        for (announced, export_word, use_word) in [
            ("14.23", "EXPORT_SNAPSHOT", "USE_SNAPSHOT"),
            ("15.18", "(SNAPSHOT 'export')", "(SNAPSHOT 'use')"),
        ] {
            assert_eq!(
                message(export(version(announced), TransactionStatus::Transaction)),
                format!(
                    "CREATE_REPLICATION_SLOT ... {export_word} must not be called inside a transaction"
                )
            );
            assert_eq!(
                message(inside_transaction(
                    version(announced),
                    TransactionStatus::Idle
                )),
                format!(
                    "CREATE_REPLICATION_SLOT ... {use_word} must be called inside a transaction"
                )
            );
        }
    }
}
