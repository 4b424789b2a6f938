//! What there is to read in the demo: plain text, a thread, other scripts, an attachment, HTML.

use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_smtp::trace::WallTime;

use super::{ANNE, BOB};

/// A message and its envelope.
pub(super) struct Letter {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) text: Vec<u8>,
}

fn letter(
    from: &'static str,
    to: &'static str,
    minutes_ago: i64,
    head: &str,
    body: &str,
) -> Letter {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let date = WallTime::new(i64::try_from(now).unwrap_or(0) - minutes_ago * 60, 0);
    let text = format!("Date: {date}\nTo: {to}\nMIME-Version: 1.0\n{head}\n{body}");
    // Only CRLF ends a line in mail.
    Letter {
        from,
        to,
        text: text.replace('\n', "\r\n").into_bytes(),
    }
}

/// Delivered before anyone looks.
pub(super) fn prepared() -> Vec<Letter> {
    vec![
        letter(
            "whimbrel@example.net",
            ANNE,
            4_320,
            "From: Whimbrel <whimbrel@example.net>\nSubject: Welcome to Whimbrel\nMessage-ID: <welcome@example.net>\n\
             Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n",
            "Hello Anne,\n\na whimbrel is a shorebird that crosses oceans, through hurricanes. This mail server is named after\n\
             it: every node takes every change, and all of them agree in the end.\n",
        ),
        letter(
            "bob@example.org",
            ANNE,
            1_500,
            "From: Bob <bob@example.org>\nSubject: Counting birds on Saturday\nMessage-ID: <count-1@example.org>\n\
             Content-Type: text/plain\n",
            "Anne, low tide is at 8:40 on Saturday. Shall we meet at the lighthouse?\n\nBob\n",
        ),
        letter(
            "anne@example.org",
            BOB,
            1_440,
            "From: Anne <anne@example.org>\nSubject: Re: Counting birds on Saturday\nMessage-ID: <count-2@example.org>\n\
             In-Reply-To: <count-1@example.org>\nReferences: <count-1@example.org>\nContent-Type: text/plain\n",
            "Bob wrote:\n> Shall we meet at the lighthouse?\n\nYes, I bring the telescope.\n\nAnne\n",
        ),
        letter(
            "bob@example.org",
            ANNE,
            1_380,
            "From: Bob <bob@example.org>\nSubject: Re: Counting birds on Saturday\nMessage-ID: <count-3@example.org>\n\
             In-Reply-To: <count-2@example.org>\nReferences: <count-1@example.org> <count-2@example.org>\n\
             Content-Type: text/plain\n",
            "Good. And I bring the tea.\n",
        ),
        letter(
            "zoe@example.net",
            ANNE,
            600,
            "From: =?UTF-8?Q?Zo=C3=AB_Str=C3=B6m?= <zoe@example.net>\n\
             Subject: =?UTF-8?Q?Gr=C3=BC=C3=9Fe_aus_Malm=C3=B6?= =?UTF-8?B?IOKAkyDjgZPjgpPjgavjgaHjga8=?=\n\
             Message-ID: <greetings@example.net>\nContent-Type: text/plain; charset=utf-8\n\
             Content-Transfer-Encoding: quoted-printable\n",
            "Sch=C3=B6ne Gr=C3=BC=C3=9Fe! Det =C3=A4r kallt h=C3=A4r.\n",
        ),
        letter(
            "office@example.net",
            ANNE,
            240,
            "From: Bird Office <office@example.net>\nSubject: Table of last year's counts\nMessage-ID: <table@example.net>\n\
             Content-Type: multipart/mixed; boundary=\"frontier\"\n",
            "--frontier\nContent-Type: text/plain\n\nThe table is attached.\n\n--frontier\n\
             Content-Type: text/csv; name=\"counts.csv\"\nContent-Disposition: attachment; filename=\"counts.csv\"\n\
             Content-Transfer-Encoding: base64\n\nc3BlY2llcyxjb3VudAp3aGltYnJlbCwyMTcKY3VybGV3LDg4CmRvdHRlcmVsLDMK\n\n--frontier--\n",
        ),
        letter(
            "news@example.net",
            ANNE,
            30,
            "From: Shore News <news@example.net>\nSubject: Spring migration has begun\nMessage-ID: <news@example.net>\n\
             List-Id: Shore News <news.example.net>\nContent-Type: multipart/alternative; boundary=\"=_alt\"\n",
            "--=_alt\nContent-Type: text/plain\n\nThe first birds have been seen.\n\n--=_alt\nContent-Type: text/html\n\n\
             <p>The first birds have been <b>seen</b>.</p>\n\n--=_alt--\n",
        ),
    ]
}

/// Sent while the demo runs.
pub(super) fn live() -> Letter {
    letter(
        BOB,
        ANNE,
        0,
        "From: Bob <bob@example.org>\nSubject: Look out of the window\nMessage-ID: <window@example.org>\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n",
        "Three whimbrels, flying north. If you read this, mail works, too.\n\nBob\n",
    )
}

/// Delivered where the others cannot be reached.
pub(super) fn alone() -> Letter {
    letter(
        "ferry@example.net",
        ANNE,
        0,
        "From: Ferry Office <ferry@example.net>\nSubject: The cable is cut, the ferry goes\nMessage-ID: <ferry@example.net>\n\
         Content-Type: text/plain\n",
        "Whoever is on this island gets mail, too.\n",
    )
}

/// Sent by Anne herself.
pub(super) fn answer() -> Letter {
    letter(
        ANNE,
        BOB,
        0,
        "From: Anne <anne@example.org>\nSubject: Re: Look out of the window\nMessage-ID: <window-2@example.org>\n\
         In-Reply-To: <window@example.org>\nContent-Type: text/plain\n",
        "I see them. It works.\n\nAnne\n",
    )
}
