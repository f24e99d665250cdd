"""What the documents say is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kernelllm.app.main import COMMANDS, cli
from kernelllm.app.reference_pages import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(name: str, root: Path) -> None:
    assert (root / "docs" / "reference" / name).read_text() == PAGES[name](), "run `make docs`"


def documents(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def test_links_between_documents_lead_somewhere(root: Path) -> None:
    for page in documents(root):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(root)} links to {target}, which is not there"


def test_commands_in_documents_exist_with_their_options(root: Path) -> None:
    """Every ``kernelllm VERB ... --option`` in a code block is a verb and an option of this program."""
    runner = CliRunner()
    helps = {verb: runner.invoke(cli, [verb, "--help"]).output for verb in COMMANDS}
    for verb in COMMANDS:
        command = cli.get_command(click.Context(cli), verb)
        for below in command.commands if isinstance(command, click.Group) else ():
            helps[verb] += runner.invoke(cli, [verb, below, "--help"]).output
    for page in documents(root):
        if page.parent.name == "reference":
            continue
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", page.read_text(), flags=re.DOTALL):
            for line in block.splitlines():
                found = re.match(r"\$? ?kernelllm ([a-z]+)(.*)", line)
                if found is None:
                    continue
                verb, rest = found.groups()
                assert verb in COMMANDS, f"{page.relative_to(root)}: {line}"
                for option in re.findall(r"(?<=\s)(--[a-z-]+)", rest.split("#")[0]):
                    group = helps[verb]
                    assert option in group or option == "--help", f"{page.relative_to(root)}: {verb} has no {option}"


def test_readme_tree_names_what_is_there(root: Path) -> None:
    """Each path of the README's tree exists."""
    text = (root / "README.md").read_text()
    tree = re.search(r"```text\n(kernelllm/\n.*?)```", text, flags=re.DOTALL)
    assert tree is not None
    stack: list[str] = []
    for line in tree.group(1).splitlines()[1:]:
        found = re.match(r"( *)(\S+)", line)
        if found is None:
            continue
        depth = len(found.group(1)) // 2
        stack[depth - 1 :] = [found.group(2)]
        assert root.joinpath(*stack).exists(), f"the README names {'/'.join(stack)}"


def test_readme_names_every_verb(root: Path) -> None:
    table = re.search(r"\| command \| does \|\n(.*?)\n\n", (root / "README.md").read_text(), flags=re.DOTALL)
    assert table is not None
    first = " ".join(line.split("|")[1] for line in table.group(1).splitlines())
    assert set(re.findall(r"`(\w+)`", first)) == set(COMMANDS)
