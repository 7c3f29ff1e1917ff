/*
 * same.c - target=same: each rank as its source file stores it, perhaps in another container.
 *
 * Nothing is cut or joined, so no strategy is needed. In the same container the file is served as
 * it is, byte for byte, checksum trailer included; several files of one rank (select=merge) and a
 * change of container go through the table of entries. A source without ranks is one rank: its one
 * file as it is, or all of its tensors in one file.
 */
#include "core/target/internal.h"

#include <inttypes.h>

static bool is_same(const char *target)
{
	return strcmp(target, "same") == 0;
}

static int open_same(struct rs_target *t, struct rs_err *err)
{
	(void)err;
	t->n_ranks = t->source->n_ranks;
	t->mindspore = t->source->mindspore;
	return 0;
}

/* The one unit of data of a source without ranks, or RS_NO_UNIT when there are several. */
static uint32_t only_unit(const struct rs_source *src)
{
	return rs_catalog_n_units(src->cat) - src->n_companions == 1 ? 0 : RS_NO_UNIT;
}

static uint32_t unit_of(const struct rs_target *t, uint64_t rank, struct rs_err *err)
{
	uint32_t unit = rs_catalog_rank_unit(t->source->cat, rank);
	if (unit == RS_NO_UNIT)
		rs__missing_rank(t, rank, rank, err);
	return unit;
}

static int check_same(struct rs_target *t, const uint64_t *ranks, uint64_t n, struct rs_err *err)
{
	for (uint64_t i = 0; i < n && !t->source->without_ranks; i++)
		if (unit_of(t, ranks[i], err) == RS_NO_UNIT)
			return -1;
	return rs__check_absent(t, err);
}

static int needs_same(struct rs_target *t, uint64_t rank, struct rs_err *err, uint8_t *source_ranks)
{
	if (!t->source->without_ranks && unit_of(t, rank, err) == RS_NO_UNIT)
		return -1;
	source_ranks[rank] = 1;
	return 0;
}

int rs__list_file(
	struct rs__list *list, const struct rs_catalog *cat, uint32_t unit, struct rs_err *err)
{
	const struct rs_source_file *file =
		rs_catalog_file_info(cat, rs_catalog_unit(cat, unit)->first_file);
	struct rs_entry *e = RS_NEW(list->arena, struct rs_entry, err);
	struct rs_span *span = RS_NEW(list->arena, struct rs_span, err);

	if (!e || !span)
		return -1;
	*span = (struct rs_span){.file = 0, .len = file->id.size};
	*e = (struct rs_entry){
		.name = rs_str(file->path),
		.dtype = RS_DT_U8,
		.shape = {.n_axes = 1, .dims = {span->len}},
		.bytes = span->len,
		.n_spans = 1,
		.spans = span,
	};
	return rs__list_entry(list, unit, e, e->name, err);
}

/* All of a source without ranks, in its order: what `full` holds. */
static int add_all(struct rs__list *list, const struct rs_catalog *cat, struct rs_err *err)
{
	const struct rs_tensor **tensors;

	if (rs__source_order(cat, list->arena, &tensors, err) < 0)
		return -1;
	for (uint64_t i = 0; i < rs_catalog_n_tensors(cat); i++)
		if (rs__list_tensor(list, tensors[i], err) < 0)
			return -1;
	return 0;
}

/* The file of one unit: as it is if the container stays, else its entries in file order. */
static int list_unit(const struct rs_target *t, uint32_t unit, struct rs__list *list,
	struct rs_list *out, struct rs_err *err)
{
	const struct rs_table *table = rs_catalog_table(t->source->cat, unit, err);

	if (!table)
		return -1;
	out->raw = table->n_files == 1 && strcmp(t->container, t->source->container) == 0 &&
		   !t->source->names && t->opts.cast == RS_CAST_KEEP;
	if (out->raw && rs__list_file(list, t->source->cat, unit, err) < 0)
		return -1;
	if (!out->raw && t->source->without_ranks)
		return add_all(list, t->source->cat, err); /* entries may be parts of tensors */
	for (uint64_t i = 0; !out->raw && i < table->n_entries; i++) {
		const struct rs_entry *e = &table->entries[i];
		struct rs_str name;
		int kept = rs_source_name(t->source, e->name, list->arena, &name, err);
		if (kept < 0 || (kept && rs__list_entry(list, unit, e, name, err) < 0))
			return -1;
	}
	out->meta = table->meta;
	out->n_meta = table->n_meta;
	return 0;
}

static int list_same(struct rs_target *t, uint64_t rank, struct rs_arena *arena,
	struct rs_list *out, struct rs_notes *notes, struct rs_err *err)
{
	bool ranks = !t->source->without_ranks;
	uint32_t unit = ranks ? unit_of(t, rank, err) : only_unit(t->source);
	struct rs__list list = {.arena = arena};
	(void)notes;

	if (ranks && unit == RS_NO_UNIT)
		return -1;
	if ((unit == RS_NO_UNIT ? add_all(&list, t->source->cat, err)
				: list_unit(t, unit, &list, out, err)) < 0)
		return -1;
	out->items = list.items;
	out->n = list.n;
	return 0;
}

const struct rs_target_ops rs__target_same = {
	.name = "same",
	.is = is_same,
	.open = open_same,
	.check = check_same,
	.needs = needs_same,
	.list = list_same,
};
