/*
 * loader.h - how files of a source are opened and their headers read, for every format whose data
 * files stand alone: a header each, no index that is needed to make sense of them.
 */
#ifndef RESHARDFS_CORE_SOURCE_LOADER_H
#define RESHARDFS_CORE_SOURCE_LOADER_H

#include "reshardfs/source.h"

/* Reads the header of one file into a new table: rs_ckpt_header, rs_safetensors_header. */
typedef int (*rs__header_fn)(const struct rs_file *file, struct rs_table **out, struct rs_err *err);

/*
 * rs__loader_set - give the catalog of @src its loader, once all units are there. Files open
 * beneath the fence of src->dir and are called SOURCE/PATH in messages; the headers of a unit of
 * several files are joined. Units from number @n_data on are raw (companions): their table has no
 * entries. Everything is in the arena of the catalog.
 */
int rs__loader_set(
	struct rs_source *src, rs__header_fn header, uint32_t n_data, struct rs_err *err);

/*
 * rs__load_units - load the headers of units 0 .. @n - 1, several at a time.
 * The error is that of the lowest unit that failed.
 */
int rs__load_units(struct rs_catalog *cat, uint32_t n, struct rs_err *err);

/*
 * rs__close_behind - take from the mode of @file the read bits of who may not search @dir, a
 * directory above it.
 */
void rs__close_behind(struct rs_identity *file, const struct rs_identity *dir);

#endif
