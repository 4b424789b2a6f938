//! CAPABILITY, ENABLE, ID and NAMESPACE (RFC 9051, 6.1.1 and 6.3.1; RFC 2971; RFC 2342).

use whimbrel_imap::encode::{self, NamespaceEntry};

use super::{context::Context, outcome::Outcome};

/// The capabilities in the present state, given to `write`. Before the login only those that matter then, so that greetings stay short.
pub(super) fn with_list<T>(cx: &mut Context, write: impl FnOnce(&mut Context, &[&str]) -> T) -> T {
    // "This indicates that the IMAP server has the same upload limit for all mailboxes" (RFC 7889, 2).
    let append_limit = format!("APPENDLIMIT={}", cx.limits.syntax.append_bytes_max);
    let mut names: Vec<&str> = list(cx);
    if cx.account.is_some() {
        names.push(&append_limit);
    }
    write(cx, &names)
}

fn list(cx: &Context) -> Vec<&'static str> {
    let mut names = vec!["IMAP4rev2", "IMAP4rev1", "LITERAL+", "ID", "ENABLE"];
    if cx.account.is_some() {
        names.extend([
            "IDLE",
            "NAMESPACE",
            "UNSELECT",
            "UIDPLUS",
            "MOVE",
            "CONDSTORE",
            "QRESYNC",
            "LIST-EXTENDED",
            "LIST-STATUS",
            "CHILDREN",
            "SPECIAL-USE",
            "CREATE-SPECIAL-USE",
            "ESEARCH",
            "SEARCHRES",
            "STATUS=SIZE",
            "OBJECTID",
            "SAVEDATE",
            "PARTIAL",
            "WITHIN",
            "PREVIEW",
            "SORT",
            "SORT=DISPLAY",
            "ESORT",
            "THREAD=ORDEREDSUBJECT",
            "THREAD=REFERENCES",
        ]);
        names.extend([
            "MULTIAPPEND",
            "CATENATE",
            "REPLACE",
            "BINARY",
            "UTF8=ACCEPT",
            "QUOTA",
            "QUOTA=RES-STORAGE",
            "QUOTA=RES-MESSAGE",
            "QUOTA=RES-MAILBOX",
        ]);
        if cx.limits.compress && !cx.compressed {
            names.push("COMPRESS=DEFLATE");
        }
        if cx.limits.unauthenticate {
            names.push("UNAUTHENTICATE");
        }
    } else if cx.peer.tls.is_some() {
        names.push("SASL-IR");
        let mechanisms = cx.channel().mechanisms().iter();
        names.extend(mechanisms.map(|mechanism| mechanism.capability()));
    } else {
        names.extend(["STARTTLS", "LOGINDISABLED"]);
    }
    names
}

/// CAPABILITY.
pub(super) fn capability(cx: &mut Context) -> Outcome {
    with_list(cx, |cx, names| encode::capability(&mut cx.out, names));
    Outcome::ok("CAPABILITY completed")
}

/// ENABLE: unknown names are ignored, and only what was enabled by this command is told (RFC 5161, 3.1).
pub(super) fn enable(cx: &mut Context, names: &[String]) -> Outcome {
    let mut enabled = Vec::new();
    for name in names {
        match name.as_str() {
            "IMAP4REV2" if !cx.rev2 => {
                cx.rev2 = true;
                cx.utf8 = true;
                enabled.push("IMAP4rev2");
            }
            "UTF8=ACCEPT" if !cx.utf8_accept => {
                cx.utf8_accept = true;
                cx.utf8 = true;
                enabled.push("UTF8=ACCEPT");
            }
            "CONDSTORE" if !cx.condstore => {
                cx.enable_condstore();
                enabled.push("CONDSTORE");
            }
            "QRESYNC" if !cx.qresync => {
                cx.enable_condstore();
                cx.qresync = true;
                enabled.push("QRESYNC");
            }
            _ => {}
        }
    }
    encode::enabled(&mut cx.out, &enabled);
    Outcome::ok("Enabled")
}

/// ID. What the client says of itself is not kept: "Implementations MUST NOT make operational changes based on the data" (RFC 2971, 1).
pub(super) fn id(cx: &mut Context) -> Outcome {
    encode::id(
        &mut cx.out,
        &[
            ("name", Some("Whimbrel")),
            ("version", Some(env!("CARGO_PKG_VERSION"))),
        ],
    );
    Outcome::ok("ID completed")
}

/// NAMESPACE: one personal one.
pub(super) fn namespace(cx: &mut Context) -> Outcome {
    let personal = [NamespaceEntry {
        prefix: "",
        delimiter: Some('/'),
    }];
    encode::namespace(&mut cx.out, [&personal, &[], &[]], cx.utf8);
    Outcome::ok("NAMESPACE completed")
}
