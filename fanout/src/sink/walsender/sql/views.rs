//! The rows of the views that are about this endpoint, as JSON for the source to read.

use pg_proto::Lsn;
use pg_proto::wire::ErrorFields;
use proto::v1::SlotStatus;
use serde_json::{Value, json};

use super::super::session::Session;
use super::hidden::{literal, set};
use super::names::View;
use super::publications;
use crate::subscriber::{Protocol, Subscriber};

/// Stands for the number of the database, which the source knows.
const DATABASE: &str = "\"the number of the database\"";

impl Session<'_> {
    /// A statement that puts the rows of now into the session's setting at the source.
    pub(super) async fn rows_of(&self, view: View) -> Result<String, ErrorFields> {
        Ok(match view {
            View::Slots => {
                let rows = Value::Array(self.slot_rows().await?).to_string();
                let (rows, place) = (literal(&ascii(&rows)), literal(DATABASE));
                let database = literal(&self.source.database);
                format!(
                    "SELECT pg_catalog.set_config('{}', pg_catalog.replace({rows}, {place}, (SELECT \
                     oid::pg_catalog.text FROM pg_catalog.pg_database WHERE datname = {database})), false)",
                    view.setting()
                )
            }
            View::Senders => {
                let shown = |all| literal(&ascii(&Value::Array(self.sender_rows(all)).to_string()));
                format!(
                    "SELECT pg_catalog.set_config('{}', CASE WHEN pg_catalog.pg_has_role('pg_read_all_stats', \
                     'USAGE') THEN {} ELSE {} END, false)",
                    view.setting(),
                    shown(true),
                    shown(false)
                )
            }
            View::SlotStatistics => {
                let rows = Value::Array(self.statistics_rows().await?).to_string();
                set(view.setting(), &ascii(&rows))
            }
            View::Publications => {
                let catalog = self.shared.services.replay.catalog();
                let catalog = catalog
                    .map_err(|error| ErrorFields::error(error.sqlstate(), error.to_string()))?;
                let definitions = publications::definitions(&catalog);
                set(view.setting(), definitions.as_deref().unwrap_or("[]"))
            }
        })
    }

    async fn slots(&self) -> Result<Vec<SlotStatus>, ErrorFields> {
        let slots = self.shared.services.positions.list_slots().await;
        slots.map_err(|error| self.slot_error(&error))
    }

    async fn slot_rows(&self) -> Result<Vec<Value>, ErrorFields> {
        let slots = self.slots().await?;
        Ok(slots.iter().map(|slot| self.slot_row(slot)).collect())
    }

    fn slot_row(&self, slot: &SlotStatus) -> Value {
        let lost = !slot.invalidation_reason.is_empty();
        // What the registry knows of other fanouts, it knows of this one too, but for a moment after the decoder's start.
        let here = self.shared.backends.streaming(&slot.name);
        json!({
            "slot_name": slot.name,
            "plugin": slot.plugin,
            "slot_type": "logical",
            "datoid": DATABASE.trim_matches('"'),
            "database": self.source.database,
            "temporary": slot.temporary,
            "active": !slot.holder.is_empty(),
            "active_pid": here.or((slot.holder_pid != 0).then_some(slot.holder_pid)),
            "xmin": null,
            // Nothing of a slot here holds back the source.
            "catalog_xmin": null,
            "restart_lsn": (!lost).then(|| Lsn(slot.restart_lsn).to_string()),
            "confirmed_flush_lsn": Lsn(slot.confirmed_lsn).to_string(),
            "wal_status": if lost { "lost" } else { "reserved" },
            "safe_wal_size": null,
            "two_phase": slot.two_phase,
            "two_phase_at": (slot.two_phase_at != 0).then(|| Lsn(slot.two_phase_at).to_string()),
            "inactive_since": null,
            "conflicting": false,
            "invalidation_reason": lost.then_some(&slot.invalidation_reason),
            "failover": slot.failover,
            "synced": false,
        })
    }

    /// The walsenders of this fanout. Without `all`, of those of other users only the number, as PostgreSQL does.
    fn sender_rows(&self, all: bool) -> Vec<Value> {
        let connected = self.shared.services.subscribers.connected();
        let own = connected
            .iter()
            .filter(|subscriber| subscriber.info().protocol == Protocol::Postgresql);
        own.map(|subscriber| self.sender_row(subscriber, all))
            .collect()
    }

    fn sender_row(&self, subscriber: &Subscriber, all: bool) -> Value {
        let info = subscriber.info();
        let slot = info.slot.as_deref().unwrap_or_default();
        let pid = self.shared.backends.streaming(slot);
        if !all && info.user != self.login.user {
            return json!({ "pid": pid });
        }
        let head = self.shared.services.replay.head();
        let status = subscriber.status(head);
        let peer = info.peer.parse::<std::net::SocketAddr>().ok();
        let position = |lsn: u64| (lsn != 0).then(|| Lsn(lsn).to_string());
        json!({
            "pid": pid,
            "usename": info.user,
            "application_name": info.application_name,
            "client_addr": peer.map(|peer| peer.ip().to_string()),
            "client_port": peer.map(|peer| peer.port()),
            "backend_start": time(status.connected_at),
            "state": if status.sent_lsn >= head.0 { "streaming" } else { "catchup" },
            "sent_lsn": position(status.sent_lsn),
            "write_lsn": position(status.write_lsn),
            "flush_lsn": position(status.flush_lsn),
            "replay_lsn": position(status.apply_lsn),
            "sync_priority": 0,
            "sync_state": "async",
        })
    }

    /// Nothing is spilled or streamed early for a slot here. What was sent is counted for connections, not for slots.
    async fn statistics_rows(&self) -> Result<Vec<Value>, ErrorFields> {
        let slots = self.slots().await?;
        let row = |slot: SlotStatus| {
            json!({
                "slot_name": slot.name,
                "spill_txns": 0, "spill_count": 0, "spill_bytes": 0,
                "stream_txns": 0, "stream_count": 0, "stream_bytes": 0,
                "total_txns": null, "total_bytes": null, "stats_reset": null,
            })
        };
        Ok(slots.into_iter().map(row).collect())
    }
}

/// As `pg_clean_ascii`: the session's encoding may not have the character.
fn ascii(text: &str) -> String {
    let clean = |c: char| if c.is_ascii() { c } else { '?' };
    text.chars().map(clean).collect()
}

/// A time as every session reads it, whatever its settings.
fn time(unix_micros: i64) -> String {
    const DAY: i64 = 86_400;
    let seconds = unix_micros.div_euclid(1_000_000);
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let micros = unix_micros.rem_euclid(1_000_000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}+00")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years begin in March here, so that
/// the leap day is the last one.
const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00.000000+00"),
            (951_782_400, "2000-02-29 00:00:00.000000+00"),
            (1_735_689_599, "2024-12-31 23:59:59.000000+00"),
            (-1, "1969-12-31 23:59:59.000000+00"),
        ] {
            assert_eq!(time(seconds * 1_000_000), text);
        }
    }

    #[test]
    fn characters_that_an_encoding_may_lack_are_replaced() {
        assert_eq!(ascii("sub \u{fc} 1"), "sub ? 1");
    }
}
