"""Sparse files of several GiB: tensors in many Values, offsets past 32 bits, and every border.

Nothing of this size is written or compared whole. Marks stand at known elements of zero tensors; where
each must appear in a target file follows from the sizes in docs/formats/mindspore.md.
"""
import os
import random

import numpy as np
import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import SEED

pytestmark = pytest.mark.big
COLUMNS = 8192


class Sparse:
    """A .ckpt file that is mostly zeros: where the content of each tensor is, and the marks in it."""

    def __init__(self, entries):
        """entries: (name, kind, shape, {element number: bytes}) each."""
        self.literals, self.content, at = [], {}, 0
        for name, kind, shape, marks in entries:
            size = int(np.prod(shape, dtype=np.int64)) * ckpt.WIDTH[kind]
            spans = []
            for begin in range(0, size, ckpt.VALUE_BYTES):
                length = min(ckpt.VALUE_BYTES, size - begin)
                head = ckpt.value_header(name, shape, kind, length)
                self.literals.append((at, head))
                spans.append((begin, at + len(head), length))
                at += len(head) + length
            self.content[name] = spans
            for element, mark in marks.items():
                for begin, place, length in spans:
                    if begin <= element * len(mark) < begin + length:
                        self.literals.append((place + element * len(mark) - begin, mark))
        self.size = at

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as out:
            out.truncate(self.size)
            for at, data in self.literals:
                out.seek(at)
                out.write(data)

    def read(self, at, length):
        out = bytearray(max(0, min(length, self.size - at)))
        for place, data in self.literals:
            for i in range(max(place, at), min(place + len(data), at + len(out))):
                out[i - at] = data[i - place]
        return bytes(out)

    def borders(self):
        """Where something begins or ends, and the marks."""
        return sorted({p for at, data in self.literals for p in (at, at + len(data))} | {self.size})


def draw_marks(rnd, rows, n=400):
    """{(row, column): four bytes}, corners and the first and last element of every Value among them."""
    places = {(0, 0), (0, COLUMNS - 1), (rows - 1, 0), (rows - 1, COLUMNS - 1)}
    for border in range(0, rows * COLUMNS, ckpt.VALUE_BYTES // 4):
        places |= {divmod(border, COLUMNS), divmod(max(0, border - 1), COLUMNS)}
    while len(places) < n:
        places.add((rnd.randrange(rows), rnd.randrange(COLUMNS)))
    return {p: rnd.randrange(1, 1 << 32).to_bytes(4, "little") for p in places}


def sliced(marks, total_rows, layout, local):
    """(shape, marks) of what one device holds; the layouts used here cut into contiguous boxes."""
    rows, columns = layout.rows(local, (total_rows, COLUMNS))
    shape, inside = (len(rows), len(columns)), {}
    for (r, c), mark in marks.items():
        r, c = r - int(rows[0]), c - int(columns[0])
        if 0 <= r < shape[0] and 0 <= c < shape[1]:
            inside[r * shape[1] + c] = mark
    return shape, inside


def sparse_file(marks, rows, layout, local):
    """The file of a rank: a small tensor, the large one, and one more that begins past 32 bits."""
    shape, inside = sliced(marks, rows, layout, local)
    return Sparse([("step", "Int32", (1,), {0: b"\1\2\3\4"}), ("big", "Float32", shape, inside),
                   ("behind", "UInt8", (7,), {i: bytes([65 + i]) for i in range(7)})])


def compare(path, want, rnd):
    assert os.stat(path).st_size == want.size
    fd = os.open(path, os.O_RDONLY)
    try:
        places = want.borders()
        for at in rnd.sample(places, min(len(places), 300)):
            at = max(0, at - rnd.randrange(70))
            assert os.pread(fd, 140, at) == want.read(at, 140), (path, at)
        for _ in range(60):
            at, length = rnd.randrange(want.size), rnd.choice([1, 4095, 4096, 70000, 1 << 20, 3 << 20])
            assert os.pread(fd, length, at) == want.read(at, length), (path, at, length)
        assert os.pread(fd, 10, want.size - 3) == want.read(want.size - 3, 3)
    finally:
        os.close(fd)


@pytest.mark.parametrize("name, layout", [
    ("whole", Layout([1], [-1, -1])), ("rows", Layout([2], [0, -1])), ("columns", Layout([2], [-1, 0])),
    ("rows and columns", Layout([4, 2], [1, 0]))])
def test_cut_a_large_tensor(name, layout, mount, tmp_path):
    rnd = random.Random("%d/%s" % (SEED, name))
    rows = 98304  # 3 GiB of Float32: six Values
    marks = draw_marks(rnd, rows)
    sparse_file(marks, rows, Layout([1], [-1, -1]), 0).write(tmp_path / "src/rank_0/x.ckpt")
    small = {"behind": Layout([layout.devices], [-1])}
    ckpt.write(tmp_path / "dst.ckpt", ckpt.strategy_bytes(Strategy({0: {"big": layout} | small})))
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"))
    for rank in range(layout.devices):
        compare(mounted.file(rank), sparse_file(marks, rows, layout, rank), rnd)


def test_join_to_more_than_4_gib(mount, tmp_path):
    """Two source files of 2.25 GiB, cut by columns, become one of 4.5 GiB."""
    rnd, rows = random.Random(SEED), 147456
    marks, layout = draw_marks(rnd, rows), Layout([2], [-1, 0])
    for rank in range(2):
        sparse_file(marks, rows, layout, rank).write(tmp_path / ("src/rank_%d/x.ckpt" % rank))
    ckpt.write_strategies(tmp_path / "src", Strategy({0: {"big": layout, "behind": Layout([2], [-1])}}))
    mounted = mount(tmp_path / "src", "target=full")
    want = sparse_file(marks, rows, Layout([1], [-1, -1]), 0)
    assert want.size > 4 << 30
    compare(mounted.file(0), want, rnd)
