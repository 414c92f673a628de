//! The key with which an operator signs decisions. The key is stored in a file, encrypted with a
//! passphrase (PKCS #8, which OpenSSL reads).

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, KeypairBytes};
use pkcs8::der::pem::PemLabel as _;
use pkcs8::der::zeroize::Zeroizing;
use pkcs8::pkcs5::{pbes2, scrypt};
use pkcs8::{EncodePrivateKey as _, EncryptedPrivateKeyInfo, LineEnding, PrivateKeyInfo};
use rand_core::{OsRng, RngCore as _};
use uuid::Uuid;

use super::{DecisionRequest, ForkRequest, PauseRequest, ServiceRequest, SubmittedAnswer};
use crate::clock::Time;
use crate::durable_file;
use crate::ids::{Digest, ThreadId};
use crate::limits;
use crate::thread::{
    Decision, DecisionOrigin, DecisionSignature, DecisionStatement, OperatorPublicKey,
    RecordedAnswer, Verdict, fork_text, retry_text,
};
use crate::xml::scan::scan_within;

/// Why an operator's signing key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} exists, and a key is never overwritten; name another file", path.display())]
    Exists { path: PathBuf },
    #[error("{} cannot be written: {source}", path.display())]
    NotWritten { path: PathBuf, source: std::io::Error },
    #[error("other users can read {}: run `chmod 600 {}`", path.display(), path.display())]
    Readable { path: PathBuf },
    #[error("{} is not an encrypted Ed25519 key, as `organism operator key` writes it", path.display())]
    NotAKey { path: PathBuf },
    #[error("this is not the passphrase of {}", path.display())]
    WrongPassphrase { path: PathBuf },
    #[error("the key cannot be encrypted: {detail}")]
    NotEncrypted { detail: String },
}

/// Signs decisions with an operator's key. Its `Debug` form hides the key.
pub struct OperatorSigner(SigningKey);

impl std::fmt::Debug for OperatorSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OperatorSigner({})", self.public())
    }
}

impl OperatorSigner {
    /// Generates a key and writes it, encrypted, to a new file that only its owner can read.
    pub fn create(path: &Path, passphrase: &str) -> Result<Self, Error> {
        let key = SigningKey::generate(&mut OsRng);
        let pem = encrypted_pem(&key, passphrase)
            .map_err(|error| Error::NotEncrypted { detail: error.to_string() })?;

        let written = durable_file::write_new_private(path, pem.as_bytes());
        let path = path.to_owned();

        match written {
            Ok(()) => Ok(Self(key)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Error::Exists { path }),
            Err(source) => Err(Error::NotWritten { path, source }),
        }
    }

    /// Loads the key in `path`. Calls `passphrase` only after checking that the file contains a
    /// key.
    pub fn load<E: From<Error>>(
        path: &Path,
        passphrase: impl FnOnce() -> Result<Zeroizing<String>, E>,
    ) -> Result<Self, E> {
        let pem = read_private(path)?;
        let named = || path.to_owned();
        if pkcs8::der::pem::decode_label(pem.as_bytes()) != Ok(EncryptedPrivateKeyInfo::PEM_LABEL) {
            return Err(Error::NotAKey { path: named() }.into());
        }

        let passphrase = passphrase()?;
        let key = SigningKey::from_pkcs8_encrypted_pem(&pem, passphrase.as_bytes());
        key.map(Self).map_err(|_| Error::WrongPassphrase { path: named() }.into())
    }

    pub fn public(&self) -> OperatorPublicKey {
        OperatorPublicKey::of(&self.0)
    }

    /// Shortens the texts of a request to the parts that the journal records, and signs the request
    /// with the present time. The signature names `thread`, which must be the thread that the
    /// request concerns.
    pub fn sign(&self, request: &mut ServiceRequest, journal: Uuid, thread: &ThreadId) {
        let mut random = [0; 16];
        OsRng.fill_bytes(&mut random);
        let nonce = uuid::Builder::from_random_bytes(random).into_uuid();
        self.sign_at(request, journal, thread, (Time::now(), nonce));
    }

    /// Signs a request as [`OperatorSigner::sign`] does, but with the time and the nonce in
    /// `moment`.
    pub fn sign_at(
        &self,
        request: &mut ServiceRequest,
        journal: Uuid,
        thread: &ThreadId,
        moment: (Time, Uuid),
    ) {
        shorten(request);
        let place = (journal, thread.clone());
        let signed = with_statement(request, |statement| {
            DecisionSignature::new(&self.0, place, moment, statement)
        });
        if let Some(origin) = request.origin_mut() {
            origin.get_or_insert_default().signature = signed.map(Box::new);
        }
    }
}

/// Journal, thread, time and nonce of a signature that a browser makes.
#[derive(Debug, Clone)]
pub struct SignaturePlace {
    pub journal: Uuid,
    pub thread: ThreadId,
    pub time: Time,
    pub nonce: Uuid,
}

impl SignaturePlace {
    /// Creates the data of a signature for `journal` and `thread`, with the present time and a
    /// random nonce.
    pub fn now(journal: Uuid, thread: ThreadId) -> Self {
        let mut random = [0; 16];
        OsRng.fill_bytes(&mut random);
        let nonce = uuid::Builder::from_random_bytes(random).into_uuid();
        Self { journal, thread, time: Time::now(), nonce }
    }

    /// Returns the text that an operator signs for this request; `None` if requests of this kind
    /// are not signed. First shortens the request to the parts that the journal records, such as
    /// the root element of an answer's payload.
    pub fn text_to_sign(&self, request: &mut ServiceRequest) -> Option<String> {
        shorten(request);
        let place = (self.journal, &self.thread);
        let moment = (self.time, self.nonce);
        let bytes = with_statement(request, |statement| statement.signed_bytes(place, moment))?;
        String::from_utf8(bytes).ok()
    }

    /// Adds a signature to the request, and shortens the texts of the request to the parts that the
    /// journal records. Does not check the signature, because the pump does this.
    pub fn add_signature(
        &self,
        request: &mut ServiceRequest,
        key: OperatorPublicKey,
        signature: [u8; 64],
    ) {
        shorten(request);
        let place = (self.journal, self.thread.clone());
        let moment = (self.time, self.nonce);
        let signed = DecisionSignature::made_elsewhere(key, place, moment, signature);
        if let Some(origin) = request.origin_mut() {
            origin.get_or_insert_default().signature = Some(Box::new(signed));
        }
    }
}

/// Encrypts a key with a passphrase, so that OpenSSL can read it, too.
fn encrypted_pem(key: &SigningKey, passphrase: &str) -> pkcs8::Result<Zeroizing<String>> {
    const KEY_BYTES: usize = 32;
    let plain = KeypairBytes { secret_key: key.to_bytes(), public_key: None };
    let plain = plain.to_pkcs8_der()?;
    let plain = PrivateKeyInfo::try_from(plain.as_bytes())?;

    let mut salt = [0; 16];
    OsRng.fill_bytes(&mut salt);
    let mut iv = [0; 16];
    OsRng.fill_bytes(&mut iv);

    let guess = scrypt::Params::new(
        limits::PASSPHRASE_SCRYPT_LOG_N,
        limits::PASSPHRASE_SCRYPT_R,
        limits::PASSPHRASE_SCRYPT_P,
        KEY_BYTES,
    );
    let guess = guess.map_err(|_| pkcs8::Error::ParametersMalformed)?;
    let parameters = pbes2::Parameters::scrypt_aes256cbc(guess, &salt, &iv)?;
    let encrypted = plain.encrypt_with_params(parameters, passphrase)?;
    Ok(encrypted.to_pem(EncryptedPrivateKeyInfo::PEM_LABEL, LineEnding::LF)?)
}

/// Reads a file if only its owner may read it. Otherwise returns an error.
pub fn read_private(path: &Path) -> Result<Zeroizing<String>, Error> {
    const OTHERS_READ: u32 = 0o044;
    let failed = |source| Error::Unreadable { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_file() && metadata.permissions().mode() & OTHERS_READ != 0 {
        return Err(Error::Readable { path: path.to_owned() });
    }

    std::fs::read_to_string(path).map(Zeroizing::new).map_err(failed)
}

/// Returns the signature of a request if the signature is valid for this request, and otherwise
/// `None`. Does not check whose key made the signature.
pub fn holding_signature(request: &ServiceRequest) -> Option<&DecisionSignature> {
    let signature = request.origin()?.signature.as_deref()?;
    let fits = request.signed_thread().is_none_or(|thread| thread == signature.thread);
    // No signature is valid for a request without a statement, such as a reload.
    let holds = with_statement(request, |statement| signature.holds(statement))?;
    (fits && holds).then_some(signature)
}

/// Calls `then` with the statement that an operator signs for the request, and returns the result
/// of `then`. Returns `None` in two cases:
/// - Operators do not sign requests of this kind.
/// - The request is an approval with a digest that is incomplete or malformed.
fn with_statement<T>(
    request: &ServiceRequest,
    then: impl FnOnce(&DecisionStatement<'_>) -> T,
) -> Option<T> {
    let note = |origin: &Option<DecisionOrigin>| {
        origin.as_ref().map(|origin| origin.note.clone()).unwrap_or_default()
    };

    match request {
        ServiceRequest::Decide(DecisionRequest { message, what, origin, .. }) => {
            let decision = what.as_ref().map_answer(recorded_answer);
            let note = note(origin);
            DecisionStatement::decided(*message, &decision, &note).map(|signed| then(&signed))
        }
        ServiceRequest::Cancel { reason, origin, .. } => {
            Some(then(&DecisionStatement::cancel(reason, &note(origin))))
        }
        ServiceRequest::Pause(PauseRequest { verb, target, origin, .. }) => {
            let target = target.to_string();
            Some(then(&DecisionStatement::pause(*verb, &target, &note(origin))))
        }
        ServiceRequest::Fork(fork) => {
            let payload = fork.payload.as_ref().map(|payload| Digest::of(payload.as_bytes()));
            let ForkRequest { message, unpinned, client, live, allotment, origin, .. } = &**fork;
            let text = fork_text((*message, *unpinned), client, payload, live, allotment);
            Some(then(&DecisionStatement::fork(&text, &note(origin))))
        }
        ServiceRequest::Retry(retry) => {
            let text = retry_text(retry.message, retry.is_confirmed);
            Some(then(&DecisionStatement::retry(&text, &note(&retry.origin))))
        }
        ServiceRequest::FollowLive(live) => {
            Some(then(&DecisionStatement::watch(&note(&live.origin))))
        }
        ServiceRequest::Submit(_)
        | ServiceRequest::AwaitResults(_)
        | ServiceRequest::HeldThread { .. }
        | ServiceRequest::HeldCalls { .. }
        | ServiceRequest::JournalId { .. }
        | ServiceRequest::FollowJournals
        | ServiceRequest::Reload { .. }
        | ServiceRequest::Status => None,
    }
}

/// Returns the form in which the journal records `answer`, provided that the gate accepts its
/// payload.
fn recorded_answer(answer: &SubmittedAnswer) -> RecordedAnswer {
    let verdict = Verdict::Passed(Digest::of(&answer.payload));
    RecordedAnswer { listener: answer.listener.clone(), verdict }
}

/// Shortens every text of the request to the length that the journal records. Shortens the payload
/// of an answer or of a fork to its root element.
fn shorten(request: &mut ServiceRequest) {
    let cut = |text: &mut String| *text = text.chars().take(limits::REASON_CHARS_MAX).collect();
    match request {
        ServiceRequest::Decide(DecisionRequest { what: Decision::Answer(answer), .. }) => {
            cut_to_root(&mut answer.payload);
        }
        ServiceRequest::Fork(fork) => {
            fork.payload = fork.payload.take().map(|payload| {
                let mut bytes = payload.into_bytes();
                cut_to_root(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            });
        }
        ServiceRequest::Decide(DecisionRequest { what: Decision::Refuse { reason }, .. })
        | ServiceRequest::Cancel { reason, .. } => cut(reason),
        _ => {}
    }

    if let Some(Some(origin)) = request.origin_mut() {
        cut(&mut origin.note);
    }
}

/// Shortens a payload to its root element. If the gate would refuse the payload as XML, leaves it
/// unchanged.
fn cut_to_root(payload: &mut Vec<u8>) {
    let scanned = scan_within(payload, limits::PAYLOAD_BYTES_MAX);
    let root = scanned.ok().and_then(|scanned| payload.get(scanned.root).map(<[u8]>::to_vec));
    if let Some(root) = root {
        *payload = root;
    }
}
