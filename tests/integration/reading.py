"""Every way to read a file, held against the bytes that it should have."""
import mmap
import os

import ckpt


def at_random(rnd, size, n):
    """(offset, length) pairs: 1 byte to 8 MiB, small ones as often as large ones, some past the end."""
    for _ in range(n):
        length = min(8 << 20, 1 << rnd.randrange(24)) - rnd.randrange(2)
        yield rnd.randrange(size + 1), max(1, length)


def check(path, want, rnd, n=20):
    """Size, whole content, random reads and a mapping."""
    assert os.stat(path).st_size == len(want), path
    with open(path, "rb") as src:
        got = src.read()
    assert got == want, "%s: first difference at %d" % (path, first_difference(got, want))
    fd = os.open(path, os.O_RDONLY)
    try:
        for at, length in at_random(rnd, len(want), n):
            assert os.pread(fd, length, at) == want[at:at + length], (path, at, length)
        assert os.pread(fd, 1, len(want)) == b""
        check_maps(fd, want, rnd)
    finally:
        os.close(fd)


def check_maps(fd, want, rnd):
    for flags, protection in ((mmap.MAP_SHARED, mmap.PROT_READ), (mmap.MAP_PRIVATE, mmap.PROT_READ),
                              (mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)):
        with mmap.mmap(fd, len(want), flags=flags, prot=protection) as view:
            for at, length in at_random(rnd, len(want), 4):
                assert view[at:at + length] == want[at:at + length]
            if protection & mmap.PROT_WRITE:  # a private page is ours to change, the file is not
                view[0] ^= 0xFF
                assert os.pread(fd, 1, 0) == want[:1]


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def check_tree(mounted, tree, target, container, rnd, ranks=None, n=8, **options):
    """Every file of a mount against the plain route."""
    ranks = range(target.ranks if target else 1) if ranks is None else ranks
    assert sorted(os.listdir(mounted.path)) == sorted("rank_%d" % r for r in ranks)
    for rank in ranks:
        assert os.listdir(mounted.path / ("rank_%d" % rank)) == ["checkpoint_%d.%s" % (rank, container)]
        want = ckpt.expected_bytes(tree, target, rank, container, **options)
        check(mounted.file(rank, container), want, rnd, n)
