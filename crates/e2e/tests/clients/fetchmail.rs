//! fetchmail: fetches everything and leaves it, then what is new, then everything without leaving it.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

use whimbrel_e2e::{message, process::run, server::Server};

use super::{ANNE, PASSWORD, program};

/// Runs it; the names of the messages that it brought. Each must be whole.
fn fetch(server: &Server, tls: &str, port: u16, keep: &str) -> BTreeSet<String> {
    let rc = server.path("fetchmailrc");
    let text = format!(
        "set invisible\npoll localhost proto POP3 port {port} uidl user \"{ANNE}\" password \"{PASSWORD}\" is root here {tls} sslcertck sslcertfile \"{}\" {keep} \
         fetchall norewrite mda \"cat > {}/$$-new.eml\"\n",
        server.path("authority.pem").display(),
        server.path("got").display(),
    );
    // Without `fetchall` it takes what its list of ids does not have.
    let text = if keep == "keep" {
        text.replace("fetchall ", "")
    } else {
        text
    };
    fs::write(&rc, text).unwrap();
    fs::set_permissions(&rc, fs::Permissions::from_mode(0o600)).unwrap();
    let _ = fs::remove_dir_all(server.path("got"));
    fs::create_dir(server.path("got")).unwrap();
    let mut command = program(server, "fetchmail");
    command
        .env("FETCHMAILHOME", server.path(""))
        .arg("--fetchmailrc")
        .arg(&rc)
        .args(["--nodetach", "--nosyslog", "--pidfile"])
        .arg(server.path("fetchmail.pid"));
    let done = run(&mut command, b"");
    // 1: there was no mail.
    assert!(done.success || done.code == 1, "{done:?}");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(server.path("got")).unwrap().flatten() {
        let text = String::from_utf8(fs::read(entry.path()).unwrap()).unwrap();
        // It gives line ends of its system to what delivers.
        let text = text.replace("\r\n", "\n").replace('\n', "\r\n");
        let name = message::name_of(text.as_bytes()).expect("a name");
        assert!(
            text.as_bytes().ends_with(&message::bytes(&name, 3000)),
            "{name} is not whole"
        );
        assert!(text.contains("Delivered-To: anne@example.org\r\n"));
        assert!(names.insert(name), "twice in one run");
    }
    names
}

#[test]
#[ignore = "long: fetchmail"]
fn all_then_new_then_away() {
    let server = Server::start_plain();
    let names = |range: std::ops::Range<u32>| range.map(|n| format!("f-{n}")).collect::<Vec<_>>();
    let set = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
    let (tls, stls) = ("ssl", "sslproto \"TLS1.2+\"");
    server.deliver(&names(0..20), 3000);
    assert_eq!(
        fetch(&server, tls, server.ports.pop3s, "keep"),
        set(names(0..20))
    );
    server.deliver(&names(20..25), 3000);
    assert_eq!(
        fetch(&server, stls, server.ports.pop3, "keep"),
        set(names(20..25))
    );
    assert_eq!(
        fetch(&server, tls, server.ports.pop3s, "keep"),
        set(names(0..0))
    );
    assert_eq!(
        fetch(&server, stls, server.ports.pop3, "nokeep"),
        set(names(0..25))
    );
    let mut imap = server.anne();
    assert_eq!(
        server.contents(&mut imap, "INBOX").unwrap().messages.len(),
        0
    );
    server.assert_no_panic();
}
