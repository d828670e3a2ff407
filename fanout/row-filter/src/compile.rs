//! From a tree to a program: `eval_const_expressions` and the choice of what can be computed here.
//!
//! Constant parts are computed in the same order as PostgreSQL's planner does it, since that decides which error
//! a filter raises before it has seen a row, and which parts are never looked at.

mod branches;
mod calls;
mod nodes;
mod opaque;

use crate::error::FilterError;
use crate::guard::{Guard, guard};
use crate::kind::{Base, Kind};
use crate::program::{Expr, Program, Slot};
use crate::source::FilterSource;
use crate::tree::{self, Node, TreeError};
use crate::value::OwnedValue;

/// A filter, ready to be asked.
#[derive(Debug)]
pub enum Compiled {
    /// It is evaluated here.
    Native(Program),
    /// It is evaluated by PostgreSQL.
    Postgres {
        /// Why not here.
        reason: String,
        /// What a row must have for this to be true of it, or to fail on it, as far as that is known here.
        guard: Option<Guard>,
        /// What it reads, as indexes into [`FilterSource::columns`]; empty if even the tree can't be read, then
        /// all columns may be meant.
        columns: Vec<usize>,
    },
    /// It fails for every row: a constant part of it does. PostgreSQL raises this at the first change for which it
    /// prepares the filter.
    Fails(FilterError),
}

/// Compiles a filter.
#[must_use]
pub fn compile(source: &FilterSource<'_>) -> Compiled {
    compile_any(&[*source])
}

/// Compiles filters of one relation of which any may let a row pass, in this order.
#[must_use]
pub fn compile_any(sources: &[FilterSource<'_>]) -> Compiled {
    let mut compiler = Compiler::new(sources);
    let reason = match compiler.program(sources) {
        Ok(root) => {
            let guard = guard(&root, &compiler.slots);
            return Compiled::Native(Program {
                root,
                slots: compiler.slots.into(),
                guard,
            });
        }
        Err(Stop::Fails(error)) => return Compiled::Fails(error),
        Err(Stop::Postgres(reason)) => reason,
    };
    let columns = sources.iter().flat_map(columns_of);
    let mut columns: Vec<usize> = columns.collect();
    columns.sort_unstable();
    columns.dedup();
    Compiled::Postgres {
        reason,
        guard: guard_in_part(sources),
        columns,
    }
}

/// The guard of filters that PostgreSQL evaluates, from the parts that could be evaluated here.
fn guard_in_part(sources: &[FilterSource<'_>]) -> Option<Guard> {
    let mut compiler = Compiler::new(sources);
    compiler.in_part = true;
    let root = compiler.program(sources).ok()?;
    guard(&root, &compiler.slots)
}

/// Attribute number and type of each column that a filter's tree names, as of when the source parsed it.
#[must_use]
pub fn variables(tree: &str) -> Vec<(i16, u32)> {
    tree::variables(tree)
}

/// Columns that a filter names anywhere.
fn columns_of(source: &FilterSource<'_>) -> Vec<usize> {
    let variables = tree::variables(source.tree);
    let find = |(attribute, _): (i16, u32)| {
        let mut columns = source.columns.iter();
        columns.position(|column| column.attribute == attribute)
    };
    variables.into_iter().filter_map(find).collect()
}

/// Why there is no program.
pub(crate) enum Stop {
    Postgres(String),
    Fails(FilterError),
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Self {
        Self::Postgres(error.to_string())
    }
}

impl From<FilterError> for Stop {
    fn from(error: FilterError) -> Self {
        Self::Fails(error)
    }
}

/// An expression of a kind.
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) kind: Kind,
}

type Result<T> = std::result::Result<T, Stop>;

pub(crate) struct Compiler<'s> {
    source: Option<&'s FilterSource<'s>>,
    slots: Vec<Slot>,
    /// The innermost CASE's argument.
    case: Option<CaseArgument>,
    /// Arguments of AND and OR that can't be evaluated here are taken as [`Expr::Opaque`].
    in_part: bool,
}

/// What CaseTestExpr stands for.
#[derive(Clone)]
pub(crate) struct CaseArgument {
    kind: Kind,
    /// If it is constant, CaseTestExpr is that constant.
    constant: Option<OwnedValue>,
}

const BOOL: Kind = Base::Bool.scalar();

impl<'s> Compiler<'s> {
    fn new(sources: &'s [FilterSource<'s>]) -> Self {
        Self {
            source: sources.first(),
            slots: Vec::new(),
            case: None,
            in_part: false,
        }
    }
}

impl Compiler<'_> {
    fn program(&mut self, sources: &[FilterSource<'_>]) -> Result<Expr> {
        let trees = sources.iter().map(|source| tree::read(source.tree));
        let trees: Vec<Node<'_>> = trees.collect::<std::result::Result<_, _>>()?;
        if let [tree] = trees.as_slice() {
            return self.boolean(tree);
        }
        self.logic(&trees.iter().collect::<Vec<_>>(), true)
    }

    fn boolean(&mut self, node: &Node<'_>) -> Result<Expr> {
        let typed = self.node(node)?;
        if typed.kind != BOOL {
            return Err(postgres(format!("a {} is not boolean", node.name)));
        }
        Ok(typed.expr)
    }
}

pub(crate) fn postgres(reason: impl Into<String>) -> Stop {
    Stop::Postgres(reason.into())
}

/// Whether an expression is constant, and if so whether it is null.
pub(crate) const fn constness(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Const(value) => Some(value.is_null()),
        _ => None,
    }
}
