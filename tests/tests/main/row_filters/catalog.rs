//! What a server has: operators and functions.

use std::collections::HashMap;

use row_filter::{NativeFunction, native_functions};
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
    /// Of its function.
    pub(super) oid: u32,
    pub(super) syntax: Syntax,
    pub(super) args: Vec<String>,
    pub(super) result: String,
    /// The arguments that have to be constants for it to be computed here.
    pub(super) constants: &'static [usize],
}

/// Producers by the type that they produce.
pub(super) type Producers = HashMap<String, Vec<Producer>>;

/// Immutable operators of a family's types, and those functions of them that are computed without PostgreSQL.
pub(super) async fn producers(session: &mut Session, family: &Family) -> Producers {
    let functions: HashMap<u32, NativeFunction> = native_functions()
        .map(|function| (function.oid, function))
        .collect();
    let native: Vec<String> = functions.keys().map(u32::to_string).collect();
    let native = native.join(",");
    let sql = format!(
        "SELECT 'o', oprname, oprleft::regtype, oprright::regtype, oprresult::regtype, NULL, p.oid
           FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode
          WHERE provolatile = 'i' AND o.oid < 10000 AND oprname NOT IN ('^', '!!', '@@', '@?')
            AND (p.oid IN ({native}) OR p.oid::int % 4 = 0)
         UNION ALL
         SELECT 'f', proname, NULL, NULL, prorettype::regtype,
                array_to_string(proargtypes::regtype[], ';'), oid
           FROM pg_proc WHERE oid IN ({native})"
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
        let oid = text(6).parse().unwrap();
        let native = functions.get(&oid);
        let producer = Producer {
            oid,
            constants: native.map_or(&[], |function| function.constants),
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
        let mut args = producer.args.iter().enumerate();
        let known = args.all(|(at, arg)| producer.constants.contains(&at) || has(arg));
        let known = known && has(&producer.result);
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
                oid: producer.oid,
                constants: producer.constants,
                syntax: producer.syntax.clone(),
                args: producer.args.iter().map(replace).collect(),
                result: replace(&producer.result),
            }
        })
        .filter(|one| one.args.iter().all(has) && has(&one.result))
        .collect()
}
