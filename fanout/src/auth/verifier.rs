//! What is stored in the place of a password: PostgreSQL's `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`
//! (`pg_authid.rolpassword`). With it a server can check a password and prove itself, but not log in anywhere.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Length of a SHA-256 hash.
pub(super) const KEY_LEN: usize = 32;

/// A hash of SHA-256.
pub(super) type Key = [u8; KEY_LEN];

const SCHEME: &str = "SCRAM-SHA-256";

/// A password's verifier. Debug output does not show the keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

/// A text that is no verifier. It may be a password, so it is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVerifier {
    /// The older kind of stored password.
    #[error("is an MD5 hash, not a SCRAM-SHA-256 verifier")]
    Md5,
    /// Something else, perhaps the password itself.
    #[error(
        "is not a SCRAM-SHA-256 verifier, SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>"
    )]
    Other,
}

impl FromStr for Verifier {
    type Err = InvalidVerifier;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_md5 = text.len() == 35
            && text.starts_with("md5")
            && text[3..].bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_md5 {
            return Err(InvalidVerifier::Md5);
        }
        parse(text).ok_or(InvalidVerifier::Other)
    }
}

fn parse(text: &str) -> Option<Verifier> {
    let (scheme, rest) = text.split_once('$')?;
    let (cost, keys) = rest.split_once('$')?;
    let (iterations, salt) = cost.split_once(':')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    if scheme != SCHEME || !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let key = |text: &str| Key::try_from(BASE64.decode(text).ok()?).ok();
    Some(Verifier {
        iterations: iterations.parse().ok().filter(|&count| count > 0)?,
        salt: BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?,
        stored_key: key(stored_key)?,
        server_key: key(server_key)?,
    })
}

impl Verifier {
    /// For a user that does not exist: always the same for one name, so that asking again does not tell, and like that
    /// of `model` in everything that a client sees before it has proven itself. No password fits it.
    #[must_use]
    pub(super) fn fake(model: &Self, user: &str) -> Self {
        // A secret of this file that nobody outside can compute with, and that stays when other lines change.
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &model.server_key);
        let mut salt = Vec::with_capacity(model.salt.len());
        for counter in 0_u8.. {
            let mut context = hmac::Context::with_key(&secret);
            context.update(b"salt of a user that does not exist");
            context.update(&[counter]);
            context.update(user.as_bytes());
            salt.extend_from_slice(context.sign().as_ref());
            if salt.len() >= model.salt.len() {
                break;
            }
        }
        salt.truncate(model.salt.len());
        Self {
            iterations: model.iterations,
            salt,
            stored_key: [0; KEY_LEN],
            server_key: [0; KEY_LEN],
        }
    }

    /// How often the password is hashed.
    pub(super) const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// The salt as it is sent.
    pub(super) fn salt_text(&self) -> String {
        BASE64.encode(&self.salt)
    }

    /// Whether the proof is that of a client which knows the password.
    pub(super) fn accepts(&self, proof: &Key, conversation: &[u8]) -> bool {
        let signature = sign(&self.stored_key, conversation);
        let mut client_key = *proof;
        for (byte, mask) in client_key.iter_mut().zip(signature.as_ref()) {
            *byte ^= mask;
        }
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        constant_time::verify_slices_are_equal(stored_key.as_ref(), &self.stored_key).is_ok()
    }

    /// Whether it is the verifier of this password. Takes as long as it was made to.
    pub(super) fn is_of(&self, password: &str) -> bool {
        let Some(rounds) = NonZeroU32::new(self.iterations) else {
            return false;
        };
        // One that is not text by the rules counts as it is, as at PostgreSQL.
        let prepared = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
        let mut salted = Key::default();
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(
            algorithm,
            rounds,
            &self.salt,
            prepared.as_bytes(),
            &mut salted,
        );
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        constant_time::verify_slices_are_equal(stored_key.as_ref(), &self.stored_key).is_ok()
    }

    /// The server's own proof.
    pub(super) fn server_signature(&self, conversation: &[u8]) -> hmac::Tag {
        sign(&self.server_key, conversation)
    }
}

fn sign(key: &Key, content: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), content)
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The verifier of a password, in PostgreSQL's form.
    pub(crate) fn verifier_text(password: &str, salt: &[u8], iterations: u32) -> String {
        let mut salted = Key::default();
        let rounds = NonZeroU32::new(iterations).unwrap();
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut salted);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let server_key = sign(&salted, b"Server Key");
        format!(
            "SCRAM-SHA-256${iterations}:{}${}:{}",
            BASE64.encode(salt),
            BASE64.encode(stored_key),
            BASE64.encode(server_key)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::testing::verifier_text;
    use super::*;

    /// Made by PostgreSQL 15: `CREATE ROLE r PASSWORD 'secret'`.
    const OF_POSTGRESQL: &str = "SCRAM-SHA-256$4096:OWXcllP+Faci9X+nWb4PnQ==$\
        NK1A30bRi1ldwB91KmEWhooE4JEOSAxN72AI8IPP710=:EFHvnMDqJFkZmosyCWhosDcgD+W7E4ARGM8Yc5Lzlks=";

    #[test]
    fn reads_what_postgresql_stores() {
        let verifier: Verifier = OF_POSTGRESQL.parse().unwrap();
        let salt = BASE64.decode("OWXcllP+Faci9X+nWb4PnQ==").unwrap();
        assert_eq!(verifier_text("secret", &salt, 4096), OF_POSTGRESQL);
        assert_eq!((verifier.iterations, &verifier.salt), (4096, &salt));
        assert!(!format!("{verifier:?}").contains("stored_key"));
    }

    #[test]
    fn everything_else_is_refused_and_not_shown() {
        let keys = OF_POSTGRESQL.rsplit_once('$').unwrap().1;
        for (text, expected) in [
            ("secret".to_owned(), InvalidVerifier::Other),
            (String::new(), InvalidVerifier::Other),
            (
                "md5d41d8cd98f00b204e9800998ecf8427e".to_owned(),
                InvalidVerifier::Md5,
            ),
            (
                format!("SCRAM-SHA-1$4096:AA==${keys}"),
                InvalidVerifier::Other,
            ),
            (
                format!("SCRAM-SHA-256$0:AA==${keys}"),
                InvalidVerifier::Other,
            ),
            (
                format!("SCRAM-SHA-256$+1:AA==${keys}"),
                InvalidVerifier::Other,
            ),
            (
                format!("SCRAM-SHA-256$4096:${keys}"),
                InvalidVerifier::Other,
            ),
            (
                "SCRAM-SHA-256$4096:AA==$AAAA:AAAA".to_owned(),
                InvalidVerifier::Other,
            ),
        ] {
            let error = text.parse::<Verifier>().unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn who_does_not_exist_has_always_the_same_salt() {
        let model: Verifier = verifier_text("x", &[7; 40], 5000).parse().unwrap();
        let fake = Verifier::fake(&model, "nobody");
        assert_eq!(fake, Verifier::fake(&model, "nobody"));
        assert_eq!((fake.iterations, fake.salt.len()), (5000, 40));
        assert_ne!(fake.salt, model.salt);
        assert_ne!(fake.salt, Verifier::fake(&model, "nobody else").salt);
        assert!(!fake.accepts(&[0; KEY_LEN], b""));
    }
}
