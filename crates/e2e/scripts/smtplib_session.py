"""Submission by Python's smtplib; asserts as it goes.

Arguments: tls or starttls, port, certificate authority, user, password, another user.
"""

import smtplib
import ssl
import sys
from email.message import EmailMessage

MODE, PORT, AUTHORITY, USER, PASSWORD, OTHER = sys.argv[1:]
CONTEXT = ssl.create_default_context(cafile=AUTHORITY)


def connect():
    if MODE == "tls":
        client = smtplib.SMTP_SSL("localhost", int(PORT), context=CONTEXT)
        client.ehlo()
    else:
        client = smtplib.SMTP("localhost", int(PORT))
        client.ehlo()
        assert not client.has_extn("auth"), client.esmtp_features
        code, text = client.mail(USER)
        assert code == 530, (code, text)
        client.starttls(context=CONTEXT)
        client.ehlo()
    assert "SCRAM-SHA-256-PLUS" in client.esmtp_features["auth"], client.esmtp_features
    for extension in ("size", "8bitmime", "smtputf8", "pipelining", "chunking"):
        assert client.has_extn(extension), extension
    return client


def message(subject, sender=USER, **fields):
    made = EmailMessage()
    made["From"] = sender
    made["To"] = OTHER
    made["Subject"] = subject
    for name, value in fields.items():
        made[name] = value
    made.set_content("Grüße.\n", cte="8bit")
    return made


def refused(code, act):
    try:
        act()
    except smtplib.SMTPResponseException as error:
        assert error.smtp_code == code, error
    except smtplib.SMTPRecipientsRefused as error:
        assert {found for found, _ in error.recipients.values()} == {code}, error
    else:
        raise AssertionError(f"{code} was expected")


client = connect()
refused(530, lambda: client.sendmail(USER, [OTHER], b"From: x\r\n\r\n"))
refused(535, lambda: client.login(USER, PASSWORD + "x"))
client.quit()

for mechanism in ("PLAIN", "LOGIN"):
    client = connect()
    client.user, client.password = USER, PASSWORD
    method = {"PLAIN": client.auth_plain, "LOGIN": client.auth_login}[mechanism]
    code, _ = client.auth(mechanism, method)
    assert code == 235, code
    # smtplib itself takes Bcc out, so it is put in as bytes.
    raw = message(f"by {mechanism}").as_bytes().replace(b"\n", b"\r\n")
    assert client.sendmail(USER, [OTHER, USER], b"Bcc: secret@example.org\r\n" + raw, ["BODY=8BITMIME"]) == {}

    refused(550, lambda: client.sendmail(USER, ["someone@elsewhere.example"], raw))
    client.rset()
    refused(553, lambda: client.sendmail(OTHER, [USER], raw))
    client.rset()
    refused(550, lambda: client.send_message(message("forged", sender=OTHER), from_addr=USER, to_addrs=[OTHER]))
    client.rset()
    refused(550, lambda: client.send_message(message("forged", Sender=OTHER), from_addr=USER))
    client.rset()
    assert client.send_message(message(f"once more by {mechanism}", sender=USER.replace("@", "+shop@"))) == {}
    client.quit()

print("done")
