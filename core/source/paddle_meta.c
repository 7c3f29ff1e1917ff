/*
 * paddle_meta.c - the .metadata file of a Paddle checkpoint: which shards there are, and where.
 *
 *   Metadata
 *     state_dict_metadata   {key: [LocalTensorMetadata(global_offset, local_shape, dtype, ...)]}
 *     storage_metadata      {LocalTensorIndex(tensor_key, global_offset, ...): "0_0.distcp"}
 *     flat_mapping          {key: ("layers", "0", "w")}
 *
 * Read from the inert tree of a pickle; attributes that versions lack are not asked for and unknown
 * ones ignored. Replicated checkpoints have an index entry per key and rank, millions of them,
 * so places are sorted once and looked up by hash. Refuses anything that is not of this form, and
 * file names that could leave the directory. Format: docs/formats/paddle.md, section 3.
 * Next: paddle_describe.c.
 */
#include "core/source/paddle.h"
#include "reshardfs/codec.h"

#include <inttypes.h>
#include <stdlib.h>

#define META_MOST_BYTES (UINT64_C(2) << 30) /* of a file; 227 MiB were seen in the field */
#define META_BASE_BYTES (UINT64_C(64) << 20)
#define META_PER_BYTE 24 /* memory for each byte of the file: nodes are larger than opcodes */
#define SETTLE_AFTER 65536
#define META_MEMORY_MOST (UINT64_C(8) << 30)

struct reading {
	struct rs_source *src;
	struct rs__pd_meta *out;
	const char *shown; /* the file under work */
	uint32_t number;   /* of it */
	uint64_t cap_shards, cap_places, cap_files;
	uint64_t settle_at; /* so many names of files: throw out what stands twice */
	struct rs_str key;  /* under work */
	struct rs_err *err;
};

static int refuse(
	const struct reading *r, const char *what, const char *wanted, const struct rs_value *found)
{
	(void)rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': expected %s as %s, found %s", r->shown,
		RS_SHOW(r->key), wanted, what, RS_VALUE_SHOW(found));
	return rs_hint(r->err, "not metadata that Paddle wrote, or of a version not known yet");
}

/* -------------------------------------------------------------------------- attributes */

static bool is_none(const struct rs_value *v)
{
	return !v || v->type == RS_VALUE_NONE;
}

/* A tuple or list of integers. */
static int integers(const struct reading *r, const char *what, const struct rs_value *v,
	struct rs_value *const **out, uint32_t *n)
{
	int64_t value;

	if (!rs_value_list(v, out, n))
		return refuse(r, what, "a tuple of integers", v);
	for (uint32_t i = 0; i < *n; i++)
		if (!rs_value_int((*out)[i], &value))
			return refuse(r, what, "integers alone", (*out)[i]);
	if (*n > RS_MAX_AXES)
		return rs_fail(r->err, RS_LIMIT,
			"%s: tensor '%s': %" PRIu32 " axes, the limit is %d", r->shown,
			RS_SHOW(r->key), *n, RS_MAX_AXES);
	return 0;
}

/* flattened_range: None, or (start, stop). */
static int range(const struct reading *r, const struct rs_value *object, bool *flat, int64_t *start,
	int64_t *stop)
{
	const struct rs_value *v = rs_value_attr(object, "flattened_range");
	const struct rs_value *is = rs_value_attr(object, "is_flattened");
	struct rs_value *const *ends;
	uint32_t n;

	*flat = false;
	*start = *stop = 0;
	if (is_none(v)) {
		if (rs_value_is(is, RS_VALUE_BOOL) && is->truth)
			return refuse(r, "flattened_range", "(start, stop)", v);
		return 0;
	}
	if (integers(r, "flattened_range", v, &ends, &n) < 0)
		return -1;
	if (n != 2 || ends[0]->number < 0 || ends[1]->number < ends[0]->number)
		return refuse(r, "flattened_range", "(start, stop)", v);
	*flat = true;
	*start = ends[0]->number;
	*stop = ends[1]->number;
	return 0;
}

/* ------------------------------------------------------------------------------ shards */

static int add_shard(struct reading *r, const struct rs_value *v)
{
	struct rs__pd_meta *m = r->out;
	struct rs__pd_shard s = {.key = r->key};
	const struct rs_value *whole = rs_value_attr(v, "global_shape");
	const struct rs_value *dtype = rs_value_attr(v, "dtype");
	uint32_t n;

	if (!rs_value_of(v, "LocalTensorMetadata") || !rs_value_is(v, RS_VALUE_INSTANCE))
		return refuse(r, "shard", "LocalTensorMetadata", v);
	if (integers(r, "global_offset", rs_value_attr(v, "global_offset"), &s.offset, &s.n_axes) <
			0 ||
		integers(r, "local_shape", rs_value_attr(v, "local_shape"), &s.shape, &n) < 0 ||
		range(r, v, &s.flat, &s.start, &s.stop) < 0)
		return -1;
	if (n != s.n_axes)
		return refuse(r, "local_shape", "as many integers as in global_offset",
			rs_value_attr(v, "local_shape"));
	if (!is_none(whole)) {
		if (integers(r, "global_shape", whole, &s.whole, &n) < 0)
			return -1;
		if (n != s.n_axes)
			return refuse(
				r, "global_shape", "as many integers as in global_offset", whole);
	}
	if (!is_none(dtype) && !rs_value_str(dtype, &s.dtype))
		return refuse(r, "dtype", "a text", dtype);
	if (rs_grow(&m->shards, &r->cap_shards, m->n_shards + 1, sizeof(*m->shards), r->err) < 0)
		return -1;
	m->shards[m->n_shards++] = s;
	return 0;
}

/* A name of a tensor ends up in headers of files and in C strings of loaders. */
static int check_key(const struct reading *r)
{
	if (rs_utf8_ok(r->key) && !memchr(r->key.ptr, 0, r->key.len))
		return 0;
	return rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': expected a name in UTF-8 without NUL",
		r->shown, RS_SHOW(r->key));
}

static int read_shards(struct reading *r, const struct rs_value *dict)
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
			return refuse(r, "shards", "a list", pairs[i].value);
		for (uint32_t k = 0; k < n_items; k++)
			if (add_shard(r, items[k]) < 0)
				return -1;
	}
	return 0;
}

/* ------------------------------------------------------------------------------ places */

static uint64_t mix(uint64_t h, const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * 0x100000001b3u;
	return h;
}

static uint64_t hash_of(struct rs_str key, struct rs_value *const *offset, uint32_t n, bool flat,
	int64_t start, int64_t stop)
{
	uint64_t h = mix(0xcbf29ce484222325u, key.ptr, key.len);

	for (uint32_t i = 0; i < n; i++)
		h = mix(h, &offset[i]->number, sizeof(offset[i]->number));
	h = mix(h, &flat, sizeof(flat));
	h = mix(h, &start, sizeof(start));
	return mix(h, &stop, sizeof(stop));
}

/* Order by what is looked up; equal hashes are rare, unless somebody made them. */
static int same_shard(const struct rs__pd_place *x, const struct rs__pd_place *y)
{
	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	if (x->n_axes != y->n_axes || x->flat != y->flat)
		return x->n_axes < y->n_axes || (x->n_axes == y->n_axes && x->flat < y->flat) ? -1
											      : 1;
	for (uint32_t i = 0; i < x->n_axes; i++)
		if (x->offset[i]->number != y->offset[i]->number)
			return x->offset[i]->number < y->offset[i]->number ? -1 : 1;
	if (x->start != y->start || x->stop != y->stop)
		return x->start < y->start || (x->start == y->start && x->stop < y->stop) ? -1 : 1;
	return rs_str_cmp(x->key, y->key);
}

static int by_shard(const void *a, const void *b)
{
	const struct rs__pd_place *x = a, *y = b;
	int order = same_shard(x, y);

	if (order == 0 && x->replica != y->replica)
		order = x->replica < y->replica ? -1 : 1;
	return order ? order : (x->seq < y->seq) - (x->seq > y->seq); /* the latest first */
}

/* A bare name: it is opened beneath SOURCE, and nothing in it may look like a path. */
static int check_file(const struct reading *r, struct rs_str name)
{
	if (name.len && name.len <= 255 && !memchr(name.ptr, '/', name.len) &&
		!memchr(name.ptr, 0, name.len) && !rs_str_is(name, ".") && !rs_str_is(name, ".."))
		return 0;
	(void)rs_fail(r->err, RS_CORRUPT,
		"%s: tensor '%s': expected the bare name of a data file, found '%s', which is "
		"outside the checkpoint",
		r->shown, RS_SHOW(r->key), RS_SHOW(name));
	return rs_hint(r->err, "nobody's writer makes such names; where is the file from?");
}

static int by_name(const void *a, const void *b)
{
	const struct rs_str *x = a, *y = b;
	return x->ptr == y->ptr && x->len == y->len ? 0 : rs_str_cmp(*x, *y);
}

static void settle_files(struct rs__pd_meta *m)
{
	uint64_t kept = 0;

	if (m->n_files)
		qsort(m->files, m->n_files, sizeof(*m->files), by_name);
	for (uint64_t i = 0; i < m->n_files; i++)
		if (kept == 0 || by_name(&m->files[kept - 1], &m->files[i]) != 0)
			m->files[kept++] = m->files[i];
	m->n_files = kept;
}

/* Remember the name. The ranks' entries follow each other, so most repeat the one before. */
static int add_file(struct reading *r, struct rs_str name)
{
	struct rs__pd_meta *m = r->out;

	if (m->n_files && by_name(&m->files[m->n_files - 1], &name) == 0)
		return 0;
	if (check_file(r, name) < 0)
		return -1;
	if (m->n_files >= r->settle_at) {
		settle_files(m);
		r->settle_at = 2 * m->n_files + SETTLE_AFTER;
	}
	if (rs_grow(&m->files, &r->cap_files, m->n_files + 1, sizeof(*m->files), r->err) < 0)
		return -1;
	m->files[m->n_files++] = name;
	return 0;
}

static int add_place(struct reading *r, const struct rs_value *index, const struct rs_value *file)
{
	struct rs__pd_meta *m = r->out;
	const struct rs_value *replica = rs_value_attr(index, "replica_id");
	struct rs__pd_place p = {.seq = m->n_places, .meta = r->number};

	r->key = RS_STR("?");
	if (!rs_value_of(index, "LocalTensorIndex") || !rs_value_is(index, RS_VALUE_INSTANCE))
		return refuse(r, "a key of storage_metadata", "LocalTensorIndex", index);
	if (!rs_value_str(rs_value_attr(index, "tensor_key"), &p.key))
		return refuse(r, "tensor_key", "a text", rs_value_attr(index, "tensor_key"));
	r->key = p.key;
	if (!rs_value_str(file, &p.file))
		return refuse(r, "file", "a name", file);
	if (integers(r, "global_offset", rs_value_attr(index, "global_offset"), &p.offset,
		    &p.n_axes) < 0 ||
		range(r, index, &p.flat, &p.start, &p.stop) < 0 || add_file(r, p.file) < 0)
		return -1;
	if (!is_none(replica) && !rs_value_int(replica, &p.replica))
		return refuse(r, "replica_id", "an integer or None", replica);
	p.hash = hash_of(p.key, p.offset, p.n_axes, p.flat, p.start, p.stop);
	if (rs_grow(&m->places, &r->cap_places, m->n_places + 1, sizeof(*m->places), r->err) < 0)
		return -1;
	m->places[m->n_places++] = p;
	return 0;
}

static int read_places(struct reading *r, const struct rs_value *dict)
{
	if (!rs_value_is(dict, RS_VALUE_DICT))
		return rs_fail(r->err, RS_CORRUPT,
			"%s: expected a dict as storage_metadata, found %s", r->shown,
			RS_VALUE_SHOW(dict));
	for (uint64_t i = 0; i < dict->n; i++)
		if (add_place(r, dict->list.items[2 * i], dict->list.items[2 * i + 1]) < 0)
			return -1;
	return 0;
}

/* Of one file the later entry counts; two files that say different things cannot both be right. */
static int check_places(const struct reading *r)
{
	const struct rs__pd_meta *m = r->out;

	for (uint64_t i = 1; i < m->n_places; i++) {
		const struct rs__pd_place *x = &m->places[i - 1], *y = &m->places[i];
		if (x->meta == y->meta || x->replica != y->replica || same_shard(x, y) != 0 ||
			rs_str_eq(x->file, y->file))
			continue;
		(void)rs_fail(r->err, RS_CORRUPT,
			"%s: tensor '%s': one metadata file says %s, another %s", r->src->opts.path,
			RS_SHOW(x->key), RS_SHOW(x->file), RS_SHOW(y->file));
		return rs_hint(r->err, "metadata of several saves in one directory; move the "
				       "others away");
	}
	return 0;
}

const struct rs__pd_place *rs__pd_places(
	const struct rs__pd_meta *meta, const struct rs__pd_shard *s, uint64_t *n)
{
	const struct rs__pd_place key = {.key = s->key,
		.offset = s->offset,
		.n_axes = s->n_axes,
		.flat = s->flat,
		.start = s->start,
		.stop = s->stop,
		.hash = hash_of(s->key, s->offset, s->n_axes, s->flat, s->start, s->stop)};
	uint64_t lo = 0, hi = meta->n_places;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		if (same_shard(&meta->places[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*n = 0;
	while (lo + *n < meta->n_places && same_shard(&meta->places[lo + *n], &key) == 0)
		++*n;
	return meta->places ? &meta->places[lo] : NULL;
}

/* ------------------------------------------------------------------------ flat mapping */

/* A key's path: texts, or integers, which become decimal texts. */
static int read_path(struct reading *r, const struct rs_value *v, struct rs_flat *out)
{
	struct rs_arena *arena = rs_catalog_arena(r->src->cat);
	struct rs_value *const *items;
	struct rs_str *path;
	int64_t number;

	if (!rs_value_list(v, &items, &out->n_path))
		return refuse(r, "flat_mapping", "a tuple of texts", v);
	path = RS_NEW_N(arena, struct rs_str, out->n_path, r->err);
	if (!path)
		return -1;
	for (uint32_t i = 0; i < out->n_path; i++) {
		if (rs_value_int(items[i], &number)) {
			path[i].ptr = rs_arena_printf(arena, r->err, "%" PRId64, number);
			path[i].len = path[i].ptr ? strlen(path[i].ptr) : 0;
		} else if (!rs_value_str(items[i], &path[i])) {
			return refuse(r, "flat_mapping", "texts alone", items[i]);
		} else if (rs_arena_str(arena, path[i], &path[i], r->err) < 0) {
			return -1;
		}
		if (!path[i].ptr)
			return -1;
	}
	out->path = path;
	return 0;
}

static int read_mapping(struct reading *r, const struct rs_value *dict)
{
	struct rs_arena *arena = rs_catalog_arena(r->src->cat);
	struct rs_pickle_pair *pairs;
	struct rs_flat *flat;
	uint64_t n;

	if (is_none(dict) || r->src->n_flat) /* of several metadata files the first that has one */
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

static int read_tree(struct reading *r, const struct rs_file *file)
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
	if (read_shards(r, rs_value_attr(pickle.top, "state_dict_metadata")) < 0 ||
		read_places(r, rs_value_attr(pickle.top, "storage_metadata")) < 0)
		return -1;
	return read_mapping(r, rs_value_attr(pickle.top, "flat_mapping"));
}

static int read_file(struct reading *r, struct rs_str name)
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

static int regroup(struct reading *r)
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
	struct reading r = {.src = src, .out = out, .settle_at = SETTLE_AFTER, .err = err};

	out->arena = rs_arena_new(memory_for(dir), err);
	if (!out->arena)
		return -1;
	for (uint64_t i = 0; i < dir->n_metas; i++)
		if (read_file(&r, dir->metas[i]) < 0)
			return -1;
	settle_files(out);
	if (out->n_places)
		qsort(out->places, out->n_places, sizeof(*out->places), by_shard);
	if (check_places(&r) < 0)
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
