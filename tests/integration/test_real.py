"""Files that real frameworks wrote, held against lists of their tensors; skipped where they are absent."""
import hashlib
import json
import random

import pytest

import ckpt
from conftest import SEED, SHARED, program
from reading import check

REAL = SHARED / "data/real"
if not REAL.is_dir():
    pytest.skip("%s is not there" % REAL, allow_module_level=True)


def cases(word):
    """(file, its expectation) of the directories that reshardfs reads."""
    for path in sorted(p for kind in ("mindspore", "safetensors") for p in (REAL / kind).glob("*.expect.json")):
        expect = json.loads(path.read_text())
        if word in expect:
            yield pytest.param(path.with_name(expect["file"]), expect, id=expect["file"])


def only_file(mounted):
    """The file of rank 0, whatever it is called: that depends on who wrote the source."""
    (path,) = (mounted.path / "rank_0").iterdir()
    return path


def kind_of(name):
    return ckpt.FROM_SAFE.get(name, name)


@pytest.mark.parametrize("file, expect", cases("tensors"))
def test_tensors(file, expect, mount):
    """Every tensor of the expected list, and no other, comes out in both containers."""
    for container in ("ckpt", "safetensors"):
        mounted = mount(file, "target=full", "format=" + container)
        found = ckpt.read_file(only_file(mounted))
        assert sorted(found) == sorted(t["name"] for t in expect["tensors"])
        for t in expect["tensors"]:
            item = found[t["name"]]
            assert (item.kind, list(item.shape)) == (kind_of(t["dtype"]), t["shape"]), t["name"]
            assert hashlib.sha256(item.raw()).hexdigest() == t["sha256"], t["name"]


def unchanged(file, expect, target, mount):
    mounted = mount(file, "target=" + target)
    data = file.read_bytes()
    assert hashlib.sha256(data).hexdigest() == expect["sha256"]
    check(only_file(mounted), data, random.Random(SEED))


@pytest.mark.parametrize("file, expect", cases("tensors"))
def test_same_gives_identical_bytes(file, expect, mount):
    unchanged(file, expect, "same", mount)


@pytest.mark.parametrize("file, expect", [c for c in cases("tensors") if c.values[0].suffix == ".ckpt"])
def test_full_gives_identical_bytes(file, expect, mount):
    """Order of entries and forms of dims of real writers are kept."""
    unchanged(file, expect, "full", mount)


@pytest.mark.parametrize("file, expect", cases("expect"))
def test_refused(file, expect):
    done = program("ls", file, "--target", "full")
    assert done.code in (3, 4) and file.name in done.text and "hint:" in done.text, (expect["answer"], done)
    if "LFS" in expect["answer"]:
        assert "Git LFS pointer" in done.text and "git lfs pull" in done.text, done


@pytest.mark.parametrize("file, expect", cases("strategy"))
def test_strategy(file, expect, mount, tmp_path):
    """A real strategy cuts and joins: whole tensors go to its ranks and come back as they were."""
    strategy = ckpt.read_strategy(file)
    assert ckpt.strategy_bytes(strategy) == file.read_bytes()
    layouts = {"%d-%s" % (s, n): l for s, names in strategy.stages.items() for n, l in names.items()}
    assert layouts.keys() == expect["strategy"]["layouts"].keys()
    for name, want in expect["strategy"]["layouts"].items():
        assert (layouts[name].dev, layouts[name].map) == (want["dev_matrix"], want["tensor_map"]), name
    whole = {n: ckpt.values(1, n, "Float16", tuple([8, 12, 4][:len(l.map)]))
             for names in strategy.stages.values() for n, l in names.items()}
    ckpt.write(tmp_path / "full.ckpt", ckpt.ckpt_bytes(whole))
    there = mount(tmp_path / "full.ckpt", "target=%s" % file)
    tree = ckpt.Tree(tmp_path / "full.ckpt")
    for rank in range(strategy.ranks):
        check(there.file(rank), ckpt.expected_bytes(tree, strategy, rank, "ckpt"), random.Random(SEED), 3)
    back = mount(there.path, "src_strategy=%s" % file, "target=full")
    found = ckpt.read_ckpt(back.file(0))
    assert found.keys() == whole.keys() and all(ckpt.same(found[n], whole[n]) for n in whole)
    back.unmount()
