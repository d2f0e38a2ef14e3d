"""What a sandboxed program can reach: nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gfcr.errors import ConfigError
from gfcr.sandbox import seccomp
from gfcr.sandbox.box import Box, Job, SandboxError, works
from gfcr.sandbox.pump import pump
from gfcr.sandbox.settings import Limits, Sandbox
from gfcr.sandbox.stock import Stock
from sandbox_cases import needs_sandbox, processes, ran

pytestmark = needs_sandbox


def out(source: str, **kwargs: object) -> str:
    run = ran(source, **kwargs)  # type: ignore[arg-type]
    assert run.code == 0, (run.breach, run.err.decode(errors="replace"))
    return run.out.decode().strip()


def test_it_sees_programs_and_libraries_read_only_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    found = out(
        f"import os; print(os.path.exists({str(secret)!r}), sorted(os.listdir('/tmp')), os.environ.get('PYTEST_CURRENT_TEST'))"
    )
    assert found == "False ['answer'] None"
    for place in ("/", "/usr", "/dev", "/proc/sys/kernel", os.path.dirname(os.__file__)):
        assert ran(f"open({place!r} + '/gfcr-escape', 'w')").code == 1
    assert (
        out("import os; print(os.path.exists('/etc/passwd'), os.path.exists('/home'), os.path.exists('/sys'))")
        == "False False False"
    )


def test_it_has_process_ids_of_its_own_and_no_rights() -> None:
    assert out("import os; print(os.getppid(), sorted(p for p in os.listdir('/proc') if p.isdigit()))") == "1 ['1', '2']"
    status = dict(line.split(":", 1) for line in out("print(open('/proc/self/status').read())").splitlines() if ":" in line)
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapAmb")} == {0}
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    if os.geteuid() == 0:
        assert status["Uid"].split()[0] != "0"
    for attack in (
        "os.kill(1, 9)",
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "open('/proc/1/mem', 'rb')",
        "os.listdir('/proc/1/fd')",
    ):
        assert "PermissionError" in ran(f"import os; {attack}").err.decode()


def test_it_has_no_network() -> None:
    """Neither out of the machine nor to a server of this one, not even over its abstract sockets."""
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(("127.0.0.1", 0))
        server.listen()
        abstract.bind(f"\0gfcr-test-{os.getpid()}")
        abstract.listen()
        tried = (
            "import socket\n"
            "for family, place in ((2, ('127.0.0.1', PORT)), (2, ('192.0.2.1', 80)), (1, '\\0gfcr-test-PID')):\n"
            "    s = socket.socket(family)\n    s.settimeout(1)\n"
            "    try: s.connect(place); print('open')\n    except OSError as e: print('closed')\n"
            "for family in (40, 16, 38, 17):\n"
            "    try: socket.socket(family, socket.SOCK_DGRAM); print('open')\n    except OSError: print('closed')\n"
        )
        tried = tried.replace("PORT", str(server.getsockname()[1])).replace("PID", str(os.getpid()))
        assert set(out(tried).split()) == {"closed"}


@pytest.mark.skipif(seccomp.program() is None, reason="no system call table for this processor")
def test_calls_that_cross_the_walls_are_denied() -> None:
    """Kernel keyrings outlive a process, memfd and shmget take memory that nothing counts, ptrace reads siblings."""
    numbers = {
        "add_key": 248,
        "keyctl": 250,
        "memfd_create": 319,
        "shmget": 29,
        "ptrace": 101,
        "io_uring_setup": 425,
        "unshare": 272,
    }
    if os.uname().machine != "x86_64":
        numbers = {
            "add_key": 217,
            "keyctl": 219,
            "memfd_create": 279,
            "shmget": 194,
            "ptrace": 117,
            "io_uring_setup": 425,
            "unshare": 97,
        }
    source = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n" + "".join(
        f"print({name!r}, libc.syscall({number}, 0, 0, 0, 0, 0), ctypes.get_errno())\n" for name, number in numbers.items()
    )
    assert {tuple(line.split()[1:]) for line in out(source).splitlines()} == {("-1", "1")}
    assert out("import threading; t = threading.Thread(target=print, args=('ran',)); t.start(); t.join()") == "ran"


@pytest.mark.parametrize(
    ("source", "limits", "said"),
    [
        ("x = bytearray(1 << 30)", {}, "MemoryError"),
        ("open('/tmp/big', 'wb').write(bytes(20 << 20))", {}, "File too large"),
        ("import os\nfor i in range(9): open(f'/tmp/{i}', 'wb').write(bytes(15 << 20))", {}, "No space left"),
        ("import os\nfor i in range(99):\n    if not os.fork():\n        import time; time.sleep(60)", {"procs": 20}, "temporarily unavailable"),
        ("import os\nfiles = [open('/dev/null') for _ in range(200)]", {}, "Too many open files"),
    ],
)  # fmt: skip
def test_a_limit_is_an_error_in_the_program(source: str, limits: dict, said: str) -> None:
    run = ran(source, **limits)
    assert run.code == 1 and said in run.err.decode()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("while True: print('x' * 1000)", "KiB of output"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "KiB of output"),
        (
            "import os, time\nfor i in range(10):\n    if not os.fork():\n        x = bytearray(100 << 20); time.sleep(60)\ntime.sleep(60)",
            "MiB together",
        ),
    ],
)
def test_a_limit_on_all_of_it_ends_the_sandbox(source: str, why: str) -> None:
    run = ran(source)
    assert run.code is None and run.breach is not None and why in run.breach


def test_nothing_survives_it() -> None:
    before = processes()
    daemon = "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        time.sleep(300)\n    os._exit(0)\nprint('up')"
    assert out(daemon) == "up"
    assert (
        ran(
            "import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, 1)\n    except OSError: pass\nwhile 1: pass",
            seconds=0.5,
        ).code
        is None
    )
    assert processes() == before


def test_a_sandbox_dies_with_the_process_that_holds_it() -> None:
    source = (
        "import time\nfrom gfcr.sandbox.box import Box, Job\nfrom gfcr.sandbox.settings import Limits, Sandbox\n"
        "box = Box(Sandbox(), Limits())\nrun = box.start(Job({'a.py': 'while True: pass'}, 'a.py', ('program',)))\n"
        "print(box.life.first(), flush=True)\ntime.sleep(60)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", source], env=env, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        first = int(holder.stdout.readline())
        assert Path(f"/proc/{first}").exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    until = time.monotonic() + 10
    while Path(f"/proc/{first}").exists() and "Z" not in Path(f"/proc/{first}/stat").read_text().split()[2:3]:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_runs_of_one_answer_begin_with_an_empty_scratch_space_and_no_company() -> None:
    with Box(Sandbox(), Limits()) as box:
        for i in range(3):
            left = (
                "import os, subprocess, sys\nprint(os.listdir('/tmp'), len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
            )
            left += "os.makedirs('/tmp/a/b'); open('/tmp/a/b/c', 'w').write('x'); open('/dev/shm/d', 'x'); os.chmod('/tmp/a', 0)\nsubprocess.Popen(['sleep', '99'])"
            run = box.start(Job({"a.py": left}, "a.py", ("program",)))
            assert pump([run], 20, lambda run=run: run.over)
            assert (run.code, run.out.decode().strip()) == (0, "['answer'] 2"), (i, run.err)


def test_programs_are_programs() -> None:
    """Exit codes, arguments, finalisation and standard files are those of any program."""
    assert out("print(input()); print(open('/dev/stdin').read(), end='')", stdin="a\nb\n") == "a\na\nb"
    assert ran("raise SystemExit(7)").code == 7
    assert ran("import os; os.abort()").code == -signal.SIGABRT
    assert ran("exit(3)").code == 3
    assert out("import atexit; atexit.register(print, 'last'); print(__name__, __file__)") == "__main__ main.py\nlast"
    assert out("import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('late'))).start()") == "late"
    assert out("print(hash('x'))") == out("print(hash('x'))")
    assert out("import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, 2]))") == "[1, 2]"
    for source in (
        "f = open(1, 'w')\nf.write('end')",
        "class A:\n    def __del__(self): print('end')\na = A()\ndef f(): return a",
        "def g():\n    try: yield\n    finally: print('end')\nx = g()\nnext(x)",
        "import io, sys\nw = io.TextIOWrapper(sys.stdout.buffer)\nw.write('end')",
        "import sys\nsys.stdout = open(1, 'w')\nprint('end')",
    ):
        assert out(source) == "end", source
    assert "No module named 'numpy'" in ran("import numpy").err.decode()


def test_packages_that_the_settings_name_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "vendored.py").write_text("value = 41\n")
    if os.geteuid() == 0:
        tmp_path.chmod(0o700)
        with pytest.raises(ConfigError, match="cannot be read by other users"):
            works(Sandbox(bwrap="/usr/bin/bwrap", paths=(str(tmp_path),)))
    tmp_path.chmod(0o755)
    sandbox = Sandbox(paths=(str(tmp_path),))
    assert out("import vendored; print(vendored.value + 1)", sandbox=sandbox) == "42"
    assert ran(f"open({str(tmp_path)!r} + '/new', 'w')", sandbox=sandbox).code == 1
    with pytest.raises(ConfigError, match="is no directory"):
        works(Sandbox(paths=(str(tmp_path / "absent"),)))


def test_without_bubblewrap_it_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="no program 'no-such-bwrap'") as refused:
        works(Sandbox(bwrap="no-such-bwrap"))
    assert "apt-get install bubblewrap" in str(refused.value) and "kind = 'weak'" in str(refused.value)
    with pytest.raises(SandboxError):
        Box(Sandbox(bwrap="no-such-bwrap"), Limits(), nested=False)


def test_weak_is_a_plain_process_with_limits(tmp_path: Path) -> None:
    before, weak = processes(), Sandbox.model_validate("weak")
    assert out("print(input())", stdin="x", sandbox=weak) == "x"
    assert "MemoryError" in ran("bytearray(1 << 30)", sandbox=weak).err.decode()
    run = ran("import os, time\nif not os.fork():\n    os.setsid(); time.sleep(300)\nwhile True: pass", sandbox=weak, seconds=1)
    assert run.code is None and processes() == before


def test_user_namespaces_do_where_there_is_no_root() -> None:
    """What a user who is not root gets, tried by root: the same walls."""
    with Box(Sandbox(), Limits(procs=8), nested=True) as box:
        source = "import os\nprint(os.getuid(), os.getppid())\ntry: open('/x', 'w')\nexcept OSError as e: print(e.errno)\ntry: os.kill(1, 9)\nexcept OSError as e: print(e.errno)"
        try:
            run = box.start(Job({"a.py": source}, "a.py", ("program",)))
            assert pump([run], 20, lambda: run.over)
        except SandboxError as error:
            pytest.skip(f"no user namespaces here: {error.what}")
        if run.ours:
            pytest.skip(f"no user namespaces here: {box.words()}")
    assert run.out.decode().split() == ["65534", "1", "30", "1"]


def test_a_stock_gives_fresh_sandboxes_and_leaves_none() -> None:
    before = processes()
    stock = Stock(Sandbox(warm=2), Limits())
    try:
        firsts = set()
        for _ in range(4):
            with stock.take() as box:
                run = box.start(Job({"a.py": "import os; print(os.listdir('/tmp'))"}, "a.py", ("program",)))
                assert pump([run], 20, lambda run=run: run.over)
                assert run.out.decode().strip() == "['answer']"
                firsts.add(box.life.first())
        assert len(firsts) == 4
    finally:
        stock.close()
    assert processes() == before


def test_open_files_and_threads_of_ours_do_not_grow() -> None:
    ran("print(1)")
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for source in ("print(1)", "while True: pass", "1 / 0"):
        ran(source, seconds=0.3)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (files, threads)
