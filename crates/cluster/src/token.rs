//! Tokens: an administrator copies one from a member to a node that joins.
//!
//! A token has the address of a member, the fingerprint of its authority, and a secret that lets one node in. The member keeps only a hash of the
//! secret, so a copy of its disk lets nobody in later.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::NodeName;

/// Unused tokens at once. An administrator who makes more has lost count.
pub const TOKENS_MAX: usize = 100;
/// The begin of each token: people recognise it, and so do scanners for secrets.
pub(crate) const PREFIX: &str = "whimbrel-join-";
/// A token has a name, an address and three short values.
const TOKEN_BYTES_MAX: usize = 1024;

/// A token.
#[derive(Clone, Encode, Decode)]
pub struct Token {
    /// The address of the member: host and port.
    #[n(0)]
    pub address: String,
    /// The member's name, which is that of its certificate.
    #[n(1)]
    pub sponsor: String,
    /// [`crate::Authority::fingerprint`]
    #[cbor(n(2), with = "minicbor::bytes")]
    pub fingerprint: [u8; 32],
    /// Names the token at the member.
    #[n(3)]
    pub id: u64,
    /// The secret, which lets one node in.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub secret: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("address", &self.address)
            .field("sponsor", &self.sponsor)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Why a token is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is damaged.
    #[error("this is not a token: copy the whole line that `whimbrel cluster token` printed")]
    Malformed,
    /// The token was never given, was used, or has expired. The node that shows it does not learn which.
    #[error("the token is not valid: it may have been used, or be too old")]
    Invalid,
    /// There are [`TOKENS_MAX`] tokens already.
    #[error("there are {TOKENS_MAX} unused tokens already")]
    TooMany,
}

impl Token {
    /// The token as text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let bytes = match minicbor::to_vec(self) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(error) => unreachable!("writing to memory cannot fail: {error}"),
        };
        let sum = blake3::hash(&bytes);
        let mut whole = Zeroizing::new(sum.as_bytes()[..4].to_vec());
        whole.extend_from_slice(&bytes);
        Zeroizing::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&*whole)))
    }

    /// A token from its text.
    ///
    /// # Errors
    /// [`TokenError::Malformed`]
    pub fn from_text(text: &str) -> Result<Self, TokenError> {
        let malformed = TokenError::Malformed;
        let text = text.trim().strip_prefix(PREFIX).ok_or(malformed)?;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(malformed);
        }
        let whole = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed)?);
        let (sum, bytes) = whole.split_first_chunk::<4>().ok_or(malformed)?;
        if blake3::hash(bytes).as_bytes()[..4] != sum[..] {
            return Err(malformed);
        }
        let token: Token = minicbor::decode(bytes).map_err(|_| malformed)?;
        NodeName::new(&token.sponsor).map_err(|_| malformed)?;
        Ok(token)
    }
}

/// The tokens that a member has given, as it stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Tokens {
    #[n(0)]
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct Waiting {
    /// BLAKE3 of the secret: it is random, so nothing slower is needed.
    #[cbor(n(0), with = "minicbor::bytes")]
    hash: [u8; 32],
    #[n(1)]
    until_micros: u64,
    /// The incarnation that it let in. If the answer was lost and that node asks again, it is answered again.
    #[n(2)]
    used_by: Option<u64>,
}

impl Tokens {
    /// Adds a token that expires at `until_micros`, in microseconds since 1970. Store this before you give the token away.
    ///
    /// # Errors
    /// [`TokenError::TooMany`]
    pub fn give(&mut self, now: u64, token: &Token, until_micros: u64) -> Result<(), TokenError> {
        self.waiting.retain(|_, waiting| waiting.until_micros > now);
        if self.waiting.len() >= TOKENS_MAX {
            return Err(TokenError::TooMany);
        }
        let hash = *blake3::hash(&token.secret).as_bytes();
        let waiting = Waiting {
            hash,
            until_micros,
            used_by: None,
        };
        self.waiting.insert(token.id, waiting);
        Ok(())
    }

    /// Whether there is such a token and it has not expired. [`Tokens::take`] decides.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]
    pub fn judge(&self, now: u64, id: u64, secret: &[u8; 32]) -> Result<(), TokenError> {
        let waiting = self.waiting.get(&id).ok_or(TokenError::Invalid)?;
        let same = waiting.hash.ct_eq(blake3::hash(secret).as_bytes());
        match bool::from(same) && waiting.until_micros > now {
            true => Ok(()),
            false => Err(TokenError::Invalid),
        }
    }

    /// Uses a token for this incarnation, so that it lets in no other. Store this before you answer.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]
    pub fn take(
        &mut self,
        now: u64,
        id: u64,
        secret: &[u8; 32],
        incarnation: u64,
    ) -> Result<(), TokenError> {
        self.judge(now, id, secret)?;
        let waiting = self.waiting.get_mut(&id).ok_or(TokenError::Invalid)?;
        if waiting.used_by.is_some_and(|by| by != incarnation) {
            return Err(TokenError::Invalid);
        }
        waiting.used_by = Some(incarnation);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u64) -> Token {
        Token {
            address: "mail.example.org:10700".into(),
            sponsor: "eu-1".into(),
            fingerprint: [3; 32],
            id,
            secret: [id as u8; 32],
        }
    }

    #[test]
    fn a_token_is_a_line_of_text() {
        let text = token(9).to_text();
        let read = Token::from_text(&format!(" {}\n", *text)).unwrap();
        assert_eq!((read.id, read.secret), (9, [9; 32]));
        assert_eq!(read.address, "mail.example.org:10700");
        let check = |text: &str| {
            assert_eq!(
                Token::from_text(text).err(),
                Some(TokenError::Malformed),
                "{text}"
            );
        };
        check("");
        check(&text[1..]);
        check(&text[..text.len() - 1]);
        let mut other = text.to_string();
        let last = if other.pop() == Some('A') { 'B' } else { 'A' };
        other.push(last);
        check(&other);
        check(&format!("{PREFIX}{}", "A".repeat(TOKEN_BYTES_MAX + 1)));
        let shouted = Token {
            sponsor: "EU".into(),
            ..token(1)
        };
        check(&shouted.to_text());
    }

    #[test]
    fn a_token_lets_in_once_and_in_time() {
        let mut tokens = Tokens::default();
        tokens.give(0, &token(1), 100).unwrap();
        tokens.give(0, &token(2), 100).unwrap();
        assert_eq!(tokens.take(50, 1, &[2; 32], 7), Err(TokenError::Invalid));
        assert_eq!(tokens.take(50, 3, &[3; 32], 7), Err(TokenError::Invalid));
        assert_eq!(tokens.take(50, 1, &[1; 32], 7), Ok(()));
        assert_eq!(tokens.take(50, 1, &[1; 32], 8), Err(TokenError::Invalid));
        // The answer was lost on its way.
        assert_eq!(tokens.take(50, 1, &[1; 32], 7), Ok(()));
        assert_eq!(tokens.take(100, 1, &[1; 32], 7), Err(TokenError::Invalid));
        assert_eq!(tokens.take(100, 2, &[2; 32], 7), Err(TokenError::Invalid));
        let kept = minicbor::to_vec(&tokens).unwrap();
        assert_eq!(minicbor::decode::<Tokens>(&kept).unwrap(), tokens);
        // The stored form does not contain the secret.
        assert!(!kept.windows(32).any(|window| window == [2; 32]));
    }

    #[test]
    fn tokens_are_counted_and_old_ones_forgotten() {
        let mut tokens = Tokens::default();
        for id in 0..TOKENS_MAX as u64 {
            tokens.give(0, &token(id), 100).unwrap();
        }
        assert_eq!(tokens.give(99, &token(500), 200), Err(TokenError::TooMany));
        assert_eq!(tokens.give(100, &token(500), 200), Ok(()));
    }
}
