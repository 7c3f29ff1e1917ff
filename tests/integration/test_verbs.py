"""The verbs that need no mount: inspect, plan, explain, ranks, ls, cat.

Their numbers are held against files that tests/lib/ckpt.py wrote and rebuilt: explain's runs are
read from the source by hand, plan's totals against what cat prints. Broken trees must give the
same exit code in `plan` and in `inspect`. Nothing here needs /dev/fuse.
"""
import contextlib
import io
import itertools
import json
import math
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import PROGRAM, QUICK, SEED, program

PAIRS = 3 if QUICK else 8


def answer(verb, *arguments, code=0):
    """The object that VERB --json prints; nothing else may stand on stdout."""
    done = program(verb, *arguments, "--json")
    assert done.code == code, done
    out = json.loads(done.out)
    assert out["schema"] == "reshardfs.%s/1" % verb and list(out)[0] == "schema"
    return out


class Case:
    """A source tree, a target strategy, and the options that name them."""

    def __init__(self, root, source, target, params, container="ckpt", dedup=False, texts=False, **mesh):
        self.root = root / "src"
        self.target = target
        ckpt.write_strategies(self.root, source)
        self.whole = ckpt.whole_tensors(params)
        ckpt.write_tree(self.root, source, self.whole, lambda rank: ckpt.counters(rank, texts),
                        container, dedup)
        os.remove(self.root / "merged.ckpt")
        self.to = root / "dst.ckpt"
        ckpt.write(self.to, ckpt.strategy_bytes(target))
        self.tree = ckpt.Tree(self.root, source)
        self.words = [self.root, "-o", "target=%s" % self.to]

    def path(self, rank):
        return "rank_%d/checkpoint_%d.%s" % (rank, rank, "ckpt")


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """dp 2, mp 4, pp 2 with optimizer shards, to dp 2, mp 2: columns are joined and cut."""
    params = ckpt.model()
    return Case(tmp_path_factory.mktemp("verbs"), ckpt.place(params, dp=2, mp=4, pp=2, opt=2),
                ckpt.place(params, dp=2, mp=2), params, texts=True)


def small(root, layouts, names, to=None, **options):
    """A small source in root/src and, with @to, a target strategy in root/dst.ckpt."""
    strategy = Strategy({0: layouts})
    ckpt.write_strategies(root / "src", strategy)
    os.remove(root / "src" / "merged.ckpt")
    whole = {n: ckpt.values(1, n, kind, shape) for n, (kind, shape) in names.items()}
    ckpt.write_tree(root / "src", strategy, whole, **options)
    if to:
        ckpt.write(root / "dst.ckpt", ckpt.strategy_bytes(Strategy({0: to})))
    return [root / "src", "-o", "target=%s" % (root / "dst.ckpt" if to else "full")]


# --------------------------------------------------------------------------------------- plan

def test_plan_totals_are_real_sizes(case):
    plan = answer("plan", *case.words)
    assert plan["target"]["ranks"] == len(plan["ranks"]) == 4 and plan["source"]["ranks"] == 16
    for rank, row in enumerate(plan["ranks"]):
        want = ckpt.expected(case.tree, case.target, rank)
        assert row["rank"] == rank and row["file"] == case.path(rank) and row["error"] is None
        assert row["bytes"] == len(ckpt.file_bytes(want, "ckpt"))
        assert row["tensors"] == len(want)
        assert row["bytes_served"] == sum(len(ckpt.content_of(t)[2]) for t in want.values())
        assert row["bytes_touched"] >= row["bytes_served"]
        assert row["source_files"] == len(row["source_ranks"]) and row["source_ranks"] == sorted(set(row["source_ranks"]))
    for key in ("bytes", "bytes_served", "bytes_touched", "reads"):
        assert plan["totals"][key] == sum(row[key] for row in plan["ranks"])
    used = set().union(*(row["source_ranks"] for row in plan["ranks"]))
    assert plan["totals"]["source_units_used"] == len(used) and plan["totals"]["refused"] == 0
    assert plan["source"]["bytes_unique"] == sum(len(t.raw()) for t in case.whole.values())
    assert plan["source"]["bytes_on_disk"] == sum(p.stat().st_size for p in case.root.glob("rank_*/*"))


def test_plan_counts_reads_as_explain_lists_them(case):
    row = answer("plan", *case.words, "-o", "ranks=3")["ranks"][0]
    reads = 0
    for name in ckpt.expected(case.tree, case.target, 3):
        for run in answer("explain", *case.words, 3, name)["runs"]:
            reads += math.prod(loop["count"] for loop in run["loops"])
    assert row["reads"] == reads


def test_plan_text(case):
    done = program("plan", *case.words, "--bytes")
    lines = done.out.decode().splitlines()
    size = len(ckpt.expected_bytes(case.tree, case.target, 1, "ckpt"))
    assert done.code == 0 and not done.text
    assert lines[0].startswith("source   %s: mindspore ckpt, 16 ranks (2 stages x 8 devices)" % case.root)
    assert lines[1] == "target   %s: 4 ranks (1 stage x 4 devices), ckpt" % case.to
    row = next(line for line in lines if line.startswith("1 ")).split()
    assert row[1:4] == [case.path(1), str(size), str(len(ckpt.expected(case.tree, case.target, 1)))]
    assert "column slices of 'net.blocks." in done.out.decode()
    assert 'mindspore.load_checkpoint("MOUNTPOINT/rank_0/checkpoint_0.ckpt")' in done.out.decode()
    out = program("plan", *case.words, "-o", "format=safetensors").out.decode()
    assert 'safe_open("MOUNTPOINT/rank_0/checkpoint_0.safetensors", "np")' in out
    assert "warning: text 'net_version' is left out" in out


def test_plan_of_many_ranks_is_folded(tmp_path):
    words = small(tmp_path, {"w": Layout([2], [0, -1])}, {"w": ("Float32", (80, 4))},
                  {"w": Layout([40], [0, -1])})
    out = program("plan", *words).out.decode()
    rows = [line for line in out.splitlines() if "/checkpoint_" in line and "load" not in line]
    assert "12 more" in out and len(rows) == 28 and rows[0][0] == "0" and rows[-1].startswith("39 ")
    assert [r["rank"] for r in answer("plan", *words)["ranks"]] == list(range(40))


def test_same_and_full(case):
    plan = answer("plan", case.root, "-o", "target=same")
    for rank, row in enumerate(plan["ranks"]):
        stored = next(iter((case.root / ("rank_%d" % rank)).iterdir()))
        assert row["bytes"] == stored.stat().st_size and row["reads"] == 1 and row["source_ranks"] == [rank]
        assert row["tensors"] == len(ckpt.read_file(stored))
    full = answer("plan", case.root, "--target", "full")
    assert full["ranks"][0]["bytes"] == len(ckpt.expected_bytes(case.tree, None, 0, "ckpt"))


# ------------------------------------------------------------------------------------ explain

def files_of(root, names):
    return {name: (root / name).read_bytes() for name in names}


def by_hand(root, found):
    """The tensor's bytes, read from the source files as explain says."""
    out, seen = bytearray(found["bytes"]), np.zeros(found["bytes"], np.uint8)
    for run in found["runs"]:
        content = b"".join((root / s["file"]).read_bytes()[s["offset"]:s["offset"] + s["bytes"]]
                           for s in run["spans"])
        for turn in itertools.product(*(range(loop["count"]) for loop in run["loops"])):
            to = run["target_offset"] + sum(i * l["target_step"] for i, l in zip(turn, run["loops"]))
            at = run["content_offset"] + sum(i * l["source_pitch"] for i, l in zip(turn, run["loops"]))
            out[to:to + run["bytes"]] = content[at:at + run["bytes"]]
            seen[to:to + run["bytes"]] += 1
    assert (seen == 1).all(), "every byte comes from exactly one place"
    return bytes(out)


def where(box):
    return tuple(slice(o, o + n) for o, n in zip(box["origin"], box["length"]))


def take(data, box):
    return data[where(box)]


def check_explained(case, rank, name, item, file):
    found = answer("explain", *case.words, rank, name)
    raw = ckpt.content_of(item)[2]
    assert found["tensor"] == name and found["bytes"] == len(raw)
    assert by_hand(case.root, found) == raw
    for s in found["stretches"]:
        assert file[s["file_offset"]:s["file_offset"] + s["bytes"]] == raw[s["tensor_offset"]:][:s["bytes"]]
    assert sum(s["bytes"] for s in found["stretches"]) == len(raw)
    if isinstance(item, str):
        return
    seen = np.zeros(item.shape, int)
    for box in found["boxes"]:
        seen[where(box["target"])] += 1
        stored = case.tree.rank(int(box["unit"][5:]))[name]
        assert (take(stored.data, box["stored"]) == take(item.data, box["target"])).all()
        if name in case.whole:
            assert box["whole_shape"] == list(case.whole[name].shape)
            assert (take(case.whole[name].data, box["source"]) == take(item.data, box["target"])).all()
    assert (seen == 1).all()


def test_explained_runs_read_by_hand(case):
    want = ckpt.expected(case.tree, case.target, 1)
    file = program("cat", *case.words, case.path(1)).out
    rnd = random.Random(SEED)
    names = [n for n in want if not n.startswith("adam")]
    for name in names if not QUICK else rnd.sample(names, 12):
        check_explained(case, 1, name, want[name], file)


def test_explained_fields_and_splits(tmp_path):
    """Interleaved rows, uneven rows and three axes: boxes of a rank are several."""
    layouts = {"f": Layout([4], [0, -1], field=3), "u": Layout([4], [0, -1], split=[5, 20, 0, 23]),
               "t": Layout([2, 2], [1, -1, 0])}
    target = {"f": Layout([2], [-1, 0]), "u": Layout([2], [-1, 0]), "t": Layout([2], [-1, 0, -1])}
    case = Case.__new__(Case)
    case.words = small(tmp_path, layouts, {"f": ("Float32", (48, 6)), "u": ("Int8", (48, 6)),
                                           "t": ("BFloat16", (8, 6, 4))}, target)
    case.root, case.tree = tmp_path / "src", ckpt.Tree(tmp_path / "src", Strategy({0: layouts}))
    case.whole = {n: case.tree.whole(n) for n in layouts}
    for rank in (0, 1):
        want = ckpt.expected(case.tree, Strategy({0: target}), rank)
        file = program("cat", *case.words, case.path(rank)).out
        for name in layouts:
            check_explained(case, rank, name, want[name], file)


def test_explain_draws(tmp_path):
    words = small(tmp_path, {"w": Layout([3], [-1, 0])}, {"w": ("Float32", (4, 6))})
    out = program("explain", *words, 0, "w").out.decode()
    picture = [line.strip() for line in out.splitlines() if line.strip().startswith("|")]
    assert picture == ["|AABBCC|"] * 4
    assert "A rank_0/" in out and "C rank_2/" in out
    assert "[0:4, 2:4] <- [0:4, 2:4] of [4, 6] in rank_1/" in out


@pytest.mark.parametrize("words, said", [
    ((0, "net.blocks.0.qkv.wieght"), "did you mean 'net.blocks.0.qkv.weight'?"),
    ((4, "net.norm.gamma"), "0 to 3"),
    (("x", "net.norm.gamma"), "rank number"),
])
def test_explain_refuses(words, said, case):
    done = program("explain", *case.words, *words)
    assert done.code == 2 and said in done.text and not done.out, done
    assert answer("explain", *case.words, *words, code=2)["error"]["code"] == "usage"


# -------------------------------------------------------------------------------------- ranks

def test_ranks_are_enough(case, tmp_path):
    """A rank's file can be made with the named source ranks alone, byte for byte."""
    for rank in range(4):
        done = program("ranks", *case.words, rank)
        named = [int(n) for n in done.out.split()]
        assert done.code == 0 and done.out.count(b"\n") == 1 and named == sorted(set(named))
        assert set(named) >= set(answer("plan", *case.words, "-o", "ranks=%d" % rank)["ranks"][0]["source_ranks"])
        part = tmp_path / str(rank)
        shutil.copytree(case.root / "strategy", part / "strategy")
        for n in named:
            shutil.copytree(case.root / ("rank_%d" % n), part / ("rank_%d" % n))
        got = program("cat", part, "-o", "target=%s,ranks=%d" % (case.to, rank), case.path(rank))
        assert got.code == 0, got
        assert got.out == ckpt.expected_bytes(case.tree, case.target, rank, "ckpt")


def test_ranks_read_no_header(case, tmp_path):
    """Files that are no checkpoints at all do not matter to `ranks`."""
    shutil.copytree(case.root, tmp_path / "src")
    for path in (tmp_path / "src").glob("rank_*/*.ckpt"):
        path.write_bytes(b"\x0arubbish")
    words = [tmp_path / "src", "-o", "target=%s" % case.to, 0, 1, 2, 3]
    out = program("ranks", *words).out
    assert out == program("ranks", *case.words, 0, 1, 2, 3).out and out.count(b"\n") == 4
    rows = answer("ranks", *words)["ranks"]
    assert [r["source_ranks"] for r in rows] == [[int(n) for n in line.split()] for line in out.splitlines()]
    assert program("ranks", *words, 4).code == 2


def test_ranks_of_the_oracle(oracle, tmp_path):
    judge, _ = oracle
    rnd = random.Random("ranks/%d" % SEED)
    for number in range(PAIRS):
        draw = lambda: {"dp": rnd.choice([1, 2, 4]), "mp": rnd.choice([1, 2, 4]), "pp": rnd.choice([1, 2]),
                        "opt": rnd.choice([0, -1, 2])}
        params, a, b = ckpt.model(shared=rnd.random() < 0.5), draw(), draw()
        root = tmp_path / str(number)
        source, target = ckpt.place(params, **a), ckpt.place(params, **b)
        merged, _ = ckpt.write_strategies(root / "src", source)
        to, _ = ckpt.write_strategies(root / "dst", target)
        for rank in range(source.ranks):
            ckpt.write(root / "src" / ("rank_%d" % rank) / "x.ckpt", b"not looked at")
        out = program("ranks", root / "src", "-o", "src_strategy=%s,target=%s" % (merged, to), *range(target.ranks))
        for rank, line in enumerate(out.out.splitlines()):
            want = io.StringIO()
            with contextlib.redirect_stdout(want):
                judge.main(["ranks", "--src-strategy", str(merged), "--dst-strategy", str(to), str(rank)])
            assert line.split() == want.getvalue().encode().split(), (a, b, rank)


# ----------------------------------------------------------------------------------- ls, cat

def test_ls(case):
    rows = answer("ls", *case.words)["entries"]
    assert [r["path"] for r in rows] == [p for k in range(4) for p in ("rank_%d" % k, case.path(k))]
    for rank, row in enumerate(rows[1::2]):
        assert row["type"] == "file" and row["mode"] & 0o777 == 0o444
        assert row["bytes"] == len(ckpt.expected_bytes(case.tree, case.target, rank, "ckpt"))
    assert all(r["type"] == "directory" and "bytes" not in r for r in rows[::2])
    size = rows[5]["bytes"]
    for path in ("rank_2", "rank_2/", case.path(2), "/rank_2//checkpoint_2.ckpt"):
        done = program("ls", *case.words, path, "--bytes")
        assert done.out.decode().split() == ["-r--r--r--", str(size), case.path(2)], done
    for path in ("rank_4", "rank_2/x", case.path(2) + "/x", "x" * 300):
        done = program("ls", *case.words, path)
        assert done.code == 2 and "no such path" in done.text and not done.out


@pytest.mark.parametrize("out", ["ckpt", "safetensors"])
def test_cat(out, case):
    for rank in range(4):
        done = program("cat", *case.words, "-o", "format=" + out, case.path(rank).replace("ckpt", out))
        assert done.code == 0 and not done.text
        want = ckpt.expected(case.tree, case.target, rank)
        if out == "ckpt":
            assert done.out == ckpt.file_bytes(want, "ckpt")
            continue
        size = struct.unpack("<Q", done.out[:8])[0]
        header = json.loads(done.out[8:8 + size])
        for name, item in want.items():
            if not isinstance(item, str):
                begin, end = header[name]["data_offsets"]
                assert done.out[8 + size + begin:8 + size + end] == item.raw()


def test_cat_of_the_oracle(oracle, tmp_path):
    """The oracle's own trees, transformed by the oracle: the same bytes."""
    judge, _ = oracle
    quiet = contextlib.redirect_stdout(io.StringIO())
    with quiet:
        judge.main(["generate", "--dp", "2", "--mp", "2", "--pp", "2", "--opt", "-1", "--shared", "--strings",
                    str(tmp_path / "src")])
        judge.main(["strategy", "--dp", "1", "--mp", "4", "--shared", str(tmp_path / "dst")])
        to = tmp_path / "dst" / "merged.ckpt"
        judge.main(["transform", "--src-strategy", str(tmp_path / "src" / "merged.ckpt"), "--dst-strategy",
                    str(to), "--prefix", "checkpoint_", str(tmp_path / "src"), str(tmp_path / "want")])
    for rank in range(4):
        path = "rank_%d/checkpoint_%d.ckpt" % (rank, rank)
        done = program("cat", tmp_path / "src", "-o", "target=%s" % to, path)
        assert done.code == 0, done
        assert done.out == (tmp_path / "want" / path).read_bytes()


def test_cat_into_a_closed_pipe(case, tmp_path):
    words = [PROGRAM, "cat", *map(str, case.words), case.path(0)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.read(1)
        run.stdout.close()
        assert run.wait(60) == 0 and not run.stderr.read()
    with open("/dev/full", "wb") as full:
        run = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert run.returncode == 5 and b"No space left" in run.stderr


def test_cat_refuses(case):
    for path, said in (("", "is a directory"), ("rank_0", "is a directory"), ("rank_7/x", "no such path")):
        done = program("cat", *case.words, path)
        assert done.code == 2 and said in done.text and not done.out, done


# ------------------------------------------------------------------------------------ inspect

def test_inspect(case):
    found = answer("inspect", case.root)
    assert (found["format"], found["container"]) == ("mindspore", "ckpt")
    assert found["ranks"] == {"expected": 16, "found": 16, "missing": [], "stages": 2, "stage_devices": 8}
    others = ckpt.counters(0, True)
    assert found["tensors_placed"] == len(case.whole) and found["tensors"] == len(case.whole) + len(others)
    words = {ckpt.TO_SAFE[k]: k for k in ckpt.WIDTH}
    for row in found["dtypes"]:
        same = [t for t in [*case.whole.values(), *others.values()]
                if (row["dtype"] == "str") == isinstance(t, str) and (isinstance(t, str) or t.kind == words[row["dtype"]])]
        assert row["tensors"] == len(same), row
        assert row["bytes_unique"] == sum(len(ckpt.content_of(t)[2]) for t in same)
    assert [r["dtype"] for r in found["dtypes"]] == sorted(r["dtype"] for r in found["dtypes"])
    assert found["bytes_unique"] == sum(r["bytes_unique"] for r in found["dtypes"])
    assert found["replicas"] == {"min": 1, "max": 8 if any(
        l.shards() == 1 and len(l.twins(0)) == 8 for l in case.tree.strategy.stages[0].values()) else 4}
    lengths = [n for s in case.tree.strategy.stages.values() for name, l in s.items()
               for axis, n in enumerate(case.whole[name].shape) if l.axis(axis, 0)[1] > 1]
    common = math.gcd(*lengths)
    assert found["tp_sizes"] == [n for n in range(1, common + 1) if common % n == 0]
    assert found["device_matrices"] == [[2, 4]] and found["errors"] == [] and found["notes"] == []
    text = program("inspect", case.root)
    assert text.code == 0 and not text.text and "16 of 16 (2 stages x 8 devices)" in text.out.decode()


def test_inspect_without_a_strategy(case, tmp_path):
    src = tmp_path / "ckpt" / "src"
    src.parent.mkdir()
    for rank in range(4):
        shutil.copytree(case.root / ("rank_%d" % rank), src / ("rank_%d" % rank))
    done = program("inspect", src)
    assert done.code == 0 and "none found; only target=same" in done.out.decode()
    shutil.copytree(case.root / "strategy", src.parent / "strategy")
    done = program("inspect", src)
    assert done.code == 0 and "-o src_strategy=%s/../strategy" % src in done.out.decode()
    found = answer("inspect", src)
    assert found["strategy"] is None and found["bytes_unique"] is None and found["ranks"]["found"] == 4
    assert found["tensors"] == len(ckpt.read_file(next((src / "rank_0").iterdir())))


def test_inspect_one_file(tmp_path):
    whole = ckpt.whole_tensors(ckpt.model())
    ckpt.write(tmp_path / "full.ckpt", ckpt.ckpt_bytes(whole, crc=True))
    found = answer("inspect", tmp_path / "full.ckpt")
    assert found["tensors"] == len(whole) and found["checksummed"] == 1 and found["ranks"]["expected"] == 1
    assert found["bytes_unique"] == sum(len(t.raw()) for t in whole.values())


def test_inspect_lists_odd_files(case, tmp_path):
    shutil.copytree(case.root, tmp_path / "src")
    (tmp_path / "src" / "README").write_text("hello\n")
    (tmp_path / "src" / "rank_1" / "x.ckpt.tmp").write_bytes(b"half")
    (tmp_path / "src" / "a\nb").write_text("")
    found = answer("inspect", tmp_path / "src")
    paths = [f["path"] for f in found["foreign"]]
    assert {"README", "rank_1/x.ckpt.tmp", "a\nb"} <= set(paths) and all(f["why"] for f in found["foreign"])
    out = program("inspect", tmp_path / "src").out.decode()
    assert "README: " in out and "a\\x0Ab" in out and "a\nb" not in out


# ------------------------------------------------------------------- broken trees, both verbs

SMALL = {"w": ("Float32", (8, 12)), "v": ("BFloat16", (12,))}
ROWS = {"w": Layout([4], [0, -1]), "v": Layout([4], [-1])}
COLUMNS = {"w": Layout([2], [-1, 0]), "v": Layout([2], [0])}


def file_of(root, rank):
    return next(iter((root / "src" / ("rank_%d" % rank)).iterdir()))


def both(words, code, *said):
    """`plan` and `inspect` of a broken source: exit code, and what the message must name."""
    for verb, arguments in (("plan", words), ("inspect", words[:1])):
        done = program(verb, *arguments)
        assert done.code == code, (verb, done)
        assert done.text.startswith("reshardfs: ")
        for word in said:
            assert word in done.text, (verb, word, done)
        error = answer(verb, *arguments, code=code)
        errors = [error["error"]] if "error" in error else \
            [r["error"] for r in error.get("ranks", []) if isinstance(r, dict) and r["error"]] \
            if verb == "plan" else error["errors"]
        assert errors and errors[0]["exit"] == code and errors[0]["message"] in done.text


def test_a_rank_is_missing(tmp_path):
    words = small(tmp_path, ROWS, SMALL, COLUMNS)
    shutil.rmtree(tmp_path / "src" / "rank_2")
    both(words, 3, "2")
    assert answer("inspect", tmp_path / "src", code=3)["ranks"]["missing"] == [2]


def test_a_rank_is_missing_and_has_a_twin(tmp_path):
    layouts = {"w": Layout([2, 2], [0, -1]), "v": Layout([2, 2], [-1])}
    words = small(tmp_path, layouts, SMALL, COLUMNS)
    want = [program("cat", *words, "rank_%d/checkpoint_%d.ckpt" % (r, r)).out for r in (0, 1)]
    shutil.rmtree(tmp_path / "src" / "rank_3")
    for verb, arguments in (("plan", words), ("inspect", words[:1])):
        done = program(verb, *arguments)
        assert done.code == 0 and "warning: 1 of 4 ranks missing: 3" in done.out.decode(), done
    assert [program("cat", *words, "rank_%d/checkpoint_%d.ckpt" % (r, r)).out for r in (0, 1)] == want


def test_a_missing_rank_is_of_no_matter_to_others(tmp_path):
    words = small(tmp_path, ROWS, SMALL, {"w": Layout([2], [0, -1]), "v": Layout([2], [-1])})
    shutil.rmtree(tmp_path / "src" / "rank_3")
    assert program("plan", *words).code == 3
    assert program("plan", *words, "-o", "ranks=0").code == 0


@pytest.mark.parametrize("cut", ["one byte", "half", "all", "to 7"])
@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
def test_a_file_is_too_short(container, cut, tmp_path):
    words = small(tmp_path, ROWS, SMALL, COLUMNS, container=container)
    path = file_of(tmp_path, 1)
    size = path.stat().st_size
    os.truncate(path, {"one byte": size - 1, "half": size // 2, "all": 0, "to 7": 7}[cut])
    both(words, 3, path.name)


def test_every_bad_file_is_named(tmp_path):
    words = small(tmp_path, ROWS, SMALL, {"w": Layout([4], [0, -1]), "v": Layout([4], [-1])})
    for rank in (1, 3):
        os.truncate(file_of(tmp_path, rank), 20)
    for verb, arguments in (("plan", words), ("inspect", words[:1])):
        done = program(verb, *arguments)
        assert done.code == 3 and all(file_of(tmp_path, r).name in done.text for r in (1, 3)), done
    rows = answer("plan", *words, code=3)["ranks"]
    assert [bool(r["error"]) for r in rows] == [False, True, False, True]
    out = program("plan", *words).out.decode()
    assert out.count("refused") == 2 and "rank_0/checkpoint_0.ckpt" in out


def test_the_first_error_decides(tmp_path):
    words = small(tmp_path, ROWS, SMALL, {"w": Layout([4], [0, -1]), "v": Layout([4], [-1])})
    path = file_of(tmp_path, 1)
    path.write_bytes(path.read_bytes().replace(b"Float32", b"Floop32"))
    os.truncate(file_of(tmp_path, 2), 20)
    for verb, arguments in (("plan", words), ("inspect", words[:1])):
        assert program(verb, *arguments).code == 4, verb
    for verb, arguments in (("plan", words), ("inspect", words[:1])):
        shutil.copy(file_of(tmp_path, 2), file_of(tmp_path, 1))
        assert program(verb, *arguments).code == 3, verb


def test_an_unknown_type(tmp_path):
    words = small(tmp_path, ROWS, SMALL, COLUMNS)
    for rank in range(4):
        path = file_of(tmp_path, rank)
        path.write_bytes(path.read_bytes().replace(b"Float32", b"Floop32"))
    both(words, 4, "Floop32", "'w'")


def test_a_cut_inside_a_byte(tmp_path):
    """Four-bit elements: columns of 6 cut in two leave three, a byte and a half."""
    header = json.dumps({"w": {"dtype": "F4", "shape": [2, 6], "data_offsets": [0, 6]}}).encode()
    ckpt.write(tmp_path / "w.safetensors", struct.pack("<Q", len(header)) + header + b"abcdef")
    ckpt.write(tmp_path / "columns.ckpt", ckpt.strategy_bytes(Strategy({0: {"w": Layout([2], [-1, 0])}})))
    ckpt.write(tmp_path / "rows.ckpt", ckpt.strategy_bytes(Strategy({0: {"w": Layout([2], [0, -1])}})))
    done = program("plan", tmp_path / "w.safetensors", "-o", "target=%s" % (tmp_path / "columns.ckpt"))
    assert done.code == 4 and "'w'" in done.text and "F4" in done.text and "axis" in done.text, done
    got = program("cat", tmp_path / "w.safetensors", "-o", "target=%s" % (tmp_path / "rows.ckpt"),
                  "rank_1/checkpoint_1.safetensors")
    assert got.code == 0 and got.out.endswith(b"def")
    assert program("inspect", tmp_path / "w.safetensors").code == 0


@pytest.mark.parametrize("odd", [("Float64", (2, 12)), ("Float32", (2, 10))])
def test_two_files_disagree(odd, tmp_path):
    words = small(tmp_path, ROWS, SMALL, COLUMNS)
    entries = ckpt.read_file(file_of(tmp_path, 2))
    entries["w"] = ckpt.values(9, "w", *odd)
    ckpt.write(file_of(tmp_path, 2), ckpt.ckpt_bytes(entries))
    both(words, 3, "'w'", file_of(tmp_path, 2).name, file_of(tmp_path, 0).name)


def test_a_replica_that_nobody_reads_disagrees(tmp_path):
    """plan does not look at it; inspect looks at every header."""
    words = small(tmp_path, {"w": Layout([2, 2], [0, -1]), "v": Layout([2, 2], [-1])}, SMALL, COLUMNS)
    entries = ckpt.read_file(file_of(tmp_path, 3))
    entries["w"] = ckpt.values(9, "w", "Float32", (4, 10))
    ckpt.write(file_of(tmp_path, 3), ckpt.ckpt_bytes(entries))
    assert program("plan", *words).code == 0
    done = program("inspect", words[0])
    assert done.code == 3 and "'w'" in done.text and file_of(tmp_path, 3).name in done.text


def test_a_hole(tmp_path):
    words = small(tmp_path, ROWS, SMALL, COLUMNS)
    entries = ckpt.read_file(file_of(tmp_path, 2))
    del entries["w"]
    ckpt.write(file_of(tmp_path, 2), ckpt.ckpt_bytes(entries))
    both(words, 3, "'w'", "[4:6, 0:12]")


def test_a_strategy_of_another_run(tmp_path):
    """Cells of another number leave more or less than was stored: sizes and axes tell."""
    words = small(tmp_path, ROWS, SMALL, COLUMNS)
    ckpt.write(tmp_path / "src/strategy/strategy_0.ckpt", ckpt.strategy_bytes(
        Strategy({0: {"w": Layout([4], [0]), "v": Layout([4], [-1])}}), 0))
    both(words, 3, "'w'")


def test_impossible_targets(tmp_path):
    for number, (target, said) in enumerate([
            ({"w": Layout([5], [0, -1]), "v": Layout([5], [-1])}, "'w'"),
            ({"w": Layout([2], [-1, 0, -1]), "v": Layout([2], [-1])}, "'w'")]):
        root = tmp_path / str(number)
        words = small(root, ROWS, SMALL, target)
        done = program("plan", *words)
        assert done.code == 2 and said in done.text, done
        assert number or "hint:" in done.text, done
        assert program("inspect", words[0]).code == 0


def test_names_on_one_side_only(tmp_path):
    words = small(tmp_path, ROWS, SMALL, {"w": COLUMNS["w"]})
    done = program("plan", *words, "-o", "default=error")
    assert done.code == 3 and "'v'" in done.text, done
    done = program("plan", *words)
    assert done.code == 0 and "warning: " in done.out.decode() and "'v'" in done.out.decode(), done
    assert answer("plan", *words)["notes"]
    words = small(tmp_path / "more", ROWS, SMALL, COLUMNS | {"x": Layout([2], [0])})
    done = program("plan", *words)
    assert done.code == 3 and "'x'" in done.text, done
    done = program("plan", *words, "-o", "missing=skip")
    assert done.code == 0 and "'x'" in done.out.decode(), done


# ------------------------------------------------------------------------------------ manners

def test_two_runs_are_alike(case):
    for words in (("inspect", case.root), ("plan", *case.words), ("ls", *case.words)):
        assert program(*words, "--json").out == program(*words, "--json").out
        assert program(*words).out == program(*words).out


def test_names_are_escaped(tmp_path):
    name = "a\n\x1b[31mb"
    words = small(tmp_path, {name: Layout([2], [-1, 0])}, {name: ("Float32", (64, 8))})
    for verb in (("plan",), ("explain", 0, name)):
        out = program(verb[0], *words, *verb[1:]).out.decode()
        assert "\x1b" not in out and "a\\x0A\\x1B[31mb" in out, out
    assert answer("explain", *words, 0, name)["tensor"] == name


def test_a_full_disk_is_told_once(case):
    for verb, words in (("plan", case.words), ("plan", [*case.words, "--json"]), ("inspect", case.words[:1])):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([PROGRAM, verb, *map(str, words)], stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert run.returncode == 5 and run.stderr.count(b"reshardfs:") == 1, run.stderr


@pytest.mark.parametrize("verb", ["inspect", "plan", "explain", "ranks", "ls"])
def test_failures_are_objects_too(verb, tmp_path):
    words = {"inspect": (), "explain": ("-o", "target=full", 0, "w"), "ranks": ("-o", "target=full", 0)}
    error = answer(verb, tmp_path / "nothing", *words.get(verb, ("-o", "target=full")), code=3)["error"]
    assert error["code"] == "missing" and "nothing" in error["message"] and error["exit"] == 3


def test_documented_keys(case):
    """docs/json.md names every key that the verbs print."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "json.md").read_text()

    def keys(value):
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from keys(inner)
        yield from value if isinstance(value, dict) else ()

    name = "net.blocks.0.out.weight"
    for verb, words in (("inspect", case.words[:1]), ("plan", case.words), ("explain", [*case.words, 0, name]),
                        ("ranks", [*case.words, 0]), ("ls", case.words)):
        for key in keys(answer(verb, *words)):
            assert "`%s`" % key in text, (verb, key)
