/*
 * safetensors.h - what the two files of the safetensors reader share: safetensors_json.c reads the
 * header's text, safetensors.c the frame around it and what the numbers must add up to.
 */
#ifndef RESHARDFS_CORE_SOURCE_SAFETENSORS_H
#define RESHARDFS_CORE_SOURCE_SAFETENSORS_H

#include "reshardfs/codec.h"
#include "reshardfs/source.h"

/* Bytes of one header in memory, its text included; a million tensors at the cap. */
#define RS__ST_MAX_BYTES (UINT64_C(256) << 20)
#define RS__ST_PREFIX 8 /* the length of the header stands in front of it */

/* A header being read. */
struct rs__st {
	const struct rs_file *file;
	struct rs_arena *arena;     /* of the table; holds the text, which names point into */
	struct rs_json json, begin; /* the reader, and its state before the first token */
	struct rs_str text;
	uint64_t data; /* file offset of the first tensor byte */
	struct rs_entry *entries;
	struct rs_span *spans; /* one an entry; off and len are begin and end until `place` */
	uint64_t n_entries, cap_entries;
	struct rs_meta *meta;
	uint64_t n_meta, cap_meta;
	struct rs_err *err;
};

/* rs__st_refuse - RS_CORRUPT: "file: tensor 'name': Word: text"; the words are the reference's. */
int rs__st_refuse(struct rs__st *p, const char *word, const struct rs_str *name, const char *fmt,
	...) __attribute__((format(printf, 4, 5), cold));
/*
 * rs__st_parse - read p->text: entries and metadata as they stand there, spans as stated.
 * Errors: RS_CORRUPT (the reference's InvalidHeaderDeserialization), RS_UNSUPPORTED (dtype),
 * RS_LIMIT (axes, tensors, memory).
 */
int rs__st_parse(struct rs__st *p);

#endif
