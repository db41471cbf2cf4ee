import * as z from 'zod';

const ways = z.number().int().min(1).max(72);
const engine = {
  tp: ways,
  pp: ways.exactOptional(),
  dp: ways.exactOptional(),
  ep: z.boolean().exactOptional(),
  sp: ways.exactOptional(),
};

/** The form of a `Parallelism` in a file. */
export const parallelismSchema = z.strictObject({ ...engine, prefill: z.strictObject(engine).exactOptional() });
