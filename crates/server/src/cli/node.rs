//! `whimbrel node`.

use super::{
    Node,
    run::{load, print},
};
use crate::{
    config::{LogFormat, LogLevel, LogSection},
    log,
    node::{Copy, DataDir, Identity},
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn node(command: Node) -> Result<(), Failure> {
    match command {
        Node::Show { config } => {
            let path = load(&config)?.server.data_dir;
            print(&shown(&DataDir::read(&path)?))
        }
        Node::Renew { config } => {
            let config = load(&config)?;
            log::start(&LogSection {
                level: LogLevel::Warn,
                format: LogFormat::Text,
            });
            // An empty directory has nobody to be renewed.
            DataDir::read(&config.server.data_dir)?;
            let mut data = DataDir::open(&config.server.data_dir)?;
            data.renew(Copy::Asked);
            data.write()?;
            print(&shown(data.identity()))
        }
    }
}

fn shown(identity: &Identity) -> String {
    format!(
        "incarnation  {:016x}\nslot         {} ({} unused; when none is left, every account gets a new UIDVALIDITY)\n",
        identity.incarnation,
        identity.slot,
        identity.slots_free.len()
    )
}
