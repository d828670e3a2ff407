//! The secret between the source's triggers and the decoder, and the MAC that it makes.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::rand;

/// Length of a MAC in its hexadecimal form.
pub const MAC_HEX_LEN: usize = 64;

/// What proves that a message is Decant's. Debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret of the source.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A new one, for a source that has none. `None` if the system has no random numbers to give.
    #[must_use]
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).ok()?;
        Some(Self(hex(&bytes)))
    }

    /// The secret itself, to be stored.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// SHA-256 over the secret and what follows it, in hexadecimal: `encode(sha256(secret || body), 'hex')`.
    ///
    /// A hash of this form can be extended by who does not know the secret, but the extension begins with padding,
    /// and a body with that behind its JSON is refused.
    #[must_use]
    pub fn mac(&self, body: &[u8]) -> String {
        let mut context = Context::new(&SHA256);
        context.update(self.0.as_bytes());
        context.update(body);
        hex(context.finish().as_ref())
    }

    /// Whether `mac` is that of `body`; takes the same time whatever it is.
    #[must_use]
    pub fn verify(&self, mac: &[u8], body: &[u8]) -> bool {
        verify_slices_are_equal(self.mac(body).as_bytes(), mac).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_postgresql_computes() {
        // select encode(sha256(convert_to('secret' || '{"version": 1}', 'UTF8')), 'hex')
        let mac = Secret::new("secret").mac(br#"{"version": 1}"#);
        assert_eq!(
            mac,
            "7c725faf98a846e0a8ebd99a1a7202c855b5750f2e3ca20813eb99908fee37d3"
        );
        assert_eq!(mac.len(), MAC_HEX_LEN);
    }

    #[test]
    fn another_secret_body_or_mac_fails() {
        let secret = Secret::random().unwrap();
        let mac = secret.mac(b"body");
        assert!(secret.verify(mac.as_bytes(), b"body"));
        assert!(!secret.verify(mac.as_bytes(), b"Body"));
        assert!(!secret.verify(&mac.as_bytes()[1..], b"body"));
        assert!(!Secret::random().unwrap().verify(mac.as_bytes(), b"body"));
        assert!(!format!("{secret:?}").contains(secret.expose()));
    }
}
