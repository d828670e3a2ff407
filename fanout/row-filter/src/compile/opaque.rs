//! Conditions that PostgreSQL evaluates beside others that are evaluated here.

use crate::tree::{Item, Node};

/// Whether PostgreSQL prepares a condition without computing any part of it, so that it can't fail before it is
/// evaluated on a row. It computes functions whose arguments are all constants; here each one has an argument that is
/// none, since it holds a column, and since nothing is let in that makes a constant of what holds a column
/// (`CASE`, `COALESCE`, `AND`, a null as an argument).
pub(super) fn is_prepared_quietly(node: &Node<'_>) -> bool {
    depends_on_row(node) == Some(true)
}

/// Whether it is other than a constant; `None` if that is not certain.
fn depends_on_row(node: &Node<'_>) -> Option<bool> {
    let children = |fields: &[&'static str]| -> Option<bool> {
        let mut depends = false;
        for field in fields {
            match node.get(field)? {
                Item::Node(child) => depends |= depends_on_row(child)?,
                Item::List(items) => {
                    for item in items {
                        let Item::Node(child) = item else {
                            return None;
                        };
                        depends |= depends_on_row(child)?;
                    }
                }
                _ => return None,
            }
        }
        Some(depends)
    };
    match node.name {
        "VAR" => Some(true),
        "CONST" => (node.word("constisnull").ok()? == "false").then_some(false),
        // All of them constant: computed beforehand, and may fail then.
        "OPEXPR" | "FUNCEXPR" | "SCALARARRAYOPEXPR" | "DISTINCTEXPR" => {
            children(&["args"]).filter(|depends| *depends)
        }
        "RELABELTYPE" | "COLLATEEXPR" | "COLLATE" => children(&["arg"]),
        _ => None,
    }
}
