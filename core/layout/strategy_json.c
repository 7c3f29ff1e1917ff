/*
 * strategy_json.c - the JSON form of a strategy file: text to struct rs_strategy.
 *
 * MindSpore writes it when the save name ends in .json. Beyond what the framework reads, a tensor
 * map may be nested (one list of device dimensions per axis). Refuses numbers that are not exact
 * integers, values of another type than expected (with the path inside the document), and a file
 * that states operator layouts only. Unknown keys are skipped. The strict reading is codec's.
 * Format: docs/formats/mindspore-strategy.md.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>

#include "core/layout/strategy_internal.h"
#include "reshardfs/codec.h"

#define LAYOUTS "parallel_layout_item"
#define OPERATORS "parallel_strategy_item"

/* Where in the document we are: "parallel_layout_item['model.w'].tensor_map". */
struct where {
	const char *file, *section;
	struct rs_str name;
	const char *key;
};

static int complain(const struct where *at, const char *expected, struct rs_err *err)
{
	return rs_fail(err, RS_CORRUPT, "%s: %s['%s'].%s: expected %s", at->file, at->section,
		RS_SHOW(at->name), at->key, expected);
}

/* An integer within [low, high] under @at->key; @missing when the key is not there. */
static int read_int(const cJSON *object, const struct where *at, int64_t low, int64_t high,
	int64_t missing, int64_t *out, struct rs_err *err)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, at->key);

	*out = missing;
	if (!item)
		return 0;
	if (!rs_json_int(item, out) || *out < low || *out > high)
		return rs_fail(err, RS_CORRUPT,
			"%s: %s['%s'].%s: expected an integer from %" PRId64 " to %" PRId64,
			at->file, at->section, RS_SHOW(at->name), at->key, low, high);
	return 0;
}

/* The array under @at->key. *out = NULL when it is not there. */
static int read_array(
	const cJSON *object, const struct where *at, const cJSON **out, struct rs_err *err)
{
	*out = cJSON_GetObjectItemCaseSensitive(object, at->key);
	if (*out && !cJSON_IsArray(*out))
		return complain(at, "a list", err);
	return 0;
}

/* ------------------------------------------------------------------ operators */

static int read_cuts(
	struct rs__cuts *cuts, const cJSON *lists, const struct where *at, struct rs_err *err)
{
	const cJSON *list, *item;
	int64_t v;

	rs__cuts_reset(cuts);
	cJSON_ArrayForEach(list, lists)
	{
		if (!cJSON_IsArray(list))
			return complain(at, "a list per input", err);
		if (rs__cuts_input(cuts, err) < 0)
			return rs_err_prefix(err, "%s: operator '%s'", at->file, RS_SHOW(at->name));
		cJSON_ArrayForEach(item, list)
		{
			if (!rs_json_int(item, &v) || v < 0 || v > UINT32_MAX)
				return complain(at, "numbers of pieces", err);
			if (rs__cuts_dim(cuts, (uint32_t)v, err) < 0)
				return -1;
		}
	}
	return 0;
}

static int read_operators(
	struct rs__build *b, const cJSON *section, struct rs__cuts *cuts, struct rs_err *err)
{
	const cJSON *item, *lists;

	cJSON_ArrayForEach(item, section)
	{
		struct where at = {b->s->path, OPERATORS, rs_str(item->string), "stage"};
		int64_t stage;

		if (!cJSON_IsObject(item))
			return rs_fail(err, RS_CORRUPT, "%s: %s['%s']: expected an object", at.file,
				at.section, RS_SHOW(at.name));
		if (read_int(item, &at, 0, UINT32_MAX - 1, 0, &stage, err) < 0)
			return -1;
		at.key = "parallel_strategy";
		if (read_array(item, &at, &lists, err) < 0 ||
			read_cuts(cuts, lists, &at, err) < 0 ||
			rs__build_operator(b, at.name, (uint32_t)stage, cuts, err) < 0)
			return -1;
	}
	return 0;
}

/* -------------------------------------------------------------------- layouts */

/* Lists of any length of one parameter, between the document and the builder. Heap. */
struct lists {
	int64_t *split, *offsets;
	uint64_t *shape;
	uint64_t cap_split, cap_offsets, cap_shape;
};

static int read_longs(const cJSON *object, const struct where *at, int64_t **items, uint64_t *cap,
	uint32_t *n, struct rs_err *err)
{
	const cJSON *list, *item;

	*n = 0;
	if (read_array(object, at, &list, err) < 0)
		return -1;
	cJSON_ArrayForEach(item, list)
	{
		if (rs_grow(items, cap, (uint64_t)*n + 1, sizeof(**items), err) < 0)
			return -1;
		if (!rs_json_int(item, &(*items)[*n]))
			return complain(at, "integers", err);
		(*n)++;
	}
	return 0;
}

static int read_shape(const cJSON *object, const struct where *at, struct lists *lists, uint32_t *n,
	struct rs_err *err)
{
	const cJSON *list, *item;
	int64_t v;

	*n = 0;
	if (read_array(object, at, &list, err) < 0)
		return -1;
	cJSON_ArrayForEach(item, list)
	{
		if (rs_grow(&lists->shape, &lists->cap_shape, (uint64_t)*n + 1,
			    sizeof(*lists->shape), err) < 0)
			return -1;
		if (!rs_json_int(item, &v) || v < 0)
			return complain(at, "lengths of axes", err);
		lists->shape[(*n)++] = (uint64_t)v;
	}
	return 0;
}

static int read_dev(
	struct rs_layout *l, const cJSON *object, const struct where *at, struct rs_err *err)
{
	const cJSON *list, *item;
	int64_t v;

	if (read_array(object, at, &list, err) < 0)
		return -1;
	if (!list)
		return complain(at, "a list", err);
	cJSON_ArrayForEach(item, list)
	{
		if (!rs_json_int(item, &v) || v < 0)
			return complain(at, "extents of device dimensions", err);
		if (rs__layout_add_dev(l, (uint64_t)v, err) < 0)
			return rs_err_prefix(
				err, "%s: parameter '%s'", at->file, RS_SHOW(at->name));
	}
	return 0;
}

static int read_axis(
	struct rs_layout *l, const cJSON *axis, const struct where *at, struct rs_err *err)
{
	const cJSON *item = cJSON_IsArray(axis) ? axis->child : axis;
	int64_t v;

	if (rs__layout_open_axis(l, err) < 0)
		return rs_err_prefix(err, "%s: parameter '%s'", at->file, RS_SHOW(at->name));
	if (!item)
		return complain(at, "[-1] or device dimensions of an axis, found []", err);
	for (; item; item = axis == item ? NULL : item->next) {
		if (!rs_json_int(item, &v))
			return complain(at, "device dimensions", err);
		if (rs__layout_add_map(l, v, err) < 0)
			return rs_err_prefix(
				err, "%s: parameter '%s'", at->file, RS_SHOW(at->name));
	}
	return 0;
}

static int read_map(
	struct rs_layout *l, const cJSON *object, const struct where *at, struct rs_err *err)
{
	const cJSON *list, *axis;

	if (read_array(object, at, &list, err) < 0)
		return -1;
	if (!list)
		return complain(at, "a list", err);
	cJSON_ArrayForEach(axis, list)
	{
		l->nested |= cJSON_IsArray(axis);
		if (read_axis(l, axis, at, err) < 0)
			return -1;
	}
	return 0;
}

static int read_layout(struct rs_layout *l, const cJSON *object, struct where *at,
	struct lists *lists, struct rs_err *err)
{
	int64_t field, step, size;

	at->key = "dev_matrix";
	if (read_dev(l, object, at, err) < 0)
		return -1;
	at->key = "tensor_map";
	if (read_map(l, object, at, err) < 0)
		return -1;
	at->key = "field";
	if (read_int(object, at, 0, INT32_MAX, 0, &field, err) < 0)
		return -1;
	at->key = "opt_weight_shard_step";
	if (read_int(object, at, INT32_MIN, INT32_MAX, 0, &step, err) < 0)
		return -1;
	at->key = "opt_weight_shard_size";
	if (read_int(object, at, INT32_MIN, INT32_MAX, 0, &size, err) < 0)
		return -1;
	at->key = "param_split_shape";
	if (read_longs(object, at, &lists->split, &lists->cap_split, &l->n_split, err) < 0)
		return -1;
	at->key = "indices_offset";
	if (read_longs(object, at, &lists->offsets, &lists->cap_offsets, &l->n_offsets, err) < 0)
		return -1;
	at->key = "tensor_shape";
	if (read_shape(object, at, lists, &l->n_shape, err) < 0)
		return -1;
	l->field = (uint32_t)field;
	l->opt_step = (int32_t)step;
	l->opt_size = (int32_t)size;
	l->split = lists->split;
	l->offsets = lists->offsets;
	l->shape = lists->shape;
	if (rs__layout_close(l, err) < 0)
		return rs_err_prefix(err, "%s: parameter '%s'", at->file, RS_SHOW(at->name));
	return 0;
}

static int read_params(
	struct rs__build *b, const cJSON *section, struct lists *lists, struct rs_err *err)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, section)
	{
		struct where at = {b->s->path, LAYOUTS, rs_str(item->string), ""};
		struct rs_layout l = {0};

		if (!cJSON_IsObject(item))
			return rs_fail(err, RS_CORRUPT, "%s: %s['%s']: expected an object", at.file,
				at.section, RS_SHOW(at.name));
		if (read_layout(&l, item, &at, lists, err) < 0 ||
			rs__build_param(b, at.name, 0, &l, err) < 0)
			return -1;
	}
	return 0;
}

/* ------------------------------------------------------------------- document */

static int find_sections(const cJSON *top, const char *file, const cJSON **layouts,
	const cJSON **operators, struct rs_err *err)
{
	static const char *const others[] = {"parallel_out_strategy_item",
		"parallel_layout_value_item", "parallel_out_layout_value_item",
		"parallel_newshape_layout_value_item", "parallel_out_newshape_layout_value_item"};
	size_t i;

	*layouts = cJSON_GetObjectItemCaseSensitive(top, LAYOUTS);
	*operators = cJSON_GetObjectItemCaseSensitive(top, OPERATORS);
	for (i = 0; !*layouts && i < sizeof(others) / sizeof(*others); i++)
		if (cJSON_GetObjectItemCaseSensitive(top, others[i])) {
			rs_fail(err, RS_USAGE,
				"%s: expected layouts of parameters (" LAYOUTS
				"), found operator strategies only ('%s')",
				file, others[i]);
			return rs_hint(err, "this file says how operators are cut; give the one "
					    "that strategy_ckpt_save_file names");
		}
	if (!cJSON_IsObject(*layouts))
		return rs_fail(err, RS_CORRUPT, "%s: expected an object '" LAYOUTS "'", file);
	if (*operators && !cJSON_IsObject(*operators))
		return rs_fail(err, RS_CORRUPT, "%s: " OPERATORS ": expected an object", file);
	return 0;
}

static uint64_t count(const cJSON *section)
{
	const cJSON *item;
	uint64_t n = 0;

	cJSON_ArrayForEach(item, section) n++;
	return n;
}

static int read_top(struct rs__build *b, const cJSON *top, const cJSON *layouts,
	const cJSON *operators, struct rs_err *err)
{
	const cJSON *saves = cJSON_GetObjectItemCaseSensitive(top, "current_stage");
	struct rs__cuts cuts = {0};
	struct lists lists = {0};
	int64_t v = 0;
	int ret = -1;

	if (saves && (!rs_json_int(saves, &v) || v < 0 || v > UINT32_MAX)) {
		rs_fail(err, RS_CORRUPT, "%s: current_stage: expected a number", b->s->path);
		goto out;
	}
	b->s->json = true;
	b->s->current_stage = (uint32_t)v;
	if (read_operators(b, operators, &cuts, err) == 0)
		ret = read_params(b, layouts, &lists, err);
out:
	rs__cuts_done(&cuts);
	rs_free(lists.split);
	rs_free(lists.offsets);
	rs_free(lists.shape);
	return ret;
}

int rs__strategy_from_json(
	struct rs_str text, const char *name, struct rs_strategy **out, struct rs_err *err)
{
	const cJSON *layouts, *operators;
	struct rs__build b;
	cJSON *top = NULL;
	int ret = -1;

	if (rs_json_parse(text, name, &top, err) < 0)
		return -1;
	if (find_sections(top, name, &layouts, &operators, err) < 0 ||
		rs__build_begin(&b, name, count(operators), count(layouts), err) < 0)
		goto out;
	if (read_top(&b, top, layouts, operators, err) < 0) {
		rs__build_drop(&b);
		goto out;
	}
	rs__build_name_stages(&b);
	ret = rs__build_seal(&b, out, err);
out:
	cJSON_Delete(top);
	return ret;
}

bool rs__strategy_has_layouts(struct rs_str text)
{
	struct rs_arena *arena = rs_arena_new(RS_STRATEGY_JSON_MAX, NULL);
	struct rs_json_token t;
	struct rs_json json;
	bool found = false;

	if (!arena)
		return false;
	rs_json_init(&json, text, 0, "", arena, NULL);
	if (rs_json_next(&json, &t) < 0 || t.type != RS_JSON_OBJECT)
		goto out;
	while (!found && rs_json_next(&json, &t) == 0 && t.type == RS_JSON_KEY) {
		found = rs_str_is(t.text, LAYOUTS);
		if (rs_json_next(&json, &t) < 0 || rs_json_skip(&json, &t) < 0)
			break;
	}
out:
	rs_arena_free(arena);
	return found;
}
