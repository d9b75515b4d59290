"""Faults of `sdks/`: the clients."""

from scripts.mutants.mutant import Mutant

MUTANTS = (
    # ---- Nothing is done twice, and nothing for nobody
    Mutant(
        "a key that is read apart from its certificate",
        "sdks/python/kakeya/credentials.py",
        "is_one = tls.client_key == tls.client_certificate and not callable(tls.client_key)",
        "is_one = False",
        ("tests/sdk/test_credentials.py",),
    ),
    Mutant(
        "a retry without a budget",
        "sdks/python/kakeya/connection.py",
        "                    and self._budget.spend()\n",
        "",
        ("tests/sdk/test_retries.py",),
    ),
    Mutant(
        "a stream that does not wait for its verifier",
        "sdks/python/kakeya/session.py",
        "if not returns or self._closed or clock() + pause >= until:",
        "if returns or self._closed or clock() + pause >= until:",
        ("tests/sdk/test_retries.py",),
    ),
    # ---- Nothing is lost
    Mutant(
        "a digest not compared when a session goes on elsewhere",
        "sdks/python/kakeya/successor.py",
        "and there.weights_digest == offer.weights_digest",
        "",
        ("tests/sdk/test_resume.py",),
    ),
    Mutant(
        "an append that was cancelled, taken for one that never was",
        "sdks/python/kakeya/session.py",
        "        except (TransportError, asyncio.CancelledError):\n",
        "        except TransportError:\n",
        ("tests/sdk/test_chat.py",),
    ),
    Mutant(
        "an answer that was left, kept with bytes that nobody saw",
        "sdks/python/kakeya/chat.py",
        "self._conversation.answered(received, kept.words.text)",
        "self._conversation.answered(received)",
        ("tests/sdk/test_chat.py",),
    ),
    Mutant(
        "a redirect to any member",
        "sdks/python/kakeya/credentials.py",
        "return replace(self, tls=replace(self.tls, server_name=name_of_node(node_id)))",
        "return self",
        ("tests/sdk/test_members.py",),
    ),
)
