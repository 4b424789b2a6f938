//! The small files beside the store: `node.toml`, the files of a cluster, and a certificate that was made here.

use std::{fs, io, path::Path};

use super::{Problem, Report};
use crate::{cluster::files::Files, tls};

/// Compares them with their checksums. Lock files are empty, and the admin socket is no file.
pub(super) fn check(data: &Path, report: &mut Report) -> io::Result<()> {
    let mut tell = |path: &Path, what: String| {
        report.found.push(Problem {
            file: Some(path.to_owned()),
            // Each file has one checksum over all of its bytes.
            offset: Some(0),
            partition: None,
            key: None,
            what,
            damage: true,
        });
    };
    let node = data.join("node.toml");
    if let Err(cause) = super::identity(data) {
        tell(&node, cause.replace(&format!("{}: ", node.display()), ""));
    }
    if let Err(error) = Files::of(data).open() {
        tell(&data.join("cluster"), error.to_string());
    }
    let folder = data.join("tls");
    let sums = folder.join(tls::SUMS);
    let text = match fs::read(&sums) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // The certificate comes from elsewhere, or was made before sums were written.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(known) = tls::parse_sums(&text) else {
        tell(&sums, "the checksum is wrong".into());
        return Ok(());
    };
    for (name, sum) in known {
        let path = folder.join(name);
        match fs::read(&path) {
            Ok(bytes) if blake3::hash(&bytes).to_hex().as_str() == sum => {}
            Ok(_) => tell(&path, "it is not as it was made".into()),
            Err(error) => tell(&path, error.to_string()),
        }
    }
    Ok(())
}
