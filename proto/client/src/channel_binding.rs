//! The channel binding `tls-server-end-point` (RFC 5929): a hash of the server's certificate.

use aws_lc_rs::digest::{self, Algorithm};

/// Hashes a DER certificate with the hash of its own signature, SHA-256 in place of MD5 and SHA-1. `None` if
/// the signature has no hash of its own (Ed25519) or is not known here: then there is no channel binding.
#[must_use]
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = hash_of_signature(signature_oid(certificate)?)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OID, .. }, .. }`
fn signature_oid(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OID: u8 = 0x06;
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (_, rest) = take(certificate, SEQUENCE)?;
    let (algorithm, _) = take(rest, SEQUENCE)?;
    take(algorithm, OID).map(|(oid, _)| oid)
}

/// The content of the first element, if it has this tag, and what follows it.
fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&length, mut rest) = rest.split_first()?;
    let mut size = usize::from(length);
    if length & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(length & 0x7F))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        size = digits
            .iter()
            .fold(0, |size, &digit| size << 8 | usize::from(digit));
        rest = after;
    }
    (found == tag).then(|| rest.split_at_checked(size))?
}

fn hash_of_signature(oid: &[u8]) -> Option<&'static Algorithm> {
    // 1.2.840.113549.1.1.x: PKCS #1
    const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01];
    // 1.2.840.10045.4.x: signatures with ECDSA
    const ECDSA: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04];
    if let Some(last) = oid.strip_prefix(RSA) {
        return match last {
            [0x04 | 0x05 | 0x0B] => Some(&digest::SHA256),
            [0x0C] => Some(&digest::SHA384),
            [0x0D] => Some(&digest::SHA512),
            [0x0E] => Some(&digest::SHA224),
            _ => None,
        };
    }
    match oid.strip_prefix(ECDSA)? {
        [0x01] | [0x03, 0x02] => Some(&digest::SHA256),
        [0x03, 0x01] => Some(&digest::SHA224),
        [0x03, 0x03] => Some(&digest::SHA384),
        [0x03, 0x04] => Some(&digest::SHA512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_hash_of_the_signature() {
        let oid = [0x06, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x03];
        let algorithm = [&[0x30, 10][..], &oid].concat();
        let inner = [&[0x30, 1, 0][..], &algorithm, &[3, 1, 0]].concat();
        let length = u8::try_from(inner.len()).unwrap();
        let certificate = [&[0x30, 0x81, length][..], &inner].concat();
        assert_eq!(server_end_point(&certificate).unwrap().len(), 48);
        for cut in 0..certificate.len() - 3 {
            assert_eq!(signature_oid(&certificate[..cut]), None, "{cut}");
        }
    }
}
