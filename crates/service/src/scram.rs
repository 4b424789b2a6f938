//! What SCRAM-SHA-256 computes (RFC 5802, 3; RFC 7677): keys from a password, and the check of a proof.
//!
//! Making keys costs the iterations of PBKDF2 and is done where a password is set; a login costs the server a few hashes. The messages are the
//! matter of the session.

use std::num::NonZeroU32;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq as _;
pub use whimbrel_directory::{
    ScramKeys,
    credential::{KEY_BYTES, SALT_BYTES},
};
use zeroize::Zeroizing;

pub use crate::saslprep::{PrepError, saslprep};

/// Iterations that RFC 7677, 4 asks for at least.
pub const ITERATIONS_MIN: u32 = 4096;

/// Makes the keys of a password.
///
/// # Errors
/// When the password cannot be prepared: no client could prove it.
pub fn derive(
    password: &str,
    salt: [u8; SALT_BYTES],
    iterations: NonZeroU32,
) -> Result<ScramKeys, PrepError> {
    let password = saslprep(password)?;
    let mut salted = Zeroizing::new([0; KEY_BYTES]);
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        iterations,
        &salt,
        password.as_bytes(),
        &mut *salted,
    );
    let client_key = Zeroizing::new(mac(&*salted, b"Client Key"));
    Ok(ScramKeys {
        salt,
        iterations: iterations.get(),
        stored_key: hash(&*client_key),
        server_key: mac(&*salted, b"Server Key"),
    })
}

/// Checks a client's proof over `auth_message`; the server's signature if it is right.
#[must_use]
pub(crate) fn check(
    keys: &ScramKeys,
    auth_message: &[u8],
    proof: &[u8; KEY_BYTES],
) -> Option<[u8; KEY_BYTES]> {
    // ClientProof := ClientKey XOR ClientSignature; StoredKey := H(ClientKey).
    let mut client_key = Zeroizing::new(mac(&keys.stored_key, auth_message));
    for (byte, proof) in client_key.iter_mut().zip(proof) {
        *byte ^= proof;
    }
    let is_right = hash(&*client_key).ct_eq(&keys.stored_key);
    bool::from(is_right).then(|| mac(&keys.server_key, auth_message))
}

fn mac(key: &[u8], data: &[u8]) -> [u8; KEY_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    let mut out = [0; KEY_BYTES];
    out.copy_from_slice(tag.as_ref());
    out
}

fn hash(data: &[u8]) -> [u8; KEY_BYTES] {
    let mut out = [0; KEY_BYTES];
    out.copy_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    out
}

/// Before the parts of keys as text.
const SCHEME: &str = "SCRAM-SHA-256";

/// Keys as text, in the form of RFC 5803: `SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`, in base64.
#[must_use]
pub fn to_text(keys: &ScramKeys) -> String {
    let [salt, stored, server] =
        [&keys.salt[..], &keys.stored_key, &keys.server_key].map(|bytes| STANDARD.encode(bytes));
    format!("{SCHEME}${}:{salt}${stored}:{server}", keys.iterations)
}

/// The inverse of [`to_text`]; `None` for keys that no login could use.
#[must_use]
pub fn from_text(text: &str) -> Option<ScramKeys> {
    fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
        STANDARD.decode(text).ok()?.try_into().ok()
    }
    let (head, keys) = text
        .strip_prefix(SCHEME)?
        .strip_prefix('$')?
        .split_once('$')?;
    let (iterations, salt) = head.split_once(':')?;
    let (stored, server) = keys.split_once(':')?;
    let keys = ScramKeys {
        salt: bytes(salt)?,
        iterations: iterations.parse().ok()?,
        stored_key: bytes(stored)?,
        server_key: bytes(server)?,
    };
    (keys.iterations >= ITERATIONS_MIN).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, 3: user `user`, password `pencil`.
    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const AUTH_MESSAGE: &[u8] = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SIGNATURE: &str = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        STANDARD.decode(text).unwrap().try_into().unwrap()
    }

    fn keys(password: &str) -> ScramKeys {
        let iterations = NonZeroU32::new(4096).unwrap();
        derive(password, bytes(SALT), iterations).unwrap()
    }

    #[test]
    fn the_example_of_rfc_7677() {
        let keys = keys("pencil");
        let signature = check(&keys, AUTH_MESSAGE, &bytes(PROOF));
        assert_eq!(signature, Some(bytes(SIGNATURE)));
        assert_eq!(from_text(&to_text(&keys)), Some(keys));
    }

    #[test]
    fn any_other_proof_message_or_password_is_wrong() {
        let right = keys("pencil");
        let proof: [u8; KEY_BYTES] = bytes(PROOF);
        for bit in 0..8 * KEY_BYTES {
            let mut other = proof;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check(&right, AUTH_MESSAGE, &other), None, "bit {bit}");
        }
        assert_eq!(check(&right, &AUTH_MESSAGE[1..], &proof), None);
        assert_eq!(check(&keys("Pencil"), AUTH_MESSAGE, &proof), None);
        // Nor does the stored key open the door (RFC 5802, 9: that is what it is good for).
        assert_eq!(check(&right, AUTH_MESSAGE, &right.stored_key), None);
    }

    #[test]
    fn spellings_of_a_password_are_one() {
        assert_eq!(keys("Zu\u{308}rich"), keys("Z\u{fc}rich"));
        assert_ne!(keys("zurich"), keys("Z\u{fc}rich"));
        let iterations = NonZeroU32::new(1).unwrap();
        assert_eq!(
            derive("a\u{7}", [0; SALT_BYTES], iterations),
            Err(PrepError::Prohibited)
        );
    }

    #[test]
    fn texts_that_are_no_keys() {
        let good = to_text(&keys("pencil"));
        let check = |text: &str| assert_eq!(from_text(text), None, "{text}");
        check("");
        check(&good[..good.len() - 1]);
        check(&good.replace("SHA-256", "SHA-1"));
        check(&good.replace("4096", "4095"));
        check(&good.replace("4096", "x"));
        check(&good.replace("4096", "99999999999"));
        check(&good.replace('$', ":"));
        check(&format!("{good}="));
    }
}
