/*
 * strategy_pb.c - the protobuf form of a strategy file: bytes to struct rs_strategy.
 *
 * protobuf-c parses (into an arena with a limit, by the descriptors made from strategy.proto);
 * this file gives the messages their meaning. Refuses what breaks the wire format, with the
 * offset, a device matrix that is not one list, and everything that strategy_build.c checks.
 * Unknown fields are skipped. Format: docs/formats/mindspore-strategy.md.
 */
#include <inttypes.h>

#include "core/layout/strategy_internal.h"
#include "reshardfs/codec.h"
#include "strategy.pb-c.h"

/* --------------------------------------------------------- memory for protobuf-c */

struct pb_memory {
	struct rs_arena *arena;
	struct rs_err err; /* why an allocation failed: protobuf-c only says NULL */
};

static void *pb_alloc(void *self, size_t size)
{
	struct pb_memory *m = self;

	return rs_arena_alloc(m->arena, size, &m->err);
}

static void pb_free(void *self, void *ptr)
{
	(void)self; /* the arena goes as a whole */
	(void)ptr;
}

/* --------------------------------------------------------- where a file is broken */

static const ProtobufCFieldDescriptor *field_of(
	const ProtobufCMessageDescriptor *type, uint32_t number)
{
	return protobuf_c_message_descriptor_get_field(type, number);
}

static bool wire_fits(const ProtobufCFieldDescriptor *field, uint32_t wire)
{
	bool block = field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_BYTES;

	return wire == 2 ? block || field->label == PROTOBUF_C_LABEL_REPEATED : wire == 0 && !block;
}

/* protobuf-c does not tell where it stopped: walk the same bytes once more, slowly, and say it. */
static int find_damage(
	struct rs_wire *w, const ProtobufCMessageDescriptor *type, struct rs_err *err)
{
	struct rs_field f;
	int more;

	while ((more = rs_wire_next(w, &f, err)) > 0) {
		const ProtobufCFieldDescriptor *field = field_of(type, f.number);

		if (!field)
			continue;
		if (!wire_fits(field, f.wire))
			return rs_fail(err, RS_CORRUPT,
				"%s@%" PRIu64 ": field '%s' of %s: expected another wire type, "
				"found %u",
				w->file->name, f.off, field->name, type->short_name, f.wire);
		if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
			struct rs_wire inner = rs_wire_enter(w, &f);

			if (find_damage(&inner, field->descriptor, err) < 0)
				return -1;
		}
	}
	return more;
}

static int explain(const void *bytes, uint64_t len, const char *name, struct rs_err *err)
{
	struct rs_wire_window window = {0};
	struct rs_file file;
	struct rs_wire w;

	rs_file_memory(bytes, len, name, &file);
	rs_wire_init(&w, &file, 0, len, &window);
	if (find_damage(&w, &straspb__parallel_strategy_map__descriptor, err) == 0)
		rs_fail(err, RS_CORRUPT, "%s: expected a MindSpore strategy file", name);
	if (err && !err->hint[0])
		rs_hint(err,
			"damaged, or not a strategy file; strategy_ckpt_save_file writes them");
	return -1;
}

/* -------------------------------------------------------------------- meaning */

static struct rs_str text_of(ProtobufCBinaryData bytes)
{
	return (struct rs_str){bytes.data ? (const char *)bytes.data : "", bytes.len};
}

static int read_operator(struct rs__build *b, const Straspb__ParallelStrategyItem *item,
	struct rs__cuts *cuts, struct rs_err *err)
{
	const Straspb__ParallelStrategys *all = item->parallel_strategys;
	struct rs_str name = text_of(item->node_name);
	size_t i, k;

	if (!all)
		return rs_fail(err, RS_CORRUPT,
			"%s: operator '%s': expected a strategy, found none", b->s->path,
			RS_SHOW(name));
	rs__cuts_reset(cuts);
	for (i = 0; i < all->n_parallel_strategy; i++) {
		if (rs__cuts_input(cuts, err) < 0)
			return rs_err_prefix(err, "%s: operator '%s'", b->s->path, RS_SHOW(name));
		for (k = 0; k < all->parallel_strategy[i]->n_dim; k++)
			if (rs__cuts_dim(cuts, all->parallel_strategy[i]->dim[k], err) < 0)
				return -1;
	}
	return rs__build_operator(b, name, all->stage, cuts, err);
}

/*
 * One TensorMap message: a device dimension per axis. Several: one list per axis, where an empty
 * message means nothing (the writer appends one to a single list, so that there are several).
 */
static int read_map(struct rs_layout *l, const Straspb__ParallelLayouts *in, struct rs_err *err)
{
	bool nested = in->n_tensor_map > 1;
	size_t i, k;

	l->nested = nested;
	for (i = 0; i < in->n_tensor_map; i++) {
		const Straspb__TensorMap *list = in->tensor_map[i];

		for (k = 0; k < list->n_dim; k++) {
			if ((k == 0 || !nested) && rs__layout_open_axis(l, err) < 0)
				return -1;
			if (rs__layout_add_map(l, list->dim[k], err) < 0)
				return -1;
		}
	}
	return 0;
}

static int read_layout(struct rs_layout *l, const Straspb__ParallelLayouts *in, struct rs_err *err)
{
	size_t i;

	if (in->n_dev_matrix > 1 || in->n_param_split_shape > 1 || in->n_indices_offset > 1)
		return rs_fail(err, RS_CORRUPT,
			"expected one dev_matrix, param_split_shape and indices_offset, found %zu, "
			"%zu and %zu",
			in->n_dev_matrix, in->n_param_split_shape, in->n_indices_offset);
	if (in->n_dev_matrix)
		for (i = 0; i < in->dev_matrix[0]->n_dim; i++)
			if (rs__layout_add_dev(l, in->dev_matrix[0]->dim[i], err) < 0)
				return -1;
	if (read_map(l, in, err) < 0)
		return -1;
	if (in->field < 0)
		return rs_fail(err, RS_CORRUPT, "field: expected 0 or more, found %d", in->field);
	l->field = (uint32_t)in->field;
	l->opt_step = in->opt_weight_shard_step;
	l->opt_size = in->opt_weight_shard_size;
	/* A file holds at most RS_STRATEGY_MAX values, so counts fit 32 bits. */
	if (in->n_param_split_shape) {
		l->n_split = (uint32_t)in->param_split_shape[0]->n_dim;
		l->split = in->param_split_shape[0]->dim;
	}
	if (in->n_indices_offset) {
		l->n_offsets = (uint32_t)in->indices_offset[0]->n_dim;
		l->offsets = in->indices_offset[0]->dim;
	}
	return rs__layout_close(l, err);
}

static int read_param(
	struct rs__build *b, const Straspb__ParallelLayoutItem *item, struct rs_err *err)
{
	struct rs_str name = text_of(item->param_name);
	struct rs_layout l = {0};

	if (!item->parallel_layouts)
		return rs_fail(err, RS_CORRUPT, "%s: parameter '%s': expected a layout, found none",
			b->s->path, RS_SHOW(name));
	if (read_layout(&l, item->parallel_layouts, err) < 0)
		return rs_err_prefix(err, "%s: parameter '%s'", b->s->path, RS_SHOW(name));
	return rs__build_param(b, name, 0, &l, err);
}

static int read_all(
	struct rs__build *b, const Straspb__ParallelStrategyMap *map, struct rs_err *err)
{
	struct rs__cuts cuts = {0};
	int ret = -1;
	size_t i;

	b->s->current_stage = map->current_stage;
	for (i = 0; i < map->n_parallel_strategy_item; i++)
		if (read_operator(b, map->parallel_strategy_item[i], &cuts, err) < 0)
			goto out;
	for (i = 0; i < map->n_parallel_layout_item; i++)
		if (read_param(b, map->parallel_layout_item[i], err) < 0)
			goto out;
	ret = 0;
out:
	rs__cuts_done(&cuts);
	return ret;
}

int rs__strategy_from_pb(const void *bytes, uint64_t len, const char *name,
	struct rs_strategy **out, struct rs_err *err)
{
	struct pb_memory memory = {.arena = rs_arena_new(RS_STRATEGY_MEMORY, err)};
	ProtobufCAllocator allocator = {pb_alloc, pb_free, &memory};
	Straspb__ParallelStrategyMap *map;
	struct rs__build b;
	int ret = -1;

	if (!memory.arena)
		return -1;
	map = straspb__parallel_strategy_map__unpack(&allocator, len, bytes);
	if (!map && memory.err.code != RS_OK) {
		rs_fail(err, memory.err.code, "%s: %s", name, memory.err.msg);
		goto out;
	}
	if (!map) {
		explain(bytes, len, name, err);
		goto out;
	}
	if (rs__build_begin(
		    &b, name, map->n_parallel_strategy_item, map->n_parallel_layout_item, err) < 0)
		goto out;
	if (read_all(&b, map, err) < 0) {
		rs__build_drop(&b);
		goto out;
	}
	rs__build_name_stages(&b);
	ret = rs__build_seal(&b, out, err);
out:
	rs_arena_free(memory.arena);
	return ret;
}
