//! TLS: trusted certificates and the handshake.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, InvalidMessage, RootCertStore,
};

use super::connect::{BoxedStream, ConnectFailure};

/// Advice for a server whose certificate no trusted authority has signed.
const NAME_ITS_AUTHORITY: &str = "its certificate is signed by no authority that is trusted here; \
                                  name the certificate of that authority in SSL_CERT_FILE";
/// Advice for a server that presents the certificate of an authority.
const AUTHORITY_AS_SERVER: &str = "its certificate is that of an authority, which no server may \
                                   present; make one with `basicConstraints=CA:FALSE` and name it \
                                   in SSL_CERT_FILE";
/// Advice for a server whose certificate has expired, or is not valid yet.
const NOT_VALID_NOW: &str = "its certificate is not valid at this time: renew it, or set the clock \
                             of this machine";
/// Advice for a server that requires a certificate of its client.
const WANTS_CERTIFICATE: &str = "the server requires a certificate of its client, and organism \
                                 presents none; use an address that requires none";
/// Advice for a server that refuses the client with an alert that has several causes.
const MAY_WANT_CERTIFICATE: &str = "the server refused the connection; it may require a \
                                     certificate of its client, and organism presents none";

/// Advice for a server that answers the handshake with something else than TLS.
const SPEAKS_NO_TLS: &str = "the server does not speak TLS at this address; write the address with \
                             `http://`";

/// Trusted root certificates.
#[derive(Debug)]
pub enum TrustRoots {
    /// Trusts the system's certificates, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    System,
    /// Trusts only these certificates.
    Only(Vec<CertificateDer<'static>>),
}

pub(super) struct TlsClient {
    roots: TrustRoots,
    /// TLS connector. Built at first use, because reading the system's certificates takes
    /// milliseconds.
    connector: OnceLock<Result<TrustedConnector, String>>,
}

#[derive(Clone)]
struct TrustedConnector {
    tls: TlsConnector,
    /// Reason why a file or directory of trusted certificates yielded none; `None` if each yielded
    /// some.
    unread: Option<String>,
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("roots", &self.roots).finish_non_exhaustive()
    }
}

impl TlsClient {
    pub fn new(roots: TrustRoots) -> Self {
        Self { roots, connector: OnceLock::new() }
    }

    pub async fn handshake(
        &self,
        host: &str,
        stream: BoxedStream,
    ) -> Result<BoxedStream, ConnectFailure> {
        let connector = self.connector.get_or_init(|| connector(&self.roots)).clone()?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("`{host}` is no name a certificate can be made out for"))?;
        let secured = connector.tls.connect(name, stream).await;
        let secured = secured.map_err(|e| failure(&e, connector.unread.as_deref()))?;
        Ok(Box::new(secured))
    }
}

/// Returns the failure of a handshake. `unread` states which trusted certificates could not be
/// read.
fn failure(error: &io::Error, unread: Option<&str>) -> ConnectFailure {
    let reason = tls_error(error);
    let is_untrusted =
        matches!(reason, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)));

    let unread = unread.filter(|_| is_untrusted).map(|unread| format!(" ({unread})"));
    let detail = format!("TLS: {error}{}", unread.unwrap_or_default());
    let advice = reason.and_then(|reason| match reason {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some(NAME_ITS_AUTHORITY)
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Some(NOT_VALID_NOW),
        rustls::Error::AlertReceived(alert) => advice_on(*alert),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(SPEAKS_NO_TLS),
        // The verifier states this reason only as text.
        _ => detail.contains("CaUsedAsEndEntity").then_some(AUTHORITY_AS_SERVER),
    });
    ConnectFailure { detail, advice }
}

/// Returns the advice for an alert with which a server refuses its client; `None` if it is another
/// alert.
fn advice_on(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate => {
            Some(WANTS_CERTIFICATE)
        }
        AlertDescription::HandshakeFailure | AlertDescription::AccessDenied => {
            Some(MAY_WANT_CERTIFICATE)
        }
        _ => None,
    }
}

/// Returns the failure if the server refused the client after the handshake, for example for lack
/// of a certificate. With TLS 1.3, the client learns this only when it reads the response. A server
/// that refuses the client before any byte of a response has not read the request.
pub(super) fn refusal_after_handshake(error: &io::Error) -> Option<ConnectFailure> {
    let rustls::Error::AlertReceived(alert) = tls_error(error)? else { return None };
    let advice = advice_on(*alert)?;
    Some(ConnectFailure { detail: format!("TLS: {error}"), advice: Some(advice) })
}

/// Returns the TLS error that an I/O error contains; `None` if it contains none.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn connector(roots: &TrustRoots) -> Result<TrustedConnector, String> {
    let mut store = RootCertStore::empty();
    let mut unread = None;
    match roots {
        TrustRoots::System => {
            let found = rustls_native_certs::load_native_certs();
            let (good, _) = store.add_parsable_certificates(found.certs);
            let file = std::env::var_os("SSL_CERT_FILE");
            unread = file.and_then(|file| without_certificate(Path::new(&file)));
            unread = unread.or_else(|| found.errors.first().map(ToString::to_string));
            if good == 0 {
                let why = unread.map(|unread| format!(": {unread}")).unwrap_or_default();
                return Err(format!(
                    "no certificates are trusted{why}; install the system's \
                     (ca-certificates) or name a file in SSL_CERT_FILE"
                ));
            }
        }
        TrustRoots::Only(certificates) => {
            store.add_parsable_certificates(certificates.iter().cloned());
        }
    }

    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TrustedConnector { tls: TlsConnector::from(Arc::new(config)), unread })
}

/// Returns a description if the file contains no certificate. Returns `None` for a pipe, which can
/// be read only once.
fn without_certificate(file: &Path) -> Option<String> {
    if !file.is_file() {
        return None;
    }

    let found = rustls_native_certs::load_certs_from_paths(Some(file), None);
    let is_empty = found.certs.is_empty() && found.errors.is_empty();
    is_empty.then(|| format!("no certificate in PEM form in '{}'", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: CertificateError, unread: Option<&str>) -> ConnectFailure {
        let error = rustls::Error::InvalidCertificate(reason);
        failure(&io::Error::new(io::ErrorKind::InvalidData, error), unread)
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_is_named_as_the_cause() {
        for reason in [CertificateError::Expired, CertificateError::NotValidYet] {
            assert_eq!(failed(reason, None).advice, Some(NOT_VALID_NOW));
        }
    }

    #[test]
    fn a_server_without_tls_is_named_as_the_cause() {
        let error = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let failed = failure(&io::Error::new(io::ErrorKind::InvalidData, error), None);
        assert_eq!(failed.advice, Some(SPEAKS_NO_TLS));
    }

    #[test]
    fn an_untrusted_certificate_is_reported_with_the_unread_certificates() {
        let unread = "no certificate in PEM form in 'ca.pem'";
        let untrusted = failed(CertificateError::UnknownIssuer, Some(unread));
        assert_eq!(untrusted.advice, Some(NAME_ITS_AUTHORITY));
        assert!(untrusted.detail.ends_with(&format!("UnknownIssuer ({unread})")));

        let expired = failed(CertificateError::Expired, Some(unread));
        assert!(!expired.detail.contains(unread), "{}", expired.detail);
    }

    #[test]
    fn a_certificate_of_the_client_is_stated_as_required_only_if_the_alert_states_it() {
        let cases = [
            (AlertDescription::CertificateRequired, Some(WANTS_CERTIFICATE)),
            (AlertDescription::HandshakeFailure, Some(MAY_WANT_CERTIFICATE)),
            (AlertDescription::AccessDenied, Some(MAY_WANT_CERTIFICATE)),
            (AlertDescription::InternalError, None),
        ];
        for (alert, advice) in cases {
            let error = io::Error::other(rustls::Error::AlertReceived(alert));
            assert_eq!(failure(&error, None).advice, advice, "{alert:?}");
            let after = refusal_after_handshake(&error).and_then(|failure| failure.advice);
            assert_eq!(after, advice, "{alert:?}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("junk.pem");
        std::fs::write(&file, "junk").unwrap();
        let unread = without_certificate(&file).unwrap();
        assert!(unread.contains("junk.pem"), "{unread}");
        assert_eq!(without_certificate(Path::new("/dev/null")), None);
    }
}
