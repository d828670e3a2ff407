//! Each mistake with its message.

use super::*;
use crate::source::Severity;

fn facts() -> Facts {
    Facts {
        version: "15.4".to_owned(),
        version_num: 150_004,
        wal_level: "logical".to_owned(),
        in_recovery: false,
        system_identifier: 7,
        timeline: 1,
        flush_lsn: Lsn(0x900),
        server_encoding: "UTF8".to_owned(),
        wal_sender_timeout: Duration::from_secs(60),
        slot: Some(SlotFacts {
            plugin: Some("pgoutput".to_owned()),
            database: Some("postgres".to_owned()),
            temporary: false,
            active_pid: None,
            active_application: None,
            confirmed_flush: Some(Lsn(0x500)),
            invalidation: None,
            two_phase: false,
        }),
        publication: Some(PublicationFacts {
            via_root: false,
            partial: false,
        }),
    }
}

fn log(end: u64) -> LogEnd {
    LogEnd {
        identity: Identity {
            system_identifier: 7,
            timeline: 1,
            database: "postgres".to_owned(),
            slot: "decant".to_owned(),
            writer_epoch: 1,
        },
        end_lsn: Lsn(end),
    }
}

fn refused(change: impl FnOnce(&mut Facts), log: Option<&LogEnd>) -> String {
    refused_by(&Config::default(), change, log).to_string()
}

fn refused_by(
    config: &Config,
    change: impl FnOnce(&mut Facts),
    log: Option<&LogEnd>,
) -> SourceError {
    let mut facts = facts();
    change(&mut facts);
    let judged = check_cluster(&facts, config, log).and_then(|()| check(&facts, config, log));
    judged.unwrap_err()
}

fn refused_slot(change: impl FnOnce(&mut SlotFacts)) -> String {
    refused(
        |facts| change(facts.slot.as_mut().unwrap()),
        Some(&log(0x700)),
    )
}

#[test]
fn a_source_in_order_is_accepted() {
    let config = Config::default();
    check(&facts(), &config, None).unwrap();
    check(&facts(), &config, Some(&log(0x500))).unwrap();
    check(&facts(), &config, Some(&log(0x900))).unwrap();
}

#[test]
fn servers_that_cannot_decode_are_refused() {
    assert!(refused(|facts| facts.version_num = 130_012, None).contains("version 14"));
    let text = refused(|facts| facts.wal_level = "replica".to_owned(), None);
    assert!(text.contains("wal_level = logical"), "{text}");
    assert!(refused(|facts| facts.in_recovery = true, None).contains("primary"));
}

#[test]
fn a_standby_needs_a_primary_and_may_have_to_catch_up() {
    let standby = |facts: &mut Facts| {
        facts.in_recovery = true;
        facts.version_num = 160_004;
    };
    assert!(refused(standby, None).contains("source.primary_host"));
    let mut config = Config::default();
    config.source.primary_host = "primary".to_owned();
    let mut later = log(0x901);
    later.identity.timeline = 2;
    for log in [log(0x901), later] {
        let error = refused_by(&config, standby, Some(&log));
        assert_eq!(error.severity(), Severity::Transient);
        let text = error.to_string();
        assert!(text.contains("0/900") && text.contains("0/901"), "{text}");
    }
}

#[test]
fn what_keeps_a_slot_valid_is_said() {
    for (reason, setting) in [
        ("rows_removed", "hot_standby_feedback"),
        ("conflict with recovery", "primary_slot_name"),
        ("wal_level_insufficient", "wal_level"),
        ("idle_timeout", "idle_replication_slot_timeout"),
        ("wal_removed", "max_slot_wal_keep_size"),
    ] {
        let text = refused_slot(|slot| slot.invalidation = Some(reason.to_owned()));
        assert!(text.contains(reason) && text.contains(setting), "{text}");
    }
}

#[test]
fn another_or_an_older_source_is_refused_with_both_positions() {
    let text = refused(|facts| facts.system_identifier = 8, Some(&log(0x700)));
    assert!(text.contains('8') && text.contains('7'), "{text}");
    let text = refused(|_| {}, Some(&log(0x901)));
    assert!(text.contains("0/900") && text.contains("0/901"), "{text}");
    let mut other = log(0x700);
    other.identity.database = "shop".to_owned();
    assert!(refused(|_| {}, Some(&other)).contains("source.database"));
}

#[test]
fn slots_that_lost_something_are_refused_with_both_positions() {
    let text = refused(|facts| facts.slot = None, Some(&log(0x700)));
    assert!(
        text.contains("0/700") && text.contains("decctl init"),
        "{text}"
    );
    let text = refused_slot(|slot| slot.confirmed_flush = Some(Lsn(0x701)));
    assert!(text.contains("0/701") && text.contains("0/700"), "{text}");
    let text = refused_slot(|slot| slot.invalidation = Some("wal_removed".to_owned()));
    assert!(
        text.contains("wal_removed") && text.contains("0/700"),
        "{text}"
    );
}

#[test]
fn slots_of_another_kind_are_refused() {
    assert!(refused_slot(|slot| slot.plugin = Some("wal2json".to_owned())).contains("wal2json"));
    assert!(refused_slot(|slot| slot.plugin = None).contains("physical"));
    assert!(refused_slot(|slot| slot.database = Some("shop".to_owned())).contains("shop"));
    assert!(refused_slot(|slot| slot.temporary = true).contains("temporary"));
    assert!(refused_slot(|slot| slot.confirmed_flush = None).contains("never finished"));
}

#[test]
fn an_active_slot_is_named_with_its_user() {
    let text = refused_slot(|slot| {
        slot.active_pid = Some("4711".to_owned());
        slot.active_application = Some("other".to_owned());
    });
    assert!(text.contains("4711") && text.contains("other"), "{text}");
}

#[test]
fn publications_that_hide_changes_are_refused() {
    assert!(refused(|facts| facts.publication = None, None).contains("decctl init"));
    let hides = |via_root, partial| {
        refused(
            |facts| facts.publication = Some(PublicationFacts { via_root, partial }),
            None,
        )
    };
    assert!(hides(true, false).contains("publish_via_partition_root"));
    assert!(hides(false, true).contains("row filter"));
}

#[test]
fn a_promotion_behind_the_logs_end_is_no_fork() {
    let history =
        "1\t0/300\tno recovery target specified\n2\t0/700\tno recovery target specified\n";
    let mut facts = facts();
    facts.timeline = 3;
    let mut log = log(0x700);
    log.identity.timeline = 2;
    check_timeline(&facts, &log, history).unwrap();
    log.end_lsn = Lsn(0x701);
    let text = check_timeline(&facts, &log, history)
        .unwrap_err()
        .to_string();
    assert!(text.contains("0/701") && text.contains("0/700"), "{text}");
    log.identity.timeline = 5;
    assert!(check_timeline(&facts, &log, history).is_err());
}
