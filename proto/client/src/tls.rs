//! TLS as libpq does it: what is verified depends on the mode.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::error::ConnectError;
use crate::options::{ConnectOptions, SslMode};

/// The configuration for these options. Reads the root certificates.
pub(crate) fn client_config(options: &ConnectOptions) -> Result<Arc<ClientConfig>, ConnectError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let trust = match (options.sslmode, options.sslrootcert.as_deref()) {
        (SslMode::VerifyFull | SslMode::VerifyCa, None) => Some(Trust::system()?),
        (_, Some(file)) => Some(Trust::from_file(file)?),
        (_, None) => None,
    };
    let verifier = Verifier {
        provider: Arc::clone(&provider),
        trust,
        verify_name: options.sslmode == SslMode::VerifyFull,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::TlsSetup(Box::new(error)))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The host as it must be in the certificate, and as the server is told it.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, ConnectError> {
    ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::TlsName {
        host: host.to_owned(),
    })
}

/// Certificates that are trusted.
#[derive(Debug)]
struct Trust {
    roots: RootCertStore,
    /// The same as they are in the file. A self-signed server certificate is often its own root.
    certificates: Vec<CertificateDer<'static>>,
}

impl Trust {
    fn from_file(file: &Path) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError::RootCertificates {
            path: file.to_owned(),
            source,
        };
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        let certificates: Vec<_> = read.map_err(|error| failed(io::Error::other(error)))?;
        if certificates.is_empty() {
            return Err(failed(io::Error::other("no certificate is in it")));
        }
        Ok(Self::new(certificates))
    }

    fn system() -> Result<Self, ConnectError> {
        let loaded = rustls_native_certs::load_native_certs();
        if loaded.certs.is_empty() {
            let reason = match loaded.errors.into_iter().next() {
                Some(error) => io::Error::other(error),
                None => io::Error::other("there are none: set sslrootcert"),
            };
            return Err(ConnectError::RootCertificates {
                path: PathBuf::from("(the system's store)"),
                source: reason,
            });
        }
        Ok(Self::new(loaded.certs))
    }

    fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut roots = RootCertStore::empty();
        // One that can't be parsed can't be anybody's root; others may.
        roots.add_parsable_certificates(certificates.iter().cloned());
        Self {
            roots,
            certificates,
        }
    }
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Nothing is verified without.
    trust: Option<Trust>,
    verify_name: bool,
}

impl Verifier {
    fn verify_chain(
        &self,
        trust: &Trust,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(certificate)?;
        let roots = &trust.roots;
        let verified = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            roots,
            intermediates,
            now,
            algorithms,
        );
        match verified {
            // A certificate that may also sign others is no good as a server's to the verifier, and is what
            // `openssl req -x509` makes. If it is itself in the file, it is trusted as it is; that it has
            // expired would have been another error.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if trust.certificates.iter().any(|root| root == certificate) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(trust) = &self.trust {
            self.verify_chain(trust, end_entity, intermediates, now)?;
        }
        if self.verify_name {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
