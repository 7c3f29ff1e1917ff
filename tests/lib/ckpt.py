#!/usr/bin/env python3
"""MindSpore checkpoints by the slow and plain route: what the tests compare reshardfs with.

Writes and reads `.ckpt` files, `.safetensors` files and strategy files (protobuf and JSON),
cuts whole tensors into rank trees, and says what the file of a target rank must hold: every
tensor is put together in memory and cut again with index arrays, one element at a time. Needs
numpy and shares no line with the program. The formats are described in docs/formats/.

Run it as a program to look at files or to make trees by hand: `ckpt.py --help`.
"""
import argparse
import hashlib
import json
import math
import os
import re
import struct
import sys
import zlib
from dataclasses import dataclass, field as default

import numpy as np

# MindSpore's word, the safetensors word, bytes of an element. Values are moved as bits and
# never computed with, so an unsigned integer of the right width carries every type.
WORDS = [
    ("Bool", "BOOL", 1), ("UInt8", "U8", 1), ("Int8", "I8", 1), ("Int16", "I16", 2),
    ("UInt16", "U16", 2), ("Float16", "F16", 2), ("BFloat16", "BF16", 2), ("Int32", "I32", 4),
    ("UInt32", "U32", 4), ("Float32", "F32", 4), ("Float64", "F64", 8), ("Int64", "I64", 8),
    ("UInt64", "U64", 8),
]
KINDS = [w[0] for w in WORDS] + ["Int4"]
WIDTH = {w[0]: w[2] for w in WORDS} | {"Int4": 1}
TO_SAFE = {w[0]: w[1] for w in WORDS} | {"Int4": "I8"}
FROM_SAFE = {w[1]: w[0] for w in WORDS}
SAFE_ORDER = [w[1] for w in WORDS]  # the reference writer sorts by this, descending
VALUE_BYTES = 512 << 20             # content of one Value; larger tensors take several
CRC_MARK = b"crc_num"


def carrier(kind):
    return np.dtype("<u%d" % WIDTH[kind])


@dataclass(eq=False)
class Tensor:
    """A tensor as bits. old_scalar: 0-d, and its .ckpt says dims [0] (writers of before 2.x)."""
    kind: str
    data: np.ndarray
    old_scalar: bool = False

    @property
    def shape(self):
        return tuple(self.data.shape)

    def raw(self):
        return np.ascontiguousarray(self.data).tobytes()


def same(a, b):
    """Equal entries: texts, or tensors of one type, shape and content."""
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return (a.kind, a.shape, a.raw()) == (b.kind, b.shape, b.raw())


# ------------------------------------------------------------------------- protobuf, by hand

def varint(n):
    n &= 0xFFFFFFFFFFFFFFFF  # negative numbers go out as ten bytes
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def put(number, value):
    """One field: integers as varints, bytes and text with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else bytes(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def take_varint(view, at):
    n = 0
    for i in range(10):
        n |= (view[at + i] & 0x7F) << 7 * i
        if view[at + i] < 0x80:
            return n, at + i + 1
    raise ValueError("a varint of more than ten bytes at %d" % at)


def fields(view):
    """(number, value) of every field of a message; a value is an int or a memoryview."""
    view, at = memoryview(view), 0
    while at < len(view):
        key, at = take_varint(view, at)
        n, at = take_varint(view, at)
        if key & 7 == 0:
            yield key >> 3, n
        elif key & 7 == 2 and n <= len(view) - at:
            yield key >> 3, view[at:at + n]
            at += n
        else:
            raise ValueError("field %d at %d: wire type %d, length %d" % (key >> 3, at, key & 7, n))


def signed(n):
    return n - (1 << 64) if n >> 63 else n


def numbers(message, number=1):
    """The repeated integers of a message, packed or not."""
    out = []
    for found, value in fields(message):
        if found == number and isinstance(value, int):
            out.append(signed(value))
        elif found == number:
            at = 0
            while at < len(value):
                n, at = take_varint(value, at)
                out.append(signed(n))
    return out


# ------------------------------------------------------------------------------- .ckpt files

def value_header(name, dims, kind, content_bytes):
    """Everything of a Value message but the content, which comes last."""
    tensor = b"".join(put(1, d) for d in dims) + put(2, kind)
    tensor += varint(3 << 3 | 2) + varint(content_bytes)
    value = put(1, name) + varint(2 << 3 | 2) + varint(len(tensor) + content_bytes) + tensor
    return varint(1 << 3 | 2) + varint(len(value) + content_bytes) + value


def content_of(item):
    """(dims, type word, content) of an entry."""
    if isinstance(item, str):
        return [0], "str", (item or "\0").encode("utf-32-le")
    dims = [0] if item.old_scalar and item.shape == () else list(item.shape)
    return dims, item.kind, item.raw()


def ckpt_bytes(entries, crc=False, value_bytes=VALUE_BYTES, keep_empty=False):
    """A .ckpt file. keep_empty writes zero-size tensors, as asynchronous saving does."""
    out = []
    for name, item in entries.items():
        dims, kind, raw = content_of(item)
        for at in range(0, max(len(raw), 1 if keep_empty else 0), value_bytes):
            part = raw[at:at + value_bytes]
            out += [value_header(name, dims, kind, len(part)), part]
    data = b"".join(out)
    return data + CRC_MARK + zlib.crc32(data).to_bytes(10, "big") if crc else data


def read_ckpt(path):
    with open(path, "rb") as src:
        data = src.read()
    if data[-17:-10] == CRC_MARK:
        if int.from_bytes(data[-10:], "big") != zlib.crc32(data[:-17]):
            raise ValueError("%s: wrong checksum" % path)
        data = data[:-17]
    rows, last = {}, None
    for number, value in fields(data):
        parts = dict(fields(value))
        name, body = bytes(parts[1]).decode(), parts[2]
        inner = dict(fields(body))
        if name != last:  # neighbours of one name are one tensor
            if name in rows:
                raise ValueError("%s: '%s' stands twice" % (path, name))
            rows[name] = [None, None, []]
        rows[name][:2] = numbers(body), bytes(inner[2]).decode()
        rows[name][2].append(bytes(inner.get(3, b"")))
        last = name
        if number != 1:
            raise ValueError("%s: unknown field %d" % (path, number))
    out = {}
    for name, (dims, kind, content) in rows.items():
        raw = b"".join(content)
        if kind == "str":
            text = raw.decode("utf-32-le")
            out[name] = "" if text == "\0" else text
        else:
            old = dims == [0] and len(raw) > 0
            out[name] = Tensor(kind, np.frombuffer(raw, carrier(kind)).reshape([] if old else dims), old)
    return out


# ------------------------------------------------------------------------- .safetensors files

def safe_bytes(entries, meta=None):
    """A .safetensors file as the reference library writes it; texts cannot be stored."""
    entries = {n: e for n, e in entries.items() if not isinstance(e, str)}
    meta = {"format": "ms"} if meta is None else dict(meta)
    meta |= {n: "Int4" for n, e in entries.items() if e.kind == "Int4"}
    order = sorted(entries, key=lambda n: (-SAFE_ORDER.index(TO_SAFE[entries[n].kind]), n.encode()))
    head, at = ({"__metadata__": dict(sorted(meta.items()))} if meta else {}), 0
    for name in order:
        end = at + entries[name].data.nbytes
        head[name] = {"dtype": TO_SAFE[entries[name].kind], "shape": list(entries[name].shape),
                      "data_offsets": [at, end]}
        at = end
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(entries[n].raw() for n in order)


def read_safe(path, with_meta=False):
    with open(path, "rb") as src:
        data = src.read()
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + size])
    meta, out, end = head.pop("__metadata__", None) or {}, {}, 0
    for name, row in sorted(head.items(), key=lambda i: i[1]["data_offsets"]):
        begin, stop = row["data_offsets"]
        kind = "Int4" if meta.get(name) == "Int4" else FROM_SAFE[row["dtype"]]
        if begin != end or stop - begin != math.prod(row["shape"]) * WIDTH[kind]:
            raise ValueError("%s: '%s' does not stand where it should" % (path, name))
        raw = data[8 + size + begin:8 + size + stop]
        out[name], end = Tensor(kind, np.frombuffer(raw, carrier(kind)).reshape(row["shape"])), stop
    if 8 + size + end != len(data):
        raise ValueError("%s: %d bytes, expected %d" % (path, len(data), 8 + size + end))
    return (out, meta) if with_meta else out


def read_file(path):
    return read_safe(path) if str(path).endswith(".safetensors") else read_ckpt(path)


def file_bytes(entries, container, **options):
    return (safe_bytes if container == "safetensors" else ckpt_bytes)(entries, **options)


# ---------------------------------------------------------------------------------- strategies

@dataclass
class Layout:
    """How a tensor is cut over the devices of a stage. An entry of `map` is the device dimension
    (counted from the right) that cuts the axis, -1, or a list of them. opt: optimizer shards of
    axis 0, -1 for as many as there are replicas."""
    dev: list
    map: list
    opt: int = 0
    field: int = 0
    split: list = default(default_factory=list)
    shape: list = None  # stated by the JSON form only

    @property
    def devices(self):
        return math.prod(self.dev)

    def axis(self, axis, local):
        """(index, count): which of how many equal parts of an axis a device holds, opt aside."""
        entry = self.map[axis] if isinstance(self.map[axis], (list, tuple)) else [self.map[axis]]
        dims = [len(self.dev) - 1 - m for m in entry if m >= 0]
        if not dims:
            return 0, 1
        where = np.unravel_index(local, self.dev)
        extents = [self.dev[d] for d in dims]
        return int(np.ravel_multi_index([where[d] for d in dims], extents)), math.prod(extents)

    def cell(self, local):
        return tuple(self.axis(a, local)[0] for a in range(len(self.map)))

    def twins(self, local):
        """Devices with the same part of every axis, before the optimizer shard."""
        return [r for r in range(self.devices) if self.cell(r) == self.cell(local)]

    def shards(self):
        if not self.opt or not self.map:
            return 1
        return len(self.twins(0)) if self.opt < 0 else self.opt

    def parts(self, local):
        """(index, count) of every axis, the optimizer shard included."""
        out = [self.axis(a, local) for a in range(len(self.map))]
        n = self.shards()
        if n > 1:
            out[0] = out[0][0] * n + self.twins(local).index(local) % n, out[0][1] * n
        return out

    def step(self):
        """What the writer states beside the size: the distance of neighbours in the group."""
        twins = self.twins(0)
        return (twins[-1] - twins[0]) // (len(twins) - 1) if self.shards() > 1 else 0

    def rows(self, local, shape):
        """Per axis the indexes in the whole tensor of what a device holds, in its order."""
        if not shape:
            return ()
        if len(shape) != len(self.map):
            raise ValueError("map %s, shape %s" % (self.map, shape))
        out = []
        for axis, (length, (index, count)) in enumerate(zip(shape, self.parts(local))):
            if axis == 0 and self.split:
                border = np.concatenate([[0], np.cumsum(self.split)])
                out.append(np.arange(border[index], border[index + 1]))
                continue
            blocks = self.field if axis == 0 and self.field else 1
            if length % (count * blocks):
                raise ValueError("%d does not divide by %d" % (length, count * blocks))
            # `blocks` rounds of dealing out equal runs, one to each device
            dealt = np.arange(length).reshape(blocks, count, length // (count * blocks))
            out.append(dealt[:, index].reshape(-1))
        return tuple(out)

    def cut(self, whole, local):
        where = self.rows(local, whole.shape)
        return Tensor(whole.kind, whole.data[np.ix_(*where)] if where else whole.data, whole.old_scalar)

    def whole_shape(self, shape):
        out = [n * count for n, (_, count) in zip(shape, self.parts(0))]
        if self.split and out:
            out[0] = sum(self.split)
        return tuple(out)


@dataclass
class Strategy:
    """Layouts by stage and name, and operators (name, stage, cuts per input) for their own sake."""
    stages: dict
    operators: list = None
    current: int = 1

    @property
    def devices(self):
        return next(l.devices for names in self.stages.values() for l in names.values())

    @property
    def ranks(self):
        return len(self.stages) * self.devices

    def listed_operators(self):
        """Those of the file that was read, else one for each stage, which tells a stage's number."""
        if self.operators is not None:
            return self.operators
        return [("MatMul_" + next(iter(n), "none"), s, [[1, 1], [1, 1]]) for s, n in self.stages.items()]


def strategy_bytes(strategy, stages=None, form="ckpt"):
    """The merged file of all stages, or the file of one (`stages` an int), as .ckpt or .json."""
    merged = stages is None
    stages = list(strategy.stages) if merged else [stages]
    operators = [o for o in strategy.listed_operators() if o[1] in stages]
    layouts = {("%d-%s" % (s, n) if merged else n): l for s in stages for n, l in strategy.stages[s].items()}
    current = 1 if merged else strategy.current
    if form == "json":
        return strategy_json(current, operators, layouts)
    out = put(1, current)
    for name, stage, cuts in operators:
        cuts = b"".join(put(2, b"".join(put(1, c) for c in cut)) for cut in cuts)
        out += put(2, put(1, name) + put(2, put(1, stage) + cuts))
    for name, l in layouts.items():
        maps = [l.map]
        if any(isinstance(m, (list, tuple)) for m in l.map):  # a message an axis, at least two
            maps = [m if isinstance(m, (list, tuple)) else [m] for m in l.map]
            maps += [[]] if len(maps) == 1 else []
        body = put(1, b"".join(put(1, d) for d in l.dev))
        body += b"".join(put(2, b"".join(put(1, m) for m in row)) for row in maps)
        body += put(3, b"".join(put(1, n) for n in l.split)) + put(4, b"")
        body += put(5, l.field) + put(6, l.step()) + put(7, l.opt)
        out += put(3, put(1, name) + put(2, body))
    return out


def strategy_json(current, operators, layouts):
    items = {}
    for name, l in layouts.items():
        items[name] = {"dev_matrix": l.dev, "tensor_map": l.map, "tensor_shape": list(l.shape or []),
                       "field": l.field, "opt_weight_shard_step": l.step(), "opt_weight_shard_size": l.opt}
        if l.split:
            items[name] |= {"param_split_shape": l.split, "indices_offset": [0] * len(l.split)}
    top = {"current_stage": current, "parallel_layout_item": items, "parallel_strategy_item": {
        n: {"stage": s, "parallel_strategy": c} for n, s, c in operators}}
    return json.dumps(top, separators=(",", ":"), sort_keys=True).encode()


def read_strategy(path):
    """One file, or a directory of stage files."""
    if os.path.isdir(path):
        parts = [read_strategy(os.path.join(path, n)) for n in sorted(os.listdir(path))]
        merged = Strategy({}, [])
        for part in parts:
            stage = part.operators[0][1]
            if stage not in merged.stages:
                merged.stages[stage] = part.stages[0]
                merged.operators += part.operators
        return merged
    with open(path, "rb") as src:
        data = src.read()
    rows, operators, current = [], [], 1
    if data[:1] == b"{":
        top = json.loads(data)
        current = top.get("current_stage", 1)
        for name, row in (top.get("parallel_strategy_item") or {}).items():
            operators.append((name, row["stage"], row["parallel_strategy"]))
        for name, row in top["parallel_layout_item"].items():
            rows.append((name, Layout(
                row["dev_matrix"], row["tensor_map"],
                row["opt_weight_shard_size"] if row["opt_weight_shard_step"] else 0, row.get("field", 0),
                row.get("param_split_shape", []), row.get("tensor_shape") or None)))
    else:
        for number, value in fields(data):
            if number == 1:
                current = value
            elif number == 2:
                parts = dict(fields(value))
                cuts = [numbers(v) for n, v in fields(parts[2]) if n == 2]
                operators.append((bytes(parts[1]).decode(), dict(fields(parts[2]))[1], cuts))
            elif number == 3:
                parts = dict(fields(value))
                rows.append((bytes(parts[1]).decode(), decode_layout(parts[2])))
    stages = {}
    for name, layout in rows:
        stage = re.match(r"([0-9]+)-", name)
        stages.setdefault(int(stage[1]) if stage else 0, {})[name[stage.end() if stage else 0:]] = layout
    return Strategy(stages, operators, current)


def decode_layout(message):
    scalar = {n: signed(v) for n, v in fields(message) if isinstance(v, int)}
    groups = {n: [numbers(v) for m, v in fields(message) if m == n] for n in (1, 2, 3)}
    maps = groups[2][0] if len(groups[2]) == 1 else [m for m in groups[2] if m]
    return Layout((groups[1] or [[]])[0] or [1], maps, scalar.get(7, 0) if scalar.get(6) else 0,
                  scalar.get(5, 0), (groups[3] or [[]])[0])


def write_strategies(root, strategy, form="ckpt"):
    """strategy/strategy_<first rank of the stage>.<form> and merged.<form>; returns both paths."""
    stage_dir = os.path.join(root, "strategy")
    os.makedirs(stage_dir, exist_ok=True)
    for stage in strategy.stages:
        write(os.path.join(stage_dir, "strategy_%d.%s" % (stage * strategy.devices, form)),
              strategy_bytes(strategy, stage, form))
    merged = os.path.join(root, "merged." + form)
    write(merged, strategy_bytes(strategy, None, form))
    return merged, stage_dir


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


# ---------------------------------------------------------------------------------- rank trees

def write_tree(root, strategy, tensors, extras=None, container="ckpt", dedup=False,
               name="checkpoint_{rank}-1_2", **options):
    """Cut `tensors` ({name: whole Tensor}) by `strategy` into root/rank_N/. extras(rank): entries
    without a layout. dedup: each slice is stored by one of its holders only."""
    for stage, layouts in strategy.stages.items():
        for local in range(strategy.devices):
            rank, entries = stage * strategy.devices + local, {}
            for tensor, layout in layouts.items():
                if dedup and keeper(layout, local, tensor) != local:
                    continue
                entries[tensor] = layout.cut(tensors[tensor], local)
            entries |= extras(rank) if extras else {}
            path = os.path.join(root, "rank_%d" % rank, "%s.%s" % (name.format(rank=rank), container))
            write(path, file_bytes(entries, container, **options))


def keeper(layout, local, name):
    group = [r for r in range(layout.devices) if layout.parts(r) == layout.parts(local)]
    return group[zlib.crc32(name.encode()) % len(group)]


class Tree:
    """A checkpoint on disk: rank directories with their strategy, or one file of whole tensors."""

    def __init__(self, root, strategy=None, select="last"):
        self.strategy, self.loaded, self.built = strategy, {}, {}
        self.devices = strategy.devices if strategy else 1
        self.files = {0: [root]} if os.path.isfile(root) else {}
        for entry in [] if os.path.isfile(root) else os.listdir(root):
            if re.fullmatch("rank_[0-9]+", entry):
                self.files[int(entry[5:])] = choose(os.path.join(root, entry), select)

    def rank(self, rank):
        """Entries of one rank; several chosen files are laid over each other in name order."""
        if rank not in self.loaded:
            self.loaded[rank] = {}
            for path in self.files.get(rank, []):
                self.loaded[rank] |= read_file(path)
        return self.loaded[rank]

    def names(self):
        """Names that have a layout; in a file of whole tensors that is every one."""
        if not self.strategy:
            return set(self.rank(0))
        return {n for layouts in self.strategy.stages.values() for n in layouts}

    def stages_of(self, name):
        return [s for s, names in sorted(self.strategy.stages.items()) if name in names] if self.strategy else [0]

    def whole(self, name):
        """The tensor put together, from the lowest stage that stores it; None if none does."""
        if not self.strategy:
            return self.rank(0).get(name)
        for stage in self.stages_of(name):
            if (stage, name) not in self.built:
                self.built[stage, name] = self.build(stage, name)
            if self.built[stage, name]:
                return self.built[stage, name]
        return None

    def build(self, stage, name):
        layout, out, seen = self.strategy.stages[stage][name], None, None
        for local in range(self.devices):
            part = self.rank(stage * self.devices + local).get(name)
            if part is None:
                continue
            if out is None:
                shape = layout.whole_shape(part.shape)
                out, seen = Tensor(part.kind, np.zeros(shape, part.data.dtype), part.old_scalar), np.zeros(shape, bool)
            where = np.ix_(*layout.rows(local, out.shape)) if out.shape else ()
            out.data[where], seen[where] = part.data, True
        if out is not None and not seen.all():
            raise ValueError("'%s': no rank stores all of it" % name)
        return out


def choose(directory, select):
    paths = sorted(os.path.join(directory, n) for n in os.listdir(directory) if n.endswith((".ckpt", ".safetensors")))
    if select == "merge":
        return paths
    if all(p.endswith(".safetensors") for p in paths):  # by the last two numbers of the path
        paths.sort(key=lambda p: ([int(n) for n in re.findall("[0-9]+", p)][-2:], p))
    return paths[-1:]


def expected(tree, target, rank, unknown="keep", missing="error"):
    """Entries of one target file, in order. target: a Strategy, or None for whole tensors. This is
    'What a target rank holds' of docs/formats/mindspore.md, word by word."""
    stage, local = divmod(rank, target.devices) if target else (0, 0)
    here = target.stages[stage] if target else None
    anywhere = {n for layouts in target.stages.values() for n in layouts} if target else set()
    sourced, out = tree.names(), {}

    def wanted(name):
        return here is None or name in here

    def slice_of(name):
        whole = tree.whole(name)
        if whole is None:
            return None
        return here[name].cut(whole, local) if here is not None and not isinstance(whole, str) else whole

    needed = sorted({s for n in sourced if wanted(n) or n not in anywhere for s in tree.stages_of(n)})
    for s in needed:
        for name, item in tree.rank(s * tree.devices + local % tree.devices).items():
            if name in out or (name in sourced and name in anywhere and not wanted(name)):
                continue
            if name in sourced and wanted(name):
                out[name] = slice_of(name)
            elif name not in sourced or unknown == "keep":
                out[name] = item
            elif unknown == "replicate":
                out[name] = tree.whole(name)
            elif unknown == "error":
                raise ValueError("'%s': the target does not name it" % name)
    lacking = {n for n in (here if here is not None else sourced) if n not in out}
    for name in sorted(lacking, key=str.encode):
        item = slice_of(name) if name in sourced else None
        if item is not None:
            out[name] = item
        elif missing == "error" and here is not None:
            raise ValueError("'%s': wanted, and no file stores it" % name)
    return out


def expected_bytes(tree, target, rank, container, **options):
    """The bytes of a target file."""
    return file_bytes(expected(tree, target, rank, **options), container)


# ------------------------------------------------------------------------------- a small model

@dataclass
class Param:
    """A parameter of the model: which mesh axes cut which tensor axis, and where it stands."""
    name: str
    kind: str
    shape: tuple
    cut: dict = default(default_factory=dict)
    layer: int = None  # None: first stage; -1: last stage
    shared: bool = False


def model(layers=4, hidden=32, vocab=48, kind="BFloat16", shared=False, prefix="net"):
    """A transformer in small: column, row, expert and two-axis cuts, several types."""
    out = [Param(prefix + ".embed.table", kind, (vocab, hidden), {0: ["mp"]}, shared=shared)]
    for i in range(layers):
        base = "%s.blocks.%d." % (prefix, i)
        out += [
            Param(base + "qkv.weight", kind, (3 * hidden, hidden), {0: ["mp"]}, i),
            Param(base + "qkv.bias", kind, (3 * hidden,), {0: ["mp"]}, i),
            Param(base + "out.weight", kind, (hidden, hidden), {1: ["mp"]}, i),
            Param(base + "up.weight", "Float16", (2 * hidden, hidden), {0: ["mp"], 1: ["dp"]}, i),
            Param(base + "experts.down", kind, (4, 2 * hidden, hidden), {0: ["dp"], 2: ["mp"]}, i),
            Param(base + "table", "Float32", (48, 3), {0: ["dp", "mp"]}, i),
            Param(base + "norm.gamma", "Float32", (hidden,), {}, i),
        ]
    out += [Param(prefix + ".norm.gamma", "Float32", (hidden,), {}, -1),
            Param(prefix + ".head.weight", kind, (vocab, hidden), {0: ["mp"]}, -1)]
    return out


def values(seed, name, kind, shape, old_scalar=False):
    """Bits that depend on seed, name, type and shape alone, never all zero for long."""
    key = hashlib.sha256(("%s/%s/%s/%s" % (seed, name, kind, shape)).encode()).digest()
    raw = np.random.Generator(np.random.PCG64(int.from_bytes(key[:8], "big"))).bytes(
        max(1, math.prod(shape)) * WIDTH[kind])
    data = np.frombuffer(raw, carrier(kind))[:math.prod(shape)].reshape(shape)
    return Tensor(kind, data & 1 if kind == "Bool" else data, old_scalar)


def place(params, dp=1, mp=1, pp=1, opt=0, keep_ones=False, moments=True):
    """A Strategy for the model on dp x mp devices in pp stages, moments cut like their weights."""
    extents = {"dp": dp, "mp": mp}
    kept = [a for a in ("dp", "mp") if extents[a] > 1 or keep_ones]
    layers = 1 + max((p.layer for p in params if p.layer is not None), default=0)
    stages = {s: {} for s in range(pp)}
    for prefix in ("", "adam_m.", "adam_v.") if moments else ("",):
        for p in params:
            cut = []
            for axis in range(len(p.shape)):
                axes = [len(kept) - 1 - kept.index(a) for a in p.cut.get(axis, []) if a in kept]
                cut.append(-1 if not axes else axes[0] if len(axes) == 1 else axes)
            if any(isinstance(m, list) for m in cut):
                cut = [m if isinstance(m, list) else [m] for m in cut]
            layout = Layout([extents[a] for a in kept] or [1], cut, shape=list(p.shape))
            shard(layout, p.shape, opt)
            stage = 0 if p.layer is None else pp - 1 if p.layer < 0 else p.layer * pp // layers
            for s in {stage, pp - 1} if p.shared else {stage}:
                stages[s][prefix + p.name] = layout
    return Strategy(stages)


def shard(layout, shape, opt):
    """Ask for optimizer shards where the replicas and the length allow it."""
    if not opt or not shape:
        return
    replicas, parts = len(layout.twins(0)), layout.axis(0, 0)[1]
    n = replicas if opt < 0 else math.gcd(opt, replicas)
    if n > 1 and shape[0] % (parts * n) == 0:
        layout.opt = -1 if opt < 0 else n


def whole_tensors(params, seed=1, moments=True):
    out = {}
    for prefix in ("", "adam_m.", "adam_v.") if moments else ("",):
        for p in params:
            out[prefix + p.name] = values(seed, prefix + p.name, "Float32" if prefix else p.kind, p.shape)
    return out


def counters(seed=1, texts=False, old_scalars=False):
    """Entries without a layout, as training leaves them."""
    out = {"global_step": values(seed, "global_step", "Int32", (1,)),
           "loss_scale": values(seed, "loss_scale", "Float32", (), old_scalars),
           "epoch_num": values(seed, "epoch_num", "Int64", ()),
           "learning_rate": values(seed, "learning_rate", "Float32", (5,))}
    return out | ({"net_version": "v2 \u6743\u91cd", "remark": ""} if texts else {})


# --------------------------------------------------------------------------------- as a program

def compare(left, right):
    """Differences of two trees, byte by byte; a line for each."""
    def listing(root):
        return {os.path.relpath(os.path.join(d, f), root): os.path.join(d, f)
                for d, _, names in os.walk(root) for f in names}
    a, b, out = listing(left), listing(right), []
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            out.append("%s: only in %s" % (name, left if name in a else right))
            continue
        with open(a[name], "rb") as one, open(b[name], "rb") as two:
            if one.read() != two.read():
                out.append("%s: differs" % name)
    return out


def show(path):
    for name, item in read_file(path).items():
        if isinstance(item, str):
            print("%-40s text      %r" % (name, item))
        else:
            print("%-40s %-9s %-16s sha256 %s" % (name, item.kind, list(item.shape),
                                                  hashlib.sha256(item.raw()).hexdigest()[:12]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sub = parser.add_subparsers(dest="verb", required=True)
    mesh = argparse.ArgumentParser(add_help=False)
    for name in ("dp", "mp", "pp"):
        mesh.add_argument("--" + name, type=int, default=1)
    mesh.add_argument("--opt", type=int, default=0)
    mesh.add_argument("--layers", type=int, default=4)
    mesh.add_argument("--hidden", type=int, default=32)
    mesh.add_argument("--form", default="ckpt", choices=["ckpt", "json"], help="of the strategy")
    p = sub.add_parser("tree", parents=[mesh], help="write rank directories and their strategy")
    p.add_argument("out")
    p.add_argument("--container", default="ckpt", choices=["ckpt", "safetensors"])
    p = sub.add_parser("strategy", parents=[mesh], help="write a merged strategy file alone")
    p.add_argument("out")
    p = sub.add_parser("expect", help="write the files that a target must hold")
    p.add_argument("source")
    p.add_argument("source_strategy")
    p.add_argument("target", help="a strategy, or `full`")
    p.add_argument("out")
    p.add_argument("--container", default="ckpt", choices=["ckpt", "safetensors"])
    p = sub.add_parser("compare", help="two trees, byte by byte")
    p.add_argument("left")
    p.add_argument("right")
    p = sub.add_parser("show", help="the entries of a file")
    p.add_argument("path")
    args = parser.parse_args()

    if args.verb in ("tree", "strategy"):
        params = model(args.layers, args.hidden)
        strategy = place(params, args.dp, args.mp, args.pp, args.opt)
    if args.verb == "tree":
        write_strategies(args.out, strategy, args.form)
        write_tree(args.out, strategy, whole_tensors(params), lambda rank: counters(), args.container)
    elif args.verb == "strategy":
        write(args.out, strategy_bytes(strategy, None, args.form))
    elif args.verb == "expect":
        tree = Tree(args.source, read_strategy(args.source_strategy))
        target = None if args.target == "full" else read_strategy(args.target)
        for rank in range(target.ranks if target else 1):
            write(os.path.join(args.out, "rank_%d" % rank, "checkpoint_%d.%s" % (rank, args.container)),
                  expected_bytes(tree, target, rank, args.container))
    elif args.verb == "compare":
        lines = compare(args.left, args.right)
        print("\n".join(lines) or "the same, byte for byte")
        return 1 if lines else 0
    elif args.verb == "show":
        show(args.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
