"""Parsing from several threads at once, as a judge does."""

from __future__ import annotations

import ast
import gc
import threading
import time

import pytest

from kernelllm.core.text import syntax_tree

TEXT = "x = [" + ", ".join(f"(a{i} + {i}, f(b{i}))" for i in range(400)) + "]\n"


def test_threads_do_not_disturb_each_other() -> None:
    failed: list[BaseException] = []

    def work(depth: int) -> None:
        if depth:
            return work(depth - 1)
        try:
            for _ in range(20):
                syntax_tree(TEXT)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is wrong
            failed.append(error)

    def switch(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(switch)  # what lets another thread go on in the middle of a tree
    try:
        threads = [threading.Thread(target=work, args=(depth,)) for depth in (1, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(switch)
        gc.set_threshold(*before)
    assert failed == []


def test_trees_and_errors_are_those_of_ast() -> None:
    assert ast.dump(syntax_tree(TEXT)) == ast.dump(syntax_tree(TEXT))
    assert isinstance(syntax_tree("1 + 1", "eval"), ast.Expression)
    with pytest.raises(SyntaxError):
        syntax_tree("def f(:")
