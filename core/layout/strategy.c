/*
 * strategy.c - a strategy as the rest of the program sees it: told from other files, read,
 * looked up, compared, and proved fit to cut by.
 *
 * What is told by content only: protobuf begins with 0x08, JSON with '{', a checkpoint (also
 * called .ckpt) with 0x0A. Refuses what people put in a strategy's place, and strategies that do
 * not make one machine: missing stages, stages of different sizes, layouts without a grid.
 * Read next: strategy_dir.c (directories), strategy_build.c. Format:
 * docs/formats/mindspore-strategy.md.
 */
#include <inttypes.h>

#include "core/layout/strategy_internal.h"
#include "reshardfs/codec.h"

/* All grids of one check: distinct layouts x devices; beyond, a file is made to waste time. */
#define RS_STRATEGY_CELLS (UINT64_C(1) << 26)

#define HEAD_BYTES 24 /* enough for two numbers and three tags */

/* ------------------------------------------------------- is it one, and which form */

/* A varint of at most five bytes at @head[*at]; false when it does not end there. */
static bool skip_varint(const uint8_t *head, uint64_t len, uint64_t *at)
{
	uint64_t stop = rs_min(len, *at + 5);

	while (*at < stop)
		if (head[(*at)++] < 0x80)
			return true;
	return false;
}

/*
 * 0x08 alone is little: one safetensors file in 32 begins with it. So look at the shape of what
 * follows: current_stage, then nothing, or a member of field 2 or 3 that begins with its field 1
 * or 2. In a safetensors file the zeros of an eight-byte length are in the way.
 */
static bool looks_like_pb(const uint8_t *head, uint64_t len)
{
	uint64_t at = 1;

	if (len < 2 || head[0] != 0x08 || !skip_varint(head, len, &at))
		return false;
	if (at == len)
		return true;
	if (head[at] != 0x12 && head[at] != 0x1a)
		return false;
	at++;
	return skip_varint(head, len, &at) && at < len && (head[at] == 0x0a || head[at] == 0x12);
}

int rs__strategy_form(const struct rs_file *file, enum rs__form *out, struct rs_err *err)
{
	uint8_t head[HEAD_BYTES];
	uint64_t len = rs_min(file->size, sizeof(head));

	if (rs_file_read(file, 0, head, len, err) < 0)
		return -1;
	if (len && head[0] == '{')
		*out = RS__FORM_JSON;
	else
		*out = looks_like_pb(head, len) ? RS__FORM_PB : RS__FORM_NONE;
	return 0;
}

int rs__strategy_slurp(
	const struct rs_file *file, enum rs__form form, char **out, struct rs_err *err)
{
	uint64_t limit = form == RS__FORM_JSON ? RS_STRATEGY_JSON_MAX : RS_STRATEGY_MAX;

	if (file->size > limit)
		return rs_fail(err, RS_LIMIT,
			"%s: expected a strategy of at most %" PRIu64 " bytes, found %" PRIu64,
			file->name, limit, file->size);
	*out = rs_alloc(file->size + 1, err);
	if (!*out)
		return -1;
	if (rs_file_read(file, 0, *out, file->size, err) < 0) {
		rs_free(*out);
		return -1;
	}
	return 0;
}

bool rs_strategy_is(const struct rs_file *file)
{
	enum rs__form form;
	char *text = NULL;
	bool found;

	if (rs__strategy_form(file, &form, NULL) < 0)
		return false;
	if (form != RS__FORM_JSON)
		return form == RS__FORM_PB;
	if (rs__strategy_slurp(file, form, &text, NULL) < 0)
		return false;
	found = rs__strategy_has_layouts((struct rs_str){text, (size_t)file->size});
	rs_free(text);
	return found;
}

/* -------------------------------------------------------------------- reading */

int rs_strategy_read_memory(const void *bytes, uint64_t len, const char *name,
	struct rs_strategy **out, struct rs_err *err)
{
	const char *text = bytes;
	struct rs_file file;

	*out = NULL;
	rs_file_memory(bytes, len, name, &file);
	if (rs_sniff_foreign(&file, err) < 0)
		return -1;
	if (len > RS_STRATEGY_MAX)
		return rs_fail(err, RS_LIMIT, "%s: %" PRIu64 " bytes, expected at most %" PRIu64,
			name, len, RS_STRATEGY_MAX);
	if (text[0] == '{')
		return rs__strategy_from_json((struct rs_str){text, (size_t)len}, name, out, err);
	if (text[0] == 0x0a) {
		rs_fail(err, RS_USAGE, "%s: expected a strategy file, found a checkpoint", name);
		return rs_hint(err, "both end in .ckpt; a strategy is what "
				    "strategy_ckpt_save_file or merge_pipeline_strategys wrote");
	}
	return rs__strategy_from_pb(bytes, len, name, out, err);
}

static int read_file(const char *path, struct rs_strategy **out, struct rs_err *err)
{
	enum rs__form form;
	struct rs_file file;
	char *bytes = NULL;
	int ret = -1;

	if (rs_file_open(path, NULL, &file, err) < 0)
		return -1;
	if (rs_sniff_foreign(&file, err) == 0 && rs__strategy_form(&file, &form, err) == 0 &&
		rs__strategy_slurp(&file, form, &bytes, err) == 0) {
		ret = rs_strategy_read_memory(bytes, file.size, path, out, err);
		rs_free(bytes);
	}
	rs_file_close(&file);
	return ret;
}

int rs_strategy_read(const char *path, struct rs_strategy **out, struct rs_err *err)
{
	struct rs_err not_dir = {0};
	struct rs_dir *dir;
	int ret;

	*out = NULL;
	if (rs_dir_open(path, NULL, true, &dir, &not_dir) < 0) {
		if (not_dir.code == RS_MISSING)
			return read_file(path, out, err);
		if (err)
			*err = not_dir;
		return -1;
	}
	ret = rs_strategy_read_dir(dir, "", out, err);
	rs_dir_close(dir);
	if (ret == 0 && !*out) {
		rs_fail(err, RS_USAGE, "%s: expected strategy files (*.ckpt or *.json), found none",
			path);
		return rs_hint(err, "give a merged strategy, one stage's file, or a directory with "
				    "the files of all stages");
	}
	return ret;
}

void rs_strategy_free(struct rs_strategy *s)
{
	if (s)
		rs_arena_free(s->arena);
}

/* ------------------------------------------------------------------ looking up */

/* The first place in by_name whose (name, stage) is not below the one asked for. */
static uint64_t lower_bound(const struct rs_strategy *s, struct rs_str name, uint32_t stage)
{
	uint64_t low = 0, high = s->n_params;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;
		const struct rs_placed *p = &s->params[s->by_name[mid]];
		int c = rs_str_cmp(p->name, name);

		if (c < 0 || (c == 0 && p->stage < stage))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct rs_layout *rs_strategy_find(
	const struct rs_strategy *s, uint32_t stage, struct rs_str name)
{
	uint64_t i = lower_bound(s, name, stage);
	const struct rs_placed *p;

	if (i == s->n_params)
		return NULL;
	p = &s->params[s->by_name[i]];
	return p->stage == stage && rs_str_eq(p->name, name) ? p->layout : NULL;
}

uint32_t rs_strategy_stages(const struct rs_strategy *s, struct rs_str name, const uint32_t **first)
{
	uint64_t i = lower_bound(s, name, 0);
	uint32_t n = 0;

	*first = s->by_name + i;
	while (i + n < s->n_params && rs_str_eq(s->params[(*first)[n]].name, name))
		n++;
	return n;
}

/* ------------------------------------------------------------------- comparing */

static int differ(const struct rs_strategy *a, const struct rs_strategy *b,
	const struct rs_placed *p, const char *how, struct rs_err *err)
{
	return rs_fail(err, RS_USAGE, "%s and %s differ: parameter '%s' of stage %" PRIu32 " %s",
		a->path, b->path, RS_SHOW(p->name), p->stage, how);
}

int rs_strategy_same(const struct rs_strategy *a, const struct rs_strategy *b, struct rs_err *err)
{
	uint64_t i;

	for (i = 0; i < a->n_params && i < b->n_params; i++) {
		const struct rs_placed *x = &a->params[a->by_name[i]];
		const struct rs_placed *y = &b->params[b->by_name[i]];
		int c = rs_str_cmp(x->name, y->name);

		if (c == 0)
			c = (x->stage > y->stage) - (x->stage < y->stage);
		if (c != 0)
			return differ(a, b, c < 0 ? x : y,
				c < 0 ? "is in the first only" : "is in the second only", err);
		if (x->layout != y->layout && !rs_layout_eq(x->layout, y->layout))
			return differ(a, b, x, "is cut in two ways", err);
	}
	if (i < a->n_params)
		return differ(a, b, &a->params[a->by_name[i]], "is in the first only", err);
	if (i < b->n_params)
		return differ(a, b, &b->params[b->by_name[i]], "is in the second only", err);
	return 0;
}

/* -------------------------------------------------------------------- checking */

/* The first parameter with layout @l: a name for a message. */
static const struct rs_placed *user_of(const struct rs_strategy *s, const struct rs_layout *l)
{
	uint64_t i = 0;

	while (i + 1 < s->n_params && s->params[i].layout != l)
		i++;
	return &s->params[i];
}

static int check_stages(struct rs_strategy *s, struct rs_err *err)
{
	uint8_t *seen;
	uint32_t n = 0;
	uint64_t i, missing;

	if (!s->merged) /* one stage's file by itself: the whole of what there is */
		for (i = 0; i < s->n_params; i++)
			s->params[i].stage = 0;
	/* Stages 0..n-1 have a parameter each, so a larger number proves a hole. */
	seen = rs_alloc(s->n_params + 1, err);
	if (!seen)
		return -1;
	for (i = 0; i < s->n_params; i++) {
		n = (uint32_t)rs_max(n, (uint64_t)s->params[i].stage + 1);
		if (s->params[i].stage < s->n_params)
			seen[s->params[i].stage] = 1;
	}
	for (missing = 0; missing < n && missing < s->n_params && seen[missing]; missing++)
		;
	rs_free(seen);
	if (missing < n) {
		rs_fail(err, RS_MISSING,
			"%s: expected stages 0 to %" PRIu32 ", found none of stage %" PRIu64,
			s->path, n - 1, missing);
		return rs_hint(err, "gather the strategy files of all stages in one directory");
	}
	s->n_stages = n;
	return 0;
}

static int check_devices(struct rs_strategy *s, struct rs_err *err)
{
	uint64_t devices = rs_layout_devices(s->layouts[0]), i;

	for (i = 1; i < s->n_layouts; i++) {
		uint64_t other = rs_layout_devices(s->layouts[i]);
		const struct rs_placed *a, *b;

		if (other == devices)
			continue;
		a = user_of(s, s->layouts[0]);
		b = user_of(s, s->layouts[i]);
		rs_fail(err, RS_CORRUPT,
			"%s: parameter '%s': stage %" PRIu32 " has %" PRIu64
			" devices, expected %" PRIu64 " as for '%s' of stage %" PRIu32,
			s->path, RS_SHOW(b->name), b->stage, other, devices, RS_SHOW(a->name),
			a->stage);
		return rs_hint(err, "are there files of two jobs in the directory?");
	}
	if (devices > RS_MAX_CELLS)
		return rs_fail(err, RS_LIMIT,
			"%s: %" PRIu64 " devices a stage, expected at most %u", s->path, devices,
			RS_MAX_CELLS);
	s->stage_devices = (uint32_t)devices;
	return 0;
}

static int check_grids(const struct rs_strategy *s, struct rs_err *err)
{
	uint64_t cells, i;

	if (!rs_mul(s->n_layouts, s->stage_devices, &cells) || cells > RS_STRATEGY_CELLS)
		return rs_fail(err, RS_LIMIT,
			"%s: %" PRIu64 " different layouts over %" PRIu32
			" devices, expected at most %" PRIu64 " together",
			s->path, s->n_layouts, s->stage_devices, RS_STRATEGY_CELLS);
	for (i = 0; i < s->n_layouts; i++) {
		const struct rs_layout *l = s->layouts[i];
		struct rs_arena *arena = rs_arena_new(RS_STRATEGY_MEMORY, err);
		struct rs_grid *grid;
		int ret;

		if (!arena)
			return -1;
		ret = rs_layout_grid(l, l->n_axes, arena, &grid, err);
		rs_arena_free(arena);
		if (ret < 0)
			return rs_err_prefix(
				err, "%s: parameter '%s'", s->path, RS_SHOW(user_of(s, l)->name));
	}
	return 0;
}

int rs_strategy_check(struct rs_strategy *s, struct rs_err *err)
{
	if (check_stages(s, err) < 0 || check_devices(s, err) < 0)
		return -1;
	return check_grids(s, err);
}
