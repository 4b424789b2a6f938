//! The schema as people read it: the commented example and `docs/config.md`.

use whimbrel_frontend::imap::limits::OUTPUT_BYTES;

use super::schema::{Config, Key, SECTIONS, Section};
use crate::wrap::{PAGE_CHARS, wrap};

/// Columns of the example, `# ` included.
const WIDTH: usize = 100;

fn sentences(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

fn comment(text: &str, out: &mut String) {
    wrap(text, WIDTH, "# ", "# ", out);
}

fn paragraph(text: &str, out: &mut String) {
    wrap(text, PAGE_CHARS, "", "", out);
}

fn item(text: &str, out: &mut String) {
    wrap(text, PAGE_CHARS, "- ", "  ", out);
}

fn range(key: &Key) -> String {
    key.range
        .map_or_else(String::new, |(least, most)| format!("{least} to {most}"))
}

/// `whimbrel.toml` with every key commented out, at its default.
pub fn example() -> String {
    let mut out = String::from(
        "# Configuration of Whimbrel. Every key is shown with its default; remove the # to change it.\n",
    );
    for section in SECTIONS {
        out.push('\n');
        comment(&sentences(section.doc), &mut out);
        out.push_str(&format!("[{}]\n", section.name));
        for key in section.keys {
            out.push('\n');
            let mut text = sentences(key.doc);
            if key.range.is_some() {
                text.push_str(&format!(" ({}.)", range(key)));
            }
            comment(&text, &mut out);
            out.push_str(&format!("#{} = {}\n", key.name, key.default));
        }
    }
    out
}

fn documentation_of(section: &Section, out: &mut String) {
    out.push_str(&format!("\n## [{}]\n\n", section.name));
    paragraph(&sentences(section.doc), out);
    out.push('\n');
    for key in section.keys {
        let values = match key.range {
            Some((least, most)) => format!("`{least}` to `{most}`"),
            None => key.kind.to_owned(),
        };
        let (name, default) = (key.name, key.default);
        let meaning = sentences(key.doc);
        item(
            &format!(
                "`{}.{name}` ({values}; default `{default}`): {meaning}",
                section.name
            ),
            out,
        );
    }
}

/// `docs/config.md`.
pub fn documentation() -> String {
    let mut out = String::from("# Configuration\n");
    for text in HEAD {
        out.push('\n');
        paragraph(text, &mut out);
    }
    for section in SECTIONS {
        documentation_of(section, &mut out);
    }
    sessions(&Config::default(), &mut out);
    out
}

/// The paragraphs before the first section.
const HEAD: [&str; 3] = [
    "The configuration is one TOML file: that of `--config FILE`, else that of the environment variable `WHIMBREL_CONFIG`, else \
     `/etc/whimbrel/whimbrel.toml` if it exists. Every key has a default, so an empty file is valid. Without a file, `whimbrel serve` keeps its data in \
     `./whimbrel-data` and listens on 127.0.0.1 only. `whimbrel config` prints an example with every key.",
    "An unknown key is an error, which is reported with its line and a suggestion. Durations are written `\"250ms\"`, `\"30s\"`, `\"5m\"`, `\"1h\"`, \
     `\"2d\"`; sizes `\"512B\"`, `\"16KiB\"`, `\"64MiB\"`, `\"2GiB\"`; addresses `\"127.0.0.1:143\"`, `\"[::]:143\"`. Relative paths in a file are \
     relative to its directory.",
    "This page is generated from the source (`whimbrel config --markdown`); a test compares the two.",
];

/// What clients may make sessions hold, with the defaults.
fn sessions(config: &Config, out: &mut String) {
    let Config {
        imap,
        smtp,
        submission,
        limits,
        ..
    } = config;
    let all = limits.connections_max as u64;
    let of_account = (limits.connections_per_account_max as u64).min(all);
    let strangers = (limits.unauthenticated_max as u64).min(all);
    out.push_str("\n## What sessions may hold\n\n");
    paragraph(
        "Each session has a limit for everything whose size a client decides. Limits of connections bound the sum.",
        out,
    );
    out.push('\n');
    paragraph(
        &format!(
            "The defaults are {of_account}, {strangers} and {all} connections. The table has the memory that they take if each of them holds as \
             much as it can:"
        ),
        out,
    );
    out.push_str("\n| what | limit | one session | one account | all |\n|---|---|---|---|---|\n");
    let mut row = |what: &str, bound: &str, bytes: u64, logged_in: bool| {
        let of_account = match logged_in {
            true => shown(bytes * of_account),
            false => "-".to_owned(),
        };
        let all = if logged_in { all } else { strangers };
        out.push_str(&format!(
            "| {what} | {bound} | {} | {of_account} | {} |\n",
            shown(bytes),
            shown(bytes * all)
        ));
    };
    row(
        "IMAP: command before login",
        "`imap.command_bytes_max_before_login`",
        imap.command_bytes_max_before_login.0,
        false,
    );
    row(
        "IMAP: command without its sequence sets",
        "`imap.command_bytes_max`",
        imap.command_bytes_max.0,
        true,
    );
    row(
        "IMAP: sequence sets, until the command ends",
        "`imap.sequence_set_ranges_max`, 16 bytes each",
        imap.sequence_set_ranges_max as u64 * 16,
        true,
    );
    row(
        "IMAP: keys of SEARCH, until it is answered",
        "`imap.search_keys_max`, about 512 bytes each",
        imap.search_keys_max as u64 * 512,
        true,
    );
    row(
        "IMAP: saved search result, while the mailbox is selected",
        "`imap.saved_ranges_max`, 8 bytes each",
        imap.saved_ranges_max as u64 * 8,
        true,
    );
    row(
        "IMAP: messages of one APPEND, until they are stored",
        "`imap.append_summary_bytes_max`",
        imap.append_summary_bytes_max.0,
        true,
    );
    row(
        "IMAP, POP3: answer that the client does not read",
        "fixed",
        OUTPUT_BYTES as u64,
        true,
    );
    row(
        "SMTP: pipelined commands",
        "`smtp.input_buffer_bytes_max`",
        smtp.input_buffer_bytes_max.0,
        true,
    );
    row(
        "SMTP: line of a message",
        "`smtp.text_line_bytes_max`",
        smtp.text_line_bytes_max.0,
        true,
    );
    row(
        "Submission: header of a message",
        "`submission.header_bytes_max`",
        submission.header_bytes_max.0,
        true,
    );
    for text in NOTES {
        out.push('\n');
        paragraph(text, out);
    }
}

/// The paragraphs after the table of sessions.
const NOTES: [&str; 3] = [
    "Beside that, a session that is not in IDLE has the list of UIDs of its selected mailbox, shared with the account until it learns of a change. Its \
     own takes up to four and a half bytes a message, and almost nothing in a mailbox without gaps.",
    "SORT and THREAD, data read for answers, accounts, the queue and the store have limits of their own, for all sessions together.",
    "**Three rows exceed the memory of most machines.** Clients send sets of a million scattered UIDs, thousands of search keys and a thousand messages \
     in one APPEND, so the server must accept them, and nothing limits how many sessions do so at the same time. Where users are not trusted, lower \
     `imap.sequence_set_ranges_max`, `imap.search_keys_max` and `imap.append_summary_bytes_max`, or `limits.connections_per_account_max`.",
];

fn shown(bytes: u64) -> String {
    match bytes {
        ..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}
