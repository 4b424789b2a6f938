//! Memory under hostile clients: lines and literals without end, little that stands for much. All at once, on as many connections as the
//! other bounds have sessions.
//!
//! The tests of `e2e` look at each input by itself; here all connections do the same at the same time, which is what a sum of bounds is
//! for.

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};

use super::{BOUNDS_USER, Bounds, Context, READERS};
use crate::{
    error::{Result, expect_equal, wrong},
    imap::Imap,
    mail,
    measure::Samples,
    pop3::Pop3,
    random::Random,
    smtp::{Kind, Smtp},
    target::threads,
};

/// What is sent at once of what does not end.
const PIECE_BYTES: usize = 256 << 10;

/// More than any server asks a stranger for.
const ENDLESS_LITERAL: &str = "{4000000000+}\r\n";

/// Commands of the bomb: 8 octets each, of which a thousand become as many as ten.
const BOMB_COMMANDS: usize = 1_000_000;

/// The message that is hardly anything when compressed.
const BOMB_MESSAGE_BYTES: usize = 25 << 20;

/// An IMAP line that has begun, what it goes on with, and whether somebody has logged in.
const IMAP_LINES: &[(&str, &str, bool)] = &[
    ("", "A", false),
    ("z LOGIN \"", "a", false),
    ("z AUTHENTICATE PLAIN\r\n", "QUFB", false),
    ("z SEARCH SUBJECT \"", "a", true),
    ("z SEARCH ", "NOT ", true),
    ("z FETCH 1 (", "FLAGS ", true),
    ("z APPEND INBOX {3+}\r\nabc", "A", true),
];

/// The same of those that deliver; all of them but the first two are in the text of a message.
const MAIL_LINES: &[(&str, &str)] = &[
    ("", "A"),
    ("MAIL FROM:<", "a"),
    ("Subject: ", "a"),
    ("Received: ", "a"),
    ("\r\n", "a"),
];

/// Lines without end, in every protocol, before and after login. All are held until the last has been sent.
pub(super) fn lines(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let target = &context.target;
    let bytes = bounds.endless_mib << 20;
    let held = threads(bounds.sessions, |thread, _| {
        let (start, more, known) = IMAP_LINES[thread % IMAP_LINES.len()];
        let mut imap = if known {
            let mut imap = target.login(BOUNDS_USER)?;
            imap.select("INBOX")?;
            imap
        } else {
            target.imap()?
        };
        let _ = imap.send_unless_closed(start.as_bytes())?;
        let _ = pump(more.as_bytes(), bytes, |piece| {
            imap.send_unless_closed(piece)
        })?;
        let (start, more) = MAIL_LINES[thread % MAIL_LINES.len()];
        let mut smtp = target.smtp(Kind::Lmtp)?;
        if thread % MAIL_LINES.len() > 1 {
            smtp.begin_message(&target.user(READERS.start))?;
        }
        let _ = smtp.send_unless_closed(start.as_bytes())?;
        let _ = pump(more.as_bytes(), bytes, |piece| {
            smtp.send_unless_closed(piece)
        })?;
        let mut pop = match target.address.pop3s {
            Some(_) => Some(target.pop3_stranger()?),
            None => None,
        };
        if let Some(pop) = &mut pop {
            let _ = pop.send_unless_closed(b"USER ")?;
            let _ = pump(b"a", bytes, |piece| pop.send_unless_closed(piece))?;
        }
        Ok((imap, smtp, pop))
    })?;
    still_serves(context)?;
    drop::<Vec<(Imap, Smtp, Option<Pop3>)>>(held);
    Ok(Samples::default())
}

/// Literals without end: of strangers, and as the message of APPEND. The server closes before it has taken all.
pub(super) fn literals(context: &Context, bounds: &Bounds) -> Result<Samples> {
    /// Above what is dropped for the sake of the connection (`imap.skip_bytes_max`).
    const TAKEN_BYTES_MAX: usize = 256 << 20;
    let target = &context.target;
    let held = threads(bounds.sessions, |thread, _| {
        let (command, known) = [
            ("LOGIN", false),
            ("NOOP", false),
            ("APPEND INBOX", false),
            ("APPEND INBOX", true),
        ][thread % 4];
        let mut imap = if known {
            target.login(BOUNDS_USER)?
        } else {
            target.imap()?
        };
        let _ = imap.send_unless_closed(format!("z {command} {ENDLESS_LITERAL}").as_bytes())?;
        let all = pump(b"x", TAKEN_BYTES_MAX, |piece| {
            imap.send_unless_closed(piece)
        })?;
        if all {
            return wrong(format!(
                "{command} {ENDLESS_LITERAL:?}: all of it was taken"
            ));
        }
        // And many that end, within one command that does not.
        let mut many = target.imap()?;
        let _ = many.send_unless_closed(b"z LOGIN")?;
        let all = pump(b" {10+}\r\n0123456789", bounds.endless_mib << 20, |piece| {
            many.send_unless_closed(piece)
        })?;
        expect_equal("literals of a stranger are taken without end", all, false)?;
        Ok((imap, many))
    })?;
    still_serves(context)?;
    drop(held);
    Ok(Samples::default())
}

/// COMPRESS=DEFLATE: a few kilobytes of commands, which the server must not carry out all, and a message, which it may.
pub(super) fn bomb(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let target = &context.target;
    let commands = "a NOOP\r\n".repeat(BOMB_COMMANDS);
    let commands = compress_to_vec(commands.as_bytes(), 9);
    let message = mail::uniform(BOMB_MESSAGE_BYTES);
    let mut append = format!("a APPEND Bomb {{{}+}}\r\n", message.len()).into_bytes();
    append.extend_from_slice(&message);
    append.extend_from_slice(b"\r\na LOGOUT\r\n");
    let append = compress_to_vec(&append, 9);
    let mut imap = target.login(BOUNDS_USER)?;
    if imap.messages("Bomb")?.is_some() {
        imap.run("DELETE Bomb")?;
    }
    imap.run("CREATE Bomb")?;
    let done = threads(bounds.sessions, |thread, _| {
        let mut samples = Samples::default();
        for (bytes, carried_out) in [(&commands, false), (&append, true)] {
            let mut imap = target.login(BOUNDS_USER)?;
            imap.run("COMPRESS DEFLATE")?;
            // Some do not read before all is sent.
            let answered = samples.time(|| {
                let _ = imap.send_unless_closed(bytes)?;
                imap.drain()
            })?;
            let answered = match decompress_to_vec(&answered) {
                Ok(all) => all,
                // The answers' stream has no end of its own.
                Err(cut) => cut.output,
            };
            let answered = String::from_utf8_lossy(&answered);
            let done = answered.matches("a OK ").count();
            let expected = if carried_out {
                done == 2
            } else {
                done < BOMB_COMMANDS
            };
            if !(expected && answered.contains("* BYE ")) {
                return wrong(format!(
                    "session {thread}: {done} commands were carried out"
                ));
            }
        }
        Ok(samples)
    })?;
    expect_equal(
        "messages that were compressed well",
        imap.messages("Bomb")?,
        Some(bounds.sessions as u32),
    )?;
    imap.run("DELETE Bomb")?;
    imap.logout()?;
    Ok(Samples::joined(done))
}

/// Sends `more` again and again, so many bytes of it; `false` when the server closed before that.
fn pump(more: &[u8], bytes: usize, mut send: impl FnMut(&[u8]) -> Result<bool>) -> Result<bool> {
    let piece = more.repeat(PIECE_BYTES / more.len());
    let mut sent = 0;
    while sent < bytes {
        if !send(&piece)? {
            return Ok(false);
        }
        sent += piece.len();
    }
    Ok(true)
}

/// Others are served meanwhile.
fn still_serves(context: &Context) -> Result<()> {
    let mut imap = context.target.login(BOUNDS_USER)?;
    let message = mail::sized(&mut Random::new(context.seed), 1, 4_000);
    imap.append("INBOX", &message)?;
    let there = imap.select("INBOX")?;
    imap.fetch(&format!("FETCH {there} (FLAGS BODY.PEEK[])"), 1)?;
    imap.logout()
}
