//! neomutt in a terminal (tmux): reads, flags, saves to Archive, deletes, synchronizes; looked up by another client.

use std::{fs, process::Command};

use whimbrel_e2e::{
    message,
    process::{run, wait_for},
    server::Server,
};

use super::{ANNE, PASSWORD, program};

/// A terminal with a program in it; gone with its value.
struct Terminal<'a> {
    server: &'a Server,
}

impl Terminal<'_> {
    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command: Command = program(self.server, "tmux");
        command
            .env_remove("TMUX")
            .env("TERM", "xterm")
            .arg("-S")
            .arg(self.server.path("tmux"))
            .args(["-f", "/dev/null"])
            .args(arguments);
        run(&mut command, b"").expect("tmux")
    }

    fn keys(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys", "-t", "mail"];
        arguments.extend_from_slice(keys);
        let _ = self.tmux(&arguments);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "mail"])
    }

    /// Waits until the screen is as wished.
    fn wait(&self, what: &str, as_wished: impl Fn(&str) -> bool) -> String {
        let last = std::cell::RefCell::new(String::new());
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, || {
                let screen = self.screen();
                let found = as_wished(&screen).then(|| screen.clone());
                *last.borrow_mut() = screen;
                found
            })
        }));
        found.unwrap_or_else(|_| panic!("waited for {what}; the screen:\n{}", last.borrow()))
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let mut command = program(self.server, "tmux");
        let _ = run(
            command
                .arg("-S")
                .arg(self.server.path("tmux"))
                .arg("kill-server"),
            b"",
        );
    }
}

/// The line of a message in the index.
fn line<'a>(screen: &'a str, name: &str) -> &'a str {
    screen
        .lines()
        .find(|line| line.contains(&format!("subject of {name}")))
        .unwrap_or_default()
}

#[test]
fn in_a_terminal() {
    let server = Server::start_plain();
    let mut imap = server.anne();
    let names: Vec<String> = (1..=5).map(|n| format!("mail-{n}")).collect();
    for name in &names {
        let _ = imap
            .append("INBOX", &[], &message::bytes(name, 1500))
            .unwrap()
            .ok("APPEND");
    }
    let configuration = format!(
        "set folder = \"imaps://localhost:{}/\"\nset spoolfile = \"+INBOX\"\nset imap_user = \"{ANNE}\"\nset imap_pass = \"{PASSWORD}\"\n\
         set ssl_ca_certificates_file = \"{}\"\nset certificate_file = \"{}\"\nset ssl_verify_host = yes\n\
         set mbox = \"+Archive\"\nset move = no\nset confirmappend = no\nset delete = yes\nset sort = mailbox-order\nset mark_old = no\n\
         set index_format = \"%4C %Z %s\"\nset header_cache = \"{}\"\nset wait_key = no\nset beep = no\n",
        server.ports.imaps,
        server.path("authority.pem").display(),
        server.path("accepted").display(),
        server.path("cache").display(),
    );
    fs::write(server.path("muttrc"), configuration).unwrap();
    let terminal = Terminal { server: &server };
    let command = format!("neomutt -n -F {}", server.path("muttrc").display());
    let _ = terminal.tmux(&[
        "new-session",
        "-d",
        "-s",
        "mail",
        "-x",
        "120",
        "-y",
        "40",
        &command,
    ]);
    let index = terminal.wait("the index", |screen| {
        names.iter().all(|name| !line(screen, name).is_empty())
    });
    assert!(
        names.iter().all(|name| line(&index, name).contains('N')),
        "all are new:\n{index}"
    );

    // Reads the first: its text is on the screen, and it is not new any more.
    go_to(&terminal, 1);
    terminal.keys(&["Enter"]);
    terminal.wait("the first message", |screen| {
        screen.contains("subject of mail-1") && screen.contains("carl@example.net")
    });
    terminal.keys(&["q"]);
    terminal.wait("the index again", |screen| {
        names.iter().all(|name| !line(screen, name).is_empty())
            && !line(screen, "mail-1").contains('N')
    });

    // Flags the second.
    go_to(&terminal, 2);
    terminal.keys(&["F"]);
    terminal.wait("the flag", |screen| line(screen, "mail-2").contains('!'));
    // Saves the third to Archive: a copy there, and marked as deleted here.
    go_to(&terminal, 3);
    terminal.keys(&["s"]);
    terminal.wait("the question where to", |screen| {
        screen.contains("Save to mailbox")
    });
    terminal.keys(&["C-u"]);
    terminal.keys(&["-l", "=Archive"]);
    terminal.keys(&["Enter"]);
    terminal.wait("the third marked", |screen| {
        line(screen, "mail-3").contains('D')
    });
    // Deletes the fourth.
    go_to(&terminal, 4);
    terminal.keys(&["d"]);
    terminal.wait("the fourth marked", |screen| {
        line(screen, "mail-4").contains('D')
    });
    // Synchronizes.
    terminal.keys(&["$"]);
    terminal.wait("the marked ones gone", |screen| {
        ["mail-3", "mail-4"]
            .iter()
            .all(|name| line(screen, name).is_empty())
            && !line(screen, "mail-5").is_empty()
    });
    terminal.keys(&["q"]);

    let inbox = server.contents(&mut imap, "INBOX").unwrap();
    let seen: Vec<(String, bool, bool)> = inbox
        .messages
        .iter()
        .map(|message| {
            let name = message::name_of(&message.bytes).unwrap();
            assert_eq!(message.bytes, message::bytes(&name, 1500), "{name}");
            let has = |flag: &str| message.flags.iter().any(|of| of == flag);
            (name, has("\\Seen"), has("\\Flagged"))
        })
        .collect();
    let expected = [
        ("mail-1", true, false),
        ("mail-2", false, true),
        ("mail-5", false, false),
    ];
    assert_eq!(
        seen,
        expected.map(|(name, seen, flagged)| (name.to_owned(), seen, flagged))
    );
    let archive = server.contents(&mut imap, "Archive").unwrap();
    assert_eq!(archive.messages.len(), 1);
    assert_eq!(archive.messages[0].bytes, message::bytes("mail-3", 1500));
    server.assert_no_panic();
}

/// Puts the cursor on a message: its number, Enter.
fn go_to(terminal: &Terminal<'_>, number: u32) {
    terminal.keys(&[&number.to_string()]);
    terminal.wait("the prompt", |screen| {
        screen.contains(&format!("Jump to message: {number}"))
    });
    terminal.keys(&["Enter"]);
    terminal.wait("the prompt's end", |screen| {
        !screen.contains("Jump to message")
    });
}
