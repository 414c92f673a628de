//! TLS: trusted certificates and the handshake.

use std::sync::{Arc, OnceLock};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::connect::BoxedStream;

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

    pub async fn handshake(&self, host: &str, stream: BoxedStream) -> Result<BoxedStream, String> {
        let connector = self.connector.get_or_init(|| connector(&self.roots)).clone()?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("`{host}` is no name a certificate can be made out for"))?;
        let secured = connector.connect(name, stream).await.map_err(|e| format!("TLS: {e}"))?;
        Ok(Box::new(secured))
    }
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
