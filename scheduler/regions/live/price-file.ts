import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { SchedulerError } from '../../errors.ts';

const price = z.number().min(-100).max(100);
/** The body of `PUT /admin/regions/prices`. */
const tableSchema = z.strictObject({
  as_of: z.iso.datetime(),
  stale_after_s: z.number().int().positive().optional(),
  source: z.string().max(300).optional(),
  prices: z
    .array(
      z.strictObject({ region: z.string().max(64), usd_kwh: price, by_hour: z.array(price).length(24).optional() }),
    )
    .min(1)
    .max(64),
});

/** @throws SchedulerError `bad_input` with the first problem */
export function readPriceTable(path: string): z.infer<typeof tableSchema> {
  try {
    return tableSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch (cause) {
    const why =
      cause instanceof z.ZodError
        ? `${cause.issues[0]?.path.join('.') ?? ''}: ${cause.issues[0]?.message ?? ''}`
        : cause instanceof Error
          ? cause.message
          : String(cause);
    throw new SchedulerError('bad_input', `--prices ${path}: ${why}`, { cause });
  }
}
