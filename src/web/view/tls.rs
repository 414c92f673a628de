//! The certificate and the key of the web view for TLS.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkcs8::der::asn1::{Any, GeneralizedTime, UtcTime};
use pkcs8::der::{Decode as _, Header, Reader as _, SliceReader, Tag, Tagged as _};
use rustix::fs::{Mode, OFlags};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::clock::Time;
use crate::limits;
use crate::mutant::mutant;

/// File mode bits that let others read a file.
const READABLE_BY_OTHERS: u32 = 0o077;

/// Files with the certificate chain and the private key of a server, both in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Why a certificate or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path} is no regular file", path = path.display())]
    NotAFile { path: PathBuf },
    #[error(
        "{path} may be read by other users (mode {mode:03o}); `chmod 600` it",
        path = path.display()
    )]
    KeyOpenToOthers { path: PathBuf, mode: u32 },
    #[error("{path} has no {what} in PEM: {detail}", path = path.display())]
    NotPem { path: PathBuf, what: &'static str, detail: String },
    #[error("the key in {key} is not that of the certificate in {certificate}",
        key = files.key.display(), certificate = files.certificate.display())]
    KeyMismatch { files: TlsFiles },
    #[error("the certificate in {path} cannot be used: {detail}", path = path.display())]
    Unusable { path: PathBuf, detail: String },
}

impl TlsFiles {
    /// Reads the certificate and the key, and makes the TLS acceptor of the view from them.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or is no PEM, if others may read the key, or if the key does
    /// not belong to the certificate. A certificate that is not valid now causes only a warning.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, TlsFileError> {
        let chain = read_chain(&self.certificate)?;
        let key = read_key(&self.key)?;
        let first = chain.first().map(|certificate| certificate.to_vec()).unwrap_or_default();
        if let Some(warning) = validity_warning(&first, Time::now()) {
            let path = self.certificate.display();
            tracing::warn!("the certificate in {path} {warning}; browsers will refuse it");
        }

        let unusable = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => TlsFileError::KeyMismatch { files: self.clone() },
            other => {
                let path = self.certificate.clone();
                TlsFileError::Unusable { path, detail: other.to_string() }
            }
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let mut config =
            builder.with_no_client_auth().with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = read(path, open(path)?)?;
    let what = "certificate";
    let not_pem = |detail: String| TlsFileError::NotPem { path: path.to_owned(), what, detail };
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| not_pem(error.to_string()))?;
    if chain.is_empty() { Err(not_pem("no section CERTIFICATE".to_owned())) } else { Ok(chain) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let file = open(path)?;
    // Ordering rule: the file is opened first, then judged and read through its handle, so that a
    // change of its path has no effect.
    let metadata = file.metadata().map_err(|source| unreadable(path, source))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & READABLE_BY_OTHERS != 0 && !mutant("take-an-open-key") {
        return Err(TlsFileError::KeyOpenToOthers { path: path.to_owned(), mode });
    }

    let bytes = read(path, file)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| TlsFileError::NotPem {
        path: path.to_owned(),
        what: "private key",
        detail: error.to_string(),
    })
}

fn unreadable(path: &Path, source: std::io::Error) -> TlsFileError {
    TlsFileError::Unreadable { path: path.to_owned(), source }
}

/// Opens a regular file. Fails for anything else, such as a directory or a device. Does not block,
/// even if the path is that of a pipe.
fn open(path: &Path) -> Result<File, TlsFileError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| unreadable(path, error.into()))?);
    let metadata = file.metadata().map_err(|source| unreadable(path, source))?;
    if metadata.is_file() {
        return Ok(file);
    }
    Err(TlsFileError::NotAFile { path: path.to_owned() })
}

fn read(path: &Path, file: File) -> Result<Vec<u8>, TlsFileError> {
    let mut bytes = Vec::new();
    let most = limits::WEB_TLS_FILE_BYTES_MAX;
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|source| unreadable(path, source))?;
    if bytes.len() as u64 > most {
        let detail = format!("it has more than {most} bytes");
        let path = path.to_owned();
        return Err(TlsFileError::NotPem { path, what: "certificate or key", detail });
    }
    Ok(bytes)
}

/// Returns why a certificate is not valid at a time; `None` if it is valid, or if its dates cannot
/// be read.
fn validity_warning(certificate: &[u8], now: Time) -> Option<&'static str> {
    let (begin, end) = validity(certificate).ok()?;
    let seconds = now.0.div_euclid(1_000_000);
    match () {
        () if seconds < begin => Some("is not valid yet"),
        () if seconds > end => Some("has expired"),
        () => None,
    }
}

/// Returns the first and the last second, in Unix time, at which an X.509 certificate is valid.
fn validity(certificate: &[u8]) -> pkcs8::der::Result<(i64, i64)> {
    let mut outer = SliceReader::new(certificate)?;
    Header::decode(&mut outer)?;
    Header::decode(&mut outer)?;
    // The version is optional. Serial number, algorithm and issuer follow it.
    let mut part = Any::decode(&mut outer)?;
    if part.tag() != Tag::Integer {
        part = Any::decode(&mut outer)?;
    }
    drop(part);
    Any::decode(&mut outer)?;
    Any::decode(&mut outer)?;
    Header::decode(&mut outer)?;
    Ok((seconds(&mut outer)?, seconds(&mut outer)?))
}

fn seconds(reader: &mut SliceReader<'_>) -> pkcs8::der::Result<i64> {
    let since = match reader.peek_tag()? {
        Tag::UtcTime => UtcTime::decode(reader)?.to_unix_duration(),
        _ => GeneralizedTime::decode(reader)?.to_unix_duration(),
    };
    Ok(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../../tests/data/web/view-cert.pem");

    #[test]
    fn a_certificate_is_warned_of_before_and_after_its_dates() {
        let der = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let (begin, end) = validity(&der).unwrap();
        assert!(begin < end);

        let at = |seconds: i64| validity_warning(&der, Time(seconds * 1_000_000));
        assert_eq!(at(begin - 1), Some("is not valid yet"));
        assert_eq!(at(begin), None);
        assert_eq!(at(end), None);
        assert_eq!(at(end + 1), Some("has expired"));
        assert_eq!(validity_warning(b"no certificate", Time(0)), None);
    }

    #[test]
    fn a_pipe_or_a_device_is_refused_without_waiting_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&*pipe, Path::new("/dev/zero"), Path::new("/"), Path::new("/dev/tty")] {
            let chain = read_chain(path).unwrap_err().to_string();
            assert!(
                chain.contains("is no regular file") || chain.contains("cannot read"),
                "{chain}"
            );
            let key = read_key(path).unwrap_err().to_string();
            assert!(key.contains("is no regular file") || key.contains("cannot read"), "{key}");
        }
    }

    #[test]
    fn a_file_that_grows_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long.pem");
        let long = "x".repeat(usize::try_from(limits::WEB_TLS_FILE_BYTES_MAX).unwrap() + 1);
        std::fs::write(&path, long).unwrap();
        let error = read_chain(&path).unwrap_err().to_string();
        assert!(error.contains("more than"), "{error}");
    }
}
