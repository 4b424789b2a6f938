//! What a client with QRESYNC says and is told at SELECT (RFC 7162, 3.2.5).

use std::collections::BTreeSet;

use super::{
    parse::{Node, Response, modseq, ranges},
    reply::Reply,
    set_of,
};

/// What SELECT told a client of what it has, by its parameter QRESYNC.
#[derive(Debug, Default)]
pub struct Resync {
    /// Ranges of UIDs of which none is there any more.
    pub vanished: Vec<(u32, u32)>,
    /// UIDs, and the flags that these have now.
    pub changed: Vec<(u32, BTreeSet<String>)>,
}

impl Resync {
    /// The parameter: what a client says that it has.
    #[must_use]
    pub fn parameter(validity: u32, modseq: u64, known: &[u32]) -> String {
        let known = match known {
            [] => String::new(),
            known => format!(" {}", set_of(known)),
        };
        format!("(QRESYNC ({validity} {modseq}{known}))")
    }

    /// What the answer says (RFC 7162, 3.2.5.1): VANISHED (EARLIER) comes before FETCH, and each FETCH has UID, FLAGS and MODSEQ.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn of(reply: &Reply) -> Result<Resync, String> {
        let mut resync = Resync::default();
        for response in &reply.untagged {
            match response {
                Response::Data(name, nodes) if name == "VANISHED" => {
                    let [Node::List(_), set] = nodes.as_slice() else {
                        return Err(format!("not (EARLIER): {nodes:?}"));
                    };
                    if !resync.changed.is_empty() {
                        return Err("VANISHED (EARLIER) after FETCH".to_owned());
                    }
                    resync.vanished.extend(ranges(&set.text()));
                }
                Response::Fetch(_, items) => {
                    let (Some(uid), Some(flags), Some(_)) = (
                        items.uid(),
                        items.flags(),
                        items.get("MODSEQ").and_then(modseq),
                    ) else {
                        return Err(format!("UID, FLAGS or MODSEQ is missing: {items:?}"));
                    };
                    resync.changed.push((uid, flags.into_iter().collect()));
                }
                _ => {}
            }
        }
        Ok(resync)
    }
}
