"""A session by Python's imaplib, over TLS or STARTTLS: every command's effect is asserted on content.

Arguments: MODE (tls or starttls) PORT AUTHORITY USER PASSWORD
"""

import imaplib
import ssl
import sys
import threading

MODE, PORT, AUTHORITY, USER, PASSWORD = sys.argv[1:6]


def message(number, text):
    """One message; its subject and body tell which."""
    return (
        f"From: carl@example.net\r\nTo: anne@example.org\r\nSubject: number {number}\r\n"
        f"Date: Mon, 02 Nov 2026 10:00:0{number} +0000\r\n\r\n{text}\r\n"
    ).encode()


def equal(got, expected, what):
    """Says both when they differ."""
    if got != expected:
        raise AssertionError(f"{what}: {got!r} instead of {expected!r}")


def ok(answer, what):
    """The data of an answer that must be OK."""
    kind, data = answer
    equal(kind, "OK", f"{what} {data!r}")
    return data


def connect():
    """A connection that verified the server's certificate and logged in."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    if MODE == "tls":
        imap = imaplib.IMAP4_SSL("localhost", int(PORT), ssl_context=context)
    else:
        imap = imaplib.IMAP4("localhost", int(PORT))
        if "LOGINDISABLED" not in imap.capabilities:
            raise AssertionError(f"no LOGINDISABLED in clear: {imap.capabilities}")
        try:
            imap.login(USER, PASSWORD)
            raise AssertionError("LOGIN in clear was accepted")
        except imaplib.IMAP4.error:
            pass
        ok(imap.starttls(context), "STARTTLS")
    ok(imap.login(USER, PASSWORD), "LOGIN")
    return imap


def bodies(imap, numbers):
    """The bytes of these messages."""
    data = ok(imap.fetch(numbers, "(BODY.PEEK[])"), "FETCH")
    return [part[1] for part in data if isinstance(part, tuple)]


def flags(imap, numbers):
    """The flags of these messages, sorted."""
    data = ok(imap.fetch(numbers, "(FLAGS)"), "FETCH FLAGS")
    lists = [sorted(flag.decode() for flag in imaplib.ParseFlags(line)) for line in data]
    return [[flag for flag in flags if flag != "\\Recent"] for flags in lists]


def main():
    """All of it."""
    imap = connect()
    equal(ok(imap.create("Work"), "CREATE") is not None, True, "CREATE")
    messages = [message(n, f"text {n} " + "x" * n * 1000) for n in range(1, 6)]
    for n, text in enumerate(messages, 1):
        ok(imap.append("Work", "(\\Seen)" if n == 2 else None, None, text), "APPEND")
    equal(ok(imap.select("Work"), "SELECT"), [b"5"], "SELECT")
    equal(bodies(imap, "1:5"), messages, "bodies")
    equal(flags(imap, "1:5"), [[], ["\\Seen"], [], [], []], "flags")

    equal(ok(imap.search(None, "SUBJECT", '"number 3"'), "SEARCH"), [b"3"], "SEARCH SUBJECT")
    equal(ok(imap.search(None, "UNSEEN", "SMALLER", "3000"), "SEARCH"), [b"1"], "SEARCH SMALLER")
    equal(ok(imap.search(None, "BODY", '"text 4"'), "SEARCH"), [b"4"], "SEARCH BODY")
    equal(ok(imap.search(None, "OR", "SEEN", "SUBJECT", "5"), "SEARCH"), [b"2 5"], "SEARCH OR")

    ok(imap.store("1,3", "+FLAGS", "(\\Flagged todo)"), "STORE")
    equal(flags(imap, "1:3"), [["\\Flagged", "todo"], ["\\Seen"], ["\\Flagged", "todo"]], "STORE +")
    ok(imap.store("3", "-FLAGS", "(todo)"), "STORE")
    ok(imap.store("1", "FLAGS", "(\\Answered)"), "STORE")
    equal(flags(imap, "1:3"), [["\\Answered"], ["\\Seen"], ["\\Flagged"]], "STORE = and -")

    ok(imap.copy("1:2", "Archive"), "COPY")
    kind, data = imap.uid("MOVE", ok(imap.fetch("5", "(UID)"), "UID")[0].split()[2].rstrip(b")").decode(), "Archive")
    equal(kind, "OK", f"MOVE {data!r}")
    equal(ok(imap.search(None, "ALL"), "SEARCH"), [b"1 2 3 4"], "after MOVE")

    ok(imap.store("1,4", "+FLAGS", "(\\Deleted)"), "STORE")
    # imaplib keeps what it was told before; numbers shift with each EXPUNGE, and the order is the server's to choose.
    imap.untagged_responses.clear()
    left = [1, 2, 3, 4]
    for number in ok(imap.expunge(), "EXPUNGE"):
        del left[int(number) - 1]
    equal(left, [2, 3], "EXPUNGE")
    equal(bodies(imap, "1:2"), messages[1:3], "after EXPUNGE")

    equal(ok(imap.select("Archive"), "SELECT"), [b"3"], "SELECT Archive")
    equal(bodies(imap, "1:3"), [messages[0], messages[1], messages[4]], "what was copied and moved")
    equal(flags(imap, "1:3"), [["\\Answered"], ["\\Seen"], []], "flags of copies")

    idle(imap)

    names = [line.decode().rsplit(" ", 1)[-1].strip('"') for line in ok(imap.list(), "LIST")]
    equal(sorted(names), ["Archive", "Drafts", "INBOX", "Junk", "Sent", "Trash", "Work"], "LIST")
    ok(imap.rename("Work", "Done"), "RENAME")
    equal(ok(imap.select("Done"), "SELECT"), [b"2"], "after RENAME")
    ok(imap.unselect(), "UNSELECT")
    ok(imap.delete("Done"), "DELETE")
    equal(imap.select("Done")[0], "NO", "SELECT of what was deleted")
    equal(imap.logout()[0], "BYE", "LOGOUT")


def idle(imap):
    """IDLE hears of a message that another connection appends, and of its flags. imaplib of this age knows no IDLE: raw."""
    tag = imap._new_tag()
    imap.send(tag + b" IDLE\r\n")
    equal(imap.readline()[:1], b"+", "IDLE")
    text = message(9, "from the other side")

    def other_side():
        other = connect()
        ok(other.append("Archive", "(\\Flagged)", None, text), "APPEND")
        other.logout()

    other = threading.Thread(target=other_side)
    other.start()
    line = imap.readline()
    while not line.endswith(b" EXISTS\r\n"):
        equal(line[:2], b"* ", "in IDLE")
        line = imap.readline()
    equal(line, b"* 4 EXISTS\r\n", "IDLE")
    imap.send(b"DONE\r\n")
    other.join()
    line = imap.readline()
    while line.startswith(b"* "):
        line = imap.readline()
    equal(line[: len(tag) + 3], tag + b" OK", "end of IDLE")
    equal(bodies(imap, "4"), [text], "what IDLE told of")
    equal(flags(imap, "4"), [["\\Flagged"]], "its flags")


main()
print("done")
