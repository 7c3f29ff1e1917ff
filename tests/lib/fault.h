/*
 * fault.h - make the n-th read or allocation fail. Every unit test is linked with fault.c in place
 * of core/base/sys.c; until a test asks for a fault it behaves the same.
 *
 *	for (uint64_t n = 1;; n++) {
 *		fault_read(n, FAULT_EIO);
 *		status = what_is_tested(&err);
 *		if (!fault_hit())
 *			break;         the run had fewer than n reads and has survived
 *		... status must be -1 and err must say why
 *	}
 *	fault_clear();
 */
#ifndef TESTS_LIB_FAULT_H
#define TESTS_LIB_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
	FAULT_EIO,
	FAULT_END,   /* the file ends where the read begins */
	FAULT_SHORT, /* one byte of what was asked for */
	FAULT_EINTR,
	FAULT_EAGAIN,
	FAULT_ESTALE,
	FAULT_STALL, /* the right bytes, after FAULT_STALL_MS */
};

#define FAULT_STALL_MS 400

/* Counting starts anew with each call; n = 0: no fault, count only. */
void fault_alloc(uint64_t n);
void fault_read(uint64_t n, enum fault_kind kind);
/* The same for the n-th and all that follow it. */
void fault_alloc_always(uint64_t n);
void fault_read_always(uint64_t n, enum fault_kind kind);
/* fault_openat2 - every openat2 fails with errno @sys; 0: none does. */
void fault_openat2(int sys);
void fault_clear(void);
/* fault_hit - whether the fault has struck since it was set. */
bool fault_hit(void);
int64_t fault_live(void);    /* blocks allocated and not freed, of all time */
uint64_t fault_allocs(void); /* allocations since fault_alloc or fault_clear */
uint64_t fault_reads(void);  /* reads since fault_read or fault_clear */

#endif
