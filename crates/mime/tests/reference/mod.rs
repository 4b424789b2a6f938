//! A naive parser: the whole message in memory, line by line, recursive. It shares no code with the crate, and knows only
//! the Content-Type fields that [`LINES`] can make.

use std::ops::Range;

/// Lines of which random messages are made.
pub(crate) const LINES: &[&str] = &[
    "",
    "",
    "",
    "text",
    "-",
    "--",
    "-A",
    " folded",
    "--A",
    "--A",
    "--A--",
    "--A \t",
    "--AB",
    "--AB--",
    "--B",
    "--B",
    "--B--",
    "--Bxy",
    "--B--xy",
    "Content-Type: multipart/mixed; boundary=A",
    "Content-Type: multipart/mixed; boundary=AB",
    "Content-Type: multipart/digest; boundary=\"B\"",
    "content-type:message/rfc822",
    "Content-Type: image/png",
    "Content-Type: text/html; charset=utf-8",
    "Subject: x",
    "From: a@b",
    "X-Odd: y",
    "\u{e9}\0\r",
];

#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct RefPart {
    pub(crate) kind: &'static str,
    pub(crate) header: Range<usize>,
    pub(crate) body: Range<usize>,
    pub(crate) children: Vec<RefPart>,
}

struct Line<'a> {
    start: usize,
    /// Without its line end.
    content: &'a [u8],
    ended: bool,
}

struct Reference<'a> {
    message: &'a [u8],
    lines: Vec<Line<'a>>,
    nesting_max: usize,
}

/// Where a part stopped: a delimiter line, whose multipart is at that place of the stack.
struct Stop {
    line: usize,
    level: usize,
    closing: bool,
}

pub(crate) fn parse(message: &[u8], nesting_max: usize) -> RefPart {
    let mut lines = Vec::new();
    let mut start = 0;
    for raw in message.split_inclusive(|&b| b == b'\n') {
        let ended = raw.ends_with(b"\n");
        let content = raw.strip_suffix(b"\n").unwrap_or(raw);
        let content = if ended {
            content.strip_suffix(b"\r").unwrap_or(content)
        } else {
            content
        };
        lines.push(Line {
            start,
            content,
            ended,
        });
        start += raw.len();
    }
    let reference = Reference {
        message,
        lines,
        nesting_max,
    };
    reference.part(0, &mut Vec::new(), "text", true).0
}

impl Reference<'_> {
    fn start_of(&self, line: usize) -> usize {
        self.lines.get(line).map_or(self.message.len(), |l| l.start)
    }

    /// Where what is before a delimiter line ends: before the line end.
    fn end_before(&self, line: usize) -> usize {
        let before = &self.lines[line - 1];
        before.start + before.content.len()
    }

    fn delimiter(&self, line: usize, stack: &[Option<&str>]) -> Option<Stop> {
        let content = String::from_utf8_lossy(self.lines.get(line)?.content).into_owned();
        let text = content
            .strip_prefix("--")?
            .trim_end_matches([' ', '\t', '\r']);
        let open = || {
            stack
                .iter()
                .enumerate()
                .rev()
                .filter_map(|(level, b)| b.map(|b| (level, b)))
        };
        let exact = open().find(|(_, b)| text == *b || text == format!("{b}--"));
        let longest = open()
            .map(|(_, b)| b.len())
            .filter(|&len| open().any(|(_, b)| b.len() == len && text.starts_with(b)))
            .max();
        let (level, boundary) = exact
            .or_else(|| open().find(|(_, b)| Some(b.len()) == longest && text.starts_with(b)))?;
        Some(Stop {
            line,
            level,
            closing: text[boundary.len()..].starts_with("--"),
        })
    }

    fn part(
        &self,
        first: usize,
        stack: &mut Vec<Option<&'static str>>,
        default: &'static str,
        message: bool,
    ) -> (RefPart, Option<Stop>) {
        let start = self.start_of(first);
        let mut kind = None;
        let mut line = first;
        let mut stop = None;
        let header_end = loop {
            if line >= self.lines.len() {
                break self.message.len();
            }
            let content = self.lines[line].content;
            if content.is_empty() && self.lines[line].ended {
                line += 1;
                break self.start_of(line);
            }
            stop = self.delimiter(line, stack);
            if stop.is_some() {
                break if message {
                    self.start_of(line)
                } else {
                    self.end_before(line).max(start)
                };
            }
            kind = kind.or(
                match String::from_utf8_lossy(content).trim_end_matches('\r') {
                    "Content-Type: multipart/mixed; boundary=A" => Some(("multipart", "A")),
                    "Content-Type: multipart/mixed; boundary=AB" => Some(("multipart", "AB")),
                    "Content-Type: multipart/digest; boundary=\"B\"" => Some(("digest", "B")),
                    "content-type:message/rfc822" => Some(("message", "")),
                    "Content-Type: image/png" => Some(("image", "")),
                    "Content-Type: text/html; charset=utf-8" => Some(("text", "")),
                    _ => None,
                },
            );
            line += 1;
        };
        let (kind, boundary) = kind.unwrap_or((default, ""));
        let over = stop.is_some()
            || header_end == self.message.len()
                && !self.message[start..].ends_with(b"\n\n")
                && !(self
                    .lines
                    .get(line.wrapping_sub(1))
                    .is_some_and(|l| l.content.is_empty() && l.ended)
                    && line > first);
        let mut children = Vec::new();
        let deep = stack.len() + 1 >= self.nesting_max;
        match kind {
            "multipart" | "digest" => {
                stack.push((!deep).then_some(boundary));
                let level = stack.len() - 1;
                while stop.is_none() && line < self.lines.len() {
                    match self.delimiter(line, stack) {
                        None => line += 1,
                        Some(found) if found.level < level => stop = Some(found),
                        Some(found) if found.closing || !self.lines[line].ended => {
                            stack[level] = None;
                            line += 1;
                        }
                        Some(_) => {
                            // Parts, until one is not ended by a delimiter of this multipart.
                            let default = if kind == "digest" { "message" } else { "text" };
                            line += 1;
                            loop {
                                let (child, ended) = self.part(line, stack, default, false);
                                children.push(child);
                                match ended {
                                    None => line = self.lines.len(),
                                    Some(ended) if ended.level < level => stop = Some(ended),
                                    Some(ended)
                                        if ended.closing || !self.lines[ended.line].ended =>
                                    {
                                        stack[level] = None;
                                        line = ended.line + 1;
                                    }
                                    Some(ended) => {
                                        line = ended.line + 1;
                                        continue;
                                    }
                                }
                                break;
                            }
                        }
                    }
                }
                stack.pop();
            }
            "message" if !deep && !over => {
                stack.push(None);
                let (child, ended) = self.part(line, stack, "text", true);
                stack.pop();
                children.push(child);
                stop = ended;
            }
            _ => {
                stack.push(None);
                while stop.is_none() && line < self.lines.len() {
                    stop = self.delimiter(line, stack);
                    line += 1;
                }
                stack.pop();
            }
        }
        let end = stop
            .as_ref()
            .map_or(self.message.len(), |stop| self.end_before(stop.line));
        let end = end
            .max(header_end)
            .max(children.last().map_or(0, |child: &RefPart| child.body.end));
        if children.is_empty() && matches!(kind, "multipart" | "digest" | "message") {
            // The placeholder: of a multipart all of its text, so that it is shown.
            let shown = if kind == "message" { header_end } else { end };
            children.push(RefPart {
                kind: "text",
                header: header_end..header_end,
                body: header_end..shown,
                children: vec![],
            });
        }
        (
            RefPart {
                kind,
                header: start..header_end,
                body: header_end..end,
                children,
            },
            stop,
        )
    }
}
