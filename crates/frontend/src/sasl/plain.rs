//! PLAIN (RFC 4616) and LOGIN, which no RFC has and many clients use: a name and a password as they are.

use std::net::IpAddr;

use whimbrel_service::api::{Authenticate, Call};
use zeroize::Zeroizing;

use super::Refused;

/// What clients of LOGIN wait for, some to the letter.
pub(super) const ASK_USER: &[u8] = b"Username:";
pub(super) const ASK_PASSWORD: &[u8] = b"Password:";

/// RFC 4616, 2: names have up to 255 octets.
const NAME_BYTES_MAX: usize = 255;

/// `message = [authzid] UTF8NUL authcid UTF8NUL passwd` (RFC 4616, 2).
pub(super) fn plain(message: &[u8], peer: IpAddr) -> Result<Call, Refused> {
    let mut parts = message.split(|&byte| byte == 0);
    let (Some(acts_for), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refused::Malformed("Invalid PLAIN message"));
    };
    let user = name(user)?;
    // Nobody may act for another one.
    if !acts_for.is_empty() && !acts_for.eq_ignore_ascii_case(user.as_bytes()) {
        return Err(Refused::ActsForAnother);
    }
    Ok(check(user, password, peer))
}

/// A name.
pub(super) fn name(bytes: &[u8]) -> Result<String, Refused> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0') => {
            Ok(text.to_owned())
        }
        _ => Err(Refused::Malformed("Invalid login name")),
    }
}

/// The call that checks a password.
pub(super) fn check(login: String, password: &[u8], peer: IpAddr) -> Call {
    Call::Authenticate(Authenticate {
        login,
        password: Zeroizing::new(password.to_vec()),
        peer,
    })
}
