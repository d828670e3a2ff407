//! The texts of `sql/`, which see for what each does.

/// The publications as one JSON value, on version 14.
pub const STATE_14: &str = include_str!("../../sql/state_14.sql");
/// The publications as one JSON value, on version 15 and later.
pub const STATE_15: &str = include_str!("../../sql/state_15.sql");
/// What `decctl init` installs; see [`install_script`].
pub const INSTALL: &str = include_str!("../../sql/install.sql");
/// Takes it away.
pub const UNINSTALL: &str = include_str!("../../sql/uninstall.sql");

/// The line of [`INSTALL`] in whose place the state query goes.
const PLACEHOLDER: &str = "\n{{publication_state}}\n";

/// The query for the publications on a server of this `server_version_num`; its one column is of type jsonb.
#[must_use]
pub const fn state_query(server_version_num: u32) -> &'static str {
    if server_version_num < 150_000 {
        STATE_14
    } else {
        STATE_15
    }
}

/// The script to install on a server of this `server_version_num`, to be sent as one simple query.
#[must_use]
pub fn install_script(server_version_num: u32) -> String {
    let state = format!("\n{}", state_query(server_version_num));
    INSTALL.replacen(PLACEHOLDER, &state, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_query_in_its_place() {
        for (version, query) in [
            (140_005, STATE_14),
            (150_018, STATE_15),
            (180_004, STATE_15),
        ] {
            let script = install_script(version);
            assert!(!script.contains(PLACEHOLDER));
            assert!(script.contains(query));
        }
    }

    #[test]
    fn both_lists_of_tags_are_the_same() {
        let tags = |after: &str| -> Vec<&str> {
            let (_, rest) = INSTALL.split_once(after).unwrap();
            let list = rest.split(&[')', ']']).next().unwrap();
            list.split(',').map(str::trim).collect()
        };
        assert_eq!(tags("SELECT ARRAY["), tags("WHEN TAG IN ("));
    }
}
