"""A caching client by Python's imaplib and zlib: QRESYNC over COMPRESS over TLS. What it believes is asserted on content.

Arguments: PORT AUTHORITY USER PASSWORD
"""

import hashlib
import imaplib
import re
import ssl
import sys
import zlib

PORT, AUTHORITY, USER, PASSWORD = sys.argv[1:5]
COUNT = 300

# Long VANISHED lines are the server's to avoid.
imaplib._MAXLINE = 100_000


def equal(got, expected, what):
    """Says both when they differ."""
    if got != expected:
        raise AssertionError(f"{what}: {got!r} instead of {expected!r}")


def ok(answer, what):
    """The data of an answer that must be OK."""
    kind, data = answer
    equal(kind, "OK", f"{what} {data!r}")
    return data


class Compressed(imaplib.IMAP4_SSL):
    """Both directions as zlib has them: one stream each, flushed after every command."""

    deflate = None
    inflate = None
    plain = b""
    wire_bytes = 0
    plain_bytes = 0

    def compress(self):
        if "COMPRESS=DEFLATE" not in self.capabilities:
            raise AssertionError(f"no COMPRESS: {self.capabilities}")
        self.command("COMPRESS DEFLATE")
        self.deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        self.inflate = zlib.decompressobj(-15)

    def send(self, data):
        if self.deflate is None:
            return super().send(data)
        compressed = self.deflate.compress(data) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
        return self.sslobj_send(compressed)

    def sslobj_send(self, data):
        self.sock.sendall(data)

    def more(self):
        data = self.sock.recv(16384)
        if not data:
            raise self.abort("the server is gone")
        self.wire_bytes += len(data)
        inflated = self.inflate.decompress(data)
        self.plain_bytes += len(inflated)
        self.plain += inflated

    def read(self, size):
        if self.inflate is None:
            return super().read(size)
        while len(self.plain) < size:
            self.more()
        data, self.plain = self.plain[:size], self.plain[size:]
        return data

    def readline(self):
        if self.inflate is None:
            return super().readline()
        while b"\n" not in self.plain:
            self.more()
        line, newline, self.plain = self.plain.partition(b"\n")
        return line + newline

    def command(self, line):
        """A command as it is; its untagged lines and its last one."""
        tag = self._new_tag()
        self.send(tag + b" " + line.encode() + b"\r\n")
        lines = []
        while True:
            line = self.readline().rstrip(b"\r\n")
            while line.endswith(b"}"):
                size = int(line[line.rindex(b"{") + 1 : -1])
                line += b"\r\n" + self.read(size) + self.readline().rstrip(b"\r\n")
            if line.startswith(tag):
                equal(line[len(tag) + 1 : len(tag) + 3], b"OK", line.decode())
                return lines, line
            lines.append(line)


def connect(compressed=True):
    """A connection that verified the server's certificate, logged in, and compresses."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    imap = Compressed("localhost", int(PORT), ssl_context=context)
    imap.login(USER, PASSWORD)
    imap.capabilities = imap.capability()[1][0].decode().split()
    if compressed:
        imap.compress()
    return imap


def message(number):
    """One message; its body tells which."""
    return (
        f"From: carl@example.net\r\nTo: anne@example.org\r\nSubject: number {number}\r\n\r\n"
        + f"This is the text of number {number}.\r\n" * 20
    ).encode()


def number_after(lines, word):
    """The number behind a word, of the last line that has it."""
    found = [re.search(re.escape(word) + rb" ?\(?(\d+)", line) for line in lines]
    found = [int(match.group(1)) for match in found if match]
    if not found:
        raise AssertionError(f"no {word!r} in {lines!r}")
    return found[-1]


def uids_of(text):
    """The UIDs of a set."""
    uids = set()
    for part in text.split(b","):
        first, _, last = part.partition(b":")
        uids.update(range(int(first), int(last or first) + 1))
    return uids


class Cache:
    """UID to flags and digest of the body."""

    def __init__(self):
        self.messages = {}
        self.validity = self.modseq = None

    def hear(self, lines):
        """Applies VANISHED and FETCH."""
        for line in lines:
            if line.startswith(b"* VANISHED (EARLIER) "):
                for uid in uids_of(line[21:]):
                    self.messages.pop(uid, None)
            elif line.startswith(b"* VANISHED "):
                for uid in uids_of(line[11:]):
                    if uid not in self.messages:
                        raise AssertionError(f"{line!r}, and {uid} is not known")
                    del self.messages[uid]
            elif b" EXPUNGE" in line:
                raise AssertionError(f"{line!r} although QRESYNC is enabled")
            elif b" FETCH (" in line:
                uid = number_after([line], b"UID")
                flags = re.search(rb"FLAGS \(([^)]*)\)", line)
                body = re.search(rb"BODY\[\] \{(\d+)\}\r\n", line)
                known = self.messages.setdefault(uid, [None, None])
                if flags:
                    known[0] = sorted(flags.group(1).split())
                if body:
                    start = body.end()
                    known[1] = hashlib.sha256(line[start : start + int(body.group(1))]).hexdigest()

    def open(self, imap):
        """Selects, and asks only for what is new."""
        imap.command("ENABLE QRESYNC")
        known = ""
        if self.modseq is not None:
            known = f" (QRESYNC ({self.validity} {self.modseq}"
            known += f" 1:{max(self.messages)}))" if self.messages else "))"
        lines, _ = imap.command("SELECT Cache" + known)
        validity = number_after(lines, b"[UIDVALIDITY")
        equal(validity, self.validity or validity, "UIDVALIDITY")
        self.hear(lines)
        self.validity, self.modseq = validity, number_after(lines, b"[HIGHESTMODSEQ")
        self.fetch_new(imap)
        return lines

    def fetch_new(self, imap):
        first = max(self.messages, default=0) + 1
        lines, _ = imap.command(f"UID FETCH {first}:* (FLAGS BODY.PEEK[])")
        self.hear(lines)


def truth():
    """What is there, by a client that caches nothing."""
    imap = connect(compressed=False)
    ok(imap.select("Cache", readonly=True), "EXAMINE")
    cache = {}
    data = ok(imap.uid("FETCH", "1:*", "(UID FLAGS BODY.PEEK[])"), "FETCH")
    for part in data:
        if not isinstance(part, tuple):
            continue
        uid = number_after([part[0]], b"UID")
        flags = re.search(rb"FLAGS \(([^)]*)\)", part[0])
        cache[uid] = [sorted(flags.group(1).split()), hashlib.sha256(part[1]).hexdigest()]
    imap.logout()
    return cache


def ends(data):
    """What a compressed connection hears after these bytes, which must end it."""
    imap = connect()
    imap.sock.settimeout(60)
    heard = b""
    try:
        imap.sslobj_send(data)
        while piece := imap.sock.recv(16384):
            heard += imap.inflate.decompress(piece)
    except (ConnectionError, ssl.SSLEOFError):
        # It did not read the rest of what was sent.
        pass
    return heard


def hostile(there):
    """A bomb, and what is no deflate: each costs its sender the connection, and nobody else anything."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    commands = b"a NOOP\r\n" * 5_000_000
    ends(deflate.compress(commands) + deflate.flush(zlib.Z_SYNC_FLUSH))
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    ends(deflate.compress(b"(" * 50_000_000) + deflate.flush(zlib.Z_SYNC_FLUSH))
    heard = ends(b"a1 NOOP\r\n")
    equal(heard[:5], b"* BYE", "garbage")
    there.command("NOOP")


def main():
    """All of it."""
    imap = connect()
    ok(imap.create("Cache"), "CREATE")
    for number in range(COUNT):
        ok(imap.append("Cache", None, None, message(number)), "APPEND")
    # Bodies that hardly compress, and much that does: both come back as they were sent.
    ok(imap.append("Cache", None, None, b"Subject: big\r\n\r\n" + b"A" * 3_000_000), "APPEND")

    cache = Cache()
    cache.open(imap)
    equal(len(cache.messages), COUNT + 1, "messages")
    equal(cache.messages, truth(), "the first time")
    if imap.wire_bytes * 4 > imap.plain_bytes:
        raise AssertionError(f"{imap.wire_bytes} bytes for {imap.plain_bytes}")
    imap.shutdown()

    # Others change, remove and add while it is away.
    other = connect(compressed=False)
    ok(other.select("Cache"), "SELECT")
    ok(other.store("3,50:60", "+FLAGS", "(\\Flagged todo)"), "STORE")
    ok(other.store("100:200", "+FLAGS", "(\\Deleted)"), "STORE")
    ok(other.expunge(), "EXPUNGE")
    ok(other.uid("MOVE", str(min(cache.messages)), "Archive"), "MOVE")
    for number in range(COUNT, COUNT + 5):
        ok(other.append("Cache", "(\\Seen)", None, message(number)), "APPEND")

    imap = connect()
    before = imap.plain_bytes
    lines = cache.open(imap)
    told = sum(len(line) for line in lines if b" FETCH (" in line)
    equal(sum(b" FETCH (" in line for line in lines), 12, "what is told of has changed")
    if told > 5000 or imap.plain_bytes - before > 50_000:
        raise AssertionError(f"{told} bytes for 12 changes, {imap.plain_bytes - before} in all")
    equal(cache.messages, truth(), "after it was away")

    # And while it is there.
    ok(other.store("1:3", "+FLAGS", "(\\Deleted)"), "STORE")
    ok(other.expunge(), "EXPUNGE")
    lines, _ = imap.command("NOOP")
    equal([line[:11] for line in lines if b"VANISHED" in line], [b"* VANISHED "], "NOOP")
    cache.hear(lines)
    equal(cache.messages, truth(), "after NOOP")
    other.logout()

    hostile(imap)

    # At the end of UNAUTHENTICATE both sides stop to compress.
    tag = imap._new_tag()
    rest = imap.deflate.compress(tag + b" UNAUTHENTICATE\r\n") + imap.deflate.flush(zlib.Z_FINISH)
    imap.sslobj_send(rest)
    equal(imap.readline()[: len(tag) + 3], tag + b" OK", "UNAUTHENTICATE")
    equal((imap.inflate.eof, imap.inflate.unused_data, imap.plain), (True, b"", b""), "the end")
    imap.deflate = imap.inflate = None
    imap.state = "NONAUTH"
    ok(imap.login(USER, PASSWORD), "LOGIN")
    equal(ok(imap.select("Cache"), "SELECT"), [str(len(cache.messages)).encode()], "SELECT")
    equal(imap.logout()[0], "BYE", "LOGOUT")


main()
print("done")
