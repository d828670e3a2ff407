//! The text of the commands that go to the source.

use std::fmt::Write as _;

use pg_proto::Lsn;
pub(crate) use pg_proto::quote::{identifier, literal};

/// A text as a string of the replication grammar, which knows no escapes but the doubled quote.
fn replication_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `START_REPLICATION` as Decant uses it: values as text, in-progress transactions streamed, logical messages too.
///
/// Protocol 2 is what every supported version has. A slot that was created for two-phase commit needs 3. With 4, which
/// servers have from 16 on, they tell where and when something was rolled back.
pub(crate) fn start_replication(
    slot: &str,
    start: Lsn,
    publication: &str,
    protocol: u32,
    two_phase: bool,
) -> String {
    let mut text = format!(
        "START_REPLICATION SLOT {} LOGICAL {start} (",
        identifier(slot)
    );
    let mut options = vec![
        ("proto_version", protocol.to_string()),
        ("publication_names", identifier(publication)),
        (
            "streaming",
            if protocol >= 4 { "parallel" } else { "on" }.to_owned(),
        ),
        ("messages", "true".to_owned()),
        ("binary", "false".to_owned()),
    ];
    if two_phase {
        options.push(("two_phase", "true".to_owned()));
    }
    for (index, (name, value)) in options.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{name} {}", replication_string(value));
    }
    text.push(')');
    text
}

/// Version of the pgoutput protocol that is asked for.
pub(crate) const fn protocol_version(server_version_num: u32, two_phase: bool) -> u32 {
    match (server_version_num, two_phase) {
        (160_000.., _) => 4,
        (_, true) => 3,
        (_, false) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_users_choose() {
        assert_eq!(
            start_replication("de\"cant", Lsn(0x1_0000_0002), "it's", 2, false),
            "START_REPLICATION SLOT \"de\"\"cant\" LOGICAL 1/2 (proto_version '2', publication_names '\"it''s\"', \
             streaming 'on', messages 'true', binary 'false')"
        );
        let protocol = protocol_version(150_018, true);
        let two_phase = start_replication("s", Lsn(1), "p", protocol, true);
        assert!(two_phase.contains("proto_version '3'"));
        let newer = start_replication("s", Lsn(1), "p", protocol_version(160_000, false), false);
        assert!(newer.contains("proto_version '4'") && newer.contains("streaming 'parallel'"));
        assert!(two_phase.ends_with(", two_phase 'true')"));
    }
}
