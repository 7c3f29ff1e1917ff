/*
 * absent.c - files that an index names and the listing lacks, for targets that take all tensors.
 *
 * What a listing tells is refused before a mount exists; a target that takes only some tensors
 * finds out when it looks at a file that needs the lost one, and serves the others. Next:
 * cut_check.c.
 */
#include "core/target/internal.h"

int rs__check_absent(const struct rs_target *t, struct rs_err *err)
{
	const struct rs_catalog *cat = t->source->cat;

	for (uint64_t i = 0; t->source->without_ranks && i < rs_catalog_n_tensors(cat); i++) {
		const struct rs_tensor *tensor = rs_catalog_tensor(cat, i);

		for (uint32_t k = 0; k < tensor->n_pieces; k++) {
			const struct rs_unit *unit = rs_catalog_unit(cat, tensor->pieces[k].unit);

			if (!unit->absent)
				continue;
			(void)rs_fail(err, RS_MISSING,
				"%s/%s: tensor '%s': expected %s of it in this file, found no such "
				"file",
				t->source->opts.path, unit->name, RS_SHOW(tensor->name),
				RS_BOX_SHOW(&tensor->pieces[k].box));
			return rs_hint(err, "an interrupted copy or save, or a file on another "
					    "node; bring it here, there is no other copy");
		}
	}
	return 0;
}
