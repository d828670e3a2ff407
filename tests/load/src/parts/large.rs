//! One large transaction.

use pg_proto::PgTimestamp;

use crate::drain::{Plan, Report};
use crate::drainer::Drainer;
use crate::measure::{count, say};
use crate::memory::{Peak, Watch};
use crate::outcome::{Outcome, Table, Target};
use crate::scale::Scale;
use crate::stage::{Stage, major};

const ABOUT: &str = "One transaction inserts all rows. One subscriber takes it in pieces before it commits (`streaming`, protocol version 4, \
    or 2 where the source has no later one), one takes it whole (version 1), both at the same fanout while it happens.";

const ROWS: u64 = 10_000_000;
const LIMIT_MB: f64 = 256.0;

pub(super) async fn run(scale: Scale) -> Outcome {
    let rows = scale.rows(ROWS);
    let mut stage = Stage::start(1).await;
    stage.create_decant_slots("large", 2).await;
    let mut streamed = Plan::new(stage.fanout(0), "large", "everything", 1);
    if major() >= 16 {
        streamed.proto_version = 4;
        "streaming 'parallel'".clone_into(&mut streamed.options);
    } else {
        streamed.proto_version = 2;
        "streaming 'on'".clone_into(&mut streamed.options);
    }
    let mut whole = Plan::new(stage.fanout(0), "large", "everything", 2);
    // The first slot is the other one's.
    whole.subscriptions.remove(0);
    let mut streamed = Drainer::connect(&streamed).await;
    let mut whole = Drainer::connect(&whole).await;
    streamed.go().await;
    whole.go().await;
    let ids = vec![
        stage.decant.decoder().id(),
        stage.decant.fanout(0).process().id(),
    ];
    let watch = Watch::start(ids);
    say(&format!("{rows} rows in one transaction"));
    let begin = PgTimestamp::now();
    let end = stage.fill(0, 0, rows, rows).await;
    let commit = PgTimestamp::now();
    let reports = [
        streamed.receive_until(end).await,
        whole.receive_until(end).await,
    ];
    for report in &reports {
        assert_eq!(report.rows, rows, "every row came once");
    }
    outcome(rows, (begin, commit), &reports, &watch.peaks())
}

fn outcome(
    rows: u64,
    (begin, commit): (PgTimestamp, PgTimestamp),
    [streamed, whole]: &[Report; 2],
    peaks: &[Peak],
) -> Outcome {
    let mut memory = Table::new(
        "Most memory",
        &["who", "resident, MB", "without mapped files, MB"],
    );
    let mut targets = Vec::new();
    for (who, peak) in ["decoder", "fanout"].into_iter().zip(peaks) {
        let resident = count(peak.resident) / 1e6;
        memory.row([
            who.into(),
            resident.into(),
            (count(peak.anonymous) / 1e6).into(),
        ]);
        let name = format!("{who}, resident");
        targets.push(Target::at_most(name, resident, LIMIT_MB, "MB"));
    }
    let mut times = Table::new(
        &format!("{rows} rows; seconds from the transaction's begin"),
        &["what", "s"],
    );
    times.row(["commit".into(), seconds(begin, commit).into()]);
    for (who, report) in [("streamed", streamed), ("whole", whole)] {
        let first = report
            .first_row_at
            .map_or(f64::NAN, |at| seconds(begin, PgTimestamp(at)));
        times.row([format!("first row, {who}").into(), first.into()]);
    }
    let early = streamed
        .first_row_at
        .map_or(f64::NAN, |at| seconds(PgTimestamp(at), commit));
    targets.push(Target::at_least(
        "first row at the streaming subscriber before the commit",
        early,
        0.0,
        "s",
    ));
    Outcome {
        about: ABOUT.to_owned(),
        tables: vec![memory, times],
        targets,
        ..Outcome::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a run takes minutes")]
fn seconds(from: PgTimestamp, to: PgTimestamp) -> f64 {
    (to.0 - from.0) as f64 / 1e6
}
