#!/usr/bin/env python3
"""How the golden checkpoints beside this file were made: one of each version of Paddle's format.

    recipe.py DIR     writes DIR/VERSION/ and DIR/VERSION.safetensors, the whole tensors

Two ranks save: "w" is cut along its rows (3 and 2), "名.b" is on both, the rest is on one. From flex2
on "flat" is cut into stretches of a 4 x 3 box. Paddle is not needed: its classes are plain, so
stand-ins of the same name pickle to the same bytes. Needs numpy (written with 1.24, CPython 3.11).
"""
import json
import pickle
import struct
import sys
import types
from pathlib import Path

import numpy as np

OLD, NEW = "paddle.distributed.checkpoint.metadata", "paddle.distributed.flex_checkpoint.dcp.metadata"
# version: module, protocol, attributes beyond those of 2023
VERSIONS = {"v2023": (OLD, 2, []), "seed": (OLD, 4, ["dtype"]), "flex1": (NEW, 3, ["dtype"]),
            "flex2": (NEW, 4, ["dtype", "global_shape", "is_flattened", "flattened_range"]),
            "flex3": (NEW, 5, ["dtype", "global_shape", "is_flattened", "flattened_range", "replica_id"])}
TYPES = {"<f4": ("float32", "F32"), "<u2": ("bfloat16", "BF16"), "<i8": ("int64", "I64"), "|b1": ("bool", "BOOL")}

W = np.arange(30, dtype="<f4").reshape(5, 6)
B = (np.arange(7) * 9001).astype("<u2")
TENSORS = {"w": W, "名.b": B, "step": np.array(7, "<i8"), "mask": np.array([[True], [False]]),
           "none": np.zeros((0, 3), "<f4"), "flat": np.arange(12, dtype="<f4").reshape(4, 3) + 0.5}


def make(module, name, **fields):
    """An object that pickles as one of Paddle's dataclasses."""
    for i in range(module.count(".") + 1):
        part = ".".join(module.split(".")[:i + 1])
        sys.modules.setdefault(part, types.ModuleType(part))
    cls = getattr(sys.modules[module], name, None) or type(name, (), {"__module__": module, "__qualname__": name})
    setattr(sys.modules[module], name, cls)
    thing = cls()
    thing.__dict__.update(fields)
    return thing


def write(root, version):
    module, protocol, more = VERSIONS[version]
    root.mkdir(parents=True, exist_ok=True)
    files, shards, places = [{}, {}], {}, {}

    def shard(rank, key, offset, array, shape=None, flat=None, replica=None):
        shape = shape or array.shape
        extra = {"dtype": TYPES[TENSORS[key].dtype.str][0], "global_shape": TENSORS[key].shape,
                 "is_flattened": flat is not None, "flattened_range": flat, "replica_id": replica}
        known = {k: extra[k] for k in more}
        files[rank][key] = array
        index = {k: known[k] for k in more if k in ("is_flattened", "flattened_range", "replica_id")}
        places[make(module, "LocalTensorIndex", tensor_key=key, global_offset=offset, **index)] = "%d_0.distcp" % rank
        if not replica:
            known.pop("replica_id", None)
            shards.setdefault(key, []).append(make(module, "LocalTensorMetadata", global_offset=offset,
                                                   local_shape=shape, **known))

    shard(0, "w", (0, 0), np.asfortranarray(W[:3]))
    shard(1, "w", (3, 0), W[3:].astype(">f4"))
    if version == "flex3":
        shard(0, "名.b", (0,), B, replica=1)
    shard(1, "名.b", (0,), B)
    shard(0, "step", (), TENSORS["step"])
    shard(0, "mask", (0, 0), TENSORS["mask"])
    shard(1, "none", (0, 0), TENSORS["none"])
    if "is_flattened" in more:
        line = TENSORS["flat"].reshape(-1)
        shard(0, "flat", (0, 0), line[:5].copy(), (4, 3), (0, 5))
        shard(1, "flat", (0, 0), line[5:].copy(), (4, 3), (5, 12))
    for rank, arrays in enumerate(files):
        arrays["StructuredToParameterName@@"] = {k: "linear_%d.w_0" % i for i, k in enumerate(arrays)}
        (root / ("%d_0.distcp" % rank)).write_bytes(pickle.dumps(arrays, protocol))
    metadata = make(module, "Metadata", state_dict_metadata=shards, storage_metadata=places,
                    flat_mapping={k: tuple(k.split(".")) for k in shards})
    (root / "0.metadata").write_bytes(pickle.dumps(metadata, protocol))
    return list(shards)


def write_truth(path, keys):
    head, data = {}, b""
    for key in sorted(keys):
        raw = TENSORS[key].tobytes()
        head[key] = {"dtype": TYPES[TENSORS[key].dtype.str][1], "shape": list(TENSORS[key].shape),
                     "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for version in VERSIONS:
        write_truth(Path(sys.argv[1]) / (version + ".safetensors"), write(Path(sys.argv[1]) / version, version))
