//! Writes operators' keys that are cheap to decrypt, because the tests decrypt many of them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::{EncodePrivateKey as _, KeypairBytes};
use organism::thread::OperatorPublicKey;
use pkcs8::pkcs5::{pbes2, scrypt};
use pkcs8::{LineEnding, PrivateKeyInfo};
use rand_core::OsRng;

/// Binary logarithm of the number of blocks that scrypt computes for each guess at a passphrase.
/// `organism operator key` uses 14, and lets scrypt do the work eight times. It takes a third of a
/// second to open such a key.
const GUESS_COST_LOG: u8 = 4;

/// Writes a new key as `organism operator key` does, except that a guess at its passphrase costs
/// little. Returns the public key.
pub fn write_operator_key(path: &Path, passphrase: &str) -> OperatorPublicKey {
    let key = SigningKey::generate(&mut OsRng);
    let plain = KeypairBytes { secret_key: key.to_bytes(), public_key: None };
    let plain = plain.to_pkcs8_der().unwrap();
    let plain = PrivateKeyInfo::try_from(plain.as_bytes()).unwrap();

    let guess = scrypt::Params::new(GUESS_COST_LOG, 8, 1, 32).unwrap();
    let parameters = pbes2::Parameters::scrypt_aes256cbc(guess, &[7; 16], &[8; 16]).unwrap();
    let encrypted = plain.encrypt_with_params(parameters, passphrase).unwrap();
    let pem = encrypted.to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).unwrap();
    std::fs::write(path, pem).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();

    OperatorPublicKey::of(&key)
}
