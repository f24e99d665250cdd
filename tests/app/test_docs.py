"""What the documents say is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from reference_pages import PAGES

from kernelllm.app.main import COMMANDS, cli
from kernelllm.core import registry


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(name: str, root: Path) -> None:
    assert (root / "docs" / "reference" / name).read_text() == PAGES[name](), "run `make docs`"


def documents(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_links_between_documents_lead_somewhere(root: Path) -> None:
    for page in documents(root):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", prose(page)):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.relative_to(root)} links to {target}, which is not there"
            assert not anchor or anchor in anchors(there), f"{page.relative_to(root)} links to {target}#{anchor}, which is not there"


def test_files_that_documents_name_are_there(root: Path) -> None:
    """A path such as ``judge/verdict.py`` is one below src/kernelllm or below the root; ``x`` stands for a name of one's own."""
    package = root / "src" / "kernelllm"
    for page in documents(root):
        for path in re.findall(r"`((?:\w+/)+\w+\.\w+)`", prose(page)):
            own = re.search(r"\bx\b", path) or path.startswith("candidates/")
            there = any((folder / path).exists() for folder in (root, package, package / page.stem))  # compiler.md speaks of compiler/
            assert own or there, f"{page.relative_to(root)} names {path}, which is not there"
    names = {path.name for folder in (package, root / "tests") for path in folder.rglob("*.py")}
    for page in (root / "docs" / "explanation").glob("*.md"):
        assert set(re.findall(r"`(\w+\.py)`", prose(page))) <= names, page


def test_every_benchmark_is_documented_and_there_are_few(root: Path) -> None:
    scripts = {path.name for path in (root / "benchmarks").glob("*.py")}
    rows = set(re.findall(r"^\| `(\w+\.py)", (root / "docs" / "how-to" / "benchmark.md").read_text(), re.MULTILINE))
    assert scripts == rows
    assert len(scripts) <= 6


def test_examples_and_benchmarks_that_documents_name_are_there(root: Path) -> None:
    for page in documents(root):
        for path in re.findall(r"\b(?:examples|benchmarks)/[\w./]*\w", page.read_text()):
            assert (root / path).exists(), f"{page.relative_to(root)} names {path}, which is not there"


def test_the_index_lists_every_page(root: Path) -> None:
    index = root / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", prose(index))}
    assert linked >= {page for page in documents(root) if page not in (index, root / "README.md")}


def test_no_sentence_of_the_readme_has_many_figures(root: Path) -> None:
    lines = [line for line in prose(root / "README.md").splitlines() if not line.startswith("|")]
    for sentence in re.split(r"(?<=[.:])\s", " ".join(lines)):
        assert len(re.findall(r"(?<![\w.])\d[\d.,]*", sentence)) <= 4, sentence


def test_commands_in_documents_exist_with_their_options(root: Path) -> None:
    """Every ``kernelllm VERB ... --option``, in a code block or in a sentence, is a verb and an option of this program."""
    runner = CliRunner()
    helps = {verb: runner.invoke(cli, [verb, "--help"]).output for verb in COMMANDS}
    for verb in COMMANDS:
        command = cli.get_command(click.Context(cli), verb)
        for below in command.commands if isinstance(command, click.Group) else ():
            helps[verb] += runner.invoke(cli, [verb, below, "--help"]).output
    for page in documents(root):
        if page.parent.name == "reference":
            continue
        shown = re.findall(r"```(?:console|sh|bash)\n(.*?)```", page.read_text(), flags=re.DOTALL)
        for line in [line for block in shown for line in block.splitlines()] + re.findall(r"`(kernelllm [^`]+)`", prose(page)):
            found = re.match(r"\$? ?kernelllm ([a-z]+)(.*)", line)
            if found is None:
                continue
            verb, rest = found.groups()
            assert verb in COMMANDS, f"{page.relative_to(root)}: {line}"
            for option in re.findall(r"(?<=\s)(--[a-z-]+)", rest.split("#")[0]):
                assert option in helps[verb] or option == "--help", f"{page.relative_to(root)}: {verb} has no {option}"


def test_readme_tree_is_the_repository(root: Path) -> None:
    """Each path of the README's tree exists, and each package and each folder of the backends, the compiler and the judge has its line."""
    text = (root / "README.md").read_text()
    tree = re.search(r"```text\n(kernelllm/\n.*?)```", text, flags=re.DOTALL)
    assert tree is not None
    stack: list[str] = []
    named = set()
    for line in tree.group(1).splitlines()[1:]:
        found = re.match(r"( *)(\S+) +\S", line)
        assert found is not None, line
        depth = len(found.group(1)) // 2
        stack[depth - 1 :] = [found.group(2)]
        named.add(root.joinpath(*stack))
    assert [path for path in named if not path.exists()] == []
    package = root / "src" / "kernelllm"
    folders = {file.parent for pattern in ("*", "backends/*", "compiler/*", "judge/*") for file in package.glob(f"{pattern}/__init__.py")}
    assert folders <= named


def test_readme_names_every_verb(root: Path) -> None:
    table = re.search(r"\| command \| does \|\n(.*?)\n\n", (root / "README.md").read_text(), flags=re.DOTALL)
    assert table is not None
    first = " ".join(line.split("|")[1] for line in table.group(1).splitlines())
    assert set(re.findall(r"`(\w+)`", first)) == set(COMMANDS)


def test_the_page_on_checks_has_every_check(root: Path) -> None:
    page = (root / "docs" / "explanation" / "checks.md").read_text()
    for name in registry.names("checks"):
        check = registry.resolve("checks", name)
        source, observed = ("yes" if hasattr(check, kind) else "" for kind in ("source", "observed"))
        assert f"| `{name}` | {check.describe} | {source} | {observed} |\n" in page
