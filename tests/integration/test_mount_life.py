"""A mount that lives: coming up, who may read what, and what readers see."""
import errno
import os
import shutil
import socket
import subprocess
import threading

import pytest

import ckpt
from conftest import PROGRAM, QUICK, program
from living import (alive, as_root, clean, daemon, digest, FILE, mounted, needs_fuse, own_mounts, point, sha, source, up,
                    wait_until)  # noqa: F401

pytestmark = needs_fuse


# -------------------------------------------------------------------------------------- coming up

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


@own_mounts
def test_kernel_without_fuse(source, point):
    """A /dev/fuse that is not the device: exit 6, and nothing is left."""
    if os.geteuid():
        pytest.skip("needs root")
    script = 'mount --bind /dev/null /dev/fuse && exec "$0" "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, PROGRAM, source, point, "-o", "target=same"],
                          capture_output=True, text=True)
    assert done.returncode == 6 and "cannot mount" in done.stderr and "hint:" in done.stderr, done


# ------------------------------------------------------------------------------------------ modes

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
@own_mounts
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


@as_root
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_as_an_ordinary_user(source, digest, tmp_path):
    """Everything by fusermount3: mount, busy, lazily, again; and what needs the administrator."""
    for directory in (source, *list(source.parents)[:3], tmp_path, tmp_path.parent):
        if str(directory) != "/tmp":
            os.chmod(directory, 0o755)
    (tmp_path / "mnt").mkdir()
    os.chown(tmp_path / "mnt", 65534, 65534)
    shutil.copy(PROGRAM, tmp_path / "reshardfs")
    steps = """
        set -eu
        mkdir dev other
        mount -t tmpfs none dev
        mknod -m 666 dev/fuse c 10 229
        mount --bind dev/fuse /dev/fuse
        as='setpriv --reuid=65534 --regid=65534 --clear-groups'
        $as ./reshardfs "$SOURCE" mnt -o target=same
        $as sha256sum mnt/{file}
        $as sh -c 'exec sleep 60 < mnt/{file}' & sleep 0.3
        $as ./reshardfs umount mnt --wait 0 || echo "busy $?"
        $as ./reshardfs umount mnt --lazy && kill $!
        $as ./reshardfs "$SOURCE" mnt -o target=same && $as ./reshardfs umount mnt
        $as ./reshardfs "$SOURCE" mnt -o target=same,allow_other || echo "other $?"
        $as ./reshardfs "$SOURCE" other -o target=same || echo "not his $?"
        mount --bind /dev/null /usr/bin/fusermount3
        $as ./reshardfs "$SOURCE" mnt -o target=same || echo "no fusermount3 $?"
    """.format(file=FILE)
    done = subprocess.run(["unshare", "-m", "sh", "-c", steps], cwd=tmp_path, capture_output=True, text=True,
                          env=dict(os.environ, SOURCE=str(source)))
    assert done.returncode == 0, done
    assert done.stdout.split("\n")[:-1] == ["%s  mnt/%s" % (digest, FILE), "busy 6", "other 6", "not his 6",
                                            "no fusermount3 6"], done
    for said in ("busy, held by", "(sleep)", "'user_allow_other' in /etc/fuse.conf", "that he can write to",
                 "fusermount3 (package fuse3)"):
        assert said in done.stderr, done


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


# ---------------------------------------------------------------------------------------- reading

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
