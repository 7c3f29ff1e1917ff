/*
 * rules_json.c - the text of a plan becomes a struct rs__plan; nothing of it is looked up in a
 * source yet.
 *
 * Here are the members at the top: vars, mesh, files, strict, ranges. Refuses broken JSON, members
 * that the language does not have, axes and ranges that do not fit each other, and file paths that
 * would leave their directory. Described in docs/plans.md; as a schema in docs/plan.schema.json.
 * Read next: rules_rule.c.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>

#include "core/target/rules/rules_read.h"
#include "reshardfs/codec.h"

static int read_text(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs_str text;

	if (rs__read_str(r, at, v, &text) < 0)
		return -1;
	*(const char **)out = text.ptr; /* arena copies are terminated */
	return 0;
}

static int read_unmatched(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"error", "drop", "replicate", NULL};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(enum rs__unmatched *)out = (enum rs__unmatched)n;
	return 0;
}

static int read_missing(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"error", "skip", NULL};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(enum rs_missing *)out = n ? RS_MISSING_SKIP : RS_MISSING_ERROR;
	return 0;
}

static int read_format(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const char *const words[] = {"safetensors", "ckpt", "pdparams", "pt", NULL};
	int n;

	if (rs__read_word(r, at, v, words, &n) < 0)
		return -1;
	*(const char **)out = words[n];
	return 0;
}

static int read_version(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	int64_t n;

	(void)out;
	if (!rs_json_int(v, &n))
		return rs__read_unexpected(r, at, "1", v);
	if (n == 1)
		return 0;
	return rs_fail(r->err, RS_UNSUPPORTED,
		"%s: reshard_plan: expected version 1, found %" PRId64, r->plan->name, n);
}

static bool is_word(const char *s)
{
	for (const char *c = s; *c; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' ||
			    (c > s && *c >= '0' && *c <= '9')))
			return false;
	return *s != '\0';
}

static int read_vars(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__vars *vars = out;
	struct rs_var *own;
	const cJSON *child;

	if (!cJSON_IsObject(v))
		return rs__read_unexpected(r, at, "an object of integers", v);
	own = RS_NEW_N(r->arena, struct rs_var, (uint64_t)cJSON_GetArraySize(v), r->err);
	if (!own)
		return -1;
	cJSON_ArrayForEach(child, v)
	{
		struct rs__at inner = {.up = at, .key = child->string};
		struct rs_var *var = &own[vars->n++];
		uint64_t value;

		if (!is_word(child->string))
			return rs__read_refuse(r, at, "'%s' is no name for a variable",
				rs_show(rs_str(child->string), (char[60]){0}, 60));
		if (rs__read_u64(r, &inner, child, &value) < 0 ||
			rs_arena_str(r->arena, rs_str(child->string), &var->name, r->err) < 0)
			return -1;
		var->value = (int64_t)value; /* below 2^53 */
	}
	vars->own = own;
	return 0;
}

static int read_mesh_axis(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__axis, "name", name, rs__read_str),
		REQUIRED(rs__axis, "size", size, rs__read_u64),
		{0},
	};
	struct rs__axis *axis = out;

	if (rs__read_object(r, at, v, fields, axis) < 0)
		return -1;
	if (!is_word(axis->name.ptr) || rs_str_is(axis->name, "rank"))
		return rs__read_refuse(r, at, "'%s' is no name for an axis",
			rs_show(axis->name, (char[60]){0}, 60));
	if (axis->size == 0 || axis->size > RS_MAX_CELLS)
		return rs__read_refuse(r, at, "expected a size from 1 to %u, found %" PRIu64,
			RS_MAX_CELLS, axis->size);
	return 0;
}

static int read_axes(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__mesh *m = out;
	struct rs__axis *axes;
	uint32_t n;

	axes = rs__read_array(r, at, v, read_mesh_axis, sizeof(*axes), &n);
	if (!axes)
		return -1;
	if (n == 0 || n > RS__MESH_AXES)
		return rs__read_refuse(r, at, "expected 1 to %d axes", RS__MESH_AXES);
	for (uint32_t i = 0; i < n; i++) {
		if (rs__mesh_find(m, axes[i].name) != RS__NONE)
			return rs__read_refuse(r, at, "axis '%s' stands twice",
				rs_show(axes[i].name, (char[60]){0}, 60));
		m->axes[m->n++] = axes[i];
	}
	return 0;
}

static int read_mesh(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		{"axes", read_axes, 0, true},
		{0},
	};
	struct rs__mesh *m = out;

	if (rs__read_object(r, at, v, fields, m) < 0)
		return -1;
	if (r->sizes && rs__mesh_use(m, r->sizes, r->n_sizes, r->plan->name, r->err) < 0)
		return -1;
	return rs__mesh_count(m, r->plan->name, r->err);
}

static int read_metadata(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs_files *files = out;
	struct rs_meta *meta;
	const cJSON *child;

	if (!cJSON_IsObject(v))
		return rs__read_unexpected(r, at, "an object of strings", v);
	meta = RS_NEW_N(r->arena, struct rs_meta, (uint64_t)cJSON_GetArraySize(v), r->err);
	if (!meta)
		return -1;
	cJSON_ArrayForEach(child, v)
	{
		struct rs__at inner = {.up = at, .key = child->string};
		struct rs_meta *m = &meta[files->n_meta++];

		if (!cJSON_IsString(child))
			return rs__read_unexpected(r, &inner, "a string", child);
		if (rs_arena_str(r->arena, rs_str(child->string), &m->key, r->err) < 0 ||
			rs_arena_str(r->arena, rs_str(child->valuestring), &m->value, r->err) < 0)
			return -1;
	}
	files->meta = meta;
	return 0;
}

/* ----------------------------------------------------------------------- files.path */

/* {rank} or the name of an axis, between two braces. */
static int check_placeholder(struct rs__read *r, const struct rs__at *at, struct rs_str name)
{
	if (rs_str_is(name, "rank") || rs__mesh_find(&r->plan->mesh, name) != RS__NONE)
		return 0;
	return rs__read_refuse(r, at, "path: '{%s}': expected {rank} or an axis",
		rs_show(name, (char[60]){0}, 60));
}

static bool plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

/* Relative, of plain characters, and it stays where it is. */
static int check_path(struct rs__read *r, const struct rs__at *at, const char *path)
{
	const char *part = path;

	for (const char *c = path;; c++) {
		struct rs_str seen = {part, (size_t)(c - part)};
		if (*c == '/' || *c == '\0') {
			if (seen.len == 0 || rs_str_is(seen, ".") || rs_str_is(seen, ".."))
				break;
			part = c + 1;
		} else if (*c == '{') {
			const char *close = strchr(c, '}');
			if (!close)
				break;
			if (check_placeholder(
				    r, at, (struct rs_str){c + 1, (size_t)(close - c - 1)}) < 0)
				return -1;
			c = close;
		} else if (!plain(*c)) {
			break;
		}
		if (*c == '\0')
			return 0;
	}
	return rs__read_refuse(r, at,
		"path: expected letters, digits, '.', '_', '-', {rank} and axes in braces, in "
		"folders by '/', found '%s'",
		rs_show(rs_str(path), (char[80]){0}, 80));
}

static int read_files(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__plan, "path", files.path, read_text),
		REQUIRED(rs__plan, "format", format, read_format),
		FIELD(rs__plan, "max_bytes", files.max_bytes, rs__read_u64),
		FIELD(rs__plan, "align", files.align, rs__read_u64),
		FIELD(rs__plan, "index", files.index, read_text),
		FIELD(rs__plan, "metadata", files, read_metadata),
		{0},
	};
	struct rs__plan *plan = out;

	if (rs__read_object(r, at, v, fields, plan) < 0)
		return -1;
	return check_path(r, at, plan->files.path);
}

static int read_strict(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	static const struct rs__field fields[] = {
		FIELD(rs__plan, "unmatched", unmatched, read_unmatched),
		FIELD(rs__plan, "missing", missing, read_missing),
		FIELD(rs__plan, "uneven", uneven, rs__read_uneven),
		{0},
	};

	return rs__read_object(r, at, v, fields, out);
}

/* An array with one item per coordinate of the axis of the range. */
static void *read_shares(struct rs__read *r, const struct rs__at *at, const cJSON *v,
	rs__read_fn read, size_t size, const struct rs__range *range)
{
	const struct rs__axis *axis = &r->plan->mesh.axes[range->axis];
	uint32_t n;
	void *items = rs__read_array(r, at, v, read, size, &n);

	if (items && n != axis->size) {
		rs__read_refuse(r, at, "%" PRIu32 " items for axis '%s' of %" PRIu64, n,
			rs_show(axis->name, (char[60]){0}, 60), axis->size);
		return NULL;
	}
	return items;
}

static int read_sizes(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__range *range = out;

	range->sizes = read_shares(r, at, v, rs__read_u64, sizeof(*range->sizes), range);
	return range->sizes ? 0 : -1;
}

static int read_lists(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__range *range = out;

	range->lists = read_shares(r, at, v, rs__read_indices, sizeof(*range->lists), range);
	return range->lists ? 0 : -1;
}

static int read_range(
	struct rs__read *r, const struct rs__at *at, const cJSON *v, struct rs__range *range)
{
	static const struct rs__field fields[] = {
		REQUIRED(rs__range, "axis", axis, rs__read_axis),
		FIELD(rs__range, "count", count, rs__read_num),
		{"sizes", read_sizes, 0, false},
		{"lists", read_lists, 0, false},
		FIELD(rs__range, "local", renumber, rs__read_bool),
		{0},
	};

	range->where = rs__read_where(r, at);
	if (!range->where || rs__read_object(r, at, v, fields, range) < 0)
		return -1;
	if ((range->count.where != NULL) + (range->sizes != NULL) + (range->lists != NULL) > 1)
		return rs__read_refuse(r, at, "expected one of 'count', 'sizes' and 'lists'");
	return 0;
}

static int read_ranges(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__plan *plan = out;
	const cJSON *child;

	if (!cJSON_IsObject(v))
		return rs__read_unexpected(r, at, "an object of ranges", v);
	plan->ranges =
		RS_NEW_N(r->arena, struct rs__range, (uint64_t)cJSON_GetArraySize(v), r->err);
	if (!plan->ranges)
		return -1;
	cJSON_ArrayForEach(child, v)
	{
		struct rs__at inner = {.up = at, .key = child->string};
		struct rs__range *range = &plan->ranges[plan->n_ranges++];

		if (!is_word(child->string))
			return rs__read_refuse(r, at, "'%s' is no name for a range",
				rs_show(rs_str(child->string), (char[60]){0}, 60));
		if (rs_arena_str(r->arena, rs_str(child->string), &range->name, r->err) < 0 ||
			read_range(r, &inner, child, range) < 0)
			return -1;
	}
	return 0;
}

static int read_rules(struct rs__read *r, const struct rs__at *at, const cJSON *v, void *out)
{
	struct rs__plan *plan = out;

	plan->rules = rs__read_array(r, at, v, rs__read_rule, sizeof(*plan->rules), &plan->n_rules);
	return plan->rules ? 0 : -1;
}

/* ------------------------------------------------------------------------ all of it */

/* The order counts: rules speak of ranges, ranges of axes. */
static int read_plan(struct rs__read *r, const cJSON *v)
{
	static const struct rs__field members[] = {
		{"reshard_plan", read_version, 0, true},
		FIELD(rs__plan, "vars", vars, read_vars),
		REQUIRED(rs__plan, "mesh", mesh, read_mesh),
		{"files", read_files, 0, true},
		{"strict", read_strict, 0, false},
		{"ranges", read_ranges, 0, false},
		{"rules", read_rules, 0, true},
		{0},
	};
	const struct rs__at top = {0};

	return rs__read_object(r, &top, v, members, r->plan);
}

int rs__plan_read(struct rs_str text, const char *name, const struct rs__axis *sizes,
	uint32_t n_sizes, struct rs_arena *arena, struct rs__plan **out, struct rs_err *err)
{
	struct rs__plan *plan = RS_NEW(arena, struct rs__plan, err);
	struct rs__read r = {plan, sizes, n_sizes, arena, err};
	cJSON *json = NULL;
	int rc;

	if (!plan)
		return -1;
	plan->name = rs_arena_copy(arena, name, strlen(name), err);
	if (!plan->name)
		return -1;
	if (rs_json_parse(text, plan->name, &json, err) < 0) {
		/* Broken bytes of a target are a mistake of the caller, not of the source. */
		if (err && err->code == RS_CORRUPT)
			err->code = RS_USAGE;
		return -1;
	}
	rc = read_plan(&r, json);
	cJSON_Delete(json);
	*out = plan;
	return rc;
}

bool rs__plan_is(struct rs_str text)
{
	size_t at = 0;

	while (at < text.len && memchr(" \t\r\n", text.ptr[at], 4))
		at++;
	return at < text.len && text.ptr[at] == '{' &&
	       memmem(text.ptr, text.len, "\"reshard_plan\"", 14) != NULL;
}
