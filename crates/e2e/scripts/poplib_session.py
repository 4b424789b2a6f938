"""A session by Python's poplib, over TLS or STLS: every command's effect is asserted on content.

Arguments: MODE (tls or stls) PORT AUTHORITY USER PASSWORD; three messages wait whose subjects are number 1, 2 and 3.
"""

import base64
import hashlib
import hmac
import poplib
import ssl
import sys

MODE, PORT, AUTHORITY, USER, PASSWORD = sys.argv[1:6]


def equal(got, expected, what):
    """Says both when they differ."""
    if got != expected:
        raise AssertionError(f"{what}: {got!r} instead of {expected!r}")


def refused(call, *arguments):
    """The text of the refusal of what must be refused."""
    try:
        answer = call(*arguments)
    except poplib.error_proto as error:
        return error.args[0].decode()
    raise AssertionError(f"{arguments!r} was accepted: {answer!r}")


def user_pass(pop, user, password):
    """Logs in by USER and PASS."""
    pop.user(user)
    pop.pass_(password)


def connect(user=USER, password=PASSWORD, login=user_pass):
    """A connection that verified the server's certificate and logged in."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    if MODE == "tls":
        pop = poplib.POP3_SSL("localhost", int(PORT), context=context)
    else:
        pop = poplib.POP3("localhost", int(PORT))
        capabilities = pop.capa()
        equal("STLS" in capabilities and "USER" not in capabilities, True, f"in clear: {capabilities}")
        equal(refused(pop.user, user).startswith("-ERR"), True, "USER in clear")
        pop.stls(context)
    equal("STLS" in pop.capa(), False, "STLS within TLS")
    pop.utf8()
    login(pop, user, password)
    return pop


def scram(pop, user, password):
    """Logs in by SCRAM-SHA-256 (RFC 5802, RFC 7677), and checks that the server knows the password."""

    def say(text):
        """Sends a line; what the server says, decoded."""
        pop._putcmd(text)
        line, _ = pop._getline()
        return line.decode()

    def coded(text):
        return base64.b64encode(text.encode()).decode()

    def mac(key, text):
        return hmac.new(key, text if isinstance(text, bytes) else text.encode(), hashlib.sha256).digest()

    first = f"n={user},r=fyko+d2lbbFgONRv9qkxdawL"
    challenge = base64.b64decode(say("AUTH SCRAM-SHA-256 " + coded("n,," + first))[2:]).decode()
    nonce, salt, rounds = (part[2:] for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(rounds))
    key = mac(salted, "Client Key")
    said = f"{first},{challenge},c=biws,r={nonce}"
    proof = bytes(a ^ b for a, b in zip(key, mac(hashlib.sha256(key).digest(), said)))
    last = say(coded(f"c=biws,r={nonce},p={base64.b64encode(proof).decode()}"))
    if last.startswith("-ERR"):
        raise poplib.error_proto(last.encode())
    signature = base64.b64encode(mac(mac(salted, "Server Key"), said)).decode()
    equal(base64.b64decode(last[2:]).decode(), "v=" + signature, "the server's signature")
    equal(say("")[:3], "+OK", "SCRAM")


def subject(lines):
    """What the Subject field of a message says."""
    return next(line[9:].decode() for line in lines if line.startswith(b"Subject: "))


def main():
    """All of it."""
    pop = connect()
    capabilities = pop.capa()
    for name in ("TOP", "UIDL", "USER", "SASL", "PIPELINING", "RESP-CODES", "AUTH-RESP-CODE", "EXPIRE", "LANG"):
        equal(name in capabilities, True, f"{name} in {capabilities}")
    count, octets = pop.stat()
    equal(count, 3, "STAT")
    sizes = [int(line.split()[1]) for line in pop.list()[1]]
    equal(sum(sizes), octets, "LIST and STAT")
    ids = [line.split()[1] for line in pop.uidl()[1]]
    equal(len(set(ids)), 3, "UIDL")
    for n in (1, 2, 3):
        _, lines, _ = pop.retr(n)
        equal(sum(len(line) + 2 for line in lines), sizes[n - 1], f"octets of {n}")
        equal(subject(lines), f"number {n}", f"RETR {n}")
        body = lines[lines.index(b"") + 1:]
        equal(body[:2], [b".", b"..stuffed " + str(n).encode()], f"dots of {n}")
        _, top, _ = pop.top(n, 1)
        equal(top, lines[: lines.index(b"") + 2], f"TOP {n} 1")
        equal(pop.uidl(n).split()[2], ids[n - 1], f"UIDL {n}")
    equal(refused(pop.retr, 4).startswith("-ERR"), True, "RETR 4")

    pop.dele(1)
    pop.dele(2)
    equal(pop.stat(), (1, sizes[2]), "STAT after DELE")
    equal([line.split()[0] for line in pop.list()[1]], [b"3"], "LIST after DELE")
    pop.rset()
    equal(pop.stat(), (3, octets), "STAT after RSET")
    pop.dele(2)
    # A second session sees all there is until the first has said goodbye.
    other = connect()
    equal(other.stat()[0], 3, "STAT of another session")
    pop.noop()
    pop.quit()
    equal(refused(other.retr, 2).startswith("-ERR [SYS/TEMP]"), True, "RETR of what another has removed")
    equal(subject(other.retr(3)[1]), "number 3", "RETR beside it")
    other.dele(1)
    # Cut: nothing goes.
    other.close()

    pop = connect()
    equal([line.split()[1] for line in pop.uidl()[1]], [ids[0], ids[2]], "UIDL of the next session")
    equal(subject(pop.retr(2)[1]), "number 3", "RETR of the next session")
    pop.quit()
    pop = connect(login=scram)
    equal(pop.stat()[0], 2, "STAT after SCRAM")
    pop.quit()
    pop = connect(USER + "|Archive", login=scram)
    equal(pop.stat(), (0, 0), "STAT of another mailbox after SCRAM")
    pop.quit()
    equal(refused(connect, USER, "wrong", scram).startswith("-ERR [AUTH]"), True, "a wrong password by SCRAM")
    pop = connect(USER + "|Archive")
    equal(pop.stat(), (0, 0), "STAT of another mailbox")
    pop.quit()
    equal(refused(connect, USER, "wrong").startswith("-ERR [AUTH]"), True, "a wrong password")


main()
print("done")
