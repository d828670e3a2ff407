//! Authentication, and what follows it until the server is ready for a query.

use std::io;

use pg_proto::wire::{Authentication, BackendMessage, Frame, FrontendMessage, SaslInitialResponse};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};

use crate::buffer::FrameBuffer;
use crate::channel_binding::server_end_point;
use crate::connect::refused;
use crate::error::{ConnectError, Error};
use crate::options::ConnectOptions;
use crate::session::{Session, server_error};
use crate::transport::Transport;
use crate::wire::{Outbox, next_frame};

const DOING: &str = "authenticating";

/// Where the exchange is.
enum Progress {
    /// Nothing secret was exchanged.
    Begun,
    /// The server has to prove that it knows the password too.
    Scram(Box<ScramSha256>),
    /// It has, or did not need to.
    Proven,
    /// It let us in.
    Admitted,
}

/// Authenticates and waits until the server is ready.
pub(crate) async fn authenticate(
    transport: &mut Transport,
    buffer: &mut FrameBuffer,
    outbox: &mut Outbox,
    session: &mut Session,
    options: &ConnectOptions,
) -> Result<(), ConnectError> {
    let lost = |source| refused(options, source);
    let mut progress = Progress::Begun;
    loop {
        let frame = next_frame(buffer, transport, DOING).await.map_err(lost)?;
        match frame.tag {
            b'R' => {
                progress = step(frame, progress, transport, outbox, session, options)?;
                outbox.flush(transport, DOING).await.map_err(lost)?;
            }
            b'E' => return Err(lost(server_error(frame))),
            b'Z' if matches!(progress, Progress::Admitted) => {
                session.note(frame).map_err(lost)?;
                return Ok(());
            }
            // Nothing newer than 3.0 and no option is ever asked for, so there is nothing to settle.
            b'v' => {}
            tag => {
                if !session.note(frame).map_err(lost)? {
                    return Err(lost(Error::Unexpected { tag, doing: DOING }));
                }
            }
        }
    }
}

/// Answers one request.
fn step(
    frame: Frame<'_>,
    progress: Progress,
    transport: &Transport,
    outbox: &mut Outbox,
    session: &mut Session,
    options: &ConnectOptions,
) -> Result<Progress, ConnectError> {
    let malformed = |error| refused(options, Error::Message(error));
    let BackendMessage::Authentication(request) =
        BackendMessage::decode(frame).map_err(malformed)?
    else {
        return Ok(progress);
    };
    match (request, progress) {
        (Authentication::Ok, Progress::Begun | Progress::Proven) => Ok(Progress::Admitted),
        (Authentication::CleartextPassword, Progress::Begun) => {
            let password = password(options)?;
            outbox.queue_with(|out| FrontendMessage::encode_password(password, out));
            Ok(Progress::Proven)
        }
        (Authentication::Md5Password { salt }, Progress::Begun) => {
            let hash = md5_hash(options.user.as_bytes(), password(options)?, salt);
            outbox.queue_with(|out| FrontendMessage::encode_password(hash.as_bytes(), out));
            Ok(Progress::Proven)
        }
        (Authentication::Sasl { mechanisms }, Progress::Begun) => {
            let password = password(options)?;
            let begun = begin_scram(&mechanisms, password, transport, outbox);
            let (scram, bound) = begun.ok_or_else(|| {
                let names = mechanisms.join(&b", "[..]);
                unsupported(options, &String::from_utf8_lossy(&names))
            })?;
            session.channel_bound = bound;
            Ok(Progress::Scram(Box::new(scram)))
        }
        (Authentication::SaslContinue(data), Progress::Scram(mut scram)) => {
            scram
                .update(data)
                .map_err(|error| scram_failed(options, error))?;
            outbox.queue_message(&FrontendMessage::AuthenticationResponse(scram.message()));
            Ok(Progress::Scram(scram))
        }
        (Authentication::SaslFinal(data), Progress::Scram(mut scram)) => {
            scram
                .finish(data)
                .map_err(|error| scram_failed(options, error))?;
            Ok(Progress::Proven)
        }
        (Authentication::Other(code), _) => Err(unsupported(options, other_method(code))),
        // Above all: being let in without the proof that SCRAM demands of the server.
        _ => {
            let (tag, doing) = (b'R', DOING);
            Err(refused(options, Error::Unexpected { tag, doing }))
        }
    }
}

fn password(options: &ConnectOptions) -> Result<&[u8], ConnectError> {
    match &options.password {
        Some(password) if !password.expose().is_empty() => Ok(password.expose().as_bytes()),
        _ => Err(ConnectError::PasswordMissing {
            address: options.address(),
            user: options.user.clone(),
        }),
    }
}

/// Chooses the mechanism: bound to the TLS connection if both sides can. A client that could bind and was not
/// offered to says so ('y'), so that the server notices if somebody in between took the offer away.
fn begin_scram(
    offered: &[&[u8]],
    password: &[u8],
    transport: &Transport,
    outbox: &mut Outbox,
) -> Option<(ScramSha256, bool)> {
    let is_offered = |name: &str| offered.contains(&name.as_bytes());
    let end_point = transport.server_certificate().and_then(server_end_point);
    let (mechanism, binding) = match end_point {
        Some(hash) if is_offered(SCRAM_SHA_256_PLUS) => (
            SCRAM_SHA_256_PLUS,
            ChannelBinding::tls_server_end_point(hash),
        ),
        Some(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
        None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
    };
    if !is_offered(mechanism) {
        return None;
    }
    let scram = ScramSha256::new(password, binding);
    let response = SaslInitialResponse {
        mechanism: mechanism.as_bytes(),
        data: Some(scram.message()),
    };
    outbox.queue_with(|out| response.encode(out));
    Some((scram, mechanism == SCRAM_SHA_256_PLUS))
}

fn scram_failed(options: &ConnectOptions, source: io::Error) -> ConnectError {
    ConnectError::Scram {
        address: options.address(),
        source,
    }
}

fn unsupported(options: &ConnectOptions, method: &str) -> ConnectError {
    ConnectError::UnsupportedAuthentication {
        address: options.address(),
        method: method.to_owned(),
    }
}

/// The codes of `AuthRequest` in `pqcomm.h`.
const fn other_method(code: u32) -> &'static str {
    match code {
        2 => "Kerberos 5",
        7 | 8 => "GSSAPI",
        9 => "SSPI",
        _ => "a method that is not known here",
    }
}
