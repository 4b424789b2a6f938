//! How passwords and confirmations come in.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::password::PASSWORD_BYTES_MAX;

/// What a terminal sends for Ctrl-C, Ctrl-D, backspace.
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACE: [u8; 2] = [8, 127];

/// The first line, without its end.
pub(super) fn password_from(input: &mut impl BufRead) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(PASSWORD_BYTES_MAX + 2));
    // One more than allowed, so that what is too long is refused and not cut.
    input
        .take(PASSWORD_BYTES_MAX as u64 + 2)
        .read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(line)
}

/// Asks twice on the terminal; `None` for an empty one.
pub(super) fn new_password(address: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let first = hidden(&format!("Password for {address} (empty: generate one): "))?;
    if first.is_empty() {
        return Ok(None);
    }
    if *hidden("Again: ")? != *first {
        return Err(io::Error::other("the two passwords differ"));
    }
    Ok(Some(first))
}

/// Asks yes or no; without a terminal, no.
pub(super) fn confirm(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(io::Error::other(
            "there is no terminal to confirm this on: add --yes",
        ));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().take(16).read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The terminal without echo, until this is dropped.
struct Silent(Termios);

impl Silent {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        // Ctrl-C as a byte: a signal would end us and leave the terminal silent.
        silent.local_modes &= !(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Silent(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        eprintln!();
    }
}

pub(super) fn hidden(prompt: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    eprint!("{prompt}");
    io::stderr().flush()?;
    let _silent = Silent::new()?;
    let mut typed = Zeroizing::new(Vec::with_capacity(PASSWORD_BYTES_MAX + 1));
    for byte in io::stdin().lock().bytes() {
        match byte? {
            b'\r' | b'\n' => break,
            INTERRUPT | END => return Err(io::ErrorKind::Interrupted.into()),
            byte if BACKSPACE.contains(&byte) => {
                // A whole character of UTF-8.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            byte if typed.len() <= PASSWORD_BYTES_MAX => typed.push(byte),
            _ => {}
        }
    }
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, password::make_verifier};

    #[test]
    fn a_password_is_one_line() {
        let check = |input: &[u8], expected: &[u8]| {
            assert_eq!(*password_from(&mut &*input).unwrap(), expected);
        };
        check(b"secret\n", b"secret");
        check(b"secret\r\nmore", b"secret");
        check(b"secret", b"secret");
        check(" pass wörd \n".as_bytes(), " pass wörd ".as_bytes());
        check(b"", b"");
        let long = password_from(&mut &[b'x'; 5_000][..]).unwrap();
        assert!(
            make_verifier(&Config::default().auth, &long).is_err(),
            "cut, it would be another password"
        );
    }
}
