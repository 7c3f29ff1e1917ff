/*
 * measure.c - builds the image of every file and counts what serving it will cost: source
 * files, reads, pages, memory. Only headers are read; rows are counted by multiplying loops.
 *
 * A file whose image is refused keeps its error; the others are measured all the same.
 * Read next: nest.c (the counting), plan.c (the printing).
 */
#include "verbs.h"

#include <stdlib.h>

struct party {
	struct rs_view *v;
	struct fs_measure *all;
	const uint32_t *file_unit;
};

struct tally {
	uint64_t reads, touched, served;
};

static int count_leaf(void *arg, const struct fs_leaf *leaf)
{
	struct tally *t = arg;
	uint64_t reads = fs__leaf_reads(leaf);

	if (leaf->run->entry == NULL)
		return 0;
	t->reads += reads;
	t->served += reads * leaf->width;
	t->touched += fs__leaf_touched(leaf);
	return 0;
}

/* What makes this file slow to read, if something does: the tensor with the most short rows. */
static void remark(struct fs_measure *m, const struct rs_wanted *worst, const struct tally *t)
{
	const uint64_t few = 16, long_row = 65536;
	const struct rs_part *part;
	const char *what = "column slices of";

	if (worst == NULL || t->reads < few || t->served / t->reads >= long_row)
		return;
	part = &worst->parts[0];
	if (worst->n_parts == 1 && part->kind == RS_PART_COPY && part->source != NULL &&
		rs_shape_eq(&part->source->shape, &worst->shape))
		what = "rows joined from columns of";
	snprintf(m->remark, sizeof(m->remark), "%s '%s'", what, RS_SHOW(worst->name));
}

static int by_number(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int list_units(struct fs_measure *m, const struct rs_image *img, const uint32_t *file_unit,
	struct rs_err *err)
{
	uint32_t n = 0;

	m->n_files = img->n_files;
	if (img->n_files == 0)
		return 0;
	m->units = rs_alloc((uint64_t)img->n_files * sizeof(*m->units), err);
	if (m->units == NULL)
		return -1;
	for (uint32_t i = 0; i < img->n_files; i++)
		m->units[i] = file_unit[img->files[i]];
	qsort(m->units, img->n_files, sizeof(*m->units), by_number);
	for (uint32_t i = 0; i < img->n_files; i++)
		if (i == 0 || m->units[i] != m->units[n - 1])
			m->units[n++] = m->units[i];
	m->n_units = n;
	return 0;
}

static int measure_image(struct party *p, struct fs_measure *m, const struct rs_image *img)
{
	const struct rs_wanted *worst = NULL;
	struct tally most = {0};

	m->bytes = img->size;
	m->memory = rs_arena_held(img->arena);
	m->tensors = m->ranked ? img->list.n : 0;
	for (uint64_t i = 0; i < img->list.n; i++) {
		struct tally t = {0};

		if (img->nests[i] == NULL)
			continue;
		fs__nest_leaves(img->nests[i], count_leaf, &t);
		m->reads += t.reads;
		m->touched += t.touched;
		m->served += t.served;
		if (t.reads > most.reads) {
			most = t;
			worst = &img->list.items[i];
		}
	}
	/* A text is made of all headers, and no byte of it is read from a file. */
	if (m->kind != RS_OUTPUT_TEXT && list_units(m, img, p->file_unit, &m->err) < 0)
		return -1;
	if (m->ranked && img->list.raw && m->n_units > 0) {
		const struct rs_table *table =
			rs_catalog_table(rs_view_source(p->v)->cat, m->units[0], &m->err);

		if (table == NULL)
			return -1;
		m->tensors = table->n_entries;
		snprintf(m->remark, sizeof(m->remark), "the source file as it is");
	} else if (m->ranked) {
		remark(m, worst, &most);
	} else {
		snprintf(m->remark, sizeof(m->remark), "%s",
			img->list.raw ? "the source file as it is" : "what is in which file");
	}
	return 0;
}

static void measure(void *arg, uint64_t i)
{
	struct party *p = arg;
	struct fs_measure *m = &p->all[i];
	uint64_t inode = rs_view_file(p->v, i);
	const struct rs_output *output = rs_view_output(p->v, inode);
	struct rs_image *img;

	m->kind = output->kind;
	m->ranked = m->kind == RS_OUTPUT_LIST;
	m->rank = output->rank;
	fs__view_name(p->v, inode, m->path);
	if (rs_view_build(p->v, inode, &m->notes, &m->err) < 0)
		return;
	img = rs_view_hold(p->v, inode, &m->err);
	if (img == NULL)
		return;
	measure_image(p, m, img);
	rs_view_release(p->v, inode, img);
}

int fs__measure_all(struct rs_view *v, struct fs_measure **out, uint64_t *n, struct rs_err *err)
{
	struct rs_arena *arena = rs_arena_new(UINT64_C(1) << 30, err);
	struct party p = {.v = v};
	uint64_t *unit_rank;
	uint32_t *file_unit;

	*out = NULL;
	*n = rs_view_n_files(v);
	if (arena == NULL)
		return -1;
	p.all = rs_alloc(rs_max(*n, 1) * sizeof(*p.all), err);
	if (p.all != NULL && fs__catalog_owners(rs_view_source(v)->cat, arena, &file_unit,
				     &unit_rank, err) == 0) {
		p.file_unit = file_unit;
		fs__parallel(*n, measure, &p);
		*out = p.all;
	} else {
		rs_free(p.all);
	}
	rs_arena_free(arena);
	return *out != NULL ? 0 : -1;
}

void fs__measure_free(struct fs_measure *m, uint64_t n)
{
	for (uint64_t i = 0; m != NULL && i < n; i++) {
		rs_free(m[i].units);
		rs_notes_done(&m[i].notes);
	}
	rs_free(m);
}
