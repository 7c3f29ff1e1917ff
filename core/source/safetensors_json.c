/*
 * safetensors_json.c - the text of a safetensors header, as a list of tensors.
 *
 *   {"__metadata__": {"format": "ms"},
 *    "w": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, ...}
 *
 * The text is read twice, once to count, so that memory is what the tensors need: a hostile header
 * of 100 MB stays below 300 MB. Takes and refuses what the reference's JSON library does, and
 * checks no number against another. Format: docs/formats/safetensors.md. Next: safetensors.c, which
 * does.
 */
#include "core/source/safetensors.h"

#include <inttypes.h>

#define BAD_JSON "InvalidHeaderDeserialization"
/* Decoded escapes of the first pass, which are looked at and dropped. */
#define SCRATCH_MAX_BYTES (RS__ST_MAX_BYTES / 2)

static int bad_json(struct rs__st *p)
{
	if (!p->err || p->err->code != RS_CORRUPT)
		return rs_err_prefix(p->err, "%s: header", p->file->name);
	return rs_err_prefix(p->err, BAD_JSON);
}

static int next(struct rs__st *p, struct rs_json_token *tok)
{
	return rs_json_next(&p->json, tok) < 0 ? bad_json(p) : 0;
}

static int skip(struct rs__st *p, const struct rs_json_token *tok)
{
	return rs_json_skip(&p->json, tok) < 0 ? bad_json(p) : 0;
}

static int expect(struct rs__st *p, struct rs_json_token *tok, enum rs_json_type type,
	const struct rs_str *name, const char *what)
{
	if (next(p, tok) < 0)
		return -1;
	if (tok->type != type)
		return rs__st_refuse(
			p, BAD_JSON, name, "expected %s at offset %" PRIu64, what, tok->off);
	return 0;
}

/* Check 4, UTF-8, is the reader's first look at the text; it is made once for both passes. */
static int start(struct rs__st *p, struct rs_arena *scratch)
{
	rs_json_init(&p->json, p->text, RS__ST_PREFIX, p->file->name, scratch, p->err);
	p->begin = p->json;
	if (!p->json.in.failed)
		return 0;
	if (rs_str_starts(p->text, "\xef\xbb\xbf"))
		return bad_json(p); /* valid UTF-8, but no JSON */
	return rs_err_prefix(p->err, "InvalidHeader");
}

/* The value of __metadata__, whatever it is; the second pass says what is wrong with it. */
static int count_metadata(struct rs__st *p)
{
	struct rs_json_token tok;

	if (next(p, &tok) < 0)
		return -1;
	if (tok.type != RS_JSON_OBJECT)
		return skip(p, &tok);
	for (;;) {
		if (next(p, &tok) < 0)
			return -1;
		if (tok.type == RS_JSON_OBJECT_END)
			return 0;
		p->cap_meta++;
		if (skip(p, &tok) < 0)
			return -1;
	}
}

/* The first pass: JSON that is an object, and how many keys it has. Escapes go to @scratch. */
static int count_keys(struct rs__st *p, struct rs_arena *scratch)
{
	struct rs_json_token tok;

	if (start(p, scratch) < 0 || expect(p, &tok, RS_JSON_OBJECT, NULL, "an object") < 0)
		return -1;
	for (;;) {
		if (next(p, &tok) < 0)
			return -1;
		if (tok.type == RS_JSON_OBJECT_END)
			return expect(p, &tok, RS_JSON_END, NULL, "the end");
		if (rs_str_is(tok.text, "__metadata__")) {
			if (count_metadata(p) < 0)
				return -1;
			continue;
		}
		p->cap_entries++;
		if (skip(p, &tok) < 0)
			return -1;
	}
}

static int count(struct rs__st *p)
{
	struct rs_arena *scratch = rs_arena_new(SCRATCH_MAX_BYTES, p->err);
	int status = scratch ? count_keys(p, scratch) : -1;

	rs_arena_free(scratch);
	if (status < 0)
		return -1;
	if (p->cap_entries > RS_MAX_TENSORS)
		return rs_fail(p->err, RS_LIMIT,
			"%s: %" PRIu64 " tensors, the limit is %d (RS_MAX_TENSORS)", p->file->name,
			p->cap_entries, RS_MAX_TENSORS);
	p->entries = RS_NEW_N(p->arena, struct rs_entry, p->cap_entries, p->err);
	p->spans = RS_NEW_N(p->arena, struct rs_span, p->cap_entries, p->err);
	p->meta = RS_NEW_N(p->arena, struct rs_meta, p->cap_meta, p->err);
	if (p->entries && p->spans && p->meta)
		return 0;
	return rs_err_prefix(p->err, "%s: %" PRIu64 " tensors, %" PRIu64 " keys of metadata",
		p->file->name, p->cap_entries, p->cap_meta);
}

static int parse_metadata(struct rs__st *p)
{
	struct rs_json_token key, value;

	if (next(p, &value) < 0)
		return -1;
	if (value.type == RS_JSON_NULL)
		return 0;
	if (value.type != RS_JSON_OBJECT)
		return rs__st_refuse(p, BAD_JSON, NULL,
			"__metadata__: expected an object of strings at offset %" PRIu64,
			value.off);
	for (;;) {
		if (next(p, &key) < 0)
			return -1;
		if (key.type == RS_JSON_OBJECT_END)
			return 0;
		if (expect(p, &value, RS_JSON_STRING, &key.text, "a string in __metadata__") < 0)
			return -1;
		p->meta[p->n_meta++] = (struct rs_meta){key.text, value.text};
	}
}

/* ------------------------------------------------------------------ one tensor */

static int parse_dtype(struct rs__st *p, const struct rs_json_token *tok, struct rs_entry *e)
{
	if (tok->type != RS_JSON_STRING)
		return rs__st_refuse(
			p, BAD_JSON, &e->name, "expected a string as dtype at %" PRIu64, tok->off);
	e->dtype = rs_dtype_from_name(tok->text);
	if (e->dtype != RS_DT_NONE)
		return 0;
	return rs_fail(p->err, RS_UNSUPPORTED,
		"%s: tensor '%s': dtype '%s' is none that the format knows", p->file->name,
		RS_SHOW(e->name), RS_SHOW(tok->text));
}

static int parse_shape(struct rs__st *p, const struct rs_json_token *tok, struct rs_entry *e)
{
	struct rs_json_token dim;

	if (tok->type != RS_JSON_ARRAY)
		return rs__st_refuse(
			p, BAD_JSON, &e->name, "expected an array as shape at %" PRIu64, tok->off);
	for (;;) {
		if (next(p, &dim) < 0)
			return -1;
		if (dim.type == RS_JSON_ARRAY_END)
			return 0;
		if (dim.type != RS_JSON_UINT)
			return rs__st_refuse(p, BAD_JSON, &e->name,
				"expected whole numbers from 0 to 2^64-1 in shape at %" PRIu64,
				dim.off);
		if (e->shape.n_axes == RS_MAX_AXES)
			return rs_fail(p->err, RS_LIMIT,
				"%s: tensor '%s': more than %d axes (RS_MAX_AXES)", p->file->name,
				RS_SHOW(e->name), RS_MAX_AXES);
		e->shape.dims[e->shape.n_axes++] = dim.u;
	}
}

static int parse_offsets(struct rs__st *p, const struct rs_json_token *tok,
	const struct rs_str *name, struct rs_span *span)
{
	static const char what[] = "two whole numbers from 0 to 2^64-1 as data_offsets";
	struct rs_json_token begin, end, close;

	if (tok->type != RS_JSON_ARRAY)
		return rs__st_refuse(
			p, BAD_JSON, name, "expected %s at offset %" PRIu64, what, tok->off);
	if (expect(p, &begin, RS_JSON_UINT, name, what) < 0 ||
		expect(p, &end, RS_JSON_UINT, name, what) < 0 ||
		expect(p, &close, RS_JSON_ARRAY_END, name, what) < 0)
		return -1;
	span->off = begin.u;
	span->len = end.u;
	return 0;
}

enum { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, N_FIELDS };
static const char *const field_names[N_FIELDS] = {"dtype", "shape", "data_offsets"};

static int parse_field(struct rs__st *p, int field, const struct rs_json_token *tok,
	struct rs_entry *e, struct rs_span *span)
{
	switch (field) {
	case FIELD_DTYPE:
		return parse_dtype(p, tok, e);
	case FIELD_SHAPE:
		return parse_shape(p, tok, e);
	case FIELD_OFFSETS:
		return parse_offsets(p, tok, &e->name, span);
	}
	return skip(p, tok); /* the reference ignores what it does not know */
}

static int parse_object(struct rs__st *p, struct rs_entry *e, struct rs_span *span)
{
	bool seen[N_FIELDS] = {false};
	struct rs_json_token tok;
	int field;

	for (;;) {
		if (next(p, &tok) < 0)
			return -1;
		if (tok.type == RS_JSON_OBJECT_END)
			break;
		for (field = 0; field < N_FIELDS; field++)
			if (rs_str_is(tok.text, field_names[field]))
				break;
		if (field < N_FIELDS && seen[field])
			return rs__st_refuse(
				p, BAD_JSON, &e->name, "%s stands twice", field_names[field]);
		if (field < N_FIELDS)
			seen[field] = true;
		if (next(p, &tok) < 0 || parse_field(p, field, &tok, e, span) < 0)
			return -1;
	}
	for (field = 0; field < N_FIELDS; field++)
		if (!seen[field])
			return rs__st_refuse(p, BAD_JSON, &e->name, "expected %s, found none",
				field_names[field]);
	return 0;
}

/* [dtype, shape, data_offsets]: a side effect of the reference's JSON library, which takes it. */
static int parse_array(struct rs__st *p, struct rs_entry *e, struct rs_span *span)
{
	struct rs_json_token tok;

	for (int field = 0; field < N_FIELDS; field++)
		if (next(p, &tok) < 0 || parse_field(p, field, &tok, e, span) < 0)
			return -1;
	return expect(p, &tok, RS_JSON_ARRAY_END, &e->name, "the end of the array");
}

static int parse_tensor(struct rs__st *p, struct rs_str name)
{
	struct rs_entry *e = &p->entries[p->n_entries];
	struct rs_span *span = &p->spans[p->n_entries];
	struct rs_json_token tok;

	if (name.len > RS_MAX_NAME)
		return rs_fail(p->err, RS_LIMIT,
			"%s: a tensor name of %zu bytes, the limit is %d (RS_MAX_NAME)",
			p->file->name, name.len, RS_MAX_NAME);
	if (memchr(name.ptr, 0, name.len))
		return rs__st_refuse(p, "InvalidHeader", &name, "a NUL in the name");
	p->n_entries++;
	e->name = name;
	e->spans = span;
	if (next(p, &tok) < 0)
		return -1;
	if (tok.type == RS_JSON_ARRAY)
		return parse_array(p, e, span);
	if (tok.type == RS_JSON_OBJECT)
		return parse_object(p, e, span);
	return rs__st_refuse(p, BAD_JSON, &name, "expected an object at offset %" PRIu64, tok.off);
}

/* Check 5: the second pass, which keeps what it reads. */
static int parse_header(struct rs__st *p)
{
	bool has_metadata = false;
	struct rs_json_token tok;

	p->json = p->begin;
	p->json.arena = p->arena;
	if (expect(p, &tok, RS_JSON_OBJECT, NULL, "an object") < 0)
		return -1;
	for (;;) {
		if (next(p, &tok) < 0)
			return -1;
		if (tok.type == RS_JSON_OBJECT_END)
			return 0;
		if (!rs_str_is(tok.text, "__metadata__")) {
			if (parse_tensor(p, tok.text) < 0)
				return -1;
			continue;
		}
		if (has_metadata)
			return rs__st_refuse(p, BAD_JSON, NULL, "__metadata__ stands twice");
		has_metadata = true;
		if (parse_metadata(p) < 0)
			return -1;
	}
}

int rs__st_parse(struct rs__st *p)
{
	return count(p) < 0 || parse_header(p) < 0 ? -1 : 0;
}
