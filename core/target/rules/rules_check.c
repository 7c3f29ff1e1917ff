/*
 * rules_check.c - what is refused before a mount exists: all that a plan, the shapes of the source
 * and the listing tell.
 *
 * Every placement is worked out at the two corners of its ranks, which shows cuts that do not come
 * out even, parts that do not fit and casts that do not exist. Ranks that share a file must agree
 * on it. Source ranks that are missing are refused where a shown rank has nobody else to ask.
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/target/rules/rules.h"

static int value_at(const struct rs__rules *r, const struct rs__placement *p,
	const uint32_t *coords, struct rs__view *v, struct rs_err *err)
{
	const struct rs__origin *first;
	struct rs_wanted want;

	*v = (struct rs__view){0};
	if (rs__placement_view(r, p, coords, v, &first, err) < 0)
		return -1;
	return rs__placement_wanted(p, v, &want, err);
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
