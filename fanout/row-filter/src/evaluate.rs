//! Evaluation, in the order and with the short cuts of PostgreSQL's executor.

use std::cell::Cell;
use std::cmp::Ordering;

use bumpalo::Bump;

use crate::column;
use crate::error::FilterError;
use crate::functions::compare::order_of;
use crate::functions::{Args, Function, Run};
use crate::kind::Base;
use crate::program::{Expr, Program, RowOperator};
use crate::types::array::Array;
use crate::value::{OwnedValue, Value};

/// A row as it stands in the log.
pub trait TupleView {
    /// A column's value. `index` is one into [`FilterSource::columns`](crate::FilterSource::columns).
    fn column(&self, index: usize) -> ColumnView<'_>;
}

/// A column's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnView<'a> {
    /// NULL.
    Null,
    /// The output function's text under datestyle ISO, intervalstyle postgres, extra_float_digits 1 or more,
    /// TimeZone UTC, bytea_output hex.
    Text(&'a [u8]),
    /// An unchanged TOASTed value whose old value is not known either. Reading it is an error.
    Unchanged,
}

/// Memory for intermediate values, kept from row to row.
#[derive(Debug, Default)]
pub struct Scratch {
    arena: Bump,
}

/// Memory that is kept after a row.
const KEPT_MAX: usize = 1 << 20;

impl Scratch {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty again, for the next row.
    pub(crate) fn begin(&mut self) -> &Bump {
        if self.arena.allocated_bytes() > KEPT_MAX {
            self.arena = Bump::new();
        } else {
            self.arena.reset();
        }
        &self.arena
    }
}

impl Program {
    /// What the filter says of a row: true, false or null. A row passes only if it is true.
    pub fn eval(&self, row: &dyn TupleView, scratch: &mut Scratch) -> Result<Option<bool>> {
        let arena = scratch.begin();
        let columns = arena.alloc_slice_fill_with(self.slots.len(), |_| Cell::new(None));
        let evaluation = Evaluation {
            program: self,
            row,
            arena,
            columns,
        };
        match evaluation.value(&self.root, Value::Null)? {
            Value::Null => Ok(None),
            Value::Bool(value) => Ok(Some(value)),
            _ => Err(FilterError::internal()),
        }
    }
}

/// What a constant expression is.
pub(crate) fn constant(expr: &Expr) -> Result<OwnedValue> {
    struct NoRow;
    impl TupleView for NoRow {
        fn column(&self, _: usize) -> ColumnView<'_> {
            ColumnView::Unchanged
        }
    }
    let arena = Bump::new();
    let program = Program {
        root: Expr::CaseTest,
        slots: Box::new([]),
        guard: None,
    };
    let evaluation = Evaluation {
        program: &program,
        row: &NoRow,
        arena: &arena,
        columns: &[],
    };
    evaluation.value(expr, Value::Null).map(OwnedValue::from)
}

struct Evaluation<'a> {
    program: &'a Program,
    row: &'a dyn TupleView,
    arena: &'a Bump,
    /// Columns that were read already.
    columns: &'a [Cell<Option<Value<'a>>>],
}

type Result<T> = std::result::Result<T, FilterError>;

impl<'a> Evaluation<'a> {
    fn value(&self, expr: &'a Expr, case: Value<'a>) -> Result<Value<'a>> {
        match expr {
            Expr::Column(slot) => self.column(*slot),
            Expr::Const(value) => Ok(value.get(self.arena)),
            Expr::CaseTest => Ok(case),
            Expr::Call {
                function,
                element,
                args,
            } => {
                let values = self.values(args, case)?;
                if values.iter().any(Value::is_null) {
                    return Ok(Value::Null);
                }
                (function.run)(self.args(values, *element))
            }
            Expr::And(args) => self.logic(args, case, false),
            Expr::Or(args) => self.logic(args, case, true),
            Expr::Not(arg) => Ok(match self.value(arg, case)? {
                Value::Bool(value) => Value::Bool(!value),
                other => other,
            }),
            Expr::Case {
                arg,
                whens,
                default,
            } => self.case(arg.as_deref(), whens, default, case),
            Expr::Coalesce(args) => self.coalesce(args, case),
            Expr::MinMax {
                base,
                greatest,
                args,
            } => self.extreme(*base, *greatest, args, case),
            Expr::NullIf { equal, args } => self.null_if(equal, args, case),
            Expr::Distinct { equal, args } => self.distinct(equal, args, case),
            Expr::NullTest { arg, is_null } => {
                let value = self.value(arg, case)?;
                Ok(Value::Bool(value.is_null() == *is_null))
            }
            Expr::BooleanTest { arg, test } => {
                let value = match self.value(arg, case)? {
                    Value::Bool(value) => Some(value),
                    _ => None,
                };
                Ok(Value::Bool((value == test.wanted) != test.not))
            }
            Expr::AnyAll {
                function,
                any,
                args,
            } => self.any_all(function.run, *any, args, case),
            Expr::RowCompare { operator, pairs } => self.rows(*operator, pairs, case),
            Expr::Opaque => Err(FilterError::internal()),
            Expr::Array(elements) => {
                let elements = self.values(elements, case)?;
                Array::of(elements, self.arena)
                    .map(Value::Array)
                    .ok_or_else(FilterError::internal)
            }
        }
    }

    fn coalesce(&self, args: &'a [Expr], case: Value<'a>) -> Result<Value<'a>> {
        for arg in args {
            let value = self.value(arg, case)?;
            if !value.is_null() {
                return Ok(value);
            }
        }
        Ok(Value::Null)
    }

    fn null_if(&self, equal: &Function, args: &'a [Expr; 2], case: Value<'a>) -> Result<Value<'a>> {
        let values = self.values(args, case)?;
        let first = values.first().copied().unwrap_or(Value::Null);
        if values.iter().any(Value::is_null) {
            return Ok(first);
        }
        let same = (equal.run)(self.args(values, Base::Any))?;
        Ok(match same {
            Value::Bool(true) => Value::Null,
            _ => first,
        })
    }

    fn distinct(
        &self,
        equal: &Function,
        args: &'a [Expr; 2],
        case: Value<'a>,
    ) -> Result<Value<'a>> {
        let values = self.values(args, case)?;
        let nulls = values.iter().filter(|value| value.is_null()).count();
        if nulls > 0 {
            return Ok(Value::Bool(nulls == 1));
        }
        let same = (equal.run)(self.args(values, Base::Any))?;
        Ok(Value::Bool(!matches!(same, Value::Bool(true))))
    }

    const fn args<'b>(&self, values: &'b [Value<'a>], element: Base) -> Args<'b, 'a> {
        Args {
            values,
            element,
            arena: self.arena,
        }
    }

    fn column(&self, slot: usize) -> Result<Value<'a>> {
        let (Some(cell), Some(slot)) = (self.columns.get(slot), self.program.slots.get(slot))
        else {
            return Err(FilterError::internal());
        };
        if let Some(value) = cell.get() {
            return Ok(value);
        }
        let value = match self.row.column(slot.index) {
            ColumnView::Null => Value::Null,
            ColumnView::Text(text) => column::parse(slot.kind, text, self.arena)?,
            ColumnView::Unchanged => return Err(FilterError::unchanged()),
        };
        cell.set(Some(value));
        Ok(value)
    }

    /// All arguments, in order, also behind one that is null.
    fn values(&self, args: &'a [Expr], case: Value<'a>) -> Result<&'a [Value<'a>]> {
        let values = self.arena.alloc_slice_fill_copy(args.len(), Value::Null);
        for (arg, value) in args.iter().zip(values.iter_mut()) {
            *value = self.value(arg, case)?;
        }
        Ok(values)
    }

    /// AND and OR: the first argument that decides ends it.
    fn logic(&self, args: &'a [Expr], case: Value<'a>, decides: bool) -> Result<Value<'a>> {
        let mut result = Value::Bool(!decides);
        for arg in args {
            match self.value(arg, case)? {
                Value::Bool(value) if value == decides => return Ok(Value::Bool(decides)),
                Value::Bool(_) => {}
                _ => result = Value::Null,
            }
        }
        Ok(result)
    }

    fn case(
        &self,
        arg: Option<&'a Expr>,
        whens: &'a [(Expr, Expr)],
        default: &'a Expr,
        outer: Value<'a>,
    ) -> Result<Value<'a>> {
        let case = match arg {
            Some(arg) => self.value(arg, outer)?,
            None => outer,
        };
        for (condition, result) in whens {
            if let Value::Bool(true) = self.value(condition, case)? {
                return self.value(result, case);
            }
        }
        self.value(default, case)
    }

    fn extreme(
        &self,
        base: Base,
        greatest: bool,
        args: &'a [Expr],
        case: Value<'a>,
    ) -> Result<Value<'a>> {
        let mut best = Value::Null;
        for value in self.values(args, case)? {
            if value.is_null() {
                continue;
            }
            let wanted = if greatest {
                Ordering::Greater
            } else {
                Ordering::Less
            };
            let better = best.is_null() || order_of(base, value, &best) == Some(wanted);
            if better {
                best = *value;
            }
        }
        Ok(best)
    }

    fn any_all(
        &self,
        run: Run,
        any: bool,
        args: &'a [Expr; 2],
        case: Value<'a>,
    ) -> Result<Value<'a>> {
        let [scalar, array] = args;
        let scalar = self.value(scalar, case)?;
        // A constant array is not spread out for each row.
        if let Expr::Const(OwnedValue::Array { elements, .. }) = array {
            let elements = elements.iter().map(|element| element.get(self.arena));
            return self.any_all_of(run, any, scalar, elements);
        }
        match self.value(array, case)? {
            Value::Array(array) => {
                self.any_all_of(run, any, scalar, array.elements.iter().copied())
            }
            Value::Null => Ok(Value::Null),
            _ => Err(FilterError::internal()),
        }
    }

    fn any_all_of(
        &self,
        run: Run,
        any: bool,
        scalar: Value<'a>,
        elements: impl ExactSizeIterator<Item = Value<'a>>,
    ) -> Result<Value<'a>> {
        let mut result = Value::Bool(!any);
        if elements.len() == 0 {
            return Ok(result);
        }
        if scalar.is_null() {
            return Ok(Value::Null);
        }
        for element in elements {
            if element.is_null() {
                result = Value::Null;
                continue;
            }
            match run(self.args(&[scalar, element], Base::Any))? {
                Value::Bool(value) if value == any => return Ok(Value::Bool(any)),
                Value::Bool(_) => {}
                _ => result = Value::Null,
            }
        }
        Ok(result)
    }

    /// Pairs are evaluated up to the first that is not equal, or that holds a null.
    fn rows(
        &self,
        operator: RowOperator,
        pairs: &'a [(Base, Expr, Expr)],
        case: Value<'a>,
    ) -> Result<Value<'a>> {
        let mut order = Ordering::Equal;
        for (base, left, right) in pairs {
            let (left, right) = (self.value(left, case)?, self.value(right, case)?);
            if left.is_null() || right.is_null() {
                return Ok(Value::Null);
            }
            order = order_of(*base, &left, &right).ok_or_else(FilterError::internal)?;
            if order.is_ne() {
                break;
            }
        }
        Ok(Value::Bool(match operator {
            RowOperator::Less => order.is_lt(),
            RowOperator::LessOrEqual => order.is_le(),
            RowOperator::GreaterOrEqual => order.is_ge(),
            RowOperator::Greater => order.is_gt(),
        }))
    }
}
