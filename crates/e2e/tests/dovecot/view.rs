//! What a server says of a message, as names and values that can be compared one by one.
//!
//! Where case means nothing (types, encodings, names of parameters, dispositions, languages) it is taken away; everything else is octets.
//! BODY must be BODYSTRUCTURE without its extensions, at every server, so it is checked here and not compared.

use std::collections::BTreeMap;

use whimbrel_e2e::imap::{Imap, Node};

/// Item to value, both as they are shown.
pub(crate) type View = BTreeMap<String, String>;

/// One part, as it can be asked for.
struct Asked {
    path: String,
    /// A message stands within it: it has HEADER and TEXT of its own.
    message: bool,
}

/// Everything that is compared of the message with this number.
pub(crate) fn of(imap: &mut Imap, number: u32) -> View {
    let command = format!(
        "FETCH {number} (RFC822.SIZE ENVELOPE BODY BODYSTRUCTURE BODY.PEEK[] BODY.PEEK[HEADER] BODY.PEEK[TEXT])"
    );
    let reply = imap.command(&command).unwrap().ok("FETCH");
    let (_, items) = reply.fetched().next().expect("the message");
    let mut view = View::new();
    let mut asked = Vec::new();
    for (name, value) in &items.items {
        match name.as_str() {
            "ENVELOPE" => envelope(value, "ENVELOPE", &mut view),
            "BODYSTRUCTURE" => {
                structure(value, "", &mut view, &mut asked);
                assert_eq!(
                    Some(&without_extensions(value)),
                    items.get("BODY"),
                    "BODY and BODYSTRUCTURE"
                );
            }
            "BODY" => {}
            _ => {
                let _ = view.insert(name.clone(), show(value));
            }
        }
    }
    sections(imap, number, &asked, &mut view);
    view
}

/// The parts that the structure has, and what they consist of.
fn sections(imap: &mut Imap, number: u32, asked: &[Asked], view: &mut View) {
    let mut wanted = Vec::new();
    for part in asked {
        let path = &part.path;
        wanted.push(format!("BODY.PEEK[{path}]"));
        wanted.push(format!("BODY.PEEK[{path}.MIME]"));
        if part.message {
            wanted.push(format!("BODY.PEEK[{path}.HEADER]"));
            wanted.push(format!("BODY.PEEK[{path}.TEXT]"));
        }
    }
    // Some at a time: a command line has its limit.
    for some in wanted.chunks(20) {
        let command = format!("FETCH {number} ({})", some.join(" "));
        let reply = imap.command(&command).unwrap().ok("FETCH of parts");
        for (_, items) in reply.fetched() {
            for (name, value) in &items.items {
                let _ = view.insert(name.clone(), show(value));
            }
        }
    }
}

fn envelope(node: &Node, prefix: &str, view: &mut View) {
    let list = list(node);
    assert_eq!(list.len(), 10, "an envelope has ten fields: {node:?}");
    let names = [
        "date",
        "subject",
        "from",
        "sender",
        "reply-to",
        "to",
        "cc",
        "bcc",
        "in-reply-to",
        "message-id",
    ];
    for (name, value) in names.iter().zip(list) {
        // RFC 9051, 7.5.2: without the field they are what From is. So what differs there is told once.
        let shown = match *name {
            "sender" | "reply-to" if *value == list[2] => "as from".to_owned(),
            _ => show(value),
        };
        let _ = view.insert(format!("{prefix} {name}"), shown);
    }
}

/// A body structure below a path: `body-type-1part` or `body-type-mpart` (RFC 9051, 9).
fn structure(node: &Node, path: &str, view: &mut View, asked: &mut Vec<Asked>) {
    let items = list(node);
    let own = if path.is_empty() {
        "BODYSTRUCTURE".to_owned()
    } else {
        format!("BODYSTRUCTURE {path}")
    };
    let mut set = |name: &str, value: String| {
        let _ = view.insert(format!("{own} {name}"), value);
    };
    if matches!(items.first(), Some(Node::List(_))) {
        let parts = items
            .iter()
            .take_while(|item| matches!(item, Node::List(_)))
            .count();
        set("type", format!("multipart/{}", small(&items[parts])));
        set("parts", parts.to_string());
        set("params", parameters(&items[parts + 1]));
        extensions(&items[parts + 2..], &mut set);
        for (number, part) in items[..parts].iter().enumerate() {
            structure(part, &below(path, number + 1), view, asked);
        }
        return;
    }
    assert!(items.len() >= 7, "a part has seven fields: {node:?}");
    let kind = format!("{}/{}", small(&items[0]), small(&items[1]));
    set("type", kind.clone());
    set("params", parameters(&items[2]));
    set("id", show(&items[3]));
    set("description", show(&items[4]));
    set("encoding", small(&items[5]));
    set("size", show(&items[6]));
    let mut rest = &items[7..];
    let message = matches!(kind.as_str(), "message/rfc822" | "message/global")
        && matches!(rest.first(), Some(Node::List(_)));
    let inner = message.then(|| {
        set("lines", show(&rest[2]));
        let inner = (&rest[0], &rest[1]);
        rest = &rest[3..];
        inner
    });
    if kind.starts_with("text/") {
        set("lines", show(&rest[0]));
        rest = &rest[1..];
    }
    set("md5", show(rest.first().unwrap_or(&Node::Nil)));
    extensions(rest.get(1..).unwrap_or_default(), &mut set);
    // A message that is no multipart has its text as part 1.
    let part = if path.is_empty() {
        "1".to_owned()
    } else {
        path.to_owned()
    };
    asked.push(Asked {
        path: part.clone(),
        message,
    });
    if let Some((of, body)) = inner {
        envelope(of, &format!("{own} envelope"), view);
        // The parts of a multipart within a message are numbered below the message; anything else is its part 1.
        let multipart = matches!(list(body).first(), Some(Node::List(_)));
        structure(
            body,
            &if multipart { part } else { below(&part, 1) },
            view,
            asked,
        );
    }
}

fn extensions(rest: &[Node], set: &mut impl FnMut(&str, String)) {
    let nil = Node::Nil;
    let at = |n: usize| rest.get(n).unwrap_or(&nil);
    set(
        "disposition",
        match at(0) {
            Node::List(list) => format!("{} {}", small(&list[0]), parameters(&list[1])),
            other => show(other),
        },
    );
    set(
        "language",
        match at(1) {
            Node::List(list) => list.iter().map(small).collect::<Vec<_>>().join(" "),
            Node::Nil => "NIL".to_owned(),
            one => small(one),
        },
    );
    set("location", show(at(2)));
    assert!(rest.len() <= 3, "more than extension data: {rest:?}");
}

fn parameters(node: &Node) -> String {
    let Node::List(list) = node else {
        return show(node);
    };
    assert!(list.len() % 2 == 0 && !list.is_empty(), "pairs: {node:?}");
    // "The ordering of parameters is not significant" (RFC 2045, 5).
    let mut pairs: Vec<String> = list
        .chunks_exact(2)
        .map(|pair| format!("{}={}", small(&pair[0]), show(&pair[1])))
        .collect();
    pairs.sort();
    pairs.join(" ")
}

/// BODY of a BODYSTRUCTURE.
fn without_extensions(node: &Node) -> Node {
    let items = list(node);
    if matches!(items.first(), Some(Node::List(_))) {
        let parts = items
            .iter()
            .take_while(|item| matches!(item, Node::List(_)))
            .count();
        let mut short: Vec<Node> = items[..parts].iter().map(without_extensions).collect();
        short.push(items[parts].clone());
        return Node::List(short);
    }
    let kind = format!("{}/", small(&items[0]));
    let mut short = items[..7].to_vec();
    if kind == "text/" {
        short.push(items[7].clone());
    } else if matches!(items.get(7), Some(Node::List(_)))
        && items.len() > 9
        && matches!(items[8], Node::List(_))
    {
        short.extend([
            items[7].clone(),
            without_extensions(&items[8]),
            items[9].clone(),
        ]);
    }
    Node::List(short)
}

fn below(path: &str, number: usize) -> String {
    if path.is_empty() {
        number.to_string()
    } else {
        format!("{path}.{number}")
    }
}

fn list(node: &Node) -> &[Node] {
    match node {
        Node::List(list) => list,
        other => panic!("a list was expected: {other:?}"),
    }
}

fn small(node: &Node) -> String {
    node.text().to_ascii_lowercase()
}

/// A value, so that NIL, an empty string and a word are told apart.
fn show(node: &Node) -> String {
    match node {
        Node::Nil => "NIL".to_owned(),
        Node::Atom(bytes) => bytes.escape_ascii().to_string(),
        Node::Text(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Node::List(list) => format!("({})", list.iter().map(show).collect::<Vec<_>>().join(" ")),
    }
}
