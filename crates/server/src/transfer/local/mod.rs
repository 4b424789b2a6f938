//! Maildir and mbox as sources.
//!
//! The id of a Maildir's message follows from its folder, the base of its file's name and its bytes; that of an mbox message from the file, the place
//! in it and its bytes. So a file that was changed meanwhile costs at worst a message that is there twice, never a missing one.
//!
//! Nothing is lost silently: each entry below the root becomes a folder or a message, or is reported, as skipped or as known to hold no mail. The
//! walks ([`maildir`], [`mbox`]) find the folders and report other entries; entries in `cur`, `new` and an mbox are reported when they are read.
//!
//! The files may belong to a user who may read less than this process: see [`entries`].

mod entries;
mod maildir;
mod mbox;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use whimbrel_transfer::names;

pub(super) use self::entries::label;
use self::entries::{Kind, lines_of_text, short_list};
use super::{Failure, Folder, Origin, Place, Report, target::Target};

/// Depth of directories.
const DEPTH_MAX: usize = 32;

const TOO_DEEP: &str = "it is too deep";

pub(super) struct Local {
    origin: Origin,
}

impl Local {
    pub(super) fn new(origin: Origin) -> Self {
        Local { origin }
    }

    pub(super) fn folders(&mut self, report: &mut Report) -> Result<Vec<Folder>, Failure> {
        let (root, mut found, subscribed) = match &self.origin {
            Origin::Maildir { path, nested } => {
                if kind_of_root(path)? != Kind::Directory {
                    return Err(format!("{} is a file, not a Maildir", label(path)).into());
                }
                // An unreadable directory is reported as such, before anything in it is reported as missing.
                std::fs::read_dir(path).map_err(|error| failed(path, &error))?;
                if !*nested && !maildir::has_parts(path) {
                    return Err(format!(
                        "{} has neither cur nor new, so it is not a Maildir; for a directory of Maildirs (Dovecot's LAYOUT=fs) add --nested",
                        label(path)
                    )
                    .into());
                }
                let found = maildir::walk(path, report)?;
                let separator = if *nested { '/' } else { '.' };
                let mut subscribed = Vec::new();
                for (name, is_courier) in maildir::SUBSCRIPTIONS {
                    let text = lines_of_text(&short_list(&path.join(name), report));
                    let read =
                        whimbrel_transfer::maildir::subscriptions(&text, separator, is_courier);
                    subscribed.extend(read);
                }
                (path, found, subscribed)
            }
            Origin::Mbox { path, .. } => {
                let found = match kind_of_root(path)? {
                    Kind::Directory => mbox::walk(path, report)?,
                    _ => mbox::one_file(path, report),
                };
                // A file has no list of subscriptions.
                let subscribed = match path.is_dir() {
                    true => short_list(&path.join(mbox::SUBSCRIPTIONS), report),
                    false => Vec::new(),
                };
                let text = lines_of_text(&subscribed);
                let subscribed = whimbrel_transfer::maildir::subscriptions(&text, '/', false);
                (path, found, subscribed)
            }
            Origin::Imap(_) => return Err("not here".into()),
        };
        if found.is_empty() {
            return Err(format!("{} holds no mail", label(root)).into());
        }
        subscribe(&mut found, &subscribed);
        Ok(found)
    }

    pub(super) async fn read(
        &mut self,
        folder: &Folder,
        target: &mut Target,
        report: &mut Report,
    ) -> Result<Result<(), String>, Failure> {
        match (&folder.place, &self.origin) {
            (Place::Directory(path), _) => {
                maildir::read(path, folder, target, report).await?;
                Ok(Ok(()))
            }
            (Place::File(path), Origin::Mbox { quoting, .. }) => {
                mbox::read(path, *quoting, folder, target, report).await
            }
            _ => Ok(Ok(())),
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    format!("{}: {error}", label(path)).into()
}

fn kind_of_root(path: &Path) -> Result<Kind, Failure> {
    // The path that the administrator gives may be a link.
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::from(format!("{} does not exist", label(path))),
        _ => failed(path, &error),
    })?;
    Ok(match meta.is_dir() {
        true => Kind::Directory,
        false => Kind::File,
    })
}

/// Assigns subscriptions to the folders that they name. A subscription without a folder becomes an entry of its own.
fn subscribe(found: &mut Vec<Folder>, subscribed: &[Vec<Vec<String>>]) {
    let mut by_levels: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for (at, folder) in found.iter().enumerate() {
        by_levels.entry(folder.levels.clone()).or_insert(at);
    }
    for meanings in subscribed {
        let known = meanings.iter().find_map(|levels| by_levels.get(levels));
        if let Some(at) = known {
            found[*at].subscribed = true;
            continue;
        }
        let likely = meanings.first();
        let Some(levels) = likely.filter(|levels| levels.iter().all(|level| !level.is_empty()))
        else {
            continue;
        };
        by_levels.insert(levels.clone(), found.len());
        found.push(Folder {
            levels: levels.clone(),
            key: Vec::new(),
            special_use: None,
            subscribed: true,
            weight: 0,
            place: Place::Nowhere,
        });
    }
}

/// The result of a walk.
struct SourceTree<'a> {
    report: &'a mut Report,
    folders: Vec<Folder>,
    keys: BTreeSet<Vec<String>>,
}

impl<'a> SourceTree<'a> {
    fn new(report: &'a mut Report) -> Self {
        SourceTree {
            report,
            folders: Vec::new(),
            keys: BTreeSet::new(),
        }
    }

    /// Adds a folder. `key` names it in the ids of its messages: it never changes, so that an import that is begun again with a later version
    /// finds the same ones. Two folders may have the same levels; none has the key of another.
    fn add(&mut self, levels: &[String], key: &[String], weight: u64, place: Place) -> usize {
        let mut key = key.to_vec();
        while !self.keys.insert(key.clone()) {
            key.push(String::new());
        }
        self.folders.push(Folder {
            levels: levels.to_vec(),
            key,
            special_use: None,
            subscribed: false,
            weight,
            place,
        });
        self.folders.len() - 1
    }

    /// The text of a name; if the name is no text, its reading is reported.
    fn text(&mut self, path: &Path) -> String {
        let name = path.file_name().unwrap_or_default();
        let text = names::text(name.as_encoded_bytes()).into_owned();
        if name.to_str().is_none() {
            let path = label(path);
            self.report.note(&format!(
                "{path}: its name is not UTF-8; it is read as {text}"
            ));
        }
        text
    }
}

fn joined(levels: &[String], level: String) -> Vec<String> {
    let mut levels = levels.to_vec();
    levels.push(level);
    levels
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
