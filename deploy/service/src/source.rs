//! The configured source as a place to connect to. The decoder, the fanouts and `decctl` all begin here and set what is
//! theirs.

use std::time::Duration;

use pg_client::{ConnectOptions, Password};

use crate::config::{Source, SslMode};

impl From<SslMode> for pg_client::SslMode {
    fn from(mode: SslMode) -> Self {
        match mode {
            SslMode::Disable => Self::Disable,
            SslMode::Prefer => Self::Prefer,
            SslMode::Require => Self::Require,
            SslMode::VerifyCa => Self::VerifyCa,
            SslMode::VerifyFull => Self::VerifyFull,
        }
    }
}

impl Source {
    /// Where to connect, as the configured role.
    #[must_use]
    pub fn connect_options(&self, application_name: &str) -> ConnectOptions {
        let mut options = ConnectOptions::new(&self.host, self.port, &self.user);
        options.password = self.password.clone().map(Password::from);
        options.database = Some(self.database.clone());
        options.application_name = Some(application_name.to_owned());
        options.sslmode = self.sslmode.into();
        options.sslrootcert.clone_from(&self.sslrootcert);
        options.connect_timeout = Duration::from_millis(self.connect_timeout_ms);
        options
    }
}
