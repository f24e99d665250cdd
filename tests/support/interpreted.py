"""Scripts with Triton's interpreter, each in a fork of one process: importing torch and Triton takes longer than most of them.

``python interpreted.py`` is that process. It reads a line of JSON for each script and answers with another.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import NoReturn

from kernelllm.core.garbage_collection import collect_seldom

WARM = (
    "hypothesis", "torch", "torch._subclasses.schema_check_mode", "torch.utils.flop_counter", "triton.language.extra.cuda.libdevice",
    "triton.language.extra.libdevice", "kernelllm.backends.triton.emulator.driver", "kernelllm.backends.triton.emulator.interpreter",
    "kernelllm.judge.worker.setup", "kernelllm.judge.worker.fake_cuda", "kernelllm.judge.worker.worker_main",
    "kernelllm.judge.worker.fake_run", "kernelllm.judge.worker.sampled_run", "kernelllm.problems.instance",
)  # fmt: skip
"""What scripts import; none of it changes torch or Triton by being imported."""


def run(script: str | Path, *arguments: str, timeout_s: float = 300) -> str:
    """The standard output of a script, a file or its text, in a process of its own. It must end without an error."""
    served = _process()
    assert served.stdin is not None
    assert served.stdout is not None
    path, text = (str(script), script.read_text(encoding="utf-8")) if isinstance(script, Path) else ("", script)
    served.stdin.write(json.dumps([path, text, arguments]) + "\n")
    served.stdin.flush()
    assert select.select([served.stdout], [], [], timeout_s)[0], f"no answer in {timeout_s} s"
    code, out, err = json.loads(served.stdout.readline())
    assert code == 0, out[-3000:] + err[-3000:]
    return str(out)


@cache
def _process() -> subprocess.Popen[str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    served = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(served.kill)
    return served


def _serve() -> None:
    gc.disable()
    for name in WARM:
        __import__(name)
    gc.freeze()  # no fork looks through it, or copies it by doing so
    gc.enable()
    collect_seldom()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        path, text, arguments = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                _child(path, text, arguments)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            told = [file.seek(0) or file.read().decode() for file in (out, err)]
        answers.write(json.dumps([code, *told]) + "\n")
        answers.flush()


def _child(path: str, text: str, arguments: list[str]) -> NoReturn:
    code = 1
    try:
        sys.argv = [path, *arguments]
        if path:
            sys.path.insert(0, str(Path(path).parent))
        exec(compile(text, path or "<script>", "exec"), {"__name__": "__main__", "__file__": path})
        code = 0
    except BaseException:  # noqa: BLE001 - told in the answer
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
