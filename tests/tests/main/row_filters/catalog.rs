//! What a server has: operators and functions.

use std::collections::HashMap;

use tests::Session;

use super::families::Family;

/// How an operator or function is written.
#[derive(Clone, Debug)]
pub(super) enum Syntax {
    Infix(String),
    Prefix(String),
    Call(String),
}

/// An operator or function.
#[derive(Clone, Debug)]
pub(super) struct Producer {
    pub(super) syntax: Syntax,
    pub(super) args: Vec<String>,
    pub(super) result: String,
}

/// Producers by the type that they produce.
pub(super) type Producers = HashMap<String, Vec<Producer>>;

/// Immutable operators of a family's types, and those functions of them that are computed without PostgreSQL.
pub(super) async fn producers(session: &mut Session, family: &Family) -> Producers {
    let native: Vec<String> = row_filter::native_functions()
        .map(|(oid, _)| oid.to_string())
        .collect();
    let native = native.join(",");
    let sql = format!(
        "SELECT 'o', oprname, oprleft::regtype, oprright::regtype, oprresult::regtype, NULL
           FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode
          WHERE provolatile = 'i' AND o.oid < 10000 AND oprname NOT IN ('^', '!!', '@@', '@?')
            AND (p.oid IN ({native}) OR p.oid::int % 4 = 0)
         UNION ALL
         SELECT 'f', proname, NULL, NULL, prorettype::regtype,
                array_to_string(proargtypes::regtype[], ';')
           FROM pg_proc WHERE oid IN ({native}) AND pronargs > 0 AND oid IN
                (SELECT min(oid) FROM pg_proc WHERE oid IN ({native}) GROUP BY proname, proargtypes)"
    );
    let mut producers = Producers::new();
    for row in session.run(&sql).await {
        let text = |index: usize| row[index].clone().unwrap_or_default();
        let name = text(1);
        let (syntax, args) = if text(0) == "f" {
            let call = format!("pg_catalog.\"{name}\"");
            let args = text(5).split(';').map(str::to_owned).collect();
            (Syntax::Call(call), args)
        } else if row[2].as_deref() == Some("-") {
            (Syntax::Prefix(name), vec![text(3)])
        } else {
            (Syntax::Infix(name), vec![text(2), text(3)])
        };
        let producer = Producer {
            syntax,
            args,
            result: text(4),
        };
        for concrete in concrete(&producer, family) {
            producers
                .entry(concrete.result.clone())
                .or_default()
                .push(concrete);
        }
    }
    producers
}

/// A producer for each type that a polymorphic one takes; none if it needs a type that the family has not.
fn concrete(producer: &Producer, family: &Family) -> Vec<Producer> {
    let has = |name: &String| family.types.iter().any(|one| one.name == name);
    let polymorphic = producer
        .args
        .iter()
        .any(|arg| matches!(arg.as_str(), "anyarray" | "anycompatiblearray"));
    if !polymorphic {
        let known = producer.args.iter().all(has) && has(&producer.result);
        return known.then(|| producer.clone()).into_iter().collect();
    }
    let arrays = family.types.iter().filter(|one| one.name.ends_with("[]"));
    arrays
        .map(|array| {
            let replace = |name: &String| match name.as_str() {
                "anyarray" | "anycompatiblearray" => array.name.to_owned(),
                other => other.to_owned(),
            };
            Producer {
                syntax: producer.syntax.clone(),
                args: producer.args.iter().map(replace).collect(),
                result: replace(&producer.result),
            }
        })
        .filter(|one| one.args.iter().all(has) && has(&one.result))
        .collect()
}
