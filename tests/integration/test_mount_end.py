"""A mount in trouble and its end: bad and hanging sources, signals, kill -9, and the umount verb."""
import errno
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import PROGRAM, SANITIZER, program
from living import (alive, as_root, clean, daemon, daemons_of, digest, errno_of, FILE, mounted, needs_fuse,
                    point, sha, source, up, wait_until)  # noqa: F401

pytestmark = needs_fuse


# --------------------------------------------------------------------------- one file that is bad

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


@pytest.mark.parametrize("access", ["map", "pread"])
@pytest.mark.parametrize("how", ["rewritten", "dated back", "cut in a page", "cut and grown", "longer"])
def test_a_source_file_is_written_to(how, access, source, tmp_path, mount):
    """ESTALE from the next read on, not a second later: never new bytes beside old ones, or zeros."""
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    m = mount(copy, "target=same", "access=" + access)
    (file,) = (copy / "rank_1").glob("*.ckpt")
    whole, before = file.read_bytes(), os.stat(file)
    middle = len(whole) // 2 // 4096 * 4096
    fd = os.open(m.file(1), os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # the kernel reads nothing ahead
    os.pread(fd, 4096, 0)
    with open(file, "r+b") as out:
        if how in ("rewritten", "dated back"):
            out.seek(middle)
            out.write(b"\xff" * 4096)
        elif how == "longer":
            out.truncate(len(whole) + 1)
        else:
            out.truncate(middle + 100)
            out.truncate(len(whole) if how == "cut and grown" else middle + 100)
    if how == "dated back":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    codes = [errno_of(os.pread, fd, 4096, middle) for _ in range(20)]
    os.close(fd)
    assert set(codes) == {errno.ESTALE}, codes


@pytest.mark.parametrize("access", ["map", "pread"])
def test_a_source_file_is_replaced(access, source, tmp_path, mount, digest):
    """What was opened goes on: deleted, replaced by another file, or closed to others."""
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    m = mount(copy, "target=same", "access=" + access, "verify=headers")
    files = {rank: next((copy / ("rank_%d" % rank)).glob("*.ckpt")) for rank in (1, 2, 3)}
    want = {rank: files[rank].read_bytes() for rank in files}
    files[1].unlink()
    (tmp_path / "new").write_bytes(b"\0" * len(want[2]))
    (tmp_path / "new").rename(files[2])
    files[3].chmod(0)
    for rank in files:
        assert m.file(rank).read_bytes() == want[rank]


def test_descriptors_that_run_out(source, mount, digest):
    """A file that could not be opened for want of descriptors is EIO, until there are some again."""
    m = mount(source, "target=same")
    pid = m.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, before[1]))
    assert errno_of(os.stat, m.file(2)) == errno.EIO
    assert sha(m.file(0)) == digest
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert os.stat(m.file(2)).st_size
    m.unmount()
    assert "Too many open files" in m.log() and "ulimit -n" in m.log()


def test_a_log_at_the_limit_of_file_sizes(source, tmp_path, point, digest):
    """It stays as it is, and serving goes on."""
    log = tmp_path / "log"
    up(source, point, "log=%s" % log, "log_level=debug",
       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
    assert sha(point / FILE) == digest and log.stat().st_size == 64
    assert program("umount", point).code == 0


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


def test_a_source_that_hangs_is_given_up(source, mount, digest):
    """At the deadline the reader has EIO and the log the file; when the source answers again, so do we."""
    below = mount(source, "target=same")
    m = mount(below.path, "target=same,io_timeout=1")
    assert sha(m.path / FILE) == digest
    below.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with pytest.raises(OSError) as error:
            m.file(1).read_bytes()
        assert error.value.errno == errno.EIO and 0.9 < time.monotonic() - begin < 20
        assert "no answer within 1000 ms" in m.log() and "rank_1" in m.log()
        assert sha(m.path / FILE) == digest
    finally:
        below.process.send_signal(signal.SIGCONT)
    want = next((source / "rank_1").glob("*.ckpt")).read_bytes()
    assert m.file(1).read_bytes() == want


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


# ----------------------------------------------------------------------------------------- ending

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


# ------------------------------------------------------------------------------------ umount verb

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
