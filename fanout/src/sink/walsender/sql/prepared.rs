//! The prepared statements and portals of a session that are about slots. All others are known to the source alone.

use std::collections::HashMap;
use std::sync::Arc;

use pg_proto::Oid;
use pg_proto::wire::{ErrorFields, Named, TransactionStatus, sqlstate};

use super::analysis::Special;

/// Most of them that a session may have.
const STATEMENTS_MAX: usize = 1_000;

/// A prepared statement.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) special: Special,
    /// The types that the client gave for its parameters.
    pub(super) types: Vec<Oid>,
}

/// A portal of such a statement.
#[derive(Debug)]
struct Portal {
    statement: Arc<Statement>,
    /// Formats and values as they travel.
    values: Arc<[u8]>,
    executed: bool,
}

/// Statements and portals, by name.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    statements: HashMap<Vec<u8>, Arc<Statement>>,
    portals: HashMap<Vec<u8>, Portal>,
}

impl Prepared {
    /// A new statement under a name that is free.
    pub(super) fn add_statement(
        &mut self,
        name: &[u8],
        statement: Statement,
    ) -> Result<(), ErrorFields> {
        if self.statements.len() >= STATEMENTS_MAX {
            return Err(too_many("prepared statements"));
        }
        self.statements.insert(name.to_vec(), Arc::new(statement));
        Ok(())
    }

    /// The name is about to be another statement's.
    pub(super) fn forget_statement(&mut self, name: &[u8]) {
        self.statements.remove(name);
    }

    /// Notes a portal; its statement, if it is about slots.
    pub(super) fn bind(
        &mut self,
        portal: &[u8],
        statement: &[u8],
        values: &[u8],
    ) -> Result<Option<Arc<Statement>>, ErrorFields> {
        self.portals.remove(portal);
        let Some(statement) = self.statements.get(statement) else {
            return Ok(None);
        };
        if self.portals.len() >= STATEMENTS_MAX {
            return Err(too_many("portals"));
        }
        let portal_of = Portal {
            statement: Arc::clone(statement),
            values: values.into(),
            executed: false,
        };
        let statement = Arc::clone(statement);
        self.portals.insert(portal.to_vec(), portal_of);
        Ok(Some(statement))
    }

    /// The statement and the parameters of a portal, if it is about slots, and whether it is executed for the first time.
    pub(super) fn execute(&mut self, portal: &[u8]) -> Option<(Arc<Statement>, Arc<[u8]>, bool)> {
        let portal = self.portals.get_mut(portal)?;
        let first = !std::mem::replace(&mut portal.executed, true);
        Some((
            Arc::clone(&portal.statement),
            Arc::clone(&portal.values),
            first,
        ))
    }

    /// A statement or a portal is closed.
    pub(super) fn close(&mut self, what: Named, name: &[u8]) {
        match what {
            Named::Statement => self.forget_statement(name),
            Named::Portal => {
                self.portals.remove(name);
            }
        }
    }

    /// Portals end with their transaction.
    pub(super) fn end_of_batch(&mut self, status: TransactionStatus) {
        if status == TransactionStatus::Idle {
            self.portals.clear();
        }
    }
}

fn too_many(what: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        format!("a session can't have more than {STATEMENTS_MAX} {what} about replication slots"),
    )
}
