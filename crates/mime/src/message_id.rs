//! Message ids in Message-ID, In-Reply-To and References (RFC 5322, 3.6.4), normalized as THREAD wants them.

use crate::parser::text::{is_wsp, skip_comment};

/// The valid message ids of a raw field value, in order.
///
/// "Implementations of the REFERENCES threading algorithm MUST normalize any msg-id in order to avoid false non-matches due to differences
/// in quoting" (RFC 5256, 3): quotes, the backslashes in them, folds, white space and comments are left out. What has no `@` with something on
/// both sides is no message id. Work is linear in the value: what does not end is given up together with all behind it.
///
/// ```
/// let ids = whimbrel_mime::message_id::Ids::new(b"<\"a b\"@c> (x <y@z>) junk <d@ e>");
/// let ids: Vec<Vec<u8>> = ids.collect();
/// assert_eq!(ids, [b"a b@c".to_vec(), b"d@e".to_vec()]);
/// ```
#[derive(Clone, Debug)]
pub struct Ids<'a> {
    raw: &'a [u8],
    at: usize,
}

impl<'a> Ids<'a> {
    /// Of this value.
    pub fn new(raw: &'a [u8]) -> Ids<'a> {
        Ids { raw, at: 0 }
    }

    /// Reads what stands behind a `<`; `None` if it is no message id.
    fn id(&mut self) -> Option<Vec<u8>> {
        let mut id = Vec::new();
        // Where the `@` outside of quotes stands.
        let mut host = None;
        while let Some(&byte) = self.raw.get(self.at) {
            match byte {
                b'>' => {
                    self.at += 1;
                    let host: usize = host?;
                    return (host > 1 && id.len() > host).then_some(id);
                }
                // What was open is no id; another one begins here.
                b'<' => return None,
                b'"' => self.quoted(&mut id),
                b'(' => self.at = skip_comment(self.raw, self.at),
                b'\r' | b'\n' | 0 => self.at += 1,
                _ if is_wsp(byte) => self.at += 1,
                _ => {
                    self.at += 1;
                    id.push(byte);
                    if byte == b'@' {
                        host = Some(id.len());
                    }
                }
            }
        }
        None
    }

    fn quoted(&mut self, id: &mut Vec<u8>) {
        self.at += 1;
        while let Some(&byte) = self.raw.get(self.at) {
            self.at += 1;
            match byte {
                b'"' => return,
                b'\\' => {
                    if let Some(&escaped) = self.raw.get(self.at) {
                        id.push(escaped);
                        self.at += 1;
                    }
                }
                b'\r' | b'\n' => {}
                _ => id.push(byte),
            }
        }
    }
}

impl Iterator for Ids<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        while let Some(&byte) = self.raw.get(self.at) {
            match byte {
                b'(' => self.at = skip_comment(self.raw, self.at),
                b'<' => {
                    self.at += 1;
                    if let Some(id) = self.id() {
                        return Some(id);
                    }
                }
                _ => {
                    let rest = &self.raw[self.at..];
                    self.at += memchr::memchr2(b'<', b'(', rest).unwrap_or(rest.len());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: &[&str]) {
        let found: Vec<String> = Ids::new(raw.as_bytes())
            .map(|id| String::from_utf8(id).unwrap())
            .collect();
        assert_eq!(found, expected, "{raw:?}");
    }

    #[test]
    fn ids() {
        check("<a@b>", &["a@b"]);
        check(" <a@b>\r\n\t<c@d> <e@f>\r\n", &["a@b", "c@d", "e@f"]);
        check("<a@b><c@d>", &["a@b", "c@d"]);
        check("<a@b>,<c@d>", &["a@b", "c@d"]);
        check("Your message of Monday <a@b> \"x\"", &["a@b"]);
        // RFC 5256: these two are the same.
        check(
            "<\"01KF8JCEOCBS0045PS\"@xxx.yyy.com>",
            &["01KF8JCEOCBS0045PS@xxx.yyy.com"],
        );
        check(
            "<01KF8JCEOCBS0045PS@xxx.yyy.com>",
            &["01KF8JCEOCBS0045PS@xxx.yyy.com"],
        );
        check("<\"a\\\"b>\"@c>", &["a\"b>@c"]);
        check("<a @ b (c) >", &["a@b"]);
        check("<a@\r\n b>", &["a@b"]);
        check("<A@b>", &["A@b"]);
        check("<a@[1.2.3.4]>", &["a@[1.2.3.4]"]);
    }

    #[test]
    fn no_ids() {
        check("", &[]);
        check("a@b", &[]);
        check("<a>", &[]);
        check("<@b>", &[]);
        check("<a@>", &[]);
        check("<\"a@b\">", &[]);
        check("(<a@b>)", &[]);
        check("<a@b", &[]);
        check("<a@b <c@d>", &["c@d"]);
        check("<\"a@b> <c@d>", &[]);
        check("(<a@b> <c@d>", &[]);
        check("<>", &[]);
    }

    #[test]
    fn hostile_values() {
        let many = 100_000;
        check(&"<".repeat(many), &[]);
        check(&"<\"".repeat(many), &[]);
        check(&"<(".repeat(many), &[]);
        assert_eq!(Ids::new("<a@b>".repeat(many).as_bytes()).count(), many);
    }
}
