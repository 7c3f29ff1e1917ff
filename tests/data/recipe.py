#!/usr/bin/env python3
"""Writes the golden trees beside it: `recipe.py DIR` (default: where it stands).

    golden/src       2 ranks of mp 2: a row cut, a column cut, an optimizer shard, counters, a text, a 0-d
                     tensor in the old form and in today's; rank 1 ends with a checksum
    golden/dst.ckpt  the strategy of 4 ranks, mp 4 (dst.json: the same in the JSON form)
    golden/want      what the 4 ranks must hold, as .ckpt; whole tensors as .safetensors in want/full

The values are counted up, so that a hex dump can be followed by eye. tests/integration/test_golden.py
holds this recipe to the files and the program to both; a change of either shows in a review.
"""
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import ckpt  # noqa: E402
from ckpt import Layout, Strategy, Tensor  # noqa: E402


def counted(kind, shape, begin=0, **more):
    n = int(np.prod(shape))
    return Tensor(kind, np.arange(begin, begin + n).astype(ckpt.carrier(kind)).reshape(shape), **more)


TENSORS = {"rows": counted("Float32", (8, 3), 0x1000), "columns": counted("BFloat16", (4, 8), 0x100),
           "shard": counted("Int32", (8,), 0x20000), "whole": counted("Int8", (5,))}
SOURCE = Strategy({0: {"rows": Layout([2], [0, -1]), "columns": Layout([2], [-1, 0]),
                       "shard": Layout([2], [-1], -1), "whole": Layout([2], [-1])}})
TARGET = Strategy({0: {"rows": Layout([4], [0, -1]), "columns": Layout([4], [-1, 0]),
                       "shard": Layout([4], [0]), "whole": Layout([4], [-1])}})
EXTRAS = {"global_step": counted("Int32", (1,), 7), "epoch": counted("Int64", (), 3),
          "momentum": counted("Float32", (), 0x3F000000, old_scalar=True), "version": "v2 \u6743\u91cd"}


def main(root):
    golden = Path(root) / "golden"
    for rank in range(2):
        entries = {n: l.cut(TENSORS[n], rank) for n, l in SOURCE.stages[0].items()} | EXTRAS
        ckpt.write(golden / ("src/rank_%d/net-1_2.ckpt" % rank), ckpt.ckpt_bytes(entries, crc=rank == 1))
    ckpt.write(golden / "src/strategy/strategy_0.ckpt", ckpt.strategy_bytes(SOURCE, 0))
    ckpt.write(golden / "dst.ckpt", ckpt.strategy_bytes(TARGET))
    for name, layout in TARGET.stages[0].items():
        layout.shape = list(TENSORS[name].shape)
    ckpt.write(golden / "dst.json", ckpt.strategy_bytes(TARGET, None, "json"))
    tree = ckpt.Tree(golden / "src", SOURCE)
    for rank in range(4):
        ckpt.write(golden / ("want/rank_%d/checkpoint_%d.ckpt" % (rank, rank)),
                   ckpt.expected_bytes(tree, TARGET, rank, "ckpt"))
    ckpt.write(golden / "want/full/checkpoint_0.safetensors", ckpt.expected_bytes(tree, None, 0, "safetensors"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else HERE)
