import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorText } from '../../../shared/text/error-text.ts';
import type { RegionFacts } from '../../live/region-facts.ts';
import type { LivePlan } from './region-planner.ts';

/** Providers choose the names of regions, so a name becomes a file name only if it matches this. */
const FILE_NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

/**
 * Writes a plan for the factory of each region, `DIR/REGION.json`: how many contexts of each model to keep warm there
 * (`[plan] file`, see `factory/demand/plan-file.ts`). Returns the failed writes, one sentence each.
 */
export function writeWarm(
  folder: string,
  { models }: LivePlan,
  facts: readonly Pick<RegionFacts, 'region'>[],
): string[] {
  const faults: string[] = [];
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    return [`--warm ${folder}: ${errorText(error)}`];
  }
  for (const { region } of facts) {
    if (!FILE_NAME.test(region)) {
      const name = region === '' ? 'nodes without a region' : JSON.stringify(region);
      faults.push(`cannot write warm counts for ${name}: it is not a valid file name`);
      continue;
    }
    const wanted = models.flatMap(({ model, regions }) =>
      regions.flatMap((one) => (one.region === region ? [{ model, replicas: one.warm }] : [])),
    );
    try {
      const path = join(folder, `${region}.json`);
      writeFileSync(`${path}.new`, `${JSON.stringify({ wanted }, null, 2)}\n`);
      renameSync(`${path}.new`, path);
    } catch (error) {
      faults.push(`cannot write the warm counts of ${region}: ${errorText(error)}`);
    }
  }
  return faults;
}
