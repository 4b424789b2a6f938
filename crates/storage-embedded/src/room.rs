//! What there is no room for on the disk.

use whimbrel_storage::StoreError;

use crate::config::Config;

/// What there is no room for on the disk.
pub(crate) struct Lack {
    /// For anything at all, be it a removal.
    pub(crate) any: Option<StoreError>,
    pub(crate) ordinary: Option<StoreError>,
    pub(crate) frees: Option<StoreError>,
}

impl Lack {
    pub(crate) fn now(config: &Config) -> Lack {
        let path = config.path.display();
        let free = match config.disk.free_bytes(&config.path) {
            Ok(free) => free,
            Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
                let lack = Some(StoreError::Full(format!("{path}: {error}").into()));
                return Lack {
                    any: lack.clone(),
                    ordinary: lack.clone(),
                    frees: lack,
                };
            }
            Err(_) => u64::MAX,
        };
        let below = |bytes_min: u64| {
            (free < bytes_min).then(|| {
                let what = format!("{path} has {free} bytes left, {bytes_min} are kept free");
                StoreError::Full(what.into())
            })
        };
        Lack {
            any: None,
            ordinary: below(config.free_bytes_min),
            frees: below(config.removal_free_bytes_min.min(config.free_bytes_min)),
        }
    }
}

/// What is lacking for the tree to be opened again, if anything is.
pub(crate) fn lack_of_anything(config: &Config) -> Option<String> {
    // It puts itself in order first, which takes room.
    if let Some(lack) = Lack::now(config).frees {
        return Some(lack.to_string());
    }
    let probed = config.disk.probe(&config.path);
    let error = probed.err()?;
    Some(format!(
        "{} cannot be written to: {error}",
        config.path.display()
    ))
}
