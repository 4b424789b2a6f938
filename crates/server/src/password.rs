//! argon2id: making verifiers, and checking them on a bounded number of threads.

use std::{num::NonZeroU32, sync::Arc};

use argon2::{
    Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use tokio::sync::Semaphore;
use whimbrel_service::scram::{ITERATIONS_MIN, derive, to_text};
use zeroize::Zeroizing;

use crate::{config::AuthSection, node::random};

/// Longest password: argon2 reads all of it.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Characters of a generated password; without those that look alike.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// 20 of 32 characters: 100 bits.
const GENERATED_CHARS: usize = 20;

/// Why a password cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The password is empty.
    #[error("the password is empty")]
    Empty,
    /// The password is too long.
    #[error("the password is longer than {PASSWORD_BYTES_MAX} bytes")]
    Long,
    /// The parameters of argon2 are not possible.
    #[error("argon2: {0}")]
    Argon2(String),
}

fn argon2_error(error: impl ToString) -> PasswordError {
    PasswordError::Argon2(error.to_string())
}

fn argon2(config: &AuthSection) -> Result<Argon2<'static>, PasswordError> {
    let kibibytes = u32::try_from(config.argon2_memory.0 >> 10).unwrap_or(u32::MAX);
    let params = Params::new(kibibytes, config.argon2_passes, config.argon2_lanes, None)
        .map_err(argon2_error)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// The PHC string to keep for a password, under a new salt.
pub fn make_verifier(config: &AuthSection, password: &[u8]) -> Result<String, PasswordError> {
    match password.len() {
        0 => return Err(PasswordError::Empty),
        1..=PASSWORD_BYTES_MAX => {}
        _ => return Err(PasswordError::Long),
    }
    let salt: [u8; 16] = random();
    let hash = argon2(config)?
        .hash_password_with_salt(password, &salt)
        .map_err(argon2_error)?;
    Ok(hash.to_string())
}

/// A verifier that no password fits, to compare with at the usual cost.
pub fn decoy(config: &AuthSection) -> Result<String, PasswordError> {
    let argon2 = argon2(config)?;
    let hash = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: ParamsString::try_from(argon2.params()).map_err(argon2_error)?,
        salt: Some(Salt::new(&random::<16>()).map_err(argon2_error)?),
        // As long as a real one, and chosen, not computed: nobody has a password for it.
        hash: Some(Output::new(&random::<{ Params::DEFAULT_OUTPUT_LEN }>()).map_err(argon2_error)?),
    };
    Ok(hash.to_string())
}

/// What is stored of a password: the verifier, and the keys of SCRAM if these are wanted and can be made from the password.
#[derive(Clone, Debug)]
pub struct Made {
    /// argon2id, a PHC string.
    pub verifier: String,
    /// As text (RFC 5803).
    pub scram: Option<String>,
    /// Why there are no keys although they are wanted.
    pub no_scram: Option<String>,
}

/// Makes verifier and keys, each under a new salt.
///
/// # Errors
/// When the password cannot be used at all.
pub fn make(config: &AuthSection, password: &[u8]) -> Result<Made, PasswordError> {
    let verifier = make_verifier(config, password)?;
    let (mut scram, mut no_scram) = (None, None);
    if let Some(iterations) = scram_iterations(config) {
        match std::str::from_utf8(password) {
            Err(_) => no_scram = Some("it is not UTF-8".to_owned()),
            Ok(text) => match derive(text, random(), iterations) {
                Ok(keys) => scram = Some(to_text(&keys)),
                Err(error) => no_scram = Some(error.to_string()),
            },
        }
    }
    Ok(Made {
        verifier,
        scram,
        no_scram,
    })
}

/// Iterations of new keys; `None`: SCRAM is switched off.
pub fn scram_iterations(config: &AuthSection) -> Option<NonZeroU32> {
    NonZeroU32::new(config.scram_iterations).map(|wanted| {
        // Never fewer than the RFC requires.
        wanted.max(NonZeroU32::new(ITERATIONS_MIN).unwrap_or(NonZeroU32::MIN))
    })
}

/// Whether a text is a verifier that [`matches`] can use.
pub fn is_verifier(text: &str) -> bool {
    PasswordHash::new(text).is_ok_and(|hash| {
        hash.algorithm.as_str() == Algorithm::Argon2id.as_str()
            && hash.hash.is_some()
            && Params::try_from(&hash).is_ok()
    })
}

/// Compares a password. It takes tens of milliseconds: not for a thread that serves others.
fn matches(verifier: &str, password: &[u8]) -> bool {
    password.len() <= PASSWORD_BYTES_MAX
        && PasswordHash::new(verifier)
            .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// A random password.
pub fn generate() -> Zeroizing<String> {
    let bytes: Zeroizing<[u8; GENERATED_CHARS]> = Zeroizing::new(random());
    let mut password = Zeroizing::new(String::with_capacity(GENERATED_CHARS + 3));
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 && at % 5 == 0 {
            password.push('-');
        }
        password.push(char::from(ALPHABET[usize::from(byte % 32)]));
    }
    password
}

/// Checks at most so many passwords at once, on threads of their own.
#[derive(Clone, Debug)]
pub struct Verifier {
    places: Arc<Semaphore>,
}

impl Verifier {
    /// A verifier with the configured number of places.
    #[must_use]
    pub fn new(config: &AuthSection) -> Self {
        Verifier {
            places: Arc::new(Semaphore::new(config.verifications_max)),
        }
    }

    /// Waits for a place and compares the password there.
    pub async fn check(&self, verifier: String, password: Zeroizing<Vec<u8>>) -> bool {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
            return false;
        };
        tokio::task::spawn_blocking(move || {
            // Held until the comparison is done, even if nobody waits for it any more: places bound the memory.
            let _place = place;
            matches(&verifier, &password)
        })
        .await
        .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn cheap() -> AuthSection {
        Config::parse("[auth]\nargon2_memory = '1MiB'\nargon2_passes = 1")
            .unwrap()
            .auth
    }

    #[test]
    fn a_verifier_knows_its_password() {
        let verifier = make_verifier(&cheap(), b"secret").unwrap();
        assert!(
            verifier.starts_with("$argon2id$v=19$m=1024,t=1,p=1$"),
            "{verifier}"
        );
        assert!(is_verifier(&verifier));
        assert!(matches(&verifier, b"secret"));
        assert!(!matches(&verifier, b"Secret"));
        assert!(!matches(&verifier, b""));
        assert_ne!(
            verifier,
            make_verifier(&cheap(), b"secret").unwrap(),
            "salted"
        );
        assert!(matches!(
            make_verifier(&cheap(), b""),
            Err(PasswordError::Empty)
        ));
        assert!(matches!(
            make_verifier(&cheap(), &[b'x'; PASSWORD_BYTES_MAX + 1]),
            Err(PasswordError::Long)
        ));
        for text in [
            "",
            "secret",
            "$argon2id$v=19$m=1024,t=1,p=1$",
            "$2b$12$abcdefghijklmnopqrstuv",
        ] {
            assert!(!is_verifier(text), "{text}");
            assert!(!matches(text, b"secret"));
        }
    }

    #[test]
    fn the_decoy_costs_what_a_verifier_costs_and_fits_nothing() {
        let real = make_verifier(&cheap(), b"secret").unwrap();
        let made = decoy(&cheap()).unwrap();
        assert!(is_verifier(&made), "{made}");
        assert_eq!(made.len(), real.len());
        assert!(made.starts_with("$argon2id$v=19$m=1024,t=1,p=1$"), "{made}");
        assert_ne!(made, decoy(&cheap()).unwrap());
        for password in [&b""[..], b"secret"] {
            assert!(!matches(&made, password));
        }
    }

    #[test]
    fn keys_of_scram_are_made_where_they_can_be() {
        let check = |iterations: u32, password: &[u8], expected: Result<u32, Option<&str>>| {
            let config = AuthSection {
                scram_iterations: iterations,
                ..cheap()
            };
            let made = make(&config, password).unwrap();
            assert!(matches(&made.verifier, password));
            let keys = made
                .scram
                .map(|text| whimbrel_service::scram::from_text(&text).unwrap());
            let found = keys.map_or(Err(made.no_scram.as_deref()), |keys| Ok(keys.iterations));
            assert_eq!(found, expected);
        };
        check(5000, b"secret", Ok(5000));
        check(1, b"secret", Ok(4096));
        check(0, b"secret", Err(None));
        check(5000, b"a\xff", Err(Some("it is not UTF-8")));
        check(5000, b"a\x07", Err(Some("a character that is not allowed")));
        let config = cheap();
        let twice = [(); 2].map(|()| make(&config, b"secret").unwrap().scram);
        assert_ne!(twice[0], twice[1], "salted");
    }

    #[test]
    fn generated_passwords_differ() {
        let (a, b) = (generate(), generate());
        assert_ne!(a, b);
        assert_eq!(a.len(), GENERATED_CHARS + 3);
    }

    #[tokio::test]
    async fn verification_is_bounded() {
        let verifier = make_verifier(&cheap(), b"secret").unwrap();
        let pool = Verifier::new(&AuthSection {
            verifications_max: 1,
            ..cheap()
        });
        let held = pool.places.clone().acquire_owned().await.unwrap();
        let check = pool.check(verifier, Zeroizing::new(b"secret".to_vec()));
        tokio::pin!(check);
        // No place is free: the comparison does not begin.
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(
                check.as_mut().poll(context).is_pending()
            ))
            .await
        );
        drop(held);
        assert!(check.await);
    }
}
