"""Real receivers of notices on loopback: an HTTP server and a mail server that keep what comes."""

from __future__ import annotations

import email
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


@dataclass(slots=True)
class Call:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Hook:
    """A webhook: what it answers to which call may be set, and changed, by the test."""

    url: str = ""
    port: int = 0
    calls: list[Call] = field(default_factory=list)
    answer: Callable[[Call], tuple[int, dict[str, str]]] = lambda _: (204, {})
    connections: int = 0


@contextmanager
def hook(host: str = "127.0.0.1", drip_s: float | None = None) -> Iterator[Hook]:
    """An HTTP server; with `drip_s` it answers a byte at a time and never comes to an end."""
    made = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            call = Call(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            made.calls.append(call)
            if drip_s is not None:
                self._drip(drip_s)
                return
            status, headers = made.answer(call)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def _drip(self, pause_s: float) -> None:
            try:
                for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"y" * 10_000:
                    self.wfile.write(bytes([byte]))
                    time.sleep(pause_s)
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> tuple[Any, Any]:
            made.connections += 1
            return super().get_request()

    server = Server((host, 0), Handler)
    made.port = server.server_address[1]
    made.url = f"http://{host}:{made.port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@dataclass(slots=True)
class Mailbox:
    """A mail server: what came, and what it answers to a recipient."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    answer: str = "250 OK"


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """A real SMTP server."""
    made = Mailbox()

    class Handler:
        async def handle_RCPT(  # noqa: N802
            self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
        ) -> str:
            if made.answer.startswith("250"):
                envelope.rcpt_tos.append(address)
            return made.answer

        async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
            parsed = email.message_from_bytes(envelope.content, policy=default)
            assert isinstance(parsed, EmailMessage)
            made.recipients.append(list(envelope.rcpt_tos))
            made.mails.append(parsed)
            return "250 OK"

    with socket.socket() as free:  # the controller connects to its own port: it must know it
        free.bind(("127.0.0.1", 0))
        made.port = free.getsockname()[1]
    controller = Controller(Handler(), hostname="127.0.0.1", port=made.port)
    controller.start()
    try:
        yield made
    finally:
        controller.stop()
