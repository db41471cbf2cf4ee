import * as z from 'zod';

/** One part of the report: rows that must hold, verdicts on the paper's claims, and charts. */
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
  /** Verdicts on claims of the paper. */
  verdicts: z.array(
    z.object({
      claim: z.string(),
      verdict: z.enum(['reproduced', 'better', 'refuted', 'not comparable']),
      reason: z.string(),
    }),
  ),
  /** Tables for people, below the rows. */
  text: z.string().optional(),
  /** File name without its extension, and the SVG. */
  pictures: z.array(z.tuple([z.string(), z.string()])).optional(),
});
export type Section = z.infer<typeof sectionSchema>;

export interface RunOptions {
  /** A minute or two instead of many: fewer spans, models and mixes. */
  quick: boolean;
}
