"""One notice as e-mail: plain text, by the SMTP server of the settings.

Nothing that a run, a file or a sender brought becomes a header of its own: line ends and control
characters are taken out of the subject, and the library refuses what is left of them. A mail has
the same Message-ID in every try.
"""

from __future__ import annotations

import random
import re
import smtplib
import ssl
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Final

from suimon.core import notices
from suimon.core.notices import Notice, Verdict
from suimon.core.settings import Settings
from suimon.errors import InputRefused

TIMEOUT_SECONDS: Final = 10.0
RECIPIENTS: Final = 20
SUBJECT_CHARACTERS: Final = 200
#: From here on an SMTP code means "never".
_PERMANENT: Final = 500
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Server:
    """Where mail goes out."""

    host: str
    port: int
    security: str
    user: str | None
    password: str | None
    sender: str

    @classmethod
    def of(cls, found: Settings, password: str | None) -> Server | None:
        """From the settings; None: there is no mail server."""
        if not found.smtp_host:
            return None
        sender = found.smtp_from or found.smtp_user or f"suimon@{found.smtp_host}"
        return cls(
            found.smtp_host, found.smtp_port, found.smtp_security, found.smtp_user, password, sender
        )


def addresses(text: str) -> list[str]:
    """The recipients of a channel, or InputRefused."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    bad = [one for one in found if not _ADDRESS.fullmatch(one)]
    if not found or bad or len(found) > RECIPIENTS:
        msg = f'no e-mail address: "{_CONTROL.sub(" ", (bad or [text])[0])[:100]}"'
        hint = f"Write plain addresses with commas between, at most {RECIPIENTS}."
        raise InputRefused(msg, path="email", hint=hint)
    return found


def message(notice: Notice, sender: str, now: datetime) -> EmailMessage:
    """The mail; its subject is one line."""
    made = EmailMessage(policy=SMTP)
    subject = " ".join(_CONTROL.sub(" ", notice.subject).split())[:SUBJECT_CHARACTERS]
    made["Subject"] = f"[suimon] {subject}"
    made["From"] = sender
    made["To"] = [Address(addr_spec=one) for one in addresses(notice.target)]
    made["Date"] = now
    made["Message-ID"] = f"<{notice.id}@suimon.invalid>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(notices.text_of(notice))
    return made


def send(server: Server, notice: Notice, now: datetime, rng: random.Random) -> Verdict:
    """Hand it to the mail server; what follows from its answer."""
    try:
        made = message(notice, server.sender, now)
        with _connected(server) as smtp:
            smtp.send_message(made)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        why = f"the mail server refused every recipient: {codes}"
        if codes and min(codes) >= _PERMANENT:
            return notices.dead(why)
        return notices.later(notice.tries, why, rng)
    except (smtplib.SMTPException, OSError) as error:
        return notices.later(notice.tries, _said(error), rng)
    except ValueError as error:  # a sender that is no address, or a header that cannot be one
        return notices.dead(f"the mail cannot be written: {error}")
    return notices.SENT


def _connected(server: Server) -> smtplib.SMTP:
    """Connected, encrypted as the settings say, logged in."""
    context = ssl.create_default_context()
    smtp: smtplib.SMTP
    if server.security == "ssl":
        smtp = smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_SECONDS, context=context)
    else:
        smtp = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_SECONDS)
    try:
        if server.security == "starttls":
            smtp.starttls(context=context)
        if server.user is not None:
            smtp.login(server.user, server.password or "")
    except BaseException:
        smtp.close()
        raise
    return smtp


def _said(error: Exception) -> str:
    """What the server said; a login that failed shows its code, not what was sent."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the mail server refused the login ({error.smtp_code})"
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        return f"the mail server answered {error.smtp_code}: {_CONTROL.sub(' ', shown)[:200]}"
    return f"{type(error).__name__}: {error}"
