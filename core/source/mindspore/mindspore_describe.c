/*
 * mindspore_describe.c - from one header per stage and the strategy to the catalog's tensors.
 *
 *   strategy: 'w' is cut by dev [2, 4], map [0, -1]     header of rank 3: 'w' is F16 [1024, 4096]
 *   grid: 4 cells along axis 0, rank 3 holds cell 3      so 'w' is F16 [4096, 4096]
 *
 * Strategy files tell no shapes, so these come from a sample: one rank's header per stage. A
 * parameter that the sample lacks may be stored by another rank that holds the same slice (a tree
 * with redundancy removed). Refuses slices that do not fit their layout, and a whole shape that is
 * not the one that the strategy states. Format: docs/formats/mindspore.md. Next:
 * core/catalog/pieces.c.
 */
#include "core/source/mindspore/mindspore.h"

#include <inttypes.h>
#include <stdlib.h>

/*
 * How many replicas of the sample are asked for parameters that it lacks, as long as nothing says
 * that redundancy was removed. Strategies of training name what no checkpoint stores (gradients),
 * and asking hundreds of replicas for these would read hundreds of headers in vain. Where
 * redundancy was removed, parameters are dealt round robin, so one of the first replicas shows it.
 */
#define REPLICAS_ASKED 4

struct sample {
	uint32_t local, unit;
	const struct rs_table *table;
	bool sparse; /* parameters may be in replicas alone: ask all of them */
};
/* Grids of one layout, by the number of axes of the tensors that it cuts. */
struct grids {
	const struct rs_layout *layout;
	struct rs_grid *of[RS_MAX_AXES + 1];
};
struct describe {
	struct rs_source *src;
	struct sample *samples; /* by stage */
	struct grids *grids;    /* by address of the layout */
	uint64_t n_grids;
	struct rs_err *err;
};
/* A stored slice: the entry, who has it. */
struct found {
	const struct rs_entry *entry;
	uint32_t local, unit;
};

static const char *file_of(const struct describe *d, uint32_t unit)
{
	const struct rs_unit *u = rs_catalog_unit(d->src->cat, unit);
	const char *path = rs_catalog_file_info(d->src->cat, u->first_file)->path;
	return path[0] ? path : d->src->opts.path;
}

/* A text is no tensor, whatever the strategy says of its name. */
static const struct rs_entry *find_tensor(const struct rs_table *table, struct rs_str name)
{
	const struct rs_entry *e = rs_table_find(table, name);
	return e && e->dtype != RS_DT_STR ? e : NULL;
}

static uint32_t unit_of(const struct describe *d, uint32_t stage, uint32_t local)
{
	uint64_t devices = rs_catalog_stage_devices(d->src->cat);
	return rs_catalog_rank_unit(d->src->cat, stage * devices + local);
}

/* ---------------------------------------------------------------------- samples */

static int load_sample(struct describe *d, uint32_t stage, uint32_t local)
{
	uint32_t devices = rs_catalog_stage_devices(d->src->cat);
	struct sample *s = &d->samples[stage];

	s->local = local < devices ? local : 0;
	s->unit = unit_of(d, stage, s->local);
	for (uint32_t l = 0; s->unit == RS_NO_UNIT && l < devices; l++) {
		s->local = l;
		s->unit = unit_of(d, stage, l);
	}
	if (s->unit == RS_NO_UNIT)
		return rs_fail(d->err, RS_MISSING, "%s: no rank of stage %" PRIu32 " is there",
			d->src->opts.path, stage);
	s->table = rs_catalog_table(d->src->cat, s->unit, d->err);
	if (!s->table)
		return -1;
	s->sparse = s->table->deduplicated;
	struct rs_notes *notes = rs_catalog_notes(d->src->cat);
	if (s->table->leading_space)
		rs_note(notes, "%s: the header begins with white space, which the format forbids",
			file_of(d, s->unit));
	if (s->table->deduplicated)
		rs_note(notes,
			"%s: saved with redundancy removed: slices are taken from all ranks of "
			"their replica group",
			file_of(d, s->unit));
	return 0;
}

/* -------------------------------------------------------------------------- grids */

static int by_layout(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct grids *)a)->layout;
	uintptr_t y = (uintptr_t)((const struct grids *)b)->layout;
	return (x > y) - (x < y);
}

static int prepare_grids(struct describe *d)
{
	const struct rs_strategy *s = d->src->strategy;

	d->grids = rs_alloc(s->n_layouts * sizeof(*d->grids), d->err);
	if (!d->grids)
		return -1;
	for (; d->n_grids < s->n_layouts; d->n_grids++)
		d->grids[d->n_grids].layout = s->layouts[d->n_grids];
	qsort(d->grids, d->n_grids, sizeof(*d->grids), by_layout);
	return 0;
}

static const struct rs_grid *grid_of(
	struct describe *d, const struct rs_layout *layout, uint32_t n_axes)
{
	const struct grids key = {.layout = layout};
	struct grids *g = bsearch(&key, d->grids, d->n_grids, sizeof(*d->grids), by_layout);

	if (!g->of[n_axes] && rs_layout_grid(layout, n_axes, rs_catalog_arena(d->src->cat),
				      &g->of[n_axes], d->err) < 0) {
		g->of[n_axes] = NULL;
		return NULL;
	}
	return g->of[n_axes];
}

/* -------------------------------------------------------------------- who stores it */

/*
 * Ask the replicas of the sample, at most @most of those present, for a parameter that it lacks.
 * Returns 1 and @out, 0 when none has it, -1 when one could not be read and none of the others has
 * it: then nobody knows.
 */
static int ask_replicas(
	struct describe *d, const struct rs_placed *p, uint64_t most, struct found *out)
{
	const struct sample *s = &d->samples[p->stage];
	const struct rs_grid *g = grid_of(d, p->layout, p->layout->n_axes);
	struct rs_err why = {0}, first = {0};

	if (!g)
		return -1;
	uint32_t cell = g->cell_of[s->local];
	for (uint32_t i = g->first[cell]; i < g->first[cell + 1] && most > 0; i++) {
		uint32_t local = g->holders[i], unit = unit_of(d, p->stage, local);
		if (local == s->local || unit == RS_NO_UNIT)
			continue;
		most--;
		const struct rs_table *table = rs_catalog_table(d->src->cat, unit, &why);
		if (!table && first.code == RS_OK)
			first = why;
		const struct rs_entry *e = table ? find_tensor(table, p->name) : NULL;
		if (e) {
			*out = (struct found){e, local, unit};
			return 1;
		}
	}
	if (first.code == RS_OK)
		return 0;
	if (d->err)
		*d->err = first;
	return -1;
}

/* Are there parameters that the sample lacks and a replica has? Then all replicas count. */
static void look_for_removed(struct describe *d)
{
	const struct rs_strategy *s = d->src->strategy;
	struct rs_err *err = d->err;
	struct rs_err ignored = {0};
	struct found found;

	d->err = &ignored; /* what cannot be read comes up again when all are asked */
	for (uint64_t i = 0; i < s->n_params; i++) {
		const struct rs_placed *p = &s->params[i];
		struct sample *sample = &d->samples[p->stage];
		if (!sample->sparse && !find_tensor(sample->table, p->name))
			sample->sparse = ask_replicas(d, p, REPLICAS_ASKED, &found) != 0;
	}
	d->err = err;
}

/* 1: stored, in @out; 0: this stage does not store it; -1. */
static int find_stored(struct describe *d, const struct rs_placed *p, struct found *out)
{
	const struct sample *s = &d->samples[p->stage];

	*out = (struct found){find_tensor(s->table, p->name), s->local, s->unit};
	if (out->entry)
		return 1;
	return s->sparse ? ask_replicas(d, p, UINT64_MAX, out) : 0;
}

/* ------------------------------------------------------------------------ tensors */

/* The JSON form states whole shapes; its expanded form, with more axes, cannot be compared. */
static int check_stated(const struct describe *d, const struct rs_placed *p, const struct found *f,
	const struct rs_shape *whole)
{
	const struct rs_layout *l = p->layout;
	struct rs_shape stated = {.n_axes = l->n_shape};

	if (l->n_shape != whole->n_axes || l->n_shape == 0)
		return 0;
	memcpy(stated.dims, l->shape, l->n_shape * sizeof(stated.dims[0]));
	if (rs_shape_eq(&stated, whole))
		return 0;
	return rs_fail(d->err, RS_CORRUPT,
		"%s: tensor '%s': stored %s, whole %s by the layout, expected %s as the strategy "
		"states",
		file_of(d, f->unit), RS_SHOW(p->name), RS_SHAPE_SHOW(&f->entry->shape),
		RS_SHAPE_SHOW(whole), RS_SHAPE_SHOW(&stated));
}

static int refuse_slice(const struct describe *d, const struct rs_placed *p, const struct found *f)
{
	char layout[RS_SHOW_MAX];

	(void)rs_err_prefix(d->err, "%s: tensor '%s': stored %s, cut by %s", file_of(d, f->unit),
		RS_SHOW(p->name), RS_SHAPE_SHOW(&f->entry->shape),
		rs_layout_show(p->layout, layout, sizeof(layout)));
	return rs_hint(d->err, "is %s the strategy of this checkpoint?", d->src->strategy->path);
}

static int add_cut(struct describe *d, const struct rs_placed *p, const struct found *f)
{
	struct rs_tensor t = {
		.name = p->name,
		.dtype = f->entry->dtype,
		.first_rank = p->stage * rs_catalog_stage_devices(d->src->cat),
		.witness = f->unit,
	};

	t.grid = grid_of(d, p->layout, f->entry->shape.n_axes);
	if (!t.grid || rs_grid_whole(t.grid, &f->entry->shape, t.grid->cell_of[f->local], &t.shape,
			       d->err) < 0)
		return refuse_slice(d, p, f);
	if (check_stated(d, p, f, &t.shape) < 0)
		return -1;
	return rs_catalog_add_tensor(d->src->cat, &t, d->err);
}

/*
 * Every parameter once: of the stages that list it, the lowest that stores it owns it. A shared
 * embedding is listed by two stages and stored by the first, or by both with equal content.
 */
static int add_cut_tensors(struct describe *d)
{
	const struct rs_strategy *s = d->src->strategy;
	bool owned = false;

	if (prepare_grids(d) < 0)
		return -1;
	look_for_removed(d);
	for (uint64_t i = 0; i < s->n_params; i++) {
		const struct rs_placed *p = &s->params[s->by_name[i]];
		struct found f;

		if (i == 0 || !rs_str_eq(p->name, s->params[s->by_name[i - 1]].name))
			owned = false;
		int stored = owned ? 0 : find_stored(d, p, &f);
		if (stored < 0 || (stored && add_cut(d, p, &f) < 0))
			return -1;
		owned |= stored;
	}
	return 0;
}

/* One file without a strategy: everything in it is whole. */
static int add_whole_tensors(struct describe *d)
{
	const struct sample *s = &d->samples[0];
	struct rs_grid *grids[RS_MAX_AXES + 1] = {NULL};

	for (uint64_t i = 0; i < s->table->n_entries; i++) {
		const struct rs_entry *e = &s->table->entries[i];
		uint32_t n_axes = e->shape.n_axes;

		if (e->dtype == RS_DT_STR)
			continue;
		if (!grids[n_axes])
			grids[n_axes] =
				rs_grid_single(n_axes, 1, rs_catalog_arena(d->src->cat), d->err);
		if (!grids[n_axes] || rs_catalog_add_tensor(d->src->cat,
					      &(struct rs_tensor){.name = e->name,
						      .dtype = e->dtype,
						      .shape = e->shape,
						      .grid = grids[n_axes],
						      .witness = s->unit},
					      d->err) < 0)
			return -1;
	}
	return 0;
}

int rs__ms_describe(struct rs_source *src, uint32_t local, struct rs_err *err)
{
	struct describe d = {.src = src, .err = err};
	uint32_t n_stages = rs_catalog_n_stages(src->cat);
	int status = -1;

	d.samples = rs_alloc(n_stages * sizeof(*d.samples), err);
	if (!d.samples)
		return -1;
	for (uint32_t stage = 0; stage < n_stages; stage++)
		if (load_sample(&d, stage, local) < 0)
			goto out;
	/* Several ranks and no strategy (target=same): nothing says what their tensors are parts
	 * of. */
	if (src->strategy)
		status = add_cut_tensors(&d);
	else if (src->n_ranks == 1)
		status = add_whole_tensors(&d);
	else
		status = 0;
	if (status == 0)
		status = rs_catalog_seal(src->cat, err);
out:
	rs_free(d.grids);
	rs_free(d.samples);
	return status;
}
