"""One model as a checkpoint of every kind that can be a source, with the truth beside it.

Every builder takes whole tensors by name and writes them under a path that does not exist yet. What
it writes is made with ckpt.py, json and pickle alone, so it can judge what the program makes of it.
"""
import importlib.util
import json
import pickle

import numpy as np

import ckpt
from conftest import REPO

TABLE = "StructuredToParameterName@@"  # the entry of Paddle's files that is no tensor
NUMPY = {"Bool": "?", "UInt8": "u1", "Int8": "i1", "Int16": "i2", "Float16": "f2", "BFloat16": "u2", "Int32": "i4",
         "UInt32": "u4", "Float32": "f4", "Float64": "f8", "Int64": "i8"}
PADDLE = {"Bool": "bool", "UInt8": "uint8", "Int8": "int8", "Int16": "int16", "Float16": "float16",
          "BFloat16": "bfloat16", "Int32": "int32", "Float32": "float32", "Float64": "float64", "Int64": "int64"}


def labelled(shapes):
    """Each element tells its tensor, row and column: 12, 10 and 10 bits of an Int32."""
    out = {}
    for number, (name, shape) in enumerate(shapes.items()):
        rows, columns = shape[0], int(np.prod(shape[1:]))
        assert number < 1 << 11 and rows < 1 << 10 and columns < 1 << 10
        label = number << 20 | np.arange(rows, dtype="<u4")[:, None] << 10 | np.arange(columns, dtype="<u4")
        out[name] = ckpt.Tensor("Int32", label.astype("<u4").reshape(shape))
    return out


def llama(layers=2, h=16, nq=8, g=2, d=4, f=24, v=60, experts=0):
    """(tensors, config) of a small model under the names of transformers: llama, or mixtral with experts."""
    shapes = {"model.embed_tokens.weight": (v, h), "lm_head.weight": (v, h), "model.norm.weight": (h,)}
    for n in range(layers):
        base = "model.layers.%d." % n
        shapes |= {base + "self_attn.%s_proj.weight" % x: s for x, s in
                   (("q", (nq * d, h)), ("k", (g * d, h)), ("v", (g * d, h)), ("o", (h, nq * d)))}
        shapes |= {base + "%s_layernorm.weight" % x: (h,) for x in ("input", "post_attention")}
        for e in range(experts):
            shapes |= {base + "block_sparse_moe.experts.%d.%s.weight" % (e, x): s
                       for x, s in (("w1", (f, h)), ("w2", (h, f)), ("w3", (f, h)))}
        if experts:
            shapes[base + "block_sparse_moe.gate.weight"] = (experts, h)
        else:
            shapes |= {base + "mlp.%s_proj.weight" % x: s for x, s in
                       (("gate", (f, h)), ("up", (f, h)), ("down", (h, f)))}
    config = {"model_type": "mixtral" if experts else "llama", "hidden_size": h, "intermediate_size": f,
              "num_attention_heads": nq, "num_key_value_heads": g, "head_dim": d, "vocab_size": v,
              "num_hidden_layers": layers, "tie_word_embeddings": False}
    return labelled(shapes), config | ({"num_local_experts": experts, "num_experts_per_tok": 2} if experts else {})


def hugging_face(root, tensors, config=None, files=1):
    root.mkdir(parents=True)
    if config:
        (root / "config.json").write_text(json.dumps(config))
    if files == 1:
        (root / "model.safetensors").write_bytes(ckpt.safe_bytes(tensors, {"format": "pt"}))
        return
    index, names = {}, sorted(tensors)
    for i in range(files):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, files)
        (root / file).write_bytes(ckpt.safe_bytes({n: tensors[n] for n in names[i::files]}, {"format": "pt"}))
        index |= {n: file for n in names[i::files]}
    size = sum(t.data.nbytes for t in tensors.values())
    (root / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": index}))


def unified(root, tensors, counters=None, parts=3):
    names = sorted(tensors)
    for i in range(parts):
        ckpt.write(root / ("part%d.safetensors" % i), ckpt.safe_bytes({n: tensors[n] for n in names[i::parts]}))
    where = {n: "part%d.safetensors" % i for i in range(parts) for n in names[i::parts]}
    size = sum(4 * t.data.size for t in tensors.values())
    ckpt.write(root / "param_name_map.json", json.dumps({"metadata": {"total_size": size}, "weight_map": where}).encode())
    if counters:
        ckpt.write(root / "hyper_param.safetensors", ckpt.safe_bytes(counters))


def array(item):
    return np.ascontiguousarray(item.data).view(NUMPY[item.kind]).reshape(item.shape)


def pdparams(path, tensors):
    state = {n: array(t) for n, t in tensors.items()}
    ckpt.write(path, pickle.dumps(state | {TABLE: {n: n for n in state}}, 4))


def paddle(root, tensors, cut=None, ranks=2, uid=0):
    """A distributed checkpoint of Paddle. cut: {name: axis} of what is dealt out to the ranks."""
    spec = importlib.util.spec_from_file_location("recipe", REPO / "tests/data/paddle/recipe.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    files, shards, places = [{} for _ in range(ranks)], {}, {}
    for i, (name, item) in enumerate(tensors.items()):
        axis = (cut or {}).get(name)
        pieces = [array(item)] if axis is None else np.split(array(item), ranks, axis)
        for j, piece in enumerate(pieces):
            rank = i % ranks if axis is None else j
            offset = tuple(j * piece.shape[a] if a == axis else 0 for a in range(piece.ndim))
            files[rank][name] = piece
            shards.setdefault(name, []).append(recipe.make(
                recipe.OLD, "LocalTensorMetadata", global_offset=offset, local_shape=piece.shape,
                dtype=PADDLE[item.kind]))
            index = recipe.make(recipe.OLD, "LocalTensorIndex", tensor_key=name, global_offset=offset)
            places[index] = "%d_%d.distcp" % (rank, uid)
    root.mkdir(parents=True, exist_ok=True)
    for rank, arrays in enumerate(files):
        (root / ("%d_%d.distcp" % (rank, uid))).write_bytes(pickle.dumps(arrays, 4))
    (root / ("%d.metadata" % uid)).write_bytes(pickle.dumps(recipe.make(
        recipe.OLD, "Metadata", state_dict_metadata=shards, storage_metadata=places,
        flat_mapping={n: tuple(n.split(".")) for n in tensors}), 4))


# ------------------------------------------------------------------- what a mount shows, read

def read_pdparams(path):
    """{name: Tensor}, by the unpickler of the running interpreter. u2 is bfloat16, as Paddle has it."""
    kinds = {np.dtype(code): kind for kind, code in NUMPY.items()}
    with open(path, "rb") as src:
        state = pickle.load(src)
    table = state.pop(TABLE)
    assert table == {n: n for n in state}
    return {n: ckpt.Tensor(kinds[a.dtype], a.view("<u%d" % a.itemsize)) for n, a in state.items()}


def read(path):
    return read_pdparams(path) if str(path).endswith(".pdparams") else ckpt.read_file(path)


def files(root):
    """Every file of a tree with tensors in it, by its path below the root; strategies have none."""
    return {str(p.relative_to(root)): p for p in sorted(root.rglob("*"))
            if p.suffix in (".safetensors", ".ckpt", ".pdparams") and p.name != "merged.ckpt" and "strategy" not in p.parts}


def joined(root):
    """Entries of all files of a tree whose files share no name."""
    out = {}
    for path in files(root).values():
        entries = read(path)
        assert not out.keys() & entries.keys(), path
        out |= entries
    return out


def equal(got, want):
    assert sorted(got) == sorted(want)
    for name in want:
        assert ckpt.same(got[name], want[name]), "%s: %s %s, expected %s %s" % (
            name, got[name].kind, got[name].shape, want[name].kind, want[name].shape)
