//! A compiled filter.

use crate::functions::Function;
use crate::guard::Guard;
use crate::kind::{Base, Kind};
use crate::value::OwnedValue;

/// An expression that is evaluated on rows.
#[derive(Debug)]
pub(crate) enum Expr {
    /// Index into [`Program::columns`].
    Column(usize),
    Const(OwnedValue),
    /// The value that the CASE around it compares.
    CaseTest,
    Call {
        function: &'static Function,
        element: Base,
        args: Box<[Expr]>,
    },
    And(Box<[Expr]>),
    Or(Box<[Expr]>),
    Not(Box<Expr>),
    Case {
        arg: Option<Box<Expr>>,
        whens: Box<[(Expr, Expr)]>,
        default: Box<Expr>,
    },
    Coalesce(Box<[Expr]>),
    MinMax {
        base: Base,
        greatest: bool,
        args: Box<[Expr]>,
    },
    NullIf {
        equal: &'static Function,
        args: Box<[Expr; 2]>,
    },
    Distinct {
        equal: &'static Function,
        args: Box<[Expr; 2]>,
    },
    NullTest {
        arg: Box<Expr>,
        is_null: bool,
    },
    BooleanTest {
        arg: Box<Expr>,
        test: BooleanTest,
    },
    /// `scalar op ANY (array)`, or ALL.
    AnyAll {
        function: &'static Function,
        any: bool,
        args: Box<[Expr; 2]>,
    },
    RowCompare {
        operator: RowOperator,
        /// Comparison of one pair, by kind.
        pairs: Box<[(Base, Expr, Expr)]>,
    },
    Array(Box<[Expr]>),
    /// A condition that only PostgreSQL evaluates. In expressions of which nothing but the guard is used.
    Opaque,
}

/// `IS [NOT] TRUE | FALSE | UNKNOWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BooleanTest {
    pub(crate) wanted: Option<bool>,
    pub(crate) not: bool,
}

/// How rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOperator {
    Less,
    LessOrEqual,
    GreaterOrEqual,
    Greater,
}

/// A column that a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Index into [`FilterSource::columns`](crate::FilterSource::columns).
    pub(crate) index: usize,
    pub(crate) kind: Kind,
}

/// A filter that is evaluated here.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: Expr,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) guard: Option<Guard>,
}

impl Program {
    /// The columns that it reads, as indexes into [`FilterSource::columns`](crate::FilterSource::columns).
    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().map(|slot| slot.index)
    }

    /// What a row must have for this to be true of it, or to fail on it.
    #[must_use]
    pub const fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }
}
