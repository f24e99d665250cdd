"""A byte-level BPE for PyTorch and Triton source: digits stand alone, a line's indentation is one token.

Kernels repeat whole lines and whole functions. The most frequent ones are tokens of their own, so that an answer takes a
fraction of the tokens and of the draws that can go wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kernelllm.core.types import digest
from kernelllm.models.extras import need

END: Final = "<|end|>"
PAD: Final = "<|pad|>"
SPECIAL: Final = (PAD, END, "<|module|>", "<|kernel|>", "<|verdict|>")
"""The last three part a prompt, as the template ``mini`` writes it."""
_ENDINGS: Final = r"_(?:ptr|size|index|out|acc|kernel|weight|bias)(?![A-Za-z])"
PIECES: Final = (
    rf"\n[ \n]*| ?(?:b?float|u?int)(?:8|16|32|64)\b|\d|{_ENDINGS}| ?[A-Za-z_]+?(?={_ENDINGS})| ?[A-Za-z_]+| ?[^\s\w]+| +|\s|\w"
)
"""What merges never cross: a line's end with the next indentation, a type, one digit, a name (of the module, then what a kernel's
file puts behind it), a run of other characters."""
_NUMBER: Final = re.compile(r"(?<![\w.])\d[\d.]*")
_SHORTEST: Final = 12
"""Characters of a line that is worth a token."""
_FORWARD: Final = re.compile(r"def forward\(self, ([^)]*)\)")
_GAP: Final = "\n\n\n"
"""Between the functions and classes of a file."""
_HEAD: Final = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
_SIGNATURE: Final = re.compile(r"^\n *(?:@|def |class )|\]\(|\w+\[.*\]\s*\(")
"""Lines that tell the arguments of a function or a kernel."""
_ALIKE: Final = 0.9
"""Share of the functions of one name that are the same text, from which on that is one token."""
_LONG: Final = 40
_SHARE, _COMMON = 0.01, 0.25
"""Shares of the other functions that have a line in common: of a long one, and of any."""
_LINES: Final = 100_000
"""Different lines that are looked at, the most frequent first."""


def trained(texts: Iterable[str], vocabulary: int, blocks: Sequence[str] = ()) -> Any:
    """A tokenizer of transformers with ``vocabulary`` tokens at most, ``blocks`` among them. Raises MissingExtra."""
    tokenizers = need("tokenizers", "train")
    transformers = need("transformers", "train")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(PIECES), behavior="isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary - len(blocks), special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(texts, trainer)
    made.add_tokens([tokenizers.AddedToken(block, normalized=False) for block in blocks])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=PAD, eos_token=END, additional_special_tokens=list(SPECIAL[2:]), clean_up_tokenization_spaces=False
    )


def frequent_blocks(texts: Sequence[str], most: int, least: int = 8) -> list[str]:
    """Up to ``most`` runs of lines, each with the line's end before it, that stand in at least ``least`` places: where they save most.

    A line that also stands with other numbers is none of them: the model has to see the number that it copies.
    Lines are joined as BPE joins characters: each frequent line becomes a character, and a tokenizer is trained on these.
    """
    tokenizers = need("tokenizers", "train")
    lines = [["\n" + line for line in text.split("\n")][1:] for text in texts]
    found = Counter(line for text in lines for line in text)
    ways = Counter(_NUMBER.sub("0", line) for line in found)
    kept = [line for line, count in found.most_common(_LINES) if count >= least and ways[_NUMBER.sub("0", line)] == 1]
    names = {line: chr(0x10000 + number) for number, line in enumerate(kept)}
    own = {name: line for line, name in names.items()}
    words = [word for text in lines for word in "".join(names.get(line, " ") for line in text).split(" ") if word]
    joined = tokenizers.Tokenizer(tokenizers.models.BPE())
    joined.train_from_iterator(
        words, tokenizers.trainers.BpeTrainer(vocab_size=len(names) + 2 * most, min_frequency=least, show_progress=False)
    )
    used = Counter(token for one in joined.encode_batch(words) for token in one.tokens if len(token) > 1)
    blocks = {"".join(own[name] for name in token): count for token, count in used.items() if count >= least}
    chosen = _worthiest({line: found[line] for line in kept}, most * 2 // 3)
    return sorted({*chosen, *_worthiest(blocks, most - len(chosen))})


def shared_parts(texts: Sequence[str], most: int, least: int = 8) -> list[str]:
    """Up to ``most`` functions, each with the gap before it, that all files have alike which have one of that name, and lines that
    files' other functions have in common: where they save most.

    What a file has of its own (a kernel with its steps, the forward) stays in small pieces, each of which says one thing: which operator
    comes next is seen in as many examples as there are, whatever stands around it.
    """
    files = [text.rstrip("\n").split(_GAP)[1:] for text in texts]
    found = Counter(part for parts in files for part in parts)
    named: Counter[str] = Counter()
    for part, count in found.items():
        named[_name_of(part)] += count
    alike = {p: n for p, n in found.items() if n >= least and _name_of(p) not in ("", "ModelNew") and n >= _ALIKE * named[_name_of(p)]}
    own = [part for parts in files for part in parts if part not in alike and _name_of(part) != "ModelNew"]
    lines = Counter(line for part in own for line in {f"\n{line}" for line in part.split("\n")[1:]})
    ways = Counter(_NUMBER.sub("0", line) for line in lines)
    kept = {
        line: count for line, count in lines.items()
        if count >= max(least, _SHARE * len(own)) and (len(line) >= _LONG or count >= _COMMON * len(own))
        and ways[_NUMBER.sub("0", line)] == 1 and not _SIGNATURE.search(line)
    }  # fmt: skip
    chosen = _worthiest({_GAP + part: count for part, count in alike.items()}, most)
    return sorted({*chosen, *_worthiest(kept, most - len(chosen))})


def _name_of(part: str) -> str:
    head = _HEAD.search(part)
    return head[1] if head else ""


def without_own_names(answer: str, module: str) -> str:
    """An answer with other, single lines where it names the forward's arguments: such names are to be copied a piece at a time."""
    found = _FORWARD.search(module)
    names = [part.partition("=")[0].partition(":")[0].strip("* ") for part in found[1].split(",")] if found else []
    if not any(names):
        return answer
    named = re.compile(rf"(?<![A-Za-z_.])(?:{'|'.join(filter(None, names))})(?![A-Za-z])(?!_(?!ptr|size))")
    lines = answer.split("\n")
    return "\n".join(f"{digest(answer)} {i}" if named.search(line) else line for i, line in enumerate(lines))


def _worthiest(counts: dict[str, int], most: int) -> list[str]:
    worth = {text: count * len(text) for text, count in counts.items() if len(text.strip()) >= _SHORTEST}
    return sorted(worth, key=lambda text: (-worth[text], text))[:most]
