/*
 * explain.c - `explain SRC --target T RANK TENSOR`: where each byte of one tensor comes from.
 *
 * First the boxes: which part of the whole tensor the rank holds, and which file stores which part
 * of that. Then the runs: how the bytes lie in these files. With --json every run is there, so that
 * anybody can read the tensor from the source files by hand. Refuses ranks that are not shown
 * and names that the rank does not hold, with the nearest one. Read next: plan.h, nest.c.
 */
#include "explain.h"

#include <inttypes.h>
#include <stdlib.h>

#define RUNS_MAX 24 /* printed as text; --json has them all */
#define BOXES_MAX 24

/* -------------------------------------------------------------------- finding it */

static int find_rank(const struct rs_view *v, const char *word, uint64_t *rank, struct rs_err *err)
{
	uint64_t n = rs_view_n_ranks(v);

	if (!rs_str_u64(rs_str(word), rank)) {
		rs_fail(err, RS_USAGE, "%s: expected a target rank number", RS_SHOW(rs_str(word)));
		return rs_hint(
			err, "the order is: reshardfs explain SOURCE RANK TENSOR, with RANK as 3");
	}
	for (uint64_t i = 0; i < n; i++)
		if (rs_view_rank(v, i) == *rank)
			return 0;
	return rs_fail(err, RS_USAGE,
		"rank %" PRIu64 ": expected one of the %" PRIu64 " ranks shown, %" PRIu64
		" to %" PRIu64,
		*rank, n, rs_view_rank(v, 0), rs_view_rank(v, n - 1));
}

/* What was meant, perhaps, when no file of the rank has the tensor. */
struct nearest {
	uint32_t far;
	bool raw; /* it is a source file that is handed on as it is */
	char name[RS_SHOW_MAX];
};

/* Is the tensor in the image at hand? */
static bool find_tensor(struct explain *x, const char *name, struct nearest *near)
{
	const struct rs_list *list = &x->img->list;

	for (uint64_t i = 0; i < list->n; i++) {
		uint32_t far = fs__nearness(list->items[i].name, rs_str(name));

		if (rs_str_is(list->items[i].name, name)) {
			x->want = &list->items[i];
			x->nest = x->img->nests[i];
			return true;
		}
		if (far < near->far) {
			near->far = far;
			near->raw = list->raw;
			rs_show(list->items[i].name, near->name, sizeof(near->name));
		}
	}
	return false;
}

static int refuse_tensor(
	const struct explain *x, const char *name, const struct nearest *near, struct rs_err *err)
{
	rs_fail(err, RS_USAGE, "rank %" PRIu64 " holds no tensor '%s'", x->rank,
		RS_SHOW(rs_str(name)));
	if (near->far == UINT32_MAX)
		return -1;
	if (near->raw)
		return rs_hint(
			err, "the file is handed on as it is: its one content is '%s'", near->name);
	return rs_hint(err, "did you mean '%s'?", near->name);
}

/* Among the files of the rank, or of the one that it shares files with. Holds the image. */
static int find_file(
	struct explain *x, struct rs_view *v, const char *name, uint64_t *inode, struct rs_err *err)
{
	uint64_t lead = rs_target_lead(rs_view_target(v), x->rank);
	struct nearest near = {.far = UINT32_MAX};

	for (uint64_t i = 0; i < rs_view_n_files(v); i++) {
		const struct rs_output *o = rs_view_output(v, *inode = rs_view_file(v, i));

		if (o->kind != RS_OUTPUT_LIST || o->rank != lead)
			continue;
		x->img = rs_view_hold(v, *inode, err);
		if (x->img == NULL)
			return -1;
		if (find_tensor(x, name, &near)) {
			fs__view_name(v, *inode, x->path);
			return 0;
		}
		rs_view_release(v, *inode, x->img);
		x->img = NULL;
	}
	return refuse_tensor(x, name, &near, err);
}

static int find_stretches(struct explain *x, struct rs_err *err)
{
	const struct rs_image *img = x->img;

	for (uint64_t i = 0; i < img->n_segments; i++) {
		if (img->segments[i].kind != RS_SEGMENT_SLICE || img->segments[i].nest != x->nest)
			continue;
		if (rs_grow(&x->stretches, &x->cap_stretches, x->n_stretches + 1,
			    sizeof(*x->stretches), err) < 0)
			return -1;
		x->stretches[x->n_stretches++] = (struct explain_stretch){
			.file_off = img->start[i],
			.skip = img->segments[i].skip,
			.bytes = img->start[i + 1] - img->start[i],
		};
	}
	return 0;
}

/* ------------------------------------------------------------------------- boxes */

struct visit {
	struct explain *x;
	const struct rs_part *part;
	struct rs_box wanted; /* of the part, in the source tensor */
};

static int add_box(struct explain *x, const struct explain_box *box, struct rs_err *err)
{
	if (rs_grow(&x->boxes, &x->cap_boxes, x->n_boxes + 1, sizeof(*x->boxes), err) < 0)
		return -1;
	x->boxes[x->n_boxes++] = *box;
	return 0;
}

static int add_piece(void *arg, const struct rs_piece *piece, struct rs_err *err)
{
	const struct visit *v = arg;
	struct explain_box b = {.tensor = v->part->source, .unit = piece->unit};
	uint64_t skip = piece->first;

	if (!rs_box_intersect(&piece->box, &v->wanted, &b.source))
		return 0;
	b.target = b.stored = b.source;
	for (uint32_t a = 0; a < b.source.n_axes; a++) {
		uint64_t block = piece->stride[a] > 0 ? skip / piece->stride[a] : 0;

		b.target.origin[a] =
			v->part->box.origin[a] + (b.source.origin[a] - v->wanted.origin[a]);
		b.stored.origin[a] = block + (b.source.origin[a] - piece->box.origin[a]);
		skip -= block * piece->stride[a];
	}
	return add_box(v->x, &b, err);
}

static int find_boxes(struct explain *x, struct rs_err *err)
{
	for (uint32_t p = 0; p < x->want->n_parts; p++) {
		const struct rs_part *part = &x->want->parts[p];
		struct visit v = {.x = x, .part = part, .wanted = part->box};
		int rc;

		if (part->kind != RS_PART_COPY) {
			rc = add_box(x, &(struct explain_box){.target = part->box}, err);
		} else {
			memcpy(v.wanted.origin, part->origin, sizeof(v.wanted.origin));
			rc = rs_catalog_pieces(x->src->cat, part->source, &v.wanted,
				x->want->prefer, add_piece, &v, err);
		}
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* -------------------------------------------------------------------------- text */

/* File and offset of content byte @at of the run's entry; the bytes left in that span. */
static uint64_t locate(const struct explain *x, const struct rs_run *run, uint64_t at,
	uint32_t *file, uint64_t *left)
{
	const struct rs_entry *e = run->entry;
	uint32_t s = 0;

	while (s + 1 < e->n_spans && at >= e->spans[s].len)
		at -= e->spans[s++].len;
	*file = rs_catalog_unit(x->src->cat, run->unit)->first_file + e->spans[s].file;
	*left = e->spans[s].len - at;
	return e->spans[s].off + at;
}

struct printer {
	const struct explain *x;
	uint64_t n;
};

static int print_run(void *arg, const struct fs_leaf *leaf)
{
	struct printer *p = arg;
	uint64_t left, at;
	uint32_t file;

	if (p->n++ >= RUNS_MAX)
		return 0;
	printf("  byte %-10" PRIu64, leaf->off);
	if (leaf->run->entry == NULL) {
		printf(" zeros");
	} else {
		at = locate(p->x, leaf->run, leaf->run->first, &file, &left);
		printf(" %s at %" PRIu64, RS_SHOW(rs_str(fs__source_file_name(p->x->src, file))),
			at);
	}
	printf(": ");
	for (uint32_t i = 0; i < leaf->n_loops; i++)
		printf("%" PRIu64 " times (source +%" PRIu64 ", target +%" PRIu64 ") ",
			leaf->count[i], leaf->pitch[i], leaf->step[i]);
	printf("%" PRIu64 " bytes", leaf->width);
	putchar('\n');
	return 0;
}

static void print_boxes(const struct explain *x)
{
	printf("boxes    of the target, and where they are stored\n");
	for (uint64_t i = 0; i < x->n_boxes && i < BOXES_MAX; i++) {
		const struct explain_box *b = &x->boxes[i];
		const struct rs_unit *unit;

		if (b->tensor == NULL) {
			printf("  %s <- zeros\n", RS_BOX_SHOW(&b->target));
			continue;
		}
		unit = rs_catalog_unit(x->src->cat, b->unit);
		printf("  %s <- %s of %s in %s\n", RS_BOX_SHOW(&b->target), RS_BOX_SHOW(&b->source),
			RS_SHAPE_SHOW(&b->tensor->shape),
			RS_SHOW(rs_str(fs__source_file_name(x->src, unit->first_file))));
	}
	if (x->n_boxes > BOXES_MAX)
		printf("  and %" PRIu64 " more; --json has them all\n", x->n_boxes - BOXES_MAX);
}

static void print_text(const struct explain *x, bool exact)
{
	struct printer p = {.x = x};

	printf("tensor   '%s' of rank %" PRIu64 ": %s %s, %s\n", RS_SHOW(x->want->name), x->rank,
		rs_dtype_name(x->want->dtype), RS_SHAPE_SHOW(&x->want->shape),
		FS_SIZE(x->nest->bytes, exact));
	printf("file     %s", x->path);
	for (uint64_t i = 0; i < x->n_stretches && i < 4; i++)
		printf("%s%" PRIu64 " bytes at %" PRIu64, i == 0 ? ": " : ", ",
			x->stretches[i].bytes, x->stretches[i].file_off);
	puts(x->n_stretches > 4 ? ", ..." : "");
	print_boxes(x);
	printf("runs     of bytes, in target order\n");
	fs__nest_leaves(x->nest, print_run, &p);
	if (p.n > RUNS_MAX)
		printf("  and %" PRIu64 " more; --json has them all\n", p.n - RUNS_MAX);
	if (x->want->shape.n_axes == 2)
		fs__explain_draw(stdout, x);
}

/* -------------------------------------------------------------------------- JSON */

static void json_box(struct rs_jsonw *w, const char *key, const struct rs_box *b)
{
	rs_jsonw_key(w, rs_str(key));
	rs_jsonw_open(w, '{');
	fs__json_dims(w, "origin", b->n_axes, b->origin);
	fs__json_dims(w, "length", b->n_axes, b->len);
	rs_jsonw_close(w, '}');
}

static void json_boxes(struct rs_jsonw *w, const struct explain *x)
{
	rs_jsonw_key(w, RS_STR("boxes"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < x->n_boxes; i++) {
		const struct explain_box *b = &x->boxes[i];

		rs_jsonw_open(w, '{');
		json_box(w, "target", &b->target);
		if (b->tensor != NULL) {
			rs_jsonw_key(w, RS_STR("tensor"));
			rs_jsonw_str(w, b->tensor->name);
			fs__json_dims(
				w, "whole_shape", b->tensor->shape.n_axes, b->tensor->shape.dims);
			json_box(w, "source", &b->source);
			json_box(w, "stored", &b->stored);
			fs__json_str(w, "unit", rs_catalog_unit(x->src->cat, b->unit)->name);
		}
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
}

struct writer {
	struct rs_jsonw *w;
	const struct explain *x;
};

static void json_spans(struct rs_jsonw *w, const struct explain *x, const struct rs_run *run)
{
	const struct rs_unit *unit = rs_catalog_unit(x->src->cat, run->unit);

	rs_jsonw_key(w, RS_STR("spans"));
	rs_jsonw_open(w, '[');
	for (uint32_t s = 0; s < run->entry->n_spans; s++) {
		const struct rs_span *span = &run->entry->spans[s];

		rs_jsonw_open(w, '{');
		fs__json_str(
			w, "file", fs__source_file_name(x->src, unit->first_file + span->file));
		fs__json_uint(w, "offset", span->off);
		fs__json_uint(w, "bytes", span->len);
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
}

static int json_run(void *arg, const struct fs_leaf *leaf)
{
	const struct writer *to = arg;
	struct rs_jsonw *w = to->w;

	rs_jsonw_open(w, '{');
	fs__json_uint(w, "target_offset", leaf->off);
	fs__json_uint(w, "bytes", leaf->width);
	rs_jsonw_key(w, RS_STR("loops"));
	rs_jsonw_open(w, '[');
	for (uint32_t i = 0; i < leaf->n_loops; i++) {
		rs_jsonw_open(w, '{');
		fs__json_uint(w, "count", leaf->count[i]);
		fs__json_uint(w, "target_step", leaf->step[i]);
		fs__json_uint(w, "source_pitch", leaf->pitch[i]);
		rs_jsonw_close(w, '}');
	}
	rs_jsonw_close(w, ']');
	if (leaf->run->entry == NULL) {
		fs__json_str(w, "unit", NULL);
	} else {
		fs__json_str(w, "unit", rs_catalog_unit(to->x->src->cat, leaf->run->unit)->name);
		fs__json_uint(w, "content_offset", leaf->run->first);
		json_spans(w, to->x, leaf->run);
	}
	rs_jsonw_close(w, '}');
	return 0;
}

static int print_json(const struct explain *x)
{
	struct rs_jsonw w;
	struct writer to = {.w = &w, .x = x};

	fs__json_begin(&w, "explain");
	fs__json_uint(&w, "rank", x->rank);
	rs_jsonw_key(&w, RS_STR("tensor"));
	rs_jsonw_str(&w, x->want->name);
	fs__json_str(&w, "dtype", rs_dtype_name(x->want->dtype));
	fs__json_dims(&w, "shape", x->want->shape.n_axes, x->want->shape.dims);
	fs__json_uint(&w, "bytes", x->nest->bytes);
	fs__json_str(&w, "file", x->path);
	rs_jsonw_key(&w, RS_STR("stretches"));
	rs_jsonw_open(&w, '[');
	for (uint64_t i = 0; i < x->n_stretches; i++) {
		rs_jsonw_open(&w, '{');
		fs__json_uint(&w, "file_offset", x->stretches[i].file_off);
		fs__json_uint(&w, "tensor_offset", x->stretches[i].skip);
		fs__json_uint(&w, "bytes", x->stretches[i].bytes);
		rs_jsonw_close(&w, '}');
	}
	rs_jsonw_close(&w, ']');
	json_boxes(&w, x);
	rs_jsonw_key(&w, RS_STR("runs"));
	rs_jsonw_open(&w, '[');
	fs__nest_leaves(x->nest, json_run, &to);
	rs_jsonw_close(&w, ']');
	return fs__json_end(&w, FS_EXIT_OK);
}

/* -------------------------------------------------------------------------- verb */

static int explain(const struct fs_options *o, struct explain *x, struct rs_err *err)
{
	if (find_stretches(x, err) < 0 || find_boxes(x, err) < 0)
		return fs__verb_fail(o, "explain", err);
	if (o->json)
		return print_json(x);
	print_text(x, o->bytes);
	return FS_EXIT_OK;
}

int fs_verb_explain(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct rs_view *v = NULL;
	struct explain x = {0};
	struct rs_err err = {0};
	uint64_t inode = 0;
	int code;

	if (rs_view_open(&opts, &v, &err) < 0 || find_rank(v, o->args[1], &x.rank, &err) < 0)
		goto fail;
	x.src = rs_view_source(v);
	if (find_file(&x, v, o->args[2], &inode, &err) < 0)
		goto fail;
	code = explain(o, &x, &err);
	rs_view_release(v, inode, x.img);
	goto out;
fail:
	code = fs__verb_fail(o, "explain", &err);
out:
	rs_free(x.stretches);
	rs_free(x.boxes);
	rs_view_close(v);
	return code;
}
