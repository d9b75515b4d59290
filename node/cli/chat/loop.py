"""The loop of a chat: reads a text, answers it or obeys it, until the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya import Client, KakeyaError, Session, StopReason, Tokens
from kakeya.conversation import Conversation, Message, Render, plain_text
from kakeya.text import TextCodec
from kakeya_fleet.node.cli.asking.access import blocking_client_of
from kakeya_fleet.node.cli.asking.failures import failure_of
from kakeya_fleet.node.cli.asking.kv_options import KvChoice
from kakeya_fleet.node.cli.asking.models import archive_node_of, verifier_of
from kakeya_fleet.node.cli.chat import lines as chat_lines
from kakeya_fleet.node.cli.chat.screen import ChatScreen
from kakeya_fleet.node.cli.chat.session import AnswerLimits, Branch, ask, statistics_of
from kakeya_fleet.node.cli.chat.typed_input import Typist, Words
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode
from kakeya_fleet.node.cli.terminal.output import fields_of
from kakeya_fleet.node.cli.terminal.quantities import seconds_text, speed_text
from kakeya_fleet.node.cli.terminal.statistics_text import forgotten_lines, tokens_per_second
from kakeya_fleet.node.cli.terminal.status_line import status_line
from kakeya_fleet.node.config.state_directory import default_state

LABEL = "fleet chat"
NOTHING_ASKED = "nothing was asked yet"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a chat is begun with; turns are joined as the model has it where `is_plain` is None."""

    verifier: str | None
    system: str
    is_plain: bool | None
    tokenizer: str | None
    kv: KvChoice
    limits: AnswerLimits


def chat(address: str, options: ChatOptions, screen: ChatScreen, words: Words | None = None) -> int:
    """Talks until the input ends; the exit code. Raises `KakeyaError`, `CommandFailed`.

    The texts are those of `words`, without them what is typed.
    """
    typist = words or Typist(
        default_state("any").parent / "chat_history", has_colours=screen.has_colours
    )
    client = blocking_client_of(address)
    try:
        return _talk(client, options, screen, typist)
    except KeyboardInterrupt:
        # Closing would wait for a node that may say nothing.
        os._exit(int(ExitCode.INTERRUPTED))
    finally:
        client.close()


def _talk(client: Client, options: ChatOptions, screen: ChatScreen, typist: Words) -> int:
    nodes = client.fleet.nodes()
    model = verifier_of(nodes, options.verifier)
    codec = TextCodec.from_folder(options.tokenizer) if options.tokenizer else client.text(model)
    is_plain = options.is_plain
    if is_plain is None and not codec.has_chat_template:
        screen.notice(f"{model} has no chat template: turns are joined plainly")
        is_plain = True
    render = rendering(codec, model, is_plain=bool(is_plain))
    session = _open(client, model, codec, options, archive_node_of(nodes, options.kv.restorer_node))
    with session:
        first = Branch(1, session, Conversation(codec, render, system=options.system))
        return Chat(typist, screen, options.limits, codec, first).run()


def rendering(codec: TextCodec, model: str, *, is_plain: bool) -> Render:
    """How a conversation becomes text. Raises `CommandFailed` for a model without a template."""
    if is_plain:
        return plain_text
    if not codec.has_chat_template:
        raise CommandFailed(
            "NO_CHAT_TEMPLATE",
            f"{model} has no chat template, so its turns cannot be told apart: "
            "join them plainly with --plain, or use `fleet generate`.",
            metadata={"model": model},
        )

    def render(messages: Sequence[Message]) -> str:
        return codec.render_chat(
            [{"role": each.role, "content": each.content} for each in messages]
        )

    return render


def _open(
    client: Client, model: str, codec: TextCodec, options: ChatOptions, archive_node_id: str
) -> Session:
    return client.create_session(
        model,
        **options.kv.options(archive_node_id),
        stop_token_ids=codec.stop_token_ids,
        client_label=LABEL,
        resume=True,
    )


class Chat:
    """One chat: its sessions, of which `branch` is gone on with."""

    def __init__(
        self,
        typist: Words,
        screen: ChatScreen,
        limits: AnswerLimits,
        codec: TextCodec,
        first: Branch,
    ) -> None:
        self._typist = typist
        self._screen = screen
        self._limits = limits
        self._codec = codec
        self._branches = [first]
        self._branch = first
        self._commands: dict[str, Callable[[str], None]] = {
            "stats": self._stats,
            "fork": self._fork,
            "sessions": self._sessions,
            "undo": self._undo,
            "retry": self._retry,
            "edit": self._edit,
            "system": self._system,
            "save": self._save,
            "help": self._help,
        }

    def run(self) -> int:
        """Reads and answers until the input ends, `/quit`, or Ctrl-C twice at the prompt."""
        if self._typist.is_terminal:
            plan = self._branch.session.plan
            where = plan.verifier.node_name if plan.verifier else self._branch.session.address
            self._screen.notice(
                f"{self._branch.session.model.model_id} on {where}; /help lists the commands"
            )
        self._typist.open()
        try:
            self._read_all()
        finally:
            trouble = self._typist.close()
            for branch in self._branches[1:]:
                branch.session.__exit__(None, None, None)
        if trouble:
            self._screen.notice(trouble)
        return ExitCode.OK

    def _read_all(self) -> None:
        was_interrupted = False
        while True:
            try:
                text = self._typist.read()
                was_interrupted = False
            except KeyboardInterrupt:
                if was_interrupted or not self._typist.is_terminal:
                    return
                was_interrupted = True
                self._screen.notice("\nCtrl-C again, or Ctrl-D, ends the chat")
                continue
            if text is None:
                return
            typed = chat_lines.read(text)
            if typed == chat_lines.Command("quit"):
                return
            if typed is not None:
                self._obey(typed)

    def _obey(self, typed: chat_lines.Said | chat_lines.Command | chat_lines.Unknown) -> None:
        conversation = self._branch.conversation
        asked_count = conversation.turn_count
        try:
            match typed:
                case chat_lines.Said(text):
                    self._answer(text)
                case chat_lines.Command(name, argument):
                    if name in self._commands:
                        self._commands[name](argument)
                case chat_lines.Unknown(message):
                    self._screen.notice(message)
        except KeyboardInterrupt:
            is_question = isinstance(typed, chat_lines.Said)
            self._screen.notice(
                "stopped before the answer began; the question is taken back"
                if is_question
                else "stopped"
            )
        except KakeyaError as error:
            self._tell_resumptions()
            if not self._typist.is_terminal:
                raise
            # A person can mend it and ask again.
            self._screen.notice(f"fleet: {failure_of(error).message}")
            # What has a part of its answer is in the conversation, and not said again.
            if isinstance(typed, chat_lines.Said) and conversation.turn_count == asked_count:
                self._screen.notice(self._typist.keep(chat_lines.as_typed(typed.text)))

    def _answer(self, text: str) -> None:
        branch, screen = self._branch, self._screen
        stream = self._codec.detokenizer(skip_special_tokens=True)

        def show(tokens: Tokens) -> None:
            screen.event("tokens", fields_of(tokens))
            drafted = tokens.drafted_count
            screen.answer(stream.push(tokens.token_ids[:drafted]), drafted=True)
            screen.answer(stream.push(tokens.token_ids[drafted:]), drafted=False)

        line = status_line() if self._typist.is_terminal else None
        try:
            done = ask(branch, text, self._limits, line, show)
        finally:
            screen.answer(stream.flush(), drafted=False)
            screen.end_answer()
        self._tell_resumptions()
        if done is None:
            screen.notice("stopped")
            return
        if done.forgotten_token_count and not branch.told_forgotten:
            branch.told_forgotten = True
            for forgotten in forgotten_lines(done):
                screen.notice(forgotten)
        screen.event("done", {"text": branch.conversation.messages[-1].content, **fields_of(done)})
        if done.stop_reason in (StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL):
            why = {
                StopReason.MAX_TOKENS: "cut after --max-tokens; say more to go on",
                StopReason.CONTEXT_FULL: "the model's positions are used up: /undo or /fork 1",
            }
            screen.notice(why[done.stop_reason])

    def _tell_resumptions(self) -> None:
        branch = self._branch
        for each in branch.session.resumptions[branch.told_resumptions :]:
            self._screen.notice(
                f"the verifier at {each.from_address} was lost ({each.reason}); the session went "
                f"on at {each.to_address} with {each.history_length:,} tokens after "
                f"{seconds_text(each.seconds)}"
            )
        branch.told_resumptions = len(branch.session.resumptions)

    def _stats(self, _argument: str) -> None:
        for line in statistics_of(self._branch):
            self._screen.notice(line)

    def _fork(self, argument: str) -> None:
        conversation = self._branch.conversation
        count = _number(argument, conversation.turn_count, of=conversation.turn_count)
        if count is None:
            self._screen.notice(
                f"/fork takes a number of turns, 0 to {conversation.turn_count}, not {argument}"
            )
            return
        session = self._branch.session.fork()
        number = len(self._branches) + 1
        branch = Branch(number, session, conversation.first_turns(count))
        branch.told_resumptions = len(session.resumptions)
        branch.told_forgotten = self._branch.told_forgotten
        self._branches.append(branch)
        self._branch = branch
        self._screen.notice(f"session {number} goes on after {_turns(count)}; /sessions goes back")

    def _sessions(self, argument: str) -> None:
        if argument:
            number = _number(argument, 0, of=len(self._branches))
            if not number:
                self._screen.notice(f"there is no session {argument}; /sessions lists them")
                return
            self._branch = self._branches[number - 1]
        for branch in self._branches:
            mark = "*" if branch is self._branch else " "
            last = next(
                (
                    each.content
                    for each in branch.conversation.messages[::-1]
                    if each.role == "user"
                ),
                "nothing asked yet",
            )
            speed = f", {speed_text(tokens_per_second(branch.done))}" if branch.done else ""
            self._screen.notice(
                f"{mark} {branch.number}  {branch.session.history_length:,} tokens in "
                f"{_turns(branch.conversation.turn_count)}{speed}: {last[:50]!r}"
            )

    def _undo(self, _argument: str) -> None:
        taken = self._branch.conversation.take_back()
        self._screen.notice(
            NOTHING_ASKED if taken is None else f"taken back: {taken.content[:60]!r}"
        )

    def _retry(self, _argument: str) -> None:
        taken = self._branch.conversation.take_back()
        if taken is None:
            self._screen.notice(NOTHING_ASKED)
        else:
            self._obey(chat_lines.Said(taken.content))

    def _edit(self, _argument: str) -> None:
        taken = self._branch.conversation.take_back()
        self._screen.notice(
            NOTHING_ASKED
            if taken is None
            else self._typist.keep(chat_lines.as_typed(taken.content))
        )

    def _system(self, argument: str) -> None:
        conversation = self._branch.conversation
        if argument:
            conversation.system = argument
        self._screen.notice(f"system: {conversation.system or '(nothing)'}")

    def _save(self, argument: str) -> None:
        if not argument:
            self._screen.notice("/save takes the name of a file")
            return
        path = Path(argument).expanduser()
        messages = self._branch.conversation.messages
        try:
            path.write_text(saved_text(messages, as_json=path.suffix == ".json"), "utf-8")
        except OSError as error:
            self._screen.notice(f"{path} cannot be written: {os.strerror(error.errno or 0)}")
            return
        self._screen.notice(f"{len(messages)} messages are in {path}")

    def _help(self, _argument: str) -> None:
        for line in chat_lines.help_lines():
            self._screen.notice(line)


def saved_text(messages: Sequence[Message], *, as_json: bool) -> str:
    """A conversation for a file: JSON as chat interfaces take it, or text with roles."""
    if as_json:
        told = [{"role": each.role, "content": each.content} for each in messages]
        return json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    return "\n".join(f"## {each.role}\n\n{each.content}\n" for each in messages)


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"


def _number(text: str, default: int, *, of: int) -> int | None:
    """A number from 0 to `of`; the default for no text, None for anything else."""
    if not text:
        return default
    return int(text) if text.isascii() and text.isdigit() and int(text) <= of else None
