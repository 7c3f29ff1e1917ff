"""Every kind of layout and of target against tests/lib/ckpt.py: needs nothing but a clone."""
import random

import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import QUICK, SEED, program
from reading import check, check_tree

PAIRS = 6 if QUICK else 24


def tensors(names, seed=1):
    """{name: Tensor} from {name: (kind, shape)}."""
    return {n: ckpt.values(seed, n, kind, shape) for n, (kind, shape) in names.items()}


def build(root, layouts, whole, extras=None, **options):
    """A source tree with its strategy in strategy/; layouts: {name: Layout}, or a list by stage."""
    strategy = Strategy(dict(enumerate(layouts if isinstance(layouts, list) else [layouts])))
    form = options.pop("form", "ckpt")
    ckpt.write_strategies(root, strategy, form)
    ckpt.write_tree(root, strategy, whole, extras or (lambda rank: ckpt.counters()), **options)
    return ckpt.Tree(root, strategy)


def write_target(path, layouts, form="ckpt"):
    strategy = Strategy(dict(enumerate(layouts if isinstance(layouts, list) else [layouts])))
    ckpt.write(path, ckpt.strategy_bytes(strategy, None, form))
    return strategy


@pytest.mark.parametrize("number", range(PAIRS))
def test_random_pair(number, mount, tmp_path):
    rnd = random.Random("own/%d/%d" % (SEED, number))

    def draw():
        mesh = {"dp": rnd.choice([1, 2, 4]), "mp": rnd.choice([1, 2, 4]), "pp": rnd.choice([1, 2])}
        return mesh | {"opt": rnd.choice([0, -1, 2]), "keep_ones": rnd.random() < 0.3}

    params = ckpt.model(kind=rnd.choice(["BFloat16", "Float32", "Float64"]), shared=rnd.random() < 0.4)
    a, b = draw(), draw()
    container, out = rnd.choice(["ckpt", "safetensors"]), rnd.choice(["ckpt", "safetensors"])
    form, dedup, texts = rnd.choice(["ckpt", "json"]), rnd.random() < 0.3, rnd.random() < 0.5
    print(a, b, container, out, form, dedup, texts)
    source, target = ckpt.place(params, **a), ckpt.place(params, **b)
    merged, stages = ckpt.write_strategies(tmp_path / "src", source, form)
    _, to = ckpt.write_strategies(tmp_path / "dst", target, rnd.choice(["ckpt", "json"]))
    ckpt.write_tree(tmp_path / "src", source, ckpt.whole_tensors(params), lambda rank: ckpt.counters(
        rank, texts and container == "ckpt"), container, dedup)
    mounted = mount(tmp_path / "src", "src_strategy=%s" % rnd.choice([merged, stages]), "target=%s" % to,
                    "format=" + out)
    check_tree(mounted, ckpt.Tree(tmp_path / "src", source), target, out, rnd, n=4)


SHAPES = {"w": ("Float32", (48, 24)), "v": ("BFloat16", (24, 36)), "b": ("Float16", (72,)), "s": ("Float32", ()),
          "e": ("Int8", (12, 24, 12))}

# Layouts of the five tensors above. Stage sizes need not be multiples of each other.
LAYOUTS = {
    "whole": (Layout([1], [-1, -1]), Layout([1], [-1, -1]), Layout([1], [-1]), Layout([1], []), Layout([1], [-1] * 3)),
    "rows of 2": (Layout([2], [0, -1]), Layout([2], [0, -1]), Layout([2], [0]), Layout([2], []), Layout([2], [0, -1, -1])),
    "columns of 3": (Layout([3], [-1, 0]), Layout([3], [-1, 0]), Layout([3], [-1]), Layout([3], []),
                     Layout([3], [-1, -1, 0])),
    "2 x 3": (Layout([2, 3], [1, 0]), Layout([2, 3], [0, 1]), Layout([2, 3], [1]), Layout([2, 3], []),
              Layout([2, 3], [0, 1, -1])),
    "two dimensions on an axis": (Layout([2, 2], [[1, 0], [-1]]), Layout([2, 2], [[-1], [0, 1]]), Layout([2, 2], [[0, 1]]),
                                  Layout([2, 2], []), Layout([2, 2], [[0], [-1], [1]])),
    "extents of 1": (Layout([1, 4, 1], [[1], [0]]), Layout([1, 4, 1], [[2], [1]]), Layout([1, 4, 1], [[1]]),
                     Layout([1, 4, 1], []), Layout([1, 4, 1], [[-1], [1], [0]])),
    "optimizer shards over all": (Layout([2, 4], [0, -1], -1), Layout([2, 4], [-1, 0], -1), Layout([2, 4], [-1], -1),
                                  Layout([2, 4], []), Layout([2, 4], [-1, 1, -1], -1)),
    "interleaved shards of 2": (Layout([2, 2, 2], [0, -1], 2), Layout([2, 2, 2], [1, -1], 2), Layout([2, 2, 2], [2], 2),
                                Layout([2, 2, 2], []), Layout([2, 2, 2], [-1, 0, 1], 2)),
    "shards that fit no dimension": (Layout([6], [-1, -1], 3), Layout([6], [-1, -1], 2), Layout([6], [-1], 6),
                                     Layout([6], []), Layout([6], [-1, -1, -1], 3)),
    "map not in order": (Layout([3, 2, 2], [0, 1]), Layout([3, 2, 2], [0, 1], -1), Layout([3, 2, 2], [[0, 2]]),
                         Layout([3, 2, 2], []), Layout([3, 2, 2], [1, 0, 2])),
}


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS if not QUICK else ["2 x 3", "interleaved shards of 2"])
def test_every_layout_to_every_other(source, target, mount, tmp_path):
    rnd = random.Random(SEED)
    tree = build(tmp_path / "src", dict(zip(SHAPES, LAYOUTS[source])), tensors(SHAPES))
    to = write_target(tmp_path / "dst.ckpt", dict(zip(SHAPES, LAYOUTS[target])))
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"))
    check_tree(mounted, tree, to, "ckpt", rnd, n=2)


@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
@pytest.mark.parametrize("source, target", [
    (Layout([4], [0, -1], field=3), Layout([2], [-1, 0])),
    (Layout([4], [0, -1], field=3), Layout([2], [0, -1])),
    (Layout([2], [0, -1]), Layout([4], [0, -1], field=2)),
    (Layout([2], [0, -1], field=6), Layout([4], [0, -1], field=2)),
    (Layout([4], [0, -1], split=[5, 20, 0, 23]), Layout([2], [0, -1])),
    (Layout([2], [-1, 0]), Layout([4], [0, -1], split=[1, 2, 3, 42])),
    (Layout([4], [0, -1], split=[20, 20, 4, 4]), Layout([2], [0, -1], split=[47, 1])),
    (Layout([3], [0, -1], split=[7, 1, 40]), Layout([4], [0, -1], field=4)),
    (Layout([2, 2], [0, -1], split=[7, 41]), Layout([3], [-1, 0])),
], ids=str)
def test_fields_and_uneven_splits(source, target, container, mount, tmp_path):
    whole = tensors({"table": ("Float32", (48, 6)), "w": ("BFloat16", (24, 12))})
    plain = Layout([source.devices], [0, -1]), Layout([target.devices], [-1, 0])
    tree = build(tmp_path / "src", {"table": source, "w": plain[0]}, whole, container=container)
    to = write_target(tmp_path / "dst.ckpt", {"table": target, "w": plain[1]})
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"))
    check_tree(mounted, tree, to, container, random.Random(SEED))


def test_json_with_expanded_axes_is_refused(tmp_path):
    """MindSpore's JSON writes two dimensions on one axis as more axes than the tensor has."""
    build(tmp_path / "src", {"w": Layout([2, 4], [[1, 0], [-1]])}, tensors({"w": ("Float32", (16, 6))}))
    expanded = Strategy({0: {"w": Layout([2, 4], [1, 0, -1], shape=[2, 8, 6])}})
    path = tmp_path / "src.json"
    ckpt.write(path, ckpt.strategy_bytes(expanded, None, "json"))
    done = program("ls", tmp_path / "src", "-o", "src_strategy=%s,target=full" % path)
    assert done.code == 3 and "'w'" in done.text and "3 axes" in done.text and "hint:" in done.text, done


@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
def test_full(container, mount, tmp_path):
    params = ckpt.model(shared=True)
    strategy = ckpt.place(params, dp=2, mp=2, pp=2, opt=-1)
    ckpt.write_strategies(tmp_path / "src", strategy)
    ckpt.write_tree(tmp_path / "src", strategy, ckpt.whole_tensors(params),
                    lambda rank: ckpt.counters(rank), container)
    tree = ckpt.Tree(tmp_path / "src", strategy)
    mounted = mount(tmp_path / "src", "target=full")
    check_tree(mounted, tree, None, container, random.Random(SEED))
    found = ckpt.read_file(mounted.file(0, container))
    assert all(ckpt.same(found[n], t) for n, t in ckpt.whole_tensors(params).items())


@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
@pytest.mark.parametrize("form", ["file", "rank_0"])
def test_from_whole_tensors(form, container, mount, tmp_path):
    params = ckpt.model()
    entries = ckpt.whole_tensors(params) | ckpt.counters()
    path = tmp_path / ("src/model." if form == "file" else "src/rank_0/x-1_2.")
    path = path.with_name(path.name + container)
    ckpt.write(path, ckpt.file_bytes(entries, container))
    target = ckpt.place(params, dp=2, mp=2, opt=-1, pp=2)
    to, _ = ckpt.write_strategies(tmp_path / "dst", target)
    source = path if form == "file" else tmp_path / "src"
    mounted = mount(source, "target=%s" % to)
    check_tree(mounted, ckpt.Tree(source), target, container, random.Random(SEED))


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
def test_same_gives_identical_bytes(container, crc, mount, tmp_path):
    """No strategy needed; whatever the writer put there stays, a checksum or metadata included."""
    params = ckpt.model()
    strategy = ckpt.place(params, dp=2, mp=2)
    options = {"meta": {"format": "ms", "crc_num": "17", "remove_redundancy": "False"}} if container == "safetensors" \
        else {"crc": crc, "keep_empty": True, "value_bytes": 500}
    ckpt.write_tree(tmp_path / "src", strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters(
        rank, container == "ckpt", old_scalars=True) | {"empty": ckpt.values(1, "empty", "Float32", (0, 4))},
        container, **options)
    mounted = mount(tmp_path / "src", "target=same")
    for rank in range(4):
        want = (tmp_path / ("src/rank_%d/checkpoint_%d-1_2.%s" % (rank, rank, container))).read_bytes()
        check(mounted.file(rank, container), want, random.Random(SEED))


def test_same_in_the_other_container(mount, tmp_path):
    params = ckpt.model(kind="Int4")
    ckpt.write_tree(tmp_path / "src", ckpt.place(params, mp=2), ckpt.whole_tensors(params),
                    lambda rank: ckpt.counters(rank, texts=True), crc=True)
    mounted = mount(tmp_path / "src", "target=same", "format=safetensors")
    for rank in range(2):
        entries = ckpt.read_file(tmp_path / ("src/rank_%d/checkpoint_%d-1_2.ckpt" % (rank, rank)))
        check(mounted.file(rank, "safetensors"), ckpt.safe_bytes(entries), random.Random(SEED))


@pytest.mark.parametrize("select", ["last", "merge", "step-9*"])
def test_select(select, mount, tmp_path):
    """Three files in each rank directory; plain string order decides for .ckpt."""
    layouts, names = {}, {}
    for name in ("a", "b", "c"):
        layouts[name], names[name] = Layout([2], [0, -1]), ("Float32", (4, 6))
    to = write_target(tmp_path / "dst.ckpt", {n: Layout([3], [-1, 0]) for n in names})
    for i, (file, inside) in enumerate((("step-10_2", "abc"), ("step-9_2", "abc"), ("other", "bc"))):
        ckpt.write_tree(tmp_path / "src", Strategy({0: {n: layouts[n] for n in inside}}), tensors(names, i),
                        lambda rank, i=i: {"global_step": ckpt.values(i, "g", "Int32", (1,))}, name=file)
    strategy = Strategy({0: layouts})
    ckpt.write_strategies(tmp_path / "src", strategy)
    tree = ckpt.Tree(tmp_path / "src", strategy, "merge" if select == "merge" else "last")
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"), "select=" + select)
    check_tree(mounted, tree, to, "ckpt", random.Random(SEED))


def test_last_safetensors_goes_by_numbers(mount, tmp_path):
    names = {"w": ("Float32", (4, 6))}
    strategy = Strategy({0: {"w": Layout([2], [0, -1])}})
    for i, file in enumerate(("x-9_2", "x-10_2")):
        ckpt.write_tree(tmp_path / "src", strategy, tensors(names, i), None, "safetensors", name=file)
    ckpt.write_strategies(tmp_path / "src", strategy)
    mounted = mount(tmp_path / "src", "target=full")
    assert ckpt.same(ckpt.read_file(mounted.file(0, "safetensors"))["w"], tensors(names, 1)["w"])


NAMES = ["a-b", "3-a", "0-x-y", "with space", "slash/inside", "..", "caf\u00e9\u6743", "UPPER", "upper", "tab\there",
         "quote\"back\\slash", "x" * 5000, "\x1b[31mred"]


@pytest.mark.parametrize("form", ["ckpt", "json"])
@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
def test_names_are_data(container, form, mount, tmp_path):
    """No name becomes a path, and '-' is no border except behind a stage number."""
    whole = tensors({n: ("Float32", (4, 2 + i)) for i, n in enumerate(NAMES)})
    tree = build(tmp_path / "src", [{n: Layout([2], [0, -1], shape=[4, 2 + i]) for i, n in enumerate(NAMES)}], whole,
                 container=container, form="ckpt")
    to = write_target(tmp_path / ("dst." + form), [{n: Layout([4], [0, -1], shape=[4, 2 + i])
                                                    for i, n in enumerate(NAMES)}], form)
    mounted = mount(tmp_path / "src", "src_strategy=%s" % (tmp_path / "src/merged.ckpt"),
                    "target=%s" % (tmp_path / ("dst." + form)))
    check_tree(mounted, tree, to, container, random.Random(SEED))


@pytest.mark.parametrize("out", ["ckpt", "safetensors"])
@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
def test_every_type_and_odd_shape(container, out, mount, tmp_path):
    """All types; 0-d tensors in both forms of dims; tensors without elements; many axes."""
    names = {"t." + k: (k, (4, 6)) for k in ckpt.KINDS} | {
        "scalar": ("Float64", ()), "one": ("Int32", (1,)), "empty": ("Float32", (0, 6)), "hollow": ("Int8", (4, 0, 2)),
        "long": ("UInt8", (2, 1, 2, 1, 2, 1, 2, 2))}
    whole = tensors(names)
    whole["scalar"].old_scalar = True

    def layouts(n, axis):
        return {name: Layout([n], [0 if a == axis and len(shape) > 1 and shape[a] % n == 0 else -1
                                   for a in range(len(shape))]) for name, (_, shape) in names.items()}

    tree = build(tmp_path / "src", layouts(2, 0), whole, lambda rank: ckpt.counters(rank, old_scalars=True),
                 container=container, **({"keep_empty": True} if container == "ckpt" else {}))
    to = write_target(tmp_path / "dst.ckpt", layouts(2, 1))
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"), "format=" + out)
    check_tree(mounted, tree, to, out, random.Random(SEED))


@pytest.mark.parametrize("unknown", ["keep", "replicate", "drop"])
def test_names_unknown_to_the_target(unknown, mount, tmp_path):
    whole = tensors({"w": ("Float32", (8, 6)), "extra": ("Float32", (8, 6))})
    tree = build(tmp_path / "src", {"extra": Layout([2], [0, -1]), "w": Layout([2], [0, -1])}, whole)
    to = write_target(tmp_path / "dst.ckpt", {"w": Layout([4], [0, -1])})
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"), "default=" + unknown)
    check_tree(mounted, tree, to, "ckpt", random.Random(SEED), unknown=unknown)


def test_missing_skip(mount, tmp_path):
    tree = build(tmp_path / "src", {"w": Layout([2], [0, -1])}, tensors({"w": ("Float32", (8, 6))}))
    to = write_target(tmp_path / "dst.ckpt", {"w": Layout([4], [0, -1]), "adam_m.w": Layout([4], [0, -1])})
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"), "missing=skip")
    check_tree(mounted, tree, to, "ckpt", random.Random(SEED), missing="skip")


def test_ranks_and_name(mount, tmp_path):
    params = ckpt.model()
    strategy, target = ckpt.place(params, mp=2), ckpt.place(params, mp=4, pp=2)
    ckpt.write_strategies(tmp_path / "src", strategy)
    ckpt.write_tree(tmp_path / "src", strategy, ckpt.whole_tensors(params))
    to, _ = ckpt.write_strategies(tmp_path / "dst", target)
    mounted = mount(tmp_path / "src", "target=%s" % to, "ranks=1+4-5", "name=part_{rank}_of_8.ckpt")
    assert sorted(p.name for p in mounted.path.iterdir()) == ["rank_1", "rank_4", "rank_5"]
    tree = ckpt.Tree(tmp_path / "src", strategy)
    for rank in (1, 4, 5):
        check(mounted.path / ("rank_%d/part_%d_of_8.ckpt" % (rank, rank)),
              ckpt.expected_bytes(tree, target, rank, "ckpt"), random.Random(SEED))
    assert not (mounted.path / "rank_0").exists()


def test_shared_copies_of_later_stages(mount, tmp_path):
    """The copy of the lowest stage counts, even when the copies differ."""
    names = {"embed": ("Float32", (8, 4)), "head": ("Float32", (8, 4))}
    stages = [{"embed": Layout([2], [0, -1])}, {"head": Layout([2], [0, -1]), "embed": Layout([2], [-1, 0])}]
    tree = build(tmp_path / "src", stages, tensors(names))
    for local in range(2):  # another content in stage 1
        path = tmp_path / ("src/rank_%d/checkpoint_%d-1_2.ckpt" % (2 + local, 2 + local))
        entries = ckpt.read_file(path)
        entries["embed"] = ckpt.values("other", "embed", "Float32", (8, 2))
        ckpt.write(path, ckpt.ckpt_bytes(entries))
    to = write_target(tmp_path / "dst.ckpt", [{"embed": Layout([1], [-1, -1])}, {"head": Layout([1], [-1, -1]),
                                                                                  "embed": Layout([1], [-1, -1])}])
    mounted = mount(tmp_path / "src", "target=%s" % (tmp_path / "dst.ckpt"))
    check_tree(mounted, tree, to, "ckpt", random.Random(SEED))
