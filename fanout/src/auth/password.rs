//! Checking a password that a client shows: over gRPC, where calls carry it, and nobody answers a challenge.
//!
//! It is hashed as the client's side of SCRAM would, thousands of times. So that calls that come one after the other do not pay
//! for that each time, who was right is remembered, by a hash with a key of this process.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::users::Users;
use super::verifier::{KEY_LEN, Verifier};

/// So many are hashed at a time: whoever tries passwords gets no more of this machine.
const HASHING_MAX: usize = 2;

/// Checks passwords.
#[derive(Debug)]
pub struct Passwords {
    key: hmac::Key,
    /// By user; only users of the file, and only who proved to be one.
    proven: Mutex<HashMap<String, Proven>>,
    hashing: Semaphore,
}

#[derive(Debug)]
struct Proven {
    /// Another one since then means another password.
    verifier: Verifier,
    tag: hmac::Tag,
}

impl Passwords {
    /// Nobody is known yet. Fails if the system has no random bytes.
    pub fn new() -> Result<Self, rustls::Error> {
        let mut key = [0; KEY_LEN];
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        random.fill(&mut key)?;
        Ok(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            proven: Mutex::default(),
            hashing: Semaphore::new(HASHING_MAX),
        })
    }

    /// Whether it is the user's password. Who does not exist is answered as slowly as who does.
    pub async fn check(&self, users: &Users, user: &str, password: &str) -> bool {
        let verifier = users.verifier(user);
        let tag = hmac::sign(&self.key, password.as_bytes());
        if self.is_proven(user, &verifier, &tag) {
            return true;
        }
        let Ok(_permit) = self.hashing.acquire().await else {
            return false;
        };
        let (hashed, password) = (verifier.clone(), Arc::<str>::from(password));
        let hashing = tokio::task::spawn_blocking(move || hashed.is_of(&password));
        let right = hashing.await.unwrap_or(false);
        if right {
            let mut proven = self.proven.lock();
            proven.retain(|user, _| users.get(user).is_some());
            proven.insert(user.to_owned(), Proven { verifier, tag });
        }
        right
    }

    fn is_proven(&self, user: &str, verifier: &Verifier, tag: &hmac::Tag) -> bool {
        let proven = self.proven.lock();
        let found = proven.get(user).filter(|one| one.verifier == *verifier);
        found.is_some_and(|one| {
            constant_time::verify_slices_are_equal(one.tag.as_ref(), tag.as_ref()).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::verifier::testing::verifier_text;

    fn users(folder: &std::path::Path, password: &str) -> Users {
        let path = folder.join("users");
        let verifier = verifier_text(password, b"salt", 4096);
        std::fs::write(&path, format!("\"alice\" \"{verifier}\"\n")).unwrap();
        Users::load(&path).unwrap()
    }

    #[tokio::test]
    async fn only_the_password_of_now_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let passwords = Passwords::new().unwrap();
        let first = users(folder.path(), "first");
        // The second time it is remembered.
        for _ in 0..2 {
            assert!(passwords.check(&first, "alice", "first").await);
            for (user, wrong) in [("alice", "second"), ("alice", ""), ("bob", "first")] {
                assert!(
                    !passwords.check(&first, user, wrong).await,
                    "{user} {wrong}"
                );
            }
        }
        assert_eq!(passwords.proven.lock().len(), 1);
        let second = users(folder.path(), "second");
        assert!(!passwords.check(&second, "alice", "first").await);
        assert!(passwords.check(&second, "alice", "second").await);
    }

    #[tokio::test]
    async fn passwords_are_normalised_as_postgresql_does() {
        let folder = tempfile::tempdir().unwrap();
        let passwords = Passwords::new().unwrap();
        // What SASLprep makes of it: a soft hyphen goes, a Roman numeral becomes letters.
        let users = users(folder.path(), "IX");
        assert!(passwords.check(&users, "alice", "I\u{AD}X").await);
        assert!(passwords.check(&users, "alice", "\u{2168}").await);
    }
}
