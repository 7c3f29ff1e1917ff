"""The verb `strategy`: merge, show, convert. No mount; the judge is tests/lib/ckpt.py, and the oracle if present."""
import json
import os
import random

import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import SEED, program

FORMS = ["ckpt", "json"]


def placed(**how):
    return ckpt.place(ckpt.model(layers=4, shared=True), **({"dp": 2, "mp": 2, "pp": 2, "opt": -1} | how))


def plain(strategy):
    """{stage: {name: everything that a file says}}"""
    return {stage: {name: (l.dev, [m if isinstance(m, list) else [m] for m in l.map], l.opt, l.field, l.split)
                    for name, l in layouts.items()} for stage, layouts in strategy.stages.items()}


def ok(*arguments):
    done = program("strategy", *arguments)
    assert done.code == 0 and not done.err, done
    return done.out


@pytest.mark.parametrize("out", FORMS)
@pytest.mark.parametrize("form", FORMS)
def test_merge(form, out, tmp_path):
    strategy = placed()
    merged, parts = ckpt.write_strategies(tmp_path, strategy, form)
    path = tmp_path / ("out." + out)
    said = ok("merge", parts, path)
    assert b"2 stages of 4 devices" in said
    assert plain(ckpt.read_strategy(path)) == plain(strategy)
    if form == out == "ckpt":
        assert path.read_bytes() == ckpt.strategy_bytes(strategy)
    assert sorted(os.listdir(tmp_path)) == sorted(["merged." + form, "out." + out, "strategy"])
    assert oct(path.stat().st_mode & 0o777) == oct(0o666 & ~umask())
    assert ok("merge", parts, tmp_path / ("quiet." + out), "-q") == b""


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_convert_there_and_back(tmp_path):
    layouts = {"plain": Layout([2, 4], [0, -1], opt=-1), "two": Layout([2, 1, 4], [[2, 0], [-1]]),
               "uneven": Layout([8], [0, -1], split=[1, 2, 3, 4, 5, 6, 7, 8]), "scalar": Layout([8], []),
               "interleaved": Layout([8], [0, -1], field=3), "one-axis": Layout([2, 4], [[1, 0]])}
    strategy = Strategy({0: layouts})
    for name, stages in (("merged", None), ("stage", 0)):
        first, text, second = (tmp_path / (name + end) for end in (".ckpt", ".json", "-2.ckpt"))
        ckpt.write(first, ckpt.strategy_bytes(strategy, stages))
        ok("convert", first, text)
        ok("convert", text, second)
        assert plain(ckpt.read_strategy(second)) == plain(strategy)
        again = tmp_path / (name + "-2.json")
        ok("convert", second, again)
        assert again.read_bytes() == text.read_bytes()
        whole = json.loads(text.read_bytes())
        assert text.read_bytes() == json.dumps(whole, separators=(",", ":"), sort_keys=True).encode()
        same = tmp_path / (name + "-3.ckpt")
        ok("convert", first, same)
        assert same.read_bytes() == first.read_bytes()


def test_show(tmp_path):
    strategy = placed()
    merged, _ = ckpt.write_strategies(tmp_path, strategy)
    text = ok("show", merged).decode().splitlines()
    assert "merged, 2 stages of 4 devices" in text[0] and text[1].split()[0] == "stage"
    assert len(text) == 2 + sum(map(len, strategy.stages.values()))
    told = json.loads(ok("show", merged, "--json"))
    assert told["schema"] == "reshardfs.strategy/1" and told["error"] is None
    assert (told["stages"], told["stage_devices"], told["form"]) == (2, 4, "protobuf")
    want = {(s, n): (l.dev, [m if isinstance(m, list) else [m] for m in l.map], l.opt)
            for s, layouts in strategy.stages.items() for n, l in layouts.items()}
    found = {(p["stage"], p["name"]): (p["dev_matrix"], p["tensor_map"], p["opt_weight_shard_size"])
             for p in told["parameters"]}
    assert found == want


def test_what_is_unfit_is_shown_with_its_exit_code(tmp_path):
    path = tmp_path / "bad.json"
    ckpt.write(path, ckpt.strategy_json(1, [], {"0-a": Layout([2], [0]), "2-b": Layout([4], [0])}))
    done = program("strategy", "show", path)
    assert done.code == 3 and b"none of stage 1" in done.err and b"  b\n" in done.out, done
    done = program("strategy", "show", path, "--json")
    assert done.code == 3 and "stage 1" in json.loads(done.out)["error"]["message"], done


def test_out_is_never_replaced(tmp_path):
    merged, parts = ckpt.write_strategies(tmp_path, placed())
    out = tmp_path / "out.ckpt"
    out.write_bytes(b"mine")
    link = tmp_path / "link.ckpt"
    link.symlink_to("nowhere")
    for words in (("merge", parts), ("convert", merged)):
        for path in (out, link, tmp_path / "no/such/dir.ckpt"):
            done = program("strategy", *words, path)
            assert done.code == 8 and str(path) in done.text, done
        done = program("strategy", *words, out, "--json")
        assert done.code == 8 and json.loads(done.out)["error"]["exit"] == 8, done
    assert out.read_bytes() == b"mine" and sorted(os.listdir(tmp_path)) == [
        "link.ckpt", "merged.ckpt", "out.ckpt", "strategy"]


def test_refused_merges_leave_nothing(tmp_path):
    _, parts = ckpt.write_strategies(tmp_path, placed(pp=4))
    out = tmp_path / "out.ckpt"
    os.rename(os.path.join(parts, "strategy_4.ckpt"), tmp_path / "away")  # the second of four stages
    done = program("strategy", "merge", parts, out)
    assert done.code == 3 and "none of stage 1" in done.text and "hint:" in done.text, done
    other = placed(pp=4, dp=1, mp=4, opt=0)
    ckpt.write(os.path.join(parts, "strategy_1.ckpt"), ckpt.strategy_bytes(other, 0))
    done = program("strategy", "merge", parts, out)
    assert done.code == 2 and "strategy_0.ckpt and" in done.text and "parameter '" in done.text, done
    done = program("strategy", "merge", tmp_path / "nowhere", out)
    assert done.code == 3, done
    done = program("strategy", "merge", tmp_path / "merged.ckpt", out)
    assert done.code == 2 and "convert" in done.text, done
    for words in (("merge", parts), ("show", parts, "x"), ("melt", parts, "x")):
        assert program("strategy", *words).code == 2
    assert not out.exists() and not [n for n in os.listdir(tmp_path) if ".tmp." in n]


def test_against_the_oracle(oracle, tmp_path):
    judge, _ = oracle
    rnd = random.Random(SEED)

    def said(path):
        found = judge.read_strategy(str(path))
        return ({n: (l.dev, [m if isinstance(m, list) else [m] for m in l.tmap], l.step, l.size)
                 for n, l in found.layouts.items()}, found.items)

    for i in range(12):
        form = rnd.choice(FORMS)
        how = {"dp": rnd.choice([1, 2, 4]), "mp": rnd.choice([1, 2]), "pp": rnd.choice([1, 2, 4]),
               "opt": rnd.choice([0, -1]), "keep_ones": rnd.random() < 0.5}
        _, parts = ckpt.write_strategies(tmp_path / str(i), placed(**how), form)
        want = judge.merge_strategies([os.path.join(parts, n) for n in sorted(os.listdir(parts))])
        judge.write_strategy(str(tmp_path / ("%d/want.%s" % (i, form))), want)
        for out in FORMS:
            ok("merge", parts, tmp_path / ("%d/out.%s" % (i, out)))
            assert said(tmp_path / ("%d/out.%s" % (i, out))) == said(tmp_path / ("%d/want.%s" % (i, form))), how
