"""What the integration tests share: the program, mounts that always go away, the oracle.

RESHARDFS names the program (default build/release/reshardfs). Where FUSE cannot be used every test
that needs a mount is skipped and says so; REQUIRE_FUSE=1 makes that a failure. QUICK=1 asks for
fewer random cases, for slow builds with sanitizers; SEED=N repeats a run.
"""
import contextlib
import importlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "lib"))
SHARED = REPO.parent / "shared"  # test data that is not part of the project; may be absent
PROGRAM = os.path.abspath(os.environ.get("RESHARDFS") or REPO / "build/release/reshardfs")
QUICK = os.environ.get("QUICK", "") not in ("", "0")
# Random cases are drawn from this; the header of a run prints it, SEED=N repeats the run.
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 31))
SANITIZER = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:")


def fuse_missing():
    """Why no mount is possible here, or None."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return "/dev/fuse: %s" % error.strerror
    return None


def pytest_report_header():
    lack = fuse_missing()
    return ["program: %s, SEED=%d" % (PROGRAM, SEED)] + (["NO MOUNT IS TESTED HERE: %s" % lack] if lack else [])


def pytest_collection_modifyitems(items):
    lack = fuse_missing()
    for item in items if lack else []:
        if "mount" in getattr(item, "fixturenames", ()) and os.environ.get("REQUIRE_FUSE") != "1":
            item.add_marker(pytest.mark.skip(reason="no FUSE here (%s): NOTHING WAS MOUNTED" % lack))


@pytest.fixture(scope="session", autouse=True)
def built():
    if not os.access(PROGRAM, os.X_OK):
        pytest.exit("%s is not there: run make first" % PROGRAM, 1)


def tell_hang(number, frame):
    raise TimeoutError("a test hangs")


@pytest.fixture(autouse=True)
def watchdog():
    """A test that hangs is a failed test, and its mounts are taken away, instead of the end of the run."""
    before = signal.signal(signal.SIGALRM, tell_hang)
    signal.alarm(240)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Result:
    """A finished run of the program."""

    def __init__(self, process):
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr
        self.text = self.err.decode(errors="replace")

    def __repr__(self):
        return "exit %d\nstdout: %r\nstderr: %s" % (self.code, self.out[:2000], self.text[-4000:])


def program(*arguments, timeout=120, **options):
    """Run the program to its end. Sanitizer reports fail the test whatever the exit code."""
    done = Result(subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                 capture_output=True, timeout=timeout, **options))
    assert not any(word in done.text for word in SANITIZER), done.text
    return done


class Mount:
    """A mount served by a foreground process, so that its messages and exit code are seen."""

    def __init__(self, source, point, options, log, wait=60):
        self.path, self.log_path, self.closed = point, log, False
        words = [w for o in options for w in ("-o", o)]
        with open(log, "wb") as to:
            self.process = subprocess.Popen([PROGRAM, str(source), str(point), "-f", *words],
                                            stdin=subprocess.DEVNULL, stdout=to, stderr=to)
        end = time.monotonic() + wait
        while not self.there() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if not self.there():
            self.process.kill()
            self.process.wait()
            pytest.fail("%s did not mount: exit %s\n%s" % (source, self.process.returncode, self.log()))

    def there(self):
        return os.path.ismount(self.path)

    def log(self):
        return Path(self.log_path).read_text(errors="replace")

    def file(self, rank, container="ckpt"):
        return self.path / ("rank_%d" % rank) / ("checkpoint_%d.%s" % (rank, container))

    def unmount(self):
        """Unmount and hold the daemon to a clean end."""
        if self.closed:
            return
        self.closed = True
        for _ in range(20):  # a reader that was killed may not have closed its file yet
            done = subprocess.run(["fusermount3", "-u", str(self.path)], capture_output=True)
            if b"busy" not in done.stderr:
                break
            time.sleep(0.1)
        if done.returncode:
            subprocess.run(["fusermount3", "-u", "-z", str(self.path)], capture_output=True)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            pytest.fail("the daemon did not end after the unmount:\n" + self.log())
        assert not done.returncode, done.stderr
        assert code == 0, "the daemon ended with %s:\n%s" % (code, self.log())
        assert not any(word in self.log() for word in SANITIZER), self.log()


@pytest.fixture
def mount(tmp_path):
    """mount(source, "target=...", ...) -> Mount, usable as a context manager too."""
    assert not fuse_missing(), fuse_missing()
    mounts = []

    def make(source, *options):
        point = tmp_path / ("mnt%d" % len(mounts))
        point.mkdir()
        mounts.append(Mount(source, point, options, tmp_path / ("mnt%d.log" % len(mounts))))
        return mounts[-1]

    yield make
    with contextlib.ExitStack() as stack:  # every one is tried, the first failure is told
        for m in mounts:
            stack.callback(m.unmount)


@pytest.fixture(scope="session")
def oracle():
    """The independent judge of ../shared, as modules: (oracle, generator)."""
    root = SHARED / "oracle"
    if not (root / "mindspore_oracle.py").is_file():
        pytest.skip("%s is not there" % root)
    sys.path.insert(0, str(root))
    return importlib.import_module("mindspore_oracle"), importlib.import_module("mindspore_generate")
