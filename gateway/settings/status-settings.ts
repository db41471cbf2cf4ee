/** The public status page. */
import * as z from 'zod';
import { CONTROL_FREE } from '../http/common-schemas.ts';

const MODELS_MAX = 50;
const TEXT_MAX = 500;

/** A message of the operator, such as a planned maintenance. */
export const bannerSchema = z.strictObject({
  level: z.enum(['info', 'warning']).default('info'),
  text: z.string().trim().min(1).max(TEXT_MAX).regex(CONTROL_FREE, 'must be one line'),
});

export const statusPageSchema = z.strictObject({
  /** Models of the page. Their names become public. */
  models: z.array(z.string().min(1).max(256)).max(MODELS_MAX),
  banner: bannerSchema.optional(),
});
export type StatusPage = z.infer<typeof statusPageSchema>;
