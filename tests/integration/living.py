"""What the tests of a mount's life share: a small tree, mounts in the background, and looking on."""
import hashlib
import os
import re
import subprocess
import time

import pytest

import ckpt
from conftest import fuse_missing, program

needs_fuse = pytest.mark.skipif(bool(fuse_missing()) and os.environ.get("REQUIRE_FUSE") != "1",
                                reason="no FUSE here: NOTHING WAS MOUNTED")
FILE = "rank_0/checkpoint_0.ckpt"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# A chroot and most containers cannot give a test mounts of its own.
own_mounts = pytest.mark.skipif(subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
                                reason="unshare -m is not possible here")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Four ranks, mp 4, with their strategy; a name with a blank and a comma, as paths may have."""
    root = tmp_path_factory.mktemp("life") / "a source, with comma"
    params = ckpt.model(layers=2, hidden=64, kind="Float32")
    strategy = ckpt.place(params, mp=4)
    ckpt.write_tree(root, strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters())
    ckpt.write_strategies(root, strategy)
    return root


@pytest.fixture(scope="module")
def digest(source):
    """Of rank 0's file under target=same."""
    (path,) = (source / "rank_0").glob("*.ckpt")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def clean(tmp_path):
    """Whatever a test leaves mounted below its directory goes away, layer by layer."""
    yield
    with open("/proc/self/mountinfo") as lines:
        points = [unescape(line.split(" ")[4]) for line in lines]
    for point in reversed([p for p in points if p.startswith(str(tmp_path) + "/")]):
        subprocess.run(["umount", "-l", point], check=True)


@pytest.fixture
def point(tmp_path):
    path = tmp_path / "mnt"
    path.mkdir()
    return path


def mounted(path):
    """Type and source of the topmost mount at `path`, or None; touches nothing."""
    found = None
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            words = line.rstrip("\n").split(" ")
            if unescape(words[4]) == str(path):
                dash = words.index("-")
                found = words[dash + 1], unescape(words[dash + 2])
    return found


def unescape(text):
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def up(source, point, *options, target="same", **more):
    """Mount in the background; silence and exit 0."""
    done = program(source, point, "-o", "target=" + target, *(w for o in options for w in ("-o", o)), **more)
    assert (done.code, done.out, done.text) == (0, b"", ""), done
    return done


def sha(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def wait_until(condition, what, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def alive(pid):
    """Running, and no zombie of somebody who does not wait."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def errno_of(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return 0


def daemon(source, point, tmp_path, *options):
    up(source, point, "pidfile=%s" % (tmp_path / "pid"), *options)
    return int((tmp_path / "pid").read_text())


def daemons_of(point):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and words[2] == os.fsencode(point) and alive(int(pid)):
            found.append(int(pid))
    return found
