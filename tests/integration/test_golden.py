"""The small trees of tests/data: bytes that stand in the project, not made by the code under test."""
import runpy

import pytest

import ckpt
from conftest import REPO, program

DATA = REPO / "tests/data"
GOLDEN = DATA / "golden"
WANT = sorted(p for p in (GOLDEN / "want").rglob("*") if p.is_file())


def test_recipe_gives_these_bytes(tmp_path):
    runpy.run_path(str(DATA / "recipe.py"))["main"](tmp_path)
    assert ckpt.compare(GOLDEN, tmp_path / "golden") == []


@pytest.mark.parametrize("target", ["dst.ckpt", "dst.json"])
@pytest.mark.parametrize("want", WANT, ids=lambda p: p.parent.name)
def test_program_gives_these_bytes(want, target):
    if want.parent.name == "full":
        options, path = "target=full,format=safetensors", "rank_0/" + want.name
    else:
        options, path = "target=%s" % (GOLDEN / target), "%s/%s" % (want.parent.name, want.name)
    done = program("cat", GOLDEN / "src", path, "-o", options)
    assert done.code == 0 and done.out == want.read_bytes(), done


def test_whole_tree_through_a_mount(mount, tmp_path):
    mounted = mount(GOLDEN / "src", "target=%s" % (GOLDEN / "dst.ckpt"))
    for path in WANT:
        if path.suffix == ".ckpt":
            assert (mounted.path / path.relative_to(GOLDEN / "want")).read_bytes() == path.read_bytes()
