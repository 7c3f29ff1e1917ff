/*
 * pickle.c - a pickle becomes a tree of inert values: reading opcodes, and the stacks they work on.
 *
 * One pass over the file; payloads are stepped over unread, texts that stand often share their
 * bytes, so memory is O(opcodes). No recursion anywhere. Refuses opcodes that do not belong to
 * data, lengths that leave the file, frames that overlap or end inside an opcode, and every step of
 * the machine that Python would trip over. Format: docs/formats/pickle.md. Next: pickle_ops.c.
 */
#include "core/codec/pickling.h"

#include <inttypes.h>
#include <stdio.h>

/* ----------------------------------------------------------------------- refusals */

__attribute__((format(printf, 6, 0))) static void fill(struct rs__pickle *p, enum rs_code code,
	const char *word, const char *joint, const char *tail, const char *fmt, va_list ap)
{
	char text[300];

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	(void)rs_fail(p->err, code, "%s pickle: %s: offset %" PRIu64 ": %s%s%s%s", word,
		p->file->name, p->op_off, p->op, joint, text, tail);
}

int rs__pickle_damaged(struct rs__pickle *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(p, RS_CORRUPT, "damaged", ": ", "", fmt, ap);
	va_end(ap);
	return -1;
}

int rs__pickle_unsupported(struct rs__pickle *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(p, RS_UNSUPPORTED, "unsupported", ": ", "", fmt, ap);
	va_end(ap);
	return -1;
}

int rs__pickle_unsafe(struct rs__pickle *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(p, RS_UNSUPPORTED, "unsafe", " of ", " (never executed)", fmt, ap);
	va_end(ap);
	return rs_hint(p->err, "loading this file in Python would run it; do not, and ask where "
			       "the file comes from");
}

/* -------------------------------------------------------------------------- bytes */

/* The next @len bytes, at most a peek, side by side in memory. */
static const uint8_t *view(struct rs__pickle *p, uint64_t len)
{
	uint64_t in = p->pos - p->window_off;

	if (len > p->end - p->pos) {
		(void)rs__pickle_damaged(p,
			"expected %" PRIu64 " bytes, found %" PRIu64 " up to the end", len,
			p->end - p->pos);
		(void)rs_hint(p->err, "the file looks cut off; an interrupted copy or save?");
		return NULL;
	}
	if (p->pos >= p->window_off && in <= p->window_len && len <= p->window_len - in)
		return p->window + in;
	bool follows = p->pos >= p->window_off && in <= p->window_len;
	uint64_t want = follows ? RS__PICKLE_WINDOW : RS__PICKLE_PEEK;
	want = rs_min(want, p->end - p->pos);
	p->window_len = 0; /* a failed read leaves an empty window, not an old one */
	if (rs_file_read(p->file, p->pos, p->window, want, p->err) < 0)
		return NULL;
	p->window_off = p->pos;
	p->window_len = want;
	return p->window;
}

int rs__pickle_take(struct rs__pickle *p, void *dst, uint64_t len)
{
	const uint8_t *at = view(p, len);

	if (!at)
		return -1;
	memcpy(dst, at, len);
	p->pos += len;
	return 0;
}

int rs__pickle_skip(struct rs__pickle *p, uint64_t len)
{
	if (len > p->end - p->pos) {
		(void)rs__pickle_damaged(p,
			"expected a payload of %" PRIu64 " bytes, found %" PRIu64 " up to the end",
			len, p->end - p->pos);
		return rs_hint(p->err, "the file looks cut off; an interrupted copy or save?");
	}
	p->pos += len;
	return 0;
}

int rs__pickle_line(struct rs__pickle *p, struct rs_str *out)
{
	uint64_t most = rs_min(RS_PICKLE_TEXT, p->end - p->pos);
	const uint8_t *at = view(p, most), *newline;

	if (!at)
		return -1;
	newline = most ? memchr(at, '\n', most) : NULL;
	if (!newline)
		return rs__pickle_damaged(p, "expected a line of at most %d bytes", RS_PICKLE_TEXT);
	uint64_t len = (uint64_t)(newline - at);
	p->pos += len + 1;
	return rs__pickle_text(p, (const char *)at, len, out);
}

/* -------------------------------------------------------------------- shared texts */

#define PROBES 16 /* a hostile file may have texts of equal hash: then they are not shared */

static uint64_t hash_of(const char *bytes, uint64_t len)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (uint64_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)bytes[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

/* The slot of the text, an empty one for it, or NULL when neither is near. */
static struct rs_str *slot_of(struct rs_str *slots, uint64_t cap, struct rs_str text)
{
	uint64_t at = hash_of(text.ptr, text.len);

	for (uint64_t i = 0; i < PROBES; i++) {
		struct rs_str *slot = &slots[(at + i) & (cap - 1)];
		if (!slot->ptr || rs_str_eq(*slot, text))
			return slot;
	}
	return NULL;
}

static int grow_texts(struct rs__pickle_texts *t, struct rs_err *err)
{
	uint64_t cap = t->cap ? t->cap * 2 : 256;
	struct rs_str *slots = rs_alloc(cap * sizeof(*slots), err);

	if (!slots)
		return -1;
	for (uint64_t i = 0; i < t->cap; i++) {
		struct rs_str *slot = t->slots[i].ptr ? slot_of(slots, cap, t->slots[i]) : NULL;
		if (slot)
			*slot = t->slots[i];
	}
	rs_free(t->slots);
	t->slots = slots;
	t->cap = cap;
	return 0;
}

int rs__pickle_text(struct rs__pickle *p, const char *bytes, uint64_t len, struct rs_str *out)
{
	struct rs__pickle_texts *t = &p->texts;
	struct rs_str text = {bytes, len};

	if (t->n >= t->cap / 2 && grow_texts(t, p->err) < 0)
		return -1;
	struct rs_str *slot = slot_of(t->slots, t->cap, text);
	if (slot && slot->ptr) {
		*out = *slot;
		return 0;
	}
	if (rs_arena_str(p->arena, text, out, p->err) < 0)
		return -1;
	if (slot) {
		*slot = *out;
		t->n++;
	}
	return 0;
}

/* ----------------------------------------------------------------------- the machine */

struct rs_value *rs__pickle_node(struct rs__pickle *p, enum rs_value_type type)
{
	struct rs_value *v = RS_NEW(p->arena, struct rs_value, p->err);

	if (v) {
		v->type = type;
		v->off = p->op_off;
	}
	return v;
}

int rs__pickle_push(struct rs__pickle *p, struct rs_value *v)
{
	if (!v || rs_grow(&p->stack, &p->cap_stack, p->n_stack + 1, sizeof(struct rs_value *),
			  p->err) < 0)
		return -1;
	p->stack[p->n_stack++] = v;
	return 0;
}

/* The lowest place that may be popped: values below the last mark belong to its opener. */
static uint64_t fence(const struct rs__pickle *p)
{
	return p->n_marks ? p->marks[p->n_marks - 1] : 0;
}

struct rs_value *rs__pickle_top(struct rs__pickle *p)
{
	if (p->n_stack > fence(p))
		return p->stack[p->n_stack - 1];
	(void)rs__pickle_damaged(p, "the stack is empty%s", p->n_marks ? " above the mark" : "");
	return NULL;
}

struct rs_value *rs__pickle_pop(struct rs__pickle *p)
{
	struct rs_value *v = rs__pickle_top(p);

	if (v)
		p->n_stack--;
	return v;
}

int rs__pickle_unmark(struct rs__pickle *p, struct rs_value *const **items, uint64_t *n)
{
	if (p->n_marks == 0)
		return rs__pickle_damaged(p, "no mark is open");
	uint64_t base = p->marks[--p->n_marks];
	*items = p->stack ? p->stack + base : NULL;
	*n = p->n_stack - base;
	p->n_stack = base;
	return 0;
}

/* Room for @need items; a container that is filled at once gets just what it needs. */
static int make_room(struct rs__pickle *p, struct rs_value *list, uint64_t used, uint64_t need)
{
	struct rs_value **grown;
	uint64_t cap = used ? rs_max(need, 2 * list->list.cap) : need;

	if (need <= list->list.cap)
		return 0;
	grown = RS_NEW_N(p->arena, struct rs_value *, cap, p->err);
	if (!grown)
		return -1;
	if (used)
		memcpy(grown, list->list.items, used * sizeof(struct rs_value *));
	list->list.items = grown;
	list->list.cap = cap;
	return 0;
}

int rs__pickle_append(
	struct rs__pickle *p, struct rs_value *list, struct rs_value *const *items, uint64_t n)
{
	const uint64_t width = list->type == RS_VALUE_DICT ? 2 : 1, used = width * list->n;

	if (n == 0)
		return 0;
	if (n / width > UINT32_MAX - list->n)
		return rs_fail(
			p->err, RS_LIMIT, "%s: more than 2^32 items in a list", p->file->name);
	if (make_room(p, list, used, used + n) < 0)
		return -1;
	memcpy(&list->list.items[used], items, n * sizeof(struct rs_value *));
	list->n += (uint32_t)(n / width);
	return 0;
}

struct rs_value *rs__pickle_list(
	struct rs__pickle *p, enum rs_value_type type, struct rs_value *const *items, uint64_t n)
{
	struct rs_value *v = rs__pickle_node(p, type);

	if (!v || n == 0)
		return v;
	if (n > UINT32_MAX) {
		(void)rs_fail(
			p->err, RS_LIMIT, "%s: more than 2^32 items in a list", p->file->name);
		return NULL;
	}
	v->list.items = RS_NEW_N(p->arena, struct rs_value *, n, p->err);
	if (!v->list.items)
		return NULL;
	memcpy(v->list.items, items, n * sizeof(struct rs_value *));
	v->list.cap = n;
	v->n = (uint32_t)n;
	return v;
}

/* ------------------------------------------------------------------------- driving */

static uint64_t little_endian(const uint8_t *p, uint32_t bytes)
{
	uint64_t v = 0;

	while (bytes-- > 0)
		v = v << 8 | p[bytes];
	return v;
}

static int take_arg(struct rs__pickle *p, enum rs__pickle_arg kind, uint64_t *arg)
{
	static const uint8_t width[] = {[RS__ARG_NONE] = 0,
		[RS__ARG_U8] = 1,
		[RS__ARG_U16] = 2,
		[RS__ARG_I32] = 4,
		[RS__ARG_U32] = 4,
		[RS__ARG_U64] = 8};
	uint8_t raw[8];

	*arg = 0;
	if (kind == RS__ARG_NONE)
		return 0;
	if (rs__pickle_take(p, raw, width[kind]) < 0)
		return -1;
	*arg = little_endian(raw, width[kind]);
	if (kind == RS__ARG_I32 && *arg >> 31)
		*arg |= 0xffffffff00000000u;
	return 0;
}

/* The first two bytes say that this is a pickle, and in which protocol. */
static int take_proto(struct rs__pickle *p, struct rs_pickle *out)
{
	uint8_t raw[2];

	p->op = "PROTO";
	if (rs__pickle_take(p, raw, 2) < 0)
		return -1;
	if (raw[0] != RS__OP_PROTO) {
		const char *name = rs__pickle_ops[raw[0]].name;
		p->op = name ? name : "byte";
		if (!name)
			return rs__pickle_damaged(
				p, "expected PROTO (80) at the beginning, found %02x", raw[0]);
		return rs__pickle_unsupported(
			p, "expected PROTO at the beginning; protocols 0 and 1 are not read");
	}
	if (raw[1] < 2 || raw[1] > 5)
		return rs__pickle_unsupported(p, "expected protocol 2 to 5, found %u", raw[1]);
	out->protocol = raw[1];
	return 0;
}

static int open_frame(struct rs__pickle *p, uint64_t len)
{
	if (p->frame_end)
		return rs__pickle_damaged(p, "a frame inside a frame");
	if (len > p->end - p->pos) {
		(void)rs__pickle_damaged(p,
			"expected a frame of %" PRIu64 " bytes, found %" PRIu64 " up to the end",
			len, p->end - p->pos);
		return rs_hint(p->err, "the file looks cut off; an interrupted copy or save?");
	}
	p->frame_end = len ? p->pos + len : 0;
	return 0;
}

/* One opcode. Returns 1 behind STOP. */
static int step(struct rs__pickle *p)
{
	uint64_t arg, frame = p->frame_end;
	uint8_t code;

	p->op = "opcode";
	p->op_off = p->pos;
	if (rs__pickle_take(p, &code, 1) < 0)
		return -1;
	const struct rs__pickle_op *op = &rs__pickle_ops[code];
	if (!op->name)
		return rs__pickle_damaged(p, "expected an opcode, found %02x", code);
	p->op = op->name;
	if (++p->n_ops > p->max_ops)
		return rs_fail(p->err, RS_LIMIT,
			"%s: offset %" PRIu64 ": %s: more than %" PRIu64 " opcodes", p->file->name,
			p->op_off, p->op, p->max_ops);
	if (take_arg(p, op->arg, &arg) < 0)
		return -1;
	if (code == RS__OP_FRAME)
		return open_frame(p, arg);
	if (code != RS__OP_STOP && op->run(p, arg) < 0)
		return -1;
	if (frame && p->pos > frame)
		return rs__pickle_damaged(p,
			"crosses the end of its frame at %" PRIu64 ", goes on to %" PRIu64, frame,
			p->pos);
	if (frame && p->pos == frame)
		p->frame_end = 0;
	return code == RS__OP_STOP;
}

static int run(struct rs__pickle *p, struct rs_pickle *out)
{
	int stop = 0;

	if (take_proto(p, out) < 0)
		return -1;
	while (stop == 0)
		stop = step(p);
	if (stop < 0)
		return -1;
	if (p->n_marks)
		return rs__pickle_damaged(p, "a mark is still open");
	if (p->frame_end)
		return rs__pickle_damaged(p, "the frame goes on to offset %" PRIu64, p->frame_end);
	if (p->n_stack != 1)
		return rs__pickle_damaged(
			p, "expected one value on the stack, found %" PRIu64, p->n_stack);
	out->top = p->stack[0];
	out->end = p->pos;
	out->n_ops = p->n_ops;
	return 0;
}

static int make_pool(struct rs__pickle *p)
{
	p->pool = RS_NEW(p->arena, struct rs__pickle_pool, p->err);
	if (!p->pool)
		return -1;
	p->pool->none.type = RS_VALUE_NONE;
	p->pool->yes.type = p->pool->no.type = RS_VALUE_BOOL;
	p->pool->yes.truth = true;
	p->pool->empty_tuple.type = RS_VALUE_TUPLE;
	return 0;
}

int rs_pickle_read(const struct rs_file *file, uint64_t begin, uint64_t end,
	const struct rs_pickle_options *opts, struct rs_arena *arena, struct rs_pickle *out,
	struct rs_err *err)
{
	struct rs__pickle *p;
	int status = -1;

	*out = (struct rs_pickle){0};
	if (begin > end || end > file->size)
		return rs_fail(err, RS_CORRUPT,
			"damaged pickle: %s: offset %" PRIu64 ": expected a pickle up to %" PRIu64
			", found a file of %" PRIu64 " bytes",
			file->name, begin, end, file->size);
	p = rs_alloc(sizeof(*p), err);
	if (!p)
		return -1;
	p->file = file;
	p->arena = arena;
	p->err = err;
	p->persistent = opts && opts->persistent;
	p->max_ops = opts && opts->max_ops ? opts->max_ops : RS_PICKLE_OPS;
	p->pos = p->op_off = begin;
	p->end = end;
	if (make_pool(p) == 0)
		status = run(p, out);
	rs_free(p->texts.slots);
	rs_free(p->stack);
	rs_free(p->memo);
	rs_free(p);
	return status;
}
