/*
 * rules.c - targets that go by a plan: a JSON file with `reshard_plan`, or the rules of one with
 * the sizes of another mesh.
 *
 * Opening reads the plan. Binding, once the source is described, says what is made from what and
 * on which ranks, after which everything is read-only. Listing a rank works its tensors out.
 * Refuses, before a mount exists: cuts that do not come out even, casts that do not exist, files
 * that several ranks share and do not agree on. The language: docs/plans.md. Read next: rules.h.
 */
#include "core/target/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX (64ull << 20) /* as for all small JSON */

/* --------------------------------------------------------------------- opening */

/* All of a file that might be a plan, terminated, in @arena; NULL when it cannot be had. */
static char *read_text(const char *path, struct rs_arena *arena, uint64_t *len, struct rs_err *err)
{
	struct rs_file file;
	char *text = NULL;

	if (rs_file_open(path, NULL, &file, err) < 0)
		return NULL;
	*len = file.size;
	if (file.size > TEXT_MAX)
		rs_fail(err, RS_LIMIT, "%s: a plan of more than %llu bytes", path, TEXT_MAX);
	else
		text = rs_arena_alloc(arena, file.size + 1, err);
	if (text && rs_file_read(&file, 0, text, file.size, err) < 0)
		text = NULL;
	rs_file_close(&file);
	return text;
}

static bool is_plan(const char *target)
{
	struct rs_arena *arena = rs_arena_new(TEXT_MAX + 4096, NULL);
	uint64_t len = 0;
	char *text = arena ? read_text(target, arena, &len, NULL) : NULL;
	bool yes = text && rs__plan_is((struct rs_str){text, len});

	rs_arena_free(arena);
	return yes;
}

static int open_plan(struct rs_target *t, struct rs_err *err)
{
	uint64_t len;
	char *text = read_text(t->opts.target, t->arena, &len, err);

	return text ? rs__rules_open(t, (struct rs_str){text, len}, t->opts.target, NULL, 0, err)
		    : -1;
}

/* Another format= than the plan's: the name of the file says so, too. */
static int take_files(struct rs_target *t, const struct rs__plan *plan, struct rs_err *err)
{
	struct rs_str path = rs_str(plan->files.path), suffix = rs_str(plan->format);
	const char *slash;

	t->files = plan->files;
	if (!t->opts.container)
		t->container = plan->format;
	if (strcmp(t->container, plan->format) != 0 && rs_str_ends(path, suffix.ptr) &&
		path.len > suffix.len && path.ptr[path.len - suffix.len - 1] == '.') {
		t->files.path = rs_arena_printf(t->arena, err, "%.*s%s",
			(int)(path.len - suffix.len), path.ptr, t->container);
		if (!t->files.path)
			return -1;
	}
	slash = strrchr(t->files.path, '/');
	t->container_default_name = slash ? slash + 1 : t->files.path;
	return 0;
}

/* What the braces of files.path may name. */
static int take_axes(struct rs_target *t, const struct rs__mesh *m, struct rs_err *err)
{
	struct rs_axis *axes = RS_NEW_N(t->arena, struct rs_axis, m->n, err);

	if (!axes)
		return -1;
	for (uint32_t a = 0; a < m->n; a++)
		axes[a] = (struct rs_axis){m->axes[a].name, m->axes[a].size};
	t->axes = axes;
	t->n_axes = m->n;
	return 0;
}

int rs__rules_open(struct rs_target *t, struct rs_str text, const char *name,
	const struct rs__axis *sizes, uint32_t n_sizes, struct rs_err *err)
{
	struct rs__rules *r = RS_NEW(t->arena, struct rs__rules, err);

	if (!r || rs__source_whole(t, err) < 0 ||
		rs__plan_read(text, name, sizes, n_sizes, t->arena, &r->plan, err) < 0)
		return -1;
	if (strcmp(r->plan->format, "pt") == 0) {
		rs_fail(err, RS_UNSUPPORTED, "%s: files.format: pt files are not written yet",
			r->plan->name);
		return rs_hint(err, "safetensors and ckpt are");
	}
	r->plan->vars.config = &t->source->config;
	t->priv = r;
	t->n_ranks = r->plan->mesh.n_ranks;
	t->mindspore = t->source->mindspore;
	if (take_axes(t, &r->plan->mesh, err) < 0)
		return -1;
	return take_files(t, r->plan, err);
}

/* --------------------------------------------------------------------- binding */

int rs__rules_bind(struct rs_target *t, struct rs_err *err)
{
	struct rs__rules *r = t->priv;
	struct rs__binding b = {
		.t = t,
		.rules = r,
		.unmatched = r->plan->unmatched,
		.missing = r->plan->missing,
		.err = err,
	};
	int rc = -1;

	if (t->opts.unknown == RS_DEFAULT_ERROR)
		b.unmatched = RS__UNMATCHED_ERROR;
	if (t->opts.unknown == RS_DEFAULT_REPLICATE)
		b.unmatched = RS__UNMATCHED_REPLICATE;
	if (t->opts.unknown == RS_DEFAULT_DROP)
		b.unmatched = RS__UNMATCHED_DROP;
	if (t->opts.missing == RS_MISSING_SKIP)
		b.missing = RS_MISSING_SKIP;
	b.scratch = rs_arena_new(1ull << 30, err);
	if (!b.scratch)
		return -1;
	if (rs__bind_origins(&b) == 0 && rs__bind_instances(&b) == 0 && rs__bind_places(&b) == 0)
		rc = 0;
	rs_arena_free(b.scratch);
	return rc;
}

/* --------------------------------------------------------------------- listing */

/* What the rule says, or, for an alias that says nothing, the rule behind it. */
static enum rs_dtype dtype_of(const struct rs__placement *p)
{
	if (p->rule && p->rule->dtype)
		return p->rule->dtype;
	return p->instance->rule ? p->instance->rule->dtype : RS_DT_NONE;
}

/* Shape and dtype of what is wanted; parts come later. */
static int describe(const struct rs__placement *p, const struct rs__view *v, struct rs_wanted *want,
	struct rs_err *err)
{
	enum rs_dtype to = dtype_of(p);
	uint64_t bytes;

	*want = (struct rs_wanted){.name = p->name, .dtype = v->dtype, .shape = v->shape};
	if (to && to != v->dtype) {
		if (!rs_cast_known(v->dtype, to))
			return rs_fail(err, RS_UNSUPPORTED,
				"%s: tensor '%s': %s cannot be shown as %s",
				(p->rule ? p->rule : p->instance->rule)->where, RS_SHOW(p->name),
				rs_dtype_name(v->dtype), rs_dtype_name(to));
		want->dtype = to;
		want->stored = v->dtype;
	}
	if (!rs_shape_bytes(&want->shape, want->dtype, &bytes))
		return rs_fail(err, RS_LIMIT, "tensor '%s': %s of %s does not fit 64 bits or bytes",
			RS_SHOW(p->name), RS_SHAPE_SHOW(&want->shape), rs_dtype_name(want->dtype));
	return 0;
}

/* A wanted tensor, and where its first source stands in the order of the source. */
struct item {
	uint64_t place;
	uint32_t rule;
	struct rs_wanted want;
};
struct listing {
	const struct rs_target *t;
	uint32_t local; /* of the source ranks that are asked first */
	struct rs_arena *arena;
	struct item *items; /* heap */
	uint64_t n, cap;
	struct rs_err *err;
};

#define NO_PLACE UINT64_MAX

/* The header that shows the order of a source stage: that of the local rank, else the lowest. */
static uint32_t unit_of_stage(const struct listing *l, uint32_t stage)
{
	const struct rs_catalog *cat = l->t->source->cat;
	uint64_t devices = rs_catalog_stage_devices(cat), base = stage * devices;
	uint32_t unit = rs_catalog_rank_unit(cat, base + l->local);

	for (uint64_t i = 0; unit == RS_NO_UNIT && i < devices; i++)
		unit = rs_catalog_rank_unit(cat, base + i);
	return unit;
}

/* Stages ascending, each in file order; what these files lack comes last, by name. */
static int place_of(const struct listing *l, const struct rs__origin *o, uint64_t *place)
{
	struct rs_catalog *cat = l->t->source->cat;
	const struct rs_table *table;
	const struct rs_entry *e;
	uint32_t unit;

	*place = o->tensor->order;
	if (l->t->source->without_ranks)
		return 0;
	*place = NO_PLACE;
	unit = unit_of_stage(l, o->stage);
	if (unit == RS_NO_UNIT)
		return 0;
	table = rs_catalog_table(cat, unit, l->err);
	if (!table)
		return -1;
	e = rs_table_find(table, rs_tensor_stored(o->tensor));
	if (e)
		*place = (uint64_t)o->stage << 32 | (uint64_t)(e - table->entries);
	return 0;
}

static int add_item(struct listing *l, const struct rs__placement *p, const uint32_t *coords)
{
	struct rs_catalog *cat = l->t->source->cat;
	const struct rs__rules *r = l->t->priv;
	const struct rs__rule *rule = p->rule ? p->rule : p->instance->rule;
	const struct rs__origin *first;
	struct item item = {.rule = rule ? rule->index : RS__NONE};
	struct rs__view v;
	int rc;

	if (rs__placement_view(r, p, coords, &v, &first, l->err) < 0)
		return -1;
	rc = describe(p, &v, &item.want, l->err);
	if (rc == 0)
		rc = rs__view_parts(&v, l->arena, &item.want.parts, &item.want.n_parts, l->err);
	rs__view_done(&v);
	item.want.prefer = l->local;
	if (rc == 0)
		rc = place_of(l, first, &item.place);
	if (rc == 0 && item.want.shape.n_axes == 0)
		rc = rs__zero_dims(cat, first->tensor, l->local, &item.want.zero_dims, l->err);
	if (rc == 0)
		rc = rs_grow(&l->items, &l->cap, l->n + 1, sizeof(*l->items), l->err);
	if (rc == 0)
		l->items[l->n++] = item;
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	if (x->rule != y->rule && x->place != NO_PLACE)
		return x->rule < y->rule ? -1 : 1;
	return rs_str_cmp(x->want.name, y->want.name);
}

static int take_list(struct listing *l, struct rs_list *out)
{
	struct rs_wanted *items = RS_NEW_N(l->arena, struct rs_wanted, l->n, l->err);

	if (!items)
		return -1;
	if (l->n)
		qsort(l->items, l->n, sizeof(*l->items), by_place);
	for (uint64_t i = 0; i < l->n; i++)
		items[i] = l->items[i].want;
	out->items = items;
	out->n = l->n;
	out->meta = l->t->files.meta;
	out->n_meta = l->t->files.n_meta;
	return 0;
}

int rs__rules_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err)
{
	const struct rs__rules *r = t->priv;
	struct listing l = {
		.t = t,
		.local = rs_target_local(t, rank),
		.arena = arena,
		.err = err,
	};
	uint32_t coords[RS__MESH_AXES];
	int rc = 0;

	(void)notes;
	rs__mesh_coords(&r->plan->mesh, rank, coords);
	for (uint64_t i = 0; rc == 0 && i < r->n_placements; i++)
		if (rs__placement_here(r, &r->placements[i], coords))
			rc = add_item(&l, &r->placements[i], coords);
	if (rc == 0)
		rc = take_list(&l, out);
	rs_free(l.items);
	return rc;
}

/* ----------------------------------------------------------------------- needs */

/* The box of the source tensor behind a part. */
static struct rs_box box_behind(const struct rs_part *p)
{
	struct rs_box box = {.n_axes = p->source->shape.n_axes};

	for (uint32_t s = 0; s < box.n_axes; s++) {
		box.origin[s] = p->origin[s];
		box.len[s] = 1;
	}
	for (uint32_t a = 0; a < p->box.n_axes; a++) {
		uint32_t s = p->mapped ? p->axis[a] : a;
		if (s < box.n_axes)
			box.len[s] = p->box.len[a];
	}
	return box;
}

/* The ranks that store a tensor of one piece. */
static void mark_unit(const struct rs_target *t, uint32_t unit, uint8_t *source_ranks)
{
	for (uint64_t r = 0; r < t->source->n_ranks; r++)
		if (rs_catalog_rank_unit(t->source->cat, r) == unit)
			source_ranks[r] = 1;
}

static int mark_part(const struct rs_target *t, uint64_t rank, const struct rs_part *p,
	uint8_t *source_ranks, struct rs_err *err)
{
	struct rs__asking q = {.t = t, .rank = rank, .source_ranks = source_ranks};

	if (p->kind != RS_PART_COPY)
		return 0;
	if (!p->source->grid) {
		mark_unit(t, p->source->witness, source_ranks);
		return 0;
	}
	q.base = p->source->first_rank;
	q.match = rs_target_local(t, rank);
	q.grid = p->source->grid;
	q.shape = p->source->shape;
	q.box = box_behind(p);
	return rs__mark_holders(&q, err);
}

int rs__rules_needs(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks)
{
	struct rs_arena *scratch;
	struct rs_list list = {0};
	int rc;

	if (t->source->without_ranks) {
		source_ranks[0] = 1;
		return 0;
	}
	scratch = rs_arena_new(1ull << 30, err);
	if (!scratch)
		return -1;
	rc = rs__rules_list(t, rank, scratch, &list, NULL, err);
	for (uint64_t i = 0; rc == 0 && i < list.n; i++)
		for (uint32_t k = 0; rc == 0 && k < list.items[i].n_parts; k++)
			rc = mark_part(t, rank, &list.items[i].parts[k], source_ranks, err);
	rs_arena_free(scratch);
	return rc;
}

/* ----------------------------------------------------------------------- check */

static int value_at(const struct rs__rules *r, const struct rs__placement *p,
	const uint32_t *coords, struct rs__view *v, struct rs_err *err)
{
	const struct rs__origin *first;
	struct rs_wanted want;

	*v = (struct rs__view){0};
	if (rs__placement_view(r, p, coords, v, &first, err) < 0)
		return -1;
	return describe(p, v, &want, err);
}

/* The first or the last coordinates where @p is: cuts that fit both ends fit in between. */
static void corner(
	const struct rs__rules *r, const struct rs__placement *p, bool last, uint32_t *coords)
{
	for (uint32_t a = 0; a < r->plan->mesh.n; a++) {
		const struct rs__coords *c = &p->where[a];
		uint32_t size = (uint32_t)r->plan->mesh.axes[a].size;
		coords[a] = c->at ? c->at[last ? c->n - 1 : 0] : last ? size - 1 : 0;
	}
}

/* Ranks that differ along @axis alone share a file: do they agree on @p? */
static int check_shared(
	const struct rs__rules *r, const struct rs__placement *p, uint32_t axis, struct rs_err *err)
{
	const struct rs__axis *what = &r->plan->mesh.axes[axis];
	uint32_t coords[RS__MESH_AXES];
	struct rs__view one = {0}, other = {0};
	bool same = !p->where[axis].at || p->where[axis].n == what->size;
	int rc = 0;

	corner(r, p, false, coords);
	for (uint32_t c = 0; rc == 0 && same && c < what->size; c++) {
		coords[axis] = c;
		rs__view_done(&other);
		rc = value_at(r, p, coords, c ? &other : &one, err);
		same = c == 0 || (rs_shape_eq(&one.shape, &other.shape) && one.n == other.n);
		for (uint64_t i = 0; rc == 0 && c && same && i < one.n; i++)
			same = one.parts[i].source == other.parts[i].source &&
			       rs_box_eq(&one.parts[i].box, &other.parts[i].box) &&
			       memcmp(one.parts[i].origin, other.parts[i].origin,
				       sizeof(one.parts[i].origin)) == 0;
	}
	rs__view_done(&one);
	rs__view_done(&other);
	if (rc < 0 || same)
		return rc;
	rs_fail(err, RS_USAGE,
		"%s: files.path '%s' does not tell ranks of axis '%s' apart, but tensor '%s' "
		"differs "
		"among them",
		r->plan->name, r->plan->files.path, RS_SHOW(what->name), RS_SHOW(p->name));
	return rs_hint(err, "put {rank} or {%s} into the path", RS_SHOW(what->name));
}

/* Axes that files.path does not name, of more than one coordinate. */
static bool is_shared(const struct rs__plan *plan, uint32_t axis)
{
	char word[64];

	if (plan->mesh.axes[axis].size == 1 || strstr(plan->files.path, "{rank}"))
		return false;
	snprintf(word, sizeof(word), "{%.*s}", (int)rs_min(plan->mesh.axes[axis].name.len, 60),
		plan->mesh.axes[axis].name.ptr);
	return !strstr(plan->files.path, word);
}

static int check_placement(const struct rs__rules *r, const struct rs__placement *p,
	const bool *shared, struct rs_err *err)
{
	uint32_t coords[RS__MESH_AXES];
	struct rs__view v;
	int rc = 0;

	for (int last = 0; rc == 0 && last < 2; last++) {
		corner(r, p, last, coords);
		if (p->weight.ptr && !rs__placement_find(r, p->weight, coords))
			return 0; /* not here, but where its weight is */
		rc = value_at(r, p, coords, &v, err);
		rs__view_done(&v);
	}
	for (uint32_t a = 0; rc == 0 && a < r->plan->mesh.n; a++)
		if (shared[a])
			rc = check_shared(r, p, a, err);
	return rc;
}

/* A missing source rank is fatal only where a shown rank has nobody else to ask. */
static int check_ranks(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err)
{
	uint8_t *marks;
	bool missing = false;
	int rc = 0;

	for (uint64_t r = 0; !t->source->without_ranks && r < t->source->n_ranks; r++)
		if (rs_catalog_rank_unit(t->source->cat, r) == RS_NO_UNIT) {
			missing = true;
			rs_note(&t->notes,
				"source rank %" PRIu64 " is missing; the shown ranks do without it",
				r);
		}
	if (!missing)
		return 0;
	marks = rs_alloc(t->source->n_ranks, err);
	if (!marks)
		return -1;
	for (uint64_t i = 0; rc == 0 && i < n; i++)
		rc = rs__rules_needs(t, ranks[i], err, marks);
	rs_free(marks);
	return rc;
}

int rs__rules_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err)
{
	const struct rs__rules *r = t->priv;
	bool shared[RS__MESH_AXES] = {false};

	for (uint32_t a = 0; a < r->plan->mesh.n; a++)
		shared[a] = is_shared(r->plan, a);
	for (uint64_t i = 0; i < r->n_placements; i++)
		if (check_placement(r, &r->placements[i], shared, err) < 0)
			return -1;
	return check_ranks(t, ranks, n, err);
}

const struct rs_target_ops rs__target_plan = {
	.name = "plan",
	.is = is_plan,
	.open = open_plan,
	.bind = rs__rules_bind,
	.check = rs__rules_check,
	.needs = rs__rules_needs,
	.list = rs__rules_list,
};
