//! The server's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), without I/O.
//!
//! ```text
//! Scram::new ── client-first ──► server-first ──► Challenged ── client-final ──► server-final
//! ```
//!
//! What is refused, and in which words, is as in PostgreSQL's `auth-scram.c`. Channel binding is `tls-server-end-point`:
//! the client repeats, under its proof, the hash of the certificate that it saw, so that nobody can sit between with a
//! certificate of their own. A client that believes there is no channel binding here although it was offered has
//! been lied to, and is refused.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pg_proto::wire::{ErrorFields, sqlstate};

use super::verifier::{Key, Verifier};

/// The only kind of channel binding there is here.
const BINDING_TYPE: &str = "tls-server-end-point";
/// Random bytes in the server's part of the nonce, as in PostgreSQL.
pub const NONCE_LEN: usize = 18;

/// A mechanism by its name in SASL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Without channel binding.
    Sha256,
    /// With channel binding.
    Sha256Plus,
}

impl Mechanism {
    /// Those that are offered, the best first. Binding needs TLS and a certificate that has a hash for it.
    #[must_use]
    pub const fn offered(can_bind: bool) -> &'static [Self] {
        if can_bind {
            &[Self::Sha256Plus, Self::Sha256]
        } else {
            &[Self::Sha256]
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha256Plus => "SCRAM-SHA-256-PLUS",
        }
    }
}

/// An exchange fails. The wrong proof is no fault of the protocol; the others are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// A mechanism that was not offered.
    #[error("client selected an invalid SASL authentication mechanism")]
    Mechanism,
    /// A message that is not as it must be.
    #[error("malformed SCRAM message")]
    Malformed(String),
    /// Another kind of channel binding.
    #[error("unsupported SCRAM channel-binding type \"{0}\"")]
    BindingType(String),
    /// It wants to act for somebody else.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// It demands something unknown.
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    /// A nonce with characters that have no place in it.
    #[error("non-printable characters in SCRAM nonce")]
    NonceCharacters,
    /// The client did not see that channel binding was offered.
    #[error("SCRAM channel binding negotiation error")]
    Downgrade,
    /// The client saw another certificate.
    #[error("SCRAM channel binding check failed")]
    BindingMismatch,
    /// The client's two messages contradict each other about channel binding.
    #[error("unexpected SCRAM channel-binding attribute in client-final-message")]
    BindingAttribute,
    /// The answer to another challenge.
    #[error("invalid SCRAM response")]
    NonceMismatch,
    /// The password is wrong, or there is no such user.
    #[error("the client's proof is wrong")]
    Proof,
}

impl ScramError {
    /// What the client is told.
    #[must_use]
    pub fn report(&self, user: &str) -> ErrorFields {
        let code = match self {
            Self::Proof => {
                let message = format!("password authentication failed for user \"{user}\"");
                return ErrorFields::fatal(sqlstate::INVALID_PASSWORD, message);
            }
            Self::Downgrade | Self::BindingMismatch => {
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION
            }
            Self::AuthorizationIdentity | Self::Extension => sqlstate::FEATURE_NOT_SUPPORTED,
            _ => sqlstate::PROTOCOL_VIOLATION,
        };
        let report = ErrorFields::fatal(code, self.to_string());
        match self {
            Self::Malformed(detail) => report.with_detail(detail.as_str()),
            Self::NonceMismatch => report.with_detail("Nonce does not match."),
            Self::Downgrade => report.with_detail(
                "The client supports SCRAM channel binding but thinks the server does not.  However, \
                 this server does support channel binding.",
            ),
            _ => report,
        }
    }
}

/// An exchange that awaits the client's first message.
#[derive(Debug)]
pub struct Scram {
    verifier: Verifier,
    mechanism: Mechanism,
    /// Hash of the server's certificate, if channel binding was offered.
    end_point: Option<Arc<[u8]>>,
    nonce: String,
}

/// An exchange that awaits the client's last message.
#[derive(Debug)]
pub struct Challenged {
    verifier: Verifier,
    /// What the client must repeat of its first message, and the certificate's hash: the attribute `c`.
    binding: String,
    is_bound: bool,
    /// Both parts.
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

impl Scram {
    /// Begins with the mechanism that the client chose. `end_point` is there if channel binding was offered; `nonce` is
    /// random.
    pub fn new(
        verifier: Verifier,
        mechanism: &[u8],
        end_point: Option<Arc<[u8]>>,
        nonce: &[u8; NONCE_LEN],
    ) -> Result<Self, ScramError> {
        let offered = Mechanism::offered(end_point.is_some());
        let chosen = offered
            .iter()
            .find(|offer| offer.name().as_bytes() == mechanism);
        Ok(Self {
            verifier,
            mechanism: *chosen.ok_or(ScramError::Mechanism)?,
            end_point,
            nonce: BASE64.encode(nonce),
        })
    }

    /// Takes client-first-message; the answer is server-first-message.
    pub fn first(self, message: &[u8]) -> Result<(String, Challenged), ScramError> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or_else(|| no_comma(message))?;
        let binding = self.binding(flag)?;
        if rest.starts_with('a') {
            return Err(ScramError::AuthorizationIdentity);
        }
        let bare = rest.strip_prefix(',').ok_or_else(|| {
            let found = first_char(rest);
            malformed(format!(
                "Unexpected attribute \"{found}\" in client-first-message."
            ))
        })?;
        if bare.starts_with('m') {
            return Err(ScramError::Extension);
        }
        // The name here is not looked at: it is the one of the start-up packet that counts.
        let (_, rest) = attribute(bare, 'n')?;
        let (client_nonce, _) = attribute(rest, 'r')?;
        if !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::NonceCharacters);
        }
        let nonce = format!("{client_nonce}{}", self.nonce);
        let salt = self.verifier.salt_text();
        let server_first = format!("r={nonce},s={salt},i={}", self.verifier.iterations());
        let challenged = Challenged {
            verifier: self.verifier,
            binding,
            is_bound: self.mechanism == Mechanism::Sha256Plus,
            nonce,
            client_first_bare: bare.to_owned(),
            server_first: server_first.clone(),
        };
        Ok((server_first, challenged))
    }

    /// What the last message has to say about channel binding, after what the first says of it.
    fn binding(&self, flag: &str) -> Result<String, ScramError> {
        match (flag.split_at_checked(1), self.mechanism) {
            (Some(("n" | "y", _)), Mechanism::Sha256Plus) => Err(malformed(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include \
                 channel binding data."
                    .to_owned(),
            )),
            (Some(("y", "")), _) if self.end_point.is_some() => Err(ScramError::Downgrade),
            (Some(("n" | "y", "")), _) => Ok(BASE64.encode(format!("{flag},,"))),
            (Some(("n" | "y", rest)), _) => Err(no_comma(rest)),
            (Some(("p", _)), Mechanism::Sha256) => Err(malformed(
                "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message \
                 includes channel binding data."
                    .to_owned(),
            )),
            (Some(("p", _)), Mechanism::Sha256Plus) => {
                let (kind, _) = attribute(flag, 'p')?;
                if kind != BINDING_TYPE {
                    return Err(ScramError::BindingType(kind.to_owned()));
                }
                let mut data = format!("{flag},,").into_bytes();
                data.extend_from_slice(self.end_point.as_deref().unwrap_or_default());
                Ok(BASE64.encode(data))
            }
            _ => Err(malformed(format!(
                "Unexpected channel-binding flag \"{}\".",
                first_char(flag)
            ))),
        }
    }
}

impl Challenged {
    /// Takes client-final-message; the answer, if the client knows the password, is server-final-message.
    pub fn last(self, message: &[u8]) -> Result<String, ScramError> {
        let message = text(message)?;
        let (binding, rest) = attribute(message, 'c')?;
        if binding != self.binding {
            return Err(if self.is_bound {
                ScramError::BindingMismatch
            } else {
                ScramError::BindingAttribute
            });
        }
        let (nonce, mut rest) = attribute(rest, 'r')?;
        // Extensions that nobody has to understand may stand before the proof.
        while !rest.starts_with('p') {
            rest = any_attribute(rest)?;
        }
        let proof_at = message.len() - rest.len();
        let (proof, behind) = attribute(rest, 'p')?;
        if !behind.is_empty() || rest.ends_with(',') {
            return Err(malformed(
                "Garbage found at the end of client-final-message.".to_owned(),
            ));
        }
        let proof = BASE64.decode(proof).ok();
        let proof: Key = proof
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| malformed("Malformed proof in client-final-message.".to_owned()))?;
        if nonce != self.nonce {
            return Err(ScramError::NonceMismatch);
        }
        // Without the comma before it.
        let final_without_proof = &message[..proof_at.saturating_sub(1)];
        let conversation = format!(
            "{},{},{final_without_proof}",
            self.client_first_bare, self.server_first
        );
        if !self.verifier.accepts(&proof, conversation.as_bytes()) {
            return Err(ScramError::Proof);
        }
        let signature = self.verifier.server_signature(conversation.as_bytes());
        Ok(format!("v={}", BASE64.encode(signature)))
    }
}

fn malformed(detail: String) -> ScramError {
    ScramError::Malformed(detail)
}

fn no_comma(text: &str) -> ScramError {
    let found = first_char(text);
    malformed(format!("Comma expected, but found character \"{found}\"."))
}

/// The first character, as it may be shown.
fn first_char(text: &str) -> String {
    match text.chars().next() {
        Some(c) if c.is_ascii_graphic() => c.to_string(),
        Some(c) => format!("0x{:02x}", u32::from(c)),
        None => String::new(),
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.is_empty() {
        return Err(malformed("The message is empty.".to_owned()));
    }
    if message.contains(&0) {
        let detail = "Message length does not match input length.";
        return Err(malformed(detail.to_owned()));
    }
    std::str::from_utf8(message).map_err(|_| malformed("The message is not UTF-8.".to_owned()))
}

/// The value of the attribute `name`, which must be the next one, and what follows the comma behind it.
fn attribute(text: &str, name: char) -> Result<(&str, &str), ScramError> {
    let rest = text.strip_prefix(name).ok_or_else(|| {
        let found = first_char(text);
        malformed(format!(
            "Expected attribute \"{name}\" but found \"{found}\"."
        ))
    })?;
    let rest = rest.strip_prefix('=').ok_or_else(|| {
        malformed(format!(
            "Expected character \"=\" for attribute \"{name}\"."
        ))
    })?;
    Ok(rest.split_once(',').unwrap_or((rest, "")))
}

/// What follows the next attribute, whatever it is called.
fn any_attribute(text: &str) -> Result<&str, ScramError> {
    let name = text.chars().next().filter(char::is_ascii_alphabetic);
    let name = name.ok_or_else(|| {
        let found = first_char(text);
        malformed(format!(
            "Attribute expected, but found invalid character \"{found}\"."
        ))
    })?;
    attribute(text, name).map(|(_, rest)| rest)
}

#[cfg(test)]
#[path = "scram_tests.rs"]
mod tests;
