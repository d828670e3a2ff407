//! Compiles the `.proto` files with protox, so that no protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "proto/decant/v1/control.proto",
        "proto/decant/v1/subscribe.proto",
    ];
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("decant.binpb"), prost_encode(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".decant.v1.Value")
        .bytes(".decant.v1.Change.raw")
        .bytes(".decant.v1.LogicalMessage.content")
        .compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}

fn prost_encode(descriptors: &impl prost::Message) -> Vec<u8> {
    descriptors.encode_to_vec()
}
