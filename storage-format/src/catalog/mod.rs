//! What the source's relations, types and publications are as of a position.
//!
//! # Versions
//!
//! A [`Catalog`] is an immutable version, shared by `Arc`; its parts are shared between versions too, so that
//! a version costs little more than what changed. The log holds the whole catalog at the start of every segment
//! and each change in its place in commit order; [`Catalog::apply`] makes the next version from a change.
//! A record that says what is known already is no new version: the `Arc` stays the same, and `Arc::ptr_eq` of a
//! part tells cheaply whether it is still the same.
//!
//! Publications count for changes by the changes' own positions, so a version also has those that were in force before,
//! for transactions that were open then: [`Definitions`].
//!
//! A publication of Decant's own may also count from a position that was there before it: [`OwnVersions`], beside the log.
//!
//! # Format
//!
//! A relation and a type are stored as the RELATION and TYPE message of the source, publications and server
//! parameters in a form of their own, described in `FORMAT.md`. A snapshot is a sequence of such records; applied
//! to an empty catalog they give it back.

mod codec;
mod definitions;
mod described;
mod in_force;
mod merge;
mod own;
mod parameters;
mod publication;
mod relation;
mod state;
mod version;
mod versions;
mod versions_file;

pub use definitions::{Definition, Definitions, PublicationsRecord};
pub use described::{Attribute, Collation, DatabaseFacts, DescribedRelation, Generated};
pub use in_force::OwnTimeline;
pub use own::OwnNote;
pub use parameters::ServerParameters;
pub use publication::{
    Publication, PublicationActions, PublicationTable, RowFilterText, encode_publications,
};
pub use relation::{ColumnSchema, RelationSchema, TypeName};
pub use state::PublicationState;
pub use version::{Catalog, CatalogError};
pub use versions::{OwnVersion, OwnVersions};
pub use versions_file::{OWN_VERSIONS_FILE, read_own_versions, write_own_versions};
