//! TLS: trusted certificates and the handshake.

use std::sync::{Arc, OnceLock};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::connect::{BoxedStream, ConnectFailure};

/// Advice for a server whose certificate no trusted authority has signed.
const NAME_ITS_AUTHORITY: &str = "its certificate is signed by no authority that is trusted here; \
                                  name the certificate of that authority in SSL_CERT_FILE";
/// Advice for a server that presents the certificate of an authority.
const AUTHORITY_AS_SERVER: &str = "its certificate is that of an authority, which no server may \
                                   present; make one with `basicConstraints=CA:FALSE` and name it \
                                   in SSL_CERT_FILE";

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
    connector: OnceLock<Result<TlsConnector, String>>,
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
        let secured = connector.connect(name, stream).await.map_err(|e| failure(&e))?;
        Ok(Box::new(secured))
    }
}

fn failure(error: &std::io::Error) -> ConnectFailure {
    let detail = format!("TLS: {error}");
    // The verifier states the second reason only as text.
    let advice =
        [("UnknownIssuer", NAME_ITS_AUTHORITY), ("CaUsedAsEndEntity", AUTHORITY_AS_SERVER)];
    let advice = advice.into_iter().find(|(reason, _)| detail.contains(*reason));
    ConnectFailure { detail, advice: advice.map(|(_, advice)| advice) }
}

fn connector(roots: &TrustRoots) -> Result<TlsConnector, String> {
    let mut store = RootCertStore::empty();
    match roots {
        TrustRoots::System => {
            let found = rustls_native_certs::load_native_certs();
            let (good, _) = store.add_parsable_certificates(found.certs);
            if good == 0 {
                let why = found.errors.first().map(|e| format!(": {e}")).unwrap_or_default();
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
    Ok(TlsConnector::from(Arc::new(config)))
}
