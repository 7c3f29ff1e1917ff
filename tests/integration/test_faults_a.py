"""Faults in the source, and the one right answer to each: an exit code and a message that helps.

A fault that the listing, the strategies or the sample rank tell ends every mount. A fault in another
header ends `ls` of the whole tree and mounts with verify=headers; a default mount lives, answers EIO for the
files that need the bad one, and serves all others. refused() and both_ways() check these two.
"""
import errno
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import PROGRAM, QUICK, SEED, program
from reading import check, check_tree

BAD = 3  # the rank that is damaged; rank 0 is the sample of its stage
NAMES = {"w": ("Float32", (16, 6)), "b": ("BFloat16", (8,)), "z.last": ("Int8", (8, 3))}


def layouts(n, axis=0):
    return {name: Layout([n], [0 if a == axis else -1 for a in range(len(shape))])
            for name, (_, shape) in NAMES.items()}


@pytest.fixture(params=["ckpt", "safetensors"])
def container(request):
    return request.param


@pytest.fixture
def tree(tmp_path, container):
    return Four(tmp_path, container)


class Four:
    """Four ranks, cut by rows; the target is the same cut, so file N needs rank N alone."""

    def __init__(self, root, container="ckpt", dp=1):
        self.root, self.container = root / "src", container
        self.layout = {n: Layout([dp, 4] if dp > 1 else l.dev, l.map) for n, l in layouts(4).items()}
        self.strategy = Strategy({0: self.layout})
        self.whole = {n: ckpt.values(1, n, *what) for n, what in NAMES.items()}
        ckpt.write_tree(self.root, self.strategy, self.whole, lambda rank: ckpt.counters(), container)
        self.path = root / "s.ckpt"
        ckpt.write(self.path, ckpt.strategy_bytes(self.strategy))
        self.good = {r: self.file(r).read_bytes() for r in range(4 * dp)}

    def file(self, rank):
        return self.root / ("rank_%d/checkpoint_%d-1_2.%s" % (rank, rank, self.container))

    def options(self, *more):
        return ",".join(("src_strategy=%s" % self.path, "target=%s" % self.path) + more)

    def want(self, rank):
        """Equal to the good source: nothing is joined, and ckpt.py writes in the framework's order."""
        return self.good[rank]


def check_refusal(done, code, words):
    assert done.code == code and not done.out, done
    assert done.text.startswith("reshardfs: "), done
    for word in words:
        assert word in done.text, (word, done)
    assert "\x1b" not in done.text and len(done.text) < 2000, done


def refused(tree, code, *words, options=()):
    """Nothing is mounted: told before any header but the sample's."""
    point = tree.root.parent / "refused"
    point.mkdir(exist_ok=True)
    for verify in ("lazy", "headers"):
        done = program(tree.root, point, "-o", tree.options("verify=" + verify, *options))
        check_refusal(done, code, words)
        assert not os.path.ismount(point)


def both_ways(tree, mount, code, *words, bad=(BAD,), options=()):
    point = tree.root.parent / "refused"
    point.mkdir(exist_ok=True)
    done = program(tree.root, point, "-o", tree.options("verify=headers", *options))
    check_refusal(done, code, words)
    assert not os.path.ismount(point)
    done = program("ls", tree.root, "-o", tree.options(*options))
    assert done.code == code and all(word in done.text for word in words), done

    mounted = mount(tree.root, *tree.options(*options).split(","))
    for rank in range(len(tree.good)):
        path = mounted.file(rank, tree.container)
        assert os.listdir(path.parent) == [path.name]  # a failed name stays in the listing
        if rank not in bad:
            check(path, tree.want(rank), random.Random(SEED), 3)
            continue
        for _ in range(2):
            for attempt in (os.stat, open):
                with pytest.raises(OSError) as error:
                    attempt(path)
                assert error.value.errno == errno.EIO
    assert all(word in mounted.log() for word in words), mounted.log()
    if len(bad) == 1:
        assert mounted.log().count(words[0]) == 1, "one line for one cause:\n" + mounted.log()


# ------------------------------------------------------------------------------- 1, 2: SOURCE itself

def test_01_source_missing_or_empty(tmp_path):
    (tmp_path / "empty.ckpt").touch()
    for name, words in (("nowhere", ("nowhere", "No such file")), ("empty.ckpt", ("empty.ckpt",))):
        done = program("ls", tmp_path / name, "--target", "full")
        check_refusal(done, 3, words)


def test_01_source_unreadable():
    """As somebody who is not root and may not read it."""
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        shutil.copy(PROGRAM, root + "/reshardfs")
        ckpt.write(root + "/x.ckpt", ckpt.ckpt_bytes(ckpt.counters()))
        os.chmod(root + "/x.ckpt", 0)
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
        done = subprocess.run([*drop, root + "/reshardfs", "ls", root + "/x.ckpt", "--target", "full"],
                              capture_output=True, text=True, timeout=60)
    assert done.returncode in (3, 5) and "x.ckpt" in done.stderr and "Permission denied" in done.stderr, done


def test_02_no_format(tmp_path):
    (tmp_path / "src").mkdir()
    done = program("ls", tmp_path / "src", "--target", "full")
    check_refusal(done, 4, ("src",))
    (tmp_path / "src/notes.txt").write_text("nothing to see")
    check_refusal(program("ls", tmp_path / "src", "--target", "full"), 4, ("src",))


def test_02_both_kinds_in_rank_directories(tmp_path):
    tree = Four(tmp_path, "ckpt")
    ckpt.write(tree.file(1).with_suffix(".safetensors"), ckpt.safe_bytes(ckpt.counters()))
    refused(tree, 2, "rank_1", "select=")


# ------------------------------------------------------------------------------------ 3, 4: the listing

def test_03_rank_missing(tree):
    shutil.rmtree(tree.file(BAD).parent)
    refused(tree, 3, "rank %d" % BAD)


def test_03_rank_directory_without_a_file(tree):
    tree.file(BAD).unlink()
    refused(tree, 3, str(BAD))


def test_03_missing_rank_that_nobody_needs(tree, mount):
    shutil.rmtree(tree.file(BAD).parent)
    mounted = mount(tree.root, *tree.options("ranks=0-2").split(","))
    for rank in range(3):
        check(mounted.file(rank, tree.container), tree.want(rank), random.Random(SEED), 3)


def test_03_missing_rank_with_replicas(tmp_path, container, mount):
    """Rank 5 stores what rank 1 stores; a target of four ranks starts from ranks 0 to 3 alone."""
    tree = Four(tmp_path, container, dp=2)
    shutil.rmtree(tree.file(5).parent)
    ckpt.write(tmp_path / "dst.ckpt", ckpt.strategy_bytes(Strategy({0: layouts(4)})))
    mounted = mount(tree.root, "src_strategy=%s" % tree.path, "target=%s" % (tmp_path / "dst.ckpt"))
    check_tree(mounted, ckpt.Tree(tree.root, tree.strategy), Strategy({0: layouts(4)}), container,
               random.Random(SEED), n=2)


def test_04_foreign_files_are_ignored(tree, mount):
    for name in ("README.md", "rank_1/notes.txt", "rank_1/.nfs0001", "rank_2/x.ckpt~", "rank_2/.x.swp", "events.out",
                 "rank_x/a.ckpt", "rank_1/checkpoint_1-1_3.%s.tmp" % tree.container):
        ckpt.write(tree.root / name, b"something else")
    mounted = mount(tree.root, *tree.options().split(","))
    for rank in range(4):
        check(mounted.file(rank, tree.container), tree.want(rank), random.Random(SEED), 3)
    done = program("inspect", tree.root, "-o", "src_strategy=%s" % tree.path)
    assert done.code == 0 and b"README.md" in done.out and b".tmp" in done.out + done.err, done


@pytest.mark.parametrize("content, words", [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 1200000000\n",
     ("Git LFS pointer", "git lfs pull")),
    (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", ("HTML",)),
    (b"\x0a\xef\xbf\xbd\x01" + b"\xef\xbf\xbd" * 40, ("checkpoint_3",)),
], ids=["lfs", "html", "text-converted"])
def test_04a_something_else_in_its_place(content, words, tree, mount):
    tree.file(BAD).write_bytes(content)
    both_ways(tree, mount, 3, "rank_3/checkpoint_3", *words)


# ----------------------------------------------------------------------------- 5, 6: length of the file

@pytest.mark.parametrize("length", ["-1", "half", "0", "7"])
def test_05_truncated(length, tree, mount):
    size = len(tree.good[BAD])
    size = {"-1": size - 1, "half": size // 2, "0": 0, "7": 7}[length]
    os.truncate(tree.file(BAD), size)
    both_ways(tree, mount, 3, "rank_3/checkpoint_3")


def test_05_sizes_are_told(tree, mount):
    os.truncate(tree.file(BAD), len(tree.good[BAD]) - 1)
    both_ways(tree, mount, 3, "rank_3/checkpoint_3", str(len(tree.good[BAD]) - 1))


def test_05_truncated_sample(tree):
    """The lowest rank of a stage is read before the mount exists."""
    os.truncate(tree.file(0), len(tree.good[0]) - 1)
    refused(tree, 3, "rank_0/checkpoint_0")


@pytest.mark.parametrize("tail", [b"\0", b"x", b"{}", b"\x12\0", b"\x0a"])
def test_06_bytes_after_the_end(tail, tree, mount):
    tree.file(BAD).write_bytes(tree.good[BAD] + tail)
    both_ways(tree, mount, 3, "rank_3/checkpoint_3")


# --------------------------------------------------------------------- 7, 8, 9: safetensors headers

def safe_file(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(name="w", dtype="F32", shape="[4,6]", offsets="[0,96]"):
    return '"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}' % (name, dtype, shape, offsets)


GOOD = entry()
HEADERS = {
    "length 0": (safe_file("", length=0), 3),
    "length 100 million and 1": (safe_file("{}", length=100000001), 3),
    "length 2^63": (safe_file("{}", length=1 << 63), 3),
    "length 2^64-1": (safe_file("{}", length=(1 << 64) - 1), 3),
    "length past the end": (safe_file("{}", length=3), 3),
    "not an object": (safe_file("[]"), 3),
    "no JSON": (safe_file("hello w!"), 3),
    "not UTF-8": (safe_file(b'{"\xff":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'), 3),
    "very deep": (safe_file('{"__metadata__":' + "[" * 10000 + "]" * 10000 + "}"), 3),
    "NUL in the padding": (safe_file(b"{}\0\0"), 3),
    "two objects": (safe_file("{}{}"), 3),
    "byte order mark": (safe_file(b"\xef\xbb\xbf{}"), 3),
    "duplicate key": (safe_file("{%s,%s}" % (entry(), entry(offsets="[0,96]")), b"x" * 96), 3),
    "duplicate key by escape": (safe_file("{%s,%s}" % (entry(), entry("\\u0077", offsets="[96,192]")), b"x" * 192), 3),
    "metadata number": (safe_file('{"__metadata__":{"a":1}}'), 3),
    "overlap": (safe_file("{%s,%s}" % (GOOD, entry("v", offsets="[95,191]")), b"x" * 191), 3),
    "gap": (safe_file("{%s,%s}" % (GOOD, entry("v", offsets="[97,193]")), b"x" * 193), 3),
    "not from 0": (safe_file("{%s}" % entry(offsets="[1,97]"), b"x" * 97), 3),
    "reversed": (safe_file("{%s}" % entry(offsets="[96,0]"), b"x" * 96), 3),
    "not shape x dtype": (safe_file("{%s}" % entry(shape="[4,7]"), b"x" * 96), 3),
    "above 2^53": (safe_file("{%s}" % entry(offsets="[0,9007199254740993]"), b"x" * 96), 3),
    "above 2^64": (safe_file("{%s}" % entry(offsets="[0,18446744073709551616]"), b"x" * 96), 3),
    "negative": (safe_file("{%s}" % entry(offsets="[-96,0]"), b"x" * 96), 3),
    "1.5": (safe_file("{%s}" % entry(offsets="[0,96.5]"), b"x" * 96), 3),
    "96.0": (safe_file("{%s}" % entry(offsets="[0,96.0]"), b"x" * 96), 3),
    "1e3": (safe_file("{%s}" % entry(shape="[1e3]", offsets="[0,4000]"), b"x" * 4000), 3),
    "text for a number": (safe_file('{%s}' % entry(offsets='[0,"96"]'), b"x" * 96), 3),
    "three offsets": (safe_file("{%s}" % entry(offsets="[0,96,96]"), b"x" * 96), 3),
    "no offsets": (safe_file('{"w":{"dtype":"F32","shape":[24]}}', b"x" * 96), 3),
    "dtype twice": (safe_file('{"w":{"dtype":"F32","dtype":"F32","shape":[24],"data_offsets":[0,96]}}', b"x" * 96), 3),
    "product overflows": (safe_file("{%s}" % entry(shape="[4294967296,4294967296,2]"), b"x" * 96), 3),
    "bytes overflow": (safe_file("{%s}" % entry(shape="[4611686018427387904]"), b"x" * 96), 3),
    "nine axes": (safe_file("{%s}" % entry(shape="[4,1,1,1,1,1,1,1,6]"), b"x" * 96), 7),
    "dtype in lower case": (safe_file("{%s}" % entry(dtype="f32"), b"x" * 96), 4),
    "unknown dtype": (safe_file("{%s}" % entry(dtype="Q9"), b"x" * 96), 4),
    "bits do not fill bytes": (safe_file("{%s}" % entry(dtype="F4", shape="[3]", offsets="[0,2]"), b"xx"), 3),
}


@pytest.mark.parametrize("name", HEADERS)
def test_07_08_09_hostile_headers(name, tmp_path, mount):
    tree, (content, code) = Four(tmp_path, "safetensors"), HEADERS[name]
    tree.file(BAD).write_bytes(content)
    begin = time.monotonic()
    both_ways(tree, mount, code, "rank_3/checkpoint_3")
    assert time.monotonic() - begin < (30 if QUICK else 10)  # three runs and a mount


def test_07_memory_stays_small(tmp_path):
    """A header that claims 100 million bytes in a sparse file of that size."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 100000000) + b'{"a":{')
    os.truncate(path, 8 + 100000000)
    child = subprocess.Popen([PROGRAM, "ls", path, "--target", "full"], stderr=subprocess.PIPE)
    begin, text = time.monotonic(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    assert child.returncode in (3, 7) and b"x.safetensors" in text, text
    if not QUICK:
        assert usage.ru_maxrss < 300 << 10 and time.monotonic() - begin < 2


def test_09_odd_but_valid(tmp_path, mount):
    """White space before the header, any order of keys, a zero axis with a huge neighbour."""
    content = safe_file(' {%s,%s,%s,"__metadata__":{}}  ' % (
        entry("v", "I8", "[2]", "[96,98]"), GOOD, entry("e", "F64", "[0,9223372036854775808]", "[0,0]")), b"x" * 98)
    ckpt.write(tmp_path / "x.safetensors", content)
    mounted = mount(tmp_path / "x.safetensors", "target=full")
    data = (mounted.path / "rank_0/model.safetensors").read_bytes()
    size = 8 + struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:size])
    assert head["e"] == {"dtype": "F64", "shape": [0, 1 << 63], "data_offsets": [0, 0]}
    assert head["w"]["data_offsets"] == [0, 96] and head["v"]["data_offsets"] == [96, 98]
    assert data[size:] == b"x" * 98


# -------------------------------------------------------------------- 10, 11, 12: what shards agree on

def test_10_a_cut_inside_a_byte(tmp_path):
    ckpt.write(tmp_path / "x.safetensors", safe_file("{%s}" % entry(dtype="F4", shape="[6]", offsets="[0,3]"), b"abc"))
    ckpt.write(tmp_path / "dst.ckpt", ckpt.strategy_bytes(Strategy({0: {"w": Layout([2], [0])}})))
    done = program("ls", tmp_path / "x.safetensors", "--target", tmp_path / "dst.ckpt")
    assert done.code == 4 and "'w'" in done.text and "F4" in done.text, done


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_11_shards_disagree(change, tree, mount):
    entries = ckpt.read_file(tree.file(BAD))
    entries["w"] = ckpt.values(1, "w", *(("Float32", (5, 6)) if change == "shape" else ("Int32", (4, 6))))
    tree.file(BAD).write_bytes(ckpt.file_bytes(entries, tree.container))
    both_ways(tree, mount, 3, "'w'", "rank_3", "rank_0")


def test_12_nobody_stores_a_slice(tree, mount):
    entries = ckpt.read_file(tree.file(BAD))
    del entries["w"]
    tree.file(BAD).write_bytes(ckpt.file_bytes(entries, tree.container))
    both_ways(tree, mount, 3, "'w'", "3")


def test_12_layouts_that_cannot_be(tmp_path):
    tree = Four(tmp_path)
    for layout in (Layout([4], [1, -1]), Layout([4], [-2, -1]), Layout([2], [0, -1]), Layout([4], [0]),
                   Layout([4], [0, -1], 3), Layout([4], [0, -1], split=[1, 2, 3])):
        bad = dict(tree.layout, w=layout)
        ckpt.write(tree.path, strategy_of(bad))
        done = program("ls", tree.root, "-o", "src_strategy=%s,target=full" % tree.path)
        assert done.code in (2, 3) and done.text.startswith("reshardfs: "), (layout, done)
        assert "w" in done.text or "s.ckpt" in done.text


def strategy_of(layouts_of_a_stage):
    """Encoded although no device group of it may exist."""
    class Loose(Layout):
        def step(self):
            return 1 if self.opt else 0
    loose = {n: Loose(**vars(l)) for n, l in layouts_of_a_stage.items()}
    return ckpt.strategy_bytes(Strategy({0: loose}))


# -------------------------------------------------------------------------- 13, 14: content is not read

def test_13_14_content_is_served_as_stored(tmp_path, mount):
    """Replicas that differ and a wrong checksum are for a check of the data, not for a mount."""
    tree = Four(tmp_path, "ckpt", dp=2)
    for rank in range(8):
        data = ckpt.ckpt_bytes(ckpt.read_file(tree.file(rank)), crc=True)
        tree.file(rank).write_bytes(data)
    broken = bytearray(tree.file(1).read_bytes())
    at = broken.index(ckpt.read_ckpt(tree.file(1))["w"].raw())
    broken[at] ^= 1
    tree.file(1).write_bytes(broken)
    mounted = mount(tree.root, *tree.options().split(","))
    got = mounted.file(1).read_bytes()
    assert got[at] == broken[at] and got == bytes(broken[:-17])


# ---------------------------------------------------------------------------- 16, 17: what is no file

def test_16_links(tree, tmp_path, mount):
    """A link that stays inside is followed; nothing else is."""
    inside = tree.root / "store"
    inside.mkdir()
    shutil.move(tree.file(1), inside / "one")
    tree.file(1).symlink_to("../store/one")
    mounted = mount(tree.root, *tree.options().split(","))
    check(mounted.file(1, tree.container), tree.want(1), random.Random(SEED), 3)
    outside = tmp_path / "elsewhere"
    shutil.copy(inside / "one", outside)
    for target in (outside, "../../elsewhere", "nowhere", tree.file(1).name):
        tree.file(1).unlink()
        tree.file(1).symlink_to(target)
        done = program("ls", tree.root, "-o", tree.options())
        assert done.code == 3 and "checkpoint_1" in done.text, (target, done)
    tree.file(1).unlink()
    tree.file(1).symlink_to("../../elsewhere")
    done = program("ls", tree.root, "-o", tree.options())
    assert "beneath=" in done.text, done
    mounted = mount(tree.root, *tree.options("beneath=%s" % tmp_path).split(","))
    check(mounted.file(1, tree.container), tree.want(1), random.Random(SEED), 3)
    done = program("ls", tree.root, "-o", tree.options("symlinks=deny", "beneath=%s" % tmp_path))
    assert done.code == 3 and "checkpoint_1" in done.text, done


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "device"])
@pytest.mark.parametrize("rank", [0, BAD])
def test_17_no_regular_file(kind, rank, tree):
    path = tree.file(rank)
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        held, here = socket.socket(socket.AF_UNIX), os.getcwd()
        os.chdir(path.parent)  # the address of a socket has to be short
        held.bind(path.name)
        os.chdir(here)
        held.close()
    else:
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("a device file needs root")
    done = program("ls", tree.root, "-o", tree.options(), timeout=20)
    assert done.code == 3 and "rank_%d" % rank in done.text, done


def test_17_source_is_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "x.ckpt")
    done = program("ls", tmp_path / "x.ckpt", "--target", "full", timeout=20)
    assert done.code in (3, 4) and "x.ckpt" in done.text, done


# -------------------------------------------------------------------------------- 18, 21: names and wire

def test_18_a_name_of_70_kilobytes(tree, mount):
    entries = ckpt.read_file(tree.file(BAD))
    entries["n" * 70000] = ckpt.values(1, "n", "Int8", (1,))
    tree.file(BAD).write_bytes(ckpt.file_bytes(entries, tree.container))
    both_ways(tree, mount, 7, "rank_3/checkpoint_3")


def test_18_escape_sequences_are_not_printed(tree, mount):
    entries = ckpt.read_file(tree.file(BAD))
    entries["\x1b[31mw"] = ckpt.values(1, "n", "Int8", (1,))
    del entries["w"]
    tree.file(BAD).write_bytes(ckpt.file_bytes(entries, tree.container))
    both_ways(tree, mount, 3, "'w'")
    for verb in ("inspect", "plan"):
        options = "src_strategy=%s" % tree.path if verb == "inspect" else tree.options()
        done = program(verb, tree.root, "-o", options)
        assert b"\x1b" not in done.out + done.err, done


W = ckpt.put(1, "w") + ckpt.put(2, ckpt.put(1, 4) + ckpt.put(1, 6) + ckpt.put(2, "Float32") + ckpt.put(3, b"x" * 96))
WIRES = {
    "length past the end": (b"\x0a\xff\xff\xff\x7f", 3),
    "length 2^64-1": (b"\x0a" + b"\xff" * 9 + b"\x01", 3),
    "varint of eleven bytes": (b"\x0a" + b"\x80" * 10 + b"\x01", 3),
    "group": (b"\x0b\x0c", 3),
    "unknown wire type": (b"\x0f", 3),
    "value without a tag": (ckpt.put(1, ckpt.put(2, ckpt.put(2, "Float32") + ckpt.put(3, b"abcd"))), 3),
    "tensor without a type": (ckpt.put(1, ckpt.put(1, "w") + ckpt.put(2, ckpt.put(3, b"abcd"))), 3),
    "content is not shape x type": (ckpt.put(1, ckpt.put(1, "w") + ckpt.put(
        2, ckpt.put(1, 4) + ckpt.put(1, 7) + ckpt.put(2, "Float32") + ckpt.put(3, b"x" * 96))), 3),
    "negative dims": (ckpt.put(1, ckpt.put(1, "w") + ckpt.put(
        2, ckpt.put(1, -4) + ckpt.put(1, -6) + ckpt.put(2, "Float32") + ckpt.put(3, b"x" * 96))), 3),
    "dims overflow": (ckpt.put(1, ckpt.put(1, "w") + ckpt.put(
        2, ckpt.put(1, 1 << 62) + ckpt.put(1, 8) + ckpt.put(2, "Float32") + ckpt.put(3, b"x" * 96))), 3),
    "a name twice": (ckpt.put(1, W) + ckpt.put(1, W.replace(b"w", b"v", 1)) + ckpt.put(1, W), 3),
    "unknown type": (ckpt.put(1, W.replace(b"Float32", b"Float99")), 4),
    "map parameter": (ckpt.put(1, ckpt.put(1, "w") + ckpt.put(3, ckpt.put(1, ckpt.put(2, "int32") + ckpt.put(3, b"")))), 4),
    "encrypted": (struct.pack("<I", 0x7F3A5ED8) + b"x" * 100, 4),
    "encrypted by SM4": (struct.pack("<I", 0x7F3A5EDA) + b"x" * 100, 4),
}


@pytest.mark.parametrize("name", WIRES)
def test_21_hostile_ckpt(name, tmp_path, mount):
    tree, (content, code) = Four(tmp_path), WIRES[name]
    tree.file(BAD).write_bytes(content)
    both_ways(tree, mount, code, "rank_3/checkpoint_3")


def test_21_odd_but_valid_ckpt(tmp_path, mount):
    """Packed dims, unknown fields inside, another order of fields, long varints."""
    tensor = ckpt.put(7, b"later") + ckpt.put(2, "Float32") + ckpt.put(1, bytes([4, 6])) + ckpt.put(3, b"x" * 96)
    odd = ckpt.put(9, 12345) + ckpt.put(2, tensor) + ckpt.put(1, "w")
    ckpt.write(tmp_path / "x.ckpt", b"\x0a" + bytes([len(odd) | 0x80, 0x80, 0]) + odd)
    mounted = mount(tmp_path / "x.ckpt", "target=full")
    want = ckpt.ckpt_bytes({"w": ckpt.Tensor("Float32", ckpt.np.frombuffer(b"x" * 96, "<u4").reshape(4, 6))})
    check(mounted.file(0), want, random.Random(SEED), 3)


@pytest.mark.parametrize("content", [b"\x08", b"\x08\x01\x1a\xff\xff\x03", b"\x08\x01" + b"\x1a\x04\x0a\x02ab",
                                     b'{"parallel_layout_item":{"w":{"dev_matrix":[4]}}', b'{"parallel_layout_item":[]}',
                                     b'{"parallel_layout_item":{"w":{"dev_matrix":[4],"tensor_map":["x"]}}}',
                                     b"\x08\x01"])
def test_21_hostile_strategies(content, tmp_path):
    tree = Four(tmp_path)
    tree.path.write_bytes(content)
    for options in ("src_strategy=%s,target=full" % tree.path, tree.options()):
        done = program("ls", tree.root, "-o", options)
        assert done.code in (2, 3) and "s.ckpt" in done.text, done


# ------------------------------------------------------------------------------------------- 22: many

def test_22_many_tensors_and_ranks(tmp_path):
    """No quadratic time: 100 000 tensors of one file, and 2000 rank directories."""
    n = 20000 if QUICK else 100000
    one = ckpt.values(1, "x", "Int8", (1,))
    ckpt.write(tmp_path / "x.ckpt", ckpt.ckpt_bytes({"net.layer.%06d.weight" % i: one for i in range(n)}))
    begin = time.monotonic()
    assert program("ls", tmp_path / "x.ckpt", "--target", "full").code == 0
    assert time.monotonic() - begin < 20
    layout, ranks = Layout([2000], [0]), 2000
    row = ckpt.ckpt_bytes({"w": one})
    for rank in range(ranks):
        ckpt.write(tmp_path / ("src/rank_%d/x.ckpt" % rank), row)
    ckpt.write(tmp_path / "s.ckpt", ckpt.strategy_bytes(Strategy({0: {"w": layout}})))
    begin = time.monotonic()
    done = program("cat", tmp_path / "src", "rank_0/checkpoint_0.ckpt", "-o",
                   "src_strategy=%s,target=full" % (tmp_path / "s.ckpt"))
    assert done.out == ckpt.ckpt_bytes({"w": ckpt.Tensor("Int8", ckpt.np.repeat(one.data, ranks))}), done.text
    assert time.monotonic() - begin < 20


# -------------------------------------------------------------------------------------- 23, 24: targets

def target_refused(tree, layouts_of_target, code, *words, options=()):
    path = tree.root.parent / "dst.ckpt"
    ckpt.write(path, ckpt.strategy_bytes(Strategy({0: layouts_of_target})))
    point = tree.root.parent / "refused"
    point.mkdir(exist_ok=True)
    for arguments in ((tree.root, point), ("plan", tree.root), ("ls", tree.root)):
        done = program(*arguments, "-o", ",".join(("src_strategy=%s" % tree.path, "target=%s" % path) + options))
        check_refusal(done, code, words)
        assert not os.path.ismount(point)


def test_23_a_cut_that_does_not_divide(tree):
    target_refused(tree, layouts(3), 2, "3")


def test_23_no_such_target(tree):
    done = program("ls", tree.root, "-o", "src_strategy=%s,target=%s" % (tree.path, tree.root / "nowhere"))
    assert done.code in (2, 3) and "nowhere" in done.text, done


def test_24_target_wants_more(tree, mount):
    more = layouts(4) | {"adam_m.w": Layout([4], [0, -1])}
    target_refused(tree, more, 3, "'adam_m.w'")
    mounted = mount(tree.root, "src_strategy=%s" % tree.path, "target=%s" % (tree.root.parent / "dst.ckpt"),
                    "missing=skip")
    check(mounted.file(2, tree.container), tree.want(2), random.Random(SEED), 3)


def test_24_target_knows_less(tree, mount):
    less = layouts(4)
    del less["z.last"]
    target_refused(tree, less, 3, "'z.last'", options=("default=error",))
    done = program("plan", tree.root, "-o", "src_strategy=%s,target=%s" % (tree.path, tree.root.parent / "dst.ckpt"))
    assert done.code == 0 and b"z.last" in done.out + done.err, done


# --------------------------------------------------------------------------- the program's own manners

def test_usage_errors():
    for arguments, word in ((["ls"], ""), (["--nonsense"], "nonsense"), (["ls", "/", "-o", "targte=full"], "target"),
                            (["ls", "/"], "target"), (["ls", "/", "--target", "full", "-o", "rw"], "rw")):
        done = program(*arguments)
        assert done.code == 2 and word in done.text and not done.out, (arguments, done)


def test_help_and_version():
    for arguments in (["-h"], ["--help"], ["--version"]):
        done = program(*arguments)
        assert done.code == 0 and b"reshardfs" in done.out and not done.err, done


def test_mount_points(tree, tmp_path):
    """41: what is no empty directory is refused before anything is mounted."""
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    for point in ("nowhere", "file", "full"):
        done = program(tree.root, tmp_path / point, "-o", tree.options())
        assert done.code == 6 and point in done.text, done
        assert not os.path.ismount(tmp_path / point)


def test_background_mount_is_ready_at_once(tree, tmp_path, mount):
    """44: what the command returns to can be read, and afterwards nothing is left."""
    point = tmp_path / "mnt"
    point.mkdir()
    for _ in range(5 if QUICK else 25):
        done = program(tree.root, point, "-o", tree.options())
        assert done.code == 0 and not done.err and not done.out, done
        try:
            path = point / ("rank_1/checkpoint_1.%s" % tree.container)
            assert path.read_bytes() == tree.want(1)
        finally:
            done = program("umount", point)
        assert done.code == 0 and not os.path.ismount(point), done
