/*
 * ckpt.c - the index of a MindSpore .ckpt: names, types, shapes, and where the contents lie.
 *
 *   Checkpoint { repeated Value value = 1 }                 the whole file, no magic, no index
 *   Value { string tag = 1; TensorProto tensor = 2; MapTensorProto maptensor = 3 }
 *   TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }
 *
 * Contents are stepped over, so a file costs one small read a Value, whatever its size. A tensor
 * over 512 MiB is cut into adjacent Values of one tag: one entry, several spans. Refuses encrypted
 * files, hash tables, unknown types, sizes that do not add up, and anything behind the last Value
 * but a checksum. Format: docs/formats/mindspore.md. Next: mindspore.c.
 */
#include "reshardfs/codec.h"
#include "reshardfs/source.h"

#include <inttypes.h>
#include <stdio.h>

/* Bytes of one header in memory; enough for a million tensors. */
#define HEADER_MAX_BYTES (UINT64_C(256) << 20)
#define TYPE_MAX 63   /* the longest word, "mindspore.bfloat16", has 18 */
#define VARINT_MAX 10 /* bytes of one varint */

/* crc_check=True appends "crc_num" and ten bytes, big-endian, to the message. */
#define TRAILER_BYTES 17
#define TRAILER_WORD "crc_num"

/* One Value: a tensor, or one of the parts that it was cut into. */
struct value {
	struct rs_str name;
	enum rs_dtype dtype;
	uint32_t n_dims;
	uint64_t dims[RS_MAX_AXES]; /* as stored */
	uint64_t off, len;          /* content */
	uint64_t at;                /* file offset of the Value, for messages */
};

/* What the walk has found so far. Spans lie in the order of the entries. */
struct walk {
	const struct rs_file *file;
	struct rs_arena *arena;
	struct rs_entry *entries; /* heap while it grows */
	uint64_t n_entries, cap_entries;
	struct rs_span *spans;
	uint64_t n_spans, cap_spans;
	struct value open; /* the tensor that the last Value belonged to; its name.ptr is NULL at
			      first */
	struct rs_err *err;
};

__attribute__((format(printf, 4, 5), cold)) static int refuse(
	const struct walk *w, const struct value *v, enum rs_code code, const char *fmt, ...)
{
	char text[sizeof(w->err->msg)];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	if (v->name.ptr)
		return rs_fail(w->err, code, "%s@%" PRIu64 ": tensor '%s': %s", w->file->name,
			v->at, RS_SHOW(v->name), text);
	return rs_fail(w->err, code, "%s@%" PRIu64 ": %s", w->file->name, v->at, text);
}

/* ------------------------------------------------------------- one TensorProto */

static int add_dim(const struct walk *w, struct value *v, uint64_t dim)
{
	if (v->n_dims == RS_MAX_AXES)
		return refuse(w, v, RS_LIMIT, "more than %d axes (RS_MAX_AXES)", RS_MAX_AXES);
	if (dim > INT64_MAX)
		return refuse(w, v, RS_CORRUPT, "expected dims >= 0, found %" PRId64, (int64_t)dim);
	v->dims[v->n_dims++] = dim;
	return 0;
}

/* dims are written one by one; other protobuf writers pack them into one field. */
static int read_dims(
	const struct walk *w, const struct rs_wire *in, const struct rs_field *f, struct value *v)
{
	uint8_t packed[RS_MAX_AXES * VARINT_MAX];
	struct rs_reader r;

	if (f->wire == 0)
		return add_dim(w, v, f->value);
	if (f->wire != 2)
		return refuse(w, v, RS_CORRUPT, "dims: expected wire type 0 or 2, found %" PRIu32,
			f->wire);
	if (f->len > sizeof(packed))
		return refuse(w, v, RS_LIMIT, "more than %d axes (RS_MAX_AXES)", RS_MAX_AXES);
	if (rs_wire_bytes(in, f, 0, packed, f->len, w->err) < 0)
		return -1;
	rs_read_init(&r, packed, f->len, f->body, w->file->name, w->err);
	while (r.pos < r.end) {
		uint64_t dim = rs_read_varint(&r, "dims");
		if (!rs_read_ok(&r) || add_dim(w, v, dim) < 0)
			return -1;
	}
	return 0;
}

static int read_type(
	const struct walk *w, const struct rs_wire *in, const struct rs_field *f, struct value *v)
{
	char word[TYPE_MAX];
	struct rs_str type = {word, (size_t)rs_min(f->len, sizeof(word))};

	if (rs_wire_bytes(in, f, 0, word, type.len, w->err) < 0)
		return -1;
	if (f->len <= sizeof(word))
		v->dtype = rs_dtype_from_mindspore(type);
	if (v->dtype != RS_DT_NONE)
		return 0;
	return refuse(
		w, v, RS_UNSUPPORTED, "tensor_type '%s' is none that can be read", RS_SHOW(type));
}

/* A field that may stand once, and only with wire type 2. */
static int once(const struct walk *w, const struct value *v, const struct rs_field *f, bool *seen,
	const char *what)
{
	if (f->wire != 2)
		return refuse(w, v, RS_CORRUPT, "%s: expected wire type 2, found %" PRIu32, what,
			f->wire);
	if (*seen)
		return refuse(w, v, RS_CORRUPT, "%s stands twice", what);
	*seen = true;
	return 0;
}

static int read_tensor(const struct walk *w, const struct rs_wire *outer,
	const struct rs_field *tensor, struct value *v)
{
	struct rs_wire in = rs_wire_enter(outer, tensor);
	bool has_type = false, has_content = false;
	struct rs_field f;
	int more;

	while ((more = rs_wire_next(&in, &f, w->err)) > 0) {
		if (f.number == 1) {
			if (read_dims(w, &in, &f, v) < 0)
				return -1;
		} else if (f.number == 2) {
			if (once(w, v, &f, &has_type, "tensor_type") < 0 ||
				read_type(w, &in, &f, v) < 0)
				return -1;
		} else if (f.number == 3) {
			if (once(w, v, &f, &has_content, "tensor_content") < 0)
				return -1;
			v->off = f.body;
			v->len = f.len;
		}
	}
	if (more < 0)
		return -1;
	if (!has_type || !has_content)
		return refuse(w, v, RS_CORRUPT, "expected %s, found none",
			has_type ? "tensor_content" : "tensor_type");
	return 0;
}

/* ------------------------------------------------------------------- one Value */

static int read_name(
	const struct walk *w, const struct rs_wire *in, const struct rs_field *tag, struct value *v)
{
	if (tag->len > RS_MAX_NAME)
		return refuse(w, v, RS_LIMIT,
			"a tensor name of %" PRIu64 " bytes, the limit is %d (RS_MAX_NAME)",
			tag->len, RS_MAX_NAME);
	char *name = rs_arena_alloc(w->arena, tag->len + 1, w->err);
	if (!name)
		return rs_err_prefix(w->err, "%s@%" PRIu64, w->file->name, v->at);
	if (rs_wire_bytes(in, tag, 0, name, tag->len, w->err) < 0)
		return -1;
	v->name = (struct rs_str){name, tag->len};
	return 0;
}

/*
 * Fields may come in any order, and messages name the tensor, so the Value is walked first and
 * entered afterwards.
 */
static int read_value(const struct walk *w, const struct rs_wire *outer,
	const struct rs_field *field, struct value *v)
{
	struct rs_wire in = rs_wire_enter(outer, field);
	bool has_tag = false, has_tensor = false, has_map = false;
	struct rs_field f, tag = {0}, tensor = {0};
	int more;

	*v = (struct value){.at = field->off};
	while ((more = rs_wire_next(&in, &f, w->err)) > 0) {
		if (f.number == 1) {
			if (once(w, v, &f, &has_tag, "tag") < 0)
				return -1;
			tag = f;
		} else if (f.number == 2) {
			if (once(w, v, &f, &has_tensor, "tensor") < 0)
				return -1;
			tensor = f;
		} else if (f.number == 3) {
			has_map = true;
		}
	}
	if (more < 0)
		return -1;
	if (!has_tag)
		return refuse(w, v, RS_CORRUPT, "expected a tag (tensor name), found none");
	if (read_name(w, &in, &tag, v) < 0)
		return -1;
	if (has_map) {
		(void)refuse(w, v, RS_UNSUPPORTED, "a map parameter (hash table)");
		return rs_hint(w->err, "hash tables cannot be cut; save the checkpoint without it");
	}
	if (!has_tensor)
		return refuse(w, v, RS_CORRUPT, "expected a tensor, found none");
	return read_tensor(w, &in, &tensor, v);
}

/* ------------------------------------------------------------- Values to entries */

/* The shape of a finished entry from the dims as stored; docs/formats/mindspore.md, "Shapes". */
static int shape_of(const struct walk *w, const struct value *v, struct rs_entry *e)
{
	bool zero = v->n_dims == 1 && v->dims[0] == 0;

	if (v->dtype == RS_DT_STR) {
		if (e->bytes % 4)
			return refuse(w, v, RS_CORRUPT,
				"expected 4 bytes a character, found %" PRIu64, e->bytes);
		e->shape = (struct rs_shape){.n_axes = 1, .dims = {e->bytes / 4}};
		if (v->n_dims && !zero && !(v->n_dims == 1 && v->dims[0] == e->shape.dims[0]))
			return refuse(w, v, RS_CORRUPT,
				"a text with dims other than [0], expected %" PRIu64 " characters",
				e->shape.dims[0]);
		return 0;
	}
	/* [0] with content is how writers up to 2025 said 0-d; without content it is what it says.
	 */
	if (zero && e->bytes) {
		e->zero_dims = true;
		return 0;
	}
	e->shape.n_axes = v->n_dims;
	memcpy(e->shape.dims, v->dims, sizeof(v->dims));
	return 0;
}

/* No further part follows: does the content make up the tensor? */
static int close_entry(struct walk *w)
{
	const struct value *v = &w->open;
	uint64_t bytes;

	if (!v->name.ptr)
		return 0;
	struct rs_entry *e = &w->entries[w->n_entries - 1];
	if (shape_of(w, v, e) < 0)
		return -1;
	if (!rs_shape_bytes(&e->shape, e->dtype, &bytes))
		return refuse(w, v, RS_CORRUPT, "the size of %s %s overflows 64 bits",
			rs_dtype_mindspore(e->dtype), RS_SHAPE_SHOW(&e->shape));
	if (bytes != e->bytes)
		return refuse(w, v, RS_CORRUPT,
			"expected %" PRIu64 " bytes for %s %s, found %" PRIu64, bytes,
			rs_dtype_mindspore(e->dtype), RS_SHAPE_SHOW(&e->shape), e->bytes);
	return 0;
}

static int open_entry(struct walk *w, const struct value *v)
{
	/* The heap arrays become arena arrays at the end, so the limit counts them now. */
	uint64_t need = (w->n_entries + 1) * sizeof(*w->entries) +
			(w->n_spans + 1) * sizeof(*w->spans) + rs_arena_used(w->arena);

	if (w->n_entries == RS_MAX_TENSORS || need > HEADER_MAX_BYTES)
		return refuse(w, v, RS_LIMIT,
			"more than %" PRIu64 " tensors do not fit the header limit of %" PRIu64
			" bytes",
			w->n_entries, HEADER_MAX_BYTES);
	if (rs_grow(&w->entries, &w->cap_entries, w->n_entries + 1, sizeof(*w->entries), w->err) <
		0)
		return -1;
	w->entries[w->n_entries++] = (struct rs_entry){.name = v->name, .dtype = v->dtype};
	w->open = *v;
	return 0;
}

/* A further part says the same dims and type in every writer; one that does not is no part. */
static int check_part(const struct walk *w, const struct value *v)
{
	const struct value *first = &w->open;

	if (v->dtype != first->dtype)
		return refuse(w, v, RS_CORRUPT, "a part of type %s, expected %s",
			rs_dtype_mindspore(v->dtype), rs_dtype_mindspore(first->dtype));
	if (v->n_dims != first->n_dims ||
		memcmp(v->dims, first->dims, v->n_dims * sizeof(v->dims[0])) != 0)
		return refuse(w, v, RS_CORRUPT, "a part with other dims than the part before it");
	return 0;
}

static int add_span(struct walk *w, const struct value *v)
{
	struct rs_entry *e = &w->entries[w->n_entries - 1];

	if (v->len == 0)
		return 0;
	if (e->n_spans == UINT32_MAX || (w->n_spans + 1) * sizeof(*w->spans) > HEADER_MAX_BYTES)
		return refuse(w, v, RS_LIMIT, "cut into more than %" PRIu32 " parts", e->n_spans);
	if (rs_grow(&w->spans, &w->cap_spans, w->n_spans + 1, sizeof(*w->spans), w->err) < 0)
		return -1;
	w->spans[w->n_spans++] = (struct rs_span){.file = 0, .off = v->off, .len = v->len};
	e->n_spans++;
	e->bytes += v->len; /* contents are disjoint ranges of one file: no overflow */
	return 0;
}

static int add_value(struct walk *w, const struct value *v)
{
	if (w->open.name.ptr && rs_str_eq(w->open.name, v->name)) {
		if (check_part(w, v) < 0)
			return -1;
	} else if (close_entry(w) < 0 || open_entry(w, v) < 0) {
		return -1;
	}
	return add_span(w, v);
}

/* ------------------------------------------------------------------ the whole file */

/* Where the message ends: before the checksum, if there is one. */
static int find_end(const struct rs_file *file, uint64_t *end, bool *crc, struct rs_err *err)
{
	char tail[TRAILER_BYTES];

	*end = file->size;
	*crc = false;
	if (file->size < sizeof(tail))
		return 0;
	if (rs_file_read(file, file->size - sizeof(tail), tail, sizeof(tail), err) < 0)
		return -1;
	*crc = memcmp(tail, TRAILER_WORD, sizeof(TRAILER_WORD) - 1) == 0;
	if (*crc)
		*end -= sizeof(tail);
	return 0;
}

static int refuse_field(const struct walk *w, const struct rs_field *f)
{
	(void)rs_fail(w->err, RS_CORRUPT,
		"%s@%" PRIu64 ": expected a tensor (field 1, wire type 2) or the end of the file, "
		"found field %" PRIu32 ", wire type %" PRIu32,
		w->file->name, f->off, f->number, f->wire);
	return rs_hint(w->err,
		f->off ? "bytes behind the last tensor: damaged, or appended to by something else"
		       : "this is no .ckpt of MindSpore");
}

static int walk_file(struct walk *w, uint64_t end)
{
	struct rs_wire_window window;
	struct rs_wire in;
	struct rs_field f;
	struct value v;
	int more;

	rs_wire_init(&in, w->file, 0, end, &window);
	while ((more = rs_wire_next(&in, &f, w->err)) > 0) {
		if (f.number != 1 || f.wire != 2)
			return refuse_field(w, &f);
		if (read_value(w, &in, &f, &v) < 0 || add_value(w, &v) < 0)
			return -1;
	}
	return more < 0 ? -1 : close_entry(w);
}

/* Move what was collected to the arena of the table. */
static int fill_table(struct walk *w, struct rs_table *t)
{
	struct rs_entry *entries = RS_NEW_N(w->arena, struct rs_entry, w->n_entries, w->err);
	struct rs_span *spans = RS_NEW_N(w->arena, struct rs_span, w->n_spans, w->err);
	uint64_t *bytes = RS_NEW(w->arena, uint64_t, w->err);

	if (!entries || !spans || !bytes)
		return rs_err_prefix(
			w->err, "%s: %" PRIu64 " tensors", w->file->name, w->n_entries);
	if (w->n_entries)
		memcpy(entries, w->entries, w->n_entries * sizeof(*entries));
	if (w->n_spans)
		memcpy(spans, w->spans, w->n_spans * sizeof(*spans));
	for (uint64_t i = 0; i < w->n_entries; i++) {
		entries[i].spans = spans;
		spans += entries[i].n_spans;
	}
	*bytes = w->file->size;
	t->entries = entries;
	t->n_entries = w->n_entries;
	t->file_bytes = bytes;
	t->n_files = 1;
	return rs_table_finish(t, w->file->name, w->err);
}

int rs_ckpt_header(const struct rs_file *file, struct rs_table **out, struct rs_err *err)
{
	struct walk w = {.file = file, .err = err};
	struct rs_table *t = NULL;
	uint64_t end;
	int status = -1;

	if (rs_sniff_foreign(file, err) < 0)
		return -1;
	w.arena = rs_arena_new(HEADER_MAX_BYTES, err);
	t = w.arena ? RS_NEW(w.arena, struct rs_table, err) : NULL;
	if (!t)
		goto out;
	t->arena = w.arena;
	if (find_end(file, &end, &t->crc, err) < 0 || walk_file(&w, end) < 0 ||
		fill_table(&w, t) < 0)
		goto out;
	*out = t;
	status = 0;
out:
	if (status < 0)
		rs_arena_free(w.arena);
	rs_free(w.spans);
	rs_free(w.entries);
	return status;
}
