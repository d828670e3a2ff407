//! Row filters of a request: the source parses them, in a publication that is never made.

use storage_format::catalog::{PublicationState, PublicationTable};
use tonic::Status;

use crate::auth::Grant;
use crate::selection::{Refusal, TableFilter, TableName};
use crate::sink::Services;

/// Most filters of a request, and most bytes of all of them.
const FILTERS_MAX: usize = 256;
const BYTES_MAX: usize = 256 << 10;

/// Tables and expressions over their columns, one for each table.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    all: Vec<(TableName, String)>,
    bytes: usize,
}

impl Expressions {
    pub(super) fn add(&mut self, table: TableName, expression: String) -> Result<(), String> {
        self.bytes += expression.len();
        if self.all.len() >= FILTERS_MAX || self.bytes > BYTES_MAX {
            return Err(format!(
                "more than {FILTERS_MAX} row filters, or more than {BYTES_MAX} bytes of them"
            ));
        }
        let problem = if table.name.is_empty() || table.schema.is_empty() {
            "names no table: give schema and name"
        } else if expression.trim().is_empty() {
            "has an empty row filter"
        } else if self.all.iter().any(|(known, _)| *known == table) {
            "has two row filters"
        } else {
            self.all.push((table, expression));
            return Ok(());
        };
        Err(format!("\"{table}\" {problem}"))
    }

    /// Who may not read a table does not have the source look at it.
    fn check(&self, grant: Option<&Grant>) -> Result<(), Status> {
        let Some(grant) = grant else { return Ok(()) };
        let mut tables = self.all.iter().map(|(table, _)| table);
        let denied = tables.find(|table| !grant.allows_table(&table.schema, &table.name));
        denied.map_or(Ok(()), |table| {
            let refusal = Refusal::TableDenied(table.clone());
            Err(Status::permission_denied(refusal.to_string()))
        })
    }

    /// As CREATE PUBLICATION has it behind the name. A comment at an expression's end ends with its line. Via the root,
    /// so that partitioned tables may have filters.
    fn definition(&self) -> String {
        let tables = self.all.iter().map(|(table, expression)| {
            let (schema, name) = (quoted(&table.schema), quoted(&table.name));
            format!("ONLY {schema}.{name} WHERE ({expression}\n)")
        });
        let tables: Vec<String> = tables.collect();
        let tables = tables.join(", ");
        format!("FOR TABLE {tables} WITH (publish_via_partition_root = true)")
    }

    /// What the source makes of them.
    pub(super) async fn explain(
        &self,
        services: &Services,
        grant: Option<&Grant>,
    ) -> Result<Vec<TableFilter>, Status> {
        if self.all.is_empty() {
            return Ok(Vec::new());
        }
        self.check(grant)?;
        let state = services
            .positions
            .explain_publication(self.definition())
            .await?;
        let state = PublicationState::decode(&state).map_err(|error| {
            Status::internal(format!("the decoder's answer is not understood: {error}"))
        })?;
        self.filters(&state)
    }

    fn filters(&self, state: &PublicationState) -> Result<Vec<TableFilter>, Status> {
        let tables = state.publications.iter().flat_map(|one| &one.tables);
        let named: Vec<&PublicationTable> = tables.filter(|table| !table.implied).collect();
        // A text that closes its bracket could name further tables, or give a list of columns.
        if named.len() != self.all.len() || named.iter().any(|table| table.columns.is_some()) {
            return Err(Status::invalid_argument(
                "a row filter is one expression, without the brackets",
            ));
        }
        let filters = self.all.iter().map(|(table, _)| {
            let same =
                |one: &&&PublicationTable| one.schema == table.schema && one.name == table.name;
            let found = named.iter().find(same)?;
            let described = state.relation(found.relation)?;
            Some(TableFilter {
                table: table.clone(),
                relation: found.relation,
                partitioned: found.partitioned,
                text: found.row_filter.clone()?,
                attributes: described.attributes.clone()?,
            })
        });
        let filters: Option<Vec<TableFilter>> = filters.collect();
        filters.ok_or_else(|| Status::internal("the source does not say what a row filter means"))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName {
            schema: "s".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn names_are_quoted_and_comments_end() {
        let mut filters = Expressions::default();
        filters.add(table("a\"b"), "v > 1 -- x".to_owned()).unwrap();
        assert_eq!(
            filters.definition(),
            "FOR TABLE ONLY \"s\".\"a\"\"b\" WHERE (v > 1 -- x\n) WITH (publish_via_partition_root = true)"
        );
    }

    #[test]
    fn one_for_each_table_and_not_too_many() {
        let mut filters = Expressions::default();
        filters.add(table("t"), "true".to_owned()).unwrap();
        assert!(filters.add(table("t"), "false".to_owned()).is_err());
        assert!(filters.add(table("u"), " ".to_owned()).is_err());
        assert!(
            filters
                .add(TableName::default(), "true".to_owned())
                .is_err()
        );
        assert!(filters.add(table("u"), "x".repeat(BYTES_MAX)).is_err());
    }
}
