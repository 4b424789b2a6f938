//! Names of files and directories in a tree of mbox files.

use whimbrel_imap::core::utf7;

/// What stands in names of files for what would mean something there. No level has a `%` of its own.
const ESCAPES: [(char, &str); 2] = [('.', "%2E"), ('&', "%26")];

/// The name, without `.mbox`, of the file or directory of one level of a mailbox's name, such that [`level`] reads it.
#[must_use]
pub fn file_name(level: &str) -> String {
    let [(dot, escaped_dot), (and, escaped_and)] = ESCAPES;
    let mut name = level.to_owned();
    // It would be hidden.
    if let Some(rest) = name.strip_prefix(dot) {
        name = format!("{escaped_dot}{rest}");
    }
    // It would be read as a directory of a mail program's.
    for end in [".sbd", ".mbox", ".mozmsgs"] {
        if let Some(begin) = name.strip_suffix(end) {
            name = format!("{begin}{escaped_dot}{}", &end[1..]);
        }
    }
    if utf7::decode(name.as_bytes()).is_some_and(|read| read != name) {
        name = name.replace(and, escaped_and);
    }
    name
}

/// One level of a mailbox's name, from that of a file or directory without its ending: modified UTF-7, as Dovecot writes it, or UTF-8.
#[must_use]
pub fn level(name: &str) -> String {
    let mut level = utf7::decode(name.as_bytes()).unwrap_or_else(|| name.to_owned());
    for (character, escaped) in ESCAPES {
        level = level.replace(escaped, &character.to_string());
    }
    level
}
