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

    /// The same at the primary, if the source may be a standby.
    #[must_use]
    pub fn primary_options(&self, application_name: &str) -> Option<ConnectOptions> {
        let primary = self.primary()?;
        Some(primary.connect_options(application_name))
    }

    /// The primary in the place of the source, if the source may be a standby.
    #[must_use]
    pub fn primary(&self) -> Option<Self> {
        if self.primary_host.is_empty() {
            return None;
        }
        let port = match self.primary_port {
            0 => self.port,
            port => port,
        };
        Some(Self {
            host: self.primary_host.clone(),
            port,
            primary_host: String::new(),
            primary_port: 0,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_differs_in_its_address_only() {
        let mut source = Source {
            host: "standby".to_owned(),
            port: 5433,
            user: "replicator".to_owned(),
            ..Source::default()
        };
        assert!(source.primary_options("x").is_none());
        source.primary_host = "primary".to_owned();
        let primary = source.primary().unwrap();
        assert_eq!((primary.host.as_str(), primary.port), ("primary", 5433));
        assert_eq!(primary.user, "replicator");
        source.primary_port = 5432;
        assert_eq!(source.primary_options("x").unwrap().port, 5432);
    }
}
