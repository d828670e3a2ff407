//! Blocks: the unit of checksum, compression, skipping and reading. See "Block" in `FORMAT.md`.

mod body;
mod builder;
mod columns;
mod commit;
mod decompress;
mod encode;
mod entry;
mod flags;
mod frame;
mod header;
mod kind;
mod merge;
mod open;
mod prepared;
mod relations;
mod stored;
mod view;

pub(crate) use body::{Record, Sections, raw_body};
pub use builder::BlockBuilder;
pub(crate) use columns::Packer;
pub use commit::CommitAt;
pub(crate) use encode::Placement;
pub use entry::{ENTRY_LEN, Entry, FRAME_HEAD_LEN, NO_RELATION};
pub use flags::BlockFlags;
pub use header::{
    BLOCK_HEADER_LEN, BlockHeader, DecodedHeader, HeaderError, RAW_LEN_MAX, RELATIONS_MAX,
};
pub use kind::{BlockKind, Codec};
pub use open::{BuildError, OpenTransaction};
pub use view::{Block, Entries};

#[cfg(test)]
mod tests;
