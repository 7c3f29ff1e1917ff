#!/usr/bin/env python3
"""How fast a mount reads, as a ratio to its own materialized twin in the same run.

Every case reads one file: of the mount, and a real copy of it. Both page caches of the sources are
warm; the mount's own cache is dropped before each first read and kept for each second one. The runs
of all cases are interleaved and the medians compared, so that a noisy machine harms both sides alike.
Prints a table, and one JSON object with everything (BENCH_JSON=FILE: there instead). SIZE=N: MiB
of the source tensor, default 512. RUNS=N: default 7.
"""
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "lib"))
import ckpt  # noqa: E402
from ckpt import Layout, Strategy  # noqa: E402

PROGRAM = os.path.abspath(os.environ.get("RESHARDFS") or REPO / "build/release/reshardfs")
SIZE = int(os.environ.get("SIZE", 512)) << 20
RUNS = int(os.environ.get("RUNS", 7))
COLUMNS = 8192  # of two bytes: a source row is 16 KiB, an eighth of it 2 KiB

# name, layout of the source, layout of the target, rank that is read
CASES = [
    ("rows: one run", Layout([1], [-1, -1]), Layout([2], [0, -1]), 1),
    ("join of 4 by rows", Layout([4], [0, -1]), Layout([1], [-1, -1]), 0),
    ("columns: 8 KiB of 16", Layout([1], [-1, -1]), Layout([2], [-1, 0]), 1),
    ("columns: 2 KiB of 16", Layout([1], [-1, -1]), Layout([8], [-1, 0]), 3),
    ("join of 2 by columns", Layout([2], [-1, 0]), Layout([1], [-1, -1]), 0),
]


class Case:
    def __init__(self, root, name, source, target, rank):
        self.name, self.root = name, root
        rows = SIZE // (2 * COLUMNS)
        whole = np.random.Generator(np.random.PCG64(1)).integers(0, 1 << 16, (rows, COLUMNS), np.uint16)
        for local in range(source.devices):
            entries = {"w": source.cut(ckpt.Tensor("BFloat16", whole), local)}
            ckpt.write(root / ("src/rank_%d/x.ckpt" % local), ckpt.ckpt_bytes(entries))
        ckpt.write_strategies(root / "src", Strategy({0: {"w": source}}))
        ckpt.write(root / "dst.ckpt", ckpt.strategy_bytes(Strategy({0: {"w": target}})))
        self.point, self.times = root / "mnt", {}
        self.point.mkdir()
        begin = time.monotonic()
        self.process = subprocess.Popen([PROGRAM, str(root / "src"), str(self.point), "-f", "-o",
                                         "target=%s" % (root / "dst.ckpt")])
        while not os.path.ismount(self.point):
            if self.process.poll() is not None or time.monotonic() - begin > 60:
                sys.exit("bench: %s did not mount" % name)
            time.sleep(0.002)
        self.mount_ms = (time.monotonic() - begin) * 1000
        self.file = self.point / ("rank_%d/checkpoint_%d.ckpt" % (rank, rank))
        self.twin = root / "twin"
        subprocess.run(["cp", str(self.file), str(self.twin)], check=True)
        want = ckpt.ckpt_bytes({"w": target.cut(ckpt.Tensor("BFloat16", whole), rank)})
        if self.twin.read_bytes() != want:
            sys.exit("bench: %s: wrong bytes, so its speed does not matter" % name)
        self.bytes = len(want)
        for path in (root / "src").rglob("*.ckpt"):
            path.read_bytes()  # sequential reads make the large folios that later reads profit from

    def run(self):
        note = lambda what, seconds: self.times.setdefault(what, []).append(seconds)  # noqa: E731
        note("twin", cat(self.twin))
        drop(self.file)
        note("first", cat(self.file))
        note("again", cat(self.file))
        drop(self.file)
        note("direct", cat(self.file, direct=True))
        note("twin mapped", copy_map(self.twin))
        drop(self.file)
        note("mapped", copy_map(self.file))

    def memory(self):
        """What nobody else has and the kernel cannot drop; mapped pages of sources are the page cache's."""
        rollup = Path("/proc/%d/smaps_rollup" % self.process.pid).read_text()
        return sum(int(l.split()[1]) for l in rollup.splitlines() if l.startswith("Anonymous:")) << 10

    def result(self):
        median = {k: statistics.median(v) for k, v in self.times.items()}
        return {"case": self.name, "bytes": self.bytes, "mount_ms": round(self.mount_ms, 1),
                "twin_gb_s": round(self.bytes / median["twin"] / 1e9, 2),
                "first": round(median["twin"] / median["first"], 3),
                "again": round(median["twin"] / median["again"], 3),
                "direct": round(median["twin"] / median["direct"], 3),
                "mapped": round(median["twin mapped"] / median["mapped"], 3),
                "private_bytes": self.memory()}

    def close(self):
        subprocess.run(["fusermount3", "-u", str(self.point)], check=True)
        return self.process.wait(30)


def cat(path, direct=False):
    """What cat does: reads of 1 MiB (4 MiB direct) into one buffer, to the end; seconds."""
    size, buffer = (4 << 20 if direct else 1 << 20), mmap.mmap(-1, 4 << 20)  # page aligned
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    view = memoryview(buffer)[:size]
    begin = time.perf_counter()
    while os.readv(fd, [view]):
        pass
    seconds = time.perf_counter() - begin
    os.close(fd)
    return seconds


def copy_map(path):
    """What a loader does: map, and copy out of the mapping."""
    with open(path, "rb") as src:
        begin = time.perf_counter()
        with mmap.mmap(src.fileno(), 0, access=mmap.ACCESS_READ) as view:
            for at in range(0, len(view), 8 << 20):
                bytes(memoryview(view)[at:at + (8 << 20)])
        return time.perf_counter() - begin


def drop(path):
    """Forget the cached pages of the virtual file; those of its sources stay."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def table(rows):
    print("%-22s %9s %9s %7s %7s %7s %7s %9s" % (
        "case", "MB", "twin GB/s", "first", "again", "direct", "mapped", "private"))
    for r in rows:
        print("%-22s %9.1f %9.2f %7.2f %7.2f %7.2f %7.2f %6.1f MB" % (
            r["case"], r["bytes"] / 1e6, r["twin_gb_s"], r["first"], r["again"], r["direct"], r["mapped"],
            r["private_bytes"] / 1e6))
    print("ratios to reading the materialized twin; private: memory of the daemon, without mapped source pages")


def main():
    if not os.path.exists("/dev/fuse"):
        sys.exit("bench: /dev/fuse is not there, and without a mount there is nothing to measure")
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as root:
        cases = []
        try:
            for i, case in enumerate(CASES):
                cases.append(Case(Path(root) / str(i), *case))
            for _ in range(RUNS):
                for case in cases:
                    case.run()
            rows = [case.result() for case in cases]
        finally:
            bad = [case.name for case in cases if case.close() != 0]
    table(rows)
    report = json.dumps({"schema": "reshardfs.bench/1", "cpus": os.cpu_count(), "kernel": os.uname().release,
                         "runs": RUNS, "cases": rows}, indent=1)
    if os.environ.get("BENCH_JSON"):
        Path(os.environ["BENCH_JSON"]).write_text(report + "\n")
    else:
        print(report)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
