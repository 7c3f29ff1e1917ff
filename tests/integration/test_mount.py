"""Random pairs of source and target strategies against the oracle of ../shared, byte for byte."""
import random
from types import SimpleNamespace

import pytest
from conftest import QUICK, SEED
from reading import check

PAIRS = 8 if QUICK else 64


def draw_mesh(rnd):
    while True:
        dp, mp, pp = rnd.choice([1, 2, 4]), rnd.choice([1, 2, 4]), rnd.choice([1, 1, 2, 4])
        if dp * mp * pp <= 16:
            return {"dp": dp, "mp": mp, "pp": pp, "opt": rnd.choice([0, 0, -1, 2, 4])}


def draw(rnd):
    """One case: how the source was written, how it is wanted, how both are told to the program."""
    common = {
        "layers": 4, "hidden": rnd.choice([16, 32, 64]), "ffn": 64, "vocab": 96, "seed": rnd.randrange(1000),
        "dtype": rnd.choice(["BFloat16", "Float32", "Float16", "Int8", "Int4", "Float64", "UInt16"]),
        "format": rnd.choice(["ckpt", "safetensors"]), "shared": rnd.random() < 0.4,
        "strings": rnd.random() < 0.5, "keep_ones": rnd.random() < 0.3, "accu": False,
    }
    dedup = rnd.random() < 0.3
    source = SimpleNamespace(**common, **draw_mesh(rnd), dedup=dedup,
                             strategy_format=rnd.choice(["ckpt", "json"]))
    source.accu = not dedup and rnd.random() < 0.3  # names that the target may not know
    target = SimpleNamespace(**common, **draw_mesh(rnd), dedup=False,
                             strategy_format=rnd.choice(["ckpt", "json"]))
    target.accu = source.accu and rnd.random() < 0.5
    return SimpleNamespace(
        source=source, target=target, container=rnd.choice(["ckpt", "safetensors"]),
        src_form=rnd.choice(["merged", "directory", "found"]), dst_form=rnd.choice(["merged", "directory", "full"]),
        headers=rnd.random() < 0.3)


def options_of(case, source, target):
    merged = {"source": source / ("merged." + case.source.strategy_format),
              "target": target / ("merged." + case.target.strategy_format)}
    out = ["target=" + ("full" if case.dst_form == "full" else
                        str(merged["target"] if case.dst_form == "merged" else target / "strategy"))]
    if case.src_form != "found":  # else the program has to find SOURCE/merged.* and SOURCE/strategy
        out.append("src_strategy=%s" % (merged["source"] if case.src_form == "merged" else source / "strategy"))
    if case.container != case.source.format:
        out.append("format=" + case.container)
    return out + (["verify=headers"] if case.headers else [])


@pytest.mark.parametrize("number", range(PAIRS))
def test_random_pair(number, mount, oracle, tmp_path):
    judge, generator = oracle
    rnd = random.Random("%d/%d" % (SEED, number))
    case = draw(rnd)
    print(case)
    source, target = tmp_path / "source", tmp_path / "target"
    generator.generate(case.source, str(source))
    generator.write_strategies(case.target, str(target))
    wanted = judge.read_strategy(str(target / ("merged." + case.target.strategy_format)))
    wanted = None if case.dst_form == "full" else wanted
    tree = judge.Source(str(source), judge.read_strategy(
        str(source / ("merged." + case.source.strategy_format))))

    mounted = mount(source, *options_of(case, source, target))
    for rank in range(len(wanted.stages()) * wanted.stage_devices if wanted else 1):
        entries = judge.transform_rank(tree, wanted, rank)
        if case.container == "safetensors":
            check_safetensors(judge, mounted.file(rank, "safetensors"), entries, tmp_path, rnd)
        else:
            judge.write_ckpt(tmp_path / "want", entries)
            check(mounted.file(rank), (tmp_path / "want").read_bytes(), rnd, 10)


def check_safetensors(judge, path, entries, tmp_path, rnd):
    tensors = {n: e for n, e in entries.items() if not isinstance(e, str)}
    judge.write_safetensors(tmp_path / "want", tensors)
    _, meta = judge.read_safetensors(str(tmp_path / "want"), with_meta=True)
    if len(meta) == 1:
        check(path, (tmp_path / "want").read_bytes(), rnd, 10)
        return
    # Several keys of metadata: ours are sorted, the judge's are not.
    got, got_meta = judge.read_safetensors(str(path), with_meta=True)
    assert got_meta == meta and list(got_meta) == sorted(got_meta)
    assert sorted(got) == sorted(tensors)
    for name, item in tensors.items():
        assert (got[name].dtype, got[name].shape, got[name].raw()) == (item.dtype, item.shape, item.raw()), name


@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
def test_there_and_back(container, mount, oracle, tmp_path):
    """The example of MindSpore's how-to, 8 cards mp 4, pp 2 to 16 cards mp 4, pp 4; and back through
    a second mount whose source is the first mount."""
    judge, generator = oracle
    rnd = random.Random(SEED)
    shape = {"layers": 8, "hidden": 64, "ffn": 128, "vocab": 96, "seed": 5, "dtype": "BFloat16", "opt": 0,
             "format": container, "strategy_format": "ckpt", "shared": False, "strings": False,
             "keep_ones": False, "accu": False, "dedup": False}
    generator.generate(SimpleNamespace(dp=1, mp=4, pp=2, **shape), str(tmp_path / "eight"))
    generator.write_strategies(SimpleNamespace(dp=1, mp=4, pp=4, **shape), str(tmp_path / "sixteen"))
    eight, sixteen = tmp_path / "eight/merged.ckpt", tmp_path / "sixteen/merged.ckpt"

    there = mount(tmp_path / "eight", "src_strategy=%s" % eight, "target=%s" % sixteen)
    judge.transform(str(tmp_path / "eight"), judge.read_strategy(str(eight)), judge.read_strategy(str(sixteen)),
                    str(tmp_path / "want16"), fmt=container)
    for rank in range(16):
        name = "rank_%d/checkpoint_%d.%s" % (rank, rank, container)
        check(there.path / name, (tmp_path / "want16" / name).read_bytes(), rnd)

    back = mount(there.path, "src_strategy=%s" % sixteen, "target=%s" % eight)
    judge.transform(str(tmp_path / "want16"), judge.read_strategy(str(sixteen)), judge.read_strategy(str(eight)),
                    str(tmp_path / "want8"), fmt=container)
    for rank in range(8):
        name = "rank_%d/checkpoint_%d.%s" % (rank, rank, container)
        check(back.path / name, (tmp_path / "want8" / name).read_bytes(), rnd)
    with open(tmp_path / "differences", "w+", encoding="utf-8") as report:
        bad = judge.compare(str(tmp_path / "eight"), str(back.path), out=report)
        report.seek(0)
        assert not bad, report.read()
    back.unmount()
