//! What a timeline history file says (`timeline.c`, the answer to `TIMELINE_HISTORY`).

use crate::Lsn;

/// Where `timeline` was left, by the history of a later one; `None` if it is not one of its ancestors.
///
/// A line is the number of a timeline, where it was left, and why, with a tab between them; other lines begin with `#`.
#[must_use]
pub fn left_timeline_at(history: &str, timeline: u32) -> Option<Lsn> {
    history.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let number: u32 = fields.next()?.parse().ok()?;
        let position: Lsn = fields.next()?.parse().ok()?;
        (number == timeline).then_some(position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_found_and_others_are_not() {
        let history =
            "# comment\n\n1\t0/300\tno recovery target specified\n\n2\t1/700\tbefore 2026\n";
        assert_eq!(left_timeline_at(history, 1), Some(Lsn(0x300)));
        assert_eq!(left_timeline_at(history, 2), Some(Lsn(0x1_0000_0700)));
        assert_eq!(left_timeline_at(history, 3), None);
        assert_eq!(left_timeline_at("1 x\n2\n", 1), None);
    }
}
