//! Tells Decant's own logical messages from others, on the ingest thread.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use pg_proto::{Oid, Xid};
use storage_format::catalog::PublicationState;
use tokio::sync::watch;

use super::message::{CatalogMessage, MessageError};
use super::own::{OwnPublication, with_own};
use super::secret::Secret;

/// The prefix of Decant's logical messages.
pub const PREFIX: &str = "decant";

/// Secrets that are tried: that of the source now, the decoder's own, and older ones, whose messages may still
/// be in WAL that has not been read.
const SECRETS_MAX: usize = 4;

/// What a logical message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// Somebody else's: it has another prefix.
    Foreign,
    /// Decant's.
    Publications {
        /// The publications, its own among them, as they are from its place on.
        state: Arc<PublicationState>,
        /// The subtransaction that wrote it, or the transaction itself. If that is rolled back, it says nothing.
        subxid: Xid,
    },
    /// It has Decant's prefix and is not Decant's.
    Forged {
        /// How that was seen.
        reason: String,
    },
}

/// What came in, for the task that asks the source.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The state that came last; `None` before the first.
    pub latest: Option<Arc<PublicationState>>,
    /// Whether a state may miss a change of a transaction that ran at the same time; until a complete one comes.
    pub unsettled: bool,
    /// Counts messages that were not accepted: the secret at the source may have changed.
    pub refused: u64,
}

/// Knows the secrets and hears every message.
#[derive(Debug, Default)]
pub struct Recogniser {
    /// Newest first.
    secrets: RwLock<VecDeque<Secret>>,
    /// Decant's own publications.
    own: RwLock<Arc<[OwnPublication]>>,
    /// Whether the source describes their relations with every change.
    describes: AtomicBool,
    heard: watch::Sender<Heard>,
}

impl Recogniser {
    /// One that knows these secrets, newest first.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: RwLock::new(secrets.into_iter().take(SECRETS_MAX).collect()),
            own: RwLock::default(),
            describes: AtomicBool::default(),
            heard: watch::Sender::default(),
        }
    }

    /// From now on `secret` makes messages Decant's. False if it was the newest already.
    pub fn trust(&self, secret: Secret) -> bool {
        let mut secrets = self.secrets.write();
        if secrets.front() == Some(&secret) {
            return false;
        }
        secrets.retain(|known| *known != secret);
        secrets.push_front(secret);
        secrets.truncate(SECRETS_MAX);
        true
    }

    /// The secrets, newest first, to be stored.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        self.secrets.read().iter().cloned().collect()
    }

    /// From the next state of the source on, these stand beside its publications.
    pub fn set_own(&self, own: Vec<OwnPublication>) {
        *self.own.write() = own.into();
    }

    /// Decant's own publications.
    #[must_use]
    pub fn own(&self) -> Arc<[OwnPublication]> {
        Arc::clone(&self.own.read())
    }

    /// Tables that Decant's own publications name.
    #[must_use]
    pub fn own_relations(&self) -> BTreeSet<Oid> {
        let own = self.own();
        own.iter().flat_map(OwnPublication::relations).collect()
    }

    /// Notes whether the source describes the relations of Decant's own publications with every change.
    pub fn set_describes(&self, describes: bool) {
        self.describes.store(describes, Ordering::Relaxed);
    }

    /// Whether it does.
    #[must_use]
    pub fn describes(&self) -> bool {
        self.describes.load(Ordering::Relaxed)
    }

    /// Whether the source's state that was heard last has a publication of this name.
    #[must_use]
    pub fn source_has(&self, name: &str) -> bool {
        let heard = self.heard.borrow();
        let mut all = heard
            .latest
            .iter()
            .flat_map(|state| state.publications.iter());
        all.any(|publication| publication.name == name)
    }

    /// Follows what comes in.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Heard> {
        self.heard.subscribe()
    }

    /// What a logical message is that stands in the top-level transaction `xid`; `None` outside transactions, where
    /// none of Decant's can be.
    #[must_use]
    pub fn recognise(&self, prefix: &[u8], content: &[u8], xid: Option<Xid>) -> Recognised {
        if prefix != PREFIX.as_bytes() {
            return Recognised::Foreign;
        }
        match self.read(content, xid) {
            Ok(message) => {
                let state = Arc::new(message.state);
                self.heard.send_modify(|heard| {
                    heard.latest = Some(Arc::clone(&state));
                    heard.unsettled = !message.complete && (heard.unsettled || !message.settled);
                });
                let own = self.own();
                Recognised::Publications {
                    state: if own.is_empty() {
                        state
                    } else {
                        Arc::new(with_own(&state, &own))
                    },
                    subxid: message.subxid,
                }
            }
            Err(reason) => {
                self.heard.send_modify(|heard| heard.refused += 1);
                Recognised::Forged { reason }
            }
        }
    }

    fn read(&self, content: &[u8], xid: Option<Xid>) -> Result<CatalogMessage, String> {
        let Some(xid) = xid else {
            return Err("it is not transactional".to_owned());
        };
        let secrets = self.secrets();
        let message = CatalogMessage::read(content, &secrets)
            .map_err(|error: MessageError| error.to_string())?;
        if message.xid != xid {
            return Err(format!(
                "it is a copy of one of transaction {}, in transaction {xid}",
                message.xid
            ));
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(xid: u64, secret: &Secret) -> Vec<u8> {
        let text = CatalogMessage::write(xid, &PublicationState::default(), secret).unwrap();
        text.into_bytes()
    }

    /// As a trigger writes it.
    fn partial(xid: u64, settled: bool, secret: &Secret) -> Vec<u8> {
        let body = format!(
            r#"{{"version": 2, "xid": {xid}, "settled": {settled}, "complete": false, "publications": [],
                 "relations": [], "collations": [], "database": {{"encoding": "", "provider": "c", "collate": "", "ctype": ""}}}}"#
        );
        (secret.mac(body.as_bytes()) + &body).into_bytes()
    }

    #[test]
    fn only_its_own_messages_count() {
        let secret = Secret::new("s");
        let recogniser = Recogniser::new([secret.clone()]);
        let heard = recogniser.watch();
        let own = message(7, &secret);
        let here = Some(Xid(7));
        assert_eq!(
            recogniser.recognise(b"other", &own, here),
            Recognised::Foreign
        );
        assert!(heard.borrow().latest.is_none());
        let recognised = recogniser.recognise(b"decant", &own, here);
        let own_state = Recognised::Publications {
            state: Arc::default(),
            subxid: Xid(7),
        };
        assert_eq!(recognised, own_state);
        assert!(heard.borrow().latest.is_some());
        assert!(!heard.borrow().unsettled);
        let strange = message(7, &Secret::new("guessed"));
        for (content, xid) in [(&strange, here), (&own, Some(Xid(8))), (&own, None)] {
            let recognised = recogniser.recognise(b"decant", content, xid);
            assert!(matches!(recognised, Recognised::Forged { .. }));
        }
        assert_eq!(heard.borrow().refused, 3);
    }

    #[test]
    fn only_a_complete_state_settles_an_unsettled_one() {
        let secret = Secret::new("s");
        let recogniser = Recogniser::new([secret.clone()]);
        let heard = recogniser.watch();
        let hear = |content: &[u8]| {
            let _ = recogniser.recognise(b"decant", content, Some(Xid(7)));
            heard.borrow().unsettled
        };
        assert!(!hear(&partial(7, true, &secret)));
        assert!(hear(&partial(7, false, &secret)));
        assert!(hear(&partial(7, true, &secret)));
        assert!(!hear(&message(7, &secret)));
    }

    #[test]
    fn older_secrets_stay_for_a_while() {
        let recogniser = Recogniser::new([Secret::new("0")]);
        assert!(!recogniser.trust(Secret::new("0")));
        for number in 1..10 {
            assert!(recogniser.trust(Secret::new(number.to_string())));
        }
        let kept = ["9", "8", "7", "6"].map(Secret::new);
        assert_eq!(recogniser.secrets(), kept);
        assert!(recogniser.trust(Secret::new("7")));
        assert_eq!(recogniser.secrets()[0], Secret::new("7"));
    }
}
