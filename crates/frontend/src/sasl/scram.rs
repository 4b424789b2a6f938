//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, 7677): the messages. What is computed is the service's.
//!
//! Channel binding (RFC 5802, 6) is where a server must be strict, or -PLUS protects from nothing:
//! - with -PLUS the flag must be `p`, and name a binding that this connection has;
//! - without, it must not be `p`; and `y` ("I could, but you did not offer it") is refused where -PLUS was offered: somebody took it off the list;
//! - `c=` must be exactly the header that the client sent first, with the data of *this* connection behind it.
//!
//! Bindings: "tls-exporter" (RFC 9266) and "tls-server-end-point" (RFC 5929), both on TLS 1.3.

use std::{net::IpAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use subtle::ConstantTimeEq as _;
use whimbrel_service::api::{AccountId, Call, Failure, Reply, SCRAM_KEY_BYTES, ScramFinish};

use super::{Channel, Mechanism, Refused, Step, plain};

/// One exchange.
#[derive(Debug)]
pub(super) struct Scram {
    plus: bool,
    /// Whether -PLUS was offered beside this mechanism.
    offered: bool,
    exporter: Option<Box<[u8]>>,
    end_point: Option<Arc<[u8]>>,
    state: ScramState,
}

#[derive(Debug)]
enum ScramState {
    /// The client's first message is awaited.
    First,
    /// The service is asked for the salt.
    Begun(First),
    /// The client's proof is awaited.
    Challenged {
        login: String,
        /// What `c=` must be.
        binding: String,
        /// The whole nonce.
        nonce: String,
        /// The first two messages, as they are proved.
        said: String,
    },
    /// The service checks the proof.
    Checking,
    /// All is proved; the client still has to say nothing, for the protocols have no room for our proof in their last word.
    Proved(AccountId, String),
    Over,
}

/// What the client's first message says.
#[derive(Debug)]
struct First {
    login: String,
    binding: String,
    nonce: String,
    bare: String,
}

impl Scram {
    pub(super) fn new(plus: bool, channel: &Channel<'_>) -> Self {
        let binding = channel.tls.map(|tls| &tls.binding);
        let exporter = binding.and_then(|binding| binding.exporter.as_ref());
        Scram {
            plus,
            offered: channel.mechanisms().contains(&Mechanism::ScramSha256Plus),
            exporter: exporter.map(|data| data[..].into()),
            end_point: binding.and_then(|binding| binding.end_point.clone()),
            state: ScramState::First,
        }
    }

    pub(super) fn respond(&mut self, message: &[u8], peer: IpAddr) -> Step {
        let step = match std::mem::replace(&mut self.state, ScramState::Over) {
            ScramState::First => self.first(message).map(|first| {
                let login = first.login.clone();
                self.state = ScramState::Begun(first);
                Step::Ask(Call::ScramBegin { login, peer })
            }),
            ScramState::Challenged {
                login,
                binding,
                nonce,
                said,
            } => last(message, &binding, &nonce, said).map(|(auth_message, proof)| {
                self.state = ScramState::Checking;
                Step::Ask(Call::ScramFinish(ScramFinish {
                    login,
                    peer,
                    auth_message,
                    proof,
                }))
            }),
            ScramState::Proved(account, login) if message.is_empty() => {
                Ok(Step::Accepted { account, login })
            }
            _ => Err(Refused::Malformed("Unexpected message")),
        };
        step.unwrap_or_else(Step::Refused)
    }

    pub(super) fn reply(&mut self, reply: Reply) -> Step {
        match (std::mem::replace(&mut self.state, ScramState::Over), reply) {
            (
                ScramState::Begun(first),
                Reply::ScramChallenge {
                    salt,
                    iterations,
                    nonce,
                },
            ) => {
                let nonce = first.nonce + &nonce;
                let challenge = format!("r={nonce},s={},i={iterations}", STANDARD.encode(salt));
                self.state = ScramState::Challenged {
                    login: first.login,
                    binding: first.binding,
                    nonce,
                    said: format!("{},{challenge}", first.bare),
                };
                Step::Challenge(challenge.into_bytes())
            }
            (
                ScramState::Checking,
                Reply::ScramAuthenticated {
                    account,
                    login,
                    signature,
                },
            ) => {
                self.state = ScramState::Proved(account, login);
                Step::Challenge(format!("v={}", STANDARD.encode(signature)).into_bytes())
            }
            _ => Step::Refused(Refused::Failed(Failure::Temporary)),
        }
    }

    /// `gs2-cbind-flag "," [ authzid ] "," [reserved-mext ","] username "," nonce ["," extensions]`
    fn first(&self, message: &[u8]) -> Result<First, Refused> {
        const WRONG: Refused = Refused::Malformed("Invalid SCRAM message");
        let message = std::str::from_utf8(message).map_err(|_| WRONG)?;
        let mut parts = message.splitn(3, ',');
        let (Some(flag), Some(acts_for), Some(bare)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(WRONG);
        };
        let data = self.bound(flag)?;
        // A mandatory extension ("m=") would stand here: there is none that we know, and "its presence [...] MUST cause authentication failure".
        let mut attributes = bare.split(',');
        let login = attribute(attributes.next(), "n=")
            .and_then(name)
            .ok_or(WRONG)?;
        let login = plain::name(login.as_bytes())?;
        let nonce = attribute(attributes.next(), "r=").ok_or(WRONG)?;
        if !nonce.bytes().all(|byte| byte.is_ascii_graphic()) || !attributes.all(is_extension) {
            return Err(WRONG);
        }
        if !acts_for.is_empty() {
            let acts_for = attribute(Some(acts_for), "a=")
                .and_then(name)
                .ok_or(WRONG)?;
            if !acts_for.eq_ignore_ascii_case(&login) {
                return Err(Refused::ActsForAnother);
            }
        }
        let header = &message[..message.len() - bare.len()];
        Ok(First {
            login,
            binding: STANDARD.encode([header.as_bytes(), data].concat()),
            nonce: nonce.to_owned(),
            bare: bare.to_owned(),
        })
    }

    /// The data that the client's flag binds to.
    fn bound(&self, flag: &str) -> Result<&[u8], Refused> {
        match (flag, flag.strip_prefix("p=")) {
            (_, Some(name)) if self.plus => match name {
                "tls-exporter" => self.exporter.as_deref(),
                "tls-server-end-point" => self.end_point.as_deref(),
                _ => None,
            }
            .ok_or(Refused::Binding),
            ("n", _) if !self.plus => Ok(&[]),
            ("y", _) if !self.plus && !self.offered => Ok(&[]),
            ("n" | "y", _) | (_, Some(_)) => Err(Refused::Binding),
            _ => Err(Refused::Malformed("Invalid SCRAM message")),
        }
    }
}

/// `channel-binding "," nonce ["," extensions] "," proof`: the message that is proved, and the proof.
fn last(
    message: &[u8],
    binding: &str,
    nonce: &str,
    said: String,
) -> Result<(Vec<u8>, [u8; SCRAM_KEY_BYTES]), Refused> {
    const WRONG: Refused = Refused::Malformed("Invalid SCRAM message");
    let message = std::str::from_utf8(message).map_err(|_| WRONG)?;
    let (proved, proof) = message.rsplit_once(",p=").ok_or(WRONG)?;
    let mut attributes = proved.split(',');
    let given = attribute(attributes.next(), "c=").ok_or(WRONG)?;
    let repeated = attribute(attributes.next(), "r=").ok_or(WRONG)?;
    if !attributes.all(is_extension) {
        return Err(WRONG);
    }
    let proof = STANDARD.decode(proof).map_err(|_| WRONG)?;
    let proof = <[u8; SCRAM_KEY_BYTES]>::try_from(proof).map_err(|_| WRONG)?;
    if !bool::from(given.as_bytes().ct_eq(binding.as_bytes())) {
        return Err(Refused::Binding);
    }
    if !bool::from(repeated.as_bytes().ct_eq(nonce.as_bytes())) {
        return Err(Refused::Failed(Failure::Credentials));
    }
    Ok(((said + "," + proved).into_bytes(), proof))
}

/// The value of an attribute; it has at least one character.
fn attribute<'a>(text: Option<&'a str>, name: &str) -> Option<&'a str> {
    text?.strip_prefix(name).filter(|value| !value.is_empty())
}

/// `attr-val = ALPHA "=" value`: an optional extension, which is ignored.
fn is_extension(text: &str) -> bool {
    let mut chars = text.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() && c != 'm')
        && chars.next() == Some('=')
        && chars.next().is_some()
        && !text.contains('\0')
}

/// `saslname`: "the characters ',' or '=' in usernames are sent as '=2C' and '=3D'".
fn name(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let rest = match part.split_at_checked(2)? {
            ("2C", rest) => {
                name.push(',');
                rest
            }
            ("3D", rest) => {
                name.push('=');
                rest
            }
            _ => return None,
        };
        name.push_str(rest);
    }
    Some(name)
}
