//! What texts refer to is there: files and sections that Markdown links to, functions in code spans, pages and decisions that comments name.
//!
//! A reference is one of these:
//! - `](path#section)` in Markdown, relative to the page;
//! - a code span `CRATE/src/FILE.rs` or `CRATE/src/FILE.rs::NAME` in Markdown, below `crates/`;
//! - a page below `docs/`, with or without a section, and `decisions/NNNN` in Markdown, Rust and Coq.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{cargo_toml, step::Findings, tidy};

/// The name of the page that the design had outside the repository, and of nothing else.
const FORMER_DESIGN: &str = concat!("DES", "IGN");

/// Checks the tree.
pub(crate) fn check() -> Findings {
    let root = cargo_toml::root();
    let mut pages = Pages::new(&root);
    let mut findings = Findings {
        looked_at: 0,
        wrong: Vec::new(),
    };
    for path in tidy::files(&root) {
        let kind = path.extension().and_then(|kind| kind.to_str());
        let is_prose = kind == Some("md");
        if !is_prose && !matches!(kind, Some("rs" | "v")) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        findings.looked_at += 1;
        let shown = path
            .strip_prefix(&root)
            .unwrap_or(&path)
            .display()
            .to_string();
        for (at, line) in text.lines().enumerate() {
            let mut wrong = of_line(&root, &mut pages, line);
            if is_prose {
                wrong.extend(of_page(&root, &mut pages, &path, line));
            }
            let told = wrong
                .into_iter()
                .map(|what| format!("{shown}:{}: {what}", at + 1));
            findings.wrong.extend(told);
        }
    }
    findings
}

/// What is there to be referred to, each file read once.
struct Pages {
    /// The sections of a page; `None`: there is no such file.
    sections: BTreeMap<PathBuf, Option<BTreeSet<String>>>,
    /// The file names of decisions.
    decisions: Vec<String>,
}

impl Pages {
    fn new(root: &Path) -> Self {
        let decisions = fs::read_dir(root.join("docs/decisions"));
        let entries = decisions.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Pages {
            sections: BTreeMap::new(),
            decisions: names.collect(),
        }
    }

    fn has_decision(&self, number: &str) -> bool {
        self.decisions.iter().any(|name| name.starts_with(number))
    }

    /// What is wrong with this reference to a file, and to a section of it.
    fn judge(&mut self, file: &Path, section: Option<&str>) -> Option<String> {
        let sections = self.sections.entry(file.to_owned()).or_insert_with(|| {
            if file.is_dir() {
                return Some(BTreeSet::new());
            }
            let text = fs::read_to_string(file).ok()?;
            Some(sections(&text))
        });
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        match (sections, section) {
            (None, _) => Some(format!("there is no {name}")),
            (Some(sections), Some(section)) if !sections.contains(section) => {
                Some(format!("{name} has no section #{section}"))
            }
            _ => None,
        }
    }
}

/// Anchors of a page: its headings as GitHub names them, and what has an `id`.
fn sections(text: &str) -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            sections.insert(slug(heading.trim_start_matches('#')));
        }
        if let Some((_, rest)) = line.split_once("id=\"") {
            sections.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    sections
}

/// "the generated anchor": lower case, without punctuation, blanks as hyphens.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// What a line of any text refers to.
fn of_line(root: &Path, pages: &mut Pages, line: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for rest in line.split("docs/").skip(1) {
        let is_of_path = |letter: char| letter.is_alphanumeric() || "-_./".contains(letter);
        let (path, rest) = split_while(rest, is_of_path);
        let path = path.trim_end_matches('.');
        if !path.ends_with(".md") {
            continue;
        }
        let section = rest.strip_prefix('#').map(|rest| {
            let (section, _) =
                split_while(rest, |letter| letter.is_alphanumeric() || letter == '-');
            section
        });
        wrong.extend(pages.judge(&root.join("docs").join(path), section));
    }
    for rest in line.split("decisions/").skip(1) {
        let (number, _) = split_while(rest, |letter| letter.is_ascii_digit());
        if number.len() == 4 && !pages.has_decision(number) {
            wrong.push(format!("there is no decision {number}"));
        }
    }
    for rest in line.split(FORMER_DESIGN).skip(1) {
        if rest
            .trim_start_matches([' ', ','])
            .starts_with(|letter: char| letter.is_ascii_digit())
        {
            wrong.push(format!(
                "{FORMER_DESIGN} is docs/design.md now, with sections"
            ));
        }
    }
    wrong
}

/// What a line of a page links to, and the code that it names.
fn of_page(root: &Path, pages: &mut Pages, page: &Path, line: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let here = page.parent().unwrap_or(root);
    for rest in line.split("](").skip(1) {
        let target = rest.split(')').next().unwrap_or_default();
        if target.contains("://") || target.starts_with("mailto:") || target.contains(' ') {
            continue;
        }
        let (path, section) = match target.split_once('#') {
            Some((path, section)) => (path, Some(section)),
            None => (target, None),
        };
        let file = match path.is_empty() {
            true => page.to_owned(),
            false => here.join(path),
        };
        wrong.extend(pages.judge(&file, section));
    }
    // Every second part is between two marks.
    for span in line.split('`').skip(1).step_by(2) {
        let (path, name) = match span.split_once("::") {
            Some((path, name)) => (path, Some(name)),
            None => (span, None),
        };
        let is_code =
            path.contains("/src/") && path.ends_with(".rs") && !path.contains([' ', '{', '*']);
        let path = path.strip_prefix("crates/").unwrap_or(path);
        if !is_code
            || path.contains("NAME")
            || path.starts_with("xtask/")
            || path.starts_with("fuzz/")
        {
            continue;
        }
        match (fs::read_to_string(root.join("crates").join(path)), name) {
            (Err(_), _) => wrong.push(format!("there is no {path}")),
            (Ok(text), Some(name)) if !defines(&text, name) => {
                wrong.push(format!("{path} has no {name}"))
            }
            _ => {}
        }
    }
    wrong
}

/// What introduces the name of an item.
const ITEMS: [&str; 9] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union",
];

/// Whether a source defines an item of this name. A file that only uses it is the wrong one to send a reader to.
fn defines(source: &str, name: &str) -> bool {
    let words = source.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let mut before = "";
    words.filter(|word| !word.is_empty()).any(|word| {
        let is_it = word == name && ITEMS.contains(&before);
        before = word;
        is_it
    })
}

fn split_while(text: &str, is_of: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|letter| !is_of(letter)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str]) {
        // Put together here, so that this file is not its own finding.
        let line = line.replace("DOCS", "docs/");
        let line = &line.replace("LISTED", "decisions/");
        let root = cargo_toml::root();
        let page = root.join("docs").join("design.md");
        let mut pages = Pages::new(&root);
        let mut wrong = of_line(&root, &mut pages, line);
        wrong.extend(of_page(&root, &mut pages, &page, line));
        assert_eq!(wrong, expected, "{line}");
    }

    #[test]
    fn references_are_judged() {
        check(
            "see DOCSdesign.md#rule-5, and [rule 4](#rule-4) or [here](../README.md).",
            &[],
        );
        check(
            "DOCSdesign.md#rule-9",
            &["design.md has no section #rule-9"],
        );
        check("DOCSdesigns.md.", &["there is no designs.md"]);
        check("[a](nothing.md)", &["there is no nothing.md"]);
        check(
            "[a](design.md#nothing)",
            &["design.md has no section #nothing"],
        );
        check("[a](https://example.org/nothing.md)", &[]);
        check("LISTED0041, LISTED9999", &["there is no decision 9999"]);
        check("`crdt/src/batch.rs::Batch`", &[]);
        check(
            "`crdt/src/batch.rs::Nothing`",
            &["crdt/src/batch.rs has no Nothing"],
        );
        check(
            "`crdt/src/batch.rs::Dot`",
            &["crdt/src/batch.rs has no Dot"],
        );
        check(
            "`crdt/src/nothing.rs`",
            &["there is no crdt/src/nothing.rs"],
        );
        let former = format!("({FORMER_DESIGN}, 4)");
        check(
            &former,
            &[&format!(
                "{FORMER_DESIGN} is docs/design.md now, with sections"
            )],
        );
    }

    #[test]
    fn headings_have_anchors() {
        let found = sections("# A page\n### Rule 1: a claim, and `x`\n<a id=\"here\"></a>\n");
        let expected = ["a-page", "here", "rule-1-a-claim-and-x"];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }
}
