"""What is refused before anything is mounted, with which words and which exit code; help and version."""
import os
import re
import subprocess

import pytest

from conftest import PROGRAM, program
from living import clean, digest, FILE, mounted, needs_fuse, point, sha, source, up  # noqa: F401

pytestmark = needs_fuse


@pytest.mark.parametrize("words, code, said", [
    (["-o", "traget=same"], 2, "did you mean 'target'?"),
    (["-o", "target=same,allow_othr"], 2, "did you mean 'allow_other'?"),
    (["--target", "same", "--src-strateg", "x"], 2, "did you mean 'src_strategy'?"),
    (["-o", "target=same,quite_unlike"], 2, "see: reshardfs mount --help"),
    (["-o", "target=same,lazy"], 2, "'lazy' is for umount"),
    (["-o", "target=same,rw"], 2, "a view can only be read"),
    (["-o", "target=same,memory=12X"], 2, "expected SIZE, found '12X'"),
    (["-o", "target=same,memory=99999999999T"], 2, "memory"),
    (["-o", "target=same,umask=0888"], 2, "expected OCTAL"),
    (["-o", "target=same,cache=sometimes"], 2, "expected auto|never, found 'sometimes'"),
    (["-o", "target=same,nonempty=1"], 2, "takes no value"),
    (["-o", "target"], 2, "needs a value"),
    (["-o", "target="], 2, "target"),
    (["--target"], 2, "needs a value"),
    (["-o"], 2, "needs a list"),
    (["-x"], 2, "no option 'x'"),
    ([], 2, "no target"),
    (["-o", "target=same,allow_other,allow_root"], 6, "exclude each other"),
    (["-o", "target=same,ready_fd=900"], 2, "expected an open descriptor"),
])
def test_options_are_refused(words, code, said, source, point):
    done = program(source, point, *words)
    assert (done.code, done.out) == (code, b""), done
    assert said in done.text and done.text.startswith("reshardfs: "), done
    assert not mounted(point)


@pytest.mark.parametrize("words, said", [
    (["inspct", "/tmp"], "did you mean 'inspect'?"),
    (["plna"], "did you mean 'plan'?"),
    (["/tmp"], "expected SOURCE MOUNTPOINT, found 1 operand\n"),
    (["umount"], "expected MOUNTPOINT, found 0 operands"),
    (["umount", "a", "b"], "found 2 operands"),
    ([], "reshardfs VERB"),
])
def test_wrong_words(words, said):
    done = program(*words)
    assert (done.code, done.out) == (2, b"") and said in done.text, done


def test_environment(source, point, digest):
    """RESHARDFS_OPTS is read first: the command line wins, and other verbs' options are no mistake."""
    env = dict(os.environ, RESHARDFS_OPTS="target=no-such-target,umask=0333,lazy")
    up(source, point, env=env)
    assert sha(point / FILE) == digest
    assert os.stat(point / FILE).st_mode & 0o777 == 0o444
    assert program("umount", point, env=env).code == 0
    done = program(source, point, env=dict(os.environ, RESHARDFS_OPTS="targte=same"))
    assert done.code == 2 and "RESHARDFS_OPTS: " in done.text and "did you mean 'target'?" in done.text


def test_help_and_version():
    version = program("--version")
    assert (version.code, version.err) == (0, b"") and re.fullmatch(
        rb"reshardfs \d+\.\d+\.\d+ \(libfuse \d+\.\d+\.\d+, Linux \S+\)\n", version.out), version
    short, full = program("-h"), program("--help")
    assert (short.code, short.err, full.code, full.err) == (0, b"", 0, b"")
    assert len(short.out.splitlines()) < 50 and len(full.out) > len(short.out)
    for verb in ("mount", "inspect", "plan", "explain", "ranks", "ls", "cat", "strategy", "umount"):
        assert verb.encode() in short.out
        of_verb = program(verb, "--help")
        assert of_verb.code == 0 and of_verb.out.startswith(b"reshardfs " + verb.encode()), of_verb
    assert b"src_strategy=PATH" in full.out and b"lazy" in program("umount", "-h").out
    assert b"src_strategy" not in program("umount", "-h").out


def test_help_that_cannot_be_written():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 5 and b"reshardfs: standard output: " in done.stderr, done


def missing(tmp, _source):
    return tmp / "absent"


def below_missing(tmp, _source):
    return tmp / "absent" / "deeper"


def a_file(tmp, _source):
    (tmp / "file").write_text("x")
    return tmp / "file"


def full(tmp, _source):
    (tmp / "full").mkdir()
    (tmp / "full" / "x").write_text("x")
    return tmp / "full"


def a_link(tmp, _source):
    (tmp / "real").mkdir()
    (tmp / "link").symlink_to(tmp / "real")
    return tmp / "link"


def inside(_tmp, source):
    (source / "mnt").mkdir(exist_ok=True)
    return source / "mnt"


@pytest.mark.parametrize("make, said", [
    (missing, "No such file or directory"), (below_missing, "No such file or directory"),
    (a_file, "is not a directory"), (full, "is not empty"), (a_link, "is a symbolic link"),
    (inside, "is inside the source"),
])
def test_bad_mount_points(make, said, source, tmp_path):
    where = make(tmp_path, source)
    done = program(source, where, "-o", "target=same")
    assert done.code == 6 and said in done.text and str(where) in done.text, done
    assert not mounted(where)
    if make is inside:
        where.rmdir()


def test_source_decides_before_the_mount_point(tmp_path):
    done = program(tmp_path / "nowhere", tmp_path / "neither", "-o", "target=same")
    assert done.code == 3 and "nowhere" in done.text, done


def test_nonempty(source, tmp_path, digest):
    where = full(tmp_path, None)
    up(source, where, "nonempty")
    assert sha(where / FILE) == digest
    assert program("umount", where).code == 0
    assert (where / "x").read_text() == "x"


def test_mounted_already(source, point):
    up(source, point)
    done = program(source, point, "-o", "target=same")
    assert done.code == 6 and "is a reshardfs mount of %s already" % source in done.text, done
    assert program("umount", point).code == 0


def test_fake_mounts_nothing(source, point, tmp_path):
    up(source, point, "fake")
    assert not mounted(point)
    assert program(source, tmp_path / "absent", "-o", "target=same,fake").code == 6
