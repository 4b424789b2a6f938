//! What a command brought, and what tests ask of it.

use std::collections::BTreeMap;

use super::parse::{Fetched, Node, Response, Status, set};

/// All that a command brought.
#[derive(Clone, Debug)]
pub struct Reply {
    /// OK, NO or BAD.
    pub status: Status,
    /// The response code, without brackets.
    pub code: String,
    /// The text behind it.
    pub text: String,
    /// What came before, in order.
    pub untagged: Vec<Response>,
}

impl Reply {
    /// Itself, when it is OK.
    #[must_use]
    pub fn ok(self, what: &str) -> Reply {
        assert_eq!(
            self.status,
            Status::Ok,
            "{what}: {} [{}] {}",
            self.status.name(),
            self.code,
            self.text
        );
        self
    }

    /// The FETCH responses: sequence number and items.
    pub fn fetched(&self) -> impl Iterator<Item = (u32, &Fetched)> {
        self.untagged.iter().filter_map(|response| match response {
            Response::Fetch(number, items) => Some((*number, items)),
            _ => None,
        })
    }

    /// The last EXISTS.
    #[must_use]
    pub fn exists(&self) -> Option<u32> {
        self.untagged
            .iter()
            .rev()
            .find_map(|response| match response {
                Response::Exists(count) => Some(*count),
                _ => None,
            })
    }

    /// The argument of a response code, tagged or not: `code("UIDNEXT")`.
    #[must_use]
    pub fn code(&self, name: &str) -> Option<String> {
        let untagged = self.untagged.iter().filter_map(|response| match response {
            Response::State(_, code, _) => Some(code.as_str()),
            _ => None,
        });
        untagged.chain([self.code.as_str()]).find_map(|code| {
            let (key, value) = code.split_once(' ').unwrap_or((code, ""));
            (key == name).then(|| value.to_owned())
        })
    }

    /// The numeric argument of a response code.
    #[must_use]
    pub fn code_number(&self, name: &str) -> Option<u32> {
        self.code(name)?.parse().ok()
    }

    /// Untagged data of this name: its arguments.
    #[must_use]
    pub fn data(&self, name: &str) -> Vec<&[Node]> {
        let matching =
            |response: &'_ Response| matches!(response, Response::Data(key, _) if key == name);
        self.untagged
            .iter()
            .filter(|response| matching(response))
            .filter_map(|response| match response {
                Response::Data(_, nodes) => Some(nodes.as_slice()),
                _ => None,
            })
            .collect()
    }

    /// The figures of a STATUS response.
    #[must_use]
    pub fn status_figures(&self) -> BTreeMap<String, u64> {
        let mut figures = BTreeMap::new();
        for arguments in self.data("STATUS") {
            if let Some(Node::List(list)) = arguments.get(1) {
                for pair in list.chunks_exact(2) {
                    figures.insert(pair[0].text(), pair[1].text().parse().unwrap_or(u64::MAX));
                }
            }
        }
        figures
    }

    /// The numbers that a search found, in the old form (`SEARCH`) or the new one (`ESEARCH ... ALL`).
    #[must_use]
    pub fn found(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self
            .data("SEARCH")
            .into_iter()
            .flatten()
            .filter_map(|node| node.text().parse().ok())
            .collect();
        for nodes in self.data("ESEARCH") {
            if let Some(at) = nodes.iter().position(|node| node.is("ALL")) {
                numbers.extend(
                    nodes
                        .get(at + 1)
                        .map(|node| set(&node.text()))
                        .unwrap_or_default(),
                );
            }
        }
        numbers
    }
}
