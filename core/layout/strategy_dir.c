/*
 * strategy_dir.c - the strategy files of a directory, merged in memory.
 *
 * Training leaves a file per rank, mostly the same bytes for all ranks of a stage: 4096 of them
 * are a handful of different contents, and only those are parsed. Files of one stage that differ
 * must cut every parameter alike: the framework takes whichever it happens to read first, which
 * is refused here, as is a mixture of protobuf and JSON. A merged file may lie beside the files it
 * was made from. Read next: strategy.c. Format: docs/formats/mindspore-strategy.md.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/layout/strategy_internal.h"
#include "reshardfs/codec.h"

#define NAMES_MAX (UINT64_C(1) << 30)  /* bytes of listing and file names */
#define KEEP_MAX (UINT64_C(256) << 20) /* bytes of contents kept to recognise equal files */

struct stage {
	uint32_t number;
	uint32_t donor; /* the file whose layouts count: the first of this stage */
	uint64_t n_params;
};
struct content {
	uint64_t hash, len;
	char *bytes;
};
struct merge {
	struct rs_arena *names;
	struct rs_strategy **donors;
	uint64_t n_donors, cap_donors;
	struct stage *stages; /* ascending */
	uint64_t n_stages, cap_stages;
	struct content *seen;
	uint64_t n_seen, cap_seen, kept_bytes;
	struct rs_err foreign; /* the first file that is no strategy but should be something */
};

static void merge_done(struct merge *m)
{
	uint64_t i;

	for (i = 0; i < m->n_donors; i++)
		rs_strategy_free(m->donors[i]);
	for (i = 0; i < m->n_seen; i++)
		rs_free(m->seen[i].bytes);
	rs_free(m->donors);
	rs_free(m->stages);
	rs_free(m->seen);
	rs_arena_free(m->names);
}

/* ------------------------------------------------------------ files with equal bytes */

static uint64_t hash_bytes(const char *bytes, uint64_t len)
{
	uint64_t h = len * UINT64_C(0x9e3779b97f4a7c15), word, i;

	for (i = 0; i + 8 <= len; i += 8) {
		memcpy(&word, bytes + i, 8);
		h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	for (; i < len; i++)
		h = (h ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* The hash only says where to look: what counts is that the bytes are the same. */
static bool seen_before(const struct merge *m, const struct content *c)
{
	uint64_t i;

	for (i = 0; i < m->n_seen; i++)
		if (m->seen[i].hash == c->hash && m->seen[i].len == c->len &&
			memcmp(m->seen[i].bytes, c->bytes, c->len) == 0)
			return true;
	return false;
}

/* Takes c->bytes over. Beyond KEEP_MAX equal files are parsed and compared like others. */
static int remember(struct merge *m, struct content *c, struct rs_err *err)
{
	if (m->kept_bytes + c->len > KEEP_MAX) {
		rs_free(c->bytes);
		return 0;
	}
	if (rs_grow(&m->seen, &m->cap_seen, m->n_seen + 1, sizeof(*m->seen), err) < 0) {
		rs_free(c->bytes);
		return -1;
	}
	m->seen[m->n_seen++] = *c;
	m->kept_bytes += c->len;
	return 0;
}

/* ------------------------------------------------------------- stages and their files */

static int by_number(const void *a, const void *b)
{
	const struct stage *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static const struct stage *find_stage(const struct merge *m, uint32_t number)
{
	struct stage key = {.number = number};

	if (m->n_stages == 0)
		return NULL;
	return bsearch(&key, m->stages, m->n_stages, sizeof(key), by_number);
}

/* The stages that @s has parameters of, ascending, each with their number. Heap. */
static int count_stages(
	const struct rs_strategy *s, struct stage **out, uint64_t *n, struct rs_err *err)
{
	struct stage *all = rs_alloc(s->n_params * sizeof(*all), err);
	uint64_t i, k = 0;

	if (!all)
		return -1;
	for (i = 0; i < s->n_params; i++)
		all[i] = (struct stage){.number = s->params[i].stage, .n_params = 1};
	qsort(all, s->n_params, sizeof(*all), by_number);
	for (i = 1; i < s->n_params; i++)
		if (all[i].number == all[k].number)
			all[k].n_params++;
		else
			all[++k] = all[i];
	*out = all;
	*n = k + 1;
	return 0;
}

static int disagree(const struct rs_strategy *a, const struct rs_strategy *b,
	const struct rs_placed *p, const char *how, struct rs_err *err)
{
	rs_fail(err, RS_USAGE, "%s and %s are both of stage %u: parameter '%s' %s", a->path,
		b->path, p->stage, RS_SHOW(p->name), how);
	return rs_hint(err, "files of two jobs? leave those of one in the directory");
}

/* Layouts that differ, shown side by side. */
static int disagree_on(const struct rs_strategy *a, const struct rs_layout *was,
	const struct rs_strategy *b, const struct rs_placed *p, struct rs_err *err)
{
	char x[RS_SHOW_MAX], y[RS_SHOW_MAX], how[2 * RS_SHOW_MAX + 16];

	(void)snprintf(how, sizeof(how), "has %s and %s", rs_layout_show(was, x, sizeof(x)),
		rs_layout_show(p->layout, y, sizeof(y)));
	return disagree(a, b, p, how, err);
}

/* Every parameter of @s in a stage that is known already must be known alike, and no fewer. */
static int agree(const struct merge *m, const struct rs_strategy *s, const struct stage *stages,
	uint64_t n, struct rs_err *err)
{
	uint64_t i, k;

	for (i = 0; i < s->n_params; i++) {
		const struct rs_placed *p = &s->params[i];
		const struct stage *known = find_stage(m, p->stage);
		const struct rs_layout *was;

		if (!known)
			continue;
		was = rs_strategy_find(m->donors[known->donor], p->stage, p->name);
		if (!was)
			return disagree(
				m->donors[known->donor], s, p, "is in the second only", err);
		if (!rs_layout_eq(was, p->layout))
			return disagree_on(m->donors[known->donor], was, s, p, err);
	}
	for (i = 0; i < n; i++) {
		const struct stage *known = find_stage(m, stages[i].number);
		const struct rs_strategy *donor;

		if (!known || known->n_params == stages[i].n_params)
			continue;
		donor = m->donors[known->donor];
		for (k = 0; k < donor->n_params; k++)
			if (donor->params[k].stage == known->number &&
				!rs_strategy_find(s, known->number, donor->params[k].name))
				return disagree(
					donor, s, &donor->params[k], "is in the first only", err);
	}
	return 0;
}

/* @s is taken over: kept when it brings a new stage, freed when all is known. */
static int add_strategy(struct merge *m, struct rs_strategy *s, struct rs_err *err)
{
	struct stage *stages = NULL;
	uint64_t n, i, known = m->n_stages;
	int ret = -1;

	if (m->n_donors && m->donors[0]->json != s->json) {
		rs_fail(err, RS_USAGE, "%s and %s: expected strategy files of one form, found %s",
			m->donors[0]->path, s->path, "protobuf and JSON");
		rs_hint(err, "leave one form of them in the directory");
		goto out;
	}
	if (count_stages(s, &stages, &n, err) < 0 || agree(m, s, stages, n, err) < 0 ||
		rs_grow(&m->stages, &m->cap_stages, known + n, sizeof(*m->stages), err) < 0 ||
		rs_grow(&m->donors, &m->cap_donors, m->n_donors + 1, sizeof(s), err) < 0)
		goto out;
	for (i = 0; i < n; i++)
		if (known == 0 ||
			!bsearch(&stages[i], m->stages, known, sizeof(*stages), by_number)) {
			stages[i].donor = (uint32_t)m->n_donors;
			m->stages[m->n_stages++] = stages[i];
		}
	if (m->n_stages > known) {
		qsort(m->stages, m->n_stages, sizeof(*m->stages), by_number);
		m->donors[m->n_donors++] = s;
		s = NULL;
	}
	ret = 0;
out:
	rs_free(stages);
	rs_strategy_free(s);
	return ret;
}

/* ------------------------------------------------------------------------ files */

static int add_bytes(struct merge *m, struct content *c, const char *name, struct rs_err *err)
{
	struct rs_strategy *s;

	if (rs_strategy_read_memory(c->bytes, c->len, name, &s, err) < 0)
		return -1;
	if (!s->merged && s->n_operators == 0) {
		rs_fail(err, RS_CORRUPT, "%s: expected operators that tell the stage, found none",
			name);
		rs_hint(err, "give the file by its own path if there is one stage");
		rs_strategy_free(s);
		return -1;
	}
	return add_strategy(m, s, err);
}

/* Read @file when it is a strategy; *bytes = NULL when it is something else. */
static int read_strategy(
	struct merge *m, const struct rs_file *file, char **bytes, struct rs_err *err)
{
	enum rs__form form;

	*bytes = NULL;
	if (rs__strategy_form(file, &form, err) < 0)
		return -1;
	if (form == RS__FORM_NONE) {
		if (m->foreign.code == RS_OK && rs_str_ends(rs_str(file->name), ".ckpt"))
			(void)rs_sniff_foreign(file, &m->foreign);
		return 0;
	}
	if (form == RS__FORM_JSON && file->size > RS_STRATEGY_JSON_MAX)
		return 0; /* some index: it was not asked for by name */
	if (rs__strategy_slurp(file, form, bytes, err) < 0)
		return -1;
	if (form == RS__FORM_JSON &&
		!rs__strategy_has_layouts((struct rs_str){*bytes, (size_t)file->size})) {
		rs_free(*bytes);
		*bytes = NULL;
	}
	return 0;
}

static int add_open(struct merge *m, const struct rs_file *file, struct rs_err *err)
{
	struct content c = {.len = file->size};

	if (read_strategy(m, file, &c.bytes, err) < 0)
		return -1;
	if (!c.bytes)
		return 0;
	c.hash = hash_bytes(c.bytes, c.len);
	if (seen_before(m, &c)) {
		rs_free(c.bytes);
		return 0;
	}
	if (add_bytes(m, &c, file->name, err) < 0) {
		rs_free(c.bytes);
		return -1;
	}
	return remember(m, &c, err);
}

static int add_entry(struct merge *m, const struct rs_dir *dir, const char *sub,
	const struct rs_dirent *entry, struct rs_err *err)
{
	const char *slash = *sub ? "/" : "";
	const char *rel, *name;
	struct rs_file file;
	int ret;

	if (entry->kind == RS_KIND_DIR ||
		(!rs_str_ends(entry->name, ".ckpt") && !rs_str_ends(entry->name, ".json")))
		return 0;
	rel = rs_arena_printf(
		m->names, err, "%s%s%.*s", sub, slash, (int)entry->name.len, entry->name.ptr);
	name = rel ? rs_arena_printf(m->names, err, "%s/%s", rs_dir_path(dir), rel) : NULL;
	if (!name || rs_dir_file(dir, rel, name, &file, err) < 0)
		return -1;
	ret = add_open(m, &file, err);
	rs_file_close(&file);
	return ret;
}

/* ------------------------------------------------------------------------ result */

static bool counts(const struct merge *m, uint64_t donor, uint32_t stage)
{
	const struct stage *known = find_stage(m, stage);

	return !known || known->donor == donor;
}

static int pour(struct rs__build *b, const struct merge *m, uint64_t donor, struct rs__cuts *cuts,
	struct rs_err *err)
{
	const struct rs_strategy *s = m->donors[donor];
	uint64_t i, k;
	uint32_t in;

	for (i = 0; i < s->n_operators; i++) {
		const struct rs_operator *op = &s->operators[i];

		if (s->merged && !counts(m, donor, op->stage))
			continue;
		rs__cuts_reset(cuts);
		for (in = 0; in < op->n_inputs; in++) {
			if (rs__cuts_input(cuts, err) < 0)
				return -1;
			for (k = 0; k < op->n_cuts[in]; k++)
				if (rs__cuts_dim(cuts, op->cuts[in][k], err) < 0)
					return -1;
		}
		if (rs__build_operator(b, op->name, op->stage, cuts, err) < 0)
			return -1;
	}
	for (i = 0; i < s->n_params; i++)
		if (counts(m, donor, s->params[i].stage) &&
			rs__build_param(b, s->params[i].name, s->params[i].stage,
				s->params[i].layout, err) < 0)
			return -1;
	return 0;
}

static int join(
	const struct merge *m, const char *path, struct rs_strategy **out, struct rs_err *err)
{
	uint64_t i, n_operators = 0, n_params = 0;
	struct rs__cuts cuts = {0};
	struct rs__build b;
	int ret = 0;

	for (i = 0; i < m->n_donors; i++) {
		n_operators += m->donors[i]->n_operators;
		n_params += m->donors[i]->n_params;
	}
	if (rs__build_begin(&b, path, n_operators, n_params, err) < 0)
		return -1;
	b.s->json = m->donors[0]->json;
	/* One stage in one file needs no merge and stays what it was. */
	b.s->merged = m->n_donors > 1 || m->donors[0]->merged;
	b.s->current_stage = m->n_donors > 1 ? 1 : m->donors[0]->current_stage;
	b.s->file_stage = m->donors[0]->file_stage;
	for (i = 0; i < m->n_donors && ret == 0; i++)
		ret = pour(&b, m, i, &cuts, err);
	rs__cuts_done(&cuts);
	if (ret < 0) {
		rs__build_drop(&b);
		return -1;
	}
	return rs__build_seal(&b, out, err);
}

int rs_strategy_read_dir(
	const struct rs_dir *dir, const char *sub, struct rs_strategy **out, struct rs_err *err)
{
	struct merge m = {.names = rs_arena_new(NAMES_MAX, err)};
	struct rs_err no_list = {0};
	struct rs_dirent *entries;
	const char *path;
	uint64_t n, i;
	int ret = -1;

	*out = NULL;
	if (!m.names)
		return -1;
	path = rs_arena_printf(m.names, err, "%s%s%s", rs_dir_path(dir), *sub ? "/" : "", sub);
	if (!path)
		goto out;
	if (rs_dir_list(dir, sub, m.names, &entries, &n, &no_list) < 0) {
		ret = *sub && no_list.code == RS_MISSING ? 0 : -1; /* no such place: no files */
		if (ret < 0 && err)
			*err = no_list;
		goto out;
	}
	for (i = 0; i < n; i++)
		if (add_entry(&m, dir, sub, &entries[i], err) < 0)
			goto out;
	if (m.n_donors)
		ret = join(&m, path, out, err);
	else if (m.foreign.code == RS_OK)
		ret = 0;
	else if (err)
		*err = m.foreign;
out:
	merge_done(&m);
	return ret;
}
