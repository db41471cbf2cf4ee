import { drawLength, type LengthDistribution } from './length-distribution.ts';
import { exponential, gamma, type Random } from './random.ts';

/** The arrival process. */
export type Arrivals =
  | { kind: 'poisson'; rate: number }
  /** Gamma-distributed gaps. `cv` is their coefficient of variation: 1 is Poisson, above it arrivals are bursty. */
  | { kind: 'gamma'; rate: number; cv: number }
  /** All requests arrive at time 0: a backlog. */
  | { kind: 'backlog' };

/** Requests in order of arrival, as columns: 155,000 objects would cost more than the simulation. */
export interface Requests {
  count: number;
  /** Seconds. */
  arrival: Float64Array;
  /** Tokens. */
  input: Int32Array;
  output: Int32Array;
  /** Chained hashes of each prompt's full blocks, if the trace has them. */
  hashes?: readonly (readonly number[])[];
}

interface Drawing {
  arrivals: Arrivals;
  input: LengthDistribution;
  output: LengthDistribution;
}

/** More requests than this are a mistake in a unit. */
export const REQUESTS_MAX = 20_000_000;

/** The requests of `durationS` seconds, or exactly `count`. */
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

/** One request of a trace: seconds, tokens, and the chained hashes of the prompt's full blocks if they are known. */
export interface TraceRow {
  arrival: number;
  input: number;
  output: number;
  hashes?: readonly number[];
}

/** Accepts rows in any order. */
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

/** Accepts rows of [arrival in s, input, output] in any order. */
export function requestsFromRows(rows: readonly (readonly [number, number, number])[]): Requests {
  return requestsFromTrace(rows.map(([arrival, input, output]) => ({ arrival, input, output })));
}
