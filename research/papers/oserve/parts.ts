import * as z from 'zod';
import { ablationClaims } from './ablation-claims.ts';
import { appendixD } from './assignment-claims.ts';
import { type BoundOf, boundOf } from './bound-runs.ts';
import { type DayOf, dayOf } from './day-runs.ts';
import { forecastClaims } from './forecast-claims.ts';
import { type CellOf, cellOf } from './latency-cells.ts';
import { type SaturatedOf, saturated } from './saturation-runs.ts';
import { searchClaims } from './search-claims.ts';
import { shapeClaims } from './shape-claims.ts';
import { switchClaims } from './switch-claims.ts';

export const SECTIONS = ['shapes', 'assignment', 'search', 'forecast', 'switch', 'ablation'] as const;

/**
 * A unit that a thread computes and stores separately: a section, or a run of another section. The bands and reasons of
 * such a section may change without computing its runs again.
 */
export type Part =
  | { section: (typeof SECTIONS)[number]; quick: boolean }
  | { run: CellOf }
  | { bound: BoundOf }
  | { day: DayOf }
  | { saturated: SaturatedOf };

export function computePart(part: Part): unknown {
  if ('run' in part) return cellOf(part.run);
  if ('bound' in part) return boundOf(part.bound);
  if ('day' in part) return dayOf(part.day);
  if ('saturated' in part) return saturated(part.saturated);
  switch (part.section) {
    case 'shapes':
      return shapeClaims();
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
  }
}

/** Returns the file in this folder that computes it. */
export function sourceOf(part: Part): string {
  if ('run' in part) return 'latency-cells.ts';
  if ('bound' in part) return 'bound-runs.ts';
  if ('day' in part) return 'day-runs.ts';
  if ('saturated' in part) return 'saturation-runs.ts';
  return part.section === 'shapes' ? 'shape-claims.ts' : `${part.section}-claims.ts`;
}

export function nameOf(part: Part): string {
  if ('run' in part) return setupText(part.run);
  if ('bound' in part) return `the bound of ${part.bound.trace} span ${part.bound.span + 1}`;
  if ('day' in part) return `${modelText(part.day)}, ${part.day.minutes} minutes`;
  if ('saturated' in part) return `saturation, ${setupText(part.saturated)}`;
  return part.section;
}

const modelText = ({ model, gpus }: { model: string; gpus: number }) => `${model.split('/').at(-1)} on ${gpus} H100`;
const setupText = (of: SaturatedOf) => `${modelText(of)}, ${of.trace} span ${of.span + 1}`;

/**
 * Seconds on an idle core, measured once: for the order, the longest first, and for the estimate of the remaining time.
 */
const SECTION_S = { shapes: 10, assignment: 1, search: 100, forecast: 300, switch: 60, ablation: 300 };
const QUICK_SHARE = 0.2;
const RUN_S_PER_GPU = { azure: 0.4, servegen: 1.4 };
const BOUND_S = 35;
const DAY_S_PER_MINUTE = 0.5;
const SATURATED_S_PER_GPU = 2;

export function expectedS(part: Part): number {
  if ('run' in part) return RUN_S_PER_GPU[part.run.trace] * part.run.gpus;
  if ('bound' in part) return BOUND_S;
  if ('day' in part) return DAY_S_PER_MINUTE * part.day.minutes;
  if ('saturated' in part) return SATURATED_S_PER_GPU * part.saturated.gpus;
  return SECTION_S[part.section] * (part.quick ? QUICK_SHARE : 1);
}

/** The message of a thread. */
export const answerSchema = z.object({ result: z.unknown(), seconds: z.number() });
