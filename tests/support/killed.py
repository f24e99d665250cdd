"""A search in a process of its own, to be killed: ``python killed.py STORE LOG DELAY``."""

from __future__ import annotations

import sys
from pathlib import Path

from scripted import PROBLEM, Scripted, ScriptedJudge

from kernelllm.core.store import Store
from kernelllm.lm.lm_writer import lm_writer
from kernelllm.search import Search

N, ROUNDS = 5, 3


def main(store_path: str, log: str, delay: float) -> None:
    with Store(store_path) as store:
        run = store.open_run("optimize", "relu", {"test": "killed"})
        writer = lm_writer(Scripted(Path(log), delay_s=delay))
        writer.attach(store, run=run.id)
        for _ in Search(PROBLEM, writer, ScriptedJudge(delay), strategy="refine", n=N, rounds=ROUNDS, record=run):
            pass
        run.finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
