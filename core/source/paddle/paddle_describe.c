/*
 * paddle_describe.c - from the shards of the metadata to tensors made of listed pieces.
 *
 *   'w': offset [0, 0] shape [2, 8] in 0_0.distcp     'w' is F32 [4, 8]
 *        offset [2, 0] shape [2, 8] in 1_0.distcp     pieces: rows 0-1, rows 2-3
 *
 * A flattened shard is a stretch [start, stop) of its box in row-major order, stored with one axis.
 * It becomes at most 2 x axes - 1 boxes: of 4 x 6, elements [4, 20) are the end of row 0, rows 1-2
 * whole, the begin of row 3. Shards without elements (also those of negative length, which the
 * ceiling split makes) are no pieces. Refuses shards that disagree on shape or dtype, and shards
 * that no file holds. Holes and overlaps end the plan of the tensor. Format:
 * docs/formats/paddle.md, section 4. Next: core/catalog/pieces.c.
 */
#include "core/source/paddle/paddle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define REPLICAS_ASKED 4096               /* of a shard whose main file is lost */
#define DIM_MOST ((INT64_C(1) << 62) - 1) /* two of them add up */

struct describe {
	struct rs_source *src;
	struct rs__paddle *paddle;
	const struct rs__pd_meta *meta;
	struct rs_arena *arena;
	struct rs_str key;       /* under work */
	struct rs_piece *pieces; /* heap; of the tensor under work */
	uint64_t n_pieces, cap_pieces;
	struct rs_err *err;
};

static int refuse(const struct describe *d, const struct rs__pd_shard *s, const char *what)
{
	char box[RS_SHOW_MAX] = "[";
	size_t at = 1;

	for (uint32_t a = 0; a < s->n_axes && at + 48 < sizeof(box); a++)
		at += (size_t)snprintf(box + at, sizeof(box) - at, "%s%" PRId64 "+%" PRId64,
			a ? ", " : "", s->offset[a]->number, s->shape[a]->number);
	return rs_fail(d->err, RS_CORRUPT, "%s: tensor '%s': shard %s]: %s", d->meta->shown,
		RS_SHOW(d->key), box, what);
}

/* ------------------------------------------------------------------------------ shapes */

/* The whole shape: per axis the furthest that any shard reaches. */
static int whole_shape(
	struct describe *d, const struct rs__pd_shard *shards, uint64_t n, struct rs_shape *out)
{
	*out = (struct rs_shape){.n_axes = shards[0].n_axes};
	for (uint64_t i = 0; i < n; i++) {
		const struct rs__pd_shard *s = &shards[i];
		if (s->n_axes != out->n_axes)
			return refuse(d, s, "has another number of axes than the first shard");
		for (uint32_t a = 0; a < s->n_axes; a++) {
			int64_t begin = s->offset[a]->number, len = s->shape[a]->number;
			if (begin < 0 || begin > DIM_MOST || len > DIM_MOST || len < -DIM_MOST ||
				begin + len < 0)
				return refuse(d, s, "expected it inside of a tensor");
			out->dims[a] = rs_max(out->dims[a], (uint64_t)(begin + len));
		}
	}
	for (uint64_t i = 0; i < n; i++)
		for (uint32_t a = 0; shards[i].whole && a < out->n_axes; a++)
			if (shards[i].whole[a]->number < 0 ||
				(uint64_t)shards[i].whole[a]->number != out->dims[a])
				return rs_fail(d->err, RS_CORRUPT,
					"%s: tensor '%s': expected %" PRId64 " along axis %" PRIu32
					" (global_shape), found shards that "
					"reach %" PRIu64,
					d->meta->shown, RS_SHOW(d->key), shards[i].whole[a]->number,
					a, out->dims[a]);
	return 0;
}

static bool is_empty(const struct rs__pd_shard *s)
{
	bool empty = s->flat && s->start == s->stop;

	for (uint32_t a = 0; a < s->n_axes; a++)
		empty |= s->shape[a]->number <= 0;
	return empty;
}

/* ------------------------------------------------------------------------------ dtypes */

/* The dtype that all shards tell, or RS_DT_NONE when none does. */
static int told_dtype(
	struct describe *d, const struct rs__pd_shard *shards, uint64_t n, enum rs_dtype *out)
{
	*out = RS_DT_NONE;
	for (uint64_t i = 0; i < n; i++) {
		enum rs_dtype dt = shards[i].dtype.ptr ? rs__pd_dtype(shards[i].dtype) : RS_DT_NONE;
		if (shards[i].dtype.ptr && dt == RS_DT_NONE)
			return rs_fail(d->err, RS_UNSUPPORTED,
				"%s: tensor '%s': unknown dtype '%s'", d->meta->shown,
				RS_SHOW(d->key), RS_SHOW(shards[i].dtype));
		if (i && dt != *out)
			return rs_fail(d->err, RS_CORRUPT,
				"%s: tensor '%s': expected shards of one dtype, found %s and %s",
				d->meta->shown, RS_SHOW(d->key), rs_dtype_name(*out),
				rs_dtype_name(dt));
		*out = dt;
	}
	return 0;
}

/* The file to read a shard from: that of the main copy; when it is lost, of a replica. */
static int choose_unit(struct describe *d, const struct rs__pd_shard *s, uint32_t *unit)
{
	uint64_t n;
	const struct rs__pd_place *places = rs__pd_places(d->meta, s, &n);
	bool chosen = false;

	for (uint64_t i = 0; i < n && i < REPLICAS_ASKED; i++) {
		uint32_t u = rs__pd_unit(d->paddle, places[i].file);
		/* Of a lost one the first is told: it is the one that should be there. */
		if (chosen && rs_catalog_unit(d->src->cat, u)->absent)
			continue;
		*unit = u;
		chosen = true;
		if (!rs_catalog_unit(d->src->cat, u)->absent)
			return 0;
	}
	return chosen ? 0 : refuse(d, s, "storage_metadata names no file that holds it");
}

/* Metadata of 2023 tells no dtypes: ask the first file that can be read. */
static int stored_dtype(
	struct describe *d, const struct rs__pd_shard *shards, uint64_t n, enum rs_dtype *out)
{
	struct rs_err first = {0}, why = {0};

	for (uint64_t i = 0; i < n; i++) {
		const struct rs_table *table;
		const struct rs_entry *e = NULL;
		uint32_t unit;

		if (choose_unit(d, &shards[i], &unit) < 0)
			return -1;
		table = rs_catalog_table(d->src->cat, unit, &why);
		if (table)
			e = rs_table_find(table, d->key);
		if (e) {
			*out = e->dtype;
			return 0;
		}
		if (table)
			(void)rs_fail(&why, RS_MISSING,
				"%s: tensor '%s': expected it here, found none",
				rs_catalog_unit(d->src->cat, unit)->name, RS_SHOW(d->key));
		if (first.code == RS_OK)
			first = why;
	}
	if (d->err)
		*d->err = first;
	return -1;
}

/* ------------------------------------------------------------------------------ pieces */

static int add_piece(struct describe *d, const struct rs_piece *p)
{
	if (rs_grow(&d->pieces, &d->cap_pieces, d->n_pieces + 1, sizeof(*d->pieces), d->err) < 0)
		return -1;
	d->pieces[d->n_pieces++] = *p;
	return 0;
}

/*
 * Elements [start, stop) of @box as boxes. Each step takes as much as lies aligned: from a
 * position that begins a plane, as many whole planes as there are; else whole rows up to the end of
 * the plane; else elements up to the end of the row.
 */
static int add_flat(struct describe *d, const struct rs_box *box, uint64_t start, uint64_t stop,
	struct rs_piece *p)
{
	uint64_t inner[RS_MAX_AXES + 1]; /* elements of one step along axis a - 1 */
	uint32_t n = box->n_axes;

	inner[n] = 1;
	for (uint32_t a = n; a-- > 0;)
		inner[a] = inner[a + 1] * box->len[a];
	for (uint64_t pos = start; pos < stop;) {
		uint32_t axis = 0;
		uint64_t steps = 1;

		while (axis + 1 < n && (pos % inner[axis + 1] || stop - pos < inner[axis + 1]))
			axis++;
		p->box.n_axes = n;
		for (uint32_t a = 0; a < n; a++) {
			uint64_t at = pos / inner[a + 1] % box->len[a];
			if (a == axis)
				steps = rs_min(box->len[a] - at, (stop - pos) / inner[a + 1]);
			p->box.origin[a] = box->origin[a] + (a > axis ? 0 : at);
			p->box.len[a] = a < axis ? 1 : a == axis ? steps : box->len[a];
		}
		p->first = pos - start;
		rs_piece_row_major(p);
		if (add_piece(d, p) < 0)
			return -1;
		pos += n ? steps * inner[axis + 1] : 1;
	}
	return 0;
}

static int add_shard(struct describe *d, const struct rs__pd_shard *s)
{
	struct rs_piece p = {.box.n_axes = s->n_axes};
	struct rs_box box;
	struct rs_shape *stored;
	uint64_t count;

	if (is_empty(s))
		return 0;
	if (choose_unit(d, s, &p.unit) < 0)
		return -1;
	for (uint32_t a = 0; a < s->n_axes; a++) {
		p.box.origin[a] = (uint64_t)s->offset[a]->number;
		p.box.len[a] = (uint64_t)s->shape[a]->number;
	}
	if (!s->flat) {
		rs_piece_row_major(&p);
		return add_piece(d, &p);
	}
	box = p.box;
	count = rs_box_count(&box); /* it lies inside of the whole shape, which was checked */
	if ((uint64_t)s->stop > count)
		return refuse(d, s, "its flattened_range ends outside of it");
	stored = RS_NEW(d->arena, struct rs_shape, d->err);
	if (!stored)
		return -1;
	*stored = (struct rs_shape){.n_axes = 1, .dims = {(uint64_t)(s->stop - s->start)}};
	p.stored = stored;
	return add_flat(d, &box, (uint64_t)s->start, (uint64_t)s->stop, &p);
}

/* Shards that stand twice in the list are one; the order of pieces does not matter. */
static int by_extent(const void *a, const void *b)
{
	const struct rs__pd_shard *x = a, *y = b;

	for (uint32_t i = 0; i < x->n_axes; i++) {
		if (x->offset[i]->number != y->offset[i]->number)
			return x->offset[i]->number < y->offset[i]->number ? -1 : 1;
		if (x->shape[i]->number != y->shape[i]->number)
			return x->shape[i]->number < y->shape[i]->number ? -1 : 1;
	}
	if (x->flat != y->flat)
		return x->flat ? 1 : -1;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->stop > y->stop) - (x->stop < y->stop);
}

static int add_pieces(
	struct describe *d, struct rs__pd_shard *shards, uint64_t n, struct rs_tensor *t)
{
	struct rs_piece *pieces;

	d->n_pieces = 0;
	qsort(shards, n, sizeof(*shards), by_extent);
	for (uint64_t i = 0; i < n; i++)
		if ((i == 0 || by_extent(&shards[i - 1], &shards[i]) != 0) &&
			add_shard(d, &shards[i]) < 0)
			return -1;
	if (d->n_pieces > UINT32_MAX)
		return rs_fail(d->err, RS_LIMIT, "%s: tensor '%s': more than 2^32 pieces",
			d->meta->shown, RS_SHOW(d->key));
	pieces = RS_NEW_N(d->arena, struct rs_piece, d->n_pieces, d->err);
	if (!pieces)
		return -1;
	if (d->n_pieces)
		memcpy(pieces, d->pieces, d->n_pieces * sizeof(*pieces));
	t->pieces = pieces;
	t->n_pieces = (uint32_t)d->n_pieces;
	t->distinct = true;
	t->witness = d->n_pieces ? pieces[0].unit : 0;
	return 0;
}

/* ----------------------------------------------------------------------------- tensors */

/* "model" takes the key "model", uncut, and "model.w" as "w"; unlike Paddle not "model2.w". */
static bool take_prefix(const struct describe *d, struct rs_str *name)
{
	const char *prefix = d->src->opts.prefix;
	size_t len = prefix ? strlen(prefix) : 0;

	*name = d->key;
	if (len == 0 || rs_str_is(d->key, prefix))
		return true;
	if (!rs_str_starts(d->key, prefix) || d->key.ptr[len] != '.')
		return false;
	name->ptr += len + 1;
	name->len -= len + 1;
	return true;
}

/* All shards of one key. */
static int add_tensor(struct describe *d, struct rs__pd_shard *shards, uint64_t n)
{
	struct rs_tensor t = {0};
	uint64_t bytes;

	if (!take_prefix(d, &t.name))
		return 0;
	if (whole_shape(d, shards, n, &t.shape) < 0 || told_dtype(d, shards, n, &t.dtype) < 0)
		return -1;
	if (t.dtype == RS_DT_NONE && stored_dtype(d, shards, n, &t.dtype) < 0)
		return -1;
	if (!rs_shape_bytes(&t.shape, t.dtype, &bytes))
		return rs_fail(d->err, RS_LIMIT, "%s: tensor '%s': %s of %s does not fit 64 bits",
			d->meta->shown, RS_SHOW(d->key), RS_SHAPE_SHOW(&t.shape),
			rs_dtype_name(t.dtype));
	if (rs_arena_str(d->arena, t.name, &t.name, d->err) < 0)
		return -1;
	if (t.name.len != d->key.len && rs_arena_str(d->arena, d->key, &t.stored, d->err) < 0)
		return -1;
	if (add_pieces(d, shards, n, &t) < 0)
		return -1;
	t.order = (uint32_t)rs_catalog_n_tensors(d->src->cat);
	return rs_catalog_add_tensor(d->src->cat, &t, d->err);
}

static int known_order(const void *a, const void *b)
{
	const struct rs__pd_known *x = a, *y = b;
	return rs_str_cmp(x->key, y->key);
}

/* What the loader needs of the metadata, when it reads headers: keys, and what they are. */
static int keep_keys(struct describe *d)
{
	struct rs__pd_known *known =
		RS_NEW_N(d->arena, struct rs__pd_known, d->meta->n_shards, d->err);
	uint64_t n = 0;

	if (!known)
		return -1;
	for (uint64_t i = 0; i < d->meta->n_shards; i++) {
		const struct rs__pd_shard *s = &d->meta->shards[i];
		if (i && rs_str_eq(s[-1].key, s->key))
			continue;
		if (rs_arena_str(d->arena, s->key, &known[n].key, d->err) < 0)
			return -1;
		known[n++].dtype = s->dtype.ptr ? rs__pd_dtype(s->dtype) : RS_DT_NONE;
	}
	qsort(known, n, sizeof(*known), known_order);
	d->paddle->keys = (struct rs__pd_keys){known, n};
	return 0;
}

static int check_names(const struct describe *d)
{
	struct rs_catalog *cat = d->src->cat;
	const char *prefix = d->src->opts.prefix;
	struct rs_str whole = rs_str(prefix);

	if (!prefix || !*prefix)
		return 0;
	if (rs_catalog_n_tensors(cat) == 0) {
		(void)rs_fail(d->err, RS_MISSING,
			"%s: no tensor is called '%s' or '%s.*' (prefix=)", d->meta->shown,
			RS_SHOW(whole), RS_SHOW(whole));
		return rs_hint(d->err, "reshardfs inspect lists what is there");
	}
	/* "a" stays "a", and "a.a" becomes it. */
	for (uint64_t i = 0, n = 0; i < rs_catalog_n_tensors(cat); i++) {
		n += rs_str_eq(rs_catalog_tensor(cat, i)->name, whole);
		if (n > 1)
			return rs_fail(d->err, RS_USAGE,
				"prefix=%s: '%s' and '%s.%s' would both be called '%s'",
				RS_SHOW(whole), RS_SHOW(whole), RS_SHOW(whole), RS_SHOW(whole),
				RS_SHOW(whole));
	}
	return 0;
}

int rs__pd_describe(struct rs_source *src, struct rs_err *err)
{
	struct rs__paddle *paddle = src->priv;
	struct describe d = {.src = src,
		.paddle = paddle,
		.meta = &paddle->meta,
		.arena = rs_catalog_arena(src->cat),
		.err = err};
	struct rs__pd_shard *shards = paddle->meta.shards;
	int status = keep_keys(&d);

	for (uint64_t i = 0, end; status == 0 && i < paddle->meta.n_shards; i = end) {
		for (end = i + 1; end < paddle->meta.n_shards; end++)
			if (!rs_str_eq(shards[i].key, shards[end].key))
				break;
		d.key = shards[i].key;
		status = add_tensor(&d, &shards[i], end - i);
	}
	if (status == 0)
		status = check_names(&d);
	rs_free(d.pieces);
	return status == 0 ? rs_catalog_seal(src->cat, err) : -1;
}
