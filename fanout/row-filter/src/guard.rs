//! What a row must have for a filter to pass it: an index of the rows then answers for all the others.
//!
//! `tenant = 7 AND kind <> 'x'` is true of no row whose `tenant` is not 7. Such rows need not be evaluated if evaluation
//! could not fail on them either. The executor goes through AND and OR from the left and ends at the first argument
//! that decides (`ExecEvalBoolAndStep`, `ExecEvalBoolOrStep`), so this depends on where a term stands:
//!
//! * what stands before the equality must never fail;
//! * what stands behind it is not looked at if the equality is false. It is if the equality is null, since null decides
//!   nothing: then rows with a null are not left out, unless what stands behind never fails.
//!
//! The same holds for a filter of which PostgreSQL evaluates a part, such as `tenant = 7 AND note ~ '[0-9]'`: what is not
//! evaluated here may fail, and only rows that the guard admits are PostgreSQL's to judge. What would fail while PostgreSQL
//! prepares the filter, and so at every row, gives no guard (`compile::opaque`).

use bumpalo::Bump;

use crate::evaluate::{ColumnView, Scratch, TupleView};
use crate::functions::Function;
use crate::functions::kinds::XID;
use crate::key::{KeyKind, key};
use crate::program::{Expr, Slot};
use crate::value::OwnedValue;

/// A row can pass a filter, or fail in it, only if one of these terms holds.
#[derive(Clone, Debug)]
pub struct Guard {
    terms: Box<[Term]>,
    nulls: bool,
}

/// A column has one of these keys.
#[derive(Clone, Debug)]
pub struct Term {
    column: usize,
    kind: KeyKind,
    keys: Box<[u32]>,
}

impl Guard {
    /// The terms; without any, no row passes.
    #[must_use]
    pub const fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether it holds as well if a term's column is null.
    #[must_use]
    pub const fn nulls(&self) -> bool {
        self.nulls
    }

    /// Whether a row may pass, or fail, as far as this tells; by itself, without an index.
    pub fn admits(&self, row: &dyn TupleView, scratch: &mut Scratch) -> bool {
        self.terms.iter().any(|term| match row.column(term.column) {
            ColumnView::Null => self.nulls,
            ColumnView::Unchanged => true,
            ColumnView::Text(text) => term
                .kind
                .key(text, scratch)
                .is_none_or(|key| term.keys.binary_search(&key).is_ok()),
        })
    }
}

impl Term {
    /// As an index into [`FilterSource::columns`](crate::FilterSource::columns).
    #[must_use]
    pub const fn column(&self) -> usize {
        self.column
    }

    /// How the column's text becomes a key.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The keys, in order, each once.
    #[must_use]
    pub const fn keys(&self) -> &[u32] {
        &self.keys
    }
}

/// The guard of an expression over columns, if it has one.
pub(crate) fn guard(expr: &Expr, slots: &[Slot]) -> Option<Guard> {
    let found = find(expr, slots)?;
    Some(Guard {
        terms: found.terms.into(),
        nulls: found.fails_on_null,
    })
}

/// What is known of an expression for rows of which no term holds.
struct Found {
    terms: Vec<Term>,
    /// It is false, and not null.
    is_false: bool,
    /// It may fail if a term's column is null.
    fails_on_null: bool,
}

impl Found {
    fn weight(&self) -> usize {
        self.terms.iter().map(|term| term.keys.len()).sum()
    }
}

fn find(expr: &Expr, slots: &[Slot]) -> Option<Found> {
    match expr {
        Expr::Const(OwnedValue::Bool(false)) => Some(never(true)),
        Expr::Const(OwnedValue::Null) => Some(never(false)),
        Expr::Column(_) => one(expr, &[&OwnedValue::Bool(true)], false, slots),
        Expr::Not(arg) => one(arg, &[&OwnedValue::Bool(false)], false, slots),
        Expr::Call { function, args, .. } => {
            let padded = padding(function)?;
            match &**args {
                [column, Expr::Const(value)] | [Expr::Const(value), column] => {
                    one(column, &[value], padded, slots)
                }
                _ => None,
            }
        }
        Expr::AnyAll {
            function,
            any: true,
            args,
        } => any_of(function, args, slots),
        Expr::And(args) => and(args, slots),
        Expr::Or(args) => or(args, slots),
        _ => None,
    }
}

const fn never(is_false: bool) -> Found {
    Found {
        terms: Vec::new(),
        is_false,
        fails_on_null: false,
    }
}

/// A column that equals one of the values.
fn one(column: &Expr, values: &[&OwnedValue], padded: bool, slots: &[Slot]) -> Option<Found> {
    let Expr::Column(slot) = column else {
        return None;
    };
    let slot = slots.get(*slot)?;
    let arena = Bump::new();
    let keys = values
        .iter()
        .map(|value| key(&value.get(&arena), padded))
        .collect::<Option<Vec<u32>>>();
    let mut keys = keys?;
    keys.sort_unstable();
    keys.dedup();
    let term = Term {
        column: slot.index,
        kind: KeyKind {
            kind: slot.kind,
            padded,
        },
        keys: keys.into(),
    };
    Some(Found {
        terms: vec![term],
        is_false: true,
        fails_on_null: false,
    })
}

/// `column = ANY (array)`: null if an element is.
fn any_of(function: &Function, args: &[Expr; 2], slots: &[Slot]) -> Option<Found> {
    let padded = padding(function)?;
    let [column, Expr::Const(OwnedValue::Array { elements, .. })] = args else {
        return None;
    };
    let values: Vec<&OwnedValue> = elements.iter().filter(|one| !one.is_null()).collect();
    let found = one(column, &values, padded, slots)?;
    Some(Found {
        is_false: values.len() == elements.len(),
        ..found
    })
}

/// The guard of one argument is that of all. The one with the fewest keys is taken.
fn and(args: &[Expr], slots: &[Slot]) -> Option<Found> {
    let mut best: Option<Found> = None;
    for (place, arg) in args.iter().enumerate() {
        let behind = args.get(place + 1..).unwrap_or_default();
        let found = find(arg, slots).and_then(|found| before(found, behind.iter().all(is_total)));
        if let Some(found) = found
            && best
                .as_ref()
                .is_none_or(|best| found.weight() < best.weight())
        {
            best = Some(found);
        }
        if !is_total(arg) {
            break;
        }
    }
    best
}

/// What is known when more follows in an AND.
fn before(found: Found, total: bool) -> Option<Found> {
    if total {
        return Some(found);
    }
    found.is_false.then_some(Found {
        fails_on_null: true,
        ..found
    })
}

/// All arguments must have a guard.
fn or(args: &[Expr], slots: &[Slot]) -> Option<Found> {
    let mut all = never(true);
    for arg in args {
        let found = find(arg, slots)?;
        all.terms.extend(found.terms);
        all.is_false &= found.is_false;
        all.fails_on_null |= found.fails_on_null;
    }
    Some(all)
}

/// Whether it can't fail, whatever the row. That a value can't be read, or was not sent, is no matter of the expression.
fn is_total(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Const(_) | Expr::CaseTest => true,
        Expr::Opaque => false,
        Expr::Call { function, args, .. } => function.total && args.iter().all(is_total),
        Expr::And(args) | Expr::Or(args) | Expr::Coalesce(args) | Expr::Array(args) => {
            args.iter().all(is_total)
        }
        Expr::MinMax { args, .. } => args.iter().all(is_total),
        Expr::Not(arg) | Expr::NullTest { arg, .. } | Expr::BooleanTest { arg, .. } => {
            is_total(arg)
        }
        Expr::NullIf { equal, args } | Expr::Distinct { equal, args } => {
            equal.total && args.iter().all(is_total)
        }
        Expr::AnyAll { function, args, .. } => function.total && args.iter().all(is_total),
        Expr::RowCompare { pairs, .. } => pairs
            .iter()
            .all(|(_, left, right)| is_total(left) && is_total(right)),
        Expr::Case {
            arg,
            whens,
            default,
        } => {
            let whens_are = whens
                .iter()
                .all(|(condition, result)| is_total(condition) && is_total(result));
            arg.as_deref().is_none_or(is_total) && whens_are && is_total(default)
        }
    }
}

/// Whether blanks at the end are equal to none for an equality operator; `None` for what is none, or has no keys.
fn padding(function: &Function) -> Option<bool> {
    // Of values of two kinds that are no numbers, equal ones may have different keys.
    if function.source == "xideq" && function.args != [XID, XID] {
        return None;
    }
    match function.source {
        "bpchareq" => Some(true),
        "booleq" | "chareq" | "nameeq" | "nameeqtext" | "texteqname" | "texteq" | "byteaeq"
        | "uuid_eq" | "biteq" => Some(false),
        "int2eq" | "int4eq" | "int8eq" | "int24eq" | "int42eq" | "int28eq" | "int82eq"
        | "int48eq" | "int84eq" | "oideq" | "xideq" | "xid8eq" => Some(false),
        "float4eq" | "float8eq" | "float48eq" | "float84eq" | "numeric_eq" => Some(false),
        "date_eq" | "time_eq" | "timetz_eq" | "timestamp_eq" | "interval_eq" => Some(false),
        "network_eq" | "macaddr_eq" | "macaddr8_eq" | "pg_lsn_eq" => Some(false),
        _ => None,
    }
}
