//! CASE, COALESCE, GREATEST and LEAST, ARRAY.

use super::nodes::{fold, kind};
use super::{CaseArgument, Compiler, Result, Typed, constness, postgres};
use crate::kind::Kind;
use crate::program::Expr;
use crate::tree::Node;
use crate::value::OwnedValue;

impl Compiler<'_> {
    pub(super) fn case_expr(&mut self, node: &Node<'_>) -> Result<Typed> {
        let result = kind(node.parse("casetype")?)?;
        let arg = match node.optional("arg")? {
            Some(arg) => Some(self.node(arg)?),
            None => None,
        };
        let around = self.case.take();
        self.case = arg.as_ref().map(|arg| CaseArgument {
            kind: arg.kind,
            constant: match &arg.expr {
                Expr::Const(value) => Some(value.clone()),
                _ => None,
            },
        });
        let typed = self.branches(node, arg.map(|arg| arg.expr), result);
        self.case = around;
        typed
    }

    /// Conditions that are never true vanish; one that always is ends the list.
    fn branches(&mut self, node: &Node<'_>, arg: Option<Expr>, result: Kind) -> Result<Typed> {
        let mut whens = Vec::new();
        let mut default = None;
        for when in node.nodes("args")? {
            let condition = self.boolean(when.node("expr")?)?;
            match condition {
                Expr::Const(OwnedValue::Bool(true)) => {
                    default = Some(self.of_kind(when.node("result")?, result)?);
                    break;
                }
                Expr::Const(_) => {}
                condition => {
                    whens.push((condition, self.of_kind(when.node("result")?, result)?));
                }
            }
        }
        let default = match (default, node.optional("defresult")?) {
            (Some(default), _) => default,
            (None, Some(default)) => self.of_kind(default, result)?,
            (None, None) => Expr::Const(OwnedValue::Null),
        };
        let expr = if whens.is_empty() {
            default
        } else {
            Expr::Case {
                arg: arg.map(Box::new),
                whens: whens.into(),
                default: Box::new(default),
            }
        };
        Ok(Typed { expr, kind: result })
    }

    fn of_kind(&mut self, node: &Node<'_>, kind: Kind) -> Result<Expr> {
        let typed = self.node(node)?;
        if typed.kind != kind {
            return Err(postgres(format!("a {} of another type", node.name)));
        }
        Ok(typed.expr)
    }

    /// Constant nulls vanish; a constant ends the list.
    pub(super) fn coalesce(&mut self, node: &Node<'_>) -> Result<Typed> {
        let result = kind(node.parse("coalescetype")?)?;
        let mut args = Vec::new();
        for arg in node.nodes("args")? {
            let arg = self.of_kind(arg, result)?;
            match constness(&arg) {
                Some(true) => {}
                Some(false) => {
                    args.push(arg);
                    break;
                }
                None => args.push(arg),
            }
        }
        let expr = match args.len() {
            0 => Expr::Const(OwnedValue::Null),
            1 => args.remove(0),
            _ => Expr::Coalesce(args.into()),
        };
        Ok(Typed { expr, kind: result })
    }

    pub(super) fn extreme(&mut self, node: &Node<'_>) -> Result<Typed> {
        let result = kind(node.parse("minmaxtype")?)?;
        let greatest = match node.word("op")? {
            "0" => true,
            "1" => false,
            other => return Err(postgres(format!("MINMAX operator {other}"))),
        };
        let base = self.ordered(result, node.parse("inputcollid")?)?;
        let args = node.nodes("args")?;
        let args = args.iter().map(|arg| self.of_kind(arg, result));
        let args: Box<[Expr]> = args.collect::<Result<_>>()?;
        let is_constant = args.iter().all(|arg| constness(arg).is_some());
        let expr = Expr::MinMax {
            base,
            greatest,
            args,
        };
        let expr = fold(expr, is_constant)?;
        Ok(Typed { expr, kind: result })
    }

    pub(super) fn array(&mut self, node: &Node<'_>) -> Result<Typed> {
        let result = kind(node.parse("array_typeid")?)?;
        if node.word("multidims")? != "false" || !result.array {
            return Err(postgres("an array of arrays"));
        }
        let elements = node.nodes("elements")?;
        let elements = elements
            .iter()
            .map(|element| self.of_kind(element, result.base.scalar()));
        let elements: Box<[Expr]> = elements.collect::<Result<_>>()?;
        let is_constant = elements.iter().all(|element| constness(element).is_some());
        let expr = fold(Expr::Array(elements), is_constant)?;
        Ok(Typed { expr, kind: result })
    }
}
