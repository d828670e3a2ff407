//! The table at the end.

use tests::Session;
use tests::workload::{Contents, PGBENCH_TABLES, contents_of, rows_of};

use super::stage::Stage;

/// Prints what each subscriber has beside what the source has; whether all is equal.
pub(super) async fn print(stage: &mut Stage, one_slot: bool) -> bool {
    let source = contents(&mut stage.source.session().await).await;
    let postgres = contents(&mut stage.subscriber.cluster.session().await).await;
    let grpc: Vec<Contents> = stage.grpc.look(|seen| {
        let tables = PGBENCH_TABLES.iter();
        tables
            .map(|table| contents_of(table, &seen.model.rows(&format!("public.{table}"))))
            .collect()
    });
    println!(
        "\n{:<18} {:<28} {:<28} {:<28}",
        "table", "source", "PostgreSQL subscriber", "gRPC subscriber"
    );
    for ((source, postgres), grpc) in source.iter().zip(&postgres).zip(&grpc) {
        println!(
            "{:<18} {:<28} {:<28} {:<28}",
            source.table,
            cell(source),
            cell(postgres),
            cell(grpc)
        );
    }
    let equal = source == postgres && source == grpc;
    sizes(stage).await;
    println!(
        "{:<44} {}",
        "slots on the source",
        if one_slot {
            "1 throughout"
        } else {
            "NOT always 1"
        }
    );
    println!(
        "{:<44} {}",
        "contents",
        if equal { "identical" } else { "DIFFERENT" }
    );
    equal && one_slot
}

fn cell(contents: &Contents) -> String {
    format!("{:>7} rows {}", contents.rows, contents.checksum)
}

async fn contents(session: &mut Session) -> Vec<Contents> {
    let mut all = Vec::new();
    for table in PGBENCH_TABLES {
        all.push(contents_of(table, &rows_of(session, table).await));
    }
    all
}

async fn sizes(stage: &mut Stage) {
    let end = stage.source.flush_lsn().await;
    let wal = end.bytes_since(stage.begin);
    let status = stage.decant.status().await;
    let log = status.log.unwrap_or_default();
    let received = stage.grpc.look(|seen| seen.position);
    println!();
    println!(
        "{:<44} {}",
        "lag of the gRPC subscriber",
        format_args!("{} B", end.bytes_since(received))
    );
    println!(
        "{:<44} {}",
        "transactions, changes in the log",
        format_args!("{}, {}", log.transactions, log.changes)
    );
    println!("{:<44} {}", "bytes of WAL", wal);
    println!("{:<44} {}", "bytes of log", log.bytes);
}
