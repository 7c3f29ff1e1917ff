/*
 * paddle_meta.c - the .metadata file of a Paddle checkpoint: which shards there are, and where.
 *
 *   Metadata
 *     state_dict_metadata   {key: [LocalTensorMetadata(global_offset, local_shape, dtype, ...)]}
 *     storage_metadata      {LocalTensorIndex(tensor_key, global_offset, ...): "0_0.distcp"}
 *     flat_mapping          {key: ("layers", "0", "w")}
 *
 * Read from the inert tree of a pickle; attributes that versions lack are not asked for and unknown
 * ones ignored. Refuses anything that is not of this form, and trees in which one node stands for
 * millions. Format: docs/formats/paddle.md, section 3. Next: paddle_places.c, the second dict.
 */
#include "core/source/paddle/paddle.h"
#include "reshardfs/codec.h"

#include <inttypes.h>
#include <stdlib.h>

#define META_MOST_BYTES (UINT64_C(2) << 30) /* of a file; 227 MiB were seen in the field */
#define META_BASE_BYTES (UINT64_C(64) << 20)
#define META_PER_BYTE 24 /* memory for each byte of the file: nodes are larger than opcodes */
#define META_MEMORY_MOST (UINT64_C(8) << 30)

int rs__pd_refuse(const struct rs__pd_reading *r, const char *what, const char *wanted,
	const struct rs_value *found)
{
	(void)rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': expected %s as %s, found %s", r->shown,
		RS_SHOW(r->key), wanted, what, RS_VALUE_SHOW(found));
	return rs_hint(r->err, "not metadata that Paddle wrote, or of a version not known yet");
}

/* -------------------------------------------------------------------------- attributes */

/* A tuple or list of integers. */
int rs__pd_integers(const struct rs__pd_reading *r, const char *what, const struct rs_value *v,
	struct rs_value *const **out, uint32_t *n)
{
	int64_t value;

	if (!rs_value_list(v, out, n))
		return rs__pd_refuse(r, what, "a tuple of integers", v);
	if (*n > RS_MAX_AXES)
		return rs_fail(r->err, RS_LIMIT,
			"%s: tensor '%s': %" PRIu32 " axes, the limit is %d", r->shown,
			RS_SHOW(r->key), *n, RS_MAX_AXES);
	for (uint32_t i = 0; i < *n; i++)
		if (!rs_value_int((*out)[i], &value))
			return rs__pd_refuse(r, what, "integers alone", (*out)[i]);
	return 0;
}

/* flattened_range: None, or (start, stop). */
int rs__pd_range(const struct rs__pd_reading *r, const struct rs_value *object, bool *flat,
	int64_t *start, int64_t *stop)
{
	const struct rs_value *v = rs_value_attr(object, "flattened_range");
	const struct rs_value *is = rs_value_attr(object, "is_flattened");
	struct rs_value *const *ends;
	uint32_t n;

	*flat = false;
	*start = *stop = 0;
	if (rs__pd_is_none(v)) {
		if (rs_value_is(is, RS_VALUE_BOOL) && is->truth)
			return rs__pd_refuse(r, "flattened_range", "(start, stop)", v);
		return 0;
	}
	if (rs__pd_integers(r, "flattened_range", v, &ends, &n) < 0)
		return -1;
	if (n != 2 || ends[0]->number < 0 || ends[1]->number < ends[0]->number)
		return rs__pd_refuse(r, "flattened_range", "(start, stop)", v);
	*flat = true;
	*start = ends[0]->number;
	*stop = ends[1]->number;
	return 0;
}

/* ------------------------------------------------------------------------------ shards */

static int add_shard(struct rs__pd_reading *r, const struct rs_value *v)
{
	struct rs__pd_meta *m = r->out;
	struct rs__pd_shard s = {.key = r->key};
	const struct rs_value *whole = rs_value_attr(v, "global_shape");
	const struct rs_value *dtype = rs_value_attr(v, "dtype");
	uint32_t n;

	if (!rs_value_of(v, "LocalTensorMetadata") || !rs_value_is(v, RS_VALUE_INSTANCE))
		return rs__pd_refuse(r, "shard", "LocalTensorMetadata", v);
	if (rs__pd_integers(r, "global_offset", rs_value_attr(v, "global_offset"), &s.offset,
		    &s.n_axes) < 0 ||
		rs__pd_integers(r, "local_shape", rs_value_attr(v, "local_shape"), &s.shape, &n) <
			0 ||
		rs__pd_range(r, v, &s.flat, &s.start, &s.stop) < 0)
		return -1;
	if (n != s.n_axes)
		return rs__pd_refuse(r, "local_shape", "as many integers as in global_offset",
			rs_value_attr(v, "local_shape"));
	if (!rs__pd_is_none(whole)) {
		if (rs__pd_integers(r, "global_shape", whole, &s.whole, &n) < 0)
			return -1;
		if (n != s.n_axes)
			return rs__pd_refuse(
				r, "global_shape", "as many integers as in global_offset", whole);
	}
	if (!rs__pd_is_none(dtype) && !rs_value_str(dtype, &s.dtype))
		return rs__pd_refuse(r, "dtype", "a text", dtype);
	if (m->n_shards >= r->most_shards)
		return rs_fail(r->err, RS_LIMIT,
			"%s: tensor '%s': more shards than the file can tell", r->shown,
			RS_SHOW(r->key));
	if (rs_grow(&m->shards, &r->cap_shards, m->n_shards + 1, sizeof(*m->shards), r->err) < 0)
		return -1;
	m->shards[m->n_shards++] = s;
	return 0;
}

/* A name of a tensor ends up in headers of files and in C strings of loaders. */
static int check_key(const struct rs__pd_reading *r)
{
	if (rs_utf8_ok(r->key) && !memchr(r->key.ptr, 0, r->key.len))
		return 0;
	return rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': expected a name in UTF-8 without NUL",
		r->shown, RS_SHOW(r->key));
}

static int read_shards(struct rs__pd_reading *r, const struct rs_value *dict)
{
	struct rs_pickle_pair *pairs;
	uint64_t n, n_other, n_twice;

	if (!rs_value_is(dict, RS_VALUE_DICT))
		return rs_fail(r->err, RS_CORRUPT,
			"%s: expected a dict as state_dict_metadata, found %s", r->shown,
			RS_VALUE_SHOW(dict));
	if (rs_value_pairs(dict, r->out->arena, &pairs, &n, &n_other, &n_twice, r->err) < 0)
		return -1;
	if (n_other)
		return rs_fail(r->err, RS_CORRUPT,
			"%s: expected texts as keys of state_dict_metadata, found %" PRIu64
			" others (or names over %d bytes)",
			r->shown, n_other, RS_PICKLE_TEXT);
	if (n_twice)
		rs_note(rs_catalog_notes(r->src->cat),
			"%s: %" PRIu64 " keys stand twice; the last counts", r->shown, n_twice);
	for (uint64_t i = 0; i < n; i++) {
		struct rs_value *const *items;
		uint32_t n_items;

		r->key = pairs[i].key;
		if (check_key(r) < 0)
			return -1;
		if (rs_value_is(pairs[i].value, RS_VALUE_INSTANCE)) {
			if (add_shard(r, pairs[i].value) < 0)
				return -1;
			continue;
		}
		if (!rs_value_list(pairs[i].value, &items, &n_items) || n_items == 0)
			return rs__pd_refuse(r, "shards", "a list", pairs[i].value);
		for (uint32_t k = 0; k < n_items; k++)
			if (add_shard(r, items[k]) < 0)
				return -1;
	}
	return 0;
}

/* ------------------------------------------------------------------------ flat mapping */

/* A key's path: texts, or integers, which become decimal texts. */
static int read_path(struct rs__pd_reading *r, const struct rs_value *v, struct rs_flat *out)
{
	struct rs_arena *arena = rs_catalog_arena(r->src->cat);
	struct rs_value *const *items;
	struct rs_str *path;
	int64_t number;

	if (!rs_value_list(v, &items, &out->n_path))
		return rs__pd_refuse(r, "flat_mapping", "a tuple of texts", v);
	path = RS_NEW_N(arena, struct rs_str, out->n_path, r->err);
	if (!path)
		return -1;
	for (uint32_t i = 0; i < out->n_path; i++) {
		if (rs_value_int(items[i], &number)) {
			path[i].ptr = rs_arena_printf(arena, r->err, "%" PRId64, number);
			path[i].len = path[i].ptr ? strlen(path[i].ptr) : 0;
		} else if (!rs_value_str(items[i], &path[i])) {
			return rs__pd_refuse(r, "flat_mapping", "texts alone", items[i]);
		} else if (rs_arena_str(arena, path[i], &path[i], r->err) < 0) {
			return -1;
		}
		if (!path[i].ptr)
			return -1;
	}
	out->path = path;
	return 0;
}

static int read_mapping(struct rs__pd_reading *r, const struct rs_value *dict)
{
	struct rs_arena *arena = rs_catalog_arena(r->src->cat);
	struct rs_pickle_pair *pairs;
	struct rs_flat *flat;
	uint64_t n;

	if (rs__pd_is_none(dict) ||
		r->src->n_flat) /* of several metadata files the first that has one */
		return 0;
	if (rs_value_pairs(dict, r->out->arena, &pairs, &n, NULL, NULL, r->err) < 0)
		return -1;
	flat = RS_NEW_N(arena, struct rs_flat, n, r->err);
	if (!flat)
		return -1;
	for (uint64_t i = 0; i < n; i++) {
		r->key = pairs[i].key;
		if (read_path(r, pairs[i].value, &flat[i]) < 0 ||
			rs_arena_str(arena, pairs[i].key, &flat[i].key, r->err) < 0)
			return -1;
	}
	r->src->flat = flat;
	r->src->n_flat = n;
	return 0;
}

/* -------------------------------------------------------------------------- whole files */

static int read_tree(struct rs__pd_reading *r, const struct rs_file *file)
{
	struct rs_pickle_options opts = {.max_ops = file->size};
	struct rs_pickle pickle;

	if (rs_sniff_foreign(file, r->err) < 0 ||
		rs_pickle_read(file, 0, file->size, &opts, r->out->arena, &pickle, r->err) < 0)
		return -1;
	if (rs_file_check(file, r->err) < 0)
		return -1;
	if (pickle.end != file->size)
		rs_note(rs_catalog_notes(r->src->cat),
			"%s: %" PRIu64 " bytes behind the pickle, which Paddle ignores", r->shown,
			file->size - pickle.end);
	if (!rs_value_is(pickle.top, RS_VALUE_INSTANCE) || !rs_value_of(pickle.top, "Metadata")) {
		(void)rs_fail(r->err, RS_UNSUPPORTED, "%s: expected Paddle's Metadata, found %s",
			r->shown, RS_VALUE_SHOW(pickle.top));
		return rs_hint(r->err, "a checkpoint of another framework?");
	}
	r->key = RS_STR("");
	r->most_shards += pickle.n_ops;
	if (read_shards(r, rs_value_attr(pickle.top, "state_dict_metadata")) < 0 ||
		rs__pd_places_read(r, rs_value_attr(pickle.top, "storage_metadata")) < 0)
		return -1;
	return read_mapping(r, rs_value_attr(pickle.top, "flat_mapping"));
}

static int read_file(struct rs__pd_reading *r, struct rs_str name)
{
	char *path = rs_arena_copy(r->out->arena, name.ptr, name.len, r->err);
	struct rs_file file;
	int status;

	r->shown = rs__pd_shown(r->src, name, r->err);
	if (!path || !r->shown || rs_dir_file(r->src->dir, path, r->shown, &file, r->err) < 0)
		return -1;
	if (file.size > META_MOST_BYTES)
		status = rs_fail(r->err, RS_LIMIT,
			"%s: metadata of %" PRIu64 " bytes, the limit is %" PRIu64, r->shown,
			file.size, META_MOST_BYTES);
	else
		status = read_tree(r, &file);
	rs_file_close(&file);
	if (r->number++ == 0)
		r->out->shown = r->shown;
	return status;
}

/* Shards of one key from several files: side by side, keys where they stood first. */
static int by_first(const void *a, const void *b)
{
	const struct rs__pd_shard *x = *(const struct rs__pd_shard *const *)a;
	const struct rs__pd_shard *y = *(const struct rs__pd_shard *const *)b;
	int order = rs_str_cmp(x->key, y->key);
	return order ? order : (x > y) - (x < y);
}

struct group {
	uint64_t first;      /* place of its first shard in the old order */
	uint64_t begin, end; /* in the sorted order */
};

static int by_group(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	return (x->first > y->first) - (x->first < y->first);
}

static int regroup(struct rs__pd_reading *r)
{
	struct rs__pd_meta *m = r->out;
	uint64_t n = m->n_shards, n_groups = 0, at = 0;
	struct rs__pd_shard **sorted = rs_alloc((n + 1) * sizeof(struct rs__pd_shard *), r->err);
	struct group *groups = rs_alloc((n + 1) * sizeof(*groups), r->err);
	struct rs__pd_shard *out = rs_alloc((n + 1) * sizeof(*out), r->err);
	int status = -1;

	if (!sorted || !groups || !out)
		goto done;
	for (uint64_t i = 0; i < n; i++)
		sorted[i] = &m->shards[i];
	qsort(sorted, n, sizeof(struct rs__pd_shard *), by_first);
	for (uint64_t i = 0; i < n; i++) {
		if (i == 0 || !rs_str_eq(sorted[i - 1]->key, sorted[i]->key))
			groups[n_groups++] = (struct group){
				.first = (uint64_t)(sorted[i] - m->shards), .begin = i};
		groups[n_groups - 1].end = i + 1;
	}
	qsort(groups, n_groups, sizeof(*groups), by_group);
	for (uint64_t g = 0; g < n_groups; g++)
		for (uint64_t i = groups[g].begin; i < groups[g].end; i++)
			out[at++] = *sorted[i];
	rs_free(m->shards);
	m->shards = out;
	out = NULL;
	status = 0;
done:
	rs_free(sorted);
	rs_free(groups);
	rs_free(out);
	return status;
}

/* What the tree may take: in proportion to the files, as far as that makes sense. */
static uint64_t memory_for(const struct rs__pd_dir *dir)
{
	uint64_t bytes = 0, most;

	for (uint64_t i = 0; i < dir->n_metas; i++) {
		const struct rs_dirent *e = rs__pd_find(dir, dir->metas[i]);
		if (e && !rs_add(bytes, e->id.size, &bytes))
			return META_MEMORY_MOST;
	}
	if (!rs_mul(bytes, META_PER_BYTE, &most) || !rs_add(most, META_BASE_BYTES, &most))
		return META_MEMORY_MOST;
	return rs_min(most, META_MEMORY_MOST);
}

int rs__pd_meta_read(struct rs_source *src, const struct rs__pd_dir *dir, struct rs__pd_meta *out,
	struct rs_err *err)
{
	struct rs__pd_reading r = {.src = src, .out = out, .err = err};

	out->arena = rs_arena_new(memory_for(dir), err);
	if (!out->arena)
		return -1;
	for (uint64_t i = 0; i < dir->n_metas; i++)
		if (read_file(&r, dir->metas[i]) < 0)
			return -1;
	if (rs__pd_places_finish(&r) < 0)
		return -1;
	return dir->n_metas > 1 ? regroup(&r) : 0;
}

void rs__pd_meta_done(struct rs__pd_meta *meta)
{
	rs_free(meta->shards);
	rs_free(meta->places);
	rs_free(meta->files);
	rs_arena_free(meta->arena);
	*meta = (struct rs__pd_meta){0};
}
