//! The form in which a body is stored.

use std::io;

use crate::block::{Codec, Packer, Sections};

/// Brings one body after the other into the form that is stored, in the same memory.
pub(super) struct BodyStore {
    compressor: zstd::bulk::Compressor<'static>,
    packer: Packer,
    plain: Vec<u8>,
    compressed: Vec<u8>,
}

impl BodyStore {
    pub(super) fn new(zstd_level: i32) -> io::Result<Self> {
        Ok(Self {
            compressor: zstd::bulk::Compressor::new(zstd_level)?,
            packer: Packer::default(),
            plain: Vec::new(),
            compressed: Vec::new(),
        })
    }

    /// As columns, if they give back the same bytes, and compressed, if that is shorter.
    pub(super) fn store(&mut self, sections: [&[u8]; 3]) -> io::Result<(Codec, &[u8])> {
        let (codec, content) = match self.packer.pack(Sections::of_parts(sections)) {
            Some(packed) => (Codec::Columns, packed),
            None => (Codec::Zstd, joined(&mut self.plain, sections)),
        };
        self.compressed.clear();
        self.compressed
            .reserve(zstd::zstd_safe::compress_bound(content.len()));
        self.compressor
            .compress_to_buffer(content, &mut self.compressed)?;
        if self.compressed.len() < sections.iter().map(|section| section.len()).sum() {
            return Ok((codec, &self.compressed));
        }
        Ok((Codec::Raw, joined(&mut self.plain, sections)))
    }
}

fn joined<'a>(plain: &'a mut Vec<u8>, sections: [&[u8]; 3]) -> &'a [u8] {
    plain.clear();
    for section in sections {
        plain.extend_from_slice(section);
    }
    plain
}
