/*
 * paddle_data.c - the header of a Paddle data file (.distcp, .pdparams, .pdopt): its arrays,
 * located and not read.
 *
 *   {"w": array, ..., "StructuredToParameterName@@": {...}, "UnpackBigParamInfor@@": {...}}
 *
 * The file is a pickled dict, or a safetensors file under the same name. Arrays over a limit are
 * cut by protocols 2 and 3 into "key@@.0", "key@@.1", ...; they are joined again here. Refuses
 * files that are neither, and arrays that no tensor can be; what is no array is left out. Format:
 * docs/formats/paddle.md, section 5. Next: paddle_array.c.
 */
#include "core/source/paddle/paddle.h"
#include "reshardfs/codec.h"

#include <inttypes.h>
#include <stdlib.h>

#define TREE_MOST_BYTES (UINT64_C(1) << 30) /* of the values of one file, payloads aside */
#define TABLE_MOST_BYTES (UINT64_C(512) << 20)

struct reading {
	struct rs__pd_arrays arrays;
	struct rs_arena *scratch; /* the tree */
	const struct rs__pd_keys *keys;
	struct rs_pickle_pair *pairs;
	uint32_t *by_key; /* of the pairs */
	bool *used;       /* a slice, the name table, ...: no tensor of its own */
	uint64_t n_pairs, left_out;
	struct rs_pickle_pair *infos; /* what slices are joined to */
	uint64_t n_infos;
	struct rs_entry *entries;
	uint64_t n_entries, cap_entries;
	struct rs_err *err;
};

/* ------------------------------------------------------------------------------- keys */

/* Does the key count, and what dtype was told? */
static bool wanted(const struct rs__pd_keys *keys, struct rs_str key, enum rs_dtype *told)
{
	*told = RS_DT_NONE;
	if (!keys->keys)
		return true;
	for (uint64_t lo = 0, hi = keys->n; lo < hi;) {
		uint64_t mid = lo + (hi - lo) / 2;
		int order = rs_str_cmp(key, keys->keys[mid].key);
		if (order == 0) {
			*told = keys->keys[mid].dtype;
			return true;
		}
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return false;
}

static int by_key(const void *a, const void *b, void *pairs)
{
	const struct rs_pickle_pair *p = pairs;
	return rs_str_cmp(p[*(const uint32_t *)a].key, p[*(const uint32_t *)b].key);
}

/* The number of the pair with this key, or UINT64_MAX. */
static uint64_t find_pair(const struct reading *r, struct rs_str key)
{
	for (uint64_t lo = 0, hi = r->n_pairs; lo < hi;) {
		uint64_t mid = lo + (hi - lo) / 2;
		int order = rs_str_cmp(key, r->pairs[r->by_key[mid]].key);
		if (order == 0)
			return r->by_key[mid];
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return UINT64_MAX;
}

static int index_pairs(struct reading *r, const struct rs_value *top)
{
	uint64_t n_other;

	if (!rs_value_is(top, RS_VALUE_DICT)) {
		(void)rs_fail(r->err, RS_UNSUPPORTED, "%s: expected a state dict, found %s",
			r->arrays.file->name, RS_VALUE_SHOW(top));
		return rs_hint(r->err, "a file that paddle.save made of something else?");
	}
	if (rs_value_pairs(top, r->scratch, &r->pairs, &r->n_pairs, &n_other, NULL, r->err) < 0)
		return -1;
	r->left_out += n_other;
	r->by_key = RS_NEW_N(r->scratch, uint32_t, r->n_pairs, r->err);
	r->used = RS_NEW_N(r->scratch, bool, r->n_pairs, r->err);
	if (!r->by_key || !r->used)
		return -1;
	for (uint64_t i = 0; i < r->n_pairs; i++)
		r->by_key[i] = (uint32_t)i;
	qsort_r(r->by_key, r->n_pairs, sizeof(*r->by_key), by_key, r->pairs);
	return 0;
}

/* ---------------------------------------------------------------------------- entries */

/* A tensor is an array, or, in pickled objects, a pair of its name and the array. */
static const struct rs_value *array_of(const struct rs_value *v)
{
	if (rs_value_is(v, RS_VALUE_TUPLE) && v->n == 2 &&
		rs_value_is(v->list.items[0], RS_VALUE_STR))
		v = v->list.items[1];
	return rs_value_is(v, RS_VALUE_ARRAY) ? v : NULL;
}

static int add_entry(struct reading *r, struct rs_str key, const struct rs_value *const *arrays,
	uint32_t n, const struct rs_value *shape, enum rs_dtype told)
{
	struct rs_entry e = {0};

	if (r->n_entries >= RS_MAX_TENSORS)
		return rs_fail(r->err, RS_LIMIT, "%s: more than %d tensors", r->arrays.file->name,
			RS_MAX_TENSORS);
	if (rs_arena_str(r->arrays.arena, key, &e.name, r->err) < 0 ||
		rs__pd_entry(&r->arrays, arrays, n, shape, told, &e) < 0 ||
		rs_grow(&r->entries, &r->cap_entries, r->n_entries + 1, sizeof(e), r->err) < 0)
		return -1;
	r->entries[r->n_entries++] = e;
	return 0;
}

static int refuse_slice(struct reading *r, struct rs_str key, const struct rs_value *found)
{
	return rs_fail(r->err, RS_CORRUPT,
		"%s: tensor '%s': expected the names of its own slices, found %s",
		r->arrays.file->name, RS_SHOW(key), RS_VALUE_SHOW(found));
}

/* A slice is no tensor of its own. */
static int mark_slices(struct reading *r, const struct rs_pickle_pair *info)
{
	const struct rs_value *slices = rs_value_get(info->value, "slices");
	struct rs_value *const *names;
	uint32_t n;

	if (!rs_value_list(slices, &names, &n))
		return refuse_slice(r, info->key, slices);
	for (uint32_t i = 0; i < n; i++) {
		struct rs_str name;
		uint64_t at = UINT64_MAX;

		if (rs_value_str(names[i], &name))
			at = find_pair(r, name);
		/* A slice belongs to one tensor, once. */
		if (at == UINT64_MAX || r->used[at] || !array_of(r->pairs[at].value))
			return refuse_slice(r, info->key, names[i]);
		r->used[at] = true;
	}
	return 0;
}

static int read_infos(struct reading *r)
{
	uint64_t at = find_pair(r, RS_STR("UnpackBigParamInfor@@"));

	if (at == UINT64_MAX || !rs_value_is(r->pairs[at].value, RS_VALUE_DICT))
		return 0;
	r->used[at] = true;
	if (rs_value_pairs(
		    r->pairs[at].value, r->scratch, &r->infos, &r->n_infos, NULL, NULL, r->err) < 0)
		return -1;
	for (uint64_t i = 0; i < r->n_infos; i++)
		if (mark_slices(r, &r->infos[i]) < 0)
			return -1;
	return 0;
}

/* {"OriginShape": (rows, columns), "slices": ["key@@.0", "key@@.1"]}, of which all are there */
static int add_joined(struct reading *r, const struct rs_pickle_pair *info)
{
	const struct rs_value **arrays;
	struct rs_value *const *names;
	enum rs_dtype told;
	uint32_t n;

	if (!wanted(r->keys, info->key, &told) ||
		!rs_value_list(rs_value_get(info->value, "slices"), &names, &n))
		return 0;
	arrays = RS_NEW_N(r->scratch, const struct rs_value *, n, r->err);
	if (!arrays)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		struct rs_str name;

		if (rs_value_str(names[i], &name))
			arrays[i] = array_of(r->pairs[find_pair(r, name)].value);
	}
	return add_entry(r, info->key, arrays, n, rs_value_get(info->value, "OriginShape"), told);
}

static int add_single(struct reading *r)
{
	uint64_t names = find_pair(r, RS_STR("StructuredToParameterName@@"));

	for (uint64_t i = 0; i < r->n_pairs; i++) {
		const struct rs_pickle_pair *pair = &r->pairs[i];
		const struct rs_value *array = array_of(pair->value);
		enum rs_dtype told;

		if (r->used[i] || !wanted(r->keys, pair->key, &told))
			continue;
		if (!array && i == names)
			continue;
		if (!array && r->keys->keys)
			return rs_fail(r->err, RS_UNSUPPORTED,
				"%s: tensor '%s': expected an array, found %s",
				r->arrays.file->name, RS_SHOW(pair->key),
				RS_VALUE_SHOW(pair->value));
		if (!array)
			r->left_out++;
		else if (add_entry(r, pair->key, &array, 1, NULL, told) < 0)
			return -1;
	}
	return 0;
}

/* The slices are known first; what they are joined to comes last, as in Paddle. */
static int add_entries(struct reading *r)
{
	if (read_infos(r) < 0 || add_single(r) < 0)
		return -1;
	for (uint64_t i = 0; i < r->n_infos; i++)
		if (add_joined(r, &r->infos[i]) < 0)
			return -1;
	return 0;
}

/* ------------------------------------------------------------------------- whole files */

static int finish(struct reading *r, struct rs_table **out)
{
	struct rs_arena *arena = r->arrays.arena;
	struct rs_table *t = RS_NEW(arena, struct rs_table, r->err);
	struct rs_entry *entries = RS_NEW_N(arena, struct rs_entry, r->n_entries, r->err);
	uint64_t *bytes = RS_NEW(arena, uint64_t, r->err);

	if (!t || !entries || !bytes)
		return -1;
	if (r->n_entries)
		memcpy(entries, r->entries, r->n_entries * sizeof(*entries));
	*bytes = r->arrays.file->size;
	*t = (struct rs_table){.entries = entries,
		.n_entries = r->n_entries,
		.file_bytes = bytes,
		.n_files = 1,
		.arena = arena};
	*out = t;
	return rs_table_finish(t, r->arrays.file->name, r->err);
}

static int read_pickle(struct reading *r, struct rs_table **out)
{
	const struct rs_file *file = r->arrays.file;
	struct rs_pickle pickle;

	r->scratch = rs_arena_new(TREE_MOST_BYTES, r->err);
	r->arrays.arena = rs_arena_new(TABLE_MOST_BYTES, r->err);
	r->arrays.buffer = rs_alloc(RS__PD_BUFFER, r->err);
	if (!r->scratch || !r->arrays.arena || !r->arrays.buffer ||
		rs_pickle_read(file, 0, file->size, NULL, r->scratch, &pickle, r->err) < 0 ||
		index_pairs(r, pickle.top) < 0 || add_entries(r) < 0)
		return -1;
	return finish(r, out);
}

/* U16 is how the older bridge to safetensors calls bfloat16. */
static int read_safetensors(const struct rs_file *file, struct rs_table **out, struct rs_err *err)
{
	struct rs_entry *entries;
	struct rs_table *t;

	if (rs_safetensors_header(file, &t, err) < 0)
		return -1;
	entries = RS_NEW_N(t->arena, struct rs_entry, t->n_entries, err);
	if (!entries) {
		rs_arena_free(t->arena);
		return -1;
	}
	for (uint64_t i = 0; i < t->n_entries; i++) {
		entries[i] = t->entries[i];
		if (entries[i].dtype == RS_DT_U16)
			entries[i].dtype = RS_DT_BF16;
	}
	t->entries = entries;
	*out = t;
	return 0;
}

/*
 * The first bytes tell: a length that lies in the file and '{' behind it are safetensors, though
 * they may begin like a pickle (a header of 0x280 bytes).
 */
static int is_safetensors(const struct rs_file *file, bool *is, struct rs_err *err)
{
	uint8_t head[9];
	struct rs_reader in;

	*is = false;
	if (file->size < sizeof(head))
		return 0;
	if (rs_file_read(file, 0, head, sizeof(head), err) < 0)
		return -1;
	rs_read_init(&in, head, sizeof(head), 0, file->name, err);
	*is = rs_range_ok(8, rs_read_le64(&in, "header length"), file->size) && head[8] == '{';
	return 0;
}

int rs__pd_header(const struct rs_file *file, const struct rs__pd_keys *keys, uint64_t *left_out,
	struct rs_table **out, struct rs_err *err)
{
	struct reading r = {.arrays = {.file = file, .err = err}, .keys = keys, .err = err};
	bool safetensors;
	int status;

	if (left_out)
		*left_out = 0;
	if (rs_sniff_foreign(file, err) < 0 || is_safetensors(file, &safetensors, err) < 0)
		return -1;
	if (safetensors)
		return read_safetensors(file, out, err);
	status = read_pickle(&r, out);
	if (left_out)
		*left_out = r.left_out;
	if (status < 0)
		rs_arena_free(r.arrays.arena);
	rs_arena_free(r.scratch);
	rs_free(r.arrays.buffer);
	rs_free(r.entries);
	return status;
}
