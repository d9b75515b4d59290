"""The vocabulary of errors, as error_reason.proto tells it: chapters of reasons, and a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import grpc
from google.protobuf import descriptor_pool, message, message_factory
from google.protobuf.descriptor_pb2 import EnumValueDescriptorProto, FileDescriptorSet

from scripts.write.descriptors import Commented, commented, one_line

ROOT_REASON = "KAKEYA_ERROR"
_PREFIX = "ERROR_REASON_"
_HEADING = "# "
# Number of EnumDescriptorProto.value, and of FileDescriptorProto.enum_type.
_VALUES, _ENUMS = 2, 5
# A first sentence is the first line of a docstring: `    """` + 90 + `"""` within 100.
_SUMMARY_CHARACTERS = 90


@dataclass(frozen=True)
class Reason:
    """One reason: `cause` and `advice` are its comment's sentences before and after `Remedy:`.

    The rest is ErrorReasonOptions, its fields as they stand there.
    """

    name: str
    cause: str
    advice: str
    family: str
    status: str
    http_status: int
    retry_after_seconds: float
    remedy: str
    terminal_remedy: str
    page_remedy: str
    attributes: Mapping[str, str]

    @property
    def class_name(self) -> str:
        """OUT_OF_KV_MEMORY is OutOfKvMemory."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def has_class(self) -> bool:
        """Whether clients have a class of the reason's own."""
        return bool(self.family) or self.name == ROOT_REASON

    @property
    def summary(self) -> str:
        """The first sentence of the cause."""
        return re.split(r"(?<=\.)\s", self.cause, maxsplit=1)[0]

    @property
    def description(self) -> str:
        """The cause after its first sentence; empty for none."""
        return self.cause.removeprefix(self.summary).strip()


@dataclass(frozen=True)
class Chapter:
    """Reasons of one kind, below their heading."""

    title: str
    introduction: str
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class Vocabulary:
    """All reasons, in the order of the file."""

    chapters: Sequence[Chapter]

    @cached_property
    def reasons(self) -> Mapping[str, Reason]:
        """By name."""
        return {each.name: each for chapter in self.chapters for each in chapter.reasons}

    def tree(self, root: str = ROOT_REASON, depth: int = 0) -> Iterator[tuple[int, Reason]]:
        """The clients' classes with their depth below the root, parents before children."""
        yield depth, self.reasons[root]
        for child in self.children(root):
            yield from self.tree(child.name, depth + 1)

    def children(self, name: str) -> list[Reason]:
        """The reasons of a family."""
        return [each for each in self.reasons.values() if each.family == name]

    def status(self, reason: Reason) -> str:
        """The reason's own status of gRPC, or its family's; empty for none."""
        return reason.status or (self.status(self.reasons[reason.family]) if reason.family else "")

    def http_status(self, reason: Reason) -> int:
        """The reason's own status of HTTP, or its family's; 0 for none."""
        if reason.http_status or not reason.family:
            return reason.http_status
        return self.http_status(self.reasons[reason.family])

    def mistakes(self) -> Iterator[str]:
        """What is wrong with the file, a line each."""
        for reason in self.reasons.values():
            if reason.family and reason.family not in self.reasons:
                yield f"{reason.name}: its family {reason.family} is no reason"
            if reason.status and reason.status not in grpc.StatusCode.__members__:
                yield f"{reason.name}: {reason.status} is no status of gRPC"
            if not (reason.advice or reason.remedy or reason.terminal_remedy):
                yield f"{reason.name}: nothing mends it; end its comment with `Remedy:` and a way"
            if reason.has_class and len(reason.summary) > _SUMMARY_CHARACTERS:
                yield f"{reason.name}: its first sentence has over {_SUMMARY_CHARACTERS} characters"


def read(described: FileDescriptorSet) -> Vocabulary:
    """The vocabulary of a compiled contract. Raises SystemExit where it is wrong."""
    file = next(
        each for each in commented(described) if each.file.name.endswith("error_reason.proto")
    )
    vocabulary = Vocabulary(tuple(_chapters(file, _Options(described))))
    mistakes = list(vocabulary.mistakes())
    if mistakes:
        raise SystemExit("\n".join(["error_reason.proto is wrong:", *mistakes]))
    return vocabulary


class _Options:
    """Reads ErrorReasonOptions by the contract's own descriptors, not by stubs of another day."""

    def __init__(self, described: FileDescriptorSet) -> None:
        pool = descriptor_pool.DescriptorPool()
        for file in described.file:
            pool.Add(file)
        options = pool.FindMessageTypeByName("google.protobuf.EnumValueOptions")
        self._kind = message_factory.GetMessageClass(options)
        self._extension = pool.FindExtensionByName("kakeya.v1.error")

    def of(self, value: EnumValueDescriptorProto) -> message.Message:
        """The options of a value; those that it has not are empty."""
        options = self._kind.FromString(value.options.SerializeToString())
        # The stubs know extensions of generated modules only.
        found: message.Message = options.Extensions[self._extension]  # type: ignore[index]
        return found


def _chapters(file: Commented, options: _Options) -> Iterator[Chapter]:
    title = introduction = ""
    reasons: list[Reason] = []
    for index, value in enumerate(file.file.enum_type[0].value):
        path = (_ENUMS, 0, _VALUES, index)
        heading = next(
            (text for each in file.detached[path] if (text := each.strip()).startswith(_HEADING)),
            "",
        )
        if heading:
            if title:
                yield Chapter(title, introduction, reasons)
            title, _, introduction = heading.removeprefix(_HEADING).partition("\n")
            reasons = []
        if value.number:
            reasons.append(_reason(value, file.comments[path], options.of(value)))
    yield Chapter(title, one_line(introduction), reasons)


def _reason(value: EnumValueDescriptorProto, comment: str, options: message.Message) -> Reason:
    cause, _, advice = one_line(comment).partition(" Remedy: ")
    fields = {field.name: getattr(options, field.name) for field in options.DESCRIPTOR.fields}
    return Reason(value.name.removeprefix(_PREFIX), cause, advice, **fields)
