/*
 * tiny.h - a source of four ranks on disk and a target of four ranks on top, without any file
 * format, strategy or option: what the rooms above need to build and read real images.
 *
 * A tensor "w" of 16 x 16 bytes, w[r][c] = tiny_w(r, c); source rank R stores rows 4R .. 4R+3 in
 * DIR/rank_R/data behind 8 bytes of something else. Target rank R wants columns 4R .. 4R+3 of it,
 * and "pad", two float32 of zero: its file takes from all four source files.
 */
#ifndef TESTS_LIB_TINY_H
#define TESTS_LIB_TINY_H

#include <pthread.h>
#include <stdatomic.h>

#include "reshardfs/target.h"

#define TINY_RANKS 4
#define TINY_ROWS 16
#define TINY_COLS 16
#define TINY_SLICE_BYTES 64
#define TINY_LEAD 8

struct tiny {
	char dir[32];
	struct rs_catalog *cat;
	struct rs_dir *handle;
	struct rs_source source;
	struct rs_target target;
	struct rs_tensor w;
	_Atomic uint32_t lists[TINY_RANKS]; /* how often a rank's list was asked for */
	/* Knobs. */
	enum rs_code fail[TINY_RANKS]; /* what asking for the list of a rank ends with */
	bool empty, raw, strange; /* lists: without items; one file as it is; a dtype nobody has */
	enum rs_dtype pad_stored; /* of pad, when it is to be a cast; else RS_DT_NONE */
	uint64_t rows;            /* of w that targets want: 16 */
	pthread_mutex_t gate_lock;
	pthread_cond_t gate_moved;
	bool gate_closed; /* lists wait while it is */
	uint32_t gate_waiting;
};

uint8_t tiny_w(uint64_t row, uint64_t col);
/* The file of target rank @r. */
#define TINY_FILE(r) (&(const struct rs_output){.kind = RS_OUTPUT_LIST, .rank = (r)})
/* tiny_open - @change: called when the files are there and before they are listed; may be NULL. */
void tiny_open(struct tiny *t, void (*change)(const struct tiny *t));
void tiny_close(struct tiny *t);
void tiny_path(const struct tiny *t, uint32_t rank, char *buf, size_t size);
void tiny_gate(struct tiny *t, bool closed);
/* tiny_gate_wait - until @n lists stand at the closed gate. */
void tiny_gate_wait(struct tiny *t, uint32_t n);
/* tiny_content - the 64 bytes of w, or 8 of pad, that target rank @rank wants. */
void tiny_content(uint32_t rank, uint8_t *w, uint8_t *pad);

#endif
