import { drawLength, type LengthDistribution } from './length-distribution.ts';
import { exponential, gamma, type Random } from './random.ts';

/** How requests arrive. */
export type Arrivals =
  | { kind: 'poisson'; rate: number }
  /**
   * Gaps between arrivals are gamma-distributed with coefficient of variation `cv`: 1 is Poisson; above 1, arrivals are
   * bursty.
   */
  | { kind: 'gamma'; rate: number; cv: number }
  /** All requests arrive at time 0: a backlog. */
  | { kind: 'backlog' };

/** Requests in order of arrival, as columns, because 155,000 objects would cost more than the simulation. */
export interface Requests {
  count: number;
  /** Times of arrival, seconds. */
  arrival: Float64Array;
  /** Tokens of the prompts. */
  input: Int32Array;
  /** Tokens of the responses. */
  output: Int32Array;
  /** Chained hashes of each prompt's full blocks, if the trace has them. */
  hashes?: readonly (readonly number[])[];
}

interface Drawing {
  arrivals: Arrivals;
  input: LengthDistribution;
  output: LengthDistribution;
}

/** A higher number of requests is a mistake in a unit. */
export const REQUESTS_MAX = 20_000_000;

/** Draws the requests of `durationS` seconds, or exactly `count` requests. */
export function drawRequests(
  drawing: Drawing,
  extent: { durationS: number } | { count: number },
  random: Random,
): Requests {
  const times: number[] = [];
  if ('count' in extent) {
    let now = 0;
    for (let i = 0; i < Math.min(extent.count, REQUESTS_MAX); i++) {
      now += gap(drawing.arrivals, random);
      times.push(now);
    }
  } else {
    for (let now = gap(drawing.arrivals, random); now < extent.durationS && times.length < REQUESTS_MAX; ) {
      times.push(now);
      const next = gap(drawing.arrivals, random);
      if (next === 0 && drawing.arrivals.kind === 'backlog') break;
      now += next;
    }
  }
  const count = times.length;
  const input = new Int32Array(count);
  const output = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    input[i] = drawLength(drawing.input, random);
    output[i] = drawLength(drawing.output, random);
  }
  return { count, arrival: Float64Array.from(times), input, output };
}

function gap(arrivals: Arrivals, random: Random): number {
  switch (arrivals.kind) {
    case 'poisson':
      return exponential(random, 1 / arrivals.rate);
    case 'gamma': {
      const shape = 1 / arrivals.cv ** 2;
      return gamma(random, shape, 1 / (arrivals.rate * shape));
    }
    case 'backlog':
      return 0;
  }
}

/**
 * One request of a trace: arrival in seconds, lengths in tokens, and the chained hashes of the prompt's full blocks if
 * they are known.
 */
export interface TraceRow {
  arrival: number;
  input: number;
  output: number;
  hashes?: readonly number[];
}

/** Sorts rows by arrival, so they may be in any order. */
export function requestsFromTrace(rows: readonly TraceRow[]): Requests {
  const sorted = [...rows].sort((a, b) => a.arrival - b.arrival);
  return {
    count: sorted.length,
    arrival: Float64Array.from(sorted, (row) => row.arrival),
    input: Int32Array.from(sorted, (row) => Math.max(1, row.input)),
    output: Int32Array.from(sorted, (row) => Math.max(1, row.output)),
    ...(sorted.some(({ hashes }) => hashes !== undefined) ? { hashes: sorted.map(({ hashes }) => hashes ?? []) } : {}),
  };
}

/** Takes rows of [arrival in s, input, output] in any order. */
export function requestsFromRows(rows: readonly (readonly [number, number, number])[]): Requests {
  return requestsFromTrace(rows.map(([arrival, input, output]) => ({ arrival, input, output })));
}
