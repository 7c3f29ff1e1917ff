"""Plans by the slow and plain route: whole tensors as numpy arrays, every step done on the spot.

What the tests of plan files compare reshardfs with. Patterns are regular expressions, slices are
slices, groups are reshapes; nothing is composed, and no line is shared with the program. The
language is described in docs/plans.md.

    judge = Judge(plan, {name: ckpt.Tensor})     # in source order
    judge.rank(5)                                # {name: ckpt.Tensor}, in target order
"""
import itertools
import re
from fractions import Fraction

import numpy as np

import ckpt

FLOATS = {"Float64": (11, 52), "Float32": (8, 23), "Float16": (5, 10), "BFloat16": (8, 7)}
CASTS = {"F32": "Float32", "F16": "Float16", "BF16": "BFloat16"}


class Refused(Exception):
    """The plan does not fit."""


# ------------------------------------------------------------------------------------- numbers

def number(value, variables):
    """An integer, or an expression: Python's own grammar is wider, so the text is checked first."""
    if isinstance(value, int):
        return value
    if not re.fullmatch(r"[\w\s()+\-*/]+", value):
        raise Refused(value)
    scope = {n: Fraction(v) for n, v in variables.items()}
    text = re.sub(r"(?<![\w])(\d+)", r"Fraction(\1)", value)
    result = eval(text, {"__builtins__": {}, "Fraction": Fraction}, scope)  # noqa: S307 (our own plans)
    if result.denominator != 1 or result < 0:
        raise Refused("%s = %s" % (value, result))
    return int(result)


def cast_bits(bits, kind, to):
    """One element as an integer: round to nearest, ties to even; a NaN stays one, and is quiet."""
    (e_from, f_from), (e_to, f_to) = FLOATS[kind], FLOATS[to]
    sign, e, f = bits >> (e_from + f_from), bits >> f_from & ((1 << e_from) - 1), bits & ((1 << f_from) - 1)
    top, bias_from, bias_to = (1 << e_to) - 1, (1 << (e_from - 1)) - 1, (1 << (e_to - 1)) - 1
    high = sign << (e_to + f_to)
    if e == (1 << e_from) - 1:
        payload = f >> (f_from - f_to) if f_from >= f_to else f << (f_to - f_from)
        return high | top << f_to | (payload | 1 << (f_to - 1) if f else 0)
    value = Fraction(f if e == 0 else f | 1 << f_from) * Fraction(2) ** ((e or 1) - bias_from - f_from)
    if value == 0:
        return high
    low = 1 - bias_to  # exponent of the smallest normal number
    exponent = low
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    scaled = value / Fraction(2) ** (exponent - f_to)
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    half = Fraction(rest, scaled.denominator)
    whole += half > Fraction(1, 2) or (half == Fraction(1, 2) and whole % 2)
    # A fraction that overflows into the next exponent adds one to it by itself.
    out = whole if exponent == low and whole < 1 << f_to else (exponent - low << f_to) + whole
    return high | min(out, top << f_to)


def cast(item, to):
    if to == item.kind:
        return item
    if item.kind not in FLOATS:
        raise Refused("%s cannot be shown as %s" % (item.kind, to))
    flat = [cast_bits(int(b), item.kind, to) for b in item.data.reshape(-1)]
    return ckpt.Tensor(to, np.array(flat, ckpt.carrier(to)).reshape(item.data.shape))


# --------------------------------------------------------------------------------------- judge

class Judge:
    def __init__(self, plan, source, config=None, unmatched=None, missing=None):
        self.plan, self.source = plan, source
        self.names = list(source)
        self.variables = dict(config or {}) | plan.get("vars", {})
        self.axes = [(a["name"], a["size"]) for a in plan["mesh"]["axes"]]
        self.strict = {"unmatched": "error", "missing": "error", "uneven": "error"} | plan.get("strict", {})
        self.strict |= {"unmatched": unmatched} if unmatched else {}
        self.strict |= {"missing": missing} if missing else {}
        self.ranges = plan.get("ranges", {})
        self.ranks = int(np.prod([n for _, n in self.axes]))
        self.matches = [self.match(rule) for rule in plan["rules"]]
        self.shares = {name: self.deal(name) for name in self.ranges}

    def coordinates(self, rank):
        return dict(zip([n for n, _ in self.axes], np.unravel_index(rank, [n for _, n in self.axes])))

    # ---- patterns

    def regex(self, pattern):
        seen, out = set(), ""
        for literal, capture in re.findall(r"([^{}]+)|\{([^}]*)\}", pattern):
            if literal:
                out += re.escape(literal)
            elif capture in seen:
                out += "(?P=%s)" % capture
            else:
                seen.add(capture)
                out += "(?P<%s>%s)" % (capture, r"0|[1-9]\d*" if capture in self.ranges else r"[^.]+")
        return re.compile(out + r"\Z")

    def fill(self, pattern, values, local=None):
        def one(found):
            name, form = found.group(1), found.group(2)
            use = local and name in local and (form == ".l" or (not form and self.ranges[name].get("local")))
            return str(local[name] if use else values[name])
        return re.sub(r"\{(\w+)(\.[gl])?\}", one, pattern)

    def match(self, rule):
        """Values of the captures, for every source that a rule could be made from."""
        if "alias_of" in rule:
            return []
        parts = rule.get("concat", {}).get("parts") or [{"from": rule.get("from") or rule["drop"]}]
        stacked = rule["stack"]["over"] if "stack" in rule and not rule["stack"].get("split") else None
        every = set(re.findall(r"\{(\w+)", " ".join(p["from"] for p in parts))) - {stacked}
        found = []
        for part in parts:
            if every <= set(re.findall(r"\{(\w+)", part["from"])):
                found += [m.groupdict() for m in map(self.regex(part["from"]).match, self.names) if m]
        return found

    def deal(self, name):
        rng, size = self.ranges[name], dict(self.axes)[self.ranges[name]["axis"]]
        if "lists" in rng:
            return rng["lists"]
        if "sizes" in rng:
            ends = list(itertools.accumulate(rng["sizes"], initial=0))
            return [list(range(a, b)) for a, b in zip(ends, ends[1:])]
        if "count" in rng:
            count = number(rng["count"], self.variables)
        else:
            seen = [int(v[name]) + 1 for found in self.matches for v in found if name in v]
            for rule, found in zip(self.plan["rules"], self.matches):
                if rule.get("stack", {}).get("over") == name and rule["stack"].get("split") and found:
                    seen += [self.source[self.fill(rule["from"], v)].shape[rule["stack"]["dim"]] for v in found]
            count = max(seen, default=0)
        return [list(range(a, b)) for a, b in (self.interval(count, size, c, self.strict["uneven"])
                                               for c in range(size))]

    @staticmethod
    def interval(n, size, c, uneven):
        if n % size and uneven in ("error", None):
            raise Refused("%d over %d" % (n, size))
        if uneven == "balanced":
            ends = list(itertools.accumulate([n // size + (i < n % size) for i in range(size)], initial=0))
            return ends[c], ends[c + 1]
        each = -(-n // size)
        return min(c * each, n), min((c + 1) * each, n)

    # ---- steps on whole arrays

    def steps(self, data, rule, where):
        groups = number(rule.get("groups", 1), self.variables)
        for dim, start, stop in rule.get("slice", []):
            start, stop = number(start, self.variables), number(stop, self.variables)
            blocks = np.split(data, groups, axis=dim)
            data = np.concatenate([np.take(b, range(start, stop), axis=dim) for b in blocks], axis=dim)
        if "transpose" in rule:
            data = np.transpose(data, rule["transpose"])
        if "trim" in rule:
            data = np.take(data, range(self.fitted(rule["trim"], data, False)), axis=rule["trim"]["dim"])
        if "pad" in rule:
            data = self.pad(data, rule["pad"])
        for cut in rule.get("cut", []) if data.ndim else []:
            data = self.cut(data, cut, where)
        return data

    def fitted(self, fit, data, up):
        n = data.shape[fit["dim"]]
        if "to" in fit:
            return number(fit["to"], self.variables)
        multiple = number(fit["multiple"], self.variables)
        return -(-n // multiple) * multiple if up else n // multiple * multiple

    def pad(self, data, fit):
        rows = self.fitted(fit, data, True) - data.shape[fit["dim"]]
        if rows < 0:
            raise Refused("pad")
        last = np.take(data, [-1] if data.shape[fit["dim"]] else [], axis=fit["dim"])
        more = np.repeat(last, rows, axis=fit["dim"])
        if fit.get("fill") != "last":
            shape = list(data.shape)
            shape[fit["dim"]] = rows
            more = np.zeros(shape, data.dtype)
        return np.concatenate([data, more], axis=fit["dim"])

    def cut(self, data, cut, where):
        dim, size, c = cut["dim"], dict(self.axes)[cut["axis"]], int(where[cut["axis"]])
        unit = number(cut.get("unit", 1), self.variables)
        uneven = cut.get("uneven", self.strict["uneven"])
        k, rest = divmod(data.shape[dim], unit)
        if rest:
            raise Refused("unit")
        if cut.get("few") == "replicate" and 0 < k < size:
            if size % k:
                raise Refused("few")
            first = c // (size // k)
            return np.take(data, range(first * unit, (first + 1) * unit), axis=dim)
        start, stop = self.interval(k, size, c, uneven)
        out = np.take(data, range(start * unit, stop * unit), axis=dim)
        if uneven == "pad":
            out = self.pad(out, {"dim": dim, "to": -(-k // size) * unit})
        return out

    # ---- one target

    def operand(self, part, values, rule, where):
        name = self.fill(part["from"], values)
        if name not in self.source:
            raise KeyError(name)
        data = self.source[name].data
        stack = rule.get("stack", {})
        if stack.get("split"):
            data = np.take(data, int(values[stack["over"]]), axis=stack["dim"])
        self.touched.add(name)
        self.kinds.add(self.source[name].kind)
        self.first = self.first or name
        return self.steps(data, {k: v for k, v in part.items() if k != "from"}, where)

    def element(self, rule, values, where):
        if "concat" in rule:
            parts = [self.operand(p, values, rule, where) for p in rule["concat"]["parts"]]
            groups = number(rule["concat"].get("groups", 1), self.variables)
            dim = rule["concat"]["dim"]
            data = np.concatenate([b for block in zip(*[np.split(p, groups, axis=dim) for p in parts])
                                   for b in block], axis=dim)
        else:
            data = self.operand({"from": rule["from"]}, values, rule, where)
        return self.steps(data, rule, where)

    def value(self, rule, values, where):
        self.touched, self.kinds, self.first = set(), set(), None
        stack = rule.get("stack")
        if not stack or stack.get("split"):
            data = self.element(rule, values, where)
        else:
            share = self.shares[stack["over"]][int(where[self.ranges[stack["over"]]["axis"]])]
            data = np.stack([self.element(rule, values | {stack["over"]: e}, where) for e in share],
                            axis=stack["dim"])
        if len(self.kinds) > 1:
            raise Refused("kinds")
        return ckpt.Tensor(self.kinds.pop(), data)

    def places(self, rule, values, where):
        """Local numbers of all ranges in the name, or None where this rank has no share in one."""
        split = rule.get("stack", {}).get("over") if rule.get("stack", {}).get("split") else None
        choices = [(values | {split: e}) for e in range(10 ** 4)] if split else [values]
        for v in choices:
            local = {}
            for name in v:
                if name in self.ranges:
                    share = self.shares[name][int(where[self.ranges[name]["axis"]])]
                    if int(v[name]) not in share:
                        break
                    local[name] = share.index(int(v[name]))
            else:
                yield v, local
            if split and int(v[split]) >= max((i for s in self.shares[split] for i in s), default=-1):
                return

    def here(self, rule, where):
        for axis, on in rule.get("on", {}).items():
            size = dict(self.axes)[axis]
            if int(where[axis]) not in ({"first": [0], "last": [size - 1]}.get(on) if isinstance(on, str) else on):
                return False
        return True

    def scale(self, rule, values, local, where):
        """Every weight is exchanged for an array that says which scale each of its elements has."""
        name = self.fill(rule["scale_of"], values, local)
        weight, w_values, w_local = self.found[name]
        parts = [p["from"] for p in rule.get("concat", {}).get("parts") or [{"from": rule["from"]}]]
        w_parts = [p["from"] for p in weight.get("concat", {}).get("parts") or [{"from": weight["from"]}]]
        spread, kept = dict(self.source), self.source
        over = weight.get("stack", {}).get("over")
        shares = self.shares[over][int(where[self.ranges[over]["axis"]])] if over else [0]
        for e in shares:
            for s, w in zip(parts, w_parts):
                of = self.fill(s, values | ({over: e} if over else {}))
                to = self.fill(w, w_values | ({over: e} if over else {}))
                item, data = kept[of], kept[of].data
                for axis, block in enumerate(rule["block"]):
                    data = np.repeat(data, block, axis=axis)
                spread[to] = ckpt.Tensor(item.kind, data[tuple(slice(0, n) for n in kept[to].shape)])
        self.source = spread
        try:
            out = self.value(weight, w_values, where)
        finally:
            self.source = kept
        self.first = self.fill(parts[0], values | ({over: shares[0]} if over else {}))
        block = list(rule["block"])
        if over and weight["stack"].get("split"):
            block.pop(weight["stack"]["dim"])
        elif over:
            block.insert(weight["stack"]["dim"], 1)
        if "transpose" in weight:
            block = [block[i] for i in weight["transpose"]]
        return ckpt.Tensor(out.kind, out.data[tuple(slice(None, None, b) for b in block)])

    def rank(self, rank):
        where, out, order, self.found = self.coordinates(rank), {}, {}, {}
        used = set()

        def give(name, item, index, first):
            out[name] = item
            order[name] = (self.names.index(first), index, name.encode())

        for index, rule in enumerate(self.plan["rules"]):
            if "drop" in rule or not self.here(rule, where):
                continue
            if "alias_of" in rule:
                pattern = re.compile("".join(
                    re.escape(a) if a else "(?P<%s>[^.]+)" % b
                    for a, b in re.findall(r"([^{}]+)|\{(\w+)\}", rule["alias_of"])) + r"\Z")
                bases = self.every(where, "on" not in rule)
                for base in [n for n in bases if pattern.match(n)]:
                    name = self.fill(rule["to"], pattern.match(base).groupdict())
                    if name not in out:
                        base_rule, values = bases[base]
                        item = self.value(base_rule, values, where)
                        kind = rule.get("dtype", base_rule.get("dtype", "keep"))
                        give(name, item if kind == "keep" else cast(item, CASTS[kind]), index, self.first)
                continue
            for values in self.matches[index]:
                for v, local in self.places(rule, values, where):
                    name = self.fill(rule["to"], v, local)
                    if name in out:
                        continue
                    try:
                        if "scale_of" in rule:
                            item = self.scale(rule, v, local, where)
                        else:
                            item = self.value(rule, v, where)
                    except KeyError:
                        if rule.get("optional") or self.strict["missing"] == "skip":
                            continue
                        raise
                    kind = rule.get("dtype", "keep")
                    self.found[name] = (rule, v, local)
                    used |= self.touched
                    give(name, item if kind == "keep" else cast(item, CASTS[kind]), index, self.first)
        if self.strict["unmatched"] == "replicate":
            for name in self.names:
                if name not in self.used() and name not in out and not self.dropped(name):
                    out[name] = self.source[name]
                    order[name] = (self.names.index(name), len(self.plan["rules"]), name.encode())
        return {name: out[name] for name in sorted(out, key=order.get)}

    # ---- what rules make where, without looking at placement

    def every(self, where, on):
        """{name: (rule, values)} of the rules that are no aliases; an alias may be elsewhere than its target."""
        made = {}
        for index, rule in enumerate(self.plan["rules"]):
            if "drop" in rule or "alias_of" in rule or (on and not self.here(rule, where)):
                continue
            for values in self.matches[index]:
                for v, local in self.places(rule, values, where):
                    made.setdefault(self.fill(rule["to"], v, local), (rule, v))
        return made

    def used(self):
        if not hasattr(self, "_used"):
            self._used, self.strict = set(), self.strict | {"unmatched": "drop"}
            names = set()
            for rank in range(self.ranks):
                for name, (rule, values, _) in (self.rank(rank), self.found)[1].items():
                    self.value(rule, values, self.coordinates(rank))
                    names |= self.touched
            self._used, self.strict = names, self.strict | {"unmatched": "replicate"}
        return self._used

    def dropped(self, name):
        return any("drop" in r and self.regex(r["drop"]).match(name) for r in self.plan["rules"])
