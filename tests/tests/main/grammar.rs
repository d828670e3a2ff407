//! Every replication command, right and wrong, to a walsender of PostgreSQL and to a fanout: the answers are the same.

use bytes::{Buf, Bytes};
use tests::Session;
use tests::sql::{Endpoint, parse_error};

use super::stage::Stage;

const TABLE: &str = "create table t (id int primary key, v text)";

/// One after the other on one connection. Slots are left that later ones find. Not among them: `proto_version` and
/// `publication_names` without a value, at which PostgreSQL itself crashes.
const COMMANDS: &str = "
IDENTIFY_SYSTEM
IDENTIFY_SYSTEM;
  IDENTIFY_SYSTEM ;
IDENTIFY_SYSTEM x
IDENTIFY_SYSTEM;;
identify_system
/* c */ IDENTIFY_SYSTEM
select 1; IDENTIFY_SYSTEM
SHOW
SHOW wal_level
SHOW WAL_LEVEL;
SHOW nonsense
SHOW a.b
SHOW 'wal_level'
show wal_level
SHOW server_version
SHOW data_directory_mode
TIMELINE_HISTORY 0
TIMELINE_HISTORY x
TIMELINE_HISTORY
TIMELINE_HISTORY 99
CREATE_REPLICATION_SLOT
CREATE_REPLICATION_SLOT a
CREATE_REPLICATION_SLOT a LOGICAL
CREATE_REPLICATION_SLOT LOGICAL pgoutput
CREATE_REPLICATION_SLOT 'a' LOGICAL pgoutput
CREATE_REPLICATION_SLOT a LOGICAL 'pgoutput'
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT x
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT NOEXPORT_SNAPSHOT
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT USE_SNAPSHOT
CREATE_REPLICATION_SLOT a LOGICAL pgoutput RESERVE_WAL
CREATE_REPLICATION_SLOT a LOGICAL pgoutput FAILOVER NOEXPORT_SNAPSHOT
CREATE_REPLICATION_SLOT a LOGICAL pgoutput USE_SNAPSHOT
CREATE_REPLICATION_SLOT a LOGICAL pgoutput ()
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT)
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 1)
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 'foo')
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 'NOTHING')
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 'nothing', SNAPSHOT 'nothing')
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 'nothing', TWO_PHASE, TWO_PHASE false)
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (TWO_PHASE 'maybe')
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (TWO_PHASE 2)
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (RESERVE_WAL)
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (FAILOVER 'x')
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (BAD 'x')
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (\"Bad\" x)
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 'nothing'
CREATE_REPLICATION_SLOT a LOGICAL pgoutput (SNAPSHOT 'nothing'),
CREATE_REPLICATION_SLOT \"Bad\" LOGICAL pgoutput (SNAPSHOT 'nothing')
CREATE_REPLICATION_SLOT \"\" LOGICAL pgoutput (SNAPSHOT 'nothing')
CREATE_REPLICATION_SLOT \"a b\" LOGICAL pgoutput (SNAPSHOT 'nothing')
CREATE_REPLICATION_SLOT \"unterminated LOGICAL pgoutput
CREATE_REPLICATION_SLOT a LOGICAL nosuchplugin (SNAPSHOT 'nothing')
CREATE_REPLICATION_SLOT UPPER LOGICAL pgoutput NOEXPORT_SNAPSHOT
DROP_REPLICATION_SLOT upper
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT TWO_PHASE
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT
DROP_REPLICATION_SLOT a WAIT;
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT
CREATE_REPLICATION_SLOT a LOGICAL pgoutput NOEXPORT_SNAPSHOT
CREATE_REPLICATION_SLOT  b   LOGICAL pgoutput ( TWO_PHASE,  SNAPSHOT 'nothing')
CREATE_REPLICATION_SLOT c LOGICAL \"pgoutput\" (\"snapshot\" 'nothing', two_phase 0);
DROP_REPLICATION_SLOT b
DROP_REPLICATION_SLOT b
CREATE_REPLICATION_SLOT b LOGICAL pgoutput (FAILOVER, SNAPSHOT 'nothing')
READ_REPLICATION_SLOT
READ_REPLICATION_SLOT a
READ_REPLICATION_SLOT none;
READ_REPLICATION_SLOT 'a'
ALTER_REPLICATION_SLOT
ALTER_REPLICATION_SLOT a
ALTER_REPLICATION_SLOT a ()
ALTER_REPLICATION_SLOT a (FAILOVER true);
ALTER_REPLICATION_SLOT a ( FAILOVER true )
select failover, two_phase from pg_replication_slots where slot_name = 'a'
ALTER_REPLICATION_SLOT a (FAILOVER false, FAILOVER)
ALTER_REPLICATION_SLOT a (FAILOVER 'maybe')
ALTER_REPLICATION_SLOT a (TWO_PHASE)
ALTER_REPLICATION_SLOT a (TWO_PHASE false, FAILOVER false)
select failover, two_phase from pg_replication_slots where slot_name = 'a'
ALTER_REPLICATION_SLOT a (BAD)
ALTER_REPLICATION_SLOT none (FAILOVER)
DROP_REPLICATION_SLOT
DROP_REPLICATION_SLOT none
DROP_REPLICATION_SLOT none WAIT
DROP_REPLICATION_SLOT a NOWAIT
DROP_REPLICATION_SLOT c, a
START_REPLICATION
START_REPLICATION SLOT a LOGICAL
START_REPLICATION SLOT a LOGICAL 0
START_REPLICATION SLOT a LOGICAL 0/0/0
START_REPLICATION SLOT a LOGICAL x/y
START_REPLICATION SLOT none LOGICAL 0/0
START_REPLICATION SLOT none LOGICAL 0/0 (proto_version '1', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0
START_REPLICATION SLOT a LOGICAL 0/0 ()
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version 1)
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version 'x', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '0', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '9', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '-1', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '99999999999', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'a b')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', proto_version '1', publication_names 'everything')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', bad 'x')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', binary '1')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', binary, binary)
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', messages 'yes')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', streaming 'on')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', streaming 'maybe')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '2', publication_names 'everything', streaming 'parallel')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '2', publication_names 'everything', two_phase 'on')
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything', origin 'foo')
BEGIN
START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1', publication_names 'everything')
IDENTIFY_SYSTEM
DROP_REPLICATION_SLOT c
ROLLBACK
BEGIN
IDENTIFY_SYSTEM
CREATE_REPLICATION_SLOT d LOGICAL pgoutput EXPORT_SNAPSHOT
ROLLBACK
BEGIN
CREATE_REPLICATION_SLOT d LOGICAL pgoutput USE_SNAPSHOT
ROLLBACK
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
select 1
CREATE_REPLICATION_SLOT d LOGICAL pgoutput USE_SNAPSHOT
ROLLBACK
select nonsense
select 1 as x, null::text as y
CREATE_REPLICATION_SLOT t TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT
select count(*) from pg_replication_slots where slot_name = 't'
DROP_REPLICATION_SLOT t
CREATE_REPLICATION_SLOT t TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT
select 1/0
DROP_REPLICATION_SLOT t
CREATE_REPLICATION_SLOT t TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT
DROP_REPLICATION_SLOT none
select count(*) from pg_replication_slots where slot_name = 't'
select slot_name, plugin, slot_type, database, temporary, active, two_phase from pg_replication_slots where slot_name in ('a', 'b', 'c') order by 1
DROP_REPLICATION_SLOT \"a\"
DROP_REPLICATION_SLOT b
DROP_REPLICATION_SLOT c
;
";

/// A message of an answer, without what can't be the same: positions and other values of rows.
fn shown(command: &str, (kind, body): (u8, Bytes)) -> String {
    match kind {
        b'E' | b'N' => {
            let error = parse_error(body);
            // PostgreSQL's own hints name its settings.
            let message = error.message.split("\nHINT").next().unwrap_or_default();
            format!("{} {} {message}", char::from(kind), error.code)
        }
        // A column here comes from no table.
        b'T' if command.contains("pg_replication_slots") => "T".to_owned(),
        b'D' if !command.contains("pg_replication_slots") => {
            let mut body = body;
            let nulls = (0..body.get_u16()).map(|_| {
                let length = body.get_i32();
                body.advance(usize::try_from(length).unwrap_or(0));
                length < 0
            });
            format!("D {:?}", nulls.collect::<Vec<_>>())
        }
        _ => format!("{} {}", char::from(kind), body.escape_ascii()),
    }
}

/// A session, opened anew when it was ended.
struct Walsender {
    endpoint: Endpoint,
    session: Session,
}

impl Walsender {
    async fn connect(endpoint: Endpoint) -> Self {
        let session = Session::connect_for_replication(&endpoint).await.unwrap();
        Self { endpoint, session }
    }

    async fn answer(&mut self, command: &str) -> Vec<String> {
        let messages = self.session.exchange(command).await.unwrap();
        let ended = !messages.iter().any(|(kind, _)| *kind == b'Z');
        // A setting that is reported once more says nothing new.
        let messages = messages.into_iter().filter(|(kind, _)| *kind != b'S');
        let mut shown: Vec<String> = messages.map(|message| shown(command, message)).collect();
        if ended {
            shown.push("the connection ends".to_owned());
            self.session = Session::connect_for_replication(&self.endpoint)
                .await
                .unwrap();
        }
        shown
    }
}

async fn compare(major: u32) {
    let mut stage = Stage::new(major, 1, TABLE).await;
    let mut native = Walsender::connect(stage.source.endpoint()).await;
    let mut fanout = Walsender::connect(stage.decant.fanout(0).endpoint()).await;
    let mut different = Vec::new();
    for command in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let expected = native.answer(command).await;
        let found = fanout.answer(command).await;
        if expected != found {
            different.push(format!(
                "{command}\n  at PostgreSQL {expected:#?}\n  here {found:#?}"
            ));
        }
    }
    assert!(different.is_empty(), "{major}:\n{}", different.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_15_are_answered_as_by_a_walsender() {
    compare(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_18_are_answered_as_by_a_walsender() {
    compare(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_other_versions_are_answered_as_by_a_walsender() {
    for major in [14, 16, 17] {
        compare(major).await;
    }
}
