//! TLS and passwords at a fanout's PostgreSQL endpoint, with real clients.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use tempfile::TempDir;
use tests::cluster::Stop;
use tests::decant::text_of;
use tests::expect::assert_mentions;
use tests::postgres::client;
use tests::process::run;
use tests::scale::patience;
use tests::sql::Endpoint;
use tests::subscriber::{PostgresSubscriber, RecvLogical};
use tests::{Cluster, wait_until};

use super::stage::{PUBLICATION, Stage};

const TABLE: &str = "create table t (id int primary key, v text)";

/// An authority, and a certificate of it for this host.
const CERTIFICATES: &str = "
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt
chmod 600 server.key
";

/// Lets the fixed role in without a password and all others with one.
const HBA: &str = "
local all             all                   trust
host  all,replication postgres 127.0.0.1/32 trust
host  all             all      127.0.0.1/32 scram-sha-256
";

/// What everybody may read, also the servers of other users.
fn readable_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

/// A source that asks for passwords, and a fanout in front of it that does too.
pub(super) struct Guarded {
    pub(super) stage: Stage,
    files: TempDir,
}

impl Guarded {
    /// `tls` is the setting. carol's password at the source is known to the fanout, dave's is not.
    pub(super) async fn new(tls: &str) -> Self {
        let files = readable_folder();
        let hba = files.path().join("hba");
        std::fs::write(&hba, HBA).unwrap();
        let settings = [("hba_file", hba.to_str().unwrap())];
        let sql = "create role carol login replication password 'secret of carol'; \
                   create role dave login replication password 'secret of dave'; \
                   create role erin login password 'secret of erin';";
        let stage = Stage::with_settings(15, &settings, 0, &format!("{TABLE}; {sql}")).await;
        let made = run(Command::new("sh")
            .args(["-e", "-c", CERTIFICATES])
            .current_dir(files.path()));
        assert!(made.status.success(), "{}", text_of(&made));
        let mut guarded = Self { stage, files };
        guarded.write_users().await;
        let decant = &mut guarded.stage.decant;
        for (key, name) in [
            ("users_file", "users"),
            ("tls_cert_file", "server.crt"),
            ("tls_key_file", "server.key"),
        ] {
            let path = guarded.files.path().join(name);
            decant.set(&format!("fanout.{key}"), path.display());
        }
        decant.set("fanout.tls", tls);
        decant.start_fanout().await;
        guarded
    }

    /// The verifiers as the source has them.
    async fn write_users(&self) {
        let sql = "select format('\"%s\" \"%s\" %s', rolname, rolpassword, \
                   case rolname when 'carol' then '\"secret of carol\"' end) \
                   from pg_authid where rolpassword is not null";
        let rows = self.stage.source.sql(sql).await;
        let lines: Vec<String> = rows
            .into_iter()
            .filter_map(|mut row| row.remove(0))
            .collect();
        std::fs::write(self.path("users"), lines.join("\n")).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The fanout for a user with these parameters.
    pub(super) fn endpoint(&mut self, user: &str, parameters: &str) -> Endpoint {
        let mut endpoint = self.stage.decant.fanout(0).endpoint();
        endpoint.user = user.to_owned();
        let root = self.path("ca.crt");
        endpoint.parameters = format!(
            "password='secret of {user}' sslrootcert={} {parameters}",
            root.display()
        );
        endpoint
    }
}

fn psql(endpoint: &Endpoint, sql: &str) -> Output {
    let mut command = client("psql");
    command.args(["-X", "-w", "-A", "-t", "-c", sql, "-d"]);
    run(command.arg(format!("{} replication=database", endpoint.conninfo())))
}

fn psql_successfully(endpoint: &Endpoint, sql: &str) -> String {
    let output = psql(endpoint, sql);
    assert!(output.status.success(), "{}", text_of(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn assert_refused(endpoint: &Endpoint, words: &[&str]) {
    let output = psql(endpoint, "IDENTIFY_SYSTEM");
    assert!(!output.status.success(), "{}", text_of(&output));
    assert_mentions(&text_of(&output), words);
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_in_all_its_modes() {
    let mut guarded = Guarded::new("allow").await;
    for parameters in [
        "sslmode=disable",
        "sslmode=disable channel_binding=disable",
        "sslmode=prefer",
        "sslmode=require channel_binding=require",
        "sslmode=require channel_binding=disable",
        "sslmode=verify-ca",
        "sslmode=verify-full channel_binding=require",
        "sslmode=verify-full host=localhost ssl_min_protocol_version=TLSv1.3",
        "sslmode=verify-full ssl_max_protocol_version=TLSv1.2 channel_binding=require",
    ] {
        let endpoint = guarded.endpoint("carol", parameters);
        let identity = psql_successfully(&endpoint, "IDENTIFY_SYSTEM");
        assert!(identity.ends_with("|postgres"), "{parameters}: {identity}");
    }
    let unbound = guarded.endpoint("carol", "sslmode=disable channel_binding=require");
    assert_refused(&unbound, &["channel binding"]);
    for user in ["carol", "nobody"] {
        for mode in ["disable", "require"] {
            let parameters = format!("sslmode={mode} password=wrong");
            let words = format!("password authentication failed for user \"{user}\"");
            assert_refused(&guarded.endpoint(user, &parameters), &[&words]);
        }
    }
    let nothing = guarded.endpoint("carol", "password=''");
    assert_refused(&nothing, &["no password supplied"]);
}

/// The rights and the password at the source are the client's own.
#[tokio::test(flavor = "multi_thread")]
async fn sql_goes_to_the_source_with_the_password_that_is_known_for_it() {
    let mut guarded = Guarded::new("require").await;
    let carol = guarded.endpoint("carol", "sslmode=verify-full");
    assert_eq!(psql_successfully(&carol, "select current_user"), "carol");
    let denied = psql(&carol, "select * from t");
    assert_mentions(&text_of(&denied), &["permission denied for table t"]);

    let dave = guarded.endpoint("dave", "sslmode=verify-full");
    psql_successfully(&dave, "IDENTIFY_SYSTEM");
    let refused = psql(&dave, "select current_user");
    let words = [
        "password authentication failed",
        "\"dave\"",
        "third field",
        "users_file",
    ];
    assert_mentions(&text_of(&refused), &words);

    let plain = guarded.endpoint("carol", "sslmode=disable");
    assert_refused(
        &plain,
        &["no pg_hba.conf entry", "\"carol\"", "no encryption"],
    );
    let users = std::fs::read_to_string(guarded.path("users")).unwrap();
    std::fs::write(
        guarded.path("users"),
        users.replace("secret of carol", "old"),
    )
    .unwrap();
    hang_up(&mut guarded).await;
    let refused = psql(&carol, "select current_user");
    assert_mentions(
        &text_of(&refused),
        &["password authentication failed", "third field"],
    );
}

/// Has the fanout read its files again.
async fn hang_up(guarded: &mut Guarded) {
    let process = guarded.stage.decant.fanout(0).process();
    process.signal(Signal::HUP);
    wait_until("the files are read again", patience(), async || {
        let log = process.log_text();
        if log.contains("read again") {
            Ok(())
        } else {
            Err("nothing in the log".to_owned())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_and_pg_recvlogical_over_tls() {
    let mut guarded = Guarded::new("require").await;
    let parameters = "sslmode=verify-full channel_binding=require";
    let endpoint = guarded.endpoint("carol", parameters);
    let home = readable_folder();
    let recv = RecvLogical::create(&endpoint, "recv", PUBLICATION, home.path());
    let subscriber = PostgresSubscriber::start_new(15).await;
    subscriber.cluster.sql(TABLE).await;
    subscribe(&subscriber, &endpoint).await;

    let source = &guarded.stage.source;
    source
        .sql("insert into t select i, repeat('x', 1000) from generate_series(1, 20000) i")
        .await;
    source.sql("insert into t values (0, 'last')").await;
    let end = guarded.stage.settle().await;
    let source = &guarded.stage.source;
    recv.receive_until(end, patience()).await;
    assert!(recv.received().len() > 20_000_000);
    subscriber
        .wait_for_contents(source, &["t"], patience())
        .await;

    // The worker of a subscription logs in again by itself.
    subscriber_survives(&mut guarded, subscriber).await;
    recv.drop_slot();
}

/// With a password only: PostgreSQL does not let subscriptions of ordinary roles do without.
async fn subscribe(subscriber: &PostgresSubscriber, endpoint: &Endpoint) {
    let conninfo = endpoint.conninfo().replace('\'', "''");
    let sql = format!(
        "create subscription sub connection '{conninfo}' publication {PUBLICATION} \
         with (copy_data = false)"
    );
    subscriber.cluster.sql(&sql).await;
}

async fn subscriber_survives(guarded: &mut Guarded, mut subscriber: PostgresSubscriber) {
    let source = &guarded.stage.source;
    subscriber.cluster.stop(Stop::Fast).await;
    source.sql("insert into t values (-1, 'while away')").await;
    subscriber.cluster.start().await;
    subscriber
        .wait_for_contents(source, &["t"], patience())
        .await;
    subscriber.cluster.sql("drop subscription sub").await;
}

/// libpq of version 17 and later may begin with TLS at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_subscriber_begins_with_tls_at_once() {
    let mut guarded = Guarded::new("require").await;
    let direct = "sslmode=verify-full sslnegotiation=direct channel_binding=require";
    let endpoint = guarded.endpoint("carol", direct);
    let subscriber = PostgresSubscriber::start_new(18).await;
    subscriber.cluster.sql(TABLE).await;
    subscribe(&subscriber, &endpoint).await;
    let source = &guarded.stage.source;
    source.sql("insert into t values (1, 'direct')").await;
    subscriber
        .wait_for_contents(source, &["t"], patience())
        .await;
    subscriber.cluster.sql("drop subscription sub").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_used_stops_the_fanout_with_the_reason() {
    let source = Cluster::start_new(15).await;
    let mut decant = tests::Decant::new(&source);
    let number = decant.add_fanout();
    let missing = Path::new("/nonexistent/file").display().to_string();
    for (settings, words) in [
        (
            vec![("fanout.tls", "require".to_owned())],
            vec!["tls_cert_file", "tls_key_file"],
        ),
        (
            vec![
                ("fanout.tls", "disable".to_owned()),
                ("fanout.users_file", missing),
            ],
            vec!["/nonexistent/file", "users file"],
        ),
    ] {
        for (key, value) in settings {
            decant.set(key, value);
        }
        decant.spawn_fanout(number);
        let fanout = decant.fanout(number).process();
        let status = fanout.wait_for_exit(patience()).await;
        assert_eq!(status.code(), Some(1));
        assert_mentions(&fanout.log_text(), &words);
    }
}
