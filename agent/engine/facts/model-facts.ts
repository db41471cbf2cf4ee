/** Facts about a served model. Engines and files are hostile input, so each fact is checked before it is used. */
import { modelSchema, type ServedModel } from '../../../shared/lattice/node-record.ts';

export type ModelFacts = Partial<Omit<ServedModel, 'id' | 'state'>>;

const factsSchema = modelSchema.omit({ id: true, state: true });

/** Larger amounts are not plausible: the largest models have 1e13 parameters. */
const AMOUNT_MAX = 1e14;

/** Returns the facts that a registry record can contain, and drops all others. */
export function acceptedFacts(found: Readonly<Partial<Record<keyof ModelFacts, unknown>>>): ModelFacts {
  const kept: [string, unknown][] = [];
  for (const [key, value] of Object.entries(found)) {
    if (value === undefined || value === null || !isPlausible(value)) continue;
    // A field that the schema refuses becomes undefined, or an error for the older fields. Neither is published.
    const accepted = factsSchema.safeParse({ [key]: value });
    if (accepted.success && Object.values(accepted.data).some((one) => one !== undefined)) kept.push([key, value]);
  }
  return factsSchema.parse(Object.fromEntries(kept));
}

/** False for text with control characters or beyond ASCII, which a name of a format, parser or version never has. */
function isPlausible(value: unknown): boolean {
  if (typeof value === 'string') return /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value);
  if (typeof value === 'number') return value <= AMOUNT_MAX;
  return !Array.isArray(value) || value.length > 0;
}
