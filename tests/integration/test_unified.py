"""Unified directories of MindSpore: cut by strategies as load_distributed_checkpoint does it.

The first test takes directories that the oracle of ../shared unifies; the others make theirs with
tests/lib/ckpt.py, so that they run everywhere.
"""
import json
import random
import shutil
from types import SimpleNamespace

import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import QUICK, SEED, program
from reading import check

CASES = 6 if QUICK else 24
NAMES = {"w": ("Float32", (16, 6)), "b": ("BFloat16", (8,)), "z.last": ("Int8", (8, 3)),
         "adam_m.w": ("Float32", (16, 6)), "scalar": ("Float32", ())}


# ------------------------------------------------------------------------ against the oracle

def draw_mesh(rnd):
    while True:
        dp, mp, pp = rnd.choice([1, 2, 4]), rnd.choice([1, 2, 4]), rnd.choice([1, 2, 4])
        if dp * mp * pp <= 16:
            return {"dp": dp, "mp": mp, "pp": pp, "opt": rnd.choice([0, 0, -1, 2])}


def draw(rnd):
    common = {"layers": 4, "hidden": rnd.choice([16, 32]), "ffn": 64, "vocab": 96, "seed": rnd.randrange(1000),
              "dtype": rnd.choice(["BFloat16", "Float32", "Int8", "Int4", "Float64"]), "format": "safetensors",
              "shared": rnd.random() < 0.4, "strings": False, "keep_ones": rnd.random() < 0.3,
              "strategy_format": rnd.choice(["ckpt", "json"])}
    source = SimpleNamespace(**common, **draw_mesh(rnd), dedup=rnd.random() < 0.3)
    source.accu = not source.dedup and rnd.random() < 0.3  # rank 0's slices of these go to hyper_param
    target = SimpleNamespace(**common, **draw_mesh(rnd), dedup=False, accu=False)
    return source, target


def expected(judge, root, target, rank):
    """load_distributed_checkpoint, in the order of files and offsets."""
    parts = {p.name: judge.read_safetensors(str(p)) for p in sorted(root.glob("*.safetensors"))}
    wanted, local, out = judge.target_layouts(target, rank), rank % target.stage_devices, {}
    for file, entries in parts.items():
        for name, item in entries.items():
            if file == "hyper_param.safetensors":
                out[name] = item
            elif name in wanted:
                box = wanted[name].box(local, item.data.shape)
                out[name] = judge.Tensor(item.dtype, item.data[tuple(slice(a, b) for a, b in box)])
    return out


@pytest.mark.parametrize("number", range(CASES))
def test_strategy_against_the_oracle(number, mount, oracle, tmp_path):
    judge, generator = oracle
    rnd = random.Random("unified/%d/%d" % (SEED, number))
    source, target = draw(rnd)
    print(source, target)
    generator.generate(source, str(tmp_path / "tree"))
    generator.write_strategies(target, str(tmp_path / "target"))
    merged = "merged." + source.strategy_format
    from_strategy = judge.read_strategy(str(tmp_path / "tree" / merged))
    to_strategy = judge.read_strategy(str(tmp_path / "target" / merged))
    judge.unify(str(tmp_path / "tree"), from_strategy, str(tmp_path / "unified"), part_bytes=rnd.choice([4000, 10**6]))
    tree = judge.Source(str(tmp_path / "tree"), from_strategy)

    out = rnd.choice(["ckpt", "safetensors"])
    mounted = mount(tmp_path / "unified", "target=%s" % (tmp_path / "target" / merged), "format=" + out)
    for rank in range(len(to_strategy.stages()) * to_strategy.stage_devices):
        want = expected(judge, tmp_path / "unified", to_strategy, rank)
        judge.write_any(str(tmp_path / ("want." + out)), want)
        if out == "ckpt" or source.dtype != "Int4":
            check(mounted.file(rank, out), (tmp_path / ("want." + out)).read_bytes(), rnd, 10)
        got = judge.read_any(str(mounted.file(rank, out)))
        assert sorted(got) == sorted(want)
        # The way through the unified directory ends where the direct one does.
        direct = {n: e for n, e in judge.transform_rank(tree, to_strategy, rank).items()
                  if not n.startswith("accu_grads")}
        assert sorted(direct) == sorted(n for n in got if not n.startswith("accu_grads"))
        for name, item in direct.items():
            assert (got[name].dtype, got[name].raw()) == (item.dtype, item.raw()), name


def test_full_of_the_oracle(mount, oracle, tmp_path):
    judge, generator = oracle
    source, _ = draw(random.Random(SEED))
    source.dtype, source.accu = "BFloat16", False
    generator.generate(source, str(tmp_path / "tree"))
    strategy = judge.read_strategy(str(tmp_path / "tree" / ("merged." + source.strategy_format)))
    judge.unify(str(tmp_path / "tree"), strategy, str(tmp_path / "unified"), part_bytes=4000)
    mounted = mount(tmp_path / "unified", "target=full")
    judge.transform(str(tmp_path / "tree"), strategy, None, str(tmp_path / "want"), fmt="safetensors")
    check(mounted.file(0, "safetensors"), (tmp_path / "want/rank_0/checkpoint_0.safetensors").read_bytes(),
          random.Random(SEED), 10)


# ---------------------------------------------------------------------------------- our own

class Unified:
    """Two parts and counters; `strategy` names all parameters of the parts, `weights` only some."""

    def __init__(self, root):
        self.root = root / "unified"
        self.whole = {n: ckpt.values(1, n, *what) for n, what in NAMES.items()}
        self.counters = ckpt.counters()
        self.parts = {"part0.safetensors": ["w", "scalar", "z.last"], "part1.safetensors": ["adam_m.w", "b"]}
        for part, names in self.parts.items():
            ckpt.write(self.root / part, ckpt.safe_bytes({n: self.whole[n] for n in names}))
        ckpt.write(self.root / "hyper_param.safetensors", ckpt.safe_bytes(self.counters))
        self.map = {n: part for part, names in self.parts.items() for n in names}
        self.write_map({"metadata": {"total_size": 12345}, "weight_map": self.map})
        layouts = {n: Layout([4], [0] + [-1] * (len(shape) - 1) if shape else []) for n, (_, shape) in NAMES.items()}
        self.strategy = root / "all.ckpt"
        ckpt.write(self.strategy, ckpt.strategy_bytes(Strategy({0: layouts})))
        self.weights = root / "weights.ckpt"
        del layouts["adam_m.w"]
        ckpt.write(self.weights, ckpt.strategy_bytes(Strategy({0: layouts})))
        self.layouts = layouts

    def write_map(self, content):
        ckpt.write(self.root / "param_name_map.json", json.dumps(content, indent=4).encode())

    def want(self, rank, extra=()):
        """Entries of a rank under `weights`."""
        out = {n: layout.cut(self.whole[n], rank) for n, layout in self.layouts.items()}
        return out | {n: self.whole[n] for n in extra} | self.counters

    def cat(self, *options, rank=0, container="safetensors"):
        words = [w for o in options for w in ("-o", o)]
        return program("cat", self.root, *words, "rank_%d/checkpoint_%d.%s" % (rank, rank, container))


@pytest.fixture
def unified(tmp_path):
    return Unified(tmp_path)


def refused(done, code, *words):
    assert done.code == code and all(w in done.text for w in words) and not done.out, (code, words, done)


@pytest.mark.parametrize("form", ["outer keys", "bare"])
def test_both_forms_of_the_map(form, unified):
    if form == "bare":
        unified.write_map(unified.map)
    for rank in range(4):
        done = unified.cat("target=%s" % unified.weights, rank=rank)
        assert done.out == ckpt.safe_bytes(unified.want(rank)), done


def test_names_that_the_strategy_lacks_are_left_out(unified):
    """As in the framework; default= says otherwise, and plan tells."""
    done = program("plan", unified.root, "-o", "target=%s" % unified.weights)
    assert "'adam_m.w'" in done.out.decode() and "left out" in done.out.decode(), done
    done = unified.cat("target=%s" % unified.weights, "default=drop")
    assert done.out == ckpt.safe_bytes(unified.want(0)), done
    done = unified.cat("target=%s" % unified.weights, "default=replicate", rank=3)
    assert done.out == ckpt.safe_bytes(unified.want(3, ["adam_m.w"])), done
    refused(unified.cat("target=%s" % unified.weights, "default=error"), 3, "adam_m.w")


def test_names_that_the_source_lacks(unified):
    names = dict(unified.layouts, more=Layout([4], [0]))
    path = unified.root.parent / "more.ckpt"
    ckpt.write(path, ckpt.strategy_bytes(Strategy({0: names})))
    refused(unified.cat("target=%s" % path), 3, "'more'", "missing=skip")
    assert unified.cat("target=%s" % path, "missing=skip", rank=1).out == ckpt.safe_bytes(unified.want(1))


def test_an_entry_without_layout_is_never_cut(unified):
    """Also where the strategy names it: nobody knows what was a slice there."""
    names = dict(unified.layouts, learning_rate=Layout([4], [-1]), global_step=Layout([4], [0]))
    path = unified.root.parent / "more.ckpt"
    ckpt.write(path, ckpt.strategy_bytes(Strategy({0: names})))
    assert unified.cat("target=%s" % path, rank=2).out == ckpt.safe_bytes(unified.want(2))


def test_order_of_a_ckpt_is_that_of_files_and_offsets(unified):
    done = unified.cat("target=full", "format=ckpt", container="ckpt")
    order = ["hyper_param.safetensors", *unified.parts]
    want = {n: e for f in order for n, e in ckpt.read_safe(unified.root / f).items()}
    assert done.out == ckpt.ckpt_bytes(want), done


def test_same_is_full(unified):
    for target in ("full", "same"):
        done = unified.cat("target=" + target)
        assert done.out == ckpt.safe_bytes(unified.whole | unified.counters), done


def test_without_counters(unified):
    (unified.root / "hyper_param.safetensors").unlink()
    unified.counters = {}
    assert unified.cat("target=%s" % unified.weights).out == ckpt.safe_bytes(unified.want(0))


def test_counters_that_the_map_lists(unified):
    """Then they are tensors like others, and go where the strategy wants them."""
    unified.write_map(unified.map | {n: "hyper_param.safetensors" for n in unified.counters})
    unified.counters = {}
    assert unified.cat("target=%s" % unified.weights, rank=1).out == ckpt.safe_bytes(unified.want(1))


def test_nothing_there(unified, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(program("inspect", "-o", "source=unified", tmp_path / "empty"), 3, "param_name_map.json")
    refused(program("inspect", "-o", "source=hf", tmp_path / "empty"), 3, "safetensors")


def test_one_file_without_a_map(unified):
    (unified.root / "param_name_map.json").unlink()
    for part in unified.parts:
        (unified.root / part).unlink()
    ckpt.write(unified.root / "part0.safetensors", ckpt.safe_bytes(unified.whole))
    done = unified.cat("target=%s" % unified.weights, rank=2)
    assert done.out == ckpt.safe_bytes(unified.want(2)), done
    (unified.root / "part0.safetensors").rename(unified.root / "all.safetensors")
    done = unified.cat("target=%s" % unified.weights, "source=unified", rank=2)
    assert done.out == ckpt.safe_bytes(unified.want(2)), done


def test_several_parts_without_a_map(unified):
    (unified.root / "param_name_map.json").unlink()
    refused(unified.cat("target=full"), 3, "param_name_map.json", "part0.safetensors", "source=hf")
    done = program("cat", unified.root, "-o", "source=hf", "-o", "target=full", "rank_0/model.safetensors")
    assert done.out == ckpt.safe_bytes(unified.whole | unified.counters, {"format": "pt"}), done


def test_a_missing_part(unified):
    (unified.root / "part1.safetensors").unlink()
    for verb in ("cat", "inspect"):
        words = [verb, unified.root] + (["-o", "target=full", "rank_0/x"] if verb == "cat" else [])
        refused(program(*words), 3, "param_name_map.json", "part1.safetensors")


def test_map_and_parts_must_agree(unified):
    short = dict(unified.map)
    del short["b"]
    unified.write_map(short)
    refused(unified.cat("target=full"), 3, "part1.safetensors", "'b'", "not listed")
    unified.write_map(unified.map | {"extra": "part0.safetensors"})
    refused(unified.cat("target=full"), 3, "part0.safetensors", "'extra'", "found none")
    unified.write_map(unified.map | {"b": "part0.safetensors"})
    refused(unified.cat("target=full"), 3, "part1.safetensors", "'b'", "part0.safetensors")


def test_one_name_in_a_part_and_in_hyper_param(unified):
    ckpt.write(unified.root / "hyper_param.safetensors", ckpt.safe_bytes({"b": unified.whole["b"]}))
    refused(unified.cat("target=full"), 3, "'b'", "part1.safetensors", "hyper_param.safetensors")


@pytest.mark.parametrize("text, words", [
    (b"{}", ["no tensor"]), (b"[]", ["an object"]), (b'{"w": "../part0.safetensors"}', ["outside the checkpoint"]),
    (b'{"w": "part0.safetensors", "w": "part1.safetensors"}', ["'w' stands twice"]), (b'{"w": ', ["@6"]),
    (b'{"weight_map": {"w": 1}}', ["a file name"]), (b'{"weight_map": {}, "weight_map": {"w": "x"}}', ["second"]),
    (b'{"w": "part0.safetensors", "weight_map": {"b": "part1.safetensors"}}', ["both"]), (b"", ["empty file"]),
], ids=range(9))
def test_broken_maps(text, words, unified):
    ckpt.write(unified.root / "param_name_map.json", text)
    refused(unified.cat("target=full"), 3, "param_name_map.json", *words)


def test_cuts_that_do_not_divide(unified):
    path = unified.root.parent / "three.ckpt"
    ckpt.write(path, ckpt.strategy_bytes(Strategy({0: {"w": Layout([3], [0, -1])}})))
    refused(unified.cat("target=%s" % path), 2, "'w'", "16")


def test_options_that_make_no_sense(unified):
    refused(unified.cat("target=full", "src_strategy=%s" % unified.strategy), 2, "src_strategy")
    refused(unified.cat("target=full", "select=*.safetensors"), 2, "select")


def test_other_files_are_listed(unified):
    for name in ("README.md", "old.safetensors", "part2.safetensors.tmp"):
        (unified.root / name).write_bytes(b"x")
    done = program("inspect", "--json", unified.root)
    found = json.loads(done.out)
    assert found["format"] == "unified" and found["files"] == 3 and found["ranks"]["missing"] == []
    assert {f["path"]: f["why"] for f in found["foreign"]} == {
        "README.md": "not a safetensors file", "old.safetensors": "a file that the map does not name",
        "part2.safetensors.tmp": "a half-written file"}
    assert any("half-written" in n for n in found["notes"])
    assert unified.cat("target=%s" % unified.weights).out == ckpt.safe_bytes(unified.want(0))


def test_rank_directories_come_first(unified, tmp_path):
    """A map beside a rank tree does not make it a unified directory."""
    shutil.copy(unified.root / "param_name_map.json", tmp_path / "m.json")
    root = tmp_path / "tree"
    ckpt.write(root / "rank_0/x.safetensors", ckpt.safe_bytes(unified.whole))
    shutil.move(tmp_path / "m.json", root / "param_name_map.json")
    assert json.loads(program("inspect", "--json", root).out)["format"] == "mindspore"
