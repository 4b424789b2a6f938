//! Replies: one line, or a line and a list that ends with a dot (RFC 1939, 3; RFC 2449, 8).

use base64::Engine as _;

/// A response code: what a program can read of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The credentials are wrong (RFC 3206, 4).
    Auth,
    /// Something of the server, likely to pass: not worth telling the user (RFC 3206, 4).
    SysTemp,
    /// Something that needs somebody to mend it (RFC 3206, 4).
    SysPerm,
    /// The login was right, and the maildrop cannot be had now (RFC 2449, 8.1.2).
    InUse,
}

impl Code {
    fn text(self) -> &'static str {
        match self {
            Code::Auth => "[AUTH] ",
            Code::SysTemp => "[SYS/TEMP] ",
            Code::SysPerm => "[SYS/PERM] ",
            Code::InUse => "[IN-USE] ",
        }
    }
}

/// `+OK text`
pub fn ok(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"+OK ");
    put(out, text);
    out.extend_from_slice(b"\r\n");
}

/// `-ERR [code] text`
pub fn err(out: &mut Vec<u8>, code: Option<Code>, text: &str) {
    out.extend_from_slice(b"-ERR ");
    if let Some(code) = code {
        out.extend_from_slice(code.text().as_bytes());
    }
    put(out, text);
    out.extend_from_slice(b"\r\n");
}

/// `+ base64`: a challenge of AUTH (RFC 5034, 4).
pub fn challenge(out: &mut Vec<u8>, challenge: &[u8]) {
    out.extend_from_slice(b"+ ");
    let text = base64::engine::general_purpose::STANDARD.encode(challenge);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One line of a list.
pub fn line(out: &mut Vec<u8>, text: &str) {
    if text.starts_with('.') {
        out.push(b'.');
    }
    put(out, text);
    out.extend_from_slice(b"\r\n");
}

/// A line of LIST or of STAT: two numbers.
pub fn numbers(out: &mut Vec<u8>, first: u64, second: u64) {
    number(out, first);
    out.push(b' ');
    number(out, second);
    out.extend_from_slice(b"\r\n");
}

/// A line of UIDL.
pub fn unique_id(out: &mut Vec<u8>, message: u64, id: &[u8; 16]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    number(out, message);
    out.push(b' ');
    for byte in id {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.extend_from_slice(b"\r\n");
}

/// `+OK `, when the rest of the line follows.
pub fn ok_begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK ");
}

/// The end of a list.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b".\r\n");
}

/// A number in decimal digits.
fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        // A digit fits.
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Text of ours; a control character in it would be a defect, and must not become a line.
fn put(out: &mut Vec<u8>, text: &str) {
    debug_assert!(!text.contains(char::is_control), "{text:?}");
    out.extend(
        text.bytes()
            .map(|byte| if byte < b' ' { b'?' } else { byte }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn replies() {
        check(|out| ok(out, "Hello"), "+OK Hello\r\n");
        check(|out| err(out, None, "No"), "-ERR No\r\n");
        check(
            |out| err(out, Some(Code::Auth), "Wrong"),
            "-ERR [AUTH] Wrong\r\n",
        );
        check(
            |out| err(out, Some(Code::SysTemp), "Later"),
            "-ERR [SYS/TEMP] Later\r\n",
        );
        check(
            |out| err(out, Some(Code::SysPerm), "Never"),
            "-ERR [SYS/PERM] Never\r\n",
        );
        check(
            |out| err(out, Some(Code::InUse), "Busy"),
            "-ERR [IN-USE] Busy\r\n",
        );
        check(|out| challenge(out, b""), "+ \r\n");
        check(
            |out| challenge(out, b"User Name\0"),
            "+ VXNlciBOYW1lAA==\r\n",
        );
        check(|out| line(out, "TOP"), "TOP\r\n");
        check(|out| line(out, ".x"), "..x\r\n");
        check(
            |out| numbers(out, 0, u64::MAX),
            "0 18446744073709551615\r\n",
        );
        check(|out| numbers(out, 10, 907), "10 907\r\n");
        let id = [0, 1, 0x2f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        check(
            |out| unique_id(out, 1, &id),
            "1 00012fff000000000000000000000009\r\n",
        );
        check(end, ".\r\n");
    }
}
