//! A table on a server, and what the engine and the server say of filters over it.

use row_filter::{
    ColumnView, Compiled, DefaultCollation, Environment, FilterColumn, FilterSource, Program,
    Scratch, TupleView, compile,
};
use tests::sql::Row;
use tests::{Cluster, Session};

use super::expression::COLUMNS_PER_TYPE;
use super::families::Family;
use super::random::Random;

/// What the server says of each row, be it an error.
pub(super) const EVALUATE: &str = r"
CREATE FUNCTION evaluate(expression text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  results bool[]; result bool; row int;
BEGIN
  BEGIN
    EXECUTE format('SELECT array_agg((%s) ORDER BY id) FROM t', expression) INTO results;
    RETURN QUERY SELECT coalesce(one::text, 'null') FROM unnest(results) WITH ORDINALITY u(one, n) ORDER BY n;
    RETURN;
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
  FOR row IN SELECT id FROM t ORDER BY id LOOP
    BEGIN
      EXECUTE format('SELECT (%s) FROM t WHERE id = $1', expression) INTO result USING row;
      RETURN NEXT coalesce(result::text, 'null');
    EXCEPTION WHEN OTHERS THEN
      RETURN NEXT SQLSTATE || ' ' || SQLERRM;
    END;
  END LOOP;
END $$";

/// As the decoder sets them.
const SETTINGS: &str = "SET datestyle = ISO; SET intervalstyle = postgres; SET extra_float_digits = 3; \
    SET timezone = 'UTC'; SET bytea_output = hex; SET jit = off; SET client_min_messages = error";

pub(super) struct RowView<'a>(pub(super) &'a Row);

impl TupleView for RowView<'_> {
    fn column(&self, index: usize) -> ColumnView<'_> {
        match &self.0[index] {
            Some(text) => ColumnView::Text(text.as_bytes()),
            None => ColumnView::Null,
        }
    }
}

/// The table `t`.
pub(super) struct Bench {
    pub(super) session: Session,
    pub(super) rows: Vec<Row>,
    columns: Vec<(String, u32)>,
    environment: Environment,
}

impl Bench {
    /// A table of a family's types, filled with their edge values.
    pub(super) async fn new(
        cluster: &Cluster,
        family: &Family,
        random: &mut Random,
        rows: usize,
    ) -> Self {
        let mut session = session(cluster).await;
        session.run("DROP TABLE IF EXISTS t").await;
        let types = family.types.iter();
        let types: Vec<_> = types.flat_map(|one| [one; COLUMNS_PER_TYPE]).collect();
        let declared = types.iter().enumerate();
        let declared: Vec<String> = declared
            .map(|(index, one)| format!("c{index} {}", one.column))
            .collect();
        let create = format!("CREATE TABLE t ({}, id int)", declared.join(", "));
        session.run(&create).await;
        for id in 0..rows {
            let values = types.iter().map(|one| {
                if random.percent(8) {
                    return "null".to_owned();
                }
                let value = random.pick(one.values).replace("''", "'");
                format!("'{}'", value.replace('\'', "''"))
            });
            let values: Vec<String> = values.collect();
            let insert = format!("INSERT INTO t VALUES ({}, {id})", values.join(", "));
            session.run(&insert).await;
        }
        Self::of_table(session).await
    }

    /// The table that is there.
    pub(super) async fn of_table(mut session: Session) -> Self {
        let columns = session
            .run("SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum")
            .await;
        let columns = columns
            .into_iter()
            .map(|row| {
                (
                    row[0].clone().unwrap(),
                    row[1].clone().unwrap().parse().unwrap(),
                )
            })
            .collect();
        let rows = session.run("SELECT * FROM t ORDER BY id").await;
        let environment = environment(&mut session).await;
        Self {
            session,
            rows,
            columns,
            environment,
        }
    }

    /// The tree of a filter, none if the server does not take the filter.
    pub(super) async fn tree(&mut self, filter: &str) -> Option<String> {
        let create = format!("BEGIN; CREATE PUBLICATION p FOR TABLE t WHERE ({filter})");
        let tree = match self.session.try_run(&create).await {
            Ok(_) => {
                let sql = "SELECT prqual::text FROM pg_publication_rel";
                Some(self.session.value(sql).await)
            }
            Err(error) => {
                let expected = [
                    "42883", "0A000", "42725", "22P02", "42P22", "42804", "42P21", "22008", "22003",
                ];
                assert!(expected.contains(&error.code.as_str()), "{error}: {filter}");
                None
            }
        };
        self.session.run("ROLLBACK").await;
        tree
    }

    pub(super) async fn expected(&mut self, filter: &str) -> Vec<String> {
        let quoted = filter.replace('\'', "''");
        // A backslash in a literal is a plain character.
        let sql = format!("SELECT * FROM evaluate('{quoted}')");
        let rows = self.session.run(&sql).await;
        rows.into_iter()
            .map(|mut row| row.remove(0).unwrap())
            .collect()
    }

    pub(super) fn compiled(&self, tree: &str) -> Compiled {
        let columns: Vec<FilterColumn<'_>> = (1..)
            .zip(&self.columns)
            .map(|(attribute, (name, type_oid))| FilterColumn {
                attribute,
                name,
                type_oid: *type_oid,
                collation: 0,
            })
            .collect();
        compile(&FilterSource {
            tree,
            columns: &columns,
            environment: self.environment,
        })
    }
}

/// A session that prints values as the decoder has them printed.
pub(super) async fn session(cluster: &Cluster) -> Session {
    let mut session = cluster.session().await;
    session.run(SETTINGS).await;
    session
}

async fn environment(session: &mut Session) -> Environment {
    let sql = "SELECT coalesce(to_jsonb(d) ->> 'datlocprovider', 'c'), datcollate, datctype,
        coalesce(to_jsonb(d) ->> 'datlocale', ''), pg_encoding_to_char(encoding),
        current_setting('server_version_num')::int / 10000
        FROM pg_database d WHERE datname = current_database()";
    let row = session.run(sql).await.remove(0);
    let text = |index: usize| row[index].clone().unwrap_or_default();
    let provider = text(0).chars().next().unwrap();
    Environment {
        utf8: text(4) == "UTF8",
        default_collation: DefaultCollation::of(provider, &text(1), &text(2), &text(3)),
        major: text(5).parse().ok(),
    }
}

/// What the engine says of rows, be it an error.
pub(super) fn results(program: &Program, rows: &[Row]) -> Vec<String> {
    let mut scratch = Scratch::new();
    let mut result = |row| match program.eval(&RowView(row), &mut scratch) {
        Ok(None) => "null".to_owned(),
        Ok(Some(value)) => value.to_string(),
        Err(error) => format!("{} {}", error.sqlstate, error.message),
    };
    rows.iter().map(&mut result).collect()
}
