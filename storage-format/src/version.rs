//! Versions of the on-disk format.

/// The version that this build writes, and the only one it reads. See "Version history" in `FORMAT.md`.
pub const FORMAT_VERSION: u16 = 1;
