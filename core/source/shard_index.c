/*
 * shard_index.c - the index of a sharded checkpoint: which tensor is in which file.
 *
 *   {"metadata": {"total_size": 16}, "weight_map": {"w": "model-00001-of-00002.safetensors", ...}}
 *
 * Indexes reach tens of megabytes and come from strangers, so the streaming reader goes over them.
 * Refuses tensors that stand twice and file names that lead outside the checkpoint, before
 * anything is opened. Format: docs/formats/huggingface.md. Next: shards.c.
 */
#include "core/source/shards.h"
#include "reshardfs/codec.h"

#include <inttypes.h>
#include <stdlib.h>

/* The cap of safetensors headers, which say more about each tensor than an index does. */
#define INDEX_MAX_BYTES 100000000u
#define ARENA_MAX_BYTES (UINT64_C(256) << 20)
#define PATH_MAX_BYTES 4096u

struct reading {
	struct rs_json json;
	struct rs__index *out;
	struct rs_err *err;
};

static int next(struct reading *r, struct rs_json_token *tok)
{
	return rs_json_next(&r->json, tok);
}

static int expect(
	struct reading *r, struct rs_json_token *tok, enum rs_json_type type, const char *what)
{
	if (next(r, tok) < 0)
		return -1;
	if (tok->type == type)
		return 0;
	return rs_fail(
		r->err, RS_CORRUPT, "%s@%" PRIu64 ": expected %s", r->out->name, tok->off, what);
}

/* ------------------------------------------------------------------ file names */

/* What keeps @name from being opened; NULL when it may be tried beneath the fence. */
static const char *name_fault(struct rs_str name)
{
	if (name.len == 0)
		return "an empty name";
	if (name.len >= PATH_MAX_BYTES)
		return "a name of 4096 bytes or more";
	if (memchr(name.ptr, 0, name.len))
		return "a NUL in it";
	if (name.ptr[0] == '/')
		return "an absolute path";
	for (size_t at = 0; at < name.len;) {
		const char *slash = memchr(name.ptr + at, '/', name.len - at);
		size_t end = slash ? (size_t)(slash - name.ptr) : name.len;

		if (end - at == 2 && memcmp(name.ptr + at, "..", 2) == 0)
			return "'..' in it";
		at = end + 1;
	}
	return NULL;
}

static int add_weight(
	struct reading *r, struct rs_str name, const struct rs_json_token *file, struct rs_err *err)
{
	struct rs__index *x = r->out;
	const char *fault = name_fault(file->text);

	if (fault) {
		(void)rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": tensor '%s': expected a file of the checkpoint, found "
			"'%s' (%s): nothing outside the checkpoint is opened",
			x->name, file->off, RS_SHOW(name), RS_SHOW(file->text), fault);
		return rs_hint(err, "was the index made for another place? it should name files "
				    "beside itself");
	}
	if (name.len > RS_MAX_NAME)
		return rs_fail(err, RS_LIMIT,
			"%s@%" PRIu64 ": a tensor name of %zu bytes, the limit is %d (RS_MAX_NAME)",
			x->name, file->off, name.len, RS_MAX_NAME);
	if (x->n_weights == RS_MAX_TENSORS)
		return rs_fail(err, RS_LIMIT, "%s: more than %d tensors (RS_MAX_TENSORS)", x->name,
			RS_MAX_TENSORS);
	if (rs_grow(&x->weights, &x->cap_weights, x->n_weights + 1, sizeof(*x->weights), err) < 0)
		return -1;
	x->weights[x->n_weights++] = (struct rs__weight){.name = name, .file_name = file->text};
	return 0;
}

/* ---------------------------------------------------------------------- parsing */

/* Behind the opening bracket of weight_map. */
static int parse_weights(struct reading *r)
{
	struct rs_json_token key, value;

	for (;;) {
		if (next(r, &key) < 0)
			return -1;
		if (key.type == RS_JSON_OBJECT_END)
			return 0;
		if (expect(r, &value, RS_JSON_STRING, "a file name (a string)") < 0 ||
			add_weight(r, key.text, &value, r->err) < 0)
			return -1;
	}
}

/* Behind the opening bracket of metadata: its other keys are for other readers. */
static int parse_metadata(struct reading *r)
{
	struct rs_json_token key, value;

	for (;;) {
		if (next(r, &key) < 0)
			return -1;
		if (key.type == RS_JSON_OBJECT_END)
			return 0;
		if (next(r, &value) < 0)
			return -1;
		if (rs_str_is(key.text, "total_size") && value.type == RS_JSON_UINT) {
			r->out->has_total_size = true;
			r->out->total_size = value.u;
		}
		if (rs_json_skip(&r->json, &value) < 0)
			return -1;
	}
}

/* One key of the top level. @seen: a weight_map was there; @bare: a line without one. */
static int parse_member(
	struct reading *r, const struct rs_json_token *key, bool bare_ok, bool *seen, bool *bare)
{
	struct rs_json_token value;

	if (next(r, &value) < 0)
		return -1;
	if (value.type == RS_JSON_OBJECT && rs_str_is(key->text, "weight_map")) {
		if (*seen)
			return rs_fail(r->err, RS_CORRUPT,
				"%s@%" PRIu64 ": expected one weight_map, found a second",
				r->out->name, key->off);
		*seen = true;
		return parse_weights(r);
	}
	if (value.type == RS_JSON_OBJECT && rs_str_is(key->text, "metadata"))
		return parse_metadata(r);
	if (value.type == RS_JSON_STRING && bare_ok) {
		*bare = true;
		return add_weight(r, key->text, &value, r->err);
	}
	return rs_json_skip(&r->json, &value);
}

static int parse(struct reading *r, bool bare_ok)
{
	bool seen = false, bare = false;
	struct rs_json_token tok;

	if (expect(r, &tok, RS_JSON_OBJECT, "an object") < 0)
		return -1;
	for (;;) {
		if (next(r, &tok) < 0)
			return -1;
		if (tok.type == RS_JSON_OBJECT_END)
			break;
		if (parse_member(r, &tok, bare_ok, &seen, &bare) < 0)
			return -1;
	}
	if (expect(r, &tok, RS_JSON_END, "the end") < 0)
		return -1;
	if (seen && bare)
		return rs_fail(r->err, RS_CORRUPT,
			"%s: expected a weight_map or file names at the top level, found both",
			r->out->name);
	if (r->out->n_weights)
		return 0;
	return rs_fail(r->err, RS_CORRUPT, "%s: expected %s, found no tensor", r->out->name,
		bare_ok ? "file names by tensor" : "a weight_map of file names by tensor");
}

/* ---------------------------------------------------------------------- order */

static int by_file(const void *a, const void *b)
{
	const struct rs__weight *x = a, *y = b;
	return rs_str_cmp(x->file_name, y->file_name);
}

static int by_name(const void *a, const void *b)
{
	const struct rs__weight *x = a, *y = b;
	return rs_str_cmp(x->name, y->name);
}

static int number_files(struct rs__index *x, struct rs_err *err)
{
	uint32_t n = 0;

	qsort(x->weights, x->n_weights, sizeof(*x->weights), by_file);
	for (uint64_t i = 0; i < x->n_weights; i++) {
		n += i == 0 || by_file(&x->weights[i - 1], &x->weights[i]) != 0;
		x->weights[i].file = n - 1;
	}
	x->files = RS_NEW_N(x->arena, const char *, n, err);
	if (!x->files)
		return -1;
	for (uint64_t i = 0; i < x->n_weights; i++) {
		const struct rs__weight *w = &x->weights[i];
		if (w->file < x->n_files)
			continue;
		x->files[x->n_files] =
			rs_arena_copy(x->arena, w->file_name.ptr, w->file_name.len, err);
		if (!x->files[x->n_files])
			return -1;
		x->n_files++;
	}
	return 0;
}

static int sort_names(struct rs__index *x, struct rs_err *err)
{
	qsort(x->weights, x->n_weights, sizeof(*x->weights), by_name);
	for (uint64_t i = 1; i < x->n_weights; i++)
		if (rs_str_eq(x->weights[i - 1].name, x->weights[i].name))
			return rs_fail(err, RS_CORRUPT, "%s: tensor '%s' stands twice", x->name,
				RS_SHOW(x->weights[i].name));
	return 0;
}

/* ----------------------------------------------------------------- all of it */

int rs__text_read(const struct rs_file *file, uint64_t max_bytes, struct rs_arena *arena,
	struct rs_str *out, struct rs_err *err)
{
	char *text;

	if (rs_sniff_foreign(file, err) < 0)
		return -1;
	if (file->size > max_bytes)
		return rs_fail(err, RS_LIMIT,
			"%s: a text of %" PRIu64 " bytes, the limit is %" PRIu64, file->name,
			file->size, max_bytes);
	text = rs_arena_alloc(arena, file->size, err);
	if (!text || rs_file_read(file, 0, text, file->size, err) < 0)
		return -1;
	*out = (struct rs_str){text, file->size};
	return 0;
}

int rs__index_read(const struct rs_file *file, bool bare, struct rs__index *out, struct rs_err *err)
{
	struct reading r = {.out = out, .err = err};
	struct rs_str text;

	*out = (struct rs__index){.name = file->name};
	out->arena = rs_arena_new(ARENA_MAX_BYTES, err);
	if (!out->arena || rs__text_read(file, INDEX_MAX_BYTES, out->arena, &text, err) < 0)
		return -1;
	rs_json_init(&r.json, text, 0, file->name, out->arena, err);
	if (parse(&r, bare) < 0 || number_files(out, err) < 0)
		return -1;
	return sort_names(out, err);
}

void rs__index_done(struct rs__index *index)
{
	rs_free(index->weights);
	rs_arena_free(index->arena);
	*index = (struct rs__index){0};
}

struct rs__weight *rs__index_find(const struct rs__index *index, struct rs_str name)
{
	const struct rs__weight key = {.name = name};

	if (!index->n_weights)
		return NULL;
	return bsearch(&key, index->weights, index->n_weights, sizeof(key), by_name);
}

uint32_t rs__index_file(const struct rs__index *index, const char *path)
{
	uint32_t lo = 0, hi = index->n_files;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int order = strcmp(path, index->files[mid]);
		if (order == 0)
			return mid;
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return index->n_files;
}
