"""The sandbox from inside: each attack is tried for real in a confined child, and must be denied."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kernelllm.core.errors import SandboxError, UnknownName
from kernelllm.judge.isolation import allowed_paths, folders, landlock, sandbox, seccomp
from kernelllm.judge.isolation.limits import SIZE, Limits, Spawn
from kernelllm.judge.isolation.sandbox import Level, Policy, Strength
from kernelllm.judge.worker import server
from kernelllm.judge.worker.server import Watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="candidates are confined on Linux only")
HERE = sandbox.available()
needs = {
    Level.LIMITS: pytest.mark.skipif(HERE.level is Level.NONE, reason="no limits can be set here"),
    Level.FILESYSTEM: pytest.mark.skipif(HERE.level in (Level.NONE, Level.LIMITS), reason=f"files cannot be confined here: {HERE}"),
    Level.FULL: pytest.mark.skipif(HERE.level is not Level.FULL, reason=f"network and processes cannot be confined here: {HERE}"),
}
MIB = 2**20


def inside(folder: Path, attack: Callable[[], object], *, as_user: int | None = None, **changes: object) -> str:
    """What ``attack`` came to in a confined child: its result, the name of its exception, or ``signal N``."""
    folder.mkdir(exist_ok=True)
    policy = sandbox.policy(folder)
    read_end, write_end = os.pipe()
    policy = msgspec.structs.replace(policy, keep=(0, 1, 2, write_end), **changes)
    pid = os.fork()
    if pid == 0:
        answer = "nothing"
        try:
            if as_user is not None:
                os.chown(folder, as_user, as_user)
                os.setresgid(as_user, as_user, as_user)
                os.setresuid(as_user, as_user, as_user)
                policy = msgspec.structs.replace(policy, uid=None)
            sandbox.apply(policy)
            answer = str(attack())
        except BaseException as error:  # noqa: BLE001 - whatever the attack came to is the answer
            answer = type(error).__name__
        finally:
            os.write(write_end, answer.encode())
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        answer = stream.read().decode()
    _, status = os.waitpid(pid, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else answer


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home like a user's, with a key in it."""
    keys = tmp_path / "home" / ".ssh"
    keys.mkdir(parents=True)
    (keys / "id_ed25519").write_text("secret")
    return tmp_path / "home"


def test_a_worker_can_do_its_work(tmp_path: Path) -> None:
    def work() -> object:
        Path("kernel.c").write_text("int f(void) { return 7; }")
        with tempfile.NamedTemporaryFile() as file:
            assert file.name.startswith(str(tmp_path))
        return len(Path("/proc/self/status").read_text()) > 5 and Path("/dev/null").exists()

    assert inside(tmp_path / "work", work) == "True"


@needs[Level.FULL]
def test_no_connection_to_a_server_on_this_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert inside(tmp_path / "work", lambda: socket.create_connection(("127.0.0.1", port), timeout=2)) == "PermissionError"
    assert inside(tmp_path / "work", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) == "PermissionError"
    assert inside(tmp_path / "work", lambda: socket.socket(socket.AF_UNIX)) == "PermissionError"


@needs[Level.FILESYSTEM]
def test_nothing_of_the_user_can_be_read(tmp_path: Path, home: Path) -> None:
    assert inside(tmp_path / "work", lambda: (home / ".ssh" / "id_ed25519").read_text()) == "PermissionError"
    assert inside(tmp_path / "work", lambda: list(home.iterdir())) == "PermissionError"
    assert inside(tmp_path / "work", lambda: Path("/etc/shadow").read_bytes()) == "PermissionError"
    assert inside(tmp_path / "work", lambda: list(Path("/dev/shm").iterdir())) == "PermissionError"


@needs[Level.FILESYSTEM]
def test_the_judges_files_and_memory_are_out_of_reach(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text("{}")
    judge = os.getpid()
    assert inside(tmp_path / "work", results.read_text) == "PermissionError"
    assert inside(tmp_path / "work", lambda: results.write_text("forged")) == "PermissionError"
    assert inside(tmp_path / "work", lambda: results.unlink()) == "PermissionError"
    for name in ("mem", "environ", "maps", "fd", "cmdline"):
        target = Path(f"/proc/{judge}/{name}")
        look = (lambda target=target: list(target.iterdir())) if name == "fd" else (lambda target=target: target.open("rb"))
        assert inside(tmp_path / "work", look) == "PermissionError"
    assert results.read_text() == "{}"


@needs[Level.FILESYSTEM]
def test_nothing_is_written_outside_the_folder(tmp_path: Path, home: Path) -> None:
    assert inside(tmp_path / "work", lambda: (home / "new").write_text("x")) == "PermissionError"
    assert inside(tmp_path / "work", lambda: (tmp_path / "new").mkdir()) == "PermissionError"
    assert inside(tmp_path / "work", lambda: Path("/tmp/kernelllm-outside").write_text("x")) == "PermissionError"
    assert inside(tmp_path / "work", lambda: os.link("/usr/bin/env", "env")) in ("PermissionError", "OSError")
    link = Path("link")

    def through_a_link() -> object:
        link.symlink_to(home / "new")
        return link.write_text("x")

    assert inside(tmp_path / "work", through_a_link) == "PermissionError"
    assert not (home / "new").exists()


@needs[Level.FULL]
def test_metadata_of_other_files_stays(tmp_path: Path, home: Path) -> None:
    before = home.stat().st_mode
    inside(tmp_path / "work", lambda: home.chmod(0))
    assert home.stat().st_mode == before


@needs[Level.FULL]
def test_the_parent_cannot_be_killed_or_traced(tmp_path: Path) -> None:
    judge = os.getpid()
    assert inside(tmp_path / "work", lambda: os.kill(judge, signal.SIGTERM)) == "PermissionError"
    assert inside(tmp_path / "work", lambda: os.killpg(os.getpgid(judge), 0)) in ("PermissionError", "ProcessLookupError")
    assert inside(tmp_path / "work", lambda: os.setsid()) == "PermissionError"

    def trace() -> object:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        return libc.ptrace(16, judge, 0, 0), libc.unshare(0x10000000), libc.prctl(4, 1, 0, 0, 0)

    assert inside(tmp_path / "work", trace) == "(-1, -1, -1)"


@needs[Level.LIMITS]
def test_limits_of_the_judge_cannot_be_changed(tmp_path: Path) -> None:
    import resource

    judge = os.getpid()
    if HERE.level is Level.FULL:
        assert inside(tmp_path / "work", lambda: resource.prlimit(judge, resource.RLIMIT_CORE, (0, 0))) == "PermissionError"
    assert inside(tmp_path / "work", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))) == "ValueError"


@needs[Level.LIMITS]
def test_a_fork_bomb_is_bounded(tmp_path: Path) -> None:
    if not any("processes" in part for part in HERE.active if part.startswith("limits")):
        pytest.skip(f"processes cannot be counted here: {HERE}")

    def bomb() -> object:
        children = []
        try:
            for _ in range(200):
                pid = os.fork()
                if pid == 0:
                    time.sleep(30)
                    os._exit(0)
                children.append(pid)
        except OSError as error:
            return type(error).__name__
        finally:
            for pid in children:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return "unbounded"

    assert inside(tmp_path / "work", bomb, processes=20) == "BlockingIOError"


@needs[Level.LIMITS]
def test_sizes_are_limited(tmp_path: Path) -> None:
    def big_file() -> object:
        with Path("big").open("wb") as file:
            file.seek(8 * MIB)
            file.write(b"x")
        return "written"

    def big_memory() -> object:  # not by malloc, which may have as much free from earlier tests
        return len(mmap.mmap(-1, 512 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    assert inside(tmp_path / "work", big_file, file_bytes=4 * MIB) == "OSError"
    assert inside(tmp_path / "work", big_memory, memory_bytes=64 * MIB) == "OSError"
    assert inside(tmp_path / "work", big_memory, memory_bytes=1024 * MIB) == str(512 * MIB)


@needs[Level.FULL]
def test_memory_that_no_limit_counts_cannot_be_had(tmp_path: Path) -> None:
    def of_zero() -> object:
        with Path("/dev/zero").open("rb") as file:
            return mmap.mmap(file.fileno(), MIB, mmap.MAP_SHARED, mmap.PROT_READ)

    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    assert inside(tmp_path / "work", lambda: os.memfd_create("hoard")) == "PermissionError"
    assert inside(tmp_path / "work", lambda: mmap.mmap(-1, MIB)) == "PermissionError"
    assert inside(tmp_path / "work", of_zero) == "PermissionError"
    assert inside(tmp_path / "work", socket.socketpair) == "PermissionError"
    assert inside(tmp_path / "work", lambda: len(mmap.mmap(-1, MIB, private))) == str(MIB)
    assert inside(tmp_path / "work", lambda: [os.pipe() for _ in range(1000)]) == "OSError"


def test_shared_memory_is_counted() -> None:
    own, shared = server.memory(os.getpid())
    with mmap.mmap(-1, 64 * MIB) as hoard:
        hoard.write(bytes(64 * MIB))
        assert server.memory(os.getpid())[1] - shared >= 64 * MIB
    assert own > 0
    assert server.memory(2**22 + 1) == (0, 0)


def _watched(folder: Path, shared: int, arenas: int) -> str:
    """Why a supervisor ended a worker that fills ``shared`` bytes of shared memory, where ``arenas`` of them were announced."""
    out, leash = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with mmap.mmap(-1, shared) as hoard:
            hoard.write(bytes(shared))
            signal.sigtimedwait([signal.SIGUSR1], 0.2 if arenas else 60)
        os._exit(0)
    os.write(leash[1], SIZE.pack(arenas))
    watcher = Watcher(pid, out[0], leash[0], Spawn(str(folder), Limits(memory_bytes=shared // 2)))
    watcher.watch()
    return watcher.reason or "it ended by itself"


def test_shared_memory_beyond_the_limit_ends_a_worker(tmp_path: Path) -> None:
    def in_a_child(arenas: int) -> str:  # whose only child is the worker
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write_end, _watched(tmp_path, 256 * MIB, arenas).encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as stream:
            answer = stream.read()
        os.waitpid(pid, 0)
        return answer

    assert in_a_child(0) == "memory"
    assert in_a_child(256 * MIB) == "it ended by itself"


def _nest(folder: Path, depth: int) -> None:
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(depth):
            Path("inner").mkdir()
            Path("file").write_text("x")
            Path("link").symlink_to("/etc")
            os.chdir("inner")
    finally:
        os.fchdir(back)
        os.close(back)


def test_folders_are_removed_whatever_is_in_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "work"
    (folder / "unreadable").mkdir(parents=True)
    (folder / "unreadable" / "file").touch()
    (folder / "unreadable").chmod(0)
    (folder / "readonly" / "inner").mkdir(parents=True)
    (folder / "readonly" / "inner").chmod(0o500)
    (folder / "readonly").chmod(0o500)
    _nest(folder, 3000)
    folders.remove(folder)
    folders.remove(folder)  # what is gone is no error
    assert not folder.exists()
    assert not caplog.records


def test_a_folder_that_cannot_be_removed_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError("not yours")

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").touch()
    monkeypatch.setattr(os, "unlink", refuse)
    folders.remove(tmp_path / "work")
    assert "not yours" in caplog.text


def test_what_a_folder_holds(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(bytes(MIB))
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    size, files = folders.usage(str(tmp_path), 100)
    assert (size >= MIB, files) == (True, 4)
    assert folders.usage(str(tmp_path), 3)[1] == 4  # too many
    _nest(tmp_path, 100)
    assert folders.usage(str(tmp_path), 1000)[1] == 1001  # too deep
    folders.remove(tmp_path)


def test_a_compiler_below_the_home_opens_its_own_parts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = tmp_path / ".local"
    for part in ("bin", "lib", "share/keyrings", "state"):
        (local / part).mkdir(parents=True)
    compiler = local / "bin" / "mycc"
    compiler.write_text("#!/bin/sh")
    compiler.chmod(0o755)
    for name, value in {
        "HOME": str(tmp_path),
        "CC": str(compiler),
        "CUDA_HOME": str(local),
        "LD_LIBRARY_PATH": f"{local}:{tmp_path}",
    }.items():
        monkeypatch.setenv(name, value)
    places = allowed_paths.readable.__wrapped__()
    mine = {place for place in places if Path(place).is_relative_to(tmp_path)}
    assert mine == {str(local / "bin"), str(local / "lib")}
    assert not any(tmp_path.is_relative_to(place) for place in places)


@needs[Level.LIMITS]
def test_processor_time_is_limited(tmp_path: Path) -> None:
    def spin() -> object:
        while True:
            pass

    assert inside(tmp_path / "work", spin, cpu_s=1) in (f"signal {int(signal.SIGXCPU)}", f"signal {int(signal.SIGKILL)}")


@needs[Level.LIMITS]
def test_descriptors_and_variables_do_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with (tmp_path / "open").open("w") as held:
        descriptor = held.fileno()
        assert inside(tmp_path / "work", lambda: os.fstat(descriptor)) == "OSError"
    assert inside(tmp_path / "work", lambda: "secret" in os.environ.values()) == "False"
    assert inside(tmp_path / "work", lambda: os.environ["HOME"]) == str(tmp_path / "work")
    assert "secret" not in allowed_paths.clean_environment("/x").values()


@needs[Level.FILESYSTEM]
def test_a_plain_user_is_confined_as_well() -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests ran as a plain user already")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        key = folder / "key"
        key.write_text("secret")
        key.chmod(0o666)
        assert inside(folder / "work", key.read_text, as_user=65_534) == "PermissionError"
        assert inside(folder / "work", lambda: key.write_text("x"), as_user=65_534) == "PermissionError"
        assert inside(folder / "work", lambda: os.kill(os.getppid(), 0), as_user=65_534) == "PermissionError"
        assert inside(folder / "work", lambda: socket.socket(), as_user=65_534) == "PermissionError"
        assert inside(folder / "work", lambda: Path("mine").write_text("x"), as_user=65_534) == "1"


def test_strength_is_told_and_required() -> None:
    assert str(HERE).startswith(HERE.level.value)
    HERE.require(HERE.level.value)
    weak = Strength(level=Level.LIMITS, missing=("Install bubblewrap.",))
    with pytest.raises(SandboxError, match="Install bubblewrap"):
        weak.require("full")
    with pytest.raises(UnknownName, match="filesystem"):
        weak.require("fortress")


def test_a_judge_refuses_to_start_below_the_required_level(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelllm.judge import Judge, JudgeSettings

    weak = Strength(level=Level.LIMITS, missing=("Use Linux 5.13.",))
    monkeypatch.setattr(sandbox, "available", lambda *, gpu=False: weak)
    with pytest.raises(SandboxError, match=r"Use Linux 5\.13"):
        Judge(JudgeSettings(device="cpu", require_sandbox="full"))
    with pytest.raises(UnknownName):
        Judge(JudgeSettings(device="cpu", require_sandbox="fulll"))


def test_a_filled_folder_ends_the_worker_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelllm.core.types import Candidate, Problem, Status
    from kernelllm.judge import Judge, JudgeSettings
    from kernelllm.judge.isolation.limits import Limits
    from kernelllm.judge.worker_pool import WorkerPool

    cheats = Path(__file__).parent.parent / "cheats"
    problem = Problem(name="relu", source=(cheats / "problems" / "relu.py").read_text())
    honest = (cheats / "no_kernel" / "honest_helpers.py").read_text()
    writes = "def forward(self, x):\n        for n in range(10**6):\n            open(f'junk{n}', 'wb').write(bytes(1 << 20))\n"
    with Judge(JudgeSettings(device="cpu", sizes=1, seeds=1, measure=False, cache=False, checks=())) as judge:
        monkeypatch.setattr(WorkerPool, "limits", lambda self, call_s=None: Limits(disk_bytes=64 * MIB))
        verdict = judge.judge(problem, Candidate(source=honest.replace("def forward(self, x):\n", writes)))
        assert verdict.status is Status.RUNTIME_ERROR
        assert "filled its folder" in verdict.message
        assert judge.judge(problem, Candidate(source=honest)).status is Status.CORRECT
        assert not list(judge.context.workers.servers()[0].root.glob("w*"))


def test_a_weaker_machine_is_told_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entered() -> object:
        return msgspec.json.encode(sandbox.apply(sandbox.policy(tmp_path / "work"))).decode()

    def refuse(*args: object, **kwargs: object) -> int:
        raise OSError("switched off")

    def level(**patches: Callable[..., object]) -> Strength:
        with monkeypatch.context() as patch:
            if "landlock" in patches:
                patch.setattr(landlock, "restrict", patches["landlock"])
            if "seccomp" in patches:
                patch.setattr(seccomp, "install", patches["seccomp"])
            return sandbox.available.__wrapped__()

    (tmp_path / "work").mkdir()
    without_files = level(landlock=refuse)
    assert without_files.level in (Level.LIMITS, Level.FILESYSTEM)
    assert any("bubblewrap" in line for line in without_files.missing)
    without_calls = level(seccomp=refuse)
    assert without_calls.level is not Level.FULL
    assert any("not filtered" in line for line in without_calls.missing)
    neither = level(landlock=refuse, seccomp=refuse)
    assert neither.level is Level.LIMITS


def test_bubblewrap_is_used_only_where_it_helps_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrapped(program: str, abi: int, *, gpu: bool = False) -> list[str]:
        monkeypatch.setattr("shutil.which", lambda name: program)
        monkeypatch.setattr(landlock, "abi", lambda: abi)
        sandbox.bubblewrap.cache_clear()
        try:
            return sandbox.wrap(["python", "-m", "x"], "/w", gpu=gpu)
        finally:
            sandbox.bubblewrap.cache_clear()

    assert wrapped("/bin/true", 7) == ["python", "-m", "x"]
    assert wrapped("/bin/false", 0) == ["python", "-m", "x"]
    assert wrapped("/nowhere/bwrap", 0) == ["python", "-m", "x"]
    used = wrapped("/bin/true", 0)
    assert used[0] == "/bin/true"
    assert used[-4:] == ["--", "python", "-m", "x"]
    assert "--unshare-net" in used
    assert "--unshare-net" not in wrapped("/bin/true", 0, gpu=True)


def test_what_bubblewrap_leaves_to_be_seen(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    sandbox.bubblewrap.cache_clear()
    try:
        if not sandbox.bubblewrap():
            pytest.skip("bubblewrap is not installed, or does not work here")
        (tmp_path / "work").mkdir()
        look = f"import os; print(*map(os.path.exists, ({str(home)!r}, '/etc/shadow')), os.access('/usr', os.W_OK)); open('x', 'w')"
        command = sandbox.wrap([sys.executable, "-c", look], str(tmp_path / "work"))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        sandbox.bubblewrap.cache_clear()
    assert done.stdout.split() == ["False", "False", "False"]
    assert (tmp_path / "work" / "x").exists()


@pytest.mark.parametrize("have", list(Level))
def test_every_level_can_be_required(have: Level) -> None:
    for wanted in Level:
        if list(Level).index(wanted) <= list(Level).index(have):
            Strength(level=have).require(wanted.value)
        else:
            with pytest.raises(SandboxError, match=wanted.value):
                Strength(level=have).require(wanted.value)


def test_policy_names_nothing_of_the_users() -> None:
    policy: Policy = sandbox.policy("/tmp/x")
    home = str(Path.home())
    assert home not in policy.read
    assert "/" not in policy.read
    assert str(Path.cwd()) not in policy.read
