"""The tools that people point at a checkpoint: each must see the same bytes and print no error."""
import hashlib
import multiprocessing
import os
import random
import shutil
import subprocess

import pytest

import ckpt
from conftest import QUICK, SEED
from reading import at_random, check_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """8 ranks, mp 4, pp 2, for 4 ranks of dp 2, mp 2: (source, target strategy, wanted directory, Tree)."""
    root = tmp_path_factory.mktemp("tools")
    params = ckpt.model(layers=4, hidden=64 if QUICK else 256, kind="Float32")
    source, target = ckpt.place(params, mp=4, pp=2), ckpt.place(params, dp=2, mp=2)
    ckpt.write_tree(root / "source", source, ckpt.whole_tensors(params), lambda rank: ckpt.counters())
    ckpt.write_strategies(root / "source", source)
    ckpt.write(root / "target.ckpt", ckpt.strategy_bytes(target))
    whole = ckpt.Tree(root / "source", source)
    for rank in range(4):
        ckpt.write(root / ("want/rank_%d/checkpoint_%d.ckpt" % (rank, rank)),
                   ckpt.expected_bytes(whole, target, rank, "ckpt"))
    return root, target, whole


@pytest.fixture
def mounted(tree, mount):
    root, _, _ = tree
    return mount(root / "source", "target=%s" % (root / "target.ckpt"))


def run(*words, cwd=None):
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, (words, done.stderr)
    return done.stdout


def files(root):
    return sorted("rank_%d/checkpoint_%d.ckpt" % (r, r) for r in range(4))


def test_reads_of_every_size(tree, mounted):
    _, target, whole = tree
    check_tree(mounted, whole, target, "ckpt", random.Random(SEED), n=50)


@pytest.mark.parametrize("command", ["cp -r {0}/. {1}", "cp -a {0}/. {1}", "rsync -a {0}/ {1}/",
                                     "rsync -aX --whole-file {0}/ {1}/"])
def test_copies(command, tree, mounted, tmp_path):
    if not shutil.which(command.split()[0]):
        pytest.skip(command.split()[0] + " is not installed")
    (tmp_path / "copy").mkdir()
    run(*command.format(mounted.path, tmp_path / "copy").split())
    assert ckpt.compare(tree[0] / "want", tmp_path / "copy") == []


def test_tar(tree, mounted, tmp_path):
    run("tar", "-cf", tmp_path / "all.tar", "-C", mounted.path, ".")
    (tmp_path / "copy").mkdir()
    run("tar", "-xf", tmp_path / "all.tar", "-C", tmp_path / "copy")
    assert ckpt.compare(tree[0] / "want", tmp_path / "copy") == []


def test_sha256sum_find_du_ls(tree, mounted):
    want = run("sha256sum", *files(tree), cwd=tree[0] / "want")
    assert run("sha256sum", *files(tree), cwd=mounted.path) == want
    assert sorted(run("find", ".", "-type", "f", cwd=mounted.path).decode().split()) == [
        "./" + n for n in files(tree)]
    sizes = sum(os.stat(tree[0] / "want" / n).st_size for n in files(tree))
    listed = run("find", ".", "-type", "f", "-printf", "%s\n", cwd=mounted.path).split()
    assert sum(map(int, listed)) == sizes
    run("ls", "-lR", mounted.path)
    run("du", "-s", mounted.path)


@pytest.mark.parametrize("block", ["512", "4k", "1M", "4M"])
def test_dd_direct(block, tree, mounted):
    for name in files(tree)[:2]:
        got = subprocess.run(["dd", "if=%s" % (mounted.path / name), "iflag=direct", "bs=" + block, "status=none"],
                             capture_output=True, timeout=300)
        assert got.returncode == 0 and got.stdout == (tree[0] / "want" / name).read_bytes(), got.stderr


def read_along(arguments):
    """In another process: random reads of all files; the first wrong one is told."""
    mnt, want, names, seed = arguments
    rnd = random.Random(seed)
    for name in rnd.sample(names, len(names)):
        data = open(os.path.join(want, name), "rb").read()
        fd = os.open(os.path.join(mnt, name), os.O_RDONLY)
        for at, length in at_random(rnd, len(data), 40):
            if os.pread(fd, length, at) != data[at:at + length]:
                return "%s: %d bytes at %d" % (name, length, at)
        os.close(fd)
    return None


def test_many_readers(tree, mounted):
    n = 8 if QUICK else 32
    jobs = [(str(mounted.path), str(tree[0] / "want"), files(tree), SEED + i) for i in range(n)]
    with multiprocessing.get_context("fork").Pool(n) as pool:
        assert [r for r in pool.map(read_along, jobs, 1) if r] == []


def test_digests_while_others_read(tree, mounted):
    """Whole-file readers side by side on one file."""
    name = files(tree)[0]
    want = hashlib.sha256((tree[0] / "want" / name).read_bytes()).hexdigest()
    running = [subprocess.Popen(["sha256sum", name], cwd=mounted.path, stdout=subprocess.PIPE) for _ in range(12)]
    assert {p.communicate(timeout=300)[0].split()[0].decode() for p in running} == {want}


def test_nothing_can_be_written(mounted):
    name = mounted.path / files(None)[0]
    for action in (lambda: open(name, "r+b"), lambda: open(name, "wb"), lambda: open(mounted.path / "new", "wb"),
                   lambda: os.mkdir(mounted.path / "d"), lambda: os.unlink(name), lambda: os.chmod(name, 0o644),
                   lambda: os.rename(name, mounted.path / "other"), lambda: os.truncate(name, 0),
                   lambda: os.utime(name), lambda: os.symlink("x", mounted.path / "link"),
                   lambda: os.setxattr(name, "user.x", b"1")):
        with pytest.raises(OSError) as error:
            action()
        assert error.value.strerror == "Read-only file system"


def test_names_that_are_not_there(mounted):
    for name, error in (("rank_4", FileNotFoundError), ("rank_00", FileNotFoundError), ("rank_", FileNotFoundError),
                        ("rank_0/checkpoint_1.ckpt", FileNotFoundError),
                        ("rank_0/checkpoint_0.ckpt/x", NotADirectoryError)):
        with pytest.raises(error):
            os.stat(mounted.path / name)
    with pytest.raises(OSError) as error:
        os.stat(mounted.path / ("n" * 256))
    assert error.value.strerror == "File name too long"


def test_attributes_stay(tree, mounted):
    """What a second look sees is what the first saw; files are read-only and complete."""
    looks = [[os.stat(mounted.path / n) for n in files(tree)] for _ in range(2)]
    for a, b, name in zip(*looks, files(tree)):
        assert (a.st_ino, a.st_size, a.st_mtime_ns, a.st_mode) == (b.st_ino, b.st_size, b.st_mtime_ns, b.st_mode)
        assert a.st_nlink == 1 and a.st_mode & 0o222 == 0
        assert a.st_size == os.stat(tree[0] / "want" / name).st_size
        assert a.st_blocks == -(-a.st_size // 512)
