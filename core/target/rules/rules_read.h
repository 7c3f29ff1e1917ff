/*
 * rules_read.h - private to rules_read.c, rules_json.c and rules_rule.c: reading JSON by tables.
 */
#ifndef RESHARDFS_CORE_TARGET_RULES_READ_H
#define RESHARDFS_CORE_TARGET_RULES_READ_H

#include "core/target/rules/rules.h"

struct cJSON;

/* What is read, and what it is read into. */
struct rs__read {
	struct rs__plan *plan;
	const struct rs__axis *sizes; /* the mesh in the place of the plan's, or NULL */
	uint32_t n_sizes;
	struct rs_arena *arena;
	struct rs_err *err;
};
/* A place in the document: a member of, or an item in, the place above it. */
struct rs__at {
	const struct rs__at *up;
	const char *key; /* NULL: item @index */
	uint32_t index;
};
/* A reader of one kind of value; *@out starts zeroed. */
typedef int (*rs__read_fn)(
	struct rs__read *r, const struct rs__at *at, const struct cJSON *v, void *out);
struct rs__field {
	const char *key;
	rs__read_fn read;
	size_t off; /* in the struct that the object becomes */
	bool required;
};
#define FIELD(type, key, member, read)                                                             \
	{                                                                                          \
		key, read, offsetof(struct type, member), false                                    \
	}
#define REQUIRED(type, key, member, read)                                                          \
	{                                                                                          \
		key, read, offsetof(struct type, member), true                                     \
	}

/* rs__read_where - "plan.json: rules[2].cut[0]", in the arena. */
const char *rs__read_where(struct rs__read *r, const struct rs__at *at);
int rs__read_refuse(struct rs__read *r, const struct rs__at *at, const char *fmt, ...)
	__attribute__((cold, format(printf, 3, 4)));
/* rs__read_unexpected - "expected @what, found ...". */
int rs__read_unexpected(
	struct rs__read *r, const struct rs__at *at, const char *what, const struct cJSON *v);
int rs__read_no_axis(struct rs__read *r, const struct rs__at *at, const char *name);

/*
 * rs__read_object - members are read in the order of @fields (which a NULL key ends), whatever
 * their order in the document. rs__read_array - @size bytes an item; NULL on failure.
 */
int rs__read_object(struct rs__read *r, const struct rs__at *at, const struct cJSON *v,
	const struct rs__field *fields, void *out);
void *rs__read_array(struct rs__read *r, const struct rs__at *at, const struct cJSON *v,
	rs__read_fn read, size_t size, uint32_t *n);
/* rs__read_word - one of the NULL-terminated @words; *out is its number. */
int rs__read_word(struct rs__read *r, const struct rs__at *at, const struct cJSON *v,
	const char *const *words, int *out);

#define RS__READER(name)                                                                           \
	int name(struct rs__read *r, const struct rs__at *at, const struct cJSON *v, void *out)
RS__READER(rs__read_str);     /* struct rs_str, not empty, terminated */
RS__READER(rs__read_bool);    /* bool */
RS__READER(rs__read_u64);     /* uint64_t */
RS__READER(rs__read_dim);     /* uint32_t below RS_MAX_AXES */
RS__READER(rs__read_index);   /* uint32_t below RS_MAX_CELLS */
RS__READER(rs__read_indices); /* struct rs__coords */
RS__READER(rs__read_num);     /* struct rs__num */
RS__READER(rs__read_axis);    /* uint32_t */
RS__READER(rs__read_uneven);  /* enum rs__uneven */
RS__READER(rs__read_rule);    /* struct rs__rule */

#endif
