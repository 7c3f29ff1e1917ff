"""Round trips through chains of mounts, each the source of the next, that must close bit for bit.

Middle trees are described to the next mount as their users would do it: by `strategy emit`, by
`plan --emit`, or by a strategy that is written here. Fused weights carry labels: every element
tells the tensor, row and column that it comes from, and is held against numpy at every station.
"""
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

import ckpt
import trees
from ckpt import Layout, Strategy
from conftest import QUICK, SEED, program
from trees import equal, files, joined

RANKS = [1, 2, 8] if QUICK else [1, 2, 4, 8]


def emit_strategy(source, out, *options):
    done = program("strategy", "emit", source, out, *[w for o in options for w in ("-o", o)])
    assert done.code == 0, done
    return "src_strategy=%s" % out


def emit_plan(source, out, *options):
    done = program("plan", source, "--emit", *[w for o in options for w in ("-o", o)])
    assert done.code == 0, done
    out.write_bytes(done.out)
    return out


def same_files(got, want):
    got, want = files(got), files(want)
    assert sorted(got) == sorted(want)
    for name in want:
        assert got[name].read_bytes() == want[name].read_bytes(), name


# --------------------------------------------------------------------------------- MindSpore

@pytest.fixture(params=["own", "oracle"])
def start(request, tmp_path):
    """start(container) -> (tree of tp 4 and pp 2, its strategy as an option): by ckpt.py, and by the
    independent generator. Counters are those of the run, equal on all ranks."""
    root = tmp_path / "start"

    def own(container, strings):
        params = ckpt.model()
        strategy = ckpt.place(params, mp=4, pp=2)
        ckpt.write_strategies(root, strategy)
        ckpt.write_tree(root, strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters(1, strings), container)

    def by_generator(container, strings):
        request.getfixturevalue("oracle")[1].generate(SimpleNamespace(
            dp=1, mp=4, pp=2, opt=0, layers=4, hidden=32, ffn=64, vocab=96, seed=SEED % 1000, dtype="BFloat16",
            format=container, strategy_format="ckpt", shared=False, accu=False, strings=strings, keep_ones=False,
            dedup=False), str(root))

    def make(container, strings=False):
        (own if request.param == "own" else by_generator)(container, strings)
        return root, "src_strategy=%s" % (root / "merged.ckpt")
    return make


@pytest.mark.parametrize("container", ["safetensors", "ckpt"])
@pytest.mark.parametrize("back", ["strategy", "plan", "words"])
def test_mindspore_by_hugging_face_and_unified(container, back, start, mount, tmp_path):
    """tp4.pp2 -> Hugging Face -> tp8 -> unified -> tp4.pp2."""
    start, known = start(container)
    rules = emit_plan(start, tmp_path / "tp8.json", "target=tp8", known)
    home = emit_plan(start, tmp_path / "home.json", "target=tp4.pp2", known)
    one = mount(start, "target=full", "layout=hf", "max_file=200K", known)
    eight = mount(one.path, "target=tp8", "plan=%s" % rules)
    known = emit_strategy(one.path, tmp_path / "tp8.ckpt", "target=tp8", "plan=%s" % rules)
    parts = mount(eight.path, "target=full", "layout=unified", "max_file=200K", known)
    # Entries without layout have one since the plan, which makes them tensors of their own.
    end = mount(parts.path, "format=" + container, "name=checkpoint_{rank}-1_2." + container, *{
        "strategy": ["target=%s" % (start / "merged.ckpt"), "default=replicate"],
        "plan": ["target=%s" % home], "words": ["target=tp4.pp2", "plan=%s" % home]}[back])
    want = files(start)
    assert len(want) == 8 and {len(files(m.path)) for m in (eight, end)} == {8}
    for rank in range(8):
        file = want["rank_%d/checkpoint_%d-1_2.%s" % (rank, rank, container)]
        got = next((end.path / ("rank_%d" % rank)).iterdir())
        equal(trees.read(got), trees.read(file))
        if container == "safetensors":  # which have an order of their own
            assert got.read_bytes() == file.read_bytes()


def test_mindspore_ckpt_keeps_its_order_through_rank_trees(start, mount, tmp_path):
    """Order of entries, counters and texts survive as long as every tree is a rank tree of as many stages."""
    start, known = start("ckpt", strings=True)
    below = start
    for number, words in enumerate(("tp2.dp2.pp2", "tp8.pp2", "tp2.pp2", "tp4.dp2.pp2")):
        nearer = emit_strategy(below, tmp_path / ("%d.ckpt" % number), "target=" + words, known)
        below, known = mount(below, "target=" + words, known).path, nearer
    end = mount(below, "target=%s" % (start / "merged.ckpt"), "name=checkpoint_{rank}-1_2.ckpt", known)
    same_files(end.path, start)


# ------------------------------------------------------------------------------------ Paddle

@pytest.fixture(params=["own", "oracle"])
def saved(request, tmp_path):
    """saved(rnd) -> (a save of many ranks, its tensors): by trees.py, and random ones of the independent judge."""
    def own(rnd):
        whole = ckpt.whole_tensors(ckpt.model(), rnd.randrange(99)) | ckpt.counters()
        cuts = {n: rnd.randrange(len(t.shape)) for n, t in whole.items() if len(t.shape) > 1 and t.shape[1] % 4 == 0}
        trees.paddle(tmp_path / "start", whole, cuts, 4)
        return tmp_path / "start", whole

    def by_judge(rnd):
        request.getfixturevalue("oracle")
        import paddle_oracle
        paddle_oracle.generate(SimpleNamespace(
            out=str(tmp_path / "start"), truth=str(tmp_path / "truth"), version=rnd.choice(["flex3", "seed", "v2023"]),
            mesh=rnd.choice(["dp=2,pp=2,mp=2", "dp=3,mp=2", "mp=4"]), ids="0", tensors=15, seed=str(rnd.randrange(10**6)),
            protocol=None, dtypes=None, numpy=1, replicas=rnd.random() < .5, flatten=rnd.random() < .5,
            quirks=rnd.random() < .5, big_limit=2**30 - 1))
        return tmp_path / "start", trees.read(tmp_path / "truth/0.safetensors")
    return own if request.param == "own" else by_judge


@pytest.mark.parametrize("number", range(2 if QUICK else 6))
def test_paddle_by_hugging_face_and_ranks(number, saved, mount, tmp_path):
    """A save of many ranks -> Hugging Face -> ranks of dp, pp and mp -> merged, equal to the truth."""
    rnd = random.Random("chains/%d/%d" % (SEED, number))
    start, truth = saved(rnd)
    one = mount(start, "target=full", "layout=hf", "max_file=%d" % rnd.choice([500, 20000, 10**9]))
    equal(joined(one.path), truth)
    rules = []
    for name, item in truth.items():
        even = [a for a, n in enumerate(item.shape) if n and n % 2 == 0]
        rules.append({"to": name, "from": name} | ({"cut": [{"dim": rnd.choice(even), "axis": "mp"}]} if even else {}))
        rules[-1] |= rnd.choice([{}, {"on": {"pp": [rnd.randrange(2)]}}])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"reshard_plan": 1, "rules": rules, "mesh": {"axes": [
        {"name": "dp", "size": 2}, {"name": "pp", "size": 2}, {"name": "mp", "size": 2}]},
        "files": {"path": "rank_{rank}/model.safetensors", "format": "safetensors"}}))
    ranks = mount(one.path, "target=%s" % plan)
    assert len(files(ranks.path)) == 8
    for rank in range(8):
        pp, mp = rank // 2 % 2, rank % 2
        want = {}
        for rule in rules:
            if rule.get("on", {"pp": [pp]})["pp"] != [pp]:
                continue
            item = truth[rule["to"]]
            data = np.split(item.data, 2, rule["cut"][0]["dim"])[mp] if "cut" in rule else item.data
            want[rule["to"]] = ckpt.Tensor(item.kind, data)
        equal(trees.read(ranks.path / ("rank_%d/model.safetensors" % rank)), want)
    known = emit_strategy(one.path, tmp_path / "ranks.ckpt", "target=%s" % plan)
    equal(joined(mount(ranks.path, "target=full", known).path), truth)


# ---------------------------------------------------------------------------- fused and back

class Station:
    """Numbers of a model and of its ranks, and what the fused tensors of these are."""

    def __init__(self, tensors, config, tp):
        self.t, self.tp = tensors, tp
        self.nq, self.g, self.d = (config[n] for n in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        self.f, self.v, self.layers = (config[n] for n in ("intermediate_size", "vocab_size", "num_hidden_layers"))

    def part(self, name, rank, axis=0):
        return np.split(self.t[name].data, self.tp, axis)[rank]

    def heads(self, name, rank):
        """Key or value heads of a rank: its share, or one that several ranks share."""
        heads = self.t[name].data.reshape(self.g, self.d, -1)
        first, count = rank * self.g // self.tp, max(1, self.g // self.tp)
        return heads[first:first + count].reshape(count * self.d, -1)

    def padded(self, name, rank):
        data = self.t[name].data
        whole = np.zeros((-(-self.v // 64) * 64, data.shape[1]), data.dtype)
        whole[:self.v] = data
        return np.split(whole, self.tp)[rank]


def vllm(at, rank):
    """What vLLM loads on a rank: q, k and v cut first, then put together."""
    out = {"model.embed_tokens.weight": at.padded("model.embed_tokens.weight", rank),
           "lm_head.weight": at.padded("lm_head.weight", rank), "model.norm.weight": at.t["model.norm.weight"].data}
    for n in range(at.layers):
        base = "model.layers.%d." % n
        q, k, v = (base + "self_attn.%s_proj.weight" % x for x in "qkv")
        out |= {base + "self_attn.qkv_proj.weight": np.concatenate([at.part(q, rank), at.heads(k, rank), at.heads(v, rank)]),
                base + "self_attn.o_proj.weight": at.part(base + "self_attn.o_proj.weight", rank, 1),
                base + "mlp.gate_up_proj.weight": np.concatenate(
                    [at.part(base + "mlp.%s_proj.weight" % x, rank) for x in ("gate", "up")]),
                base + "mlp.down_proj.weight": at.part(base + "mlp.down_proj.weight", rank, 1)}
        out |= {base + x: at.t[base + x].data for x in ("input_layernorm.weight", "post_attention_layernorm.weight")}
    return {n: ckpt.Tensor("Int32", data) for n, data in out.items()}


def megatron(at, rank):
    """Megatron's: groups of q heads with their k and v, the whole cut afterwards; gate and up cut first."""
    out = {"embedding.weight": at.part("model.embed_tokens.weight", rank, 1),
           "output.weight": at.part("lm_head.weight", rank, 1), "final_norm.weight": at.t["model.norm.weight"].data}
    for n in range(at.layers):
        base, to = "model.layers.%d." % n, "decoder.layers.%d." % n
        groups = [at.t[base + "self_attn.%s_proj.weight" % x].data.reshape(at.g, -1, 16) for x in "qkv"]
        out |= {to + "linear_qkv.weight": np.split(np.concatenate(groups, 1).reshape(-1, 16), at.tp)[rank],
                to + "linear_proj.weight": at.part(base + "self_attn.o_proj.weight", rank, 1),
                to + "linear_fc1.weight": np.concatenate(
                    [at.part(base + "mlp.%s_proj.weight" % x, rank) for x in ("gate", "up")]),
                to + "linear_fc2.weight": at.part(base + "mlp.down_proj.weight", rank, 1),
                to + "input_norm.weight": at.t[base + "input_layernorm.weight"].data,
                to + "mlp_norm.weight": at.t[base + "post_attention_layernorm.weight"].data}
    return {n: ckpt.Tensor("Int32", data) for n, data in out.items()}


def write_plan(path, rules, axes=(("tp", 1),), **more):
    plan = {"reshard_plan": 1, "mesh": {"axes": [{"name": n, "size": s} for n, s in axes]}, "rules": rules,
            "files": {"path": "rank_{rank}/model.safetensors", "format": "safetensors", "metadata": {"format": "pt"}}}
    path.write_text(json.dumps(plan | more))
    return "target=%s" % path


def cut(dim, **more):
    return {"cut": [{"dim": dim, "axis": "tp", **more}]}


Q, K, V, O = ("model.layers.{N}.self_attn.%s_proj.weight" % x for x in "qkvo")
GATE, UP, DOWN = ("model.layers.{N}.mlp.%s_proj.weight" % x for x in ("gate", "up", "down"))
NORMS = [("model.layers.{N}.input_layernorm.weight", "decoder.layers.{N}.input_norm.weight"),
         ("model.layers.{N}.post_attention_layernorm.weight", "decoder.layers.{N}.mlp_norm.weight"),
         ("model.norm.weight", "final_norm.weight")]


def whole_rules(pairs):
    return [{"to": to, "from": source} for to, source in pairs]


def megatron_rules():
    m = "decoder.layers.{N}.linear_"
    return [{"to": m + "qkv.weight", "concat": {"dim": 0, "groups": "g", "parts": [{"from": x} for x in (Q, K, V)]}} | cut(0),
            {"to": m + "fc1.weight", "concat": {"dim": 0, "parts": [{"from": x} | cut(0) for x in (GATE, UP)]}},
            {"to": m + "proj.weight", "from": O} | cut(1), {"to": m + "fc2.weight", "from": DOWN} | cut(1),
            {"to": "embedding.weight", "from": "model.embed_tokens.weight"} | cut(1),
            {"to": "output.weight", "from": "lm_head.weight"} | cut(1)] + whole_rules([(b, a) for a, b in NORMS])


def parts_of_vllm(at, name):
    """Slices, in groups, of what the ranks of a vLLM tree hold together."""
    qkv, gate_up = "model.layers.{N}.self_attn.qkv_proj.weight", "model.layers.{N}.mlp.gate_up_proj.weight"
    q, kv, f = at.nq // at.tp * at.d, max(1, at.g // at.tp) * at.d, at.f // at.tp
    first = min(at.tp, at.g)  # of ranks that share a head the first one is asked
    return {Q: {"from": qkv, "groups": at.tp, "slice": [[0, 0, q]]},
            K: {"from": qkv, "groups": first, "slice": [[0, q, q + kv]]},
            V: {"from": qkv, "groups": first, "slice": [[0, q + kv, q + 2 * kv]]},
            GATE: {"from": gate_up, "groups": at.tp, "slice": [[0, 0, f]]},
            UP: {"from": gate_up, "groups": at.tp, "slice": [[0, f, 2 * f]]}}[name]


def parts_of_megatron(at, name):
    m, q, f = "decoder.layers.{N}.linear_", at.nq // at.g * at.d, at.f // at.tp
    return {Q: {"from": m + "qkv.weight", "groups": at.g, "slice": [[0, 0, q]]},
            K: {"from": m + "qkv.weight", "groups": at.g, "slice": [[0, q, q + at.d]]},
            V: {"from": m + "qkv.weight", "groups": at.g, "slice": [[0, q + at.d, q + 2 * at.d]]},
            GATE: {"from": m + "fc1.weight", "groups": at.tp, "slice": [[0, 0, f]]},
            UP: {"from": m + "fc1.weight", "groups": at.tp, "slice": [[0, f, 2 * f]]}}[name]


def back_from_vllm(at):
    same = [O, DOWN] + [to for to, _ in NORMS]
    return ([{"to": x} | parts_of_vllm(at, x) for x in (Q, K, V, GATE, UP)] + whole_rules(zip(same, same))
            + [{"to": x, "from": x, "trim": {"dim": 0, "to": at.v}} for x in ("model.embed_tokens.weight", "lm_head.weight")])


def back_from_megatron(at):
    return ([{"to": x} | parts_of_megatron(at, x) for x in (Q, K, V, GATE, UP)]
            + whole_rules([(O, "decoder.layers.{N}.linear_proj.weight"), (DOWN, "decoder.layers.{N}.linear_fc2.weight"),
                           ("model.embed_tokens.weight", "embedding.weight"), ("lm_head.weight", "output.weight")] + NORMS))


def strategy_of(path, ranks):
    """What the ranks of a tree hold, as MindSpore says it: the axis along which their slices are joined."""
    layouts = {name: Layout([len(ranks)], [0 if a == cut_axis(name) else -1 for a in range(len(item.shape))])
               for name, item in ranks[0].items()}
    ckpt.write(path, ckpt.strategy_bytes(Strategy({0: layouts})))
    return "src_strategy=%s" % path


def cut_axis(name):
    """The axis that tp cuts: columns of what comes behind a cut of rows."""
    if "norm" in name:
        return None
    return 1 if any(x in name for x in ("o_proj", "down_proj", "linear_proj", "fc2", "embedding", "output")) else 0


def in_rank_directories(source, path, *options):
    """A shipped plan whose files stand at the root, for ranks that another mount can read."""
    plan = json.loads(emit_plan(source, path, *options).read_text())
    plan["files"]["path"] = "rank_{rank}/model.safetensors"
    path.write_text(json.dumps(plan))
    return "target=%s" % path


FUSED = {"vllm": (vllm, back_from_vllm), "megatron": (megatron, back_from_megatron)}


@pytest.mark.parametrize("tp", RANKS)
@pytest.mark.parametrize("heads", [(8, 2), (8, 8), (8, 4)], ids=str)
@pytest.mark.parametrize("style", FUSED)
def test_fused_and_back(style, heads, tp, mount, tmp_path):
    """Hugging Face -> fused on tp ranks, of which some share heads -> Hugging Face, the same file."""
    tensors, config = trees.llama(nq=heads[0], g=heads[1])
    trees.hugging_face(tmp_path / "start", tensors, config)
    at, (fused, back) = Station(tensors, config, tp), FUSED[style]
    if style == "vllm":
        target = in_rank_directories(tmp_path / "start", tmp_path / "to.json", "target=tp%d" % tp, "plan=llama.vllm")
    else:
        target = write_plan(tmp_path / "to.json", megatron_rules(), [("tp", tp)])
    middle = mount(tmp_path / "start", target)
    ranks = [fused(at, rank) for rank in range(tp)]
    assert len(files(middle.path)) == tp
    for rank in range(tp):
        equal(trees.read(middle.path / ("rank_%d/model.safetensors" % rank)), ranks[rank])
    known = strategy_of(tmp_path / "middle.ckpt", ranks)
    end = mount(middle.path, write_plan(tmp_path / "back.json", back(at)), known)
    assert (end.path / "rank_0/model.safetensors").read_bytes() == (tmp_path / "start/model.safetensors").read_bytes()


@pytest.mark.parametrize("tp", RANKS)
@pytest.mark.parametrize("style", FUSED)
def test_fused_to_fused(style, tp, mount, tmp_path):
    """Megatron's ranks or vLLM's -> vLLM's on more or fewer of them, as if from Hugging Face itself."""
    tensors, config = trees.llama()
    trees.hugging_face(tmp_path / "start", tensors, config)
    at, (fused, _) = Station(tensors, config, tp), FUSED[style]
    parts = parts_of_vllm if style == "vllm" else parts_of_megatron
    if style == "vllm":
        target = in_rank_directories(tmp_path / "start", tmp_path / "to.json", "target=tp%d" % tp, "plan=llama.vllm")
    else:
        target = write_plan(tmp_path / "to.json", megatron_rules(), [("tp", tp)])
    middle = mount(tmp_path / "start", target)
    known = strategy_of(tmp_path / "middle.ckpt", [fused(at, rank) for rank in range(tp)])
    shared = {"unit": config["head_dim"], "few": "replicate"}
    rules = [{"to": "model.layers.{N}.self_attn.qkv_proj.weight", "concat": {"dim": 0, "parts": [
                parts(at, Q) | cut(0, unit=config["head_dim"]), parts(at, K) | cut(0, **shared), parts(at, V) | cut(0, **shared)]}},
             {"to": "model.layers.{N}.mlp.gate_up_proj.weight", "concat": {"dim": 0, "parts": [
                 parts(at, GATE) | cut(0), parts(at, UP) | cut(0)]}}]
    for ranks in RANKS:
        end = mount(middle.path, known, write_plan(
            tmp_path / "end.json", rules, [("tp", ranks)], strict={"unmatched": "drop"}))
        for rank in range(ranks):
            want = vllm(Station(tensors, config, ranks), rank)
            equal(trees.read(end.path / ("rank_%d/model.safetensors" % rank)),
                  {n: t for n, t in want.items() if "qkv" in n or "gate_up" in n})
        end.unmount()


def test_labels_at_their_places(mount, tmp_path):
    """A second look without numpy's concatenate: 8 ranks, 2 key heads; the rows that rank 5 must have."""
    tensors, config = trees.llama()
    trees.hugging_face(tmp_path / "start", tensors, config)
    order, base = list(tensors), "model.layers.1."
    for options, query, keys in ((["target=tp8", "layout=vllm"], range(20, 24), range(4, 8)),
                                 (["target=tp4", "layout=vllm"], range(8, 16), range(0, 4))):
        mounted, rank = mount(tmp_path / "start", *options), 5 if "8" in options[0] else 1
        got = ckpt.read_safe(mounted.path / ("model-rank-%d-part-0.safetensors" % rank))
        found = [(order[int(row[0]) >> 20], int(row[0]) >> 10 & 1023, int(row[0]) & 1023)
                 for row in got[base + "self_attn.qkv_proj.weight"].data]
        assert found == [(base + "self_attn.%s_proj.weight" % x, row, 0)
                         for x, rows in (("q", query), ("k", keys), ("v", keys)) for row in rows]
        for row in got[base + "self_attn.qkv_proj.weight"].data:
            assert [int(x) & 1023 for x in row] == list(range(16)) and len({int(x) >> 10 for x in row}) == 1


# ----------------------------------------------------------------------------------- experts

@pytest.mark.parametrize("ep, tp", [(1, 1), (2, 2), (4, 1), (1, 4), (8, 2)])
def test_experts_stacked_and_back(ep, tp, mount, tmp_path):
    """Experts of Mixtral -> vLLM's stacked w13 and w2 on ep x tp ranks -> one by one, the same file."""
    tensors, config = trees.llama(layers=2, experts=8, v=64)
    trees.hugging_face(tmp_path / "start", tensors, config)
    middle = mount(tmp_path / "start", in_rank_directories(
        tmp_path / "start", tmp_path / "to.json", "target=tp%d.ep%d" % (tp, ep), "plan=mixtral.vllm"))
    at, f, layouts = Station(tensors, config, tp), config["intermediate_size"] // tp, {}
    for rank in range(ep * tp):
        got = trees.read(middle.path / ("rank_%d/model.safetensors" % rank))
        e, t, base = rank // tp, rank % tp, "model.layers.%d.block_sparse_moe.experts."
        for n in range(2):
            mine = range(e * 8 // ep, (e + 1) * 8 // ep)

            def part(x, axis):
                return [at.part(base % n + "%d.%s.weight" % (i, x), t, axis) for i in mine]
            w13 = np.stack([np.concatenate(pair) for pair in zip(part("w1", 0), part("w3", 0))])
            assert ckpt.same(got[base % n + "w13_weight"], ckpt.Tensor("Int32", w13))
            assert ckpt.same(got[base % n + "w2_weight"], ckpt.Tensor("Int32", np.stack(part("w2", 1))))
    for name, item in got.items():
        of_tp = cut_axis(name) if ".gate." not in name else None
        cuts = [0 if a == of_tp else -1 for a in range(len(item.shape))]
        if "experts" in name:
            cuts = [1, 0, -1] if "w13" in name else [1, -1, 0]
        layouts[name] = Layout([ep, tp], cuts)
    ckpt.write(tmp_path / "middle.ckpt", ckpt.strategy_bytes(Strategy({0: layouts})))
    moe, same = "model.layers.{N}.block_sparse_moe.", [O, "model.norm.weight", "lm_head.weight", "model.embed_tokens.weight",
                                                       "model.layers.{N}.{x}_layernorm.weight"]
    apart = {"stack": {"dim": 0, "over": "E", "split": True}}
    rules = ([{"to": x} | parts_of_vllm(at, x) for x in (Q, K, V)] + whole_rules(zip(same, same))
             + whole_rules([(moe + "gate.weight", moe + "gate.weight")])
             + [{"to": moe + "experts.{E}.%s.weight" % x, "from": moe + "experts.w13_weight", "groups": tp,
                 "slice": [[0, i * f, (i + 1) * f]]} | apart for i, x in enumerate(("w1", "w3"))]
             + [{"to": moe + "experts.{E}.w2.weight", "from": moe + "experts.w2_weight"} | apart])
    back = write_plan(tmp_path / "back.json", rules, [("ep", 1)], ranges={"E": {"axis": "ep", "count": 8}})
    end = mount(middle.path, back, "src_strategy=%s" % (tmp_path / "middle.ckpt"))
    assert (end.path / "rank_0/model.safetensors").read_bytes() == (tmp_path / "start/model.safetensors").read_bytes()


# ------------------------------------------------------------- every source in every shape

PARAMS = ckpt.model(layers=2, hidden=16, vocab=32)
WHOLE = ckpt.whole_tensors(PARAMS)
FORMS = [("rank", "ckpt"), ("rank", "safetensors"), ("rank", "pdparams"), ("hf", "safetensors"),
         ("unified", "safetensors"), ("vllm", "safetensors")]
SOURCES = ["mindspore-ckpt", "mindspore-safetensors", "mindspore-dedup", "file-ckpt", "file-safetensors",
           "hugging-face-1", "hugging-face-3", "unified", "paddle", "pdparams"]


def build(kind, root):
    """A source of this kind; (path, entries without layout that it has beside WHOLE)."""
    counters, name, more = ckpt.counters(), *(kind.split("-") + [""])[:2]
    if name == "mindspore":
        strategy = ckpt.place(PARAMS, dp=2, mp=2, pp=2, opt=-1)
        ckpt.write_strategies(root, strategy)
        ckpt.write_tree(root, strategy, WHOLE, lambda rank: counters, "ckpt" if more == "dedup" else more, more == "dedup")
    elif name == "file":
        root = root / ("whole." + more)
        ckpt.write(root, ckpt.file_bytes(WHOLE | counters, more))
    elif kind.startswith("hugging-face"):
        trees.hugging_face(root, WHOLE | counters, files=int(kind[-1]))
    elif name == "unified":
        trees.unified(root, WHOLE, counters)
    elif name == "paddle":
        cuts = {p.name: next(iter(p.cut)) for p in PARAMS if p.cut}
        trees.paddle(root, WHOLE | counters, cuts)
    else:
        root = root / "model_state.pdparams"
        trees.pdparams(root, WHOLE | counters)
    return root, counters


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_in_every_shape(kind, mount, tmp_path):
    """Whole, in each container and layout: the same tensors, whatever the source was."""
    source, counters = build(kind, tmp_path / "start")
    for layout, container in FORMS:
        mounted = mount(source, "target=full", "layout=" + layout, "format=" + container)
        assert files(mounted.path), mounted
        equal(joined(mounted.path), WHOLE | counters)
        mounted.unmount()
    for layout in ("hf", "unified", "vllm"):
        for container in ("ckpt", "pdparams"):
            done = program("plan", source, "-o", "target=full,layout=%s,format=%s" % (layout, container))
            assert done.code == 2 and "format=safetensors" in done.text, done


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_under_a_strategy(kind, mount, tmp_path):
    """Cut for eight ranks, in each container, and by vLLM's file names: what the layouts say, and back again."""
    source, counters = build(kind, tmp_path / "start")
    strategy = ckpt.place(PARAMS, dp=2, mp=2, pp=2)
    to, _ = ckpt.write_strategies(tmp_path / "to", strategy)
    for layout, container in FORMS[:3] + FORMS[-1:]:
        mounted = mount(source, "target=%s" % to, "layout=" + layout, "format=" + container)
        found = files(mounted.path)
        assert len(found) == 8
        for rank, path in enumerate(sorted(found.values())):
            got = {n: t for n, t in trees.read(path).items() if n not in counters}
            equal(got, {n: l.cut(WHOLE[n], rank % 4) for n, l in strategy.stages[rank // 4].items()})
        if layout == "rank" and container != "pdparams":
            end = mount(mounted.path, "target=full", "src_strategy=%s" % to)
            equal({n: t for n, t in joined(end.path).items() if n not in counters}, WHOLE)
            end.unmount()
        mounted.unmount()


@pytest.mark.parametrize("kind", SOURCES)
def test_pdparams_of_every_source_is_a_source(kind, mount, tmp_path):
    """Paddle's file through a mount, and that file as the source of the next."""
    source, counters = build(kind, tmp_path / "start")
    one = mount(source, "target=full", "format=pdparams")
    (path,) = files(one.path).values()
    end = mount(path, "target=full", "format=safetensors")
    equal(joined(end.path), WHOLE | counters)


@pytest.mark.parametrize("form, message", [("layout=vllm", "stands in model-rank-0-part-0.safetensors and in"),
                                           ("format=pdparams", "no rank directory holds a checkpoint file")])
def test_slices_that_no_mount_can_join_are_refused(form, message, mount, tmp_path):
    """Never taken for whole tensors, with a strategy or without."""
    source, _ = build("mindspore-ckpt", tmp_path / "start")
    known = emit_strategy(source, tmp_path / "tp2.ckpt", "target=tp2")
    below = mount(source, "target=tp2", form)
    for more in ([], ["-o", known]):
        done = program("plan", below.path, "--target", "full", *more)
        assert done.code in (2, 3) and not done.out and (message in done.text or "are whole" in done.text), done
