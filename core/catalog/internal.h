/*
 * internal.h - what the files of the catalog room share.
 */
#ifndef RESHARDFS_CORE_CATALOG_INTERNAL_H
#define RESHARDFS_CORE_CATALOG_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "reshardfs/catalog.h"

enum unit_state { UNIT_EMPTY, UNIT_LOADING, UNIT_READY, UNIT_FAILED };

struct unit {
	struct rs_unit pub;
	_Atomic(enum unit_state) state; /* written under catalog->lock; READY is final */
	const struct rs_table *table;   /* valid once state is READY (released by it) */
	struct rs_err *failure;         /* guarded by catalog->lock */
};
struct source_file {
	struct rs_source_file pub;
	_Atomic(bool) is_open; /* once true, `file` never changes */
	struct rs_file file;
};
struct shared_table {
	uint64_t hash;
	struct rs_table *table;
};

struct rs_catalog {
	struct rs_arena *arena;
	struct rs_notes notes;
	struct rs_loader loader;
	rs_name_fn name_fn; /* what added tensors are called; may be NULL */
	void *name_arg;
	enum rs_access access; /* set before any thread starts */
	struct rs_pool *pool;  /* the same; NULL: no deadline */
	struct unit *units;
	uint64_t n_units, cap_units;
	struct source_file *files;
	uint64_t n_files, cap_files;
	struct rs_tensor *tensors; /* by name once sealed */
	uint64_t n_tensors, cap_tensors;
	bool sealed;
	uint32_t *rank_units;
	uint32_t n_stages, stage_devices;

	pthread_mutex_t lock; /* held for pointer work only, never across I/O */
	pthread_cond_t loaded;
	struct shared_table *tables; /* distinct headers; guarded by lock */
	uint64_t n_tables, cap_tables;
};

uint64_t rs__table_hash(const struct rs_table *t);
bool rs__table_eq(const struct rs_table *a, const struct rs_table *b);

#endif
