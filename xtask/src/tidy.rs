//! Rules of the house that a machine can check: sizes of files, words that must not be in the tree, and switches that no test turns.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{cargo_toml, source, step::Findings, switches};

/// A source file above this is hard to hold in the head. It may be larger with a line `//! size: REASON` in its head.
const FILE_BYTES_MAX: usize = 30 * 1024;

/// Characters of a line of Markdown, rows of tables included. A longer one is hard to read in a diff.
const PROSE_LINE_CHARS_MAX: usize = 160;

/// Lines of a file that count as its head.
const HEAD_LINES: usize = 40;

const DIRECTORIES_LEFT_OUT: &[&str] = &[
    ".git",
    "target",
    "whimbrel-data",
    "node_modules",
    "__pycache__",
];

/// Words of code that say that something is not done.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "#[ignore"];

/// A test that the default tier leaves out says so, and why: `cargo xtask test --long` runs it.
const LONG: &str = "#[ignore = \"long: ";

/// Beginnings of paths that exist on one machine only, put together here so that this file is not its own finding.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

/// Checks the tree.
pub(crate) fn check() -> Findings {
    let mut findings = Findings {
        looked_at: 0,
        wrong: switches::check(),
    };
    for path in files(&cargo_toml::root()) {
        if !["rs", "py", "toml", "md", "sh"]
            .iter()
            .any(|kind| path.extension().is_some_and(|extension| extension == *kind))
        {
            continue;
        }
        match fs::read_to_string(&path) {
            Ok(text) => {
                findings.looked_at += 1;
                findings.wrong.extend(judge(&path, &text));
            }
            Err(error) => findings.wrong.push(format!("{}: {error}", path.display())),
        }
    }
    findings
}

/// All files below a directory, in the order of their names.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let left_out = entry
                .file_name()
                .to_str()
                .is_some_and(|name| DIRECTORIES_LEFT_OUT.contains(&name));
            if kind.is_dir() && !left_out {
                left.push(path);
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn judge(path: &Path, text: &str) -> Vec<String> {
    let shown = path
        .strip_prefix(cargo_toml::root())
        .unwrap_or(path)
        .display();
    let rust = path.extension().is_some_and(|extension| extension == "rs");
    let prose = path.extension().is_some_and(|extension| extension == "md");
    let mut wrong = Vec::new();
    let reason = text.lines().take(HEAD_LINES).any(|line| {
        line.strip_prefix("//! size:")
            .is_some_and(|why| !why.trim().is_empty())
    });
    if text.len() > FILE_BYTES_MAX && !prose && !reason {
        wrong.push(format!(
            "{shown}: {} bytes, and no `//! size: REASON` in its head",
            text.len()
        ));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        wrong.push(format!("{shown}: no line end at its end"));
    }
    let code = if rust {
        source::code(text)
    } else {
        String::new()
    };
    for (at, (line, raw)) in code.lines().zip(text.lines()).enumerate() {
        let is_unfinished = |word: &&&str| line.contains(**word) && !raw.contains(LONG);
        for word in UNFINISHED.iter().filter(is_unfinished) {
            wrong.push(format!("{shown}:{}: {word}", at + 1));
        }
    }
    for (at, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            wrong.push(format!(
                "{shown}:{}: white space at the end of the line",
                at + 1
            ));
        }
        let chars = line.chars().count();
        if prose && chars > PROSE_LINE_CHARS_MAX {
            wrong.push(format!(
                "{shown}:{}: {chars} characters, more than {PROSE_LINE_CHARS_MAX}",
                at + 1
            ));
        }
        for start in MACHINE_PATHS.iter().filter(|start| line.contains(**start)) {
            wrong.push(format!(
                "{shown}:{}: a path of one machine, {start}",
                at + 1
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        assert_eq!(judge(Path::new(name), text), expected);
    }

    #[test]
    fn files_are_judged() {
        check("a.rs", "fn a() {}\n", &[]);
        check(
            "a.rs",
            "fn a() {} \n",
            &["a.rs:1: white space at the end of the line"],
        );
        check("a.rs", "fn a() {\n    todo!()\n}\n", &["a.rs:2: todo!"]);
        check("a.rs", "// todo!\n", &[]);
        check("a.rs", "#[ignore = \"slow\"]\n", &["a.rs:1: #[ignore"]);
        check("a.rs", "#[ignore = \"long: minutes\"]\n", &[]);
        check("a.rs", "a", &["a.rs: no line end at its end"]);
        let path = format!("see {}x\n", MACHINE_PATHS[0]);
        check(
            "a.md",
            &path,
            &[&format!(
                "a.md:1: a path of one machine, {}",
                MACHINE_PATHS[0]
            )],
        );
        let large = "// a\n".repeat(FILE_BYTES_MAX / 4);
        check(
            "a.rs",
            &large,
            &[&format!(
                "a.rs: {} bytes, and no `//! size: REASON` in its head",
                large.len()
            )],
        );
        check("a.rs", &format!("//! size: a table\n{large}"), &[]);
        check("a.md", &large, &[]);
        let row = format!("|{}|\n", "ä".repeat(PROSE_LINE_CHARS_MAX - 2));
        check("a.md", &row, &[]);
        let long_row = format!("|{row}");
        check(
            "a.md",
            &long_row,
            &["a.md:1: 161 characters, more than 160"],
        );
        check("a.toml", &long_row, &[]);
    }
}
