//! The schema as people read it: the commented example and `docs/config.md`.

use whimbrel_frontend::imap::limits::OUTPUT_BYTES;

use super::schema::{Config, Key, SECTIONS, Section};

/// Columns of the example, `# ` included.
const WIDTH: usize = 100;

fn sentences(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

fn wrap(text: &str, out: &mut String) {
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column == 0 || column + 1 + width > WIDTH {
            if column > 0 {
                out.push('\n');
            }
            out.push('#');
            column = 1;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + width;
    }
    out.push('\n');
}

fn range(key: &Key) -> String {
    key.range
        .map_or_else(String::new, |(least, most)| format!("{least} to {most}"))
}

/// `whimbrel.toml` with every key commented out, at its default.
pub fn example() -> String {
    let mut out = String::from(
        "# Configuration of Whimbrel. Every key is shown with its default; take the # away to change it.\n",
    );
    for section in SECTIONS {
        out.push('\n');
        wrap(&sentences(section.doc), &mut out);
        out.push_str(&format!("[{}]\n", section.name));
        for key in section.keys {
            out.push('\n');
            let mut text = sentences(key.doc);
            if key.range.is_some() {
                text.push_str(&format!(" ({}.)", range(key)));
            }
            wrap(&text, &mut out);
            out.push_str(&format!("#{} = {}\n", key.name, key.default));
        }
    }
    out
}

fn documentation_of(section: &Section, out: &mut String) {
    out.push_str(&format!(
        "\n## [{}]\n\n{}\n\n",
        section.name,
        sentences(section.doc)
    ));
    out.push_str("| key | default | range | meaning |\n|---|---|---|---|\n");
    for key in section.keys {
        let range = if key.range.is_some() {
            range(key)
        } else {
            key.kind.to_owned()
        };
        out.push_str(&format!(
            "| `{}` | `{}` | {} | {} |\n",
            key.name,
            key.default,
            range.replace('|', "\\|"),
            sentences(key.doc).replace('|', "\\|")
        ));
    }
}

/// `docs/config.md`.
pub fn documentation() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         One TOML file, given by `--config FILE`. Every key has a default, so an empty file, or none, is a configuration: it keeps \
         its data in `./whimbrel-data` and listens on 127.0.0.1 only. `whimbrel config` prints an example with every key.\n\n\
         An unknown key is refused, with its line and a suggestion. Durations are written `\"250ms\"`, `\"30s\"`, `\"5m\"`, `\"1h\"`, \
         `\"2d\"`; sizes `\"512B\"`, `\"16KiB\"`, `\"64MiB\"`, `\"2GiB\"`; addresses `\"127.0.0.1:143\"`, `\"[::]:143\"`. Relative \
         paths in a file are relative to its directory.\n\n\
         This page is made from the source (`whimbrel config --markdown`); a test keeps the two together.\n",
    );
    for section in SECTIONS {
        documentation_of(section, &mut out);
    }
    sessions(&Config::default(), &mut out);
    out
}

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
    out.push_str(&format!(
        "\n## What sessions may hold\n\n\
         What a client decides about has a bound in each session. For all sessions together it is bounded by how many there may be: of one \
         account `limits.connections_per_account_max`, of strangers `limits.unauthenticated_max`, of all `limits.connections_max`. With the \
         defaults these are {of_account}, {strangers} and {all}, and that comes to about so much if each of them holds as much as it can:\n\n\
         | what | bound | one session | one account | all |\n|---|---|---|---|---|\n"
    ));
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
        "IMAP: a command before login",
        "`imap.command_bytes_max_before_login`",
        imap.command_bytes_max_before_login.0,
        false,
    );
    row(
        "IMAP: a command, sequence sets apart",
        "`imap.command_bytes_max`",
        imap.command_bytes_max.0,
        true,
    );
    row(
        "IMAP: the sequence sets of a command, until it is carried out",
        "`imap.sequence_set_ranges_max`, eight bytes each, and as much again while they come in",
        imap.sequence_set_ranges_max as u64 * 16,
        true,
    );
    row(
        "IMAP: the keys of a SEARCH, until it is answered",
        "`imap.search_keys_max`, some five hundred bytes each with what is made of them",
        imap.search_keys_max as u64 * 512,
        true,
    );
    row(
        "IMAP: a saved search result, as long as the mailbox is selected",
        "`imap.saved_ranges_max`, eight bytes each",
        imap.saved_ranges_max as u64 * 8,
        true,
    );
    row(
        "IMAP: the messages of one APPEND, until they are stored",
        "`imap.append_summary_bytes_max`",
        imap.append_summary_bytes_max.0,
        true,
    );
    row(
        "IMAP, POP3: an answer that is not taken",
        "fixed",
        OUTPUT_BYTES as u64,
        true,
    );
    row(
        "SMTP, submission: commands that wait, a line, the header of a message",
        "`smtp.input_buffer_bytes_max`, `smtp.text_line_bytes_max`, `submission.header_bytes_max`",
        smtp.input_buffer_bytes_max.0 + smtp.text_line_bytes_max.0 + submission.header_bytes_max.0,
        true,
    );
    out.push_str(
        "\nBeside that a session that is not in IDLE has the UIDs of the mailbox that it has selected: a list that it shares with the \
         account and with all who selected it, until it is told of a change; then up to four and a half bytes a message, and next to nothing where none was \
         removed. SORT and THREAD hold what \
         `imap.sort_messages_max` and `imap.sort_key_bytes_max` say, `imap.sorts_at_once_max` times and no more; what is read for answers \
         has `limits.answers_bytes_max`, of which each session takes a share while it reads; accounts, queue and the store have bounds \
         of their own, for all sessions together.\n\n\
         **Three rows are more than most machines have**: sets of a million UIDs that do not lie side by side, thousands of keys and a thousand messages in one APPEND \
         have to be possible, as clients send them, and nothing bounds how many sessions send one at the same time, however long they take over it. Where users \
         are not trusted, lower `imap.sequence_set_ranges_max`, `imap.search_keys_max` and `imap.append_summary_bytes_max`, or \
         `limits.connections_per_account_max`.\n",
    );
}

fn shown(bytes: u64) -> String {
    match bytes {
        ..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}
