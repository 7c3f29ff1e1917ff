/*
 * rules.h - private to the kinds of targets that go by rules: plan files, and what is made from
 * them.
 *
 *   rules_json.c    the text of a plan -> struct rs__plan; with rules_rule.c and rules_read.c
 *   rules_expr.c    "g * d": numbers that count with variables
 *   rules_match.c   "model.layers.{N}.weight": patterns of names
 *   rules_mesh.c    ranks, coordinates, and how axes deal out indices and rows
 *   rules_view.c    a tensor seen through slice, transpose, pad, cut, concat: a list of parts
 *   rules_bind.c    plan x catalog (rules_origin.c) -> what is made from what
 *   rules_place.c   what it is called, and on which ranks it is
 *   rules_value.c   what it is on one rank: a view; scales that follow weights: rules_scale.c
 *   rules.c         the kind of target; rules_list.c and rules_check.c: what it is asked
 */
#ifndef RESHARDFS_CORE_TARGET_RULES_H
#define RESHARDFS_CORE_TARGET_RULES_H

#include "core/target/internal.h"

/* An axis of the mesh of target ranks, and how many coordinates it has. */
struct rs__axis {
	struct rs_str name;
	uint64_t size;
};

/*
 * rs__rules_open - have @t go by the plan in @text (JSON; @name: for messages). Sets t->priv,
 * n_ranks, files, container, and what else depends on the plan.
 * @sizes: NULL for the mesh of the plan, else the mesh in its place, outermost axis first. Axes of
 * the plan that it does not name have one coordinate; an axis that the plan does not know must be
 * dp, and replicates.
 * Errors: RS_USAGE (not the language of plans; axes), RS_UNSUPPORTED (format pt), RS_LIMIT.
 */
int rs__rules_open(struct rs_target *t, struct rs_str text, const char *name,
	const struct rs__axis *sizes, uint32_t n_sizes, struct rs_err *err);
/* The other members of struct rs_target_ops, for any target that rs__rules_open has opened. */
int rs__rules_check(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err);
int rs__rules_needs(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks);
int rs__rules_list(struct rs_target *t, uint64_t rank, struct rs_arena *arena, struct rs_list *out,
	struct rs_notes *notes, struct rs_err *err);

/* ------------------------------------------------------------------ numbers */

#define RS__NONE UINT32_MAX

struct rs__vars {
	const struct rs_var *own; /* of the plan; these win */
	uint32_t n;
	const struct rs_config *config; /* of the source; may be NULL */
};
/*
 * rs__vars_find - the plan's own variables, then h f d nq g L V E as config.json has them, then the
 * integers of config.json under their own names.
 */
bool rs__vars_find(const struct rs__vars *vars, struct rs_str name, int64_t *out);

/* A number of a plan: written out, or an expression. */
struct rs__num {
	struct rs_str expr; /* ptr NULL: value counts */
	int64_t value;
	const char *where; /* "plan.json: rules[2].cut[0].unit"; NULL: not given */
};
/*
 * rs__expr_check - is it an expression at all? rs__num_value - what it comes to: RS_USAGE for an
 * unset variable, a division with a rest, or a result below 0; RS_LIMIT beyond 64 bits.
 */
int rs__expr_check(struct rs_str expr, const char *where, struct rs_err *err);
int rs__num_value(
	const struct rs__num *num, const struct rs__vars *vars, uint64_t *out, struct rs_err *err);

/* ---------------------------------------------------------------- mesh, ranges */

#define RS__MESH_AXES 16

struct rs__mesh {
	struct rs__axis axes[RS__MESH_AXES]; /* outermost first: the last varies fastest */
	uint32_t n;
	uint64_t n_ranks;
};
uint32_t rs__mesh_find(const struct rs__mesh *m, struct rs_str name); /* or RS__NONE */
void rs__mesh_coords(const struct rs__mesh *m, uint64_t rank, uint32_t *coords);
/* rs__mesh_use - put the axes @sizes in the place of those of a plan, see rs__rules_open. */
int rs__mesh_use(struct rs__mesh *m, const struct rs__axis *sizes, uint32_t n, const char *name,
	struct rs_err *err);
/* rs__mesh_count - fill n_ranks. RS_LIMIT. */
int rs__mesh_count(struct rs__mesh *m, const char *name, struct rs_err *err);

/* Coordinates along one axis, ascending; at NULL: all of them. */
struct rs__coords {
	const uint32_t *at;
	uint32_t n;
};
bool rs__coords_has(const struct rs__coords *c, uint32_t coord);
int rs__coords_meet(const struct rs__coords *a, const struct rs__coords *b, struct rs_arena *arena,
	struct rs__coords *out, struct rs_err *err);

enum rs__uneven {
	RS__UNEVEN_UNSAID, /* as strict.uneven says */
	RS__UNEVEN_ERROR,
	RS__UNEVEN_CHUNK,
	RS__UNEVEN_BALANCED,
	RS__UNEVEN_PAD,
};

/* Indices (layers, experts) dealt out along an axis of the mesh. */
struct rs__range {
	struct rs_str name;
	uint32_t axis;
	struct rs__num count;     /* where NULL: what the source has */
	const uint64_t *sizes;    /* per coordinate, or NULL */
	struct rs__coords *lists; /* per coordinate, or NULL; in their own order */
	bool renumber;            /* local: {N} is the number in the share */
	const char *where;
	/* bound: */
	uint32_t total;            /* indices are below it */
	struct rs__coords *shares; /* per coordinate: its indices, in order */
	/* of index i, from first[i] to first[i + 1]: who owns it, and its number in that share */
	uint32_t *first, *owners, *local;
};
/* rs__range_bind - deal out: @found is the highest index that the source has, plus one. */
int rs__range_bind(struct rs__range *r, const struct rs__mesh *m, const struct rs__vars *vars,
	enum rs__uneven uneven, uint64_t found, struct rs_arena *arena, struct rs_err *err);
bool rs__range_owns(const struct rs__range *r, uint64_t index);

/* One axis of a tensor dealt out over one axis of the mesh. */
struct rs__cut {
	uint32_t dim, axis;
	struct rs__num unit;
	bool replicate; /* few: replicate */
	enum rs__uneven uneven;
	const char *where;
};
/* What a coordinate gets of an axis: elements [start, stop), then @pad elements of zeros. */
struct rs__share {
	uint64_t start, stop, pad;
};
int rs__cut_share(const struct rs__cut *cut, const struct rs__mesh *m, const struct rs__vars *vars,
	enum rs__uneven uneven, uint64_t len, uint32_t coord, struct rs__share *out,
	struct rs_err *err);

/* ------------------------------------------------------------------- patterns */

#define RS__CAPTURES 16

struct rs__capture {
	struct rs_str name;
	uint32_t range; /* among the plan's ranges: the text is a number; RS__NONE: it is text */
};
enum rs__form { RS__AS_IS, RS__GLOBAL, RS__LOCAL }; /* {N} {N.g} {N.l} */
struct rs__token {
	struct rs_str text; /* literal */
	uint32_t capture;   /* of the rule; RS__NONE: literal */
	enum rs__form form;
};
struct rs__pattern {
	struct rs_str text; /* ptr NULL: not given */
	const struct rs__token *tokens;
	uint32_t n;
	const char *where;
};
struct rs__captures {
	struct rs__capture at[RS__CAPTURES];
	uint32_t n;
};
/*
 * rs__pattern_compile - cut text into tokens. @open: new captures may appear, and join @captures;
 * else only those that are there. @ranges may be NULL: no capture is a number.
 */
int rs__pattern_compile(struct rs__pattern *p, struct rs__captures *captures, bool open,
	const struct rs__range *ranges, uint32_t n_ranges, struct rs_arena *arena,
	struct rs_err *err);
bool rs__pattern_has(const struct rs__pattern *p, uint32_t capture);

struct rs__value {
	struct rs_str text; /* ptr NULL: unset */
	uint64_t number;    /* of a range */
};
/*
 * rs__pattern_match - 1 when all of @name is what the pattern says, with @values of the captures
 * in it; 0 when not. A capture takes as many characters as it can, from left to right.
 * RS_LIMIT when there are too many ways to try.
 */
int rs__pattern_match(const struct rs__pattern *p, const struct rs__captures *captures,
	struct rs_str name, struct rs__value *values, struct rs_err *err);
/*
 * rs__pattern_fill - the name that the pattern makes of @values. @local: per capture the local
 * number, for {N.l} and for {N} of ranges that say so; NULL: global numbers everywhere.
 */
int rs__pattern_fill(const struct rs__pattern *p, const struct rs__captures *captures,
	const struct rs__range *ranges, const struct rs__value *values, const uint32_t *local,
	struct rs_arena *arena, struct rs_str *out, struct rs_err *err);
/* rs__token_local - does this token show the local number of its range? */
bool rs__token_local(const struct rs__token *t, const struct rs__captures *captures,
	const struct rs__range *ranges);

/* ------------------------------------------------------------------------ plan */

struct rs__slice {
	uint32_t dim;
	struct rs__num start, stop;
};
struct rs__fit { /* trim or pad */
	uint32_t dim;
	struct rs__num to, multiple;
	bool last;         /* fill: last */
	const char *where; /* NULL: not given */
};
/* What happens to one tensor, in this order. */
struct rs__steps {
	struct rs__num groups; /* of the slices */
	const struct rs__slice *slices;
	uint32_t n_slices;
	const uint32_t *transpose;
	uint32_t n_transpose;
	struct rs__fit trim, pad;
	const struct rs__cut *cuts;
	uint32_t n_cuts;
	const char *where; /* of the part or rule */
};
struct rs__operand {
	struct rs__pattern from;
	struct rs__steps steps;
	const char *where;
};
struct rs__concat {
	uint32_t dim;
	struct rs__num groups;
	struct rs__operand *parts;
	uint32_t n_parts;
	const char *where; /* NULL: not given */
};
struct rs__stack {
	uint32_t dim;
	struct rs_str over;
	uint32_t range, capture;
	bool split;
	const char *where; /* NULL: not given */
};
struct rs__rule {
	const char *where;
	uint32_t index;
	struct rs__pattern to, from, drop, alias_of, scale_of;
	struct rs__captures captures;
	struct rs__operand *operands; /* one `from`, or the parts of concat */
	uint32_t n_operands;
	struct rs__concat concat;
	struct rs__steps steps;
	struct rs__stack stack;
	struct rs__coords *on; /* per axis of the mesh; NULL: not given */
	enum rs_dtype dtype;   /* RS_DT_NONE: keep */
	const uint64_t *block;
	uint32_t n_block;
	bool optional;
};

enum rs__unmatched { RS__UNMATCHED_ERROR, RS__UNMATCHED_DROP, RS__UNMATCHED_REPLICATE };
struct rs__plan {
	const char *name; /* for messages */
	struct rs__vars vars;
	struct rs__mesh mesh;
	struct rs_files files;
	const char *format; /* files.format */
	enum rs__unmatched unmatched;
	enum rs_missing missing;
	enum rs__uneven uneven;
	struct rs__range *ranges;
	uint32_t n_ranges;
	struct rs__rule *rules;
	uint32_t n_rules;
};
/*
 * rs__plan_read - @text as a plan, all of it in @arena. @sizes: as rs__rules_open.
 * rs__plan_is - does @text look as if it should be a plan? For telling kinds of files apart.
 */
int rs__plan_read(struct rs_str text, const char *name, const struct rs__axis *sizes,
	uint32_t n_sizes, struct rs_arena *arena, struct rs__plan **out, struct rs_err *err);
bool rs__plan_is(struct rs_str text);

/* ----------------------------------------------------------------------- views */

/*
 * A tensor as seen after some steps: boxes of it, each from a box of a source tensor, or zeros.
 * Every step makes a new list; no data is touched. Parts are always mapped.
 */
struct rs__view {
	enum rs_dtype dtype;
	struct rs_shape shape;
	struct rs_part *parts; /* heap */
	uint64_t n, cap;
};
void rs__view_done(struct rs__view *v);
int rs__view_source(struct rs__view *v, const struct rs_tensor *t, struct rs_err *err);

/* What the steps count with. */
struct rs__scene {
	const struct rs__plan *plan;
	const uint32_t *coords; /* of the rank */
};
int rs__view_steps(struct rs__view *v, const struct rs__steps *steps, const struct rs__scene *at,
	struct rs_err *err);
/* rs__view_concat - the @n views behind each other along @dim, group by group. */
int rs__view_concat(struct rs__view *v, const struct rs__view *views, uint32_t n, uint32_t dim,
	uint64_t groups, const char *where, struct rs_err *err);
/* rs__view_stack - the @n views along a new axis @dim; @like: shape of each, also when n is 0. */
int rs__view_stack(struct rs__view *v, const struct rs__view *views, uint32_t n, uint32_t dim,
	const struct rs__view *like, const char *where, struct rs_err *err);
/* rs__view_unstack - index @index of axis @dim alone, without the axis. */
int rs__view_unstack(
	struct rs__view *v, uint32_t dim, uint64_t index, const char *where, struct rs_err *err);
/* rs__view_parts - the parts in @arena; plain copies are no longer mapped. */
int rs__view_parts(const struct rs__view *v, struct rs_arena *arena, const struct rs_part **parts,
	uint32_t *n, struct rs_err *err);
/* --------------------------------------------------------------------- binding */

/* A tensor of the source, or an entry without layout, whole. */
struct rs__origin {
	struct rs_str name;
	const struct rs_tensor *tensor;
	uint32_t stage;   /* of the source, whose files say where it stands in the order */
	uint32_t dropped; /* by this rule; RS__NONE */
	bool used;
};
/* A rule with values for all of its captures, save the one that it stacks over. */
struct rs__instance {
	const struct rs__rule *rule; /* NULL: one origin as it is */
	const struct rs__value *values;
	/* of operand o, and index i of the stacked range: origins[i * n_operands + o]; or NULL */
	struct rs__origin **origins;
	uint64_t n_origins;
};
/* A target tensor on the ranks at @where. Several may have one name: the first that is here. */
struct rs__placement {
	struct rs_str name;
	const struct rs__instance *instance; /* says what it is made from */
	const struct rs__rule *rule; /* says name, place and dtype; NULL: as instance->rule */
	struct rs__coords *within;   /* per axis: by ranges alone */
	struct rs__coords *where;    /* per axis: within, and `on` */
	struct rs_str weight;        /* scale_of: name of the target tensor that it follows */
	uint64_t first;              /* of the placements of this name */
};
struct rs__rules {
	struct rs__plan *plan;
	struct rs__origin *origins; /* by name */
	uint64_t n_origins;
	struct rs__instance *instances; /* by rule */
	uint64_t n_instances;
	struct rs__placement *placements; /* by name, then by rule */
	uint64_t n_placements;
};
/* What is needed while binding, and no longer. */
struct rs__binding {
	struct rs_target *t;
	struct rs__rules *rules;
	struct rs_arena *scratch;
	enum rs__unmatched unmatched; /* of the plan, unless options say otherwise */
	enum rs_missing missing;
	struct rs_err *err;
};
/* rs__bind_origins - what the source has. rs__origin_find - by name, or NULL. */
int rs__bind_origins(struct rs__binding *b);
struct rs__origin *rs__origin_find(const struct rs__rules *r, struct rs_str name);
/* rs__bind_instances - match, deal out ranges, and find every source that the rules want. */
int rs__bind_instances(struct rs__binding *b);
/* rs__bind_places - names and ranks of all targets; what no target takes. */
int rs__bind_places(struct rs__binding *b);

/* The op: once, after the source is described. Fills t->notes. */
int rs__rules_bind(struct rs_target *t, struct rs_err *err);
/* rs__placement_here - does the rank at @coords hold it? */
bool rs__placement_here(
	const struct rs__rules *r, const struct rs__placement *p, const uint32_t *coords);
/* rs__placement_find - what is called @name on the rank at @coords, or NULL. */
const struct rs__placement *rs__placement_find(
	const struct rs__rules *r, struct rs_str name, const uint32_t *coords);
/* rs__view_scale - @weight, made from @weights, seen in blocks: made from @scales instead. */
int rs__view_scale(struct rs__view *v, const struct rs__view *weight,
	const struct rs__instance *weights, const struct rs__instance *scales, struct rs_err *err);
/* rs__placement_wanted - shape and dtype of what @p is, seen as @v; parts come later. */
int rs__placement_wanted(const struct rs__placement *p, const struct rs__view *v,
	struct rs_wanted *want, struct rs_err *err);
/* rs__placement_view - what @p is on the rank at @coords; *@first gets its first source tensor. */
int rs__placement_view(const struct rs__rules *r, const struct rs__placement *p,
	const uint32_t *coords, struct rs__view *v, const struct rs__origin **first,
	struct rs_err *err);

#endif
