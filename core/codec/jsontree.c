/*
 * jsontree.c - small JSON documents (strategies, indexes, plans) as a cJSON tree.
 *
 * cJSON takes `01`, raw control bytes and text after the value, cuts names at \u0000 and keeps both
 * of two equal keys. So the strict reader goes over the text first, and what cJSON would
 * misunderstand is refused here: it only ever sees documents that mean one thing.
 * Next: core/layout/strategy.c, the main caller.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>

#include "reshardfs/codec.h"

/* cJSON spends about 80 bytes a value, whatever we say: so text and values have limits first. */
#define TEXT_MAX (UINT64_C(64) << 20)
#define VALUES_MAX 4000000
#define NUMBER_MAX 63 /* cJSON 1.7 silently stops reading a number there */

/* Every key of the document, with the object that it belongs to. */
struct key {
	uint64_t object; /* serial number of the opening bracket */
	uint64_t off;
	struct rs_str name;
};
struct survey {
	struct rs_json json;
	const char *file;
	struct key *keys;
	uint64_t n_keys, cap, n_values;
	uint64_t open[RS_JSON_DEPTH]; /* the object or array at each level */
};

static int by_object_and_name(const void *pa, const void *pb)
{
	const struct key *a = pa, *b = pb;
	int order;

	if (a->object != b->object)
		return a->object < b->object ? -1 : 1;
	order = rs_str_cmp(a->name, b->name);
	if (order != 0)
		return order;
	return a->off < b->off ? -1 : a->off > b->off;
}

static int refuse_duplicates(struct survey *s, struct rs_err *err)
{
	if (s->n_keys > 1)
		qsort(s->keys, s->n_keys, sizeof(*s->keys), by_object_and_name);
	for (uint64_t i = 1; i < s->n_keys; i++) {
		const struct key *a = &s->keys[i - 1], *b = &s->keys[i];

		if (a->object == b->object && rs_str_eq(a->name, b->name))
			return rs_fail(err, RS_CORRUPT,
				"%s@%" PRIu64 ": expected distinct keys, found '%s' twice (first at"
				" %" PRIu64 ")",
				s->file, b->off, RS_SHOW(b->name), a->off);
	}
	return 0;
}

static int note_key(struct survey *s, const struct rs_json_token *t, struct rs_err *err)
{
	if (rs_grow(&s->keys, &s->cap, s->n_keys + 1, sizeof(*s->keys), err) < 0)
		return -1;
	s->keys[s->n_keys++] = (struct key){s->open[s->json.depth - 1], t->off, t->text};
	return 0;
}

static int note_token(struct survey *s, const struct rs_json_token *t, struct rs_err *err)
{
	bool text = t->type == RS_JSON_KEY || t->type == RS_JSON_STRING;

	if (text && t->text.len && memchr(t->text.ptr, 0, t->text.len))
		return rs_fail(err, RS_CORRUPT,
			"%s@%" PRIu64 ": expected a string without NUL, found '%s'", s->file,
			t->off, RS_SHOW(t->text));
	if (t->type == RS_JSON_NUMBER && t->text.len > NUMBER_MAX)
		return rs_fail(err, RS_LIMIT,
			"%s@%" PRIu64 ": expected a number of at most %d characters, found %zu",
			s->file, t->off, NUMBER_MAX, t->text.len);
	if (t->type == RS_JSON_KEY)
		return note_key(s, t, err);
	if (t->type == RS_JSON_OBJECT_END || t->type == RS_JSON_ARRAY_END)
		return 0;
	if (++s->n_values > VALUES_MAX)
		return rs_fail(err, RS_LIMIT,
			"%s@%" PRIu64 ": expected at most %d values in one document, found more",
			s->file, t->off, VALUES_MAX);
	if (t->type == RS_JSON_OBJECT || t->type == RS_JSON_ARRAY)
		s->open[s->json.depth - 1] = s->n_values;
	return 0;
}

/* The strict pass: all that cJSON does not look at. */
static int survey(struct rs_str text, const char *file, struct rs_arena *arena, struct rs_err *err)
{
	struct survey s = {.file = file};
	struct rs_json_token t;
	int rc;

	rs_json_init(&s.json, text, 0, file, arena, err);
	do {
		rc = rs_json_next(&s.json, &t);
		if (rc == 0 && t.type != RS_JSON_END)
			rc = note_token(&s, &t, err);
	} while (rc == 0 && t.type != RS_JSON_END);
	if (rc == 0)
		rc = refuse_duplicates(&s, err);
	rs_free(s.keys);
	return rc;
}

int rs_json_parse(struct rs_str text, const char *file, struct cJSON **out, struct rs_err *err)
{
	struct rs_arena *arena;
	int rc;

	*out = NULL;
	if (text.len > TEXT_MAX)
		return rs_fail(err, RS_LIMIT,
			"%s: expected a JSON document of at most %" PRIu64 " bytes, found %zu",
			file, TEXT_MAX, text.len);
	/* An escaped string of n bytes costs at most n + 15 in the arena, and n is 4 or more. */
	arena = rs_arena_new(4 * (uint64_t)text.len + (1 << 20), err);
	if (!arena)
		return -1;
	rc = survey(text, file, arena, err);
	rs_arena_free(arena);
	if (rc < 0)
		return -1;
	*out = cJSON_ParseWithLength(text.ptr, text.len);
	if (!*out)
		return rs_fail(err, RS_NOMEM, "%s: out of memory for a JSON document", file);
	return 0;
}

bool rs_json_int(const struct cJSON *item, int64_t *out)
{
	const double limit = 9007199254740991.0; /* 2^53 - 1 */
	double value;

	if (!cJSON_IsNumber(item))
		return false;
	value = item->valuedouble;
	if (!(value >= -limit && value <= limit) || value != (double)(int64_t)value)
		return false;
	*out = (int64_t)value;
	return true;
}
