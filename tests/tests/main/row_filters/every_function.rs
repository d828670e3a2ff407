//! Every function that is computed here, on every combination of its arguments' edge values, NULL among them.

use std::collections::HashMap;

use row_filter::{Compiled, NativeFunction, native_functions};
use tests::{Cluster, Session};

use super::bench::{Bench, EVALUATE, results, session};
use super::constants::constants;
use super::families::FAMILIES;

/// Puts what the server computes of each row into its column `e`, where it does not fail.
const FILL: &str = r"
CREATE FUNCTION fill(call text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  row int;
BEGIN
  BEGIN
    EXECUTE format('UPDATE t SET e = %s', call);
    RETURN;
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
  FOR row IN SELECT id FROM t LOOP
    BEGIN
      EXECUTE format('UPDATE t SET e = %s WHERE id = $1', call) USING row;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
END $$";

/// A function as the server describes it.
#[derive(Clone)]
struct Described {
    oid: u32,
    name: String,
    args: Vec<Argument>,
    result: String,
    variadic: bool,
}

#[derive(Clone)]
enum Argument {
    /// A column of a type.
    Column(String),
    /// SQL.
    Constant(&'static str),
}

impl Described {
    /// Its call on the columns `c0`, `c1`, …
    fn call(&self) -> String {
        let last = self.args.len() - 1;
        let args = self.args.iter().enumerate().map(|(index, arg)| match arg {
            Argument::Column(_) if self.variadic && index == last => format!("VARIADIC c{index}"),
            Argument::Column(_) => format!("c{index}"),
            Argument::Constant(sql) => (*sql).to_owned(),
        });
        let args: Vec<String> = args.collect();
        format!("pg_catalog.\"{}\"({})", self.name, args.join(", "))
    }

    /// The same with other arguments.
    fn with(&self, other: impl Fn(&Argument) -> Argument) -> Self {
        Self {
            args: self.args.iter().map(other).collect(),
            ..self.clone()
        }
    }

    /// One for each type that a polymorphic one takes, and for each constant that it wants.
    fn variants(self, constants_at: &[usize], values: &HashMap<&str, Vec<&str>>) -> Vec<Self> {
        let polymorphic =
            |arg: &Argument| matches!(arg, Argument::Column(name) if name.starts_with("any"));
        let mut all = vec![self];
        if all[0].args.iter().any(polymorphic) {
            let arrays = values.keys().filter(|name| name.ends_with("[]"));
            let of = |array: &&str| {
                all[0].with(|arg| match arg {
                    arg if polymorphic(arg) => Argument::Column((*array).to_owned()),
                    arg => arg.clone(),
                })
            };
            all = arrays.map(of).collect();
        }
        for at in constants_at {
            let given = |one: &Self| {
                let one = one.clone();
                let constants = constants(one.oid, *at).iter();
                constants.map(move |sql| {
                    let mut one = one.clone();
                    one.args[*at] = Argument::Constant(sql);
                    one
                })
            };
            all = all.iter().flat_map(given).collect();
        }
        all
    }

    /// Columns and their types.
    fn columns(&self) -> impl Iterator<Item = (usize, &str)> {
        let args = self.args.iter().enumerate();
        args.filter_map(|(index, arg)| match arg {
            Argument::Column(name) => Some((index, name.as_str())),
            Argument::Constant(_) => None,
        })
    }
}

async fn described(session: &mut Session, oid: u32) -> Option<Described> {
    let sql = format!(
        "SELECT proname, array_to_string(proargtypes::regtype[], ';'), prorettype::regtype, provariadic <> 0
           FROM pg_proc WHERE oid = {oid}"
    );
    let row = session.run(&sql).await.into_iter().next()?;
    let text = |index: usize| row[index].clone().unwrap();
    Some(Described {
        oid,
        name: text(0),
        args: text(1)
            .split(';')
            .map(|name| Argument::Column(name.to_owned()))
            .collect(),
        result: text(2),
        variadic: text(3) == "t",
    })
}

/// Edge values by type.
fn values() -> HashMap<&'static str, Vec<&'static str>> {
    let mut all: HashMap<&str, Vec<&str>> = HashMap::new();
    for one in FAMILIES.iter().flat_map(|family| family.types) {
        let known = all.entry(one.name).or_default();
        for value in one.values {
            if !known.contains(value) {
                known.push(value);
            }
        }
    }
    all
}

/// A type without the modifier that its bare name implies.
fn unmodified(name: &str) -> &str {
    match name {
        "character" => "bpchar",
        "bit" => "\"bit\"",
        other => other,
    }
}

/// As a column is declared: with the collation under which order and case are known.
fn declared(name: &str) -> String {
    match name {
        "bit" => "bit(4)".to_owned(),
        "text" | "character varying" | "character" | "text[]" => {
            format!("{} COLLATE \"C\"", unmodified(name))
        }
        other => other.to_owned(),
    }
}

/// A table with a row for each combination of the arguments' values.
async fn fill(
    session: &mut Session,
    function: &Described,
    values: &HashMap<&str, Vec<&'static str>>,
) {
    let (mut columns, mut names) = (String::new(), String::new());
    let mut from = "(VALUES (0)) v".to_owned();
    for (index, name) in function.columns() {
        columns += &format!("c{index} {}, ", declared(name));
        names += &format!("c{index}, ");
        let known = values
            .get(name)
            .unwrap_or_else(|| panic!("there are no values of {name}"));
        let literals = known.iter().map(|value| {
            let value = value.replace("''", "'").replace('\'', "''");
            format!("('{value}'::{})", unmodified(name))
        });
        let literals: Vec<String> = literals.collect();
        let literals = literals.join(", ");
        from += &format!(", (VALUES {literals}, (NULL)) v{index}(c{index})");
    }
    let result = declared(&function.result);
    let sql = format!(
        "DROP TABLE IF EXISTS t; CREATE TABLE t ({columns} id int PRIMARY KEY, e {result});
         INSERT INTO t SELECT {names} row_number() OVER () FROM {from};
         SELECT fill('{}')",
        function.call().replace('\'', "''")
    );
    session.run(&sql).await;
}

/// What the engine answers otherwise than the server.
async fn differences(bench: &mut Bench, function: &Described) -> Vec<String> {
    let call = function.call();
    let mut filters = vec![format!("{call} IS NOT DISTINCT FROM e")];
    if function.result == "boolean" {
        filters = vec![call];
    } else if function.result == "numeric" {
        filters.push(format!("scale({call}) IS NOT DISTINCT FROM scale(e)"));
    }
    let mut found = Vec::new();
    for filter in filters {
        let tree = bench.tree(&filter).await;
        let tree = tree.unwrap_or_else(|| panic!("the server refuses {filter}"));
        assert!(
            tree.contains(&format!(":funcid {} ", function.oid)),
            "{filter} is not function {}",
            function.oid
        );
        let ours = match bench.compiled(&tree) {
            Compiled::Native(program) => results(&program, &bench.rows),
            other => panic!("{filter} is not evaluated here: {other:?}"),
        };
        let theirs = bench.expected(&filter).await;
        assert!(theirs.iter().any(|one| one != "null"), "{filter}");
        let differing = (0..ours.len()).find(|row| ours[*row] != theirs[*row]);
        found.extend(differing.map(|row| {
            let (row, ours, theirs) = (&bench.rows[row], &ours[row], &theirs[row]);
            format!("{filter} of {row:?}: {theirs}, here {ours}")
        }));
    }
    found
}

async fn every_function(major: u32) {
    let cluster = Cluster::start_with(major, &[("wal_level", "logical")]).await;
    cluster.sql(EVALUATE).await;
    cluster.sql(FILL).await;
    let values = values();
    let mut session = session(&cluster).await;
    let (mut functions, mut rows) = (0, 0);
    let mut found = Vec::new();
    for NativeFunction { oid, constants, .. } in native_functions() {
        // Some are younger than the oldest server.
        let Some(described) = described(&mut session, oid).await else {
            continue;
        };
        functions += 1;
        let variants = described.variants(constants, &values);
        for function in variants {
            fill(&mut session, &function, &values).await;
            let mut bench = Bench::of_table(session).await;
            rows += bench.rows.len();
            found.extend(differences(&mut bench, &function).await);
            session = bench.session;
        }
    }
    println!("PostgreSQL {major}: {functions} functions on {rows} rows");
    assert!(functions > 300);
    let shown = found.iter().take(60).cloned().collect::<Vec<_>>();
    assert!(
        found.is_empty(),
        "{} differences from PostgreSQL {major}:\n{}",
        found.len(),
        shown.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_says_what_postgresql_15_says() {
    every_function(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_says_what_postgresql_18_says() {
    every_function(18).await;
}

/// Of two collations that neither goes before the other, PostgreSQL raises an error at each row, which is not made here.
#[tokio::test(flavor = "multi_thread")]
async fn text_of_two_collations_is_left_to_the_server() {
    let cluster = Cluster::start_with(18, &[("wal_level", "logical")]).await;
    cluster.sql(EVALUATE).await;
    let mut session = session(&cluster).await;
    let sql = "CREATE TABLE t (c0 text COLLATE \"C\", c1 text COLLATE \"POSIX\", id int);
        INSERT INTO t VALUES ('a', 'a', 1)";
    session.run(sql).await;
    let mut bench = Bench::of_table(session).await;
    for filter in [
        "c0 = c1",
        "c0 IS DISTINCT FROM c1",
        "c0 = ANY (ARRAY[c1])",
        "nullif(c0, c1) IS NULL",
        "c0 LIKE c1",
    ] {
        let tree = bench.tree(filter).await;
        let tree = tree.unwrap_or_else(|| panic!("the server refuses {filter}"));
        let compiled = bench.compiled(&tree);
        assert!(matches!(compiled, Compiled::Postgres { .. }), "{filter}");
        let said = bench.expected(filter).await;
        assert!(said[0].starts_with("42P22 "), "{filter}: {said:?}");
    }
}
