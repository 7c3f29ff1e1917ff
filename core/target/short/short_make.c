/*
 * short_make.c - ways to be cut and the sizes of a short target become an ordinary strategy.
 *
 *   tp4.ep2.dp8, a tensor [experts, h, f] cut by ep on axis 0 and by tp on axis 2:
 *   the words, outermost first, are the device matrix: dev [8, 2, 4]
 *   ep is its second dimension from the right, tp the first: map [1, -1, 0]
 *
 * Refuses lengths that do not divide, with the sizes that would; a role that no tensor of the
 * source shows; shards that do not divide the replicas. Read next: cut.c, which goes by the result.
 */
#include "core/target/cut.h"
#include "core/target/short/short.h"

#include <inttypes.h>
#include <stdio.h>

#define DIVISORS_SHOWN 12

const char *rs__divisors(uint64_t n, uint32_t most, char *buf, size_t size)
{
	uint32_t shown = 0;
	size_t at = 0;

	buf[0] = '\0';
	for (uint64_t d = 1; d <= n && d <= 4096 && shown < most && at + 8 < size; d++)
		if (n % d == 0) {
			at += (size_t)snprintf(
				buf + at, size - at, "%s%" PRIu64, shown ? " " : "", d);
			shown++;
		}
	return buf;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;
		a = b;
		b = r;
	}
	return a;
}

/* ---------------------------------------------------------------- ways to layouts */

/* Device dimension of each role, counted from the right; -1: not there. */
static void make_matrix(const struct rs__short *s, struct rs_layout *l, int32_t *dim_of)
{
	int32_t right = 0;

	for (uint32_t r = 0; r < RS__N_ROLES; r++)
		dim_of[r] = RS_MAP_NONE;
	for (uint32_t i = 0; i < s->n_words; i++)
		if (s->roles[i] != RS__PP && s->words[i].size > 1)
			dim_of[s->roles[i]] = right++;
	for (uint32_t i = s->n_words; i-- > 0;)
		if (dim_of[s->roles[i]] != RS_MAP_NONE)
			l->dev[l->n_dev++] = (uint32_t)s->words[i].size;
	if (l->n_dev == 0)
		l->dev[l->n_dev++] = 1;
}

static void make_plain(const struct rs__short *s, struct rs__way *way)
{
	struct rs_layout *l = &way->plain;
	int32_t dim_of[RS__N_ROLES];

	make_matrix(s, l, dim_of);
	l->n_axes = way->n_axes;
	for (uint32_t a = 0; a < way->n_axes; a++) {
		uint32_t end = l->map_first[a];

		way->parts[a] = 1;
		for (uint32_t i = way->first[a]; i < way->first[a + 1]; i++) {
			if (dim_of[way->roles[i]] == RS_MAP_NONE)
				continue;
			l->map[end++] = dim_of[way->roles[i]];
			way->parts[a] *= s->size[way->roles[i]];
		}
		l->nested |= end > l->map_first[a] + 1;
		if (end == l->map_first[a])
			l->map[end++] = RS_MAP_NONE;
		l->map_first[a + 1] = end;
	}
}

/* The redundant number that files state: the distance of ranks that hold the same slice. */
static int find_step(struct rs_layout *l, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(UINT64_C(1) << 30, err);
	struct rs_grid *g;
	int rc = -1;

	if (arena && rs_layout_grid(l, l->n_axes, arena, &g, err) == 0) {
		uint32_t n = g->first[1] - g->first[0];
		l->opt_step = (int32_t)((g->holders[n - 1] - g->holders[0]) / (n - 1));
		rc = 0;
	}
	rs_arena_free(arena);
	return rc;
}

static int make_sharded(const struct rs_target *t, const struct rs__short *s,
	const struct rs__subject *user, struct rs_err *err)
{
	struct rs__way *way = user->way;
	uint64_t replicas = s->n_ranks / s->size[RS__PP];

	way->sharded = way->plain;
	way->shards = 1;
	for (uint32_t a = 0; a < way->n_axes; a++)
		replicas /= way->parts[a];
	if (!s->opt || !way->shard || way->n_axes == 0 || replicas == 1)
		return 0;
	if (s->opt_size && replicas % s->opt_size) {
		rs_fail(err, RS_USAGE,
			"target %s: tensor '%s' is held by %" PRIu64 " ranks alike, not divisible "
			"by opt%" PRIu64,
			t->opts.target, RS_SHOW(user->tensor->name), replicas, s->opt_size);
		return rs_hint(err, "possible here: opt (all of them), or opt with one of: %s",
			rs__divisors(replicas, DIVISORS_SHOWN, (char[96]){0}, 96));
	}
	way->shards = s->opt_size ? s->opt_size : replicas;
	if (way->shards == 1)
		return 0;
	if (find_step(&way->plain, err) < 0)
		return -1;
	way->sharded.opt_step = way->plain.opt_step;
	way->plain.opt_step = 0;
	way->sharded.opt_size = s->opt_size ? (int32_t)s->opt_size : -1;
	return 0;
}

static int make_ways(const struct rs_target *t, const struct rs__short *s, struct rs__subjects *all,
	struct rs_err *err)
{
	for (uint64_t i = 0; i < all->n; i++) {
		struct rs__way *way = all->at[i].way;

		if (way->made)
			continue;
		way->made = true;
		make_plain(s, way);
		if (make_sharded(t, s, &all->at[i], err) < 0)
			return -1;
	}
	return 0;
}

/* -------------------------------------------------------------------- refusals */

static bool way_has(const struct rs__way *way, enum rs__role role)
{
	for (uint32_t i = 0; i < way->first[way->n_axes]; i++)
		if (way->roles[i] == role)
			return true;
	return false;
}

/* A role above 1 must have been seen at work: dp alone also means plain copies. */
static int check_told(const struct rs_target *t, const struct rs__short *s,
	const struct rs__subjects *all, struct rs_err *err)
{
	static const enum rs__role cutting[] = {RS__TP, RS__EP};
	bool shard = false;

	for (uint64_t i = 0; i < all->n; i++)
		shard |= all->at[i].way->shard;
	for (size_t r = 0; r < sizeof(cutting) / sizeof(cutting[0]); r++) {
		bool seen = s->size[cutting[r]] == 1;
		for (uint64_t i = 0; i < all->n && !seen; i++)
			seen = way_has(all->at[i].way, cutting[r]);
		if (seen)
			continue;
		rs_fail(err, RS_USAGE,
			"target %s: no tensor of %s is cut by %s, so nothing tells which axis it "
			"cuts",
			t->opts.target, t->source->opts.path, rs__role_names[cutting[r]]);
		return rs_hint(err, "give the strategy of the target, or the rules: -o plan=NAME");
	}
	if (s->opt && !shard) {
		rs_fail(err, RS_USAGE,
			"target %s: no tensor of %s has an optimizer shard, so nothing tells which "
			"have one",
			t->opts.target, t->source->opts.path);
		return rs_hint(err, "give the strategy of the target, or leave out opt");
	}
	return 0;
}

/* What the other roles of an axis leave to @role; 0 when they alone do not divide it. */
static uint64_t left_for(
	const struct rs__short *s, const struct rs__subject *u, uint32_t axis, enum rs__role role)
{
	uint64_t others = u->way->parts[axis] / s->size[role];
	uint64_t len = u->tensor->shape.dims[axis];

	return len % others ? 0 : len / others;
}

static bool axis_has(const struct rs__way *way, uint32_t axis, enum rs__role role)
{
	for (uint32_t i = way->first[axis]; i < way->first[axis + 1]; i++)
		if (way->roles[i] == role)
			return true;
	return false;
}

static int refuse_cut(const struct rs_target *t, const struct rs__short *s,
	const struct rs__subjects *all, const struct rs__subject *u, uint32_t axis,
	struct rs_err *err)
{
	enum rs__role role = u->way->roles[u->way->first[axis]];
	uint64_t common = 0;

	for (uint32_t i = u->way->first[axis]; i < u->way->first[axis + 1]; i++)
		if (s->size[u->way->roles[i]] > 1 && left_for(s, u, axis, u->way->roles[i]))
			role = u->way->roles[i];
	for (uint64_t i = 0; i < all->n; i++)
		for (uint32_t a = 0; a < all->at[i].way->n_axes; a++)
			if (axis_has(all->at[i].way, a, role))
				common = gcd(common, left_for(s, &all->at[i], a, role));
	rs_fail(err, RS_USAGE,
		"target %s: tensor '%s' dim %" PRIu32 " is %" PRIu64 ", not divisible by %" PRIu64,
		t->opts.target, RS_SHOW(u->tensor->name), axis, u->tensor->shape.dims[axis],
		u->way->parts[axis]);
	return rs_hint(err, "possible %s for this model: %s", rs__role_names[role],
		rs__divisors(common, DIVISORS_SHOWN, (char[96]){0}, 96));
}

static int check_cuts(const struct rs_target *t, const struct rs__short *s,
	const struct rs__subjects *all, struct rs_err *err)
{
	for (uint64_t i = 0; i < all->n; i++) {
		const struct rs__subject *u = &all->at[i];
		for (uint32_t a = 0; a < u->way->n_axes && a < u->tensor->shape.n_axes; a++)
			if (u->tensor->shape.dims[a] % u->way->parts[a])
				return refuse_cut(t, s, all, u, a, err);
	}
	return 0;
}

/* -------------------------------------------------------------------- strategy */

/* The layout of one tensor: sharded where its rows divide, as in the framework. */
static const struct rs_layout *layout_of(
	const struct rs__subject *u, uint64_t *n_whole, struct rs_str *first_whole)
{
	const struct rs__way *way = u->way;

	if (way->shards == 1)
		return &way->plain;
	if (u->tensor->shape.n_axes && u->tensor->shape.dims[0] / way->parts[0] % way->shards == 0)
		return &way->sharded;
	if ((*n_whole)++ == 0)
		*first_whole = u->tensor->name;
	return &way->plain;
}

static int make_strategy(struct rs_target *t, const struct rs__subjects *all, struct rs_err *err)
{
	struct rs_str first_whole = {0};
	uint64_t n = 0, n_whole = 0;
	int rc;

	for (uint64_t i = 0; i < all->n; i++)
		n += all->at[i].n_stages;
	struct rs_placed *params = rs_alloc(rs_max(n, 1) * sizeof(*params), err);
	if (!params)
		return -1;
	n = 0;
	for (uint64_t i = 0; i < all->n; i++) {
		const struct rs__subject *u = &all->at[i];
		const struct rs_layout *l = layout_of(u, &n_whole, &first_whole);
		for (uint32_t k = 0; k < u->n_stages; k++)
			params[n++] = (struct rs_placed){u->tensor->name, u->stages[k], l};
	}
	if (n_whole)
		rs_note(&t->notes,
			"'%s' and %" PRIu64 " more tensors have no optimizer shard: their rows do "
			"not divide",
			RS_SHOW(first_whole), n_whole - 1);
	rc = rs_strategy_make(t->opts.target, params, n, &t->strategy, err);
	rs_free(params);
	return rc;
}

static int make(struct rs_target *t, const struct rs__short *s, struct rs__subjects *all,
	struct rs_err *err)
{
	if (all->n == 0)
		return rs_fail(err, RS_USAGE,
			"target %s: no tensor of %s has a layout, so there is nothing to cut",
			t->opts.target, t->source->opts.path);
	if (check_told(t, s, all, err) < 0 || make_ways(t, s, all, err) < 0 ||
		check_cuts(t, s, all, err) < 0 || make_strategy(t, all, err) < 0 ||
		rs__cut_open(t, err) < 0)
		return -1;
	t->mindspore = t->source->mindspore; /* the strategy is nobody's file */
	return 0;
}

/* ------------------------------------------------------------------------ kind */

static int bind_strategy(struct rs_target *t, struct rs_err *err)
{
	const struct rs__short *s = t->priv;
	uint64_t n_ranks = t->n_ranks;
	struct rs__subjects all;

	if ((t->source->strategy ? rs__short_mindspore(t, s, &all, err)
				 : rs__short_pieces(t, s, &all, err)) < 0 ||
		rs__short_stages(t, s, &all, err) < 0 || make(t, s, &all, err) < 0)
		return -1;
	if (t->n_ranks == n_ranks)
		return 0;
	return rs_fail(err, RS_USAGE,
		"target %s: %" PRIu64 " ranks, but %s has tensors for %" PRIu64 " of them only",
		t->opts.target, n_ranks, t->source->opts.path, t->n_ranks);
}

static const struct rs_target_ops by_strategy = {
	.name = "short",
	.bind = bind_strategy,
	.check = rs__cut_check,
	.needs = rs__cut_needs,
	.list = rs__cut_list,
};

int rs__short_open(struct rs_target *t, struct rs__short *s, struct rs_err *err)
{
	if (rs__short_roles(s, rs_str(t->opts.target), err) < 0)
		return -1;
	t->ops = &by_strategy;
	t->priv = s;
	t->n_ranks = s->n_ranks;
	t->stage_devices = s->n_ranks / s->size[RS__PP];
	t->mindspore = t->source->mindspore;
	return 0;
}
