"""What /v1 says of its own end: for long sessions there is the SDK.

A request of OpenAI's shape sends the whole conversation each time, and what is kept of the
turn before makes way for any session; a session itself keeps it. So clients are told, in the
headers made for that: Deprecation (RFC 9745), Sunset (RFC 8594), and links to the page that says
what to do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

# When the shape stopped being the recommended way; and when it may be taken away.
DEPRECATED_AT = datetime(2026, 11, 22, tzinfo=UTC)
SUNSET_AT = datetime(2028, 11, 22, tzinfo=UTC)
PAGE_PATH = "/long-sessions"
PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
"""What takes a whole conversation each time. The list of models, vectors and counts of tokens have
no better way."""

HEADERS = {
    "Deprecation": f"@{int(DEPRECATED_AT.timestamp())}",
    "Sunset": format_datetime(SUNSET_AT, usegmt=True),
    "Link": f'<{PAGE_PATH}>; rel="deprecation"; type="text/plain", '
    f'<{PAGE_PATH}>; rel="sunset"; type="text/plain"',
}

PAGE = """\
Each request of /v1 sends the whole conversation, which is written, sent, read and turned into
tokens again with every turn. A node goes on with the session of the turn before where the
conversation begins as that one did, as long as nobody else needs its memory; else all of it is
computed again.

The SDKs keep the session: they append what is new, and generate on.

  Python:      pip install 'kakeya[text]'
               from kakeya import Client
               with Client("{address}") as client, client.create_session("MODEL") as session:
                   session.append(token_ids)
                   for tokens in session.generate(256): ...

  TypeScript:  npm install @kakeya/runtime
               const session = await new Client("{address}").createSession("MODEL");

{address} is this node's address for both. Sessions keep a constant amount of keys and
values, survive a dead node, and can be forked.
"""


def page(address: str) -> str:
    """The page for this node, host:port of its gRPC."""
    return PAGE.format(address=address)
