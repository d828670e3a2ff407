//! Leaves, and what is decided by the kind of node alone.

use bumpalo::Bump;

use super::{BOOL, CaseArgument, Compiler, Result, Stop, Typed, constness, opaque, postgres};
use crate::datum;
use crate::evaluate::constant;
use crate::kind::{Base, Kind};
use crate::program::{BooleanTest, Expr, Slot};
use crate::tree::{Item, Node};
use crate::value::OwnedValue;

impl Compiler<'_> {
    pub(super) fn node(&mut self, node: &Node<'_>) -> Result<Typed> {
        match node.name {
            "VAR" => self.column(node),
            "CONST" => constant_value(node),
            "CASETESTEXPR" => self.case_test(node),
            "BOOLEXPR" => self.bool_expr(node),
            "OPEXPR" => self.operator(node),
            "FUNCEXPR" => self.function(node),
            "DISTINCTEXPR" => self.distinct(node),
            "NULLIFEXPR" => self.null_if(node),
            "SCALARARRAYOPEXPR" => self.any_all(node),
            "ROWCOMPAREEXPR" => self.row_compare(node),
            "CASEEXPR" | "CASE" => self.case_expr(node),
            "COALESCEEXPR" | "COALESCE" => self.coalesce(node),
            "MINMAXEXPR" | "MINMAX" => self.extreme(node),
            "ARRAYEXPR" | "ARRAY" => self.array(node),
            "NULLTEST" => self.null_test(node),
            "BOOLEANTEST" => self.boolean_test(node),
            "RELABELTYPE" => self.relabel(node),
            "COLLATEEXPR" | "COLLATE" => self.node(node.node("arg")?),
            other => Err(postgres(format!("{other} is not evaluated here"))),
        }
    }

    fn column(&mut self, node: &Node<'_>) -> Result<Typed> {
        let attribute: i16 = node.parse("varattno")?;
        let type_oid: u32 = node.parse("vartype")?;
        let level: u32 = node.parse("varlevelsup")?;
        let kind = kind(type_oid)?;
        let columns = self.source.map_or(&[][..], |source| source.columns);
        let index = columns
            .iter()
            .position(|column| column.attribute == attribute)
            .filter(|_| level == 0)
            .ok_or_else(|| postgres(format!("column number {attribute} is not known")))?;
        if columns
            .get(index)
            .is_none_or(|column| column.type_oid != type_oid)
        {
            return Err(postgres(format!(
                "column number {attribute} is of another type now"
            )));
        }
        self.check_encoding(kind)?;
        let slot = Slot { index, kind };
        let known = self.slots.iter().position(|one| *one == slot);
        let place = known.unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        Ok(Typed {
            expr: Expr::Column(place),
            kind,
        })
    }

    /// Text is in UTF-8 in the log, and in the database's encoding in constants and in PostgreSQL's functions.
    pub(super) fn check_encoding(&self, kind: Kind) -> Result<()> {
        let utf8 = self.source.is_some_and(|source| source.environment.utf8);
        let textual = matches!(
            kind.base,
            Base::Text | Base::Bpchar | Base::Name | Base::Char | Base::Jsonb
        );
        if textual && !utf8 {
            return Err(postgres("text in a database whose encoding is not UTF8"));
        }
        Ok(())
    }

    fn case_test(&self, node: &Node<'_>) -> Result<Typed> {
        let kind = kind(node.parse("typeId")?)?;
        match &self.case {
            Some(CaseArgument {
                kind: known,
                constant,
            }) if *known == kind => Ok(Typed {
                expr: constant.clone().map_or(Expr::CaseTest, Expr::Const),
                kind,
            }),
            _ => Err(postgres("CASETESTEXPR outside of a CASE of its type")),
        }
    }

    fn bool_expr(&mut self, node: &Node<'_>) -> Result<Typed> {
        let args = node.nodes("args")?;
        let expr = match node.word("boolop")? {
            "and" => self.logic(&args, false)?,
            "or" => self.logic(&args, true)?,
            "not" => {
                let [arg] = args.as_slice() else {
                    return Err(postgres("NOT of several"));
                };
                match self.boolean(arg)? {
                    Expr::Const(OwnedValue::Bool(value)) => Expr::Const(OwnedValue::Bool(!value)),
                    Expr::Const(_) => Expr::Const(OwnedValue::Null),
                    arg => Expr::Not(Box::new(arg)),
                }
            }
            other => return Err(postgres(format!("boolean operator {other}"))),
        };
        Ok(Typed { expr, kind: BOOL })
    }

    /// AND, or OR if `decides`. Constants that decide nothing vanish; one that decides ends the matter, and what
    /// stands behind it is not even looked at.
    pub(super) fn logic(&mut self, args: &[&Node<'_>], decides: bool) -> Result<Expr> {
        let mut kept = Vec::new();
        let mut null = false;
        for arg in args {
            match self.argument(arg)? {
                Expr::Const(OwnedValue::Bool(value)) if value == decides => {
                    return Ok(Expr::Const(OwnedValue::Bool(decides)));
                }
                Expr::Const(OwnedValue::Bool(_)) => {}
                Expr::Const(_) => null = true,
                arg => kept.push(arg),
            }
        }
        if null {
            kept.push(Expr::Const(OwnedValue::Null));
        }
        Ok(match kept.len() {
            0 => Expr::Const(OwnedValue::Bool(!decides)),
            1 => kept.remove(0),
            _ if decides => Expr::Or(kept.into()),
            _ => Expr::And(kept.into()),
        })
    }

    fn argument(&mut self, arg: &Node<'_>) -> Result<Expr> {
        match self.boolean(arg) {
            Err(Stop::Postgres(_)) if self.in_part && opaque::is_prepared_quietly(arg) => {
                Ok(Expr::Opaque)
            }
            result => result,
        }
    }

    fn null_test(&mut self, node: &Node<'_>) -> Result<Typed> {
        if node.word("argisrow")? != "false" {
            return Err(postgres("a row IS NULL"));
        }
        let is_null = match node.word("nulltesttype")? {
            "0" => true,
            "1" => false,
            other => return Err(postgres(format!("null test {other}"))),
        };
        let arg = self.node(node.node("arg")?)?.expr;
        let expr = match constness(&arg) {
            Some(null) => Expr::Const(OwnedValue::Bool(null == is_null)),
            None => Expr::NullTest {
                arg: Box::new(arg),
                is_null,
            },
        };
        Ok(Typed { expr, kind: BOOL })
    }

    fn boolean_test(&mut self, node: &Node<'_>) -> Result<Typed> {
        let (wanted, not) = match node.word("booltesttype")? {
            "0" => (Some(true), false),
            "1" => (Some(true), true),
            "2" => (Some(false), false),
            "3" => (Some(false), true),
            "4" => (None, false),
            "5" => (None, true),
            other => return Err(postgres(format!("boolean test {other}"))),
        };
        let arg = Box::new(self.boolean(node.node("arg")?)?);
        let is_constant = constness(&arg).is_some();
        let test = BooleanTest { wanted, not };
        fold(Expr::BooleanTest { arg, test }, is_constant).map(|expr| Typed { expr, kind: BOOL })
    }

    /// A type under another name that has the same bytes.
    fn relabel(&mut self, node: &Node<'_>) -> Result<Typed> {
        let kind = kind(node.parse("resulttype")?)?;
        let arg = self.node(node.node("arg")?)?;
        let same_bytes = arg.kind == kind
            || matches!(
                (arg.kind.base, kind.base),
                (Base::Text, Base::Bpchar) | (Base::Bpchar, Base::Text)
            ) && !kind.array
                && !arg.kind.array;
        if same_bytes {
            return Ok(Typed {
                expr: arg.expr,
                kind,
            });
        }
        Err(postgres(format!(
            "a value of type {:?} taken as {:?}",
            arg.kind.base, kind.base
        )))
    }
}

/// The kind of a type, or that there is none.
pub(super) fn kind(type_oid: u32) -> Result<Kind> {
    Kind::of(type_oid).ok_or_else(|| postgres(format!("type {type_oid} is not evaluated here")))
}

fn constant_value(node: &Node<'_>) -> Result<Typed> {
    let type_oid = node.parse("consttype")?;
    let kind = kind(type_oid)?;
    if node.word("constisnull")? == "true" {
        let expr = Expr::Const(OwnedValue::Null);
        return Ok(Typed { expr, kind });
    }
    let arena = Bump::new();
    let value = match node.get("constvalue") {
        Some(Item::Datum(bytes)) => datum::decode(kind, bytes, &arena).map(OwnedValue::from),
        _ => None,
    };
    let value = value.ok_or_else(|| postgres(format!("a constant of type {type_oid}")))?;
    let expr = Expr::Const(value);
    Ok(Typed { expr, kind })
}

/// The value in place of an expression, if all of it is constant.
pub(super) fn fold(expr: Expr, is_constant: bool) -> Result<Expr> {
    if is_constant {
        return Ok(Expr::Const(constant(&expr)?));
    }
    Ok(expr)
}
