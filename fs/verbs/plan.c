/*
 * plan.c - `plan SRC --target T`: what a mount would show and what reading it would cost, from
 * headers alone. Every image is built and proved, as a mount with verify=headers would.
 *
 * A refused file does not hide the others: the table marks it, its message follows on stderr, and
 * the first refused file decides the exit code. Read next: measure.c (the numbers).
 */
#include "verbs.h"

#include <inttypes.h>
#include <stdlib.h>

#define ROWS_MAX 32  /* more are folded in the middle */
#define ROWS_HEAD 20 /* shown above the fold, */
#define ROWS_TAIL 8  /* and below it */
#define ERRORS_MAX 8 /* refusals told one by one */
#define SCRATCH_BYTES (UINT64_C(1) << 30)

struct plan {
	const struct fs_options *o;
	struct rs_view *v;
	struct rs_source *src;
	struct rs_target *target;
	struct fs_measure *files; /* heap */
	uint64_t n;
	uint64_t bytes, served, reads, touched, memory, n_refused;
	uint8_t *unit_used; /* heap, per unit */
	uint32_t n_units_used;
};

static int total(struct plan *p, struct rs_err *err)
{
	uint32_t n_units = rs_catalog_n_units(p->src->cat);

	p->unit_used = rs_alloc(rs_max(n_units, 1), err);
	if (p->unit_used == NULL)
		return -1;
	p->memory = rs_arena_held(rs_catalog_arena(p->src->cat));
	for (uint64_t i = 0; i < p->n; i++) {
		const struct fs_measure *m = &p->files[i];

		if (m->err.code != RS_OK) {
			p->n_refused++;
			continue;
		}
		p->bytes += m->bytes;
		p->served += m->served;
		p->reads += m->reads;
		p->touched += m->touched;
		p->memory += m->memory;
		for (uint32_t u = 0; u < m->n_units && m->kind == RS_OUTPUT_LIST; u++) {
			p->n_units_used += !p->unit_used[m->units[u]];
			p->unit_used[m->units[u]] = 1;
		}
	}
	return 0;
}

/* a / b for people; 0 when there is nothing to divide. */
static double ratio(uint64_t a, uint64_t b)
{
	return b > 0 ? (double)a / (double)b : 0.0;
}

/* ------------------------------------------------------------------------ text */

static void print_heading(const struct plan *p)
{
	const struct rs_strategy *s = p->target->strategy;
	bool exact = p->o->bytes;

	const char *what = p->src->without_ranks ? "file" : "rank";
	uint64_t n = p->src->without_ranks ? fs__source_n_files(p->src) : p->src->n_ranks;

	printf("source   %s: %s %s, %" PRIu64 " %s%s", RS_SHOW(rs_str(p->src->opts.path)),
		p->src->ops->name, p->src->container, n, what, n == 1 ? "" : "s");
	if (p->src->n_ranks > 1)
		printf(" (%" PRIu32 " stage%s x %" PRIu32 " devices)",
			rs_catalog_n_stages(p->src->cat),
			rs_catalog_n_stages(p->src->cat) == 1 ? "" : "s",
			rs_catalog_stage_devices(p->src->cat));
	printf(", %" PRIu64 " tensors%s, %s unique (%s on disk%s)\n",
		rs_catalog_n_tensors(p->src->cat), p->src->strategy ? " placed" : "",
		FS_SIZE(fs__source_bytes_unique(p->src), exact),
		FS_SIZE(fs__source_bytes_on_disk(p->src), exact),
		p->src->n_ranks > 1 ? ", replicas equal: not checked" : "");
	printf("target   %s: %" PRIu64 " rank%s", RS_SHOW(rs_str(p->target->opts.target)),
		p->target->n_ranks, p->target->n_ranks == 1 ? "" : "s");
	if (s != NULL)
		printf(" (%" PRIu32 " stage%s x %" PRIu32 " devices)", s->n_stages,
			s->n_stages == 1 ? "" : "s", s->stage_devices);
	if (rs_view_n_ranks(p->v) != p->target->n_ranks)
		printf(", %" PRIu64 " of them shown", rs_view_n_ranks(p->v));
	printf(", %s\n", p->target->container);
}

static void print_row(const struct fs_measure *m, int file_width, bool exact)
{
	char rank[24] = "-"; /* an index or a companion is of no rank */

	if (m->ranked)
		snprintf(rank, sizeof(rank), "%" PRIu64, m->rank);
	if (m->err.code != RS_OK) {
		printf("%-6s %-*s  refused\n", rank, file_width, m->path);
		return;
	}
	printf("%-6s %-*s  %12s  %7" PRIu64 "  %10" PRIu32 "  %12.1f%s%s\n", rank, file_width,
		m->path, FS_SIZE(m->bytes, exact), m->tensors, m->n_files,
		1e6 * ratio(m->reads, m->bytes), m->remark[0] != '\0' ? "   " : "", m->remark);
}

static void print_table(const struct plan *p)
{
	int width = 4;

	for (uint64_t i = 0; i < p->n; i++) {
		int len = (int)strlen(p->files[i].path);

		width = len > width ? len : width;
	}
	printf("%-6s %-*s  %12s  %7s  %10s  %12s\n", "rank", width, "file", "size", "tensors",
		"from files", "reads per MB");
	for (uint64_t i = 0; i < p->n; i++) {
		if (p->n > ROWS_MAX && i == ROWS_HEAD) {
			printf("...    %" PRIu64 " more, all of them with --json\n",
				p->n - ROWS_HEAD - ROWS_TAIL);
			i = p->n - ROWS_TAIL;
		}
		print_row(&p->files[i], width, p->o->bytes);
	}
}

static void print_totals(const struct plan *p)
{
	bool exact = p->o->bytes, by_rank = p->src->n_ranks > 1;

	printf("total    %s in %" PRIu64 " file%s; a mount needs up to %s of memory; "
	       "a copy needs %s of disk\n",
		FS_SIZE(p->bytes, exact), p->n - p->n_refused, p->n - p->n_refused == 1 ? "" : "s",
		FS_SIZE(p->memory, exact), FS_SIZE(p->bytes, exact));
	printf("reads    from %" PRIu32 " of %" PRIu32
	       " source %s; %.2f bytes read in pages for each "
	       "byte served\n",
		p->n_units_used, fs__source_n_units(p->src), by_rank ? "ranks" : "files",
		ratio(p->touched, p->served));
}

/* Loaders of whole directories; false when files are loaded one by one. */
static bool print_dir_loader(const struct plan *p)
{
	switch (p->target->opts.layout) {
	case RS_ARRANGE_HF:
		if (p->src->n_companions == 0)
			return false; /* without a config.json nobody knows the model */
		printf("load     transformers.AutoModel.from_pretrained(\"MOUNTPOINT\")\n");
		return true;
	case RS_ARRANGE_UNIFIED:
		printf("load     mindspore.load_distributed_checkpoint(net, "
		       "format=\"safetensors\", "
		       "unified_safetensors_dir=\"MOUNTPOINT\")\n");
		return true;
	case RS_ARRANGE_VLLM:
		printf("load     vllm.LLM(\"MOUNTPOINT\", load_format=\"sharded_state\", "
		       "tensor_parallel_size=%" PRIu64 ")\n",
			p->target->n_ranks);
		return true;
	case RS_ARRANGE_RANK:
		break;
	}
	return false;
}

/* What to paste into a program that loads a file of the mount. */
static void print_loader(const struct plan *p)
{
	const char *path = NULL;

	for (uint64_t i = 0; i < p->n && path == NULL; i++)
		if (p->files[i].ranked)
			path = p->files[i].path;
	if (path == NULL || print_dir_loader(p))
		return;
	if (strcmp(p->target->container, "pdparams") == 0) {
		printf("load     paddle.load(\"MOUNTPOINT/%s\")\n", path);
		return;
	}
	if (strcmp(p->target->container, "ckpt") == 0) {
		printf("load     mindspore.load_checkpoint(\"MOUNTPOINT/%s\")\n", path);
		return;
	}
	if (p->target->mindspore)
		printf("load     mindspore.load_checkpoint(\"MOUNTPOINT/%s\", "
		       "format=\"safetensors\")\n",
			path);
	printf("load     safetensors.safe_open(\"MOUNTPOINT/%s\", \"np\")\n", path);
}

/* The ranks of a target say much the same; each remark is printed once. */
static void print_notes(const struct plan *p)
{
	struct rs_notes once = {0};

	fs_notes(stdout, rs_catalog_notes(p->src->cat));
	fs_notes(stdout, &p->target->notes);
	for (uint64_t i = 0; i < p->n; i++)
		for (uint64_t k = 0; k < p->files[i].notes.n; k++)
			rs_note(&once, "%s", p->files[i].notes.items[k]);
	fs_notes(stdout, &once);
	rs_notes_done(&once);
}

static void print_text(const struct plan *p)
{
	print_heading(p);
	print_table(p);
	print_totals(p);
	if (p->n_refused < p->n)
		print_loader(p);
	if (!p->o->quiet)
		print_notes(p);
}

/* ------------------------------------------------------------------------ JSON */

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Source ranks of @units; none for a source without ranks. @ranks: scratch, one a unit. */
static void json_ranks(struct rs_jsonw *w, const uint32_t *units, uint32_t n_units,
	const uint64_t *unit_rank, uint64_t *ranks)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_units; i++)
		if (unit_rank[units[i]] != UINT64_MAX)
			ranks[n++] = unit_rank[units[i]];
	if (n > 0)
		qsort(ranks, n, sizeof(*ranks), by_number);
	rs_jsonw_key(w, RS_STR("source_ranks"));
	rs_jsonw_open(w, '[');
	for (uint32_t i = 0; i < n; i++)
		rs_jsonw_uint(w, ranks[i]);
	rs_jsonw_close(w, ']');
}

static void json_rank(struct rs_jsonw *w, const struct fs_measure *m, const uint64_t *unit_rank,
	uint64_t *scratch)
{
	rs_jsonw_open(w, '{');
	rs_jsonw_key(w, RS_STR("rank"));
	if (m->ranked)
		rs_jsonw_uint(w, m->rank);
	else
		rs_jsonw_null(w);
	fs__json_str(w, "file", m->path);
	fs__json_err(w, "error", &m->err);
	if (m->err.code == RS_OK) {
		fs__json_uint(w, "bytes", m->bytes);
		fs__json_uint(w, "tensors", m->tensors);
		fs__json_uint(w, "source_files", m->n_files);
		json_ranks(w, m->units, m->n_units, unit_rank, scratch);
		fs__json_uint(w, "bytes_served", m->served);
		fs__json_uint(w, "bytes_touched", m->touched);
		fs__json_uint(w, "reads", m->reads);
		fs__json_uint(w, "memory", m->memory);
		fs__json_str(w, "remark", m->remark[0] != '\0' ? m->remark : NULL);
	}
	rs_jsonw_close(w, '}');
}

static void json_totals(struct rs_jsonw *w, const struct plan *p)
{
	rs_jsonw_key(w, RS_STR("totals"));
	rs_jsonw_open(w, '{');
	fs__json_uint(w, "files", p->n - p->n_refused);
	fs__json_uint(w, "refused", p->n_refused);
	fs__json_uint(w, "bytes", p->bytes);
	fs__json_uint(w, "bytes_served", p->served);
	fs__json_uint(w, "bytes_touched", p->touched);
	fs__json_uint(w, "reads", p->reads);
	fs__json_uint(w, "memory", p->memory);
	fs__json_uint(w, "source_units", fs__source_n_units(p->src));
	fs__json_uint(w, "source_units_used", p->n_units_used);
	rs_jsonw_close(w, '}');
}

static int json_notes(
	struct rs_jsonw *w, const struct plan *p, struct rs_arena *arena, struct rs_err *err)
{
	const struct rs_notes **lists = RS_NEW_N(arena, const struct rs_notes *, p->n + 2, err);

	if (lists == NULL)
		return -1;
	lists[0] = rs_catalog_notes(p->src->cat);
	lists[1] = &p->target->notes;
	for (uint64_t i = 0; i < p->n; i++)
		lists[2 + i] = &p->files[i].notes;
	return fs__json_notes(w, lists, p->n + 2, err);
}

static int write_json(
	struct rs_jsonw *w, const struct plan *p, struct rs_arena *arena, struct rs_err *err)
{
	uint64_t *unit_rank, *scratch;
	uint32_t *file_unit;

	scratch = RS_NEW_N(arena, uint64_t, rs_catalog_n_units(p->src->cat), err);
	if (scratch == NULL ||
		fs__catalog_owners(p->src->cat, arena, &file_unit, &unit_rank, err) < 0)
		return -1;
	fs__json_source(w, p->src);
	fs__json_target(w, p->target);
	rs_jsonw_key(w, RS_STR("ranks"));
	rs_jsonw_open(w, '[');
	for (uint64_t i = 0; i < p->n; i++)
		json_rank(w, &p->files[i], unit_rank, scratch);
	rs_jsonw_close(w, ']');
	json_totals(w, p);
	return json_notes(w, p, arena, err);
}

static int print_json(const struct plan *p, int code)
{
	struct rs_err err = {0};
	struct rs_arena *arena = rs_arena_new(SCRATCH_BYTES, &err);
	struct rs_jsonw w;

	fs__json_begin(&w, "plan");
	if (arena == NULL || write_json(&w, p, arena, &err) < 0)
		w.failed = true; /* not half an answer: the frame reports it */
	rs_arena_free(arena);
	return fs__json_end(&w, code);
}

/* ------------------------------------------------------------------------- verb */

/* What @e says after "target rank N: ". */
static const char *cause(const struct rs_err *e)
{
	const char *colon = strchr(e->msg, ':');

	if (colon && strncmp(e->msg, "target rank ", strlen("target rank ")) == 0)
		return colon;
	return e->msg;
}

/* Refused ranks often share one cause: each cause once, the first ones only; rows name all. */
static int report_refused(const struct plan *p)
{
	int code = FS_EXIT_OK;
	uint64_t told = 0, left = 0;

	for (uint64_t i = 0; i < p->n; i++) {
		const struct rs_err *e = &p->files[i].err;
		bool known = false;

		if (e->code == RS_OK)
			continue;
		for (uint64_t k = 0; k < i && !known; k++)
			known = p->files[k].err.code != RS_OK &&
				strcmp(cause(&p->files[k].err), cause(e)) == 0;
		if (code == FS_EXIT_OK)
			code = fs_exit_code(e->code);
		if (known)
			continue;
		if (told++ < ERRORS_MAX)
			fs_report(e);
		else
			left++;
	}
	if (left > 0)
		fprintf(stderr, "reshardfs: and %" PRIu64 " more; --json has them all\n", left);
	return code;
}

/* The target in the language of plans, and nothing else on standard output. */
static int emit(const struct plan *p)
{
	struct rs_err err = {0};
	char *text;
	uint64_t len;

	if (rs_target_emit_plan(p->target, &text, &len, &err) < 0)
		return fs__verb_fail(p->o, "plan", &err);
	fwrite(text, 1, (size_t)len, stdout);
	putchar('\n');
	rs_free(text);
	if (!p->o->quiet) {
		fs_notes(stderr, rs_catalog_notes(p->src->cat));
		fs_notes(stderr, &p->target->notes);
	}
	return FS_EXIT_OK;
}

int fs_verb_plan(const struct fs_options *o)
{
	struct rs_view_options opts = fs__verb_view(o);
	struct plan p = {.o = o};
	struct rs_err err = {0};
	int code;

	if (rs_view_open(&opts, &p.v, &err) < 0)
		return fs__verb_fail(o, "plan", &err);
	p.src = rs_view_source(p.v);
	p.target = rs_view_target(p.v);
	if (o->emit) {
		code = emit(&p);
	} else if (fs__measure_all(p.v, &p.files, &p.n, &err) < 0 || total(&p, &err) < 0) {
		code = fs__verb_fail(o, "plan", &err);
	} else {
		if (!o->json)
			print_text(&p);
		code = report_refused(&p);
		code = o->json ? print_json(&p, code) : code;
	}
	fs__measure_free(p.files, p.n);
	rs_free(p.unit_used);
	rs_view_close(p.v);
	return code;
}
