use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use super::*;
use crate::auth::verifier::testing::verifier_text;

const HASH: [u8; 32] = [9; 32];

fn verifier(password: &str) -> Verifier {
    verifier_text(password, b"sixteen bytes ..", 4096)
        .parse()
        .unwrap()
}

fn begin(plus: bool, tls: bool) -> Result<Scram, ScramError> {
    let mechanism = if plus {
        Mechanism::Sha256Plus
    } else {
        Mechanism::Sha256
    };
    let end_point = tls.then(|| Arc::from(HASH));
    let name = mechanism.name().as_bytes();
    Scram::new(verifier("pencil"), name, end_point, &[5; NONCE_LEN])
}

fn malformed_by(detail: &str) -> ScramError {
    ScramError::Malformed(detail.to_owned())
}

/// What the client library of others makes of it.
fn converse(server: Scram, password: &str, binding: ChannelBinding) -> Result<(), ScramError> {
    let mut client = ScramSha256::new(password.as_bytes(), binding);
    let (first, challenged) = server.first(client.message())?;
    client.update(first.as_bytes()).unwrap();
    let last = challenged.last(client.message())?;
    client.finish(last.as_bytes()).unwrap();
    Ok(())
}

#[test]
fn the_example_of_rfc_7677() {
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let server = Scram {
        verifier: verifier_text("pencil", &salt, 4096).parse().unwrap(),
        mechanism: Mechanism::Sha256,
        end_point: None,
        nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned(),
    };
    let (first, challenged) = server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
    assert_eq!(
        first,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let last = challenged.last(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
          p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    );
    let expected = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert_eq!(last.unwrap(), expected);
}

#[test]
fn a_client_of_others_gets_in_with_the_right_password_only() {
    let bound = || ChannelBinding::tls_server_end_point(HASH.to_vec());
    for (plus, tls, binding) in [
        (false, false, ChannelBinding::unsupported as fn() -> _),
        (false, false, ChannelBinding::unrequested),
        (false, true, ChannelBinding::unsupported),
        (true, true, bound),
    ] {
        let right = converse(begin(plus, tls).unwrap(), "pencil", binding());
        assert_eq!(right, Ok(()), "{plus} {tls}");
        let wrong = converse(begin(plus, tls).unwrap(), "pen", binding());
        assert_eq!(wrong, Err(ScramError::Proof));
    }
    let fake = Verifier::fake(&verifier("pencil"), "nobody");
    let server = Scram::new(fake, b"SCRAM-SHA-256", None, &[5; NONCE_LEN]).unwrap();
    let nobody = converse(server, "pencil", ChannelBinding::unsupported());
    assert_eq!(nobody, Err(ScramError::Proof));
}

#[test]
fn who_takes_the_binding_away_is_found_out() {
    // Somebody in between showed another certificate.
    let other = ChannelBinding::tls_server_end_point(vec![8; 32]);
    let error = converse(begin(true, true).unwrap(), "pencil", other);
    assert_eq!(error, Err(ScramError::BindingMismatch));
    // Somebody in between hid the offer.
    let hidden = ChannelBinding::unrequested();
    let error = converse(begin(false, true).unwrap(), "pencil", hidden).unwrap_err();
    assert_eq!(error, ScramError::Downgrade);
    assert_eq!(error.report("u").code(), "28000");
    // Binding to nothing.
    assert_eq!(begin(true, false).unwrap_err(), ScramError::Mechanism);
    let error = begin(false, false)
        .unwrap()
        .first(b"p=tls-server-end-point,,n=,r=abc")
        .unwrap_err();
    assert!(
        error
            .report("u")
            .detail()
            .unwrap()
            .contains("without channel binding")
    );
    assert_eq!(error.report("u").code(), "08P01");
}

#[test]
fn first_messages_that_are_refused() {
    let first = |message: &[u8]| begin(false, false).unwrap().first(message).unwrap_err();
    for (message, expected) in [
        (&b""[..], malformed_by("The message is empty.")),
        (
            b"n,,n=\0,r=abc",
            malformed_by("Message length does not match input length."),
        ),
        (
            b"n",
            malformed_by("Comma expected, but found character \"n\"."),
        ),
        (
            b"nn,,n=,r=x",
            malformed_by("Comma expected, but found character \"n\"."),
        ),
        (
            b"z,,n=,r=x",
            malformed_by("Unexpected channel-binding flag \"z\"."),
        ),
        (
            b",,n=,r=x",
            malformed_by("Unexpected channel-binding flag \"\"."),
        ),
        (b"n,a=root,n=,r=x", ScramError::AuthorizationIdentity),
        (
            b"n,b=x,n=,r=x",
            malformed_by("Unexpected attribute \"b\" in client-first-message."),
        ),
        (b"n,,m=x,n=,r=x", ScramError::Extension),
        (
            b"n,,r=x",
            malformed_by("Expected attribute \"n\" but found \"r\"."),
        ),
        (
            b"n,,n=",
            malformed_by("Expected attribute \"r\" but found \"\"."),
        ),
        (
            b"n,,n,r=x",
            malformed_by("Expected character \"=\" for attribute \"n\"."),
        ),
        (b"n,,n=,r=a b", ScramError::NonceCharacters),
        (b"n,,n=,r=\xc3\xa9", ScramError::NonceCharacters),
        (b"n,,n=\xff,r=x", malformed_by("The message is not UTF-8.")),
    ] {
        assert_eq!(first(message), expected, "{}", message.escape_ascii());
    }
}

#[test]
fn first_messages_that_do_not_bind_as_they_promise() {
    let first = |message: &[u8]| begin(true, true).unwrap().first(message).unwrap_err();
    for (message, expected) in [
        (
            &b"p=tls-unique,,n=,r=x"[..],
            ScramError::BindingType("tls-unique".to_owned()),
        ),
        (
            b"p,,n=,r=x",
            malformed_by("Expected character \"=\" for attribute \"p\"."),
        ),
    ] {
        assert_eq!(first(message), expected, "{}", message.escape_ascii());
    }
    for message in [&b"n,,n=,r=x"[..], b"y,,n=,r=x"] {
        let report = first(message).report("u");
        let detail = report.detail().unwrap();
        assert!(
            detail.contains("does not include channel binding data"),
            "{detail}"
        );
    }
}

#[test]
fn last_messages_that_are_refused() {
    let nonce = format!("x{}", BASE64.encode([5; NONCE_LEN]));
    let last = |message: &str| {
        let (_, challenged) = begin(false, false).unwrap().first(b"n,,n=,r=x").unwrap();
        challenged
            .last(message.replace("NONCE", &nonce).as_bytes())
            .unwrap_err()
    };
    let proof = |len| BASE64.encode(vec![1; len]);
    let bad_proof = malformed_by("Malformed proof in client-final-message.");
    let garbage = malformed_by("Garbage found at the end of client-final-message.");
    for (message, expected) in [
        (format!("c=biws,r=NONCE,p={}", proof(32)), ScramError::Proof),
        (
            format!("c=biws,r=NONCE,x=1,p={}", proof(32)),
            ScramError::Proof,
        ),
        (format!("c=biws,r=NONCE,p={}", proof(31)), bad_proof.clone()),
        (format!("c=biws,r=NONCE,p={}", proof(33)), bad_proof.clone()),
        ("c=biws,r=NONCE,p=".to_owned(), bad_proof.clone()),
        ("c=biws,r=NONCE,p=%%%%".to_owned(), bad_proof),
        (
            format!("c=biws,r=NONCE,p={},x=1", proof(32)),
            garbage.clone(),
        ),
        (format!("c=biws,r=NONCE,p={},", proof(32)), garbage),
        (
            format!("c=biws,r=NONCEx,p={}", proof(32)),
            ScramError::NonceMismatch,
        ),
        (
            format!("c=eSws,r=NONCE,p={}", proof(32)),
            ScramError::BindingAttribute,
        ),
        (
            "c=biws,r=NONCE".to_owned(),
            malformed_by("Attribute expected, but found invalid character \"\"."),
        ),
        (
            format!("c=biws,r=NONCE,,p={}", proof(32)),
            malformed_by("Attribute expected, but found invalid character \",\"."),
        ),
        (
            "r=NONCE".to_owned(),
            malformed_by("Expected attribute \"c\" but found \"r\"."),
        ),
    ] {
        assert_eq!(last(&message), expected, "{message}");
    }
}

#[test]
fn a_wrong_password_and_a_missing_user_are_told_alike() {
    let report = ScramError::Proof.report("alice");
    assert_eq!(
        (report.code(), report.message(), report.detail()),
        (
            "28P01",
            "password authentication failed for user \"alice\"",
            None
        )
    );
    assert!(report.is_fatal());
}
