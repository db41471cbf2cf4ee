import * as z from 'zod';
import { ablationClaims } from './ablation-claims.ts';
import { appendixD } from './assignment-claims.ts';
import { boundClaims } from './bound-claims.ts';
import { dayClaims } from './day-claims.ts';
import { forecastClaims } from './forecast-claims.ts';
import { type CellOf, cellOf } from './latency-cells.ts';
import { saturationClaims } from './saturation-claims.ts';
import { searchClaims } from './search-claims.ts';
import { switchClaims } from './switch-claims.ts';

export const SECTIONS = [
  'assignment',
  'search',
  'forecast',
  'switch',
  'ablation',
  'bound',
  'day',
  'saturation',
] as const;

/** A unit that a thread computes and stores separately: a section, or a run of the section on latency. */
export type Part = { section: (typeof SECTIONS)[number]; quick: boolean } | { run: CellOf };

export function computePart(part: Part): unknown {
  if ('run' in part) return cellOf(part.run);
  switch (part.section) {
    case 'assignment':
      return appendixD();
    case 'search':
      return searchClaims(part);
    case 'forecast':
      return forecastClaims(part);
    case 'switch':
      return switchClaims(part);
    case 'ablation':
      return ablationClaims(part);
    case 'bound':
      return boundClaims(part);
    case 'day':
      return dayClaims(part);
    case 'saturation':
      return saturationClaims(part);
  }
}

/** Returns the file in this folder that computes it. */
export function sourceOf(part: Part): string {
  return 'run' in part ? 'latency-cells.ts' : `${part.section}-claims.ts`;
}

export const nameOf = (part: Part): string =>
  'run' in part
    ? `${part.run.model.split('/').at(-1)} on ${part.run.gpus} H100, ${part.run.trace} span ${part.run.span + 1}`
    : part.section;

/**
 * Seconds on an idle core, measured once: for the order, the longest first, and for the estimate of the remaining time.
 */
const SECTION_S = {
  assignment: 1,
  search: 100,
  forecast: 100,
  switch: 60,
  ablation: 100,
  bound: 200,
  day: 400,
  saturation: 60,
};
const RUN_S_PER_GPU = { azure: 0.4, servegen: 1.4 };
const QUICK_SHARE = 0.2;

export const expectedS = (part: Part): number =>
  'run' in part
    ? RUN_S_PER_GPU[part.run.trace] * part.run.gpus
    : SECTION_S[part.section] * (part.quick ? QUICK_SHARE : 1);

/** The message of a thread. */
export const answerSchema = z.object({ result: z.unknown(), seconds: z.number() });
