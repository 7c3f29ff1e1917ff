/*
 * paddle_places.c - the index of a Paddle checkpoint: which data file holds which shard.
 *
 * A replicated checkpoint has an entry for every key and rank, millions of them. They are sorted
 * once by a hash of key, offset and range, and looked up by it; equal hashes are told apart by what
 * they are of. The names of files are few, and are gathered as they come. Refuses names that could
 * leave the directory, and metadata files that contradict each other.
 * Format: docs/formats/paddle.md, section 3. Next: paddle_describe.c.
 */
#include "core/source/paddle/paddle.h"

#include <inttypes.h>
#include <stdlib.h>

#define SETTLE_AFTER 65536 /* names of files: from here on, what stands twice is thrown out */

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
static int check_file(const struct rs__pd_reading *r, struct rs_str name)
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
static int add_file(struct rs__pd_reading *r, struct rs_str name)
{
	struct rs__pd_meta *m = r->out;

	if (m->n_files && by_name(&m->files[m->n_files - 1], &name) == 0)
		return 0;
	if (check_file(r, name) < 0)
		return -1;
	if (m->n_files >= rs_max(r->settle_at, SETTLE_AFTER)) {
		settle_files(m);
		r->settle_at = 2 * m->n_files + SETTLE_AFTER;
	}
	if (rs_grow(&m->files, &r->cap_files, m->n_files + 1, sizeof(*m->files), r->err) < 0)
		return -1;
	m->files[m->n_files++] = name;
	return 0;
}

static int add_place(
	struct rs__pd_reading *r, const struct rs_value *index, const struct rs_value *file)
{
	struct rs__pd_meta *m = r->out;
	const struct rs_value *replica = rs_value_attr(index, "replica_id");
	struct rs__pd_place p = {.seq = m->n_places, .meta = r->number};

	r->key = RS_STR("?");
	if (!rs_value_of(index, "LocalTensorIndex") || !rs_value_is(index, RS_VALUE_INSTANCE))
		return rs__pd_refuse(r, "a key of storage_metadata", "LocalTensorIndex", index);
	if (!rs_value_str(rs_value_attr(index, "tensor_key"), &p.key))
		return rs__pd_refuse(r, "tensor_key", "a text", rs_value_attr(index, "tensor_key"));
	r->key = p.key;
	if (!rs_value_str(file, &p.file))
		return rs__pd_refuse(r, "file", "a name", file);
	if (rs__pd_integers(r, "global_offset", rs_value_attr(index, "global_offset"), &p.offset,
		    &p.n_axes) < 0 ||
		rs__pd_range(r, index, &p.flat, &p.start, &p.stop) < 0 || add_file(r, p.file) < 0)
		return -1;
	if (!rs__pd_is_none(replica) && !rs_value_int(replica, &p.replica))
		return rs__pd_refuse(r, "replica_id", "an integer or None", replica);
	p.hash = hash_of(p.key, p.offset, p.n_axes, p.flat, p.start, p.stop);
	if (rs_grow(&m->places, &r->cap_places, m->n_places + 1, sizeof(*m->places), r->err) < 0)
		return -1;
	m->places[m->n_places++] = p;
	return 0;
}

int rs__pd_places_read(struct rs__pd_reading *r, const struct rs_value *dict)
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
static int check_places(const struct rs__pd_reading *r)
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

int rs__pd_places_finish(struct rs__pd_reading *r)
{
	struct rs__pd_meta *m = r->out;

	settle_files(m);
	if (m->n_places)
		qsort(m->places, m->n_places, sizeof(*m->places), by_shard);
	return check_places(r);
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
