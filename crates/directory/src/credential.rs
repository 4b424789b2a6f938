//! What is stored of a password: the argon2id verifier, and the keys of SCRAM if they were made.
//!
//! Both come from one password and are replaced together, so they are one value under one stamp.
//!
//! Encoding: without SCRAM keys the verifier as a text, as it was before there were any; else an array of both.

use minicbor::{
    Decode, Decoder, Encode, Encoder, data::Type, decode::Error as DecodeError,
    encode::Error as EncodeError, encode::Write,
};

/// Bytes of a salt: 128 bits, never shared by two passwords.
pub const SALT_BYTES: usize = 16;
/// Bytes of a key: what SHA-256 gives.
pub const KEY_BYTES: usize = 32;

/// What is stored of a password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Credential {
    /// argon2id, a PHC string.
    pub verifier: String,
    /// `None`: the password was set before there were SCRAM keys, or SCRAM was switched off. SCRAM is then not possible.
    pub scram: Option<ScramKeys>,
}

/// What a server stores for SCRAM-SHA-256 (RFC 5802, 3). With it an attacker can pretend to be the server, and guess passwords at the cost of the
/// iterations, but not log in as the user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ScramKeys {
    /// Random.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub salt: [u8; SALT_BYTES],
    /// Iterations of PBKDF2.
    #[n(1)]
    pub iterations: u32,
    /// The hash of the client's key.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub stored_key: [u8; KEY_BYTES],
    /// The server's key.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub server_key: [u8; KEY_BYTES],
}

/// The secret from which salts are made up for names that have no SCRAM keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct DecoySecret(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; KEY_BYTES]);

impl From<String> for Credential {
    fn from(verifier: String) -> Self {
        Credential {
            verifier,
            scram: None,
        }
    }
}

impl From<&str> for Credential {
    fn from(verifier: &str) -> Self {
        verifier.to_owned().into()
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScramKeys")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for DecoySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DecoySecret(..)")
    }
}

impl<C> Encode<C> for Credential {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        match &self.scram {
            None => encoder.str(&self.verifier)?.ok(),
            Some(scram) => {
                encoder.array(2)?.str(&self.verifier)?;
                scram.encode(encoder, context)
            }
        }
    }
}

impl<'b, C> Decode<'b, C> for Credential {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, DecodeError> {
        if decoder.datatype()? == Type::String {
            return Ok(decoder.str()?.into());
        }
        if decoder.array()? != Some(2) {
            return Err(DecodeError::message("a credential has two parts"));
        }
        Ok(Credential {
            verifier: decoder.str()?.to_owned(),
            scram: Some(ScramKeys::decode(decoder, context)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_keys() -> Credential {
        Credential {
            verifier: "v".into(),
            scram: Some(ScramKeys {
                salt: [1; SALT_BYTES],
                iterations: 4096,
                stored_key: [2; KEY_BYTES],
                server_key: [3; KEY_BYTES],
            }),
        }
    }

    #[test]
    fn without_keys_it_is_the_text_it_was() {
        let check = |credential: &Credential, text_only: bool| {
            let bytes = minicbor::to_vec(credential).unwrap();
            assert_eq!(
                minicbor::decode::<Credential>(&bytes).as_ref().ok(),
                Some(credential)
            );
            assert_eq!(minicbor::decode::<String>(&bytes).is_ok(), text_only);
            for len in 0..bytes.len() {
                assert!(minicbor::decode::<Credential>(&bytes[..len]).is_err());
            }
        };
        check(&"$argon2id$x".into(), true);
        check(&with_keys(), false);
    }

    #[test]
    fn nothing_is_shown() {
        let credential = with_keys();
        let shown = format!(
            "{credential:?} {:?} {:?}",
            credential.scram,
            DecoySecret([4; KEY_BYTES])
        );
        assert_eq!(
            shown,
            "Credential { .. } Some(ScramKeys { iterations: 4096, .. }) DecoySecret(..)"
        );
    }
}
