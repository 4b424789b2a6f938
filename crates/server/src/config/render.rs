//! The schema as people read it: the commented example and `docs/config.md`.

use super::schema::{Key, SECTIONS, Section};

/// Columns of the example, `# ` included.
const WIDTH: usize = 100;

fn sentences(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

fn wrap(text: &str, out: &mut String) {
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column == 0 || column + 1 + width > WIDTH {
            if column > 0 {
                out.push('\n');
            }
            out.push('#');
            column = 1;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + width;
    }
    out.push('\n');
}

fn range(key: &Key) -> String {
    key.range
        .map_or_else(String::new, |(least, most)| format!("{least} to {most}"))
}

/// `whimbrel.toml` with every key commented out, at its default.
pub fn example() -> String {
    let mut out = String::from(
        "# Configuration of Whimbrel. Every key is shown with its default; take the # away to change it.\n",
    );
    for section in SECTIONS {
        out.push('\n');
        wrap(&sentences(section.doc), &mut out);
        out.push_str(&format!("[{}]\n", section.name));
        for key in section.keys {
            out.push('\n');
            let mut text = sentences(key.doc);
            if key.range.is_some() {
                text.push_str(&format!(" ({}.)", range(key)));
            }
            wrap(&text, &mut out);
            out.push_str(&format!("#{} = {}\n", key.name, key.default));
        }
    }
    out
}

fn documentation_of(section: &Section, out: &mut String) {
    out.push_str(&format!(
        "\n## [{}]\n\n{}\n\n",
        section.name,
        sentences(section.doc)
    ));
    out.push_str("| key | default | range | meaning |\n|---|---|---|---|\n");
    for key in section.keys {
        let range = if key.range.is_some() {
            range(key)
        } else {
            key.kind.to_owned()
        };
        out.push_str(&format!(
            "| `{}` | `{}` | {} | {} |\n",
            key.name,
            key.default,
            range.replace('|', "\\|"),
            sentences(key.doc).replace('|', "\\|")
        ));
    }
}

/// `docs/config.md`.
pub fn documentation() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         One TOML file, given by `--config FILE`. Every key has a default, so an empty file, or none, is a configuration: it keeps \
         its data in `./whimbrel-data` and listens on 127.0.0.1 only. `whimbrel config` prints an example with every key.\n\n\
         An unknown key is refused, with its line and a suggestion. Durations are written `\"250ms\"`, `\"30s\"`, `\"5m\"`, `\"1h\"`, \
         `\"2d\"`; sizes `\"512B\"`, `\"16KiB\"`, `\"64MiB\"`, `\"2GiB\"`; addresses `\"127.0.0.1:143\"`, `\"[::]:143\"`. Relative \
         paths in a file are relative to its directory.\n\n\
         This page is made from the source (`whimbrel config --markdown`); a test keeps the two together.\n",
    );
    for section in SECTIONS {
        documentation_of(section, &mut out);
    }
    out
}
