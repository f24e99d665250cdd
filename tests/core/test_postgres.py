"""The attempt store on PostgreSQL, where one is at hand: TEST_POSTGRES names it (a SQLAlchemy URL of an empty database)."""

from __future__ import annotations

import os
import threading

import pytest
from scripted import PROBLEM, Scripted, ScriptedJudge

from kernelllm.core.store import Store
from kernelllm.lm.lm_writer import lm_writer
from kernelllm.search import Search

POSTGRES = os.environ.get("TEST_POSTGRES", "")
pytestmark = pytest.mark.skipif(not POSTGRES, reason="TEST_POSTGRES names no database")


def test_a_search_is_stored_and_resumed() -> None:
    with Store(POSTGRES) as store:
        run = store.open_run("optimize", "relu", {"test": "postgres"}, fresh=True)
        run.add_problem(PROBLEM)
        run.add_problem(PROBLEM)

        def attempts() -> tuple[int, list[str]]:
            model = Scripted()
            writer = lm_writer(model)
            writer.attach(store, run=run.id, cache=False)
            found = list(Search(PROBLEM, writer, ScriptedJudge(), strategy="refine", n=3, rounds=2, record=run))
            return len(found), model.asked

        assert attempts()[0] == 6
        assert attempts() == (6, [])
        run.finish()
        assert run.problems() == [PROBLEM]
        info = run.info()
        assert (info.attempts, info.correct, info.tokens, info.state) == (6, 3, 900, "done")
        assert store.run(run.id[:8]).attempts("relu") == run.attempts()
        run.add(run.attempts()[0], replace=True)
        run.remove(run.attempts()[:1])
        assert len(run.attempts()) == 5


def test_threads_share_it() -> None:
    with Store(POSTGRES) as store:
        keys = [f"key-{i % 10}" for i in range(40)]
        threads = [threading.Thread(target=store.put_answer, args=(k, "m", b'{"text": "a"}')) for k in keys]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert store.answer("key-3") == b'{"text": "a"}'
