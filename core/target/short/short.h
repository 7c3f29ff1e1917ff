/*
 * short.h - private to short*.c: targets of a few words ("tp4.ep2.pp2.opt").
 *
 *   short.c            words, and who understands them: a strategy, pieces, or a plan
 *   short_mindspore.c  which part of a source strategy is tp, ep and dp
 *   short_pieces.c     the same for sources that list pieces, or hold whole tensors
 *   short_stages.c     which tensor goes to which pipeline stage
 *   short_make.c       all of that with new sizes: an ordinary strategy, which cut.c goes by
 *   short_rules.c      rules that name the axes, shipped or given
 */
#ifndef RESHARDFS_CORE_TARGET_SHORT_H
#define RESHARDFS_CORE_TARGET_SHORT_H

#include "core/target/internal.h"

/* What an axis of the mesh does to tensors. */
enum rs__role { RS__TP, RS__EP, RS__DP, RS__PP, RS__N_ROLES };
extern const char *const rs__role_names[RS__N_ROLES];

#define RS__WORDS_MAX 8

struct rs__word {
	struct rs_str name;
	uint64_t size;
};
struct rs__short {
	struct rs__word words[RS__WORDS_MAX]; /* as written: innermost first; without opt */
	uint32_t n_words;
	bool opt;
	uint64_t opt_size; /* 0: all replicas */
	uint64_t n_ranks;
	/* for targets that cut by role, see rs__short_roles */
	enum rs__role roles[RS__WORDS_MAX]; /* of the words */
	uint64_t size[RS__N_ROLES];         /* 1: not named */
	bool named[RS__N_ROLES];
};
/* rs__short_is - words and numbers joined by dots, whatever the words are. */
bool rs__short_is(struct rs_str text);
/* rs__short_parse - RS_USAGE: an axis twice, opt not last; RS_LIMIT. @text stays in use. */
int rs__short_parse(struct rs_str text, struct rs__short *out, struct rs_err *err);
/* rs__short_roles - fill in roles and sizes. RS_USAGE: another axis; pp not last. */
int rs__short_roles(struct rs__short *s, struct rs_str text, struct rs_err *err);

/* A way to be cut, told by roles. Ways are few, tensors are many. */
struct rs__way {
	uint32_t n_axes; /* 0: replicated, whatever the shape */
	/* of axis a: roles[first[a] .. first[a + 1]), the most significant first */
	uint32_t first[RS_MAX_AXES + 1];
	uint8_t roles[RS_MAX_AXES * RS_MAX_DEVICE_DIMS];
	bool shard; /* the source shards it over replicas, too */
	/* made by short_make.c */
	struct rs_layout plain, sharded; /* without and with an optimizer shard */
	uint64_t parts[RS_MAX_AXES];
	uint64_t shards; /* of axis 0, beyond parts[0]; 1: none */
	bool made;
};
/* A tensor of the source that the target places. */
struct rs__subject {
	const struct rs_tensor *tensor;
	struct rs__way *way;
	const uint32_t *from; /* source stages that list it, ascending */
	uint32_t n_from;
	/* made by short_stages.c */
	uint32_t order; /* in the source, or the file that shows its order; UINT32_MAX: not there */
	const uint32_t *stages;
	uint32_t n_stages;
};
struct rs__subjects {
	struct rs__subject *at; /* by name */
	uint64_t n;
	uint32_t n_stages; /* of the source */
};

/* rs__short_mindspore, rs__short_pieces - the tensors of the source, and how each is cut. */
int rs__short_mindspore(struct rs_target *t, const struct rs__short *s, struct rs__subjects *out,
	struct rs_err *err);
int rs__short_pieces(struct rs_target *t, const struct rs__short *s, struct rs__subjects *out,
	struct rs_err *err);
/* rs__short_stages - fill in stages. RS_USAGE: layers that do not divide, or that cannot be told.
 */
int rs__short_stages(struct rs_target *t, const struct rs__short *s, struct rs__subjects *all,
	struct rs_err *err);
/*
 * rs__short_open - have @t cut by roles: by a strategy that is made when the target is bound.
 * Binding is RS_USAGE for cuts that do not divide, and where nothing tells what an axis cuts.
 */
int rs__short_open(struct rs_target *t, struct rs__short *s, struct rs_err *err);
/* rs__short_open_rules - have @t go by the rules of plan= or of its model. */
int rs__short_open_rules(struct rs_target *t, const struct rs__short *s, struct rs_err *err);
/*
 * rs__short_plan - the rules of a short target: plan=, or those shipped for the model of the
 * source. Errors: RS_USAGE (no such plan), and those of reading a file.
 */
int rs__short_plan(
	const struct rs_target *t, struct rs_str *text, const char **name, struct rs_err *err);

/* rs__layer_of - "a.layers.12.w": stem "a.layers", layer 12. False where no layer is named. */
bool rs__layer_of(struct rs_str name, struct rs_str *stem, uint64_t *layer);
/* rs__divisors - "1 2 4 8" of @n, up to @most of them; returns @buf. For hints. */
const char *rs__divisors(uint64_t n, uint32_t most, char *buf, size_t size);

#endif
