//! Configuration: one TOML file, every key of which has a default.
//!
//! Invariants:
//! - [`schema`] is the only list of keys: the struct, the defaults, the documentation and the example come from it.
//! - An unknown key, a wrong type and a value out of range are errors with a line number; nothing is silently ignored.
//! - A [`Config`] that exists is valid, except for what only the machine can tell (a taken port, a missing file).
//!
//! Reading order: [`schema`], [`value`], [`read`], [`render`].

mod read;
mod render;
mod schema;
mod value;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use whimbrel_cluster::NodeName;

pub use read::{Problem, Problems};
pub use render::{documentation, example};
pub use schema::*;
pub(crate) use value::duration;
pub use value::{LogFormat, LogLevel, NodeRole, Size};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is wrong in one or several places.
    #[error("{}:\n{problems}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The places.
        problems: Problems,
    },
}

impl Config {
    /// Reads `text`; reports all problems at once.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        read::parse(text)
    }

    /// Reads a file, or gives the defaults if there is none. Relative paths in a file are relative to its directory.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = file else {
            return Ok(Config::default());
        };
        let text = std::fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        let mut config = Config::parse(&text).map_err(|problems| ConfigError::Wrong {
            path: path.to_owned(),
            problems,
        })?;
        if let Some(directory) = path.parent() {
            config.resolve_paths(directory);
        }
        Ok(config)
    }

    fn resolve_paths(&mut self, directory: &Path) {
        self.server.data_dir = directory.join(&self.server.data_dir);
        for path in [&mut self.tls.cert, &mut self.tls.key] {
            if !path.as_os_str().is_empty() {
                *path = directory.join(&*path);
            }
        }
    }

    /// Configured addresses of other nodes, in place of those they announce, by name.
    pub fn cluster_addresses(&self) -> BTreeMap<NodeName, String> {
        read::addresses(&self.cluster.peers).expect("it was checked when it was read")
    }

    /// The address that this node announces to the others.
    pub fn cluster_address(&self) -> String {
        let section = &self.cluster;
        match section.listen.first() {
            Some(first) if section.address.is_empty() => first.to_string(),
            _ => section.address.clone(),
        }
    }

    /// The socket by which the administrator's commands reach a running server.
    pub fn admin_socket(&self) -> PathBuf {
        self.server.data_dir.join("admin.sock")
    }

    /// How many partition owners to run.
    pub fn owners(&self) -> usize {
        match self.server.owners {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            owners => owners,
        }
    }

    /// The name under which the server speaks.
    pub fn hostname(&self) -> String {
        if !self.server.hostname.is_empty() {
            return self.server.hostname.clone();
        }
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .map(|name| name.trim().to_owned())
            .filter(|name| read::is_host_name(name))
            .unwrap_or_else(|| "localhost".to_owned())
    }
}

impl Default for Config {
    fn default() -> Self {
        Config::parse("").expect("the empty file is valid: a test reads all defaults")
    }
}

#[cfg(test)]
mod tests;
