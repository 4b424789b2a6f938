//! What the demo prints.

use std::{net::SocketAddr, path::Path};

use whimbrel_imap::client::{FetchData, Response};
use whimbrel_mime::Address;

use super::{ANNE, BOB, regions::View};
use crate::serve::Kind;

/// Prints a line. Nobody reads it any more (`whimbrel demo | head`): the demo goes on all the same.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// Columns of a sender in the list of messages.
const SENDER_CHARS: usize = 24;

pub(super) fn server(data: &Path, addresses: &[(Kind, SocketAddr)]) {
    say!(
        "Whimbrel demo, in {} (removed at the end)\n",
        data.display()
    );
    for (kind, address) in addresses {
        say!("  {:<11} {address}", kind.name());
    }
    say!("");
}

pub(super) fn accounts(accounts: &[(&str, &str)]) {
    for (address, password) in accounts {
        say!("  account  {address}  password {password}");
    }
    say!("");
}

pub(super) fn step(text: &str) {
    say!("{text}");
}

pub(super) fn messages(responses: &[Response]) {
    for response in responses {
        let Response::Fetch { sequence, items } = response else {
            continue;
        };
        let (mut from, mut subject, mut size, mut seen) = (String::new(), String::new(), 0, false);
        for item in items {
            match item {
                FetchData::Envelope(envelope) => {
                    from = envelope.from.first().map_or_else(String::new, sender);
                    subject = envelope
                        .subject
                        .as_deref()
                        .map_or_else(String::new, whimbrel_mime::header::decode);
                }
                FetchData::Size(bytes) => size = *bytes,
                FetchData::Flags(flags) => seen = flags.iter().any(|flag| flag == "\\Seen"),
                _ => {}
            }
        }
        let new = if seen { ' ' } else { 'N' };
        say!("  {sequence:>3} {new} {from:<SENDER_CHARS$} {size:>5}  {subject}");
    }
}

fn sender(address: &Address) -> String {
    let name = address.name.as_deref().map(whimbrel_mime::header::decode);
    let text = name.unwrap_or_else(|| {
        let part =
            |part: Option<&[u8]>| String::from_utf8_lossy(part.unwrap_or_default()).into_owned();
        format!(
            "{}@{}",
            part(address.mailbox.as_deref()),
            part(address.host.as_deref())
        )
    });
    text.chars().take(SENDER_CHARS).collect()
}

pub(super) fn body(responses: &[Response]) {
    say!("");
    for response in responses {
        let Response::Fetch { items, .. } = response else {
            continue;
        };
        for item in items {
            if let FetchData::Section {
                data: Some(data), ..
            } = item
            {
                for line in String::from_utf8_lossy(data).lines() {
                    say!("    | {line}");
                }
            }
        }
    }
    say!("");
}

pub(super) fn connect(
    imaps: SocketAddr,
    pop3s: SocketAddr,
    submissions: SocketAddr,
    password: &str,
    fingerprint: &str,
) {
    let user = ANNE.replace('@', "%40");
    say!(
        "Your own client: host {}, port {} (IMAP, SSL/TLS) or {} (POP3),\nto send {} (SMTP, SSL/TLS); user {ANNE}, password {password};",
        imaps.ip(),
        imaps.port(),
        pop3s.port(),
        submissions.port()
    );
    say!("accept the self-signed certificate, SHA-256 fingerprint\n  {fingerprint}\n");
    say!("  curl -k -u {ANNE}:{password} 'imaps://{imaps}/INBOX;MAILINDEX=1'");
    say!("  curl -k -u {ANNE}:{password} 'imaps://{imaps}/INBOX' -X 'UID SEARCH TEXT whimbrel'");
    say!("  curl -k -u {ANNE}:{password} 'pop3s://{pop3s}/1'");
    say!(
        "  printf 'From: {ANNE}\\r\\nSubject: hello\\r\\n\\r\\nIt works.\\r\\n' | curl -k -u {ANNE}:{password} smtps://{submissions} --mail-from {ANNE} --mail-rcpt {BOB} -T -"
    );
    say!("  neomutt -f 'imaps://{user}:{password}@{imaps}/INBOX'     (mutt likewise)\n");
}

pub(super) fn regions(data: &Path) {
    say!(
        "Whimbrel demo, regions in {} (removed at the end). How to run a cluster: docs/cluster.md\n",
        data.display()
    );
}

pub(super) fn region(name: &str, addresses: &[(Kind, SocketAddr)]) {
    let shown: Vec<String> = addresses
        .iter()
        .map(|(kind, address)| format!("{} {}", kind.name(), address.port()))
        .collect();
    say!("  {name:<8} {}", shown.join(", "));
}

pub(super) fn mailbox((name, view): (&String, &View)) {
    if view.lines.is_empty() {
        return;
    }
    say!("  {name}  UIDVALIDITY {}", view.validity);
    for line in &view.lines {
        let flags: Vec<&str> = line.flags.iter().map(String::as_str).collect();
        say!(
            "    UID {:<6} {:<20}  {}",
            line.uid,
            flags.join(" "),
            line.subject
        );
    }
}

pub(super) fn regions_connect(password: &str) {
    say!(
        "Your own client: user {ANNE}, password {password}, at any region; what you do in one is in all. Accept the\n\
         self-signed certificate of each, SHA-256 fingerprint as shown."
    );
}

pub(super) fn region_connect(
    name: &str,
    imaps: SocketAddr,
    submissions: SocketAddr,
    password: &str,
    fingerprint: &str,
) {
    say!(
        "\n  {name}: host {}, port {} (IMAP, SSL/TLS), to send {} (SMTP, SSL/TLS)",
        imaps.ip(),
        imaps.port(),
        submissions.port()
    );
    say!("    {fingerprint}");
    say!("    curl -k -u {ANNE}:{password} 'imaps://{imaps}/INBOX' -X 'FETCH 1:* (UID FLAGS)'");
}

pub(super) fn ready() {
    say!("demo: ready");
}

pub(super) fn ending() {
    say!("\ndemo: stopping");
}
