//! The gRPC contract between the decoder, fanouts, `decctl` and subscribers: the `.proto` files in
//! `proto/decant/v1` and what is generated from them.

pub mod status;

/// Package `decant.v1`.
#[expect(
    missing_docs,
    clippy::clone_on_ref_ptr,
    clippy::too_many_lines,
    reason = "generated code; the documentation is in the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("decant.v1");
}

/// The compiled descriptors, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/decant.binpb"));
