"""Hugging Face checkpoints: one file, a directory of files, shards with an index; and all that is refused.

The files are written here, by a writer that shares no line with the program or with tests/lib.
"""
import json
import math
import os
import random
import shutil
import struct

import pytest

import ckpt
from ckpt import Layout, Strategy
from conftest import SEED, SHARED, program
from reading import check

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
        "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
        "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
INDEX = "model.safetensors.index.json"
SHARDS = ["model-%05d-of-00003.safetensors" % i for i in (1, 2, 3)]


def tensor(name, dtype, shape):
    """(dtype, shape, bytes); the bytes depend on the name."""
    n = math.prod(shape) * BITS[dtype] // 8
    return dtype, list(shape), random.Random(name).randbytes(n)


def file_bytes(tensors, meta={"format": "pt"}, order=None):
    """The reference writer's bytes; with @order tensors stand as given and nothing is padded."""
    names = order or sorted(tensors, key=lambda n: (-list(BITS).index(tensors[n][0]), n.encode()))
    head, at = ({"__metadata__": meta} if meta else {}), 0
    for name in names:
        dtype, shape, raw = tensors[name]
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b"" if order else b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors[n][2] for n in names)


class Model:
    """Three shards, an index, and what stands beside them in a real repository."""

    def __init__(self, root):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.tensors, self.map = {}, {}
        rows = [("model.embed_tokens.weight", "BF16", (32, 8)), ("model.layers.0.q_proj.weight", "BF16", (16, 8)),
                ("model.layers.0.scale", "F32", ()), ("model.layers.1.q_proj.weight", "F8_E4M3", (16, 8)),
                ("model.layers.1.empty", "F16", (0, 4)), ("model.norm.weight", "F32", (8,)),
                ("lm_head.weight", "BF16", (32, 8)), ("rotary.inv_freq", "F64", (4,))]
        for i, (name, dtype, shape) in enumerate(rows):
            self.tensors[name] = tensor(name, dtype, shape)
            self.map[name] = SHARDS[i * 3 // len(rows)]
        for shard in SHARDS:
            self.write(shard, self.of(shard))
        self.write_index(self.map)
        (root / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8, "vocab_size": 32}))
        (root / "tokenizer.json").write_text("{}")
        (root / "README.md").write_text("# A model\n")

    def of(self, shard):
        return {n: t for n, t in self.tensors.items() if self.map[n] == shard}

    def write(self, file, tensors, **options):
        (self.root / file).write_bytes(file_bytes(tensors, **options))

    def write_index(self, weight_map, name=INDEX):
        total = sum(len(t[2]) for t in self.tensors.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2, sort_keys=True)
        (self.root / name).write_text(text + "\n")

    def cat(self, *options, path="rank_0/model.safetensors", source=None):
        return program("cat", source or self.root, *(w for o in options for w in ("-o", o)), path)

    def refused(self, code, *words, options=("target=full",), source=None):
        """The same refusal from a verb that wants a target and from one that does not."""
        done = self.cat(*options, source=source)
        assert done.code == code and all(w in done.text for w in words) and not done.out, (code, words, done)
        rest = [w for o in options if not o.startswith("target") for w in ("-o", o)]
        done = program("inspect", *rest, source or self.root)
        assert done.code == code and all(w in done.text for w in words), (code, words, done)


@pytest.fixture
def model(tmp_path):
    return Model(tmp_path / "model")


def inspect(path, *options):
    done = program("inspect", "--json", *(w for o in options for w in ("-o", o)), path)
    assert done.code == 0, done
    return json.loads(done.out)


# ------------------------------------------------------------------------------- what is read

def test_shards_with_an_index(model, mount):
    mounted = mount(model.root, "target=full")
    assert os.listdir(mounted.path) == ["rank_0"] and os.listdir(mounted.path / "rank_0") == ["model.safetensors"]
    check(mounted.path / "rank_0/model.safetensors", file_bytes(model.tensors), random.Random(SEED))


def test_a_directory_without_index(model):
    (model.root / INDEX).unlink()
    assert model.cat("target=full").out == file_bytes(model.tensors)
    for shard in SHARDS:  # names tell nothing
        shutil.move(model.root / shard, model.root / (model.of(shard).popitem()[0] + ".safetensors"))
    assert model.cat("target=full").out == file_bytes(model.tensors)


def test_one_file(model, tmp_path):
    (tmp_path / "one").mkdir()
    path = tmp_path / "one/anything.safetensors"
    odd = file_bytes(model.tensors, meta=None, order=list(model.tensors))  # unpadded, in another order
    path.write_bytes(odd)
    for source in (path, path.parent):
        assert model.cat("target=full", source=source).out == file_bytes(model.tensors)
        assert model.cat("target=same", source=source).out == odd
        assert inspect(source)["format"] == "hf"


def test_same_joins_shards(model):
    assert model.cat("target=same").out == file_bytes(model.tensors)


def test_same_in_the_other_container(model, tmp_path):
    tensors = {"b": tensor("b", "F32", (2,)), "a": tensor("a", "I64", ())}
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_bytes(tensors))
    done = model.cat("target=same", "format=ckpt", path="rank_0/model.ckpt", source=path)
    assert done.out == ckpt.ckpt_bytes(ckpt.read_safe(path)), done


def test_modes_of_files_follow_the_source(model, mount):
    """A shard that is closed to others closes what is made of it; so does a directory on the way."""
    (model.root / SHARDS[1]).chmod(0o600)
    assert (mount(model.root, "target=full").path / "rank_0/model.safetensors").stat().st_mode & 0o777 == 0o400
    (model.root / SHARDS[1]).chmod(0o644)
    (model.root / "deep").mkdir(0o700)
    shutil.move(model.root / SHARDS[2], model.root / "deep" / SHARDS[2])
    model.write_index({n: "deep/" + f if f == SHARDS[2] else f for n, f in model.map.items()})
    assert (mount(model.root, "target=full").path / "rank_0/model.safetensors").stat().st_mode & 0o777 == 0o400


def test_every_dtype(model, tmp_path):
    tensors = {d.lower(): tensor(d, d, (4, 2)) for d in BITS}
    (tmp_path / "all.safetensors").write_bytes(file_bytes(tensors))
    assert model.cat("target=full", source=tmp_path / "all.safetensors").out == file_bytes(tensors)


def test_a_ckpt_in_the_order_of_files_and_offsets(model):
    """Types that a .ckpt cannot hold are refused by name."""
    done = model.cat("target=full", "format=ckpt", path="rank_0/model.ckpt")
    assert done.code == 4 and "F8_E4M3" in done.text and "model.layers.1.q_proj.weight" in done.text, done
    name = "model.layers.1.q_proj.weight"
    model.tensors[name] = tensor(name, "I8", (16, 8))
    model.write(model.map[name], model.of(model.map[name]))
    done = model.cat("target=full", "format=ckpt", path="rank_0/model.ckpt")
    want = {n: e for shard in SHARDS for n, e in ckpt.read_safe(model.root / shard).items() if e.data.size}
    assert done.out == ckpt.ckpt_bytes(want), done


def test_a_mindspore_strategy_as_target(model, mount, tmp_path):
    """Cut as the strategy says; what it does not name goes to every rank as it is."""
    layouts = {"model.embed_tokens.weight": Layout([2, 2], [0, -1]), "lm_head.weight": Layout([2, 2], [-1, 1]),
               "model.layers.0.q_proj.weight": Layout([2, 2], [1, 0])}
    ckpt.write(tmp_path / "s.ckpt", ckpt.strategy_bytes(Strategy({0: layouts})))
    mounted = mount(model.root, "target=%s" % (tmp_path / "s.ckpt"))
    for rank in range(4):
        want = dict(model.tensors)
        for name, layout in layouts.items():
            dtype, shape, raw = want[name]
            part = layout.cut(ckpt.Tensor("BFloat16", ckpt.np.frombuffer(raw, "<u2").reshape(shape)), rank)
            want[name] = dtype, list(part.shape), part.raw()
        check(mounted.file(rank, "safetensors"), file_bytes(want, {"format": "ms"}), random.Random(SEED), 5)
    plan = program("plan", model.root, "-o", "target=%s" % (tmp_path / "s.ckpt"))
    assert plan.code == 0 and b"unknown to the target" in plan.out, plan


def test_paths_in_the_index(model):
    """Shards may stand in directories below; their names are taken as they are."""
    (model.root / "deep/er").mkdir(parents=True)
    shutil.move(model.root / SHARDS[1], model.root / "deep/er/x y.bin")
    model.write_index({n: "deep/er/x y.bin" if f == SHARDS[1] else f for n, f in model.map.items()})
    assert model.cat("target=full").out == file_bytes(dict(model.tensors))


def test_many_small_files(tmp_path):
    """One file per tensor, as some repositories have it; all headers are read when the source is opened."""
    model = Model(tmp_path / "m")
    for path in model.root.iterdir():
        path.unlink()
    model.tensors = {"t.%d" % i: tensor("t.%d" % i, "F32", (i % 7, 3)) for i in range(600)}
    model.map = {n: "model-%05d-%s.safetensors" % (1, n) for n in model.tensors}
    for file in model.map.values():
        model.write(file, model.of(file))
    model.write_index(model.map)
    assert model.cat("target=full").out == file_bytes(model.tensors)


# ------------------------------------------------------------------------- what stands beside

def test_companions_and_config(model):
    names = ["chat_template.jinja", "generation_config.json", "merges.txt", "preprocessor_config.json",
             "special_tokens_map.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "extra.jinja"]
    for name in names:
        (model.root / name).write_text("{}")
    (model.root / "pytorch_model.bin").write_bytes(b"PK")
    (model.root / "onnx").mkdir()
    (model.root / ".gitattributes").write_text("")
    found = inspect(model.root)
    assert found["companions"] == sorted(names + ["config.json", "tokenizer.json"])
    assert found["model_type"] == "llama" and found["files"] == 3 and found["ranks"]["missing"] == []
    assert {f["path"]: f["why"] for f in found["foreign"]} == {
        "README.md": "not a safetensors file", "pytorch_model.bin": "not a safetensors file",
        "onnx": "a directory", ".gitattributes": "a hidden file"}
    assert found["bytes_on_disk"] == sum((model.root / s).stat().st_size for s in SHARDS)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1, "a": 2}', "version https://git-lfs.github.com/spec/v1\n", "[]"])
def test_a_broken_config_is_a_remark(text, model):
    (model.root / "config.json").write_text(text)
    found = inspect(model.root)
    assert found["model_type"] is None
    assert any("config.json" in n and "nothing is taken from it" in n for n in found["notes"]), found["notes"]
    assert model.cat("target=full").out == file_bytes(model.tensors)


def test_the_language_model_of_several(model):
    (model.root / "config.json").write_text(json.dumps({
        "model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 8}, "vision_config": {"h": 1}}))
    assert inspect(model.root)["model_type"] == "llava"
    (model.root / "config.json").write_text(json.dumps({"text_config": {"model_type": "llama", "hidden_size": 8}}))
    assert inspect(model.root)["model_type"] == "llama"


def test_strays_and_variants(model):
    for name in ("model.fp16-00001-of-00002.safetensors", "model-00001-of-00005.safetensors",
                 "consolidated.safetensors", "model.safetensors", "model-00004-of-00005.safetensors.incomplete"):
        (model.root / name).write_bytes(b"x")  # never opened
    found = inspect(model.root)
    why = {f["path"]: f["why"] for f in found["foreign"]}
    assert "another variant" in why["model.fp16-00001-of-00002.safetensors"]
    assert "another split" in why["model-00001-of-00005.safetensors"]
    assert "index does not name" in why["consolidated.safetensors"] and "index does not name" in why["model.safetensors"]
    assert any("half-written" in n for n in found["notes"])
    assert model.cat("target=full").out == file_bytes(model.tensors)


def test_white_space_before_a_header(model):
    data = (model.root / SHARDS[0]).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    (model.root / SHARDS[0]).write_bytes(struct.pack("<Q", size + 1) + b" " + data[8:])
    assert any("white space" in n and SHARDS[0] in n for n in inspect(model.root)["notes"])
    assert model.cat("target=full").out == file_bytes(model.tensors)


def test_total_size_that_is_wrong(model):
    (model.root / INDEX).write_text(json.dumps({"metadata": {"total_size": 7}, "weight_map": model.map}))
    assert any("total_size is 7" in n for n in inspect(model.root)["notes"])


# -------------------------------------------------------------------------------- refusals

def test_an_absent_shard(model):
    (model.root / SHARDS[1]).unlink()
    model.refused(3, INDEX, SHARDS[1], "found none", "hint:")


def test_a_tensor_that_the_file_lacks(model):
    model.write_index(model.map | {"extra": SHARDS[2]})
    model.refused(3, INDEX, SHARDS[2], "'extra'", "found none", "hint:")


def test_a_tensor_that_the_index_lacks(model):
    """select= leaves the index aside."""
    short = dict(model.map)
    del short["lm_head.weight"]
    model.write_index(short)
    model.refused(3, INDEX, SHARDS[2], "'lm_head.weight'", "not listed", "select=")
    assert model.cat("target=full", "select=model-*.safetensors").out == file_bytes(model.tensors)


def test_a_tensor_in_another_file(model):
    model.write_index(model.map | {"lm_head.weight": SHARDS[0]})
    model.refused(3, INDEX, SHARDS[0], SHARDS[2], "'lm_head.weight'")


def test_a_tensor_in_two_files(model):
    model.write(SHARDS[0], model.of(SHARDS[0]) | {"lm_head.weight": tensor("other", "F32", (2,))})
    model.refused(3, INDEX, SHARDS[0], SHARDS[2], "'lm_head.weight'")
    (model.root / INDEX).unlink()
    model.refused(3, SHARDS[0], SHARDS[2], "'lm_head.weight'", "select=")


def test_several_indexes(model):
    other = "model.fp16.safetensors.index.json"
    model.write_index(model.map, other)
    model.refused(2, INDEX, other, "select=")
    for name in (INDEX, other):
        assert model.cat("target=full", "select=" + name).out == file_bytes(model.tensors)


def test_a_number_that_is_missing(model):
    (model.root / INDEX).unlink()
    for i, shard in enumerate(SHARDS):
        content = (model.root / shard).read_bytes()
        (model.root / shard).unlink()
        model.refused(3, "shard %d of 3 missing" % (i + 1), shard, "hint:")
        (model.root / shard).write_bytes(content)
    rest = {n: t for n, t in model.tensors.items() if model.map[n] == SHARDS[1]}
    assert model.cat("target=full", "select=" + SHARDS[1]).out == file_bytes(rest)


def test_select_that_matches_nothing(model):
    model.refused(3, "select=nothing*", options=("target=full", "select=nothing*"))


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/../../x", "", "x" * 4096, "a\0b", "a/.."])
def test_names_that_lead_outside(name, model):
    (model.root.parent / "x.safetensors").write_bytes(file_bytes({"lm_head.weight": model.tensors["lm_head.weight"]}))
    model.write_index(model.map | {"lm_head.weight": name})
    model.refused(3, INDEX, "'lm_head.weight'", "outside the checkpoint")


@pytest.mark.parametrize("text, code, words", [
    ("[]", 3, ["an object"]), ("{}", 3, ["weight_map"]), ('{"weight_map": {}}', 3, ["no tensor"]),
    ('{"weight_map": []}', 3, ["weight_map"]), ('{"weight_map": {"a": 1}}', 3, ["a file name"]),
    ('{"weight_map": {"a": "x"}} x', 3, ["nothing after"]), ('{"weight_map": {"a": "x",}}', 3, ["a key"]),
    ('{"weight_map": {"a": "x", "a": "x"}}', 3, ["'a' stands twice"]),
    ('{"weight_map": {"a": "x", "\\u0061": "y"}}', 3, ["'a' stands twice"]),
    ('{"weight_map": {"a": "x"}, "weight_map": {"b": "x"}}', 3, ["second"]), ('{"a": "x"}', 3, ["weight_map"]),
    ("", 3, ["empty file"]), ("<!DOCTYPE html>", 3, ["HTML"]), ("{" * 200, 3, ["@"]),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n", 3, ["Git LFS pointer", "99 bytes"]),
    ('{"weight_map": {"%s": "x"}}' % ("n" * 70000), 7, ["RS_MAX_NAME"]),
], ids=range(16))
def test_broken_indexes(text, code, words, model):
    (model.root / INDEX).write_text(text)
    model.refused(code, INDEX, *words)


def test_an_index_over_the_limit(model):
    os.truncate(model.root / INDEX, 100 * 10**6 + 1)
    model.refused(7, INDEX, "100000001", "100000000")


def test_files_that_are_no_files(model):
    shard = model.root / SHARDS[1]
    good = shard.read_bytes()
    shard.unlink()
    os.mkfifo(shard)
    model.refused(3, SHARDS[1], "regular file")
    shard.unlink()
    shard.mkdir()
    model.refused(3, SHARDS[1])
    shard.rmdir()
    for bad, words in ((b"", ["empty file"]), (good[:7], ["HeaderTooSmall"]), (good[:-1], ["MetadataIncompleteBuffer"]),
                       (good[:len(good) // 2], [str(len(good) // 2)]), (good + b"\0", ["MetadataIncompleteBuffer"]),
                       (b"<html>", ["HTML"])):
        shard.write_bytes(bad)
        model.refused(3, SHARDS[1], *words)


def test_pointers_of_git_lfs(model):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 4998663696\n"
    for i, shard in enumerate(SHARDS):
        (model.root / shard).write_text(pointer % i)
    model.refused(3, SHARDS[0], "Git LFS pointer", "5.0 GB", "git lfs pull")
    if (SHARED / "data/real/safetensors").is_dir():
        real = SHARED / "data/real/safetensors/git_lfs_pointer.safetensors"
        shutil.copy(real, model.root / SHARDS[0])
        model.refused(3, SHARDS[0], "Git LFS pointer", "5.0 GB", "git lfs pull")


def test_strange_names_of_tensors(model, tmp_path):
    names = ["..", "a/b", "line\nbreak", "\x1b[31m", "Größe", "case", "Case", ""]
    tensors = {n: tensor(n, "U8", (3,)) for n in names}
    path = tmp_path / "odd.safetensors"
    path.write_bytes(file_bytes(tensors))
    assert model.cat("target=full", source=path).out == file_bytes(tensors)


# ------------------------------------------------------------------------------------- links

def cache(model, tmp_path):
    """Move the files into the shape of Hugging Face's cache; returns the snapshot."""
    home = tmp_path / "hub/models--org--name"
    snapshot = home / "snapshots/0123abcd"
    snapshot.mkdir(parents=True)
    (home / "blobs").mkdir()
    for i, path in enumerate(sorted(model.root.iterdir())):
        shutil.move(path, home / "blobs" / ("%040d" % i))
        (snapshot / path.name).symlink_to("../../blobs/%040d" % i)
    return snapshot


def test_the_cache_of_hugging_face(model, tmp_path, mount):
    snapshot = cache(model, tmp_path)
    home = snapshot.parent.parent
    model.refused(3, "outside the checkpoint", "beneath=%s" % home, source=snapshot)
    mounted = mount(snapshot, "beneath=%s" % home, "target=full")
    check(mounted.path / "rank_0/model.safetensors", file_bytes(model.tensors), random.Random(SEED), 5)
    found = inspect(snapshot, "beneath=%s" % home)
    assert found["companions"] == ["config.json", "tokenizer.json"] and found["model_type"] == "llama"
    (snapshot / INDEX).unlink()
    model.refused(3, "outside the checkpoint", "beneath=%s" % home, source=snapshot)
    model.refused(3, "symbolic link", options=("target=full", "symlinks=deny"), source=snapshot)


def test_links_inside(model):
    shutil.move(model.root / SHARDS[0], model.root / "real")
    (model.root / SHARDS[0]).symlink_to("real")
    assert model.cat("target=full").out == file_bytes(model.tensors)


def test_links_that_lead_nowhere(model):
    (model.root / SHARDS[0]).unlink()
    (model.root / SHARDS[0]).symlink_to("nothing")
    model.refused(3, SHARDS[0], "nowhere")
    (model.root / SHARDS[0]).unlink()
    (model.root / SHARDS[0]).symlink_to(SHARDS[0])
    model.refused(3, SHARDS[0], "loop")


# ------------------------------------------------------------------------------ which format

def test_who_bids(model, tmp_path):
    only = tmp_path / "only"
    only.mkdir()
    one = {"w": tensor("w", "F32", (2,))}
    (only / "x.safetensors").write_bytes(file_bytes(one, {"format": "ms"}))
    for path in (only, only / "x.safetensors"):
        assert inspect(path)["format"] == "mindspore"
        assert inspect(path, "source=hf")["format"] == "hf"
        done = model.cat("target=full", "source=hf", source=path)
        assert done.out == file_bytes(one), done
    (only / "x.safetensors").write_bytes(file_bytes(one))
    for path in (only, only / "x.safetensors"):
        assert inspect(path)["format"] == "hf" and inspect(path, "source=mindspore")["format"] == "mindspore"
    (only / "y.ckpt").write_bytes(b"\x0a\x00")
    model.refused(2, "mindspore", "hf", "source=", source=only)
    (only / "y.ckpt").unlink()
    (only / "rank_0").mkdir()
    (only / "rank_0/x.safetensors").write_bytes(file_bytes(one, {"format": "ms"}))
    assert inspect(only)["format"] == "mindspore"


def test_names_of_formats(model):
    done = model.cat("target=full", "source=hugging")
    assert done.code == 2 and "hf" in done.text and "mindspore" in done.text and "unified" in done.text, done
    done = program("inspect", "-o", "source=mindspore", model.root)
    assert done.code == 4 and "source=hf" in done.text, done


def test_src_strategy_is_for_slices(model):
    model.refused(2, "src_strategy", options=("target=full", "src_strategy=/x"))
