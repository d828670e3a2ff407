//! Which relations of a TRUNCATE are sent (`pgoutput_truncate`).

use std::sync::Arc;

use pg_proto::Oid;
use pg_proto::pgoutput::Truncate;

use super::emitter::Emitter;
use crate::error::StreamError;
use crate::selection::Actions;

/// The relations of a TRUNCATE that are sent, in order.
///
/// Partitions that are published via their root are left out, and the root is sent in their place. The log has no
/// partitioned tables in TRUNCATE, since its own publication publishes partitions: that the statement named the root is
/// concluded from its having all of the root's partitions.
pub(super) fn relations(
    emitter: &mut Emitter,
    truncate: &Truncate<'_>,
) -> Result<Vec<Oid>, StreamError> {
    let mut roots = roots(emitter, truncate)?;
    let mut sent: Vec<Oid> = Vec::new();
    for oid in truncate.relations() {
        // PostgreSQL lists a partitioned table level by level, the partitions of one by their OIDs.
        let place = place(emitter, oid);
        roots.retain(|root| {
            let before = root.top == place.top && *root < place;
            sent.extend(before.then_some(root.oid));
            !before
        });
        if published_as(emitter, oid)? == Some(oid) {
            sent.push(oid);
        }
    }
    Ok(sent)
}

/// Where a relation stands among those of its partition tree.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    top: Oid,
    level: usize,
    /// From the top.
    path: Vec<Oid>,
    oid: Oid,
}

fn place(emitter: &Emitter, oid: Oid) -> Place {
    let described = emitter.view.publication_state().relation(oid);
    let ancestors = described.map_or(&[][..], |one| &one.ancestors);
    Place {
        top: ancestors.last().copied().unwrap_or(oid),
        level: ancestors.len(),
        path: ancestors.iter().rev().copied().collect(),
        oid,
    }
}

/// The partitioned tables that are sent, in the order of their places.
fn roots(emitter: &mut Emitter, truncate: &Truncate<'_>) -> Result<Vec<Place>, StreamError> {
    let mut roots = Vec::new();
    for leaf in truncate.relations() {
        let root = match published_as(emitter, leaf)? {
            Some(root) if root != leaf => root,
            _ => continue,
        };
        let listed = |leaf| truncate.relations().any(|one| one == leaf);
        if !roots.iter().any(|known: &Place| known.oid == root)
            && emitter.selection.has_all_leaves(root, listed)
            && published_as(emitter, root)? == Some(root)
        {
            roots.push(place(emitter, root));
        }
    }
    roots.sort_unstable();
    Ok(roots)
}

/// As which relation a relation's TRUNCATE is published; `None`: it is not.
fn published_as(emitter: &mut Emitter, oid: Oid) -> Result<Option<Oid>, StreamError> {
    let decision = emitter.selection.decide(oid, &emitter.view);
    if decision.passes.contains(Actions::TRUNCATE) {
        let shape = decision.shape.as_ref();
        return Ok(Some(shape.map_or(oid, |shape| shape.relation)));
    }
    match &decision.refusal {
        Some(refusal) if decision.refused.contains(Actions::TRUNCATE) => {
            Err(StreamError::Refused(Arc::clone(refusal)))
        }
        _ => Ok(None),
    }
}
