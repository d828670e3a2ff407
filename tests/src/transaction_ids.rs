//! Servers whose transaction ids are about to wrap around.

use crate::cluster::{Cluster, Stop, give_to_server};
use crate::process::run_successfully;

/// Next ids, each less than half of all ahead of the one before, so that what was frozen before stays in the past. The
/// last one is near the end.
const STEPS: [u32; 3] = [2_000_000_000, 4_000_000_000, u32::MAX - 800];
/// Transactions in a file of their states, and its bytes.
const FILE: (u32, usize) = (1 << 20, 256 << 10);

impl Cluster {
    /// Has a new server's next transaction id be one near the end of the 32-bit ids.
    pub async fn move_near_wraparound(&mut self) {
        self.sql("update pg_database set datallowconn = true").await;
        for next in STEPS {
            for database in ["postgres", "template0", "template1"] {
                let mut endpoint = self.endpoint();
                database.clone_into(&mut endpoint.database);
                let mut session = crate::Session::connect(&endpoint)
                    .await
                    .unwrap_or_else(|error| panic!("{database}: {error}"));
                session.run("vacuum freeze").await;
            }
            self.stop(Stop::Fast).await;
            let mut reset = self.program("pg_resetwal");
            reset.args(["-x", &next.to_string(), "-D"]).arg(self.data());
            run_successfully(&mut reset);
            let file = self.data().join(format!("pg_xact/{:04X}", next / FILE.0));
            std::fs::write(&file, vec![0; FILE.1]).expect("the folder can be written");
            give_to_server(&file);
            self.start().await;
        }
    }
}
