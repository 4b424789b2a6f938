//! From text to a [`Config`]: unknown keys with a suggestion, all problems at once, each with its line.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use whimbrel_cluster::NodeName;

use toml::de::{DeTable, DeValue};

use super::{
    schema::{Config, SECTIONS, Section},
    value::Value,
};

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// All that is wrong with a configuration, in the order of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "  line {}: {}", problem.line, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Where [`Config::build`] takes values from.
pub(super) struct Source<'i> {
    text: &'i str,
    table: DeTable<'i>,
    problems: Vec<Problem>,
}

pub(super) fn parse(text: &str) -> Result<Config, Problems> {
    let mut source = Source {
        text,
        table: DeTable::new(),
        problems: Vec::new(),
    };
    match DeTable::parse(text) {
        Ok(table) => source.table = table.into_inner(),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            source.problem(at, error.message().to_owned());
            return Err(Problems(source.problems));
        }
    }
    source.refuse_unknown();
    let config = Config::build(&mut source);
    source.check_together(&config);
    if source.problems.is_empty() {
        return Ok(config);
    }
    source.problems.sort_by_key(|problem| problem.line);
    Err(Problems(source.problems))
}

/// A default or a bound, as written in the schema.
pub(super) fn literal<T: Value>(text: &str) -> Result<T, String> {
    let value = DeValue::parse(text).map_err(|error| error.message().to_owned())?;
    T::read(value.get_ref())
}

impl Source<'_> {
    fn problem(&mut self, at: usize, message: String) {
        let line = 1 + self
            .text
            .bytes()
            .take(at)
            .filter(|byte| *byte == b'\n')
            .count();
        self.problems.push(Problem { line, message });
    }

    fn refuse_unknown(&mut self) {
        let mut found = Vec::new();
        for (section_name, value) in &self.table {
            let at = section_name.span().start;
            let name: &str = section_name.get_ref();
            let Some(section) = SECTIONS.iter().find(|section| section.name == name) else {
                let what = if value.get_ref().is_table() {
                    "section"
                } else {
                    "key"
                };
                found.push((
                    at,
                    format!("unknown {what} `{name}`{}", suggestion(None, name)),
                ));
                continue;
            };
            let Some(keys) = value.get_ref().as_table() else {
                found.push((at, format!("`{name}` is a section: write [{name}]")));
                continue;
            };
            for key_name in keys.keys() {
                let key: &str = key_name.get_ref();
                if !section.keys.iter().any(|known| known.name == key) {
                    let full = format!("{name}.{key}");
                    let renamed = RENAMED.iter().find(|(old, _)| *old == full);
                    let message = match renamed {
                        Some((_, new)) => format!("the key `{full}` is called `{new}` now"),
                        None => format!("unknown key `{full}`{}", suggestion(Some(section), key)),
                    };
                    found.push((key_name.span().start, message));
                }
            }
        }
        for (at, message) in found {
            self.problem(at, message);
        }
    }

    /// The value of a key, or its default if the key is missing or wrong.
    pub(super) fn take<T: Value>(
        &mut self,
        section: &'static str,
        key: &'static str,
        default: &'static str,
        range: Option<(&'static str, &'static str)>,
    ) -> T {
        let read = self
            .table
            .get(section)
            .and_then(|section| section.get_ref().as_table())
            .and_then(|keys| keys.get(key))
            .map(|value| {
                let read = T::read(value.get_ref()).and_then(|read| in_range(read, range));
                (value.span().start, read)
            });
        match read {
            Some((_, Ok(value))) => return value,
            Some((at, Err(message))) => self.problem(at, format!("`{section}.{key}`: {message}")),
            None => {}
        }
        literal(default)
            .and_then(|read| in_range(read, range))
            .expect("the schema's defaults are valid: a test reads them all")
    }

    /// Rules between several keys, and formats that are no type of their own.
    fn check_together(&mut self, config: &Config) {
        let host = &config.server.hostname;
        if !host.is_empty() && !is_host_name(host) {
            let message = format!("`server.hostname`: {host:?} is not a host name");
            self.problem(self.place("server", "hostname"), message);
        }
        if config.tls.cert.as_os_str().is_empty() != config.tls.key.as_os_str().is_empty() {
            let message =
                "`tls.cert` and `tls.key` belong together: give both or neither".to_owned();
            self.problem(self.place("tls", "cert"), message);
        }
        let cluster = &config.cluster;
        if !cluster.name.is_empty() {
            if let Err(error) = NodeName::new(&cluster.name) {
                let message = format!("`cluster.name`: {error}");
                self.problem(self.place("cluster", "name"), message);
            }
            if cluster.listen.is_empty() {
                let message = "`cluster.listen`: the other nodes need an address".to_owned();
                self.problem(self.place("cluster", "listen"), message);
            }
            // It would be announced to the other nodes, each of which would take it for itself.
            let first = cluster.listen.first();
            if cluster.address.is_empty() && first.is_some_and(|at| at.ip().is_unspecified()) {
                let message = "`cluster.listen` is every address of this machine; give `cluster.address`: where the others reach this node".to_owned();
                self.problem(self.place("cluster", "listen"), message);
            }
            if let Err(message) = addresses(&cluster.peers) {
                self.problem(self.place("cluster", "peers"), message);
            }
            if !cluster.address.is_empty() && !is_address(&cluster.address) {
                let message = format!(
                    "`cluster.address`: {:?} is not a host and a port, such as \"mail.example.org:10700\"",
                    cluster.address
                );
                self.problem(self.place("cluster", "address"), message);
            }
            if cluster.region.len() > REGION_BYTES_MAX {
                let message = format!("`cluster.region`: longer than {REGION_BYTES_MAX} bytes");
                self.problem(self.place("cluster", "region"), message);
            }
        }
        for (section, key, small, large, than) in [
            (
                "limits",
                "connections_per_address_max",
                config.limits.connections_per_address_max,
                config.limits.connections_max,
                "connections_max",
            ),
            (
                "limits",
                "unauthenticated_max",
                config.limits.unauthenticated_max,
                config.limits.connections_max,
                "connections_max",
            ),
        ] {
            if small > large {
                let message =
                    format!("`{section}.{key}` is greater than `{section}.{than}` ({large})");
                self.problem(self.place(section, key), message);
            }
        }
    }

    fn place(&self, section: &str, key: &str) -> usize {
        let Some(found) = self.table.get(section) else {
            return 0;
        };
        let key = found.get_ref().as_table().and_then(|keys| keys.get(key));
        key.map_or(found.span().start, |value| value.span().start)
    }
}

fn in_range<T: Value>(value: T, range: Option<(&'static str, &'static str)>) -> Result<T, String> {
    let Some((least, most)) = range else {
        return Ok(value);
    };
    let bound = |text| literal::<T>(text).ok().and_then(|bound| bound.magnitude());
    let (Some(low), Some(high)) = (bound(least), bound(most)) else {
        return Err(format!("the schema has a bad range {least} to {most}"));
    };
    match value.magnitude() {
        Some(magnitude) if (low..=high).contains(&magnitude) => Ok(value),
        _ => Err(format!("must be from {least} to {most}")),
    }
}

/// The name of a region goes to all nodes, which show it.
const REGION_BYTES_MAX: usize = 63;

/// A host, or an address of IPv6 in brackets, and a port.
fn is_address(text: &str) -> bool {
    /// A domain name has 253 at most (RFC 1035, 2.3.4).
    const ADDRESS_BYTES_MAX: usize = 260;
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host = text.parse::<SocketAddr>().is_ok() || is_host_name(host);
    text.len() <= ADDRESS_BYTES_MAX && host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// `cluster.peers`: names and addresses.
pub(super) fn addresses(pairs: &[String]) -> Result<BTreeMap<NodeName, String>, String> {
    let pairs = pairs.iter().map(|pair| {
        let split = pair.split_once('=').and_then(|(name, address)| {
            let name = NodeName::new(name).ok()?;
            is_address(address).then(|| (name, address.to_owned()))
        });
        split.ok_or_else(|| {
            format!(
                "`cluster.peers`: {pair:?} is not a name and an address, such as \"eu-1=10.0.0.1:10700\""
            )
        })
    });
    pairs.collect()
}

/// RFC 1123, 2.1: labels of letters, digits and hyphens.
pub(super) fn is_host_name(name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 253;
    const LABEL_BYTES_MAX: usize = 63;
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= LABEL_BYTES_MAX
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

/// Keys that had another name in an earlier version, and their names today.
pub(super) const RENAMED: [(&str, &str); 5] = [
    ("cluster.kept_bytes", "cluster.log_retention_bytes"),
    ("cluster.patience", "cluster.startup_timeout"),
    (
        "cluster.windows_bytes_max",
        "cluster.replication_buffer_bytes_max",
    ),
    ("cluster.write_patience", "cluster.write_timeout"),
    ("queue.patience", "queue.confirm_timeout"),
];

/// `, did you mean ...?`, or nothing when no known name is near.
fn suggestion(section: Option<&Section>, wrong: &str) -> String {
    /// A resemblance below this is chance.
    const NEAR: f64 = 0.8;
    /// Longer names are compared by their begin only: the comparison is quadratic.
    const COMPARED_CHARS: usize = 64;
    let wrong: String = wrong.chars().take(COMPARED_CHARS).collect();
    let full = |section: &Section, key: &str| format!("{}.{key}", section.name);
    let beside: Vec<(&str, String)> = match section {
        Some(section) => section
            .keys
            .iter()
            .map(|key| (key.name, full(section, key.name)))
            .collect(),
        None => SECTIONS
            .iter()
            .map(|section| (section.name, section.name.to_owned()))
            .collect(),
    };
    // A key written in the wrong section, or before the first, resembles the key most of all.
    let elsewhere = SECTIONS.iter().find_map(|section| {
        section
            .keys
            .iter()
            .any(|key| key.name == wrong)
            .then(|| full(section, &wrong))
    });
    let nearest = beside
        .into_iter()
        .map(|(name, full)| (strsim::jaro_winkler(name, &wrong), full))
        .filter(|(near, _)| *near >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, full)| full);
    elsewhere
        .or(nearest)
        .map_or_else(String::new, |known| format!(", did you mean `{known}`?"))
}
