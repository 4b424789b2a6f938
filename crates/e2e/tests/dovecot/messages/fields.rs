//! Header fields of the envelope but addresses, and headers that are none.

/// Names, and messages with line ends of LF, which become CRLF.
pub(super) const FIELDS: &[(&str, &[u8])] = &[
    ("nothing but an empty line", b"\n"),
    ("no field at all", b"\nbody\n"),
    ("no empty line", b"Subject: s\nFrom: anne@example.org\n"),
    ("text alone", b"This is not a header\nnor is this.\n"),
    (
        "line without colon",
        b"Subject: s\nno colon here\nFrom: anne@example.org\n\nx\n",
    ),
    (
        "line without colon first",
        b"no colon here\nSubject: s\n\nx\n",
    ),
    ("colon alone", b": nothing\nSubject: s\n\nx\n"),
    (
        "mbox line",
        b"From anne@example.org Mon Nov  2 10:00:00 2026\nSubject: s\n\nx\n",
    ),
    ("continuation first", b" continued\nSubject: s\n\nx\n"),
    (
        "space before the colon",
        b"Subject : s\nFrom\t: anne@example.org\nContent-Type : text/html\n\nx\n",
    ),
    (
        "no space behind the colon",
        b"Subject:s\nFrom:anne@example.org\nContent-Type:text/html\n\nx\n",
    ),
    (
        "tab behind the colon",
        b"Subject:\ts\nDate:\tMon, 2 Nov 2026 10:00:00 +0000\n\nx\n",
    ),
    (
        "line of white space",
        b"Subject: s\n \nFrom: anne@example.org\n\nx\n",
    ),
    ("folded with white space alone", b"Subject: a\n \n b\n\nx\n"),
    (
        "space in a name",
        b"Sub ject: s\nFrom: anne@example.org\n\nx\n",
    ),
    (
        "Latin-1 in a field name",
        b"Subj\xe9ct: s\nSubject: t\n\nx\n",
    ),
    (
        "folded subject",
        b"Subject: one\n two\n\tthree\n    four\n\nx\n",
    ),
    ("folded at once, subject", b"Subject:\n one\n\nx\n"),
    ("empty subject", b"Subject:\nFrom: anne@example.org\n\nx\n"),
    ("subject of white space", b"Subject:    \t  \n\nx\n"),
    ("white space around a subject", b"Subject:   one  \t\n\nx\n"),
    ("two subjects", b"Subject: one\nSubject: two\n\nx\n"),
    (
        "quotes and backslashes",
        b"Subject: \"one\" \\ 'two' \\\"\n\nx\n",
    ),
    ("Latin-1 subject", b"Subject: Gr\xfc\xdfe\n\nx\n"),
    (
        "UTF-8 subject",
        b"Subject: Gr\xc3\xbc\xc3\x9fe \xe2\x82\xac\n\nx\n",
    ),
    ("broken UTF-8 subject", b"Subject: Gr\xc3 \xbc\xff\n\nx\n"),
    (
        "encoded subject",
        b"Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\n =?utf-8?b?4oKs?=\n\nx\n",
    ),
    (
        "encoded word without end",
        b"Subject: =?utf-8?Q?Gr=C3=BC\n\nx\n",
    ),
    (
        "encoded word of an unknown charset",
        b"Subject: =?x-nobody?Q?abc?= =?utf-8?X?abc?=\n\nx\n",
    ),
    ("encoded word in a word", b"Subject: a=?utf-8?Q?b?=c\n\nx\n"),
    (
        "encoded word with spaces",
        b"Subject: =?utf-8?Q?a b c?=\n\nx\n",
    ),
    (
        "encoded word, broken base64",
        b"Subject: =?utf-8?B?!!!?= =?utf-8?B?YQ?=\n\nx\n",
    ),
    (
        "encoded word, half a character",
        b"Subject: =?utf-8?Q?=E2=82?= =?utf-8?Q?=AC?=\n\nx\n",
    ),
    (
        "control characters in a subject",
        b"Subject: a\x01b\x07c\x7f\n\nx\n",
    ),
    ("date that is none", b"Date: yesterday\n\nx\n"),
    (
        "date with a comment",
        b"Date: Mon, 2 Nov 2026 10:00:00 +0000 (UTC)\n\nx\n",
    ),
    (
        "folded date",
        b"Date: Mon,\n 2 Nov 2026\n\t10:00:00 +0000\n\nx\n",
    ),
    ("empty date", b"Date:\n\nx\n"),
    (
        "two dates",
        b"Date: Mon, 2 Nov 2026 10:00:00 +0000\nDate: Tue, 3 Nov 2026 10:00:00 +0000\n\nx\n",
    ),
    (
        "two Message-IDs",
        b"Message-ID: <one@example.org>\nMessage-ID: <two@example.org>\n\nx\n",
    ),
    (
        "Message-ID without angles",
        b"Message-ID: one@example.org\n\nx\n",
    ),
    (
        "Message-ID with a comment",
        b"Message-ID: (c) <one@example.org> (d)\n\nx\n",
    ),
    (
        "Message-ID with spaces",
        b"Message-ID: < one @ example.org >\n\nx\n",
    ),
    (
        "Message-ID, folded",
        b"Message-ID:\n <one@example.org>\n\nx\n",
    ),
    ("Message-ID, empty", b"Message-ID:\n\nx\n"),
    (
        "In-Reply-To of several",
        b"In-Reply-To: <one@example.org>\n\t<two@example.org>\n\nx\n",
    ),
    (
        "In-Reply-To of words",
        b"In-Reply-To: Your message of \"Mon\" <one@example.org>\n\nx\n",
    ),
    (
        "two In-Reply-To",
        b"In-Reply-To: <one@example.org>\nIn-Reply-To: <two@example.org>\n\nx\n",
    ),
    (
        "no Date, no Message-ID",
        b"From: anne@example.org\nTo: bob@example.org\nSubject: s\n\nx\n",
    ),
];
