"""The life of a mount: what is refused and with which exit code, coming up, ending well and badly."""
import errno
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import ckpt
from conftest import PROGRAM, QUICK, REPO, SANITIZER, fuse_missing, program

pytestmark = pytest.mark.skipif(bool(fuse_missing()) and os.environ.get("REQUIRE_FUSE") != "1",
                                reason="no FUSE here: NOTHING WAS MOUNTED")
HELPER = REPO / "mount-helpers" / "mount.reshardfs"
FILE = "rank_0/checkpoint_0.ckpt"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


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


# ------------------------------------------------------------------------------ refusals

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


# ------------------------------------------------------------------------------ coming up

def test_up_and_down(source, point, digest):
    up(source, point, "_netdev,nofail,x-systemd.automount,comment=hello,ro,noatime,defaults")
    assert mounted(point) == ("fuse.reshardfs", str(source))
    assert sorted(os.listdir(point)) == ["rank_%d" % r for r in range(4)]
    assert sha(point / FILE) == digest
    flags = os.statvfs(point).f_flag
    for flag in (os.ST_RDONLY, os.ST_NOSUID, os.ST_NODEV, os.ST_NOEXEC, os.ST_NOATIME):
        assert flags & flag
    done = program("umount", point)
    assert (done.code, done.out, done.err) == (0, b"", b"") and not mounted(point), done


def test_usable_at_return(source, point):
    """No moment in which the command has returned and the tree is not there."""
    for _ in range(5 if QUICK else 40):
        up(source, point)
        assert os.path.getsize(point / FILE) > 0
        assert program("umount", point).code == 0


def test_relative_paths_and_working_directory(source, tmp_path, digest):
    """The daemon leaves the directory, and what is opened later is still found."""
    (tmp_path / "mnt").mkdir()
    relative = os.path.relpath(source, tmp_path)
    up(relative, "mnt", cwd=tmp_path)
    assert sha(tmp_path / "mnt" / "rank_3" / "checkpoint_3.ckpt") and sha(tmp_path / "mnt" / FILE) == digest
    assert mounted(tmp_path / "mnt")[1] == str(tmp_path / relative)
    assert program("umount", "mnt", cwd=tmp_path).code == 0


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_descriptors(closed, source, point, digest):
    """With 0 to 2 closed no file of ours takes their numbers."""
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" ' + closed, PROGRAM, source, point, "-o", "target=same"])
    assert done.returncode == 0
    assert sha(point / FILE) == digest
    assert program("umount", point).code == 0


def test_ready_fd_and_pidfile(source, point, tmp_path):
    ours, theirs = socket.socketpair()
    pidfile = tmp_path / "pid"
    with ours, theirs:
        up(source, point, "ready_fd=%d" % theirs.fileno(), "pidfile=%s" % pidfile, pass_fds=[theirs.fileno()])
        theirs.close()
        assert ours.recv(100) == b"s" and ours.recv(100) == b""
    pid = int(pidfile.read_text())
    assert alive(pid) and program("umount", point).code == 0
    wait_until(lambda: not alive(pid), "the daemon did not end")
    assert not pidfile.exists()


def test_ready_fd_tells_failures(source, tmp_path):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = program(source, tmp_path / "absent", "-o", "target=same,ready_fd=%d" % theirs.fileno(),
                       pass_fds=[theirs.fileno()])
        theirs.close()
        told = ours.recv(2000).decode()
    assert done.code == 6 and told[0] == "f" and told[1:] in done.text, (told, done)


def test_source_that_cannot_be_served_leaves_nothing(point, tmp_path):
    (tmp_path / "empty").mkdir()
    done = program(tmp_path / "empty", point, "-o", "target=same")
    assert done.code in (3, 4) and not mounted(point), done


def test_kernel_without_fuse(source, point):
    """A /dev/fuse that is not the device: exit 6, and nothing is left."""
    if os.geteuid():
        pytest.skip("needs root")
    script = 'mount --bind /dev/null /dev/fuse && exec "$0" "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, PROGRAM, source, point, "-o", "target=same"],
                          capture_output=True, text=True)
    assert done.returncode == 6 and "cannot mount" in done.stderr and "hint:" in done.stderr, done


# --------------------------------------------------------------------------------- modes

@as_root
def test_owner_and_umask(source, point):
    up(source, point, "uid=1234,gid=5678,umask=0337")
    file, directory = os.stat(point / FILE), os.stat(point / "rank_0")
    assert (file.st_uid, file.st_gid, file.st_mode & 0o777) == (1234, 5678, 0o440)
    assert (directory.st_uid, directory.st_mode & 0o777) == (1234, 0o440)
    assert program("umount", point).code == 0


def as_nobody(code):
    """Exit code of a Python line run by somebody without rights."""
    return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c",
                           code], capture_output=True, text=True)


@as_root
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_other_users(tmp_path_factory):
    """Without allow_other nobody else gets in; with it modes decide, and 0600 sources stay closed."""
    root = tmp_path_factory.mktemp("shared", numbered=True)
    for directory in (root, *list(root.parents)[:2]):
        if str(directory) != "/tmp":
            os.chmod(directory, 0o755)
    params = ckpt.model(layers=1, hidden=32)
    strategy = ckpt.place(params, mp=2)
    ckpt.write_tree(root / "src", strategy, ckpt.whole_tensors(params))
    ckpt.write_strategies(root / "src", strategy)
    (private,) = (root / "src" / "rank_1").glob("*.ckpt")
    private.chmod(0o600)
    where = root / "mnt"
    where.mkdir()
    see = "open('%s/rank_%d/checkpoint_%d.ckpt', 'rb').read(1)"

    def codes():
        return [as_nobody(see % (where, r, r)).returncode for r in (0, 1)]

    try:
        up(root / "src", where)
        assert codes() == [1, 1]
        assert program("umount", where).code == 0
        up(root / "src", where, "allow_other")
        assert codes() == [0, 1], as_nobody(see % (where, 0, 0))
        assert (os.stat(where / "rank_1/checkpoint_1.ckpt").st_mode & 0o777) == 0o400
        assert program("umount", where).code == 0
        up(root / "src", where, "allow_other,umask=0222")
        assert codes() == [0, 0]
    finally:
        assert program("umount", where).code == 0


def test_xattrs(source, point):
    up(source, point)
    file = point / FILE
    (own,) = (source / "rank_0").glob("*.ckpt")
    assert sorted(os.listxattr(file)) == ["user.reshardfs." + n for n in ("rank", "sources", "target")]
    assert os.getxattr(file, "user.reshardfs.rank") == b"0"
    assert os.getxattr(file, "user.reshardfs.target") == b"same"
    assert os.getxattr(file, "user.reshardfs.sources") == ("rank_0/" + own.name).encode()
    assert os.getxattr(point, "user.reshardfs.source") == str(source).encode()
    for name in ("user.reshardfs.plum", "user.x", "security.capability", "system.posix_acl_access"):
        with pytest.raises(OSError) as error:
            os.getxattr(file, name)
        assert error.value.errno == errno.ENODATA, name
    assert program("umount", point).code == 0
    up(source, point, "noxattr")
    assert os.listxattr(file) == []
    with pytest.raises(OSError) as error:
        os.getxattr(file, "user.reshardfs.rank")
    assert error.value.errno == errno.ENODATA
    assert program("umount", point).code == 0


# --------------------------------------------------------------------------------- reading

def test_readdir_is_stable(source, point):
    """The same names, numbers and types each time, resumed or not, and what stat says."""
    up(source, point)
    looks = []
    for _ in range(3):
        with os.scandir(point) as entries:
            looks.append([(e.name, e.inode(), e.is_dir(follow_symlinks=False)) for e in entries])
    assert looks[0] == looks[1] == looks[2] and len(looks[0]) == 4
    for name, inode, is_dir in looks[0]:
        assert os.stat(point / name).st_ino == inode and is_dir
        with os.scandir(point / name) as entries:
            (only,) = entries
            assert only.is_file(follow_symlinks=False) and only.inode() == inode + 1
    assert program("umount", point).code == 0
    up(source, point)  # another life, the same numbers
    with os.scandir(point) as entries:
        assert [(e.name, e.inode(), e.is_dir(follow_symlinks=False)) for e in entries] == looks[0]
    assert program("umount", point).code == 0


def test_statfs_tells_what_is_known(source, point):
    up(source, point)
    before = os.statvfs(point)
    sizes = [os.path.getsize(point / ("rank_%d/checkpoint_%d.ckpt" % (r, r))) for r in range(4)]
    after = os.statvfs(point)
    assert before.f_blocks == 0 and before.f_bavail == after.f_bavail == 0
    assert after.f_blocks * after.f_frsize == sum(-(-s // after.f_frsize) * after.f_frsize for s in sizes)
    assert program("umount", point).code == 0


@pytest.mark.parametrize("cache", ["auto", "never"])
def test_eight_readers(cache, source, point):
    """Eight at once, all ranks, odd pieces: everybody sees the same bytes."""
    up(source, point, "cache=" + cache)
    want = {r: next((source / ("rank_%d" % r)).glob("*.ckpt")).read_bytes() for r in range(4)}
    wrong = []

    def read(number):
        for turn in range(4):
            rank, step = (number + turn) % 4, 4097 * (number + 1)
            with open(point / ("rank_%d/checkpoint_%d.ckpt" % (rank, rank)), "rb", buffering=0) as file:
                got = b"".join(iter(lambda: file.read(step), b""))
            if got != want[rank]:
                wrong.append((number, rank))

    readers = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not wrong
    assert program("umount", point).code == 0


@as_root
def test_writes_are_refused_even_when_remounted(source, point):
    """`ro` stops writers in the kernel; when root has made it rw, we answer the same."""
    up(source, point)
    for _ in range(2):
        for name, action in writes(point):
            with pytest.raises(OSError) as error:
                action()
            assert error.value.errno == errno.EROFS, (name, error.value)
        subprocess.run(["mount", "-i", "-o", "remount,rw", point], check=True)
    assert program("umount", point).code == 0


def writes(point):
    file, new = point / FILE, point / "rank_0" / "new"
    return {
        "open": lambda: os.open(file, os.O_WRONLY), "update": lambda: os.open(file, os.O_RDWR),
        "truncate": lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
        "create": lambda: os.open(new, os.O_WRONLY | os.O_CREAT, 0o600), "mkdir": lambda: os.mkdir(new),
        "unlink": lambda: os.unlink(file), "rmdir": lambda: os.rmdir(point / "rank_0"),
        "rename": lambda: os.rename(file, new), "link": lambda: os.link(file, new),
        "symlink": lambda: os.symlink("x", new), "mknod": lambda: os.mknod(new, 0o100600),
        "chmod": lambda: os.chmod(file, 0o777), "chown": lambda: os.chown(file, 1, 1),
        "utime": lambda: os.utime(file, (1, 1)), "size": lambda: os.truncate(file, 0),
        "setxattr": lambda: os.setxattr(file, "user.x", b"1"),
        "removexattr": lambda: os.removexattr(file, "user.reshardfs.rank"),
    }.items()


# ------------------------------------------------------------------------ one file that is bad

def test_a_bad_rank_breaks_its_own_file_only(source, tmp_path, point):
    """EIO, never ENOENT, for what readdir lists; one line in the log however many ask."""
    broken, log = tmp_path / "broken", tmp_path / "log"
    shutil.copytree(source, broken)
    (bad,) = (broken / "rank_2").glob("*.ckpt")
    with open(bad, "r+b") as file:
        file.write(b"\xff" * 64)
    up(broken, point, "log=%s" % log, "ranks=0-3")
    for _ in range(5):
        with pytest.raises(OSError) as error:
            os.stat(point / "rank_2/checkpoint_2.ckpt")
        assert error.value.errno == errno.EIO
    assert os.listdir(point / "rank_2") == ["checkpoint_2.ckpt"]
    for rank in (0, 1, 3):
        assert sha(point / ("rank_%d/checkpoint_%d.ckpt" % (rank, rank)))
    assert program("umount", point).code == 0
    wait_until(lambda: "done" in log.read_text(), "no last line in the log")
    lines = [line for line in log.read_text().splitlines() if bad.name in line]
    assert len(lines) == 1 and " error: " in lines[0], lines


@pytest.mark.parametrize("access", ["map", "pread"])
def test_a_source_file_is_truncated(access, source, tmp_path, mount, digest):
    """What is lost is an error, EIO once and ESTALE from then on, never zeros; the rest goes on."""
    cut = tmp_path / "cut"
    shutil.copytree(source, cut)
    m = mount(cut, "target=same", "access=" + access)
    (file,) = (cut / "rank_1").glob("*.ckpt")
    whole, codes = file.read_bytes(), []
    fd = os.open(m.file(1), os.O_RDONLY)
    assert os.pread(fd, 100, 0) == whole[:100]
    os.truncate(file, 4096)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(40):
        code = errno_of(os.pread, fd, 4096, len(whole) // 2 // 4096 * 4096)
        if not codes or codes[-1] != code:
            codes.append(code)
        time.sleep(0.05)
    assert codes in ([errno.ESTALE], [errno.EIO, errno.ESTALE]), codes
    assert sha(m.file(0)) == digest
    os.close(fd)
    m.unmount()
    told = m.log().splitlines()
    assert 1 <= len(told) <= 2 and all(line.startswith("reshardfs: ") for line in told), told


def test_log_is_reopened_and_made_to_tell_more(source, point, tmp_path):
    log, pidfile = tmp_path / "log", tmp_path / "pid"
    up(source, point, "log=%s" % log, "pidfile=%s" % pidfile)
    pid = int(pidfile.read_text())
    log.rename(tmp_path / "log.1")
    os.kill(pid, signal.SIGHUP)
    wait_until(log.exists, "the log was not reopened")
    os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: "log_level=debug" in log.read_text(), "no word of the new level")
    sha(point / FILE)
    assert "open: file of rank 0" in log.read_text()
    assert program("umount", point).code == 0


def test_a_source_that_hangs(source, mount, digest):
    """The source is a mount whose daemon stands still. What needs it waits, can be killed, and holds
    up nobody else; SIGTERM ends all in its five seconds."""
    below = mount(source, "target=same")
    m = mount(below.path, "target=same")
    assert sha(m.path / FILE) == digest
    readers = {rank: [] for rank in (1, 2, 3)}
    below.process.send_signal(signal.SIGSTOP)
    try:
        for rank in (1, 2, 3) * 4:  # more than there are threads
            readers[rank].append(subprocess.Popen(["cat", m.file(rank)], stderr=subprocess.PIPE))
        time.sleep(0.3)
        assert all(r.poll() is None for rank in readers for r in readers[rank])
        assert sha(m.path / FILE) == digest and os.statvfs(m.path).f_blocks
        assert os.listdir(m.path / "rank_3") == ["checkpoint_3.ckpt"]
        for reader in readers[1]:
            reader.kill()
        for reader in readers[1]:
            assert reader.wait(3) == -signal.SIGKILL
        m.process.send_signal(signal.SIGTERM)
        assert m.process.wait(8) == 0
        m.closed = True
        assert not mounted(m.path) and "leaving" in m.log()
        for reader in readers[2] + readers[3]:
            assert b"cat: " in reader.communicate(timeout=5)[1] and reader.returncode == 1
    finally:
        below.process.send_signal(signal.SIGCONT)
        for reader in readers[1] + readers[2] + readers[3]:
            reader.kill()
            reader.communicate()


def test_a_source_that_hangs_for_a_while(source, mount):
    """Requests that waited get the right bytes when the source answers again."""
    below = mount(source, "target=same")
    m = mount(below.path, "target=same")
    below.process.send_signal(signal.SIGSTOP)
    readers = [subprocess.Popen(["sha256sum", m.path / ("rank_%d/checkpoint_%d.ckpt" % (r, r))],
                                stdout=subprocess.PIPE) for r in (1, 2, 3) * 3]
    time.sleep(0.3)
    readers[0].kill()
    below.process.send_signal(signal.SIGCONT)
    for number, reader in enumerate(readers):
        got = reader.communicate(timeout=20)[0].split()
        want = next((source / ("rank_%d" % (number % 3 + 1))).glob("*.ckpt")).read_bytes()
        assert number == 0 or got[0].decode() == hashlib.sha256(want).hexdigest()


# ----------------------------------------------------------------------------------- ending

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_mount(sig, source, mount, digest):
    m = mount(source, "target=same")
    assert sha(m.path / FILE) == digest
    m.process.send_signal(sig)
    assert m.process.wait(5) == 0
    m.closed = True
    assert not mounted(m.path) and m.log() == ""


@pytest.mark.parametrize("held", ["open file", "readers"])
def test_signal_while_in_use(held, source, mount):
    """In five seconds it is gone whatever readers do; they see an error and no wrong byte."""
    m = mount(source, "target=same")
    want = next((source / "rank_0").glob("*.ckpt")).read_bytes()
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                with open(m.path / FILE, "rb", buffering=0) as file:
                    got = file.read()
                    if got != want[:len(got)]:
                        wrong.append(len(got))
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EIO):
                    wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(8 if held == "readers" else 0)]
    file = os.open(m.path / FILE, os.O_RDONLY)
    for reader in readers:
        reader.start()
    time.sleep(0.2)
    m.process.send_signal(signal.SIGTERM)
    try:
        assert m.process.wait(7) == 0
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        os.close(file)
    m.closed = True
    assert not mounted(m.path) and not wrong, wrong
    assert not any(word in m.log() for word in SANITIZER), m.log()


def errno_of(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return 0


def daemon(source, point, tmp_path, *options):
    up(source, point, "pidfile=%s" % (tmp_path / "pid"), *options)
    return int((tmp_path / "pid").read_text())


def test_killed(source, point, tmp_path, digest):
    """kill -9: ENOTCONN, named when somebody mounts there, cleaned up by umount, then as before."""
    pid = daemon(source, point, tmp_path)
    inode = os.stat(point / FILE).st_ino
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "still alive")
    wait_until(lambda: errno_of(os.listdir, point) == errno.ENOTCONN, "readers are not told")
    done = program(source, point, "-o", "target=same")
    assert done.code == 6 and "dead FUSE mount" in done.text and "reshardfs umount" in done.text, done
    done = program("umount", point)
    assert (done.code, done.err) == (0, b""), done
    up(source, point)
    assert os.stat(point / FILE).st_ino == inode and sha(point / FILE) == digest
    assert program("umount", point).code == 0


@as_root
def test_connection_aborted(source, point, tmp_path):
    """An administrator cuts the connection: the daemon ends and takes the dead mount away."""
    pid = daemon(source, point, tmp_path)
    control = "/sys/fs/fuse/connections/%d/abort" % os.minor(os.stat(point).st_dev)
    if not os.path.exists(control):
        if subprocess.run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"]).returncode:
            pytest.skip("no fusectl")
    with open(control, "w") as abort:
        abort.write("1")
    wait_until(lambda: not alive(pid), "the daemon did not end")
    assert not mounted(point) and not (tmp_path / "pid").exists()


def test_parent_killed_while_mounting(source, point, digest):
    """Somebody who gave up waiting leaves nothing behind, or, in the last moment, a whole mount; never
    a dead one, and never a daemon without one."""
    for delay in (0.0, 0.001, 0.002, 0.003, 0.004, 0.006, 0.01, 0.02, 0.05):
        parent = subprocess.Popen([PROGRAM, source, point, "-o", "target=same"], stderr=subprocess.DEVNULL)
        time.sleep(delay)
        parent.kill()
        parent.wait()
        wait_until(lambda: mounted(point) or not daemons_of(point), "a daemon without a mount")
        time.sleep(0.3)
        if mounted(point):
            assert sha(point / FILE) == digest
            assert program("umount", point).code == 0
        wait_until(lambda: not daemons_of(point), "a daemon lives on")
        assert not mounted(point)


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


# ------------------------------------------------------------------------------- umount verb

@pytest.mark.parametrize("how", ["file", "map", "directory"])
def test_umount_names_who_holds_it(how, source, point, tmp_path):
    hold = {"file": "f = open(%r)" % str(point / FILE),
            "map": "import mmap; f = open(%r, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); f.close()" % str(point / FILE),
            "directory": "import os; os.chdir(%r)" % str(point / "rank_1")}[how]
    pid = daemon(source, point, tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", hold + "; print(flush=True); input()"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        done = program("umount", point, "--wait", "0")
        assert done.code == 6 and "busy, held by %d (python" % holder.pid in done.text, done
        assert "--lazy" in done.text and mounted(point) and alive(pid)
        waiting = subprocess.Popen([PROGRAM, "umount", point, "--wait", "20"])
        time.sleep(0.3)
        assert waiting.poll() is None
    finally:
        holder.communicate(b"\n")
    assert waiting.wait(20) == 0 and not mounted(point)
    wait_until(lambda: not alive(pid), "the daemon did not end")


def test_umount_lazy(source, point, tmp_path, digest):
    """Detached at once; what is open goes on to its end, and the daemon ends after it."""
    pid = daemon(source, point, tmp_path)
    with open(point / FILE, "rb") as file:
        assert program("umount", point, "--lazy").code == 0
        assert not mounted(point) and alive(pid)
        assert hashlib.sha256(file.read()).hexdigest() == digest
    wait_until(lambda: not alive(pid), "the daemon did not end")


@as_root
def test_umount_refuses_what_is_not_ours(point, tmp_path):
    done = program("umount", point)
    assert done.code == 6 and "nothing is mounted here" in done.text, done
    subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    done = program("umount", point)
    assert done.code == 6 and "not a reshardfs mount (tmpfs of none)" in done.text and mounted(point), done
    assert program("umount", tmp_path / "absent" / "x").code == 6


def test_umount_through_a_link(source, point, tmp_path):
    up(source, point)
    (tmp_path / "link").symlink_to(point)
    assert program("umount", tmp_path / "link").code == 0 and not mounted(point)


# --------------------------------------------------------------------------------- mount(8)

@pytest.fixture
def helper_env(tmp_path):
    """The helper finds the program that is tested first in PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "reshardfs").symlink_to(PROGRAM)
    return dict(os.environ, PATH="%s:%s" % (tmp_path / "bin", os.environ["PATH"]))


def help_mount(env, *words):
    return subprocess.run([HELPER, *words], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("options, code, said", [
    ("rw,target=same", 0, ""), ("target=same,_netdev,x-a.b=c,user=me,noauto,defaults,rw", 0, ""),
    ("rw,traget=same", 1, "did you mean 'target'?"), ("rw", 1, "no target"),
    ("rw,target=same,beneath=/nowhere", 32, "/nowhere"),
])
def test_helper(options, code, said, source, point, helper_env):
    done = help_mount(helper_env, source, point, "-sv", "-o", options)
    assert done.returncode == code and said in done.stderr, done
    assert bool(mounted(point)) == (code == 0)


def test_helper_codes_and_fake(source, point, helper_env, tmp_path):
    assert help_mount(helper_env, source, tmp_path / "absent", "-o", "target=same").returncode == 32
    assert help_mount(helper_env, tmp_path / "absent", point, "-o", "target=same").returncode == 32
    assert help_mount(helper_env, source, point, "-f", "-n", "-o", "target=same").returncode == 0
    assert help_mount(helper_env, source, point, "-o", "target=same", "-t", "fuse.reshardfs", "-f").returncode == 0
    assert not mounted(point)
    assert help_mount(helper_env, source).returncode == 1


def test_helper_without_the_program(source, point, tmp_path):
    (tmp_path / "sbin").mkdir()
    helper = shutil.copy(HELPER, tmp_path / "sbin")
    if any(os.access(p, os.X_OK) for p in ("/usr/bin/reshardfs", "/usr/local/bin/reshardfs")):
        pytest.skip("reshardfs is installed")
    env = dict(os.environ, PATH="/usr/bin:/bin")
    done = subprocess.run([helper, source, point, "-o", "target=same"], env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "reshardfs was not found" in done.stderr, done
    (tmp_path / "bin").mkdir()  # beside sbin, as in a prefix
    (tmp_path / "bin" / "reshardfs").symlink_to(PROGRAM)
    done = subprocess.run([helper, source, point, "-o", "target=same"], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and mounted(point), done


@as_root
@pytest.mark.parametrize("kind", ["reshardfs", "fuse.reshardfs"])
def test_through_mount8(kind, source, point, tmp_path, digest):
    """mount -t, fstab, remount and umount as an administrator types them."""
    steps = """
        mount -t {kind} -o target=same,_netdev,nofail "$SOURCE" "$POINT"
        sha256sum "$POINT/{file}"
        mount -o remount,ro "$POINT"
        umount "$POINT"
        mount -T "$FSTAB" "$POINT"
        sha256sum "$POINT/{file}"
        if mount -t {kind} -o target=same "$SOURCE" "$POINT/rank_0" 2>/dev/null; then exit 99; fi
        umount "$POINT"
        mount -f -t {kind} -o target=same "$SOURCE" "$POINT"
        if mount -t {kind} -o traget=same "$SOURCE" "$POINT"; then exit 98; else echo "code $?"; fi
    """.format(kind=kind, file=FILE)
    fstab = tmp_path / "fstab"
    fstab.write_text("%s %s %s target=same,nofail,x-systemd.requires-mounts-for=/ 0 0\n" % (
        str(source).replace(" ", r"\040"), point, kind))
    prepare = "".join("ln -s %s /sbin/%s\n" % (HELPER, name) for name in ("mount.reshardfs", "mount.fuse.reshardfs"))
    done = in_own_sbin(prepare + steps, tmp_path, SOURCE=str(source), POINT=str(point), FSTAB=str(fstab))
    assert done.returncode == 0, done
    assert done.stdout.count(digest) == 2 and "code 1" in done.stdout and "did you mean" in done.stderr, done


def in_own_sbin(script, tmp_path, **env):
    """Run a script that may write to /sbin and /usr/local/bin: copies, gone with the script."""
    copy = """
        set -eu
        mkdir {0}/sbin
        mount -t tmpfs none {0}/sbin
        cp -a /sbin/. {0}/sbin/
        mount --bind {0}/sbin /sbin
        mount -t tmpfs none /usr/local/bin
        ln -s {1} /usr/local/bin/reshardfs
    """.format(tmp_path, PROGRAM)
    return subprocess.run(["unshare", "-m", "sh", "-c", copy + script], capture_output=True, text=True,
                          env=dict(os.environ, **env))
