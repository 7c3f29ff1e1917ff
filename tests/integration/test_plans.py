"""Plan files against tests/lib/rules.py: every file of every rank, byte for byte.

Sources are Hugging Face directories and MindSpore trees; plans are the three of tests/data/plans at
small sizes, and random ones.
"""
import json
import random

import pytest

import ckpt
import reading
from conftest import QUICK, REPO, SEED, program
from rules import Judge, Refused

PLANS = 12 if QUICK else 60


def tensor(name, shape, kind="BFloat16"):
    return ckpt.values(SEED, name, kind, shape)


def hugging_face(root, tensors, config=None, files=1):
    """A directory as transformers writes it; names in byte order, as most are."""
    root.mkdir(exist_ok=True)
    names = sorted(tensors, key=str.encode)
    if config:
        (root / "config.json").write_text(json.dumps(config))
    if files == 1:
        (root / "model.safetensors").write_bytes(ckpt.safe_bytes(tensors, {"format": "pt"}))
        order = list(ckpt.read_safe(root / "model.safetensors"))
        return {n: tensors[n] for n in order}
    index, order = {}, []
    for i in range(files):
        name = "model-%05d-of-%05d.safetensors" % (i + 1, files)
        part = {n: tensors[n] for n in names[i::files]}
        (root / name).write_bytes(ckpt.safe_bytes(part, {"format": "pt"}))
        order += list(ckpt.read_safe(root / name))
        index |= {n: name for n in part}
    size = sum(t.data.nbytes for t in tensors.values())
    (root / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": index}))
    return {n: tensors[n] for n in order}


def path_of(plan, judge, rank):
    where = judge.coordinates(rank)
    return plan["files"]["path"].replace("{rank}", str(rank)).format(**{k: int(v) for k, v in where.items()})


def check(source, plan, judges, meta, tmp_path, ranks=None, options=()):
    """judges: a Judge, or one per rank."""
    file = tmp_path / "the.plan.json"
    file.write_text(json.dumps(plan))
    container = plan["files"]["format"]
    judge_of = judges if callable(judges) else lambda rank: judges
    total = judge_of(0).ranks
    for rank in range(total) if ranks is None else ranks:
        want = judge_of(rank).rank(rank)
        if container == "safetensors":
            want = ckpt.safe_bytes(want, plan["files"].get("metadata", meta))
        else:
            want = ckpt.ckpt_bytes(want)
        got = program("cat", source, "--target", file, *options, path_of(plan, judge_of(rank), rank))
        assert got.code == 0, got
        assert got.out == want, "rank %d: %s" % (rank, json.dumps(plan))
    return file


# ---------------------------------------------------------------------------- models in small

def llama(layers=4, h=32, nq=8, g=2, d=4, f=24, v=40, experts=0):
    out = {"model.embed_tokens.weight": (v, h), "lm_head.weight": (v, h), "model.norm.weight": (h,)}
    for n in range(layers):
        base = "model.layers.%d." % n
        out |= {base + "self_attn.q_proj.weight": (nq * d, h), base + "self_attn.k_proj.weight": (g * d, h),
                base + "self_attn.v_proj.weight": (g * d, h), base + "self_attn.o_proj.weight": (h, nq * d),
                base + "input_layernorm.weight": (h,), base + "post_attention_layernorm.weight": (h,)}
        if not experts:
            out |= {base + "mlp.gate_proj.weight": (f, h), base + "mlp.up_proj.weight": (f, h),
                    base + "mlp.down_proj.weight": (h, f)}
        for e in range(experts):
            moe = base + "block_sparse_moe.experts.%d." % e
            out |= {moe + "w1.weight": (f, h), moe + "w2.weight": (h, f), moe + "w3.weight": (f, h)}
        if experts:
            out[base + "block_sparse_moe.gate.weight"] = (experts, h)
    return {n: tensor(n, s) for n, s in out.items()}


def plan_of(name, **variables):
    plan = json.loads((REPO / "tests/data/plans" / (name + ".json")).read_text())
    plan["vars"] = plan.get("vars", {}) | variables
    return plan


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("local", [False, True])
def test_llama(files, local, tmp_path):
    source = hugging_face(tmp_path / "src", llama(), files=files)
    plan = plan_of("llama3-8b-tp4-pp2", d=2, V=40)
    plan["ranges"]["N"] |= {"count": 4, "local": local}
    check(tmp_path / "src", plan, Judge(plan, source), None, tmp_path)


def test_mixtral(tmp_path):
    source = hugging_face(tmp_path / "src", llama(2, experts=8, v=100), files=2)
    plan = plan_of("mixtral-8x7b-ep4-tp2-vllm", d=4)
    check(tmp_path / "src", plan, Judge(plan, source), {"format": "pt"}, tmp_path)


def test_gqa(tmp_path):
    source = hugging_face(tmp_path / "src", llama(2, nq=16, g=2, v=83, f=16))
    plan = plan_of("gqa-tp8-megatron", g=2, V=81)
    for rule in plan["rules"][-2:]:
        rule["pad"]["multiple"] = 32
    check(tmp_path / "src", plan, Judge(plan, source), {"format": "pt"}, tmp_path)


def test_mounted(mount, tmp_path):
    """Reads of every size, and a file in a folder of its own at the root."""
    source = hugging_face(tmp_path / "src", llama(2, experts=8, v=100), files=2)
    plan = plan_of("mixtral-8x7b-ep4-tp2-vllm", d=4)
    plan["files"]["path"] = "rank_{rank}/part-{ep}-{tp}.safetensors"
    judge, file = Judge(plan, source), tmp_path / "mixtral.json"
    file.write_text(json.dumps(plan))
    mounted = mount(tmp_path / "src", "target=%s" % file)
    for rank in range(judge.ranks):
        want = ckpt.safe_bytes(judge.rank(rank), {"format": "pt"})
        reading.check(mounted.path / path_of(plan, judge, rank), want, random.Random(rank), 8)


def test_vars_come_from_config_json(tmp_path):
    config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 2,
              "num_hidden_layers": 4, "intermediate_size": 24, "vocab_size": 40}
    source = hugging_face(tmp_path / "src", llama(), config)
    plan = plan_of("llama3-8b-tp4-pp2")
    plan["vars"] = {}
    plan["mesh"]["axes"][1]["size"] = 2
    plan["ranges"]["N"]["count"] = "L"
    for rule in plan["rules"]:
        for cut in rule.get("cut", []):
            if rule["to"] == "lm_head.weight":
                cut["unit"] = "V / 2"
    letters = {"d": 4, "L": 4, "V": 40}
    check(tmp_path / "src", plan, Judge(plan, source, letters), None, tmp_path)


# --------------------------------------------------------------------------------- random plans

class Draw:
    """A random source and a plan for it that fits, so that what is refused is a mistake."""

    def __init__(self, number):
        self.rnd = random.Random("plans/%d/%s" % (SEED, number))
        pick = self.rnd.choice
        self.axes = [{"name": n, "size": pick([1, 2, 3, 4])} for n in self.rnd.sample(["tp", "ep", "pp"], 3)]
        self.size = {a["name"]: a["size"] for a in self.axes}
        self.layers = self.size["pp"] * pick([1, 2])
        self.experts = self.size["ep"] * pick([1, 2])
        self.kind = pick(["BFloat16", "Float32", "Float16", "Int8"])
        self.shapes, self.rules = {}, []
        for k in range(self.rnd.randrange(2, 6)):
            pick([self.plain, self.layer, self.fused, self.stacked, self.split])(k)
        self.plan = {
            "reshard_plan": 1, "mesh": {"axes": self.axes},
            "files": {"path": "rank_{rank}/m.safetensors" if self.rnd.random() < 0.7 else "rank_{rank}/m.ckpt"},
            "strict": {"unmatched": pick(["drop", "replicate"]), "uneven": pick(["chunk", "balanced", "pad"])},
            "ranges": {"N": {"axis": "pp", "count": self.layers, "local": self.rnd.random() < 0.5},
                       "E": {"axis": "ep", "count": self.experts}},
            "rules": self.rules}
        self.plan["files"]["format"] = self.plan["files"]["path"].rsplit(".", 1)[1]

    def shape(self, axes=None):
        return [self.rnd.randrange(1, 13) for _ in range(axes or self.rnd.randrange(1, 4))]

    def steps(self, shape):
        """Random steps that fit @shape; the shape before cuts is kept, for what comes behind."""
        rnd, out, shape = self.rnd, {}, list(shape)
        if rnd.random() < 0.4:
            dim = rnd.randrange(len(shape))
            groups = rnd.choice([g for g in range(1, shape[dim] + 1) if shape[dim] % g == 0])
            length = shape[dim] // groups
            start = rnd.randrange(length)
            stop = rnd.randrange(start, length) + 1
            out |= {"slice": [[dim, start, stop]], "groups": groups}
            shape[dim] = groups * (stop - start)
        if rnd.random() < 0.3:
            out["transpose"] = rnd.sample(range(len(shape)), len(shape))
            shape = [shape[i] for i in out["transpose"]]
        if rnd.random() < 0.3:
            dim = rnd.randrange(len(shape))
            out["trim"] = {"dim": dim, "to": rnd.randrange(1, shape[dim] + 1)}
            shape[dim] = out["trim"]["to"]
        if rnd.random() < 0.3:
            dim = rnd.randrange(len(shape))
            out["pad"] = {"dim": dim, "fill": rnd.choice(["zero", "last"])}
            out["pad"] |= rnd.choice([{"to": shape[dim] + rnd.randrange(4)}, {"multiple": rnd.randrange(1, 7)}])
            shape[dim] = out["pad"].get("to") or -(-shape[dim] // out["pad"]["multiple"]) * out["pad"]["multiple"]
        return out, shape

    def cuts(self, shape):
        out = []
        for axis in self.rnd.sample(sorted(self.size), self.rnd.randrange(3)):
            cut = {"dim": self.rnd.randrange(len(shape)), "axis": axis}
            if not any(c["dim"] == cut["dim"] for c in out) and self.rnd.random() < 0.5:
                units = [u for u in range(1, shape[cut["dim"]] + 1) if shape[cut["dim"]] % u == 0]
                cut["unit"] = self.rnd.choice(units)
                if self.size[axis] % (shape[cut["dim"]] // cut["unit"]) == 0:
                    cut["few"] = "replicate"
            out.append(cut)
        return {"cut": out} if out else {}

    def finish(self, rule, shape):
        steps, shape = self.steps(shape) if "concat" in rule or self.rnd.random() < 0.7 else ({}, shape)
        rule |= steps | self.cuts(shape)
        if self.rnd.random() < 0.2:
            axis = self.rnd.choice(sorted(self.size))
            rule["on"] = {axis: self.rnd.choice(["first", "last", [self.rnd.randrange(self.size[axis])]])}
        self.rules.append(rule)

    def plain(self, k):
        self.shapes["p%d.w" % k] = shape = self.shape()
        self.finish({"to": "plain.%d" % k, "from": "p%d.w" % k}, shape)
        if self.rnd.random() < 0.3:
            self.rules.append({"to": "again.%d" % k, "alias_of": "plain.%d" % k})

    def layer(self, k):
        shape = self.shape()
        for n in range(self.layers):
            for x in ("a", "b_c"):
                self.shapes["l.%d.%s.%d" % (n, x, k)] = shape
        self.finish({"to": "layers.{N}.{x}.%d" % k, "from": "l.{N}.{x}.%d" % k}, shape)

    def fused(self, k):
        groups, dim, parts, total = self.rnd.choice([1, 1, 2, 3]), self.rnd.randrange(2), [], 0
        common = self.rnd.randrange(1, 7)
        for i in range(self.rnd.randrange(2, 4)):
            length = groups * self.rnd.randrange(1, 5)
            shape = [length, common] if dim == 0 else [common, length]
            for n in range(self.layers):
                self.shapes["f.%d.%d.%d" % (n, k, i)] = shape
            parts.append({"from": "f.{N}.%d.%d" % (k, i)})
            if groups == 1 and self.rnd.random() < 0.5:
                parts[-1]["cut"] = [{"dim": dim, "axis": "tp", "few": "replicate", "uneven": "chunk"}]
                if length < self.size["tp"] and self.size["tp"] % length:
                    del parts[-1]["cut"][0]["few"]
            total += length
        rule = {"to": "fused.{N.g}.%d" % k, "concat": {"dim": dim, "parts": parts}}
        if groups > 1:
            rule["concat"]["groups"] = groups
        if any("cut" in p for p in parts):
            self.rules.append(rule)  # the length differs by rank: nothing more is known to fit
        else:
            self.finish(rule, [total, common] if dim == 0 else [common, total])

    def stacked(self, k):
        shape = self.shape(self.rnd.randrange(1, 3))
        for n in range(2):
            for e in range(self.experts):
                self.shapes["e.%d.%d.%d" % (n, e, k)] = shape
        rule = {"to": "stack.{n}.%d" % k, "from": "e.{n}.{E}.%d" % k}
        self.finish(rule, shape)
        rule["stack"] = {"dim": self.rnd.randrange(len(shape) + 1), "over": "E"}

    def split(self, k):
        shape = self.shape(self.rnd.randrange(2, 4))
        dim = self.rnd.randrange(len(shape))
        shape[dim] = self.experts
        self.shapes["all.%d" % k] = shape
        rule = {"to": "one.%d.{E}" % k, "from": "all.%d" % k}
        self.finish(rule, shape[:dim] + shape[dim + 1:])
        rule["stack"] = {"dim": dim, "over": "E", "split": True}

    def tensors(self):
        return {n: tensor(n, tuple(s), self.kind) for n, s in self.shapes.items()}


@pytest.mark.parametrize("number", range(PLANS))
def test_random_plan(number, tmp_path):
    drawn = Draw(number)
    source = hugging_face(tmp_path / "src", drawn.tensors() | {"unmatched": tensor("u", (3,), "Int64")},
                          files=drawn.rnd.choice([1, 2]))
    judge = Judge(drawn.plan, source)
    ranks = drawn.rnd.sample(range(judge.ranks), min(judge.ranks, 4))
    print(json.dumps(drawn.plan))
    if drawn.plan["files"]["format"] == "ckpt":  # what has no elements is left out there, and no file is empty
        ranks = [r for r in ranks if any(t.data.size for t in judge.rank(r).values())]
    check(tmp_path / "src", drawn.plan, judge, {"format": "pt"}, tmp_path, ranks)


@pytest.mark.parametrize("number", range(PLANS // 2))
def test_random_plan_without_leave(number, tmp_path):
    """Nothing may be uneven: what the judge cannot cut is refused, and nothing else is."""
    drawn = Draw("strict/%d" % number)
    drawn.plan["strict"] = {"unmatched": "drop"}
    for rule in drawn.rules:
        for part in rule.get("concat", {}).get("parts", []):
            for cut in part.get("cut", []):
                cut.pop("uneven", None)
    source = hugging_face(tmp_path / "src", drawn.tensors())
    print(json.dumps(drawn.plan))
    try:
        judge = Judge(drawn.plan, source)
        held = [judge.rank(rank) for rank in range(judge.ranks)]
    except Refused:
        (tmp_path / "the.plan.json").write_text(json.dumps(drawn.plan))
        got = program("plan", tmp_path / "src", "--target", tmp_path / "the.plan.json")
        assert got.code == 2 and "the.plan.json: " in got.text, got
        return
    ranks = [r for r in range(judge.ranks) if any(t.data.size for t in held[r].values())][:3]
    check(tmp_path / "src", drawn.plan, judge, {"format": "pt"}, tmp_path, ranks)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_scales(size, local, tmp_path):
    """Weights of 32 x 24 in blocks of 4 x 6: cut by rows, by columns, turned, fused, stacked and split."""
    weights, scales = ["a", "b", "l.0.e.0", "l.0.e.1", "l.0.e.2", "l.0.e.3"], {}
    tensors = {n + ".weight": tensor(n, (32, 24), "Int8") for n in weights}
    scales = {n + ".scale": tensor(n, (8, 4), "Float32") for n in weights}
    scales["all.scale"], tensors["all.weight"] = tensor("s", (4, 8, 3), "Float32"), tensor("all", (4, 32, 18), "Int8")
    tensors["odd.weight"], scales["odd.scale"] = tensor("o", (30, 20), "Int8"), tensor("o", (8, 4), "Float32")
    source = hugging_face(tmp_path / "src", tensors | scales)
    cut = {"cut": [{"dim": 0, "axis": "tp"}]}

    def pair(to, rule, block):
        text = json.dumps({k: v for k, v in rule.items() if k in ("from", "concat", "stack")})
        scale = json.loads(text.replace(".weight", ".scale"))
        for part in scale.get("concat", {}).get("parts", []):
            part.pop("cut", None)
        return [{"to": to + ".weight"} | rule, {"to": to + ".scale", "scale_of": to + ".weight", "block": block} | scale]

    parts = [{"from": n + ".weight"} | cut for n in "ab"]
    plan = {
        "reshard_plan": 1, "mesh": {"axes": [{"name": "ep", "size": 2}, {"name": "tp", "size": size}]},
        "files": {"path": "{rank}.safetensors", "format": "safetensors"},
        "ranges": {"E": {"axis": "ep", "local": local}},
        "rules": pair("row", {"from": "a.weight"} | cut, [4, 6])
        + pair("col", {"from": "a.weight", "cut": [{"dim": 1, "axis": "tp"}]}, [4, 6])
        + pair("turned", {"from": "b.weight", "transpose": [1, 0], "cut": [{"dim": 1, "axis": "tp"}]}, [4, 6])
        + pair("fused", {"concat": {"dim": 0, "parts": parts}}, [4, 6])
        + pair("up", {"from": "l.0.e.{E}.weight", "stack": {"dim": 0, "over": "E"}} | cut, [4, 6])
        + pair("one.{E}", {"from": "l.0.e.{E}.weight"} | cut, [4, 6])
        + pair("each.{E.l}", {"from": "all.weight", "stack": {"dim": 0, "over": "E", "split": True}} | cut, [1, 4, 6])
        + pair("whole", {"from": "odd.weight"}, [4, 6])}
    if size == 4:  # 24 columns are 4 blocks of 6, one each; 4 x 2 rows of blocks
        assert Judge(plan, source).rank(7)["col.scale"].shape == (8, 1)
    check(tmp_path / "src", plan, Judge(plan, source), {"format": "pt"}, tmp_path)


# ----------------------------------------------------------------------------- MindSpore trees

def ordered(tree, local):
    """All that a tree has, as whole tensors, in the order of the files of one local rank."""
    out, sourced = {}, tree.names()
    for stage in range(len(tree.strategy.stages)):
        for name, item in tree.rank(stage * tree.devices + local).items():
            if name not in sourced:
                item = next(tree.rank(s * tree.devices)[name] for s in range(len(tree.strategy.stages))
                            if name in tree.rank(s * tree.devices))
            out.setdefault(name, tree.whole(name) if name in sourced else item)
    for name in sorted(sourced - set(out), key=str.encode):
        out[name] = tree.whole(name)
    return out


MINDSPORE = {
    "reshard_plan": 1, "vars": {"h": 32},
    "mesh": {"axes": [{"name": "pp", "size": 2}, {"name": "tp", "size": 4}]},
    "files": {"path": "rank_{rank}/model.ckpt", "format": "ckpt"},
    "ranges": {"N": {"axis": "pp", "count": 4, "local": True}},
    "strict": {"unmatched": "replicate"},
    "rules": [
        {"to": "embed", "from": "net.embed.table", "on": {"pp": "first"}, "cut": [{"dim": 0, "axis": "tp"}]},
        {"to": "head", "from": "net.head.weight", "on": {"pp": "last"}, "cut": [{"dim": 0, "axis": "tp"}]},
        {"to": "layers.{N}.q", "from": "net.blocks.{N}.qkv.weight", "slice": [[0, 0, "h"]],
         "cut": [{"dim": 0, "axis": "tp"}]},
        {"to": "layers.{N}.kv", "from": "net.blocks.{N}.qkv.weight", "slice": [[0, "h", "3 * h"]], "groups": 1,
         "transpose": [1, 0], "cut": [{"dim": 1, "axis": "tp"}]},
        {"to": "layers.{N}.qkv.bias", "from": "net.blocks.{N}.qkv.bias", "dtype": "F32"},
        {"to": "layers.{N}.out", "from": "net.blocks.{N}.out.weight", "cut": [{"dim": 1, "axis": "tp"}]},
        {"to": "layers.{N}.experts", "from": "net.blocks.{N}.experts.down", "cut": [{"dim": 0, "axis": "tp"}]},
        {"drop": "net.blocks.{N}.table"}, {"drop": "adam_{x}.net.{a}.{b}"}, {"drop": "adam_{x}.net.{a}.{b}.{c}.{d}"},
        {"drop": "adam_{x}.net.{a}.{b}.{c}"},
    ]}


@pytest.mark.parametrize("container", ["ckpt", "safetensors"])
@pytest.mark.parametrize("mesh", [{"dp": 2, "mp": 2, "pp": 2}, {"mp": 4}, {"dp": 2, "mp": 2, "opt": -1},
                                  {"pp": 4}], ids=str)
def test_mindspore_tree(mesh, container, tmp_path):
    params = ckpt.model()
    strategy = ckpt.place(params, **mesh)
    ckpt.write_strategies(tmp_path / "src", strategy, "ckpt")
    ckpt.write_tree(tmp_path / "src", strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters(
        rank, container == "ckpt", container == "ckpt"), container, mesh.get("dp", 1) > 1)
    tree = ckpt.Tree(tmp_path / "src", strategy)
    plan = json.loads(json.dumps(MINDSPORE))
    plan["files"] |= {"format": container, "path": "rank_{rank}/model." + container}
    judges = {}

    def judge_of(rank):
        local = rank % tree.devices
        if local not in judges:
            judges[local] = Judge(plan, ordered(tree, local))
        return judges[local]

    check(tmp_path / "src", plan, judge_of, {"format": "ms"}, tmp_path, ranks=[0, 3, 5, 7])


# ------------------------------------------------------------------------------ the schema

def objects(schema, at=()):
    """(path, node) of the objects of the schema whose members are all known."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False:
            yield at, schema
        for key, value in schema.items():
            yield from objects(value, at + (key,))


def test_the_schema_is_the_language(tmp_path):
    """Each object of docs/plan.schema.json has the members that the program knows, and no others."""
    schema = json.loads((REPO / "docs/plan.schema.json").read_text())
    hugging_face(tmp_path / "src", {"w": tensor("w", (8, 4))})
    base = {"reshard_plan": 1, "mesh": {"axes": [{"name": "tp", "size": 2}]},
            "files": {"path": "{rank}/m", "format": "ckpt"}, "ranges": {"N": {"axis": "tp", "count": 2}}}
    part, cut = {"from": "w"}, {"dim": 0, "axis": "tp"}
    odd = {"oddity": 1}
    wrong = {
        (): base | {"rules": []} | odd,
        ("mesh",): base | {"mesh": base["mesh"] | odd, "rules": []},
        ("axes",): base | {"mesh": {"axes": [{"name": "tp", "size": 2} | odd]}, "rules": []},
        ("files",): base | {"files": base["files"] | odd, "rules": []},
        ("strict",): base | {"strict": odd, "rules": []},
        ("ranges",): base | {"ranges": {"N": {"axis": "tp"} | odd}, "rules": []},
        ("fit",): base | {"rules": [{"to": "w", "from": "w", "pad": {"dim": 0, "to": 8} | odd}]},
        ("cut",): base | {"rules": [{"to": "w", "from": "w", "cut": [cut | odd]}]},
        ("part",): base | {"rules": [{"to": "w", "concat": {"dim": 0, "parts": [part | odd]}}]},
        ("concat",): base | {"rules": [{"to": "w", "concat": {"dim": 0, "parts": [part]} | odd}]},
        ("stack",): base | {"rules": [{"to": "w", "from": "w{N}", "stack": {"dim": 0, "over": "N"} | odd}]},
        ("rule",): base | {"rules": [{"to": "w", "from": "w"} | odd]},
    }
    seen = set()
    for path, node in objects(schema):
        names = [p for p in path if p not in ("properties", "$defs", "items", "additionalProperties")]
        key = tuple(names[-1:])
        (tmp_path / "p.json").write_text(json.dumps(wrong[key]))
        got = program("plan", tmp_path / "src", "--target", tmp_path / "p.json")
        known = got.text.partition("unknown member 'oddity'; known are ")[2].split("\n")[0].split()
        assert got.code == 2 and set(known) == set(node["properties"]), (key, known, got)
        seen.add(key)
    assert seen == set(wrong)


@pytest.mark.parametrize("text, code, words", [
    ("{\"reshard_plan\": 1", 2, "p.json@"),
    ("{\"reshard_plan\": 9, \"mesh\": {}}", 4, "expected version 1, found 9"),
    ("{\"reshard\": 1}", 2, "expected full, same"),
])
def test_broken_files(text, code, words, tmp_path):
    hugging_face(tmp_path / "src", {"w": tensor("w", (8, 4))})
    (tmp_path / "p.json").write_text(text)
    got = program("plan", tmp_path / "src", "--target", tmp_path / "p.json")
    assert got.code == code and words in got.text, got


def test_exit_codes(tmp_path):
    """23 and 24 of the faults: what cannot be cut, a tensor without a rule, a rule without a tensor."""
    hugging_face(tmp_path / "src", {"a": tensor("a", (10, 4)), "b": tensor("b", (4,), "Int8")})
    head = {"reshard_plan": 1, "mesh": {"axes": [{"name": "tp", "size": 4}]},
            "files": {"path": "rank_{rank}/m.safetensors", "format": "safetensors"}}
    a, b = {"to": "a", "from": "a"}, {"to": "b", "from": "b"}

    def ends(rules, code, *words, options=()):
        (tmp_path / "p.json").write_text(json.dumps(head | {"rules": rules}))
        got = program("plan", tmp_path / "src", "--target", tmp_path / "p.json", *options)
        assert got.code == code and all(w in got.text + got.out.decode() for w in words), got

    ends([a | {"cut": [{"dim": 0, "axis": "tp"}]}, b], 2, "tensor 'a'", "rules[0].cut[0]", "not divisible by 'tp' of 4",
         "possible sizes of 'tp' here: 1 2 5 10")
    ends([a], 3, "tensor 'b': no rule takes it to any rank", "default=drop")
    ends([a], 0, "'b'", options=["--default", "drop"])
    ends([a], 0, "'b'", "given whole to every rank", options=["--default", "replicate"])
    ends([a, b, {"to": "c", "from": "c"}], 3, "rules[2]: no source tensor is called 'c'", "missing=skip")
    ends([a, b, {"to": "c", "from": "c"}], 0, "left out", options=["--missing", "skip"])
    ends([a, b | {"dtype": "BF16"}], 4, "I8 cannot be shown as BF16")


def test_missing_ranks(tmp_path):
    """A rank that is not there matters where its slices have no other holder."""
    params = ckpt.model()
    strategy = ckpt.place(params, dp=2, mp=2)
    ckpt.write_strategies(tmp_path / "src", strategy, "ckpt")
    ckpt.write_tree(tmp_path / "src", strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters(rank))
    plan = json.loads(json.dumps(MINDSPORE))
    plan["rules"] = [r for r in plan["rules"] if "experts" not in r.get("to", "")]
    plan["rules"].append({"drop": "net.blocks.{N}.{x}.{y}"})
    judge = Judge(plan, ordered(ckpt.Tree(tmp_path / "src", strategy), 1))
    (tmp_path / "src/rank_3").rename(tmp_path / "gone_3")
    file = check(tmp_path / "src", plan, judge, {"format": "ms"}, tmp_path, ranks=[1, 5])
    got = program("plan", tmp_path / "src", "--target", file)
    assert got.code == 0 and "source rank 3 is missing" in got.out.decode() + got.text, got
    got = program("ranks", tmp_path / "src", "0", "1", "2", "3", "--target", file, "--json")
    needs = {r["rank"]: r for r in json.loads(got.out)["ranks"]}
    assert got.code == 0 and len(needs) == 4, got
    assert all(3 not in next(v for v in r.values() if isinstance(v, list)) for r in needs.values()), needs
    (tmp_path / "src/rank_1").rename(tmp_path / "gone_1")
    got = program("plan", tmp_path / "src", "--target", file)
    assert got.code == 3 and "missing" in got.text, got
