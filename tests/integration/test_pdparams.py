"""format=pdparams against CPython: the bytes of pickle.dumps, and what pickle.loads gives back.

The judge is the pickler of the running interpreter with numpy 1.x, whose module names the files
carry. Lists of names, counts and sizes stand at the borders of the format: 255 and 256 numbers,
names, dimensions; 64 KiB frames; 1000 pairs.
"""
import pickle
import random

import numpy as np
import pytest

import ckpt
from conftest import QUICK, SEED, program
from reading import check

TABLE = "StructuredToParameterName@@"
CODES = {"Bool": "?", "UInt8": "u1", "Int8": "i1", "Int16": "i2", "UInt16": "u2", "Float16": "f2", "BFloat16": "u2",
         "Int32": "i4", "UInt32": "u4", "Float32": "f4", "Float64": "f8", "Int64": "i8", "UInt64": "u8"}
pytestmark = pytest.mark.skipif(np.__version__.startswith("2."), reason="numpy 2 pickles under other module names")


def tensor(rnd, kind, shape):
    count = int(np.prod(shape, dtype=object))
    raw = rnd.randbytes(count * ckpt.WIDTH[kind])
    if kind == "Bool":
        raw = bytes(b & 1 for b in raw)
    return ckpt.Tensor(kind, np.frombuffer(raw, ckpt.carrier(kind)).reshape(shape))


def served(path, *options):
    done = program("cat", path, "--target", "full", "-o", "format=pdparams", *options, "rank_0/model_state.pdparams")
    assert done.code == 0, done
    return done.out


def pickled(entries, order):
    """What Paddle would save, in @order; names are fresh objects, as if read from a file."""
    state = {}
    for name in order:
        array = np.frombuffer(entries[name].raw(), CODES[entries[name].kind]).reshape(entries[name].shape)
        state["".join(list(name))] = array
    state[TABLE] = {key: key for key in state}
    return pickle.dumps(state, protocol=4)


def hold(tmp_path, entries, container="safetensors"):
    path = tmp_path / ("x." + container)
    ckpt.write(path, ckpt.file_bytes(entries, container))
    got = served(path)
    state = pickle.loads(got)
    assert list(state)[-1] == TABLE and sorted(state) == sorted([*entries, TABLE])
    table = state.pop(TABLE)
    assert table == {key: key for key in state} and list(table) == list(state)
    for name, item in entries.items():
        assert state[name].dtype == np.dtype(CODES[item.kind]) and state[name].shape == item.shape
        assert state[name].tobytes() == item.raw()
    want = pickled(entries, state)
    assert got == want, "first difference at %d" % next(
        (i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 2), (2, 1, 3), (2, 1, 3, 2), (1, 2, 1, 2, 1, 2, 1)], ids=str)
def test_every_dtype(kind, shape, tmp_path):
    rnd = random.Random(SEED)
    hold(tmp_path, {"w.%d" % i: tensor(rnd, kind, shape) for i in range(3)})


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 42, 43, 998, 999, 1000, 1001, 1999, 2000, 2001])
def test_numbers_and_batches(count, tmp_path):
    """About six objects a tensor: the 256th and the 1000th pair are passed at many places."""
    rnd = random.Random(SEED)
    hold(tmp_path, {"t%05d" % i: tensor(rnd, "UInt8", (rnd.randrange(3),)) for i in range(count)})


@pytest.mark.parametrize("size", [0, 1, 2, 254, 255, 256, 257, 32768, 65400, 65534, 65535, 65536, 65537, 200000])
@pytest.mark.parametrize("kind", ["UInt8", "Float64"])
def test_payloads_and_frames(size, kind, tmp_path):
    rnd = random.Random(SEED)
    hold(tmp_path, {"t%d" % i: tensor(rnd, kind, (size // ckpt.WIDTH[kind],)) for i in range(4)})


def test_dims_of_every_length(tmp_path):
    rnd = random.Random(SEED)
    dims = [1, 254, 255, 256, 65534, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40]
    hold(tmp_path, {"d%02d" % i: tensor(rnd, "UInt8", (0, d)) for i, d in enumerate(dims)})


@pytest.mark.parametrize("length", [1, 254, 255, 256, 257, 60000])
def test_names_of_every_length(length, tmp_path):
    rnd = random.Random(SEED)
    names = [c * length for c in "ab"] + ["é" * (length // 2), "<", "|", "", "numpy ", "层"]
    hold(tmp_path, {n: tensor(rnd, "Float32", (2,)) for n in dict.fromkeys(names)})


def test_equal_single_bytes(tmp_path):
    """CPython has one object for every bytes of length 1, and numpy's b'b' is one of them."""
    one = {n: ckpt.Tensor(k, np.array([v], "u1").reshape(s)) for n, k, v, s in (
        ("a", "UInt8", 7, ()), ("b", "Int8", 7, (1,)), ("c", "Bool", 1, ()), ("d", "Bool", 1, (1, 1)),
        ("e", "UInt8", ord("b"), ()), ("f", "UInt8", 0, ()), ("g", "UInt8", 0, (1,)))}
    hold(tmp_path, one)


@pytest.mark.parametrize("number", range(10 if QUICK else 60))
def test_random(number, tmp_path):
    rnd = random.Random(SEED + number)
    entries = {}
    for i in range(rnd.choice([1, 2, 5, 20, 60, 300])):
        name = rnd.choice(["w", "层.", "x" * rnd.choice([1, 200, 250, 255, 300, 30000])]) + str(i)
        shape = tuple(rnd.choice([0, 1, 1, 2, 3, 4]) if rnd.random() < .97 else rnd.choice([255, 256, 65535, 65536])
                      for _ in range(rnd.randrange(7)))
        if np.prod(shape, dtype=object) < 400000:
            entries[name] = tensor(rnd, rnd.choice(list(CODES)), shape)
    hold(tmp_path, entries, rnd.choice(["safetensors", "safetensors", "ckpt"]) if all(
        np.prod(t.shape, dtype=object) for t in entries.values()) else "safetensors")


def test_in_a_mount(mount, tmp_path):
    """Slices of a rank tree, read in every way; the counters and texts of each rank."""
    rnd = random.Random(SEED)
    params = ckpt.model(hidden=64, vocab=96)
    strategy = ckpt.place(params, dp=2, mp=2)
    ckpt.write_strategies(tmp_path / "src", strategy)
    ckpt.write_tree(tmp_path / "src", strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters(rank, True))
    to, _ = ckpt.write_strategies(tmp_path / "dst", ckpt.place(params, mp=4))
    target = ckpt.place(params, mp=4)
    mounted = mount(tmp_path / "src", "target=%s" % to, "format=pdparams")
    tree = ckpt.Tree(tmp_path / "src", strategy)
    for rank in range(4):
        entries = {n: t for n, t in ckpt.expected(tree, target, rank).items() if not isinstance(t, str)}
        check(mounted.path / ("rank_%d/model_state.pdparams" % rank), pickled(entries, entries), rnd)


@pytest.mark.parametrize("size", [3, 300, 70000])
def test_as_the_source_of_another(size, tmp_path):
    """What was written is read again, values and types; u2 means bfloat16 there."""
    rnd = random.Random(SEED)
    entries = {"w%d.%s" % (i, kind): tensor(rnd, kind, (size, i)) for i in (0, 1, 2) for kind in CODES if kind != "UInt16"}
    path = tmp_path / "x.safetensors"
    ckpt.write(path, ckpt.safe_bytes(entries, {"format": "pt"}))
    again = tmp_path / "model_state.pdparams"
    again.write_bytes(served(path))
    done = program("cat", again, "-o", "target=full,format=safetensors", "rank_0/model.safetensors")
    assert done.code == 0 and done.out == path.read_bytes(), done.text


def test_what_numpy_lacks_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    ckpt.write(path, ckpt.safe_bytes({"q": ckpt.Tensor("Int4", np.zeros((4,), "u1"))}))
    done = program("cat", path, "-o", "target=full,format=pdparams", "rank_0/model_state.pdparams")
    assert done.code == 4 and "'q'" in done.text and "numpy" in done.text and "hint: " in done.text, done
