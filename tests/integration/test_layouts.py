"""Trees at the root: layout=hf, unified and vllm, and what plans say of their files.

Every file is held against bytes made here by the rules of the writers that are imitated
(huggingface_hub's shards, transformers' index, MindSpore's unified_safetensors), written down a
second time. Then the trees serve as sources of other mounts.
"""
import json
import math
import os
import random
import struct
from types import SimpleNamespace

import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import QUICK, SEED, program
from reading import check

INDEX = "model.safetensors.index.json"
COMPANIONS = {"config.json": b'{"model_type": "llama", "hidden_size": 8}\n', "tokenizer.json": b"{}",
              "generation_config.json": b"", "chat_template.jinja": b"{{ messages }}\n" * 5000}


# --------------------------------------------------------------------- rules, a second time

def shards(entries, limit):
    """huggingface_hub: a tensor over the limit stands alone and does not end the shard that grows."""
    done, grows, held = [], {}, 0
    for name, item in entries.items():
        size = len(item.raw())
        if size > limit:
            done.append({name: item})
            continue
        if held + size > limit:
            done.append(grows)
            grows, held = {}, 0
        grows[name] = item
        held += size
    return done + ([grows] if grows else [])


def hf(entries, limit):
    """{file: bytes} of a tree of transformers."""
    parts = shards(entries, limit) or [{}]
    pt = {"format": "pt"}
    if len(parts) == 1:
        return {"model.safetensors": ckpt.safe_bytes(parts[0], pt)}
    names = ["model-%05d-of-%05d.safetensors" % (i + 1, len(parts)) for i in range(len(parts))]
    weight_map = {n: names[i] for i, part in enumerate(parts) for n in part}
    index = {"metadata": {"total_size": sum(len(t.raw()) for t in entries.values())}, "weight_map": weight_map}
    files = {name: ckpt.safe_bytes(part, pt) for name, part in zip(names, parts)}
    return files | {INDEX: (json.dumps(index, indent=2, sort_keys=True) + "\n").encode()}


def elements(shape):
    return math.prod(shape)


def unified(tree, entries, limit=3 << 30):
    """{file: bytes} of unified_safetensors; four bytes an element, whatever the type."""
    stored = {n: t for n, t in entries.items() if n in tree.names() and not n.startswith("accu_grads")}
    size = {n: 4 * elements(t.shape) for n, t in stored.items()}
    count = min(-(-sum(size.values()) // limit), len(stored))
    parts, load = [{} for _ in range(count)], [0] * count
    for name in sorted(stored, key=lambda n: (-size[n], n.encode())):
        low = load.index(min(load))
        parts[low][name] = stored[name]
        load[low] += size[name]
    total = sum(4 * elements(t.shape) for rank in tree.files for n, t in tree.rank(rank).items() if n in stored)
    index = {"metadata": {"total_size": total},
             "weight_map": {n: "part%d.safetensors" % i for i, part in enumerate(parts) for n in part}}
    files = {"part%d.safetensors" % i: ckpt.safe_bytes(part) for i, part in enumerate(parts)}
    files["param_name_map.json"] = json.dumps(index, indent=4).encode()
    hyper = {n: t for n, t in entries.items() if n not in tree.names() and not isinstance(t, str)}
    return files | ({"hyper_param.safetensors": ckpt.safe_bytes(hyper)} if hyper else {})


def tensors_only(entries):
    return {n: t for n, t in entries.items() if not isinstance(t, str)}


# ---------------------------------------------------------------------------------- trees

def mindspore_tree(root, texts=False, opt=-1, container="ckpt", **mesh):
    params = ckpt.model(shared=True)
    strategy = ckpt.place(params, opt=opt, **mesh)
    ckpt.write_strategies(root, strategy)
    ckpt.write_tree(root, strategy, ckpt.whole_tensors(params), lambda rank: ckpt.counters(1, texts), container)
    return ckpt.Tree(root, strategy)


def hf_tree(root):
    root.mkdir()
    rnd = random.Random("hf")
    entries = {n: ckpt.values(1, n, k, s) for n, k, s in (
        ("model.embed.weight", "BFloat16", (32, 8)), ("model.layers.0.q.weight", "BFloat16", (16, 8)),
        ("model.layers.1.q.weight", "Float32", (16, 8)), ("model.norm.weight", "Float32", (8,)),
        ("empty", "Float16", (0, 4)), ("lm_head.weight", "BFloat16", (32, 8)), ("freq", "Float64", (4,)))}
    (root / "model.safetensors").write_bytes(ckpt.safe_bytes(entries, {"format": "pt"}))
    for name, data in COMPANIONS.items():
        (root / name).write_bytes(data)
    (root / "README.md").write_text("rnd %d" % rnd.random())
    return entries


def check_files(mounted, want, rnd):
    """The root holds these files, sorted as their inodes are, and nothing else."""
    assert sorted(os.listdir(mounted.path)) == sorted(want)
    for number, name in enumerate(sorted(want, key=str.encode)):
        path = mounted.path / name
        assert os.stat(path).st_ino == 16 + number
        if want[name]:
            check(path, want[name], rnd, 6)
        else:
            assert path.read_bytes() == b""


def full(tree):
    return tensors_only(ckpt.expected(tree, None, 0))


# ------------------------------------------------------------------------------------ hf

@pytest.mark.parametrize("limit", [1, 700, 4096, 20000, 100000, 10**9])
@pytest.mark.parametrize("texts", [False, True])
def test_hf(limit, texts, mount, tmp_path):
    tree = mindspore_tree(tmp_path / "src", texts, dp=2, mp=2, pp=2)
    mounted = mount(tmp_path / "src", "target=full", "layout=hf", "max_file=%d" % limit)
    want = hf(full(tree), limit)
    assert (INDEX in want) == (limit < 10**9)
    check_files(mounted, want, random.Random(SEED))
    if INDEX in want:  # both ways: each name stands in the file that the index says, and in no other
        index = json.loads((mounted.path / INDEX).read_text())
        found = {n: f for f in os.listdir(mounted.path) if f != INDEX for n in ckpt.read_safe(mounted.path / f)}
        assert found == index["weight_map"]


def test_hf_is_the_full_target_in_parts(mount, tmp_path):
    mindspore_tree(tmp_path / "src", dp=2, mp=2)
    parts = mount(tmp_path / "src", "target=full", "layout=hf", "max_file=30K")
    whole = mount(tmp_path / "src", "target=full", "format=safetensors")
    joined = {}
    for name in os.listdir(parts.path):
        if name != INDEX:
            joined |= ckpt.read_safe(parts.path / name)
    entries = ckpt.read_file(whole.file(0, "safetensors"))
    assert joined.keys() == entries.keys() and all(ckpt.same(joined[n], entries[n]) for n in joined)


def test_hf_default_limit_and_metadata(tmp_path):
    """5 GB, powers of ten; what MindSpore wrote is no longer called so."""
    tree = mindspore_tree(tmp_path / "src", mp=2)
    done = program("cat", tmp_path / "src", "-o", "target=full,layout=hf", "model.safetensors")
    assert done.out == ckpt.safe_bytes(full(tree), {"format": "pt"})
    listed = json.loads(program("ls", "--json", tmp_path / "src", "-o", "target=full,layout=hf").out)
    assert [(e["path"], e["type"], e["inode"]) for e in listed["entries"]] == [("model.safetensors", "file", 16)]


def test_hf_names_beyond_ascii(mount, tmp_path):
    """As Python's json writes them, sorted by code point."""
    names = ["é", "层.0", "\U0001f600", "a\"b\\c", "tab\there", "\x7f", "~", "z", "ﬀ"]
    entries = {n: ckpt.values(1, n, "Float32", (4,)) for n in names}
    path = tmp_path / "x.ckpt"
    ckpt.write(path, ckpt.ckpt_bytes(entries))
    mounted = mount(path, "target=full", "layout=hf", "max_file=32")
    check_files(mounted, hf(entries, 32), random.Random(SEED))


def test_companions_come_along(mount, tmp_path):
    entries = hf_tree(tmp_path / "src")
    rnd = random.Random(SEED)
    order = sorted(entries, key=lambda n: (-ckpt.SAFE_ORDER.index(ckpt.TO_SAFE[entries[n].kind]), n))
    mounted = mount(tmp_path / "src", "target=full", "layout=hf", "max_file=600")
    want = hf({n: entries[n] for n in order}, 600) | COMPANIONS
    check_files(mounted, want, rnd)
    assert sorted(os.listxattr(mounted.path / "config.json")) == ["user.reshardfs.sources", "user.reshardfs.target"]
    assert os.getxattr(mounted.path / "config.json", "user.reshardfs.sources") == b"config.json"
    assert os.getxattr(mounted.path / next(iter(want)), "user.reshardfs.rank") == b"0"
    assert os.statvfs(mounted.path).f_files == 1 + len(want)


def test_a_companion_that_grows_is_stale(mount, tmp_path):
    hf_tree(tmp_path / "src")
    mounted = mount(tmp_path / "src", "target=full", "layout=hf")
    (tmp_path / "src/config.json").write_bytes(b"another one, and longer than before, by some bytes\n")
    with pytest.raises(OSError):
        (mounted.path / "config.json").read_bytes()
    assert (mounted.path / "tokenizer.json").read_bytes() == b"{}"


def test_an_index_is_as_closed_as_the_files(mount, tmp_path):
    mindspore_tree(tmp_path / "src", mp=2)
    closed = tmp_path / "src/rank_1/checkpoint_1-1_2.ckpt"
    os.chmod(closed, 0o600)
    mounted = mount(tmp_path / "src", "target=full", "layout=hf", "max_file=1K")
    for name in os.listdir(mounted.path):
        if name == INDEX:
            assert os.stat(mounted.path / name).st_mode & 0o777 == 0o400


# ------------------------------------------------------------------------------- unified

@pytest.mark.parametrize("limit", [1, 5000, 60000, None])
@pytest.mark.parametrize("texts", [False, True])
def test_unified(limit, texts, mount, tmp_path):
    tree = mindspore_tree(tmp_path / "src", texts, dp=2, mp=2, pp=2)
    more = ["max_file=%d" % limit] if limit else []
    mounted = mount(tmp_path / "src", "target=full", "layout=unified", *more)
    check_files(mounted, unified(tree, full(tree), limit or 3 << 30), random.Random(SEED))


def test_unified_counts_uneven_and_replicated_slices(mount, tmp_path):
    layouts = {"split": Layout([4], [0, -1], split=[5, 20, 0, 23]), "field": Layout([4], [0, -1], field=3),
               "shard": Layout([2, 2], [-1, 0], -1), "norm": Layout([4], [-1]), "scalar": Layout([4], [])}
    whole = {n: ckpt.values(1, n, "Float16", s) for n, s in (
        ("split", (48, 6)), ("field", (48, 6)), ("shard", (48, 6)), ("norm", (7,)), ("scalar", ()))}
    strategy = Strategy({0: layouts})
    ckpt.write_strategies(tmp_path / "src", strategy)
    ckpt.write_tree(tmp_path / "src", strategy, whole, None)
    tree = ckpt.Tree(tmp_path / "src", strategy)
    mounted = mount(tmp_path / "src", "target=full", "layout=unified", "max_file=1500")
    want = unified(tree, full(tree), 1500)
    assert "hyper_param.safetensors" not in want
    check_files(mounted, want, random.Random(SEED))


def test_gradients_in_accumulation_are_left_out(tmp_path):
    layouts = {n: Layout([2], [0, -1]) for n in ("w", "accu_grads.w", "accu_grads.v")}
    whole = {n: ckpt.values(1, n, "Float32", (4, 2)) for n in layouts}
    ckpt.write_strategies(tmp_path / "src", Strategy({0: layouts}))
    ckpt.write_tree(tmp_path / "src", Strategy({0: layouts}), whole, lambda rank: ckpt.counters())
    done = program("plan", tmp_path / "src", "-o", "target=full,layout=unified")
    assert done.code == 0 and "'accu_grads.w' and 1 more are left out" in done.out.decode(), done
    done = program("cat", tmp_path / "src", "-o", "target=full,layout=unified", "param_name_map.json")
    assert json.loads(done.out)["weight_map"] == {"w": "part0.safetensors"}


def draw(rnd):
    """A tree for the generator of the oracle."""
    return SimpleNamespace(layers=4, hidden=rnd.choice([16, 32]), ffn=64, vocab=96, seed=rnd.randrange(1000),
                           dtype=rnd.choice(["BFloat16", "Float32", "Int8", "Int4"]), shared=rnd.random() < 0.4,
                           format=rnd.choice(["ckpt", "safetensors"]), strings=False, keep_ones=rnd.random() < 0.3,
                           strategy_format="ckpt", dp=rnd.choice([1, 2]), mp=rnd.choice([1, 2, 4]),
                           pp=rnd.choice([1, 2]), opt=rnd.choice([0, 0, -1, 2]), dedup=False, accu=False)


@pytest.mark.parametrize("number", range(4 if QUICK else 20))
def test_unified_against_the_oracle(number, mount, oracle, tmp_path):
    judge, generator = oracle
    rnd = random.Random("layouts/%d/%d" % (SEED, number))
    source, limit = draw(rnd), rnd.choice([3000, 20000, 10**6])
    print(source, limit)
    generator.generate(source, str(tmp_path / "tree"))
    judge.unify(str(tmp_path / "tree"), judge.read_strategy(str(tmp_path / "tree/merged.ckpt")),
                str(tmp_path / "want"), part_bytes=limit)
    want = {p.name: p.read_bytes() for p in (tmp_path / "want").iterdir()}
    if source.dtype == "Int4":  # its place among the metadata keys is free
        want = {n: d for n, d in want.items() if n.endswith(".json")}
    mounted = mount(tmp_path / "tree", "target=full", "layout=unified", "max_file=%d" % limit,
                    "src_strategy=%s" % (tmp_path / "tree/merged.ckpt"))
    for name, data in want.items():
        assert (mounted.path / name).read_bytes() == data, name
    assert sorted(os.listdir(mounted.path)) == sorted(p.name for p in (tmp_path / "want").iterdir())


# ---------------------------------------------------------------------------------- vllm

@pytest.mark.parametrize("limit", [None, 4000])
def test_vllm(limit, mount, tmp_path):
    tree = mindspore_tree(tmp_path / "src", dp=2, mp=2)
    target = ckpt.place(ckpt.model(shared=True), mp=4)
    to, _ = ckpt.write_strategies(tmp_path / "dst", target)
    more = ["max_file=%d" % limit] if limit else []
    mounted = mount(tmp_path / "src", "target=%s" % to, "layout=vllm", *more)
    want = {}
    for rank in range(4):
        parts = shards(tensors_only(ckpt.expected(tree, target, rank)), limit or 10**12)
        assert (len(parts) > 1) == bool(limit)
        for i, part in enumerate(parts):
            want["model-rank-%d-part-%d.safetensors" % (rank, i)] = ckpt.safe_bytes(part, {"format": "pt"})
    check_files(mounted, want, random.Random(SEED))


def test_vllm_shows_some_ranks(tmp_path):
    mindspore_tree(tmp_path / "src", dp=2, mp=2)
    done = program("ls", tmp_path / "src", "-o", "target=same,layout=vllm,ranks=1+3")
    assert [line.split()[-1] for line in done.out.decode().splitlines()] == [
        "model-rank-%d-part-0.safetensors" % r for r in (1, 3)], done


def test_vllm_takes_companions_along(mount, tmp_path):
    hf_tree(tmp_path / "src")
    mounted = mount(tmp_path / "src", "target=full", "layout=vllm")
    assert sorted(os.listdir(mounted.path)) == sorted([*COMPANIONS, "model-rank-0-part-0.safetensors"])
    for name, data in COMPANIONS.items():
        assert (mounted.path / name).read_bytes() == data


LLAMA = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
         "vocab_size": 64, "num_hidden_layers": 2, "model_type": "llama", "tie_word_embeddings": False}


def llama(root):
    """A small model of a known type, as transformers saves it."""
    shapes = {"model.embed_tokens.weight": (64, 16), "model.norm.weight": (16,), "lm_head.weight": (64, 16)}
    for i in range(2):
        for name, shape in (("self_attn.q_proj", (16, 16)), ("self_attn.k_proj", (8, 16)), ("self_attn.v_proj", (8, 16)),
                            ("self_attn.o_proj", (16, 16)), ("mlp.gate_proj", (32, 16)), ("mlp.up_proj", (32, 16)),
                            ("mlp.down_proj", (16, 32)), ("input_layernorm", (16,)), ("post_attention_layernorm", (16,))):
            shapes["model.layers.%d.%s.weight" % (i, name)] = shape
    root.mkdir()
    entries = {n: ckpt.values(1, n, "BFloat16", s) for n, s in shapes.items()}
    (root / "model.safetensors").write_bytes(ckpt.safe_bytes(entries, {"format": "pt"}))
    (root / "config.json").write_text(json.dumps(LLAMA))
    return entries


def test_vllm_of_a_known_model(mount, tmp_path):
    """Fused as vLLM names them; a rank each of tp."""
    entries = llama(tmp_path / "src")
    mounted = mount(tmp_path / "src", "target=tp2", "layout=vllm")
    assert sorted(os.listdir(mounted.path)) == ["config.json"] + [
        "model-rank-%d-part-0.safetensors" % r for r in (0, 1)]
    for rank in (0, 1):
        def rows(name):
            data = entries[name].data
            return data[rank * data.shape[0] // 2:(rank + 1) * data.shape[0] // 2]

        got = ckpt.read_safe(mounted.path / ("model-rank-%d-part-0.safetensors" % rank))
        for i in (0, 1):
            base = "model.layers.%d." % i
            qkv = b"".join(rows(base + "self_attn.%s_proj.weight" % c).tobytes() for c in "qkv")
            assert got[base + "self_attn.qkv_proj.weight"].raw() == qkv
            gate_up = b"".join(rows(base + "mlp.%s_proj.weight" % c).tobytes() for c in ("gate", "up"))
            assert got[base + "mlp.gate_up_proj.weight"].raw() == gate_up
        assert got["lm_head.weight"].raw() == rows("lm_head.weight").tobytes()
        assert ckpt.same(got["model.norm.weight"], entries["model.norm.weight"])


def test_names_of_files_that_shipped_plans_make(tmp_path):
    llama(tmp_path / "src")
    for options, name in (("", "model.safetensors"), (",format=ckpt", "model.ckpt"),
                          (",format=pdparams", "model_state.pdparams"), (",name=w-{rank}", "w-1")):
        done = program("ls", tmp_path / "src", "-o", "target=tp2" + options)
        assert done.out.decode().split()[-1] == "rank_1/" + name, done


# ------------------------------------------------------------------- as the source of others

@pytest.mark.parametrize("layout", ["hf", "unified"])
def test_a_tree_as_the_source_of_another(layout, mount, tmp_path):
    """The way through whole files ends where the direct one does."""
    mindspore_tree(tmp_path / "src", dp=2, mp=2, pp=2)
    target = ckpt.place(ckpt.model(shared=True), mp=4)
    to, _ = ckpt.write_strategies(tmp_path / "dst", target)
    first = mount(tmp_path / "src", "target=full", "layout=" + layout, "max_file=30K")
    direct = mount(tmp_path / "src", "target=%s" % to, "format=safetensors")
    second = mount(first.path, "target=%s" % to, "format=safetensors", "default=replicate")
    for rank in range(4):
        want = ckpt.read_file(direct.file(rank, "safetensors"))
        got = ckpt.read_file(next((second.path / ("rank_%d" % rank)).iterdir()))
        assert want.keys() == got.keys()
        for name in want:
            assert ckpt.same(got[name], want[name]), (rank, name)
    second.unmount()


# ------------------------------------------------------------------------------ plan files

def plan(root, rules=None, axes=(("tp", 2),), **files):
    text = {"reshard_plan": 1, "mesh": {"axes": [{"name": n, "size": s} for n, s in axes]},
            "files": {"format": "safetensors", **files},
            "rules": rules or [{"to": "{X}", "from": "{X}", "cut": [{"dim": 0, "axis": "tp"}]}]}
    path = root / "plan.json"
    path.write_text(json.dumps(text))
    return "target=%s" % path


@pytest.fixture
def few(tmp_path):
    """Six tensors of 16 rows in one file."""
    entries = {n: ckpt.values(1, n, "Float32", (16, 2 + i)) for i, n in enumerate("abcdef")}
    path = tmp_path / "few.safetensors"
    path.write_bytes(ckpt.safe_bytes(entries, {"format": "pt"}))
    return SimpleNamespace(path=path, entries=entries)


def halves(entries, tp, n=2):
    out = {}
    for name, item in entries.items():
        rows = item.shape[0] // n
        out[name] = ckpt.Tensor(item.kind, item.data[tp * rows:(tp + 1) * rows])
    return out


def test_paths_at_the_root_are_shared(few, mount, tmp_path):
    """dp replicates: its ranks share the files of tp, and explain finds them."""
    target = plan(tmp_path, axes=(("dp", 3), ("tp", 2)), path="model-{tp}.safetensors")
    mounted = mount(few.path, target)
    want = {"model-%d.safetensors" % tp: ckpt.safe_bytes(halves(few.entries, tp), {"format": "pt"}) for tp in (0, 1)}
    check_files(mounted, want, random.Random(SEED))
    done = json.loads(program("explain", "--json", few.path, 5, "c", "-o", target).out)
    assert done["file"] == "model-1.safetensors" and done["rank"] == 5


def test_ranks_that_share_must_agree(few, tmp_path):
    done = program("ls", few.path, "-o", plan(tmp_path, path="model.safetensors"))
    assert done.code == 2 and "hint: " in done.text, done


def test_parts_in_rank_directories(few, mount, tmp_path):
    """max_bytes and an index beside the parts; inodes count on in the directory."""
    target = plan(tmp_path, path="rank_{rank}/model.safetensors", max_bytes=200, index=INDEX)
    mounted = mount(few.path, target)
    assert sorted(os.listdir(mounted.path)) == ["rank_0", "rank_1"]
    for rank in (0, 1):
        want = hf(halves(few.entries, rank), 200)
        folder = mounted.path / ("rank_%d" % rank)
        assert sorted(os.listdir(folder)) == sorted(want) and len(want) > 3
        for number, name in enumerate(sorted(want)):
            assert os.stat(folder / name).st_ino == ((rank + 1) << 20) + 1 + number
            check(folder / name, want[name], random.Random(SEED), 4)


def test_an_index_at_the_root(few, mount, tmp_path):
    """Whole tensors dealt out over ranks have one index; slices cannot have one."""
    rules = [{"to": n, "from": n, "on": {"tp": [i % 2]}} for i, n in enumerate("abcdef")]
    target = plan(tmp_path, rules, path="part-{tp}.safetensors", index="index.json")
    mounted = mount(few.path, target)
    index = json.loads((mounted.path / "index.json").read_text())
    assert index["weight_map"] == {n: "part-%d.safetensors" % (i % 2) for i, n in enumerate("abcdef")}
    assert index["metadata"]["total_size"] == sum(len(t.raw()) for t in few.entries.values())
    mounted.unmount()
    done = program("ls", few.path, "-o", plan(tmp_path, path="part-{tp}.safetensors", index="index.json"))
    assert done.code == 2 and "'a'" in done.text, done


@pytest.mark.parametrize("align", [8, 64, 256, 4096])
def test_align(align, few, tmp_path):
    done = program("cat", few.path, "-o", plan(tmp_path, path="rank_{rank}/x.safetensors", align=align),
                   "rank_1/x.safetensors")
    assert done.code == 0, done
    header = struct.unpack("<Q", done.out[:8])[0]
    assert (8 + header) % align == 0 and header < 8 + align + len(ckpt.safe_bytes(few.entries))
    plain = ckpt.safe_bytes(halves(few.entries, 1), {"format": "pt"})
    assert done.out[8:8 + header].rstrip(b" ") == plain[8:8 + struct.unpack("<Q", plain[:8])[0]].rstrip(b" ")
    assert done.out[8 + header:] == plain[8 + struct.unpack("<Q", plain[:8])[0]:]


def test_metadata_of_a_plan(few, tmp_path):
    done = program("cat", few.path, "-o", plan(tmp_path, path="rank_{rank}/x.safetensors",
                                               metadata={"z": "last", "format": "pt"}), "rank_0/x.safetensors")
    assert done.out == ckpt.safe_bytes(halves(few.entries, 0), {"format": "pt", "z": "last"}), done


@pytest.mark.parametrize("files, word", [
    ({"path": "{zp}.safetensors"}, "zp"), ({"path": "a/b/{tp}.safetensors"}, "rank_{rank}"),
    ({"path": "tp_{tp}/x.safetensors"}, "rank_{rank}"), ({"path": "/etc/x{tp}"}, "path"),
    ({"path": "../x-{tp}"}, "path"), ({"path": "rank_{rank}/.."}, "rank_{rank}"),
    ({"path": "rank_{rank}/x", "align": 12}, "align"), ({"path": "rank_{rank}/x", "align": 4}, "align"),
    ({"path": "rank_{rank}/x", "align": 1 << 30}, "align"),
    ({"path": "rank_{rank}/x.ckpt", "format": "ckpt", "index": "i.json"}, "index"),
    ({"path": "rank_{rank}/x", "index": "x"}, "'x'"), ({"path": ".reshardfs{tp}"}, "hidden"),
], ids=str)
def test_files_that_cannot_be(files, word, few, tmp_path):
    done = program("ls", few.path, "-o", plan(tmp_path, **files))
    assert done.code == 2 and word in done.text, done


# ------------------------------------------------------------------------------- refusals

@pytest.mark.parametrize("options, words", [
    ("target=same,layout=hf", "target=full"), ("target=same,layout=unified", "target=full"),
    ("target=full,layout=hf,format=ckpt", "format=safetensors"), ("target=full,layout=unified,format=pdparams", "format"),
    ("target=same,layout=vllm,format=ckpt", "format=safetensors"), ("target=full,layout=hf,ranks=0", "ranks="),
    ("target=full,layout=unified,ranks=0", "ranks="), ("target=full,layout=hf,name=x", "name="),
    ("target=full,max_file=1G", "max_file="), ("target=full,layout=shards", "layout"),
    ("target=full,layout=hf,max_file=5X", "max_file"),
])
@pytest.mark.parametrize("verb", ["plan", "ls"])
def test_options_that_do_not_fit(verb, options, words, tmp_path):
    mindspore_tree(tmp_path / "src", mp=2)
    done = program(verb, tmp_path / "src", "-o", options)
    assert done.code == 2 and words in done.text and not done.out, done


def test_verbs_know_files_at_the_root(tmp_path):
    tree = mindspore_tree(tmp_path / "src", dp=2, mp=2)
    options = ("-o", "target=full,layout=hf,max_file=20K")
    want = hf(full(tree), 20000)
    done = json.loads(program("plan", "--json", tmp_path / "src", *options).out)
    assert {r["file"]: r["bytes"] for r in done["ranks"]} == {n: len(d) for n, d in want.items()}
    assert [r["file"] for r in done["ranks"] if r["rank"] is None] == [INDEX]
    text = program("plan", tmp_path / "src", *options)
    assert text.code == 0 and "safe_open(\"MOUNTPOINT/model-00001" in text.out.decode(), text
    found = json.loads(program("explain", "--json", tmp_path / "src", 0, "net.head.weight", *options).out)
    assert found["file"] == json.loads(want[INDEX])["weight_map"]["net.head.weight"]
    done = program("explain", tmp_path / "src", 0, "net.head.wait", *options)
    assert done.code == 2 and "did you mean 'net.head.weight'" in done.text, done
    for name in want:
        assert program("cat", tmp_path / "src", *options, name).out == want[name]
    one = program("ls", tmp_path / "src", *options, INDEX)
    assert one.out.decode().split()[-1] == INDEX
