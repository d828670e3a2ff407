//! Functions and operators.

use super::nodes::{fold, kind};
use super::{BOOL, Compiler, Result, Stop, Typed, constness, postgres};
use crate::functions::{Function, Needs, constants, find};
use crate::kind::{Base, Kind};
use crate::program::{Expr, RowOperator};
use crate::tree::Node;
use crate::value::OwnedValue;

/// The first OID that is not built in (`FirstNormalObjectId`). A collation from there on may be nondeterministic.
const FIRST_NORMAL: u32 = 16_384;

impl Compiler<'_> {
    pub(super) fn operator(&mut self, node: &Node<'_>) -> Result<Typed> {
        self.call(node, "opfuncid", "opresulttype")
    }

    pub(super) fn function(&mut self, node: &Node<'_>) -> Result<Typed> {
        self.call(node, "funcid", "funcresulttype")
    }

    fn call(&mut self, node: &Node<'_>, id: &'static str, result: &'static str) -> Result<Typed> {
        let result = kind(node.parse(result)?)?;
        let function = self.find(node, id)?;
        let mut args = self.args(&node.nodes("args")?)?;
        let kinds: Vec<Kind> = args.iter().map(|arg| arg.kind).collect();
        check_signature(function, &kinds, result)?;
        check_collated(node, &kinds)?;
        let constness: Vec<Option<bool>> = args.iter().map(|arg| constness(&arg.expr)).collect();
        if constness.contains(&Some(true)) {
            let expr = Expr::Const(OwnedValue::Null);
            return Ok(Typed { expr, kind: result });
        }
        put_constants(function, &mut args)?;
        let element = kinds.iter().find(|kind| kind.array);
        let call = Expr::Call {
            function,
            element: element.map_or(Base::Any, |kind| kind.base),
            args: args.into_iter().map(|arg| arg.expr).collect(),
        };
        let expr = fold(call, constness.iter().all(Option::is_some))?;
        Ok(Typed { expr, kind: result })
    }

    /// A function of the tables, if its result does not depend on what is not known.
    fn find(&self, node: &Node<'_>, id: &'static str) -> Result<&'static Function> {
        let oid: u32 = node.parse(id)?;
        let collation: u32 = node.parse("inputcollid")?;
        self.known(oid, collation)
    }

    fn known(&self, oid: u32, collation: u32) -> Result<&'static Function> {
        let mut reason = format!("function {oid} is not evaluated here");
        for function in find(oid) {
            match self.check_needs(function.needs, collation, function.source) {
                Ok(()) => return Ok(function),
                Err(Stop::Postgres(why)) => reason = why,
                Err(stop) => return Err(stop),
            }
        }
        Err(postgres(reason))
    }

    fn check_needs(&self, needs: Needs, collation: u32, what: &str) -> Result<()> {
        let known = self.source.is_some_and(|source| match needs {
            Needs::Nothing => collation < FIRST_NORMAL,
            Needs::ByteOrder => source.environment.by_bytes(collation),
            Needs::AsciiCase => source.environment.ascii_case(collation),
            Needs::Before18 => source.environment.major.is_some_and(|major| major < 18),
            Needs::From18 => source.environment.major.is_some_and(|major| major >= 18),
        });
        if known {
            return Ok(());
        }
        if matches!(needs, Needs::Before18 | Needs::From18) {
            return Err(postgres(format!("{what} depends on the server's version")));
        }
        Err(postgres(format!("{what} depends on collation {collation}")))
    }

    fn args(&mut self, nodes: &[&Node<'_>]) -> Result<Vec<Typed>> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    /// Both arguments of an equality operator, and the function.
    fn pair(&mut self, node: &Node<'_>) -> Result<(&'static Function, [Typed; 2])> {
        let equal = self.find(node, "opfuncid")?;
        let args = self.args(&node.nodes("args")?)?;
        let Ok(args) = <[Typed; 2]>::try_from(args) else {
            return Err(postgres("an operator without two arguments"));
        };
        let kinds = [args[0].kind, args[1].kind];
        check_signature(equal, &kinds, BOOL)?;
        check_collated(node, &kinds)?;
        if equal.args.iter().any(|kind| kind.array) {
            return Err(postgres("distinctness of arrays"));
        }
        Ok((equal, args))
    }

    pub(super) fn distinct(&mut self, node: &Node<'_>) -> Result<Typed> {
        let (equal, args) = self.pair(node)?;
        let is_constant = args.iter().all(|arg| constness(&arg.expr).is_some());
        let args = Box::new(args.map(|arg| arg.expr));
        let expr = fold(Expr::Distinct { equal, args }, is_constant)?;
        Ok(Typed { expr, kind: BOOL })
    }

    pub(super) fn null_if(&mut self, node: &Node<'_>) -> Result<Typed> {
        let result = kind(node.parse("opresulttype")?)?;
        let (equal, args) = self.pair(node)?;
        if args[0].kind != result {
            return Err(postgres("NULLIF of another type"));
        }
        let constants = [constness(&args[0].expr), constness(&args[1].expr)];
        // Whether the other argument is looked at differs between versions.
        if constants.contains(&Some(true)) && constants.contains(&None) {
            return Err(postgres("NULLIF with a constant null"));
        }
        let args = Box::new(args.map(|arg| arg.expr));
        let is_constant = constants.iter().all(Option::is_some);
        let expr = fold(Expr::NullIf { equal, args }, is_constant)?;
        Ok(Typed { expr, kind: result })
    }

    pub(super) fn any_all(&mut self, node: &Node<'_>) -> Result<Typed> {
        let function = self.find(node, "opfuncid")?;
        let any = node.word("useOr")? == "true";
        let args = self.args(&node.nodes("args")?)?;
        let Ok(args) = <[Typed; 2]>::try_from(args) else {
            return Err(postgres("ANY without two arguments"));
        };
        if !args[1].kind.array {
            return Err(postgres("ANY of what is no array"));
        }
        let kinds = [args[0].kind, args[1].kind.base.scalar()];
        check_signature(function, &kinds, BOOL)?;
        check_collated(node, &kinds)?;
        if !constants::wanted_of(function).is_empty() {
            return Err(postgres(format!("{} with ANY or ALL", function.source)));
        }
        let is_constant = args.iter().all(|arg| constness(&arg.expr).is_some());
        let args = Box::new(args.map(|arg| arg.expr));
        let call = Expr::AnyAll {
            function,
            any,
            args,
        };
        let expr = fold(call, is_constant)?;
        Ok(Typed { expr, kind: BOOL })
    }

    pub(super) fn row_compare(&mut self, node: &Node<'_>) -> Result<Typed> {
        // PostgreSQL 18 has another name for the same numbers.
        let operator = if node.get("cmptype").is_some() {
            node.word("cmptype")?
        } else {
            node.word("rctype")?
        };
        let operator = match operator {
            "1" => RowOperator::Less,
            "2" => RowOperator::LessOrEqual,
            "4" => RowOperator::GreaterOrEqual,
            "5" => RowOperator::Greater,
            other => return Err(postgres(format!("row comparison {other}"))),
        };
        let collations = node.oids("inputcollids")?;
        let left = self.args(&node.nodes("largs")?)?;
        let right = self.args(&node.nodes("rargs")?)?;
        if left.len() != right.len() || left.len() != collations.len() {
            return Err(postgres("rows of different lengths"));
        }
        let mut pairs = Vec::new();
        for ((left, right), collation) in left.into_iter().zip(right).zip(collations) {
            let base = self.ordered(left.kind, collation)?;
            if !comparable(left.kind, right.kind) {
                return Err(postgres("rows of different types"));
            }
            pairs.push((base, left.expr, right.expr));
        }
        let pairs = pairs.into();
        let expr = Expr::RowCompare { operator, pairs };
        Ok(Typed { expr, kind: BOOL })
    }

    /// The base of a kind whose order is known.
    pub(super) fn ordered(&self, kind: Kind, collation: u32) -> Result<Base> {
        let without = matches!(kind.base, Base::Jsonb | Base::Xid | Base::Any);
        if kind.array || without {
            return Err(postgres(format!("order of type {:?}", kind.base)));
        }
        if matches!(kind.base, Base::Text | Base::Bpchar | Base::Name) {
            self.check_needs(Needs::ByteOrder, collation, "order of text")?;
        }
        Ok(kind.base)
    }
}

/// Text of two collations of which neither goes before the other: PostgreSQL raises an error at each row.
fn check_collated(node: &Node<'_>, kinds: &[Kind]) -> Result<()> {
    let is_text = |kind: &Kind| matches!(kind.base, Base::Text | Base::Bpchar | Base::Name);
    if kinds.iter().any(is_text) && node.parse::<u32>("inputcollid")? == 0 {
        return Err(postgres("text of two collations"));
    }
    Ok(())
}

/// Makes sure that a function is computed here for its constants, and gives it them as it wants them.
fn put_constants(function: &'static Function, args: &mut [Typed]) -> Result<()> {
    let given: Vec<Option<&OwnedValue>> = args
        .iter()
        .map(|arg| match &arg.expr {
            Expr::Const(value) => Some(value),
            _ => None,
        })
        .collect();
    if !constants::are_computed(function, &given) {
        let source = function.source;
        return Err(postgres(format!(
            "{source} is evaluated here for certain constants only"
        )));
    }
    for (at, arg) in args.iter_mut().enumerate() {
        if let Expr::Const(value) = &mut arg.expr
            && let Some(other) = constants::replacement(function, at, value)
        {
            *value = other;
        }
    }
    Ok(())
}

/// Whether values of two kinds have one order as they are.
fn comparable(left: Kind, right: Kind) -> bool {
    let group = |kind: Kind| match kind.base {
        Base::Int2 | Base::Int4 | Base::Int8 => Base::Int8,
        Base::Float4 | Base::Float8 => Base::Float8,
        base => base,
    };
    group(left) == group(right) && left.array == right.array
}

fn check_signature(function: &Function, kinds: &[Kind], result: Kind) -> Result<()> {
    let count = kinds.len() == function.args.len();
    let fits = kinds
        .iter()
        .zip(function.args)
        .all(|(kind, wanted)| kind.fits(*wanted));
    let arrays = kinds.iter().zip(function.args);
    let mut elements = arrays
        .filter(|(_, wanted)| wanted.base == Base::Any)
        .map(|(kind, _)| kind.base);
    let first = elements.next();
    let alike = elements.all(|base| Some(base) == first);
    if count && fits && alike && result == function.result {
        return Ok(());
    }
    Err(postgres(format!("{} of other types", function.source)))
}
