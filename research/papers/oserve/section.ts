import * as z from 'zod';

/** One part of the report: rows that must hold, what the paper claims of it, and pictures. */
export const sectionSchema = z.object({
  title: z.string(),
  rows: z.array(
    z.object({
      claim: z.string(),
      paper: z.number().optional(),
      ours: z.number(),
      unit: z.string(),
      band: z.tuple([z.number(), z.number()]).readonly().optional(),
      missed: z.string().optional(),
      holds: z.boolean(),
    }),
  ),
  /** What a reader should make of a claim of the paper. */
  verdicts: z.array(
    z.object({
      claim: z.string(),
      verdict: z.enum(['reproduced', 'better', 'refuted', 'not comparable']),
      reason: z.string(),
    }),
  ),
  /** Tables for people, under the rows. */
  text: z.string().optional(),
  /** File name without its ending, and the SVG. */
  pictures: z.array(z.tuple([z.string(), z.string()])).optional(),
});
export type Section = z.infer<typeof sectionSchema>;

export interface RunOptions {
  /** A minute or two instead of many: fewer spans, models and mixes. */
  quick: boolean;
}
