//! Where we and Dovecot say different things, and why ours is right.
//!
//! Values are as [`super::view`] shows them. Many are broken mail, where no RFC says what is right: there the reason says what speaks for ours.

/// One difference.
pub(crate) struct Explained {
    /// The message.
    pub(crate) message: &'static str,
    /// The item; with an asterisk at its end all items that begin so.
    pub(crate) item: &'static str,
    /// What we say; not looked at when the item has an asterisk.
    pub(crate) ours: &'static str,
    /// What Dovecot says.
    pub(crate) theirs: &'static str,
    /// Why ours is right.
    pub(crate) why: &'static str,
}

const ADDRESS_LIST: &str =
    "RFC 5322, 4.4: an obs-addr-list may have empty elements, which are no addresses";
const GENEROUS: &str = "no address by the grammar; what can be read of it is of more use to a reader than a word that says so";
const GROUP: &str = "RFC 5322, 3.4: groups do not nest; the addresses of the inner one, and those behind it, are not lost";
const SPACES: &str = "RFC 5322, 4.4: obs-local-part and obs-domain allow white space around dots";
const PIECES: &str = "RFC 2231, 3 has no numbers with zeros before them, and numbers begin at *0: both readings are guesses";
const DISPOSITION: &str = "RFC 2183, 2: a disposition begins with a type, a token; a field without one says nothing, and an empty type is no answer";
const FIRST: &str =
    "RFC 2183 has one such field; of several the first counts, as it does with Content-Type";
const ENCODING: &str = "RFC 2045, 6.1: the mechanism is one token, and it is there; what stands behind it is not grounds to deny 8-bit text";
const DESCRIPTION: &str = "RFC 5322, 2.2.3: white space of folding around a value is none of it";
const LANGUAGE: &str =
    "RFC 3282, 2: a list of tags; empty elements take nothing from those that are there";
const UNQUOTED: &str =
    "RFC 2045, 5.1: such a value must be quoted; a part of it is surely not what was meant";
const QUOTE: &str = "the string has no end, so it reaches to the end of the field";
const TYPE: &str = r#"RFC 2045, 5.2: text/plain in US-ASCII is to be assumed "when a syntactically invalid Content-Type header field is encountered"; a type without a name is none"#;
const PARAMETERS: &str = "the type is whole, and what stands behind it can be nothing but a parameter whose semicolon was forgotten";
const FOLDED: &str = "RFC 5322, 2.2.3: unfolding removes CRLF before white space, and nothing else; and nothing stays before the value";
const ALTERED: &str = "a message is given back octet for octet (decision 0012); Dovecot changes line ends when it stores";
const NUL: &str = "RFC 9051, 9 (3): no literal holds NUL, so it is refused at APPEND (decision 0012); Dovecot puts another octet there";
const LONG: &str =
    "bounded: texts of a summary are cut (mime::Limits); BODY[HEADER] has the whole field";
const DEEP: &str =
    "bounded: beyond 50 levels parts are not looked into (mime::Limits::nesting_max)";
const SPACE_AT_END: &str = r#"RFC 2046, 5.1.1: a boundary does not end with white space, so it is compared without; "--a --" is a delimiter with something behind it"#;
const CUT_BOUNDARY: &str = "the boundary is all of the value, as the sender meant it; Dovecot ends it at the equals sign, takes the last line for another delimiter and has an empty part more";
const DEFAULT: &str = "RFC 2045, 5.2: what is invalid is text/plain; the default of a digest (RFC 2046, 5.1.5) is for parts without the field";
const BLANK: &str = "RFC 9051, 6.4.5.1: the blank line between header and body is a part of the header; the line end before a delimiter cannot be both";
const LINES: &str = "a message is lines (RFC 5322, 2.1), and both servers count that line end in the size of the part; Dovecot leaves it out here";
const NO_BOUNDARY: &str = "RFC 2046, 5.1.1: a boundary has 1 to 70 characters; without one there are no parts, and the text is shown (decision 0060)";
const NO_PART: &str =
    "nothing is hidden: where no part is found its place shows the text (decision 0060)";
const BASE64: &str =
    "the text in base64 is no header: it is decoded and looked into (decision 0060)";
const WHITE: &str = "a CR alone is white space to both; Dovecot folds two into one";

const fn row(
    why: &'static str,
    message: &'static str,
    item: &'static str,
    ours: &'static str,
    theirs: &'static str,
) -> Explained {
    Explained {
        message,
        item,
        ours,
        theirs,
        why,
    }
}

/// All that is known: reason, message, item, ours, theirs.
#[rustfmt::skip]
pub(crate) const EXPLAINED: &[Explained] = &[
    row(ADDRESS_LIST, "address: From with a comma alone", "ENVELOPE from", "NIL", r#"((NIL NIL "MISSING_MAILBOX" "MISSING_DOMAIN"))"#),
    row(ADDRESS_LIST, "address: From with a comma alone", "ENVELOPE to", "NIL", r#"((NIL NIL "MISSING_MAILBOX" "MISSING_DOMAIN"))"#),
    row(ADDRESS_LIST, "address: commas too many", "ENVELOPE to", r#"((NIL NIL "bob" "example.org") (NIL NIL "carl" "example.net"))"#, r#"((NIL NIL "MISSING_MAILBOX" "MISSING_DOMAIN") (NIL NIL "bob" "example.org") (NIL NIL "MISSING_MAILBOX" "MISSING_DOMAIN") (NIL NIL "MISSING_MAILBOX" "MISSING_DOMAIN") (NIL NIL "carl" "example.net"))"#),
    row(GENEROUS, "address: angle without end", "ENVELOPE from", r#"(("Anne" NIL "anne" "example.org"))"#, r#"(("Anne" NIL "anne" "SYNTAX_ERROR"))"#),
    row(GENEROUS, "address: angle without end", "ENVELOPE to", r#"(("Bob" NIL "bob" "example.org") (NIL NIL "carl" "example.net"))"#, r#"(("Bob" NIL "bob" "SYNTAX_ERROR") (NIL NIL "carl" "example.net"))"#),
    row(GENEROUS, "address: backslashes", "ENVELOPE from", r#"(("An\\ne" NIL "an\\ne" "example.org"))"#, r#"((NIL NIL "An" "MISSING_DOMAIN"))"#),
    row(GENEROUS, "address: comment without end", "ENVELOPE from", r#"(("Anne" NIL "anne" "example.org"))"#, r#"((NIL NIL "anne" "MISSING_DOMAIN"))"#),
    row(GENEROUS, "address: control characters", "ENVELOPE from", r#"(("An\x01ne" NIL "an\x7fne" "example.org"))"#, r#"((NIL NIL "An" "MISSING_DOMAIN"))"#),
    row(GENEROUS, "address: dots at the ends", "ENVELOPE to", r#"((NIL NIL "bob" "example.org."))"#, r#"((NIL NIL "bob" "MISSING_DOMAIN"))"#),
    row(GENEROUS, "address: no domain in an angle", "ENVELOPE cc", r#"(("Root" NIL "MISSING_MAILBOX" "example.org"))"#, r#"(("Root" "INVALID_ROUTE" "MISSING_MAILBOX" "MISSING_DOMAIN"))"#),
    row(GENEROUS, "address: no domain in an angle", "ENVELOPE to", r#"(("Root" NIL "root" "MISSING_DOMAIN"))"#, r#"(("Root" NIL "root" "SYNTAX_ERROR"))"#),
    row(GENEROUS, "address: quoted string without end", "ENVELOPE from", r#"((NIL NIL "Anne <anne@example.org>" "MISSING_DOMAIN"))"#, r#"((NIL NIL "MISSING_MAILBOX" "MISSING_DOMAIN"))"#),
    row(GENEROUS, "address: semicolons between addresses", "ENVELOPE to", r#"((NIL NIL "bob" "example.org") (NIL NIL "carl" "example.net") (NIL NIL "dora" "example.net"))"#, r#"((NIL NIL "bob" "example.org"))"#),
    row(GENEROUS, "address: words before an address", "ENVELOPE from", r#"(("Anne Example" NIL "anne" "example.org"))"#, r#"(("Anne Example anne" NIL "MISSING_MAILBOX" "MISSING_DOMAIN"))"#),
    row(GROUP, "address: group in a group", "ENVELOPE to", r#"((NIL NIL "Friends" NIL) (NIL NIL "bob" "example.org") (NIL NIL "carl" "example.net") (NIL NIL NIL NIL) (NIL NIL "dora" "example.net"))"#, r#"((NIL NIL "Friends" NIL) (NIL NIL "bob" "example.org") (NIL NIL "Others" "MISSING_DOMAIN") (NIL NIL NIL NIL))"#),
    row(SPACES, "address: spaces within", "ENVELOPE from", r#"((NIL NIL "anne.example" "example.org"))"#, r#"(("anne. example" NIL "MISSING_MAILBOX" "MISSING_DOMAIN"))"#),
    row(PIECES, "content: 2231 with odd numbers", "BODYSTRUCTURE params", r#"*0="d" m*x="c" n*="e" n="ab""#, r#"="d" m*x="c" n*0*="e" n*0="a" n*1="b""#),
    row(DISPOSITION, "content: disposition in quotes", "BODYSTRUCTURE disposition", "NIL", r#" filename="a""#),
    row(DISPOSITION, "content: disposition without type", "BODYSTRUCTURE disposition", "NIL", r#" filename="a""#),
    row(DISPOSITION, "content: disposition, empty", "BODYSTRUCTURE disposition", "NIL", " NIL"),
    row(FIRST, "content: two dispositions", "BODYSTRUCTURE disposition", "inline NIL", r#"attachment filename="a""#),
    row(ENCODING, "content: encoding with more behind it", "BODYSTRUCTURE encoding", "8bit", "7bit"),
    row(DESCRIPTION, "content: id and description, empty", "BODYSTRUCTURE description", r#""""#, r#"" ""#),
    row(LANGUAGE, "content: language with commas too many", "BODYSTRUCTURE language", "en de", "NIL"),
    row(UNQUOTED, "content: parameter with characters of a boundary", "BODYSTRUCTURE params", r#"name="a/b?c=d@e""#, r#"name="a""#),
    row(QUOTE, "content: parameter without an end quote", "BODYSTRUCTURE params", r#"charset="us-ascii" name="abc; charset=utf-8""#, r#"charset="us-ascii""#),
    row(TYPE, "content: type in quotes", "BODYSTRUCTURE lines", "1", "nothing"),
    row(TYPE, "content: type in quotes", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "content: type in quotes", "BODYSTRUCTURE type", "text/plain", "/"),
    row(TYPE, "content: type of slashes", "BODYSTRUCTURE lines", "1", "nothing"),
    row(TYPE, "content: type of slashes", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "content: type of slashes", "BODYSTRUCTURE type", "text/plain", "/"),
    row(TYPE, "content: type of two slashes", "BODYSTRUCTURE lines", "1", "nothing"),
    row(TYPE, "content: type of two slashes", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "content: type of two slashes", "BODYSTRUCTURE type", "text/plain", "/"),
    row(TYPE, "content: type that is empty", "BODYSTRUCTURE lines", "1", "nothing"),
    row(TYPE, "content: type that is empty", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "content: type that is empty", "BODYSTRUCTURE type", "text/plain", "/"),
    row(TYPE, "content: type with a slash alone", "BODYSTRUCTURE lines", "1", "nothing"),
    row(TYPE, "content: type with a slash alone", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "content: type with a slash alone", "BODYSTRUCTURE type", "text/plain", "/"),
    row(TYPE, "content: type without subtype", "BODYSTRUCTURE type", "text/plain", "text/"),
    row(TYPE, "content: type without subtype, with parameters", "BODYSTRUCTURE lines", "1", "nothing"),
    row(TYPE, "content: type without subtype, with parameters", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "content: type without subtype, with parameters", "BODYSTRUCTURE type", "text/plain", "/"),
    row(TYPE, "multipart: multipart without subtype", "BODYSTRUCTURE lines", "4", "nothing"),
    row(TYPE, "multipart: multipart without subtype", "BODYSTRUCTURE params", r#"charset="us-ascii""#, "NIL"),
    row(TYPE, "multipart: multipart without subtype", "BODYSTRUCTURE type", "text/plain", "/"),
    row(PARAMETERS, "content: parameters without semicolon", "BODYSTRUCTURE lines", "1", "nothing"),
    row(PARAMETERS, "content: parameters without semicolon", "BODYSTRUCTURE params", r#"charset="utf-8""#, "NIL"),
    row(PARAMETERS, "content: parameters without semicolon", "BODYSTRUCTURE type", "text/plain", "/"),
    row(FOLDED, "field: Message-ID, folded", "ENVELOPE message-id", r#""<one@example.org>""#, r#"" <one@example.org>""#),
    row(FOLDED, "field: folded subject", "ENVELOPE subject", r#""one two\tthree    four""#, r#""one two three four""#),
    row(FOLDED, "field: folded with white space alone", "ENVELOPE subject", r#""a  b""#, r#""a b""#),
    row(ALTERED, "line: CR alone in the body", "BODYSTRUCTURE size", "17", "16"),
    row(ALTERED, "line: CR alone in the body", "BODY[1]", r#""one\rtwo\r\nthree\r\r\n""#, r#""one\rtwo\r\nthree\r\n""#),
    row(ALTERED, "line: CR alone in the body", "BODY[TEXT]", r#""one\rtwo\r\nthree\r\r\n""#, r#""one\rtwo\r\nthree\r\n""#),
    row(ALTERED, "line: CR alone in the body", "BODY[]", r#""Subject: s\r\n\r\none\rtwo\r\nthree\r\r\n""#, r#""Subject: s\r\n\r\none\rtwo\r\nthree\r\n""#),
    row(ALTERED, "line: CR alone in the body", "RFC822.SIZE", "31", "30"),
    row(ALTERED, "line: CR for line ends", "BODY[1.MIME]", r#""Subject: s\rFrom: anne@example.org\r\rone\r""#, r#""Subject: s\rFrom: anne@example.org\r\rone""#),
    row(ALTERED, "line: CR for line ends", "BODY[HEADER]", r#""Subject: s\rFrom: anne@example.org\r\rone\r""#, r#""Subject: s\rFrom: anne@example.org\r\rone""#),
    row(ALTERED, "line: CR for line ends", "BODY[]", r#""Subject: s\rFrom: anne@example.org\r\rone\r""#, r#""Subject: s\rFrom: anne@example.org\r\rone""#),
    row(ALTERED, "line: CR for line ends", "RFC822.SIZE", "39", "38"),
    row(ALTERED, "line: LF alone", "BODYSTRUCTURE size", "8", "10"),
    row(ALTERED, "line: LF alone", "BODY[1.MIME]", r#""Subject: s\nFrom: anne@example.org\n\n""#, r#""Subject: s\r\nFrom: anne@example.org\r\n\r\n""#),
    row(ALTERED, "line: LF alone", "BODY[1]", r#""one\ntwo\n""#, r#""one\r\ntwo\r\n""#),
    row(ALTERED, "line: LF alone", "BODY[HEADER]", r#""Subject: s\nFrom: anne@example.org\n\n""#, r#""Subject: s\r\nFrom: anne@example.org\r\n\r\n""#),
    row(ALTERED, "line: LF alone", "BODY[TEXT]", r#""one\ntwo\n""#, r#""one\r\ntwo\r\n""#),
    row(ALTERED, "line: LF alone", "BODY[]", r#""Subject: s\nFrom: anne@example.org\n\none\ntwo\n""#, r#""Subject: s\r\nFrom: anne@example.org\r\n\r\none\r\ntwo\r\n""#),
    row(ALTERED, "line: LF alone", "RFC822.SIZE", "43", "48"),
    row(ALTERED, "line: LF between multipart and header", "BODY[HEADER]", r#""Content-Type: multipart/mixed; boundary=a\r\n\n""#, r#""Content-Type: multipart/mixed; boundary=a\r\n\r\n""#),
    row(ALTERED, "line: LF between multipart and header", "BODY[]", r#""Content-Type: multipart/mixed; boundary=a\r\n\n--a\r\n\r\none\r\n--a--\r\n""#, r#""Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n\r\none\r\n--a--\r\n""#),
    row(ALTERED, "line: LF between multipart and header", "RFC822.SIZE", "63", "64"),
    row(ALTERED, "line: LF in a multipart", "BODY[1.MIME]", r#""\n""#, r#""\r\n""#),
    row(ALTERED, "line: LF in a multipart", "BODY[HEADER]", r#""Content-Type: multipart/mixed; boundary=a\n\n""#, r#""Content-Type: multipart/mixed; boundary=a\r\n\r\n""#),
    row(ALTERED, "line: LF in a multipart", "BODY[TEXT]", r#""--a\n\none\n--a--\n""#, r#""--a\r\n\r\none\r\n--a--\r\n""#),
    row(ALTERED, "line: LF in a multipart", "BODY[]", r#""Content-Type: multipart/mixed; boundary=a\n\n--a\n\none\n--a--\n""#, r#""Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n\r\none\r\n--a--\r\n""#),
    row(ALTERED, "line: LF in a multipart", "RFC822.SIZE", "58", "64"),
    row(ALTERED, "line: LF in the body", "BODYSTRUCTURE size", "15", "17"),
    row(ALTERED, "line: LF in the body", "BODY[1]", r#""one\ntwo\r\nthree\n""#, r#""one\r\ntwo\r\nthree\r\n""#),
    row(ALTERED, "line: LF in the body", "BODY[TEXT]", r#""one\ntwo\r\nthree\n""#, r#""one\r\ntwo\r\nthree\r\n""#),
    row(ALTERED, "line: LF in the body", "BODY[]", r#""Subject: s\r\n\r\none\ntwo\r\nthree\n""#, r#""Subject: s\r\n\r\none\r\ntwo\r\nthree\r\n""#),
    row(ALTERED, "line: LF in the body", "RFC822.SIZE", "29", "31"),
    row(NUL, "line: NUL in a field", "APPEND", "refused", "taken"),
    row(NUL, "line: NUL in the body", "APPEND", "refused", "taken"),
    row(LONG, "made: long field", "ENVELOPE subject*", "", ""),
    row(DEEP, "made: messages 60 deep", "BODYSTRUCTURE 1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1*", "", ""),
    row(DEEP, "made: messages 60 deep", "BODY[1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1*", "", ""),
    row(DEEP, "made: multiparts 60 deep", "BODYSTRUCTURE 1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1*", "", ""),
    row(DEEP, "made: multiparts 60 deep", "BODY[1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1*", "", ""),
    row(SPACE_AT_END, "multipart: boundary with a space at its end", "BODYSTRUCTURE 2 *", "", ""),
    row(SPACE_AT_END, "multipart: boundary with a space at its end", "BODYSTRUCTURE parts", "2", "1"),
    row(SPACE_AT_END, "multipart: boundary with a space at its end", "BODY[2*", "", ""),
    row(CUT_BOUNDARY, "multipart: boundary without quotes, odd characters", "BODYSTRUCTURE 2 *", "", ""),
    row(CUT_BOUNDARY, "multipart: boundary without quotes, odd characters", "BODYSTRUCTURE params", r#"boundary="a=_b:c/d?e""#, r#"boundary="a""#),
    row(CUT_BOUNDARY, "multipart: boundary without quotes, odd characters", "BODYSTRUCTURE parts", "1", "2"),
    row(CUT_BOUNDARY, "multipart: boundary without quotes, odd characters", "BODY[2*", "", ""),
    row(DEFAULT, "multipart: digest with odd parts", "BODYSTRUCTURE 3 lines", "2", "nothing"),
    row(DEFAULT, "multipart: digest with odd parts", "BODYSTRUCTURE 3 params", r#"charset="us-ascii""#, "NIL"),
    row(DEFAULT, "multipart: digest with odd parts", "BODYSTRUCTURE 3 type", "text/plain", "broken/"),
    row(BLANK, "multipart: digest with odd parts", "BODY[1.MIME]", r#""\r\n""#, r#""""#),
    row(BLANK, "multipart: empty parts", "BODY[1.MIME]", r#""\r\n""#, r#""""#),
    row(BLANK, "multipart: message that is empty in a multipart", "BODY[1.MIME]", r#""Content-Type: message/rfc822\r\n\r\n""#, r#""Content-Type: message/rfc822\r\n""#),
    row(BLANK, "multipart: part with a header alone", "BODY[1.MIME]", r#""Content-Type: text/html\r\n\r\n""#, r#""Content-Type: text/html\r\n""#),
    row(LINES, "multipart: digest with odd parts", "BODY[2.1.MIME]", r#""not a header\r\n""#, r#""not a header""#),
    row(LINES, "multipart: digest with odd parts", "BODY[2.HEADER]", r#""not a header\r\n""#, r#""not a header""#),
    row(LINES, "multipart: message cut by a boundary in its header", "BODY[1.1.MIME]", r#""Subject: inner\r\nFrom: anne@example.org\r\n""#, r#""Subject: inner\r\nFrom: anne@example.org""#),
    row(LINES, "multipart: message cut by a boundary in its header", "BODY[1.HEADER]", r#""Subject: inner\r\nFrom: anne@example.org\r\n""#, r#""Subject: inner\r\nFrom: anne@example.org""#),
    row(NO_PART, "multipart: boundary in the header", "BODYSTRUCTURE 1 *", "", ""),
    row(NO_PART, "multipart: boundary in the header", "BODY[1]", r#""one\r\n--a--\r\n""#, r#""""#),
    row(NO_BOUNDARY, "multipart: empty boundary", "BODY*", "", ""),
    row(BASE64, "multipart: message in base64", "BODYSTRUCTURE 1.1 *", "", ""),
    row(BASE64, "multipart: message in base64", "BODYSTRUCTURE envelope subject", r#""x""#, "NIL"),
    row(BASE64, "multipart: message in base64", "BODY[1*", "", ""),
    row(NO_BOUNDARY, "multipart: no boundary", "BODY*", "", ""),
    row(NO_PART, "multipart: no part", "BODYSTRUCTURE 1 *", "", ""),
    row(NO_PART, "multipart: no part", "BODY[1]", r#""nothing here\r\n""#, r#""""#),
    row(NO_PART, "multipart: no part, but an end", "BODYSTRUCTURE 1 *", "", ""),
    row(NO_PART, "multipart: no part, but an end", "BODY[1]", r#""--a--\r\n""#, r#""""#),
    row(WHITE, "line: CR for line ends", "ENVELOPE subject", r#""s From: anne@example.org  one""#, r#""s From: anne@example.org one""#),
];
