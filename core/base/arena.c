/*
 * arena.c - memory: arenas that are freed at once and have a byte limit, and the few heap objects
 * that live alone. The only calls of the allocator in core; they go through sys.c so that tests
 * can make each fail. Refuses what is over the limit (RS_LIMIT). Next: notes.c, a user of rs_grow.
 *
 *   arena -> chunk (the one being filled) -> chunk -> chunk
 *
 * A request that would waste most of a fresh chunk gets one of its own, behind the first.
 */
#include <inttypes.h>
#include <stdio.h>

#include "internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON 1
#endif
#endif

/*
 * Under the address sanitizer objects of an arena are kept apart by forbidden bytes, so that
 * running over the end of one is found although malloc knows nothing of it.
 */
#ifdef POISON
#include <sanitizer/asan_interface.h>
#define GAP 16u
#define FORBID(p, n) __asan_poison_memory_region((p), (n))
#define PERMIT(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define GAP 0u
#define FORBID(p, n) ((void)(p), (void)(n))
#define PERMIT(p, n) ((void)(p), (void)(n))
#endif

#define ALIGN 16u
#define BYTES_MOST ((uint64_t)PTRDIFF_MAX) /* no object can be larger */
#define CHUNK_FIRST 4096u
#define CHUNK_MOST (1u << 20)

struct chunk {
	struct chunk *next;
	uint64_t size, used; /* of data[] */
	_Alignas(ALIGN) uint8_t data[];
};

struct rs_arena {
	struct chunk *chunks;
	uint64_t limit, used; /* bytes handed out, rounding included */
	uint64_t held;        /* bytes of all chunks and of this struct */
	uint64_t next_size;   /* of the next chunk */
};

static int fail_nomem(struct rs_err *err, uint64_t bytes)
{
	return rs_fail(err, RS_NOMEM, "out of memory: the system refused %" PRIu64 " bytes", bytes);
}

struct rs_arena *rs_arena_new(uint64_t limit_bytes, struct rs_err *err)
{
	struct rs_arena *a = rs_alloc(sizeof(*a), err);

	if (!a)
		return NULL;
	a->limit = limit_bytes;
	a->held = sizeof(*a);
	a->next_size = CHUNK_FIRST;
	return a;
}

void rs_arena_free(struct rs_arena *a)
{
	if (!a)
		return;
	while (a->chunks) {
		struct chunk *next = a->chunks->next;

		rs__free(a->chunks);
		a->chunks = next;
	}
	rs__free(a);
}

/* A chunk with room for @bytes; it becomes the first unless it is for this request alone. */
static struct chunk *add_chunk(struct rs_arena *a, uint64_t bytes, struct rs_err *err)
{
	bool alone = a->chunks && bytes > a->next_size / 2;
	uint64_t size = alone ? bytes : rs_max(bytes, rs_min(a->next_size, a->limit - a->used));
	uint64_t total;
	struct chunk *c;

	if (!rs_add(size, sizeof(*c), &total) || total > BYTES_MOST ||
		!(c = rs__calloc((size_t)total))) {
		fail_nomem(err, size);
		return NULL;
	}
	c->size = size;
	a->held += total;
	FORBID(c->data, (size_t)size);
	if (alone) {
		c->next = a->chunks->next;
		a->chunks->next = c;
	} else {
		c->next = a->chunks;
		a->chunks = c;
		a->next_size = rs_min(2 * a->next_size, CHUNK_MOST);
	}
	return c;
}

void *rs_arena_alloc(struct rs_arena *a, uint64_t bytes, struct rs_err *err)
{
	uint64_t rounded = bytes ? (bytes - 1) / ALIGN * ALIGN + ALIGN : ALIGN;
	struct chunk *c = a->chunks;
	void *p;

	/* Rounding up wraps only above BYTES_MOST. */
	if (bytes > BYTES_MOST || rounded > a->limit - a->used) {
		rs_fail(err, RS_LIMIT,
			"memory limit of %" PRIu64 " bytes: %" PRIu64 " in use, %" PRIu64
			" more asked for",
			a->limit, a->used, bytes);
		return NULL;
	}
	if (!c || c->size - c->used < rounded + GAP)
		c = add_chunk(a, rounded + GAP, err);
	if (!c)
		return NULL;
	p = c->data + c->used;
	PERMIT(p, (size_t)bytes);
	c->used += rounded + GAP;
	a->used += rounded;
	return p;
}

void *rs_arena_array(struct rs_arena *a, uint64_t n, uint64_t size, struct rs_err *err)
{
	uint64_t bytes;

	if (!rs_mul(n, size, &bytes))
		bytes = UINT64_MAX; /* over every limit */
	return rs_arena_alloc(a, bytes, err);
}

char *rs_arena_copy(struct rs_arena *a, const void *src, uint64_t len, struct rs_err *err)
{
	uint64_t bytes;
	char *p = rs_arena_alloc(a, rs_add(len, 1, &bytes) ? bytes : UINT64_MAX, err);

	if (p && len)
		memcpy(p, src, (size_t)len);
	return p;
}

int rs_arena_str(struct rs_arena *a, struct rs_str src, struct rs_str *out, struct rs_err *err)
{
	char *p = rs_arena_copy(a, src.ptr, src.len, err);

	if (!p)
		return -1;
	*out = (struct rs_str){p, src.len};
	return 0;
}

char *rs_arena_printf(struct rs_arena *a, struct rs_err *err, const char *fmt, ...)
{
	va_list ap;
	int len;
	char *p;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0) {
		rs_fail(err, RS_LIMIT, "text is too long to be formatted");
		return NULL;
	}
	p = rs_arena_alloc(a, (uint64_t)len + 1, err);
	if (!p)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(p, (size_t)len + 1, fmt, ap);
	va_end(ap);
	return p;
}

uint64_t rs_arena_used(const struct rs_arena *a)
{
	return a->used;
}

uint64_t rs_arena_held(const struct rs_arena *a)
{
	return a->held;
}

void *rs_alloc(uint64_t bytes, struct rs_err *err)
{
	void *p = bytes > BYTES_MOST ? NULL : rs__calloc(bytes ? (size_t)bytes : 1);

	if (!p)
		fail_nomem(err, bytes);
	return p;
}

void rs_free(void *p)
{
	rs__free(p);
}

int rs_grow(void *items, uint64_t *cap, uint64_t need, uint64_t size, struct rs_err *err)
{
	uint64_t want = rs_max(need, 8), bytes;
	void *old, *grown;

	if (need <= *cap)
		return 0;
	if (*cap <= UINT64_MAX / 2)
		want = rs_max(want, 2 * *cap);
	if (!rs_mul(want, size, &bytes) || bytes > BYTES_MOST)
		return fail_nomem(err, UINT64_MAX);
	/* @items is the address of a pointer of some type, and all of these look the same. */
	memcpy(&old, items, sizeof(old));
	grown = rs__realloc(old, bytes ? (size_t)bytes : 1);
	if (!grown)
		return fail_nomem(err, bytes);
	memset((uint8_t *)grown + *cap * size, 0, (size_t)(bytes - *cap * size));
	memcpy(items, &grown, sizeof(grown));
	*cap = want;
	return 0;
}
