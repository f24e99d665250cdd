"""Takes the candidate's source out of a model's answer: what was taken, what was mended, or why there is none.

The text is taken exactly as the model wrote it; each mending is small, named, and recorded. Nothing here
runs the code. What cannot be used has a reason in place of a source, never an exception.
"""

from __future__ import annotations

import ast
import html
import re
import textwrap
from collections.abc import Iterable

import msgspec

from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.lm import mend

_THINKING = re.compile(
    r"<(think|thinking|thought|reasoning|analysis)>.*?</\1>|<\|channel\|>analysis<\|message\|>.*?(?:<\|end\|>|(?=<\|channel\|>final))",
    re.DOTALL | re.IGNORECASE,
)
_OPEN_THINKING = re.compile(r"<(think|thinking|thought|reasoning|analysis)>", re.IGNORECASE)
_END_THINKING = re.compile(r"</(think|thinking|thought|reasoning|analysis)>", re.IGNORECASE)
_SPECIAL = re.compile(
    r"<\|(?:eot_id|end_of_text|begin_of_text|im_end|im_start|endoftext|end|start|return|message)\|>(?:assistant)?"
    r"|<\|start_header_id\|>\w*<\|end_header_id\|>|<\|channel\|>final|</s>|<eos>|<end_of_turn>"
)
_FENCE = re.compile(r"^(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$", re.MULTILINE)
_PYTHON_INFO = {"", "python", "python3", "py", "py3", "code", "ipython", "pycon", "plaintext", "text"}
_STARTS = r"^(?:import |from \w[\w.]* import |@(?:torch{})|class \w+|def \w+\(|#!)"
"""A line that begins code; the gap is for libraries whose decorators make kernels."""


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer came to. Either ``source`` or ``reason`` is empty."""

    source: str = ""
    reason: str = ""
    """Why the answer cannot be used."""
    mended: tuple[str, ...] = ()
    """What was changed or chosen, in a few words each."""
    thinking: str = ""

    @property
    def usable(self) -> bool:
        """Whether there is a source to judge."""
        return not self.reason


class _Block(msgspec.Struct, frozen=True):
    """A fenced piece of the answer: its text, the language it names, and whether its fence was closed."""

    text: str
    info: str
    closed: bool


def parse(answer: str, *, cut: bool = False, thinking: str = "", backend: str = DEFAULT_BACKEND) -> Parsed:
    """The candidate in an answer, written in a kernel language. ``cut`` says that the model stopped at its token limit."""
    language = open_backend(backend)
    text = answer.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    text, thought, open_ended = split_thinking(text)
    thought = "\n".join(t for t in (thinking, thought) if t)
    text = _SPECIAL.sub("", text)
    if open_ended:
        return Parsed(reason="The answer ended inside its thinking: raise the token limit.", thinking=thought)
    if not text.strip():
        return Parsed(reason="The answer is empty.", thinking=thought)
    problems: list[str] = []
    try:
        for pieces, notes in _readings(text, language):
            found = _from_pieces(pieces, notes, problems, language)
            if found is not None:
                return msgspec.structs.replace(found, thinking=thought)
    except RecursionError:  # what parses can still be too deep to be written out again
        problems.insert(0, "The code is nested too deeply.")
    reason = problems[0] if problems else "The answer has no Python code."
    if cut and "cut off" not in reason:
        reason = f"The answer was cut off at the token limit. {reason}"
    return Parsed(reason=reason, thinking=thought)


def split_thinking(text: str) -> tuple[str, str, bool]:
    """(answer, thinking, ended inside its thinking) of a text with thinking tags in it."""
    thoughts = [m.group(0) for m in _THINKING.finditer(text)]
    rest = _THINKING.sub("", text)
    ends = list(_END_THINKING.finditer(rest))  # a template may have opened the tag in the prompt: only its end is in the answer
    end = ends[-1] if ends else None
    if end is not None and not _in_code(rest, end.start()):
        thoughts.append(rest[: end.end()])
        rest = rest[end.end() :]
    opened = _OPEN_THINKING.search(rest)
    if opened and not _in_code(rest, opened.start()) and not rest[: opened.start()].strip():
        return "", "\n".join([*thoughts, rest[opened.end() :]]), True
    return rest, "\n".join(_THINKING_TAGS.sub("", t).strip() for t in thoughts), False


_THINKING_TAGS = re.compile(r"</?(?:think|thinking|thought|reasoning|analysis)>|<\|[a-z]+\|>(?:analysis)?", re.IGNORECASE)


def _in_code(text: str, place: int) -> bool:
    """Whether a place lies inside an open fence."""
    return len(_FENCE.findall(text[:place])) % 2 == 1


def clean(answer: str) -> str:
    """The answer with thinking, special tokens and fences removed: for showing an answer that has no usable code."""
    text, _, _ = split_thinking(answer.replace("\r\n", "\n"))
    text = _SPECIAL.sub("", text)
    blocks = [b.text for b in _blocks(text) if b.text.strip()]
    return (max(blocks, key=len) if blocks else text).strip()


# -- where code may be in the text -----------------------------------------------------------------


def _readings(text: str, language: Backend) -> Iterable[tuple[list[_Block], tuple[str, ...]]]:
    """Ways to read the text, the likeliest first: fences, tags, JSON, the bare text."""
    blocks = _blocks(text)
    python = [b for b in blocks if b.info in _PYTHON_INFO | {language.fence} | language.fence_names] or blocks
    if python:
        yield python, ()
    tagged = re.findall(r"<(code|answer|solution|kernel)>\s*(.*?)\s*(?:</\1>|\Z)", text, re.DOTALL | re.IGNORECASE)
    if tagged and not python:
        yield [_Block(body + "\n", "", True) for _, body in tagged], ("taken from tags",)
    from_json = _json_code(text)
    if from_json:
        yield [_Block(from_json, "", True)], ("taken from JSON",)
    if not python:
        yield [_Block(piece, "", True) for piece in _bare(text, language)], () if _parses(text) else ("no fence",)
        unescaped = html.unescape(text)
        if unescaped != text:
            yield _blocks(unescaped) or [_Block(p, "", True) for p in _bare(unescaped, language)], ("HTML entities decoded",)


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks. A fence inside a Python string does not end a block that only parses with it."""
    marks = list(_FENCE.finditer(text))
    blocks: list[_Block] = []
    at = 0
    while at < len(marks):
        start = marks[at]
        closers = [
            i
            for i in range(at + 1, len(marks))
            if marks[i]["fence"][0] == start["fence"][0] and len(marks[i]["fence"]) >= len(start["fence"]) and not marks[i]["info"].strip()
        ]
        bodies = [(i, _body(text, start, marks[i].start())) for i in closers[:6]]
        chosen = next(((i, b) for i, b in bodies if _parses(b)), bodies[0] if bodies else None)
        info = (start["info"].strip().split() or [""])[0].lower().strip("{}.")
        if chosen is None:
            tail, end = _glued_fence(_body(text, start, len(text)))
            blocks.append(_Block(tail, info, end))
            break
        blocks.append(_Block(chosen[1], info, True))
        at = chosen[0] + 1
    return blocks


def _glued_fence(body: str) -> tuple[str, bool]:
    """A closing fence that stands at the end of a line of code rather than on its own."""
    found = re.search(r"[ \t]*`{3,}[ \t]*(?:\n|\Z)", body)
    return (body[: found.start()] + "\n", True) if found else (body, False)


def _body(text: str, start: re.Match[str], end: int) -> str:
    body = text[start.end() + 1 : end]
    indent = start["indent"]
    if indent.strip():  # a quotation: "> " before every line
        body = re.sub(r"^[ \t]*> ?", "", body, flags=re.MULTILINE)
    return textwrap.dedent(body) if indent else body


def _json_code(text: str) -> str:
    """The code in an answer that is a JSON object, or in a JSON block of it."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return ""
    try:
        found = msgspec.json.decode(text[start : end + 1].encode())
    except msgspec.DecodeError:
        return ""
    if not isinstance(found, dict):
        return ""
    texts = [v for v in found.values() if isinstance(v, str) and "class " in v]
    inner = max(texts, key=len, default="").replace("\r\n", "\n")
    blocks = _blocks(inner)
    return blocks[-1].text if blocks else inner


def _bare(text: str, language: Backend) -> Iterable[str]:
    """Runs of lines that parse as Python, in a text with no fence, each from a line that looks like code."""
    dedented = textwrap.dedent(text)
    if _parses(dedented):  # a text with nothing to import or define is prose, or data
        if any(isinstance(n, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef) for n in syntax_tree(dedented).body):
            yield dedented.strip("\n") + "\n"
        return
    lines = text.split("\n")
    at = 0
    starts = re.compile(_STARTS.format("".join(f"|{re.escape(name)}" for name in language.libraries)))
    while at < len(lines):
        if not starts.match(lines[at].lstrip()):
            at += 1
            continue
        piece, used = _longest(lines[at:])
        if piece:
            yield piece
        at += max(used, 1)


def _longest(lines: list[str]) -> tuple[str, int]:
    """The longest run of lines from the first that parses, and how many lines it took."""
    end = len(lines)
    indent = len(lines[0]) - len(lines[0].lstrip())
    for _ in range(80):
        piece = textwrap.dedent("\n".join(lines[:end])) if indent else "\n".join(lines[:end])
        try:
            syntax_tree(piece)
        except mend.UNPARSABLE as error:
            line = (getattr(error, "lineno", None) or end) - 1
            end = min(end - 1, max(line, 0))
            while end > 0 and lines[end : end + 1] and lines[end].startswith((" ", "\t")) and end > line:
                end -= 1
            if end <= 0:
                return "", 1
            continue
        # A line of prose can be Python ("Done"): cut what is neither indented nor looks like code at the end.
        return _trim_prose(piece), end
    return "", 1


def _trim_prose(piece: str) -> str:
    tree = syntax_tree(piece)
    body = list(tree.body)
    while body and isinstance(body[-1], ast.Expr) and isinstance(body[-1].value, (ast.Name, ast.Constant, ast.Tuple, ast.Compare)):
        body.pop()
    if not body:
        return ""
    end = body[-1].end_lineno or 0
    return "\n".join(piece.split("\n")[:end]) + "\n"


def _parses(text: str) -> bool:
    try:
        syntax_tree(text)
    except mend.UNPARSABLE:
        return False
    return True


# -- which of the pieces is the candidate ----------------------------------------------------------


def _from_pieces(blocks: list[_Block], notes: tuple[str, ...], problems: list[str], language: Backend) -> Parsed | None:
    """The last piece that defines ModelNew whole; else pieces joined; else a class renamed. Reasons go to ``problems``."""
    readable: list[tuple[str, tuple[str, ...]]] = []
    broken: list[str] = []
    for block in blocks:
        text, mended, reason = mend.readable(block.text, closed=block.closed)
        if reason:
            broken.append(reason)
            continue
        if not block.closed:
            mended = (*mended, "closing fence missing")
        readable.append((text, mended))
    for index in range(len(readable) - 1, -1, -1):
        text, mended = readable[index]
        if "ModelNew" in mend.classes(text):
            joined, joins = mend.with_earlier(text, [t for t, _ in readable[:index]], language)
            return _finish(joined, (*notes, *mended, *joins), problems, language, several=_versions(readable))
    renamed = _renamed([t for t, _ in readable], problems, language)
    if renamed is not None:
        return _finish(renamed[0], (*notes, *renamed[1]), problems, language)
    problems.extend(broken)
    return None


def _versions(readable: list[tuple[str, tuple[str, ...]]]) -> int:
    return sum("ModelNew" in mend.classes(t) for t, _ in readable)


def _renamed(texts: list[str], problems: list[str], language: Backend) -> tuple[str, tuple[str, ...]] | None:
    """The last piece (or all of them together) whose one module class uses a kernel, named ModelNew."""
    for text in [*reversed(texts), "\n\n".join(texts)]:
        found = mend.module_to_rename(text, language)
        if found:
            joined, joins = mend.with_earlier(text, texts[: texts.index(text)] if text in texts else [], language)
            return mend.rename(joined, found, "ModelNew"), (*joins, f"{found} renamed to ModelNew")
    if texts:
        whole = "\n\n".join(texts)
        if "Model" in mend.classes(whole):
            problems.append("The answer repeats the reference: it has a Model with no kernel and no ModelNew.")
        elif mend.has_kernel(whole, language):
            problems.append("The answer has a kernel and no ModelNew class that uses it.")
        else:
            problems.append("The answer has code and no ModelNew class.")
    return None


def _finish(text: str, mended: tuple[str, ...], problems: list[str], language: Backend, several: int = 1) -> Parsed | None:
    """Last checks and missing imports."""
    fault = mend.incomplete(text)
    if fault:
        problems.append(fault)
        return None
    text, added = mend.with_imports(text, language)
    if several > 1:
        mended = (*mended, f"last of {several} versions")
    return Parsed(source=text.strip("\n") + "\n", mended=(*mended, *(f"added {line!r}" for line in added)))
