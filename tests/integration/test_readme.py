"""The table of README, source | target | one command: every line is run as it stands there.

The words in capitals (CKPT, NEW, ...) become trees that are made here; what the mount shows is held
against whole tensors, cut by ckpt.py, or by rules.py where a plan says how. A line whose source or
option nobody here knows fails.
"""
import json
import re
import shlex

import pytest

import ckpt
import trees
from ckpt import Layout, Strategy
from conftest import REPO
from rules import Judge, cast
from trees import files

PARAMS = ckpt.model()
WEIGHTS = ckpt.whole_tensors(PARAMS, moments=False)
WHOLE = ckpt.whole_tensors(PARAMS)
COUNTERS = ckpt.counters()
PLANS = REPO / "core/target/plans"


def table():
    """[source, target, command] of every line; `the same` is what stands above it."""
    text = (REPO / "README.md").read_text().split("| source | target | one command |\n", 1)[1]
    rows = []
    for line in text.splitlines()[1:]:
        if not line.startswith("|"):
            break
        source, target, command = (cell.strip() for cell in line.strip("|").split(" | "))
        rows.append([rows[-1][0] if source == "the same" else source, target, command.strip("`")])
    return rows


# ------------------------------------------------------------------------------------ sources

class Case:
    """A source of some kind: where it is (in several forms, perhaps), and what its whole tensors are."""

    def __init__(self, root, word, places, whole, **more):
        self.root, self.places, self.whole, self.tree = root, {word: places}, whole, None
        self.mesh, self.new, self.plan, self.letters, self.chosen = {}, ckpt.place(PARAMS, dp=2, mp=2, pp=2), None, {}, {}
        self.words = lambda words: mesh_of(words)
        self.__dict__.update(more)
        self.places["NEW"] = self.strategies("new", self.new)
        plan = self.plan = self.plan or a_plan(whole)
        ckpt.write(root / "PLAN.json", json.dumps(plan).encode())
        self.places["PLAN.json"] = [root / "PLAN.json"]

    def strategies(self, name, strategy):
        """A merged file, a directory of stage files; protobuf and JSON."""
        out = []
        for form in ("ckpt", "json"):
            out += ckpt.write_strategies(self.root / (name + "." + form), strategy, form)
        return out


def mesh_of(words):
    sizes = {w[:2]: int(w[2:]) for w in words.split(".")}
    return ckpt.place(PARAMS, mp=sizes.get("tp", 1), pp=sizes.get("pp", 1))


def a_plan(whole):
    """The model on pp 2 x tp 2: rows, columns and stages as its parameters say."""
    rules = []
    for p in PARAMS:
        for name in (p.name, "adam_m." + p.name, "adam_v." + p.name):
            if name in whole:
                rules.append({"to": name, "from": name})
                rules[-1] |= {"cut": [{"dim": next(iter(p.cut)), "axis": "tp"}]} if p.cut else {}
                rules[-1] |= {"on": {"pp": [0 if p.layer in (None, 0, 1) else 1]}}
    return {"reshard_plan": 1, "mesh": {"axes": [{"name": "pp", "size": 2}, {"name": "tp", "size": 2}]}, "rules": rules,
            "files": {"path": "rank_{rank}/model.safetensors", "format": "safetensors"}, "strict": {"unmatched": "replicate"}}


def rank_tree(root, whole=WHOLE, inside=True, **more):
    """The forms: its strategy is beside the ranks, in one file or in strategy/, or elsewhere."""
    strategy = ckpt.place(PARAMS, dp=2, mp=4, pp=2, opt=-1, moments="adam_m.net.embed.table" in whole)
    places = [root / "a", root / "b"] if inside else [root / "c"]
    for place in places:
        ckpt.write_tree(place, strategy, whole, lambda rank: COUNTERS, **more)
    old = ckpt.write_strategies(root / "old", strategy)
    if inside:
        ckpt.write(places[0] / "any.ckpt", open(old[0], "rb").read())
        ckpt.write_strategies(places[1], strategy)
        (places[1] / "merged.ckpt").unlink()
    return Case(root, "CKPT", places, whole, places_of_old=old, ranks=strategy)


def with_old(root):
    case = rank_tree(root, inside=False)
    case.places["OLD"] = case.places_of_old
    return case


def without_strategy(root):
    return rank_tree(root, inside=False)


def without_optimizer(root):
    return rank_tree(root, WEIGHTS)


def deduplicated(root):
    return rank_tree(root, dedup=True)


def several_files(root):
    """Epochs of half of the tensors each; the second one has the embedding once more, and newer."""
    case, strategy = rank_tree(root, WEIGHTS), ckpt.place(PARAMS, dp=2, mp=4, pp=2, opt=-1, moments=False)
    names = sorted(WEIGHTS)
    newer = ckpt.whole_tensors(PARAMS, 2, moments=False)
    save = {"epoch-1": {n: WEIGHTS[n] for n in names}, "epoch-9": {n: newer[n] for n in names}}
    save["epoch-1"] |= {n: t for n, t in WHOLE.items() if n not in WEIGHTS}
    whole = ckpt.place(PARAMS, dp=2, mp=4, pp=2, opt=-1)
    for place in case.places["CKPT"]:
        for rank in range(strategy.ranks):
            for old in (place / ("rank_%d" % rank)).iterdir():
                old.unlink()
        for epoch, entries in save.items():
            some = Strategy({s: {n: l for n, l in names.items() if n in entries} for s, names in whole.stages.items()})
            ckpt.write_tree(place, some, entries, name=epoch + "-{rank}")
    stage_dir = case.places["CKPT"][1]
    ckpt.write(case.places["CKPT"][0] / "any.ckpt", ckpt.strategy_bytes(whole))
    ckpt.write_strategies(stage_dir, whole)
    (stage_dir / "merged.ckpt").unlink()
    case.chosen = {"merge": save["epoch-1"] | save["epoch-9"], "epoch-9*": save["epoch-9"]}
    return case


def another_mount(root):
    """The tree below is that of the strategy NEW."""
    case = Case(root, "VIEW", [root / "view"], WHOLE)
    ckpt.write_tree(root / "view", case.new, WHOLE, lambda rank: COUNTERS, name="checkpoint_{rank}")
    return case


def one_file(root):
    places = [root / "whole.ckpt", root / "whole.safetensors"]
    for place in places:
        ckpt.write(place, ckpt.file_bytes(WHOLE | COUNTERS, place.suffix[1:]))
    return Case(root, "FILE", places, WHOLE, words=copies)


def copies(words):
    n = int(re.fullmatch("dp([0-9]+)", words)[1])
    return Strategy({0: {name: Layout([n], [-1] * len(t.shape)) for name, t in WHOLE.items()}})


def lone_rank(root):
    ckpt.write(root / "lone/rank_0/checkpoint_0-1_1.ckpt", ckpt.ckpt_bytes(WHOLE | COUNTERS))
    return Case(root, "CKPT", [root / "lone"], WHOLE)


def unified(root):
    trees.unified(root / "unified", WHOLE, COUNTERS)
    return Case(root, "UNIFIED", [root / "unified"], WHOLE)


def hugging_face(root):
    """A model of a known type in one file, in shards, and in files that no index lists."""
    tensors, config = trees.llama(layers=4)
    places = [root / "one", root / "shards", root / "several"]
    for n, place in enumerate(places):
        trees.hugging_face(place, tensors, config, files=1 + 2 * n)
    (places[2] / "model.safetensors.index.json").unlink()
    plan = {"reshard_plan": 1, "mesh": {"axes": [{"name": "tp", "size": 2}]}, "strict": {"unmatched": "replicate"},
            "files": {"path": "mp-{tp}.safetensors", "format": "safetensors"}, "rules": [
                {"to": "decoder.{N}.qkv", "cut": [{"dim": 0, "axis": "tp"}], "concat": {"dim": 0, "groups": "g", "parts": [
                    {"from": "model.layers.{N}.self_attn.%s_proj.weight" % x} for x in "qkv"]}}]}
    layouts = {n: Layout([4], [0, -1] if n.endswith(("q_proj.weight", "lm_head.weight")) else [-1] * len(t.shape))
               for n, t in tensors.items()}
    letters = {"h": 16, "f": 24, "nq": 8, "g": 2, "d": 4, "L": 4, "V": 60}
    return Case(root, "MODEL", places, tensors, new=Strategy({0: layouts}), plan=plan, letters=letters)


def cut_pieces(words):
    """What is cut by the pieces of Paddle, in more of them."""
    sizes = {w[:2]: int(w[2:]) for w in words.split(".")}
    stages = {s: {} for s in range(sizes.get("pp", 1))}
    for p in PARAMS:
        axis = next(iter(p.cut)) if p.cut else None
        stage = {None: 0, -1: len(stages) - 1}.get(p.layer, (p.layer or 0) * len(stages) // 4)
        stages[stage][p.name] = Layout([sizes["tp"]], [0 if a == axis else -1 for a in range(len(p.shape))])
    return Strategy(stages)


CUTS = {p.name: next(iter(p.cut)) for p in PARAMS if p.cut}


def paddle(root):
    trees.paddle(root / "paddle", WEIGHTS, CUTS)
    return Case(root, "PADDLE", [root / "paddle"], WEIGHTS, words=cut_pieces, new=ckpt.place(PARAMS, dp=2, mp=2, moments=False))


def paddle_saves(root):
    chosen = {}
    for uid in (0, 1, 2):
        saved = ckpt.whole_tensors(PARAMS, uid, moments=False)
        state = {"optimizer.step": ckpt.values(uid, "step", "Int64", (1,))}
        trees.paddle(root / "paddle", {"model." + n: t for n, t in saved.items()} | state,
                     {"model." + n: a for n, a in CUTS.items()}, uid=uid)
        chosen[str(uid), "model"] = saved
    return Case(root, "PADDLE", [root / "paddle"], WEIGHTS, chosen=chosen)


def pdparams(root):
    trees.pdparams(root / "model_state.pdparams", WHOLE | COUNTERS)
    return Case(root, "FILE", [root / "model_state.pdparams"], WHOLE)


SOURCES = {
    "rank tree of MindSpore, and its strategy": with_old,
    "rank tree with its strategy in it or in `strategy/`": rank_tree,
    "rank tree, no strategy at hand": without_strategy,
    "several files in each rank directory": several_files,
    "redundancy-removed tree": deduplicated,
    "weights without optimizer": without_optimizer,
    "what another mount shows in `rank_R/`, `.ckpt` or `.safetensors`": another_mount,
    "one `.ckpt` or `.safetensors` file of whole tensors": one_file,
    "a lone `rank_0` of whole tensors": lone_rank,
    "unified directory of MindSpore": unified,
    "Hugging Face: one file, shards with an index, or a directory of files": hugging_face,
    "distributed checkpoint of Paddle": paddle,
    "several saves in a directory of Paddle": paddle_saves,
    "`.pdparams` file of Paddle": pdparams,
}
OPTIONS = {"target", "src_strategy", "plan", "layout", "format", "max_file", "only", "dtype", "select", "missing",
           "rename", "ranks", "unique_id", "prefix"}


# ------------------------------------------------------------------------------------ the judge

def whole_of(case, options):
    """Whole tensors, after what options say of the choice of files, names and types."""
    whole = case.whole
    if "select" in options:
        whole = case.chosen[options["select"]]
    if "unique_id" in options or "prefix" in options:
        whole = case.chosen[options["unique_id"], options["prefix"]]
    if "rename" in options:
        old, new = (side.rstrip("*") for side in options["rename"].split(":"))
        whole = {new + n[len(old):] if n.startswith(old) else n: t for n, t in whole.items()}
        assert whole.keys() != case.whole.keys()
    if options.get("only") == "weights":
        whole = {n: t for n, t in whole.items() if not n.startswith("adam_")}
    else:
        assert "only" not in options
    return whole


def judged(case, options):
    """{rank: entries}. Entries without layout are looked at apart."""
    target, whole = options["target"], whole_of(case, options)
    if target == "full":
        out = {0: whole}
    elif target == "same":
        out = by_strategy(case.ranks, whole)
    elif target == "NEW":
        out = by_strategy(case.new, whole)
    elif target == "PLAN.json":
        out = by_plan(case, case.plan, whole)
    elif options.get("plan", options.get("layout") if case.letters else None) or case.letters:
        out = by_plan(case, plan_of(case, options), whole)
    else:
        out = by_strategy(case.words(target), whole)
    if "dtype" in options:
        out = {r: {n: as_float32(t) for n, t in e.items()} for r, e in out.items()}
    if "ranks" in options:
        first, last = map(int, options["ranks"].split("-"))
        out = {r: e for r, e in out.items() if first <= r <= last}
    return out


def as_float32(item):
    """A BFloat16 is the upper half of one, NaNs included."""
    if item.kind == "BFloat16":
        return ckpt.Tensor("Float32", item.data.astype("<u4") << 16)
    return cast(item, "Float32")


def by_strategy(strategy, whole):
    return {rank: {n: l.cut(whole[n], rank % strategy.devices) for n, l in strategy.stages[rank // strategy.devices].items()
                   if n in whole} for rank in range(strategy.ranks)}


def plan_of(case, options):
    """The rules that are meant, with the sizes of the words."""
    name = options.get("plan", "llama" + (".vllm" if options.get("layout") == "vllm" else ""))
    plan = json.loads(json.dumps(case.plan)) if name == "PLAN.json" else json.loads((PLANS / (name + ".json")).read_text())
    sizes = {w[:2]: int(w[2:]) for w in options["target"].split(".")}
    for axis in plan["mesh"]["axes"]:
        axis["size"] = sizes.get(axis["name"], 1)
    return plan


def by_plan(case, plan, whole):
    judge = Judge(plan, whole, case.letters)
    return {rank: judge.rank(rank) for rank in range(judge.ranks)}


def shown(root, options):
    """{rank: entries} of a mount, whatever its layout is."""
    out, container = {}, options.get("format")
    for name, path in files(root).items():
        found = re.match(r"(?:rank_|mp-|model-rank-)(\d+)", name)
        assert bool(found) == (options.get("layout") in (None, "vllm"))
        assert container is None or path.suffix == "." + container
        entries = trees.read(path)
        assert not out.setdefault(int(found[1]) if found else 0, {}).keys() & entries.keys()
        out[int(found[1]) if found else 0] |= entries
    return out


def hold(got, want):
    assert sorted(got) == sorted(want)
    for rank, entries in got.items():
        for name in COUNTERS.keys() & entries.keys() - want[rank].keys():
            assert ckpt.same(entries.pop(name), COUNTERS[name]), name
        assert want[rank]
        trees.equal(entries, want[rank])


# ------------------------------------------------------------------------------------ the lines

@pytest.mark.parametrize("source, target, command", table(), ids=["%02d" % i for i in range(len(table()))])
def test_line(source, target, command, mount, tmp_path):
    assert source in SOURCES, "nobody here makes such a source"
    case = SOURCES[source](tmp_path)
    words = shlex.split(command)
    assert words[0] == "reshardfs" and words[2:4] == ["MNT", "-o"] and len(words) == 5, words
    options = dict(o.split("=", 1) for o in words[4].split(","))
    assert options.keys() <= OPTIONS, "nobody here judges such an option"
    want = judged(case, options)
    for place in case.places[words[1]]:
        for new in case.places["NEW"] if "NEW" in words[4] and "directory" in target else case.places["NEW"][:1]:
            for old in case.places.get("OLD", [None]):
                said = {"NEW": new, "OLD": old, "PLAN.json": case.places["PLAN.json"][0]}
                filled = ",".join("%s=%s" % (k, said.get(v, v)) for k, v in options.items())
                mounted = mount(place, filled)
                hold(shown(mounted.path, options), want)
                mounted.unmount()


def test_the_table_names_every_source_and_shape():
    rows = table()
    assert {source for source, _, _ in rows} == set(SOURCES)
    said = " ".join(command for _, _, command in rows)
    for word in ("target=NEW", "target=PLAN.json", "target=full", "target=same", "target=tp", "plan=PLAN.json", "layout=hf",
                 "layout=unified", "layout=vllm", "format=ckpt", "format=safetensors", "format=pdparams"):
        assert word in said, word
    assert len({(s, c) for s, _, c in rows}) == len(rows)
