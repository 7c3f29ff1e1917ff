/*
 * paddle_array.c - from an array in a pickle to a stored tensor: dtype, shape, and where its bytes
 * are.
 *
 *   dtype "f4" '<'   shape (2, 3)   payload 24 bytes at 151    ->    F32 [2, 3], one span of 24
 * bytes
 *
 * Protocol 2 has no bytes: it writes text, in which every byte from 0x80 on takes two. Such a text
 * is gone through once, to prove it and to note every 64 KiB where it stands; all-ASCII text is its
 * own content. Refuses object and structured arrays, orders that no writer was seen to use, and
 * payloads that are not as long as shape and dtype say. Format: docs/formats/paddle.md, section 5.
 * Next: core/catalog/content.c, which reads what is not raw.
 */
#include "core/source/paddle/paddle.h"

#include <inttypes.h>

#define TIMES_SCANNED 64     /* so often may the bytes of a file be gone through */
#define STEP UINT64_C(65536) /* decoded bytes between two points of an index */

/* --------------------------------------------------------------------------- dtypes */

struct word {
	const char *paddle; /* in metadata; NULL: no word */
	const char *numpy;  /* in data files */
	enum rs_dtype dtype;
	uint8_t swap; /* bytes that are turned around when big-endian */
};
/* Arrays of u2 are bfloat16: numpy has none, and Paddle has no other use for u2. */
static const struct word words[] = {
	{"float32", "f4", RS_DT_F32, 4},
	{"float64", "f8", RS_DT_F64, 8},
	{"float16", "f2", RS_DT_F16, 2},
	{"bfloat16", "u2", RS_DT_BF16, 2},
	{"int64", "i8", RS_DT_I64, 8},
	{"int32", "i4", RS_DT_I32, 4},
	{"int16", "i2", RS_DT_I16, 2},
	{"int8", "i1", RS_DT_I8, 0},
	{"uint8", "u1", RS_DT_U8, 0},
	{"bool", "b1", RS_DT_BOOL, 0},
	{"complex64", "c8", RS_DT_C64, 4},
	{"float8_e4m3fn", NULL, RS_DT_F8_E4M3, 0},
	{"float8_e5m2", NULL, RS_DT_F8_E5M2, 0},
	{NULL, "?", RS_DT_BOOL, 0},
	{NULL, "u4", RS_DT_U32, 4},
	{NULL, "u8", RS_DT_U64, 8},
};
#define N_WORDS (sizeof(words) / sizeof(*words))

enum rs_dtype rs__pd_dtype(struct rs_str word)
{
	static const char prefix[] = "paddle."; /* in files of third parties */

	if (rs_str_starts(word, prefix)) {
		word.ptr += sizeof(prefix) - 1;
		word.len -= sizeof(prefix) - 1;
	}
	for (size_t i = 0; i < N_WORDS; i++)
		if (words[i].paddle && rs_str_is(word, words[i].paddle))
			return words[i].dtype;
	return RS_DT_NONE;
}

/* ---------------------------------------------------------------------------- parts */

/* One array, checked. */
struct part {
	const struct word *word;
	uint8_t swap;
	bool fortran, latin1;
	struct rs_shape shape;
	uint64_t bytes;    /* of the content */
	uint64_t off, len; /* of the payload in the file */
};

static int unsupported(
	const struct rs__pd_arrays *r, struct rs_str name, const char *wanted, const char *found)
{
	return rs_fail(r->err, RS_UNSUPPORTED, "%s: tensor '%s': expected %s, found %s",
		r->file->name, RS_SHOW(name), wanted, found);
}

static int read_type(const struct rs__pd_arrays *r, struct rs_str name, const struct rs_value *v,
	struct part *out)
{
	if (!rs_value_is(v, RS_VALUE_DTYPE))
		return unsupported(r, name, "a dtype", RS_VALUE_SHOW(v));
	if (v->n == 0)
		return unsupported(r, name, "a plain dtype", "a structured or unknown one");
	for (size_t i = 0; i < N_WORDS && !out->word; i++)
		if (words[i].numpy && rs_str_is(v->text, words[i].numpy))
			out->word = &words[i];
	if (!out->word)
		return rs_fail(r->err, RS_UNSUPPORTED,
			"%s: tensor '%s': numpy dtype '%s' is none of a tensor", r->file->name,
			RS_SHOW(name), RS_SHOW(v->text));
	out->swap = v->n == '>' ? out->word->swap : 0;
	return 0;
}

static int read_shape(const struct rs__pd_arrays *r, struct rs_str name, const struct rs_value *v,
	struct rs_shape *out)
{
	struct rs_value *const *dims;
	uint32_t n;

	if (!rs_value_list(v, &dims, &n))
		return unsupported(r, name, "a tuple as shape", RS_VALUE_SHOW(v));
	if (n > RS_MAX_AXES)
		return rs_fail(r->err, RS_LIMIT,
			"%s: tensor '%s': %" PRIu32 " axes, the limit is %d", r->file->name,
			RS_SHOW(name), n, RS_MAX_AXES);
	*out = (struct rs_shape){.n_axes = n};
	for (uint32_t i = 0; i < n; i++) {
		if (!rs_value_is(dims[i], RS_VALUE_INT) || dims[i]->number < 0)
			return rs_fail(r->err, RS_CORRUPT,
				"%s: tensor '%s': expected integers from 0 on as shape, found %s",
				r->file->name, RS_SHOW(name), RS_VALUE_SHOW(dims[i]));
		out->dims[i] = (uint64_t)dims[i]->number;
	}
	return 0;
}

static int read_payload(const struct rs__pd_arrays *r, struct rs_str name, const struct rs_value *v,
	struct part *out)
{
	if (rs_value_is(v, RS_VALUE_BYTES)) {
		out->len = v->bytes.len;
		out->latin1 = v->bytes.latin1;
	} else if (rs_value_is(v, RS_VALUE_STR) && v->n) { /* bytes of Python 2 */
		out->len = v->text.len;
	} else {
		return unsupported(r, name, "an array of numbers",
			rs_value_is(v, RS_VALUE_LIST) ? "one of objects" : RS_VALUE_SHOW(v));
	}
	out->off = v->off;
	return 0;
}

static int read_part(const struct rs__pd_arrays *r, struct rs_str name, const struct rs_value *v,
	struct part *out)
{
	const struct rs_pickle_array *a = v->array;

	*out = (struct part){0};
	if (!a->order)
		return rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': an array without a state",
			r->file->name, RS_SHOW(name));
	if (a->order != 'C' && a->order != 'F')
		return unsupported(r, name, "an array in C or Fortran order",
			a->order == 'K' ? "order 'K'" : "another order");
	if (read_type(r, name, a->dtype, out) < 0 ||
		read_shape(r, name, a->shape, &out->shape) < 0 ||
		read_payload(r, name, a->data, out) < 0)
		return -1;
	out->fortran = a->order == 'F' && out->shape.n_axes > 1;
	if (!rs_shape_bytes(&out->shape, out->word->dtype, &out->bytes))
		return rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': %s of %s does not fit 64 bits",
			r->file->name, RS_SHOW(name), RS_SHAPE_SHOW(&out->shape),
			rs_dtype_name(out->word->dtype));
	if (!out->latin1 && out->len != out->bytes)
		return rs_fail(r->err, RS_CORRUPT,
			"%s@%" PRIu64 ": tensor '%s': expected %" PRIu64
			" bytes for %s of %s, found %" PRIu64,
			r->file->name, out->off, RS_SHOW(name), out->bytes,
			RS_SHAPE_SHOW(&out->shape), rs_dtype_name(out->word->dtype), out->len);
	return 0;
}

/* ---------------------------------------------------------------------------- texts */

static int bad_text(
	const struct rs__pd_arrays *r, struct rs_str name, const struct part *p, uint64_t decoded)
{
	return rs_fail(r->err, RS_CORRUPT,
		"%s@%" PRIu64 ": tensor '%s': expected a text of %" PRIu64
		" latin-1 characters for %s of %s, found something else after %" PRIu64,
		r->file->name, p->off, RS_SHOW(name), p->bytes, RS_SHAPE_SHOW(&p->shape),
		rs_dtype_name(p->word->dtype), decoded);
}

/* Go through the text of @p; at[i] becomes the place of decoded byte i * STEP. */
static int index_text(
	struct rs__pd_arrays *r, struct rs_str name, const struct part *p, uint64_t *at)
{
	uint64_t decoded = 0, off = p->off, end = p->off + p->len, most;
	bool half = false; /* the first byte of two was seen */

	/* Many keys may share one text, and each of them goes through it. */
	r->scanned += p->len;
	if (rs_mul(r->file->size, TIMES_SCANNED, &most) && r->scanned > most)
		return rs_fail(r->err, RS_LIMIT,
			"%s: tensor '%s': texts that are shared by too many tensors", r->file->name,
			RS_SHOW(name));

	while (off < end) {
		uint64_t n = rs_min(RS__PD_BUFFER, end - off);
		if (rs_file_read(r->file, off, r->buffer, n, r->err) < 0)
			return -1;
		for (uint64_t i = 0; i < n; i++) {
			uint8_t c = r->buffer[i];
			if (half) {
				if ((c & 0xc0) != 0x80)
					return bad_text(r, name, p, decoded);
				half = false;
				decoded++;
				continue;
			}
			if (decoded == p->bytes || (c >= 0x80 && c != 0xc2 && c != 0xc3))
				return bad_text(r, name, p, decoded);
			if (decoded % STEP == 0)
				at[decoded / STEP] = off + i;
			half = c >= 0x80;
			decoded += !half;
		}
		off += n;
	}
	return half || decoded != p->bytes ? bad_text(r, name, p, decoded) : 0;
}

static int add_text(
	struct rs__pd_arrays *r, struct rs_str name, const struct part *p, struct rs_latin1 *out)
{
	uint64_t n = p->bytes / STEP + 1;
	uint64_t *at = RS_NEW_N(r->arena, uint64_t, n, r->err);

	if (!at || index_text(r, name, p, at) < 0)
		return -1;
	*out = (struct rs_latin1){.step = STEP, .n = n, .at = at, .end = p->off + p->len};
	return 0;
}

/* --------------------------------------------------------------------------- entries */

/* What the metadata knows better than the array. */
static enum rs_dtype reconcile(const struct part *p, enum rs_dtype told)
{
	bool byte = p->word->dtype == RS_DT_U8 || p->word->dtype == RS_DT_I8;

	if (byte && (told == RS_DT_F8_E4M3 || told == RS_DT_F8_E5M2))
		return told;
	return p->word->dtype;
}

/* All parts must be alike, since one tensor has one dtype and one form. */
static int check_alike(const struct rs__pd_arrays *r, struct rs_str name, const struct part *first,
	const struct part *p)
{
	if (p->word->dtype != first->word->dtype)
		return rs_fail(r->err, RS_CORRUPT,
			"%s: tensor '%s': expected slices of one dtype, found %s and %s",
			r->file->name, RS_SHOW(name), rs_dtype_name(first->word->dtype),
			rs_dtype_name(p->word->dtype));
	if (p->swap != first->swap || p->latin1 != first->latin1 || first->fortran || p->fortran)
		return unsupported(r, name, "slices of one form", "several");
	return 0;
}

/*
 * The texts of an entry get an index. When all of them are ASCII, they are the content, and
 * nothing needs to be decoded.
 */
static int place_texts(
	struct rs__pd_arrays *r, struct rs_entry *e, const struct part *parts, uint32_t n)
{
	struct rs_latin1 *texts = RS_NEW_N(r->arena, struct rs_latin1, n, r->err);
	bool raw = true;

	if (!texts)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		if (add_text(r, e->name, &parts[i], &texts[i]) < 0)
			return -1;
		raw &= parts[i].len == parts[i].bytes;
	}
	e->latin1 = raw ? NULL : texts;
	return 0;
}

static int place(struct rs__pd_arrays *r, struct rs_entry *e, const struct part *parts, uint32_t n)
{
	struct rs_span *spans = RS_NEW_N(r->arena, struct rs_span, n, r->err);
	uint64_t total = 0;

	if (!spans)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		if (i && check_alike(r, e->name, &parts[0], &parts[i]) < 0)
			return -1;
		if (!rs_add(total, parts[i].bytes, &total))
			break;
		spans[i] = (struct rs_span){.off = parts[i].off, .len = parts[i].bytes};
	}
	if (total != e->bytes)
		return rs_fail(r->err, RS_CORRUPT,
			"%s: tensor '%s': expected slices of %" PRIu64
			" bytes for %s of %s, found %" PRIu64,
			r->file->name, RS_SHOW(e->name), e->bytes, RS_SHAPE_SHOW(&e->shape),
			rs_dtype_name(e->dtype), total);
	if (e->bytes == 0)
		return 0;
	e->spans = spans;
	e->n_spans = n;
	e->swap = parts[0].swap;
	return parts[0].latin1 ? place_texts(r, e, parts, n) : 0;
}

int rs__pd_entry(struct rs__pd_arrays *r, const struct rs_value *const *arrays, uint32_t n,
	const struct rs_value *shape, enum rs_dtype told, struct rs_entry *e)
{
	struct part *parts = RS_NEW_N(r->arena, struct part, n, r->err);
	uint32_t kept = 0;

	if (!parts)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		if (read_part(r, e->name, arrays[i], &parts[kept]) < 0)
			return -1;
		kept += parts[kept].bytes > 0 || i + 1 == n; /* a span is never empty */
	}
	if (kept > 1 && parts[kept - 1].bytes == 0)
		kept--;
	if (n == 0)
		return rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': expected slices, found none",
			r->file->name, RS_SHOW(e->name));
	e->shape = parts[0].shape;
	e->fortran = parts[0].fortran;
	if (shape && read_shape(r, e->name, shape, &e->shape) < 0)
		return -1;
	e->dtype = reconcile(&parts[0], told);
	if (!rs_shape_bytes(&e->shape, e->dtype, &e->bytes))
		return rs_fail(r->err, RS_CORRUPT, "%s: tensor '%s': %s of %s does not fit 64 bits",
			r->file->name, RS_SHOW(e->name), RS_SHAPE_SHOW(&e->shape),
			rs_dtype_name(e->dtype));
	return place(r, e, parts, kept);
}
