/*
 * arrange_path.c - the tree that a plan's files.path asks for, and the usual one of rank
 * directories.
 *
 *   files.path "model-{tp}.safetensors", axes dp 2, tp 2:   ranks 0 and 2 share
 * model-0.safetensors, ranks 1 and 3 share model-1.safetensors
 *
 * Ranks that share a file must hold the same, and their lists are compared to prove it. With
 * files.max_bytes a file comes apart as those of Hugging Face do; with files.index one index lies
 * beside the files. Refuses directories other than rank_{rank}, and words that are no axis.
 * Read next: arrange.c.
 */
#include "core/target/arrange/arrange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SCRATCH_LIMIT (1ull << 30)

/* ------------------------------------------------------------ where a rank's file is */

struct placed {
	char *name;
	bool at_root;
	uint64_t rank, lead;
};

static int place(const struct rs_target *t, const char *pattern, uint64_t rank, struct placed *p,
	struct rs_err *err)
{
	char *path, *slash, dir[32];

	if (rs__path_expand(t, pattern, rank, &path, err) < 0)
		return -1;
	slash = strchr(path, '/');
	snprintf(dir, sizeof(dir), "rank_%" PRIu64, rank);
	*p = (struct placed){.name = slash ? slash + 1 : path, .at_root = !slash, .rank = rank};
	p->lead = rank;
	if (slash)
		*slash = '\0';
	if ((slash && (strcmp(path, dir) != 0 || strchr(p->name, '/'))) || p->name[0] == '.' ||
		p->name[0] == '\0' || strlen(p->name) > RS__FILE_NAME_MAX) {
		rs_fail(err, RS_USAGE,
			"path of files '%s': expected NAME or rank_{rank}/NAME, of 1 to %d bytes "
			"and "
			"not hidden",
			RS_SHOW(rs_str(pattern)), RS__FILE_NAME_MAX);
		return rs_hint(err, "the tree has directories rank_0, rank_1, ... and no others");
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;
	int names;

	if (x->at_root != y->at_root)
		return x->at_root ? -1 : 1;
	if (!x->at_root)
		return x->rank < y->rank ? -1 : x->rank > y->rank;
	names = strcmp(x->name, y->name);
	return names ? names : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool share(const struct placed *a, const struct placed *b)
{
	return a->at_root && b->at_root && strcmp(a->name, b->name) == 0;
}

/* ------------------------------------------------------------------ who agrees */

/* Entries that a list takes as they are get a tensor made for each list: look at what is in it. */
static bool sources_equal(const struct rs_tensor *a, const struct rs_tensor *b)
{
	return a == b || (a && b && a->n_pieces == 1 && b->n_pieces == 1 && !a->grid && !b->grid &&
				 a->pieces[0].entry && a->pieces[0].entry == b->pieces[0].entry &&
				 a->pieces[0].unit == b->pieces[0].unit);
}

static bool parts_equal(const struct rs_part *a, const struct rs_part *b)
{
	uint32_t n = a->box.n_axes;

	if (a->kind != b->kind || !rs_box_eq(&a->box, &b->box) || a->mapped != b->mapped ||
		!sources_equal(a->source, b->source))
		return false;
	if (a->source)
		n = a->source->shape.n_axes;
	return memcmp(a->origin, b->origin, n * sizeof(a->origin[0])) == 0 &&
	       (!a->mapped || memcmp(a->axis, b->axis, a->box.n_axes) == 0);
}

static bool wanted_equal(const struct rs_wanted *a, const struct rs_wanted *b)
{
	if (!rs_str_eq(a->name, b->name) || a->dtype != b->dtype || a->stored != b->stored ||
		!rs_shape_eq(&a->shape, &b->shape) || a->n_parts != b->n_parts)
		return false;
	for (uint32_t i = 0; i < a->n_parts; i++)
		if (!parts_equal(&a->parts[i], &b->parts[i]))
			return false;
	return true;
}

static int compare_lists(const struct rs_list *a, const struct rs_list *b,
	const struct placed *lead, const struct placed *other, struct rs_err *err)
{
	uint64_t n = rs_min(a->n, b->n), i = 0;

	while (i < n && wanted_equal(&a->items[i], &b->items[i]))
		i++;
	if (i == a->n && i == b->n)
		return 0;
	rs_fail(err, RS_USAGE,
		"path of files: ranks %" PRIu64 " and %" PRIu64
		" share %s and do not hold the same, first '%s'",
		lead->rank, other->rank, lead->name,
		RS_SHOW(i < a->n ? a->items[i].name : b->items[i].name));
	return rs_hint(err, "name in the path every axis that cuts tensors, or {rank}");
}

/* Hold the lists of all who share the file of p[0] against its own. */
static int prove_agreement(
	struct rs_target *t, const struct placed *p, uint64_t n, struct rs_err *err)
{
	struct rs_arena *first = rs_arena_new(SCRATCH_LIMIT, err);
	struct rs_list lead, other;
	int rc = first ? rs_target_list(t, p[0].rank, first, &lead, NULL, err) : -1;

	for (uint64_t i = 1; rc == 0 && i < n; i++) {
		struct rs_arena *scratch = rs_arena_new(SCRATCH_LIMIT, err);

		rc = scratch ? rs_target_list(t, p[i].rank, scratch, &other, NULL, err) : -1;
		if (rc == 0)
			rc = compare_lists(&lead, &other, &p[0], &p[i], err);
		rs_arena_free(scratch);
	}
	rs_arena_free(first);
	return rc;
}

static int by_rank(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Remember who leads whom; @p comes sorted by name and leaves so. */
static int keep_leads(struct rs_target *t, struct placed *p, uint64_t n, struct rs_err *err)
{
	uint64_t *shown = RS_NEW_N(t->arena, uint64_t, n, err);
	uint64_t *leads = RS_NEW_N(t->arena, uint64_t, n, err);

	if (!shown || !leads)
		return -1;
	qsort(p, n, sizeof(*p), by_rank);
	for (uint64_t i = 0; i < n; i++) {
		shown[i] = p[i].rank;
		leads[i] = p[i].lead;
	}
	qsort(p, n, sizeof(*p), by_name);
	t->arranged->shown = shown;
	t->arranged->leads = leads;
	t->arranged->n_shown = n;
	return 0;
}

/* ------------------------------------------------------------- files of one list */

/* What goes into one index. */
struct indexing {
	struct rs__mapped *map; /* heap */
	uint64_t n, cap, total;
};

static int map_item(struct indexing *x, const struct rs_wanted *item, const char *file,
	struct rs_str name, struct rs_err *err)
{
	uint64_t bytes;

	if (rs__item_bytes(item, &bytes, err) < 0 ||
		rs_grow(&x->map, &x->cap, x->n + 1, sizeof(*x->map), err) < 0)
		return -1;
	if (!rs_add(x->total, bytes, &x->total))
		return rs_fail(err, RS_LIMIT, "expected files of fewer than 2^64 bytes");
	x->map[x->n++] = (struct rs__mapped){name, file};
	return 0;
}

/* One output per part of @list, and, for an index, what is in which. */
static int add_parts(struct rs__arranging *a, const struct placed *p, const struct rs_list *list,
	const uint32_t *part_of, uint32_t n_parts, struct indexing *index, struct rs_err *err)
{
	struct rs_arena *arena = a->t->arena;
	char **names = RS_NEW_N(arena, char *, n_parts, err);

	if (!names)
		return -1;
	for (uint32_t i = 0; i < n_parts; i++) {
		names[i] = a->parts_from_0 ? rs_arena_printf(arena, err,
						     "%s-part-%" PRIu32 ".safetensors", p->name, i)
					   : rs__part_name(arena, p->name, i, n_parts, err);
		struct rs_output o = {.kind = RS_OUTPUT_LIST,
			.at_root = p->at_root,
			.rank = p->rank,
			.name = names[i],
			.part = i};
		if (!names[i] || rs__output_add(a, &o, err) < 0)
			return -1;
	}
	for (uint64_t i = 0; index && i < list->n; i++) {
		struct rs_str name; /* names of lists go with their arena; those of an index stay */

		if (!rs__item_stored(&list->items[i]))
			continue;
		if (rs_arena_str(arena, list->items[i].name, &name, err) < 0 ||
			map_item(index, &list->items[i], names[part_of[i]], name, err) < 0)
			return -1;
	}
	return 0;
}

/* The files of one rank, or of those that it leads, where its list must be looked at. */
static int add_split(
	struct rs__arranging *a, const struct placed *p, struct indexing *index, struct rs_err *err)
{
	struct rs_arena *scratch = rs_arena_new(SCRATCH_LIMIT, err);
	struct rs_list list;
	uint32_t *part_of = NULL, n_parts;
	int rc = scratch ? rs_target_list(a->t, p->rank, scratch, &list, NULL, err) : -1;

	if (rc == 0)
		part_of = RS_NEW_N(scratch, uint32_t, list.n, err);
	if (!part_of || rs__split(&list, a->t->arranged->limit, part_of, &n_parts, err) < 0)
		rc = -1;
	if (rc == 0)
		rc = add_parts(a, p, &list, part_of, n_parts, index, err);
	rs_arena_free(scratch);
	return rc;
}

static int add_index(
	struct rs__arranging *a, const struct placed *p, struct indexing *x, struct rs_err *err)
{
	struct rs_output o = {.kind = RS_OUTPUT_TEXT, .at_root = p->at_root, .rank = p->rank};

	o.name = rs__name_escape(a->t->arena, rs_str(a->t->files.index), err);
	if (!o.name || rs__index_hf(x->map, x->n, x->total, a->t->arena, &o.text, err) < 0)
		return -1;
	x->n = x->total = 0;
	return rs__output_add(a, &o, err);
}

/* ------------------------------------------------------------------------ all */

static int add_files(struct rs__arranging *a, struct placed *p, uint64_t n, struct rs_err *err)
{
	bool indexed = a->t->files.index != NULL;
	struct indexing x = {0};
	int rc = 0;

	for (uint64_t i = 0, next; rc == 0 && i < n; i = next) {
		for (next = i + 1; next < n && share(&p[i], &p[next]); next++)
			p[next].lead = p[i].rank;
		if (next - i > 1)
			rc = prove_agreement(a->t, &p[i], next - i, err);
		if (rc == 0 && (indexed || a->t->arranged->limit))
			rc = add_split(a, &p[i], indexed ? &x : NULL, err);
		else if (rc == 0)
			rc = add_parts(a, &p[i], NULL, NULL, 1, NULL, err);
		/* A directory has an index of its own; files at the root have one together. */
		if (rc == 0 && indexed && (!p[i].at_root || next == n))
			rc = add_index(a, &p[i], &x, err);
	}
	rs_free(x.map);
	return rc;
}

int rs__arrange_path(struct rs__arranging *a, const char *pattern, struct rs_err *err)
{
	struct placed *p = rs_alloc(rs_max(a->n_ranks, 1) * sizeof(*p), err);
	bool shared = false;
	int rc = p ? 0 : -1;

	for (uint64_t i = 0; rc == 0 && i < a->n_ranks; i++)
		rc = place(a->t, pattern, a->ranks[i], &p[i], err);
	if (rc == 0)
		qsort(p, a->n_ranks, sizeof(*p), by_name);
	if (rc == 0)
		rc = add_files(a, p, a->n_ranks, err);
	for (uint64_t i = 0; rc == 0 && i < a->n_ranks; i++)
		shared |= p[i].lead != p[i].rank;
	if (rc == 0 && shared)
		rc = keep_leads(a->t, p, a->n_ranks, err);
	rs_free(p);
	return rc;
}
