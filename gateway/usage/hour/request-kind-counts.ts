/**
 * Counts requests by kind and time slot, and their lengths on a coarse grid: the input for a forecast and for a new fit
 * of the kinds.
 */
import { nearestKind, type RequestKind } from '../../../shared/routing/kinds/request-kind.ts';
import { Histogram } from './histogram.ts';

/**
 * Grid cells per factor of e in the number of tokens. So a length differs from its cell's center by at most a factor of
 * e^(1/8).
 */
const CELLS_PER_E = 4;
/** Longer prompts and responses count as this long, which bounds the grid at 75 × 75 cells. */
const TOKENS_MAX = 1e8;

export interface KindCountQuery {
  /** Length of a slot in milliseconds. */
  slotMs: number;
  /** Kinds by model, for models that have kinds. */
  kinds: Readonly<Record<string, readonly RequestKind[]>>;
}

/** One request that reached an engine. */
interface KindRow {
  /** When the request arrived; milliseconds since the epoch. */
  arrivedAt: number;
  prompt: number;
  completion: number;
  /** Duration in milliseconds; undefined: unknown. */
  totalMs: number | undefined;
  /** True if the engine refused the request, so that its lengths mean nothing. */
  failed: boolean;
  /** Name of the kind that was predicted when the request arrived; undefined: none. */
  judged: string | undefined;
}

type HistogramState = ReturnType<Histogram['state']>;

export interface KindState {
  model: string;
  /**
   * Counts by slot; slots are numbered from the epoch. `requests` has one number per kind, or one number if the model
   * has no kinds.
   */
  slots: Record<string, { requests: number[]; unserved: number; latency: HistogramState }>;
  /** `confusion[actual][predicted]`: number of requests. */
  confusion: number[][];
  /** Number of requests by cell, named `input,output`. */
  cells: Record<string, number>;
  latency: HistogramState[];
}

interface Slot {
  requests: number[];
  unserved: number;
  latency: Histogram;
}

/** The counts of one model. */
export class RequestKindCounts {
  readonly kinds: readonly RequestKind[];
  readonly #slotMs: number;
  readonly slots = new Map<number, Slot>();
  readonly confusion: number[][];
  readonly #cells = new Map<string, number>();
  readonly latency: Histogram[];

  constructor(kinds: readonly RequestKind[], slotMs: number) {
    this.kinds = kinds;
    this.#slotMs = slotMs;
    this.confusion = kinds.map(() => kinds.map(() => 0));
    this.latency = Array.from({ length: Math.max(1, kinds.length) }, () => new Histogram());
  }

  #slot(number: number): Slot {
    const known = this.slots.get(number);
    if (known !== undefined) return known;
    const made = { requests: this.latency.map(() => 0), unserved: 0, latency: new Histogram() };
    this.slots.set(number, made);
    return made;
  }

  add({ arrivedAt, prompt: input, completion: output, totalMs, failed, judged }: KindRow): void {
    const slot = this.#slot(Math.floor(arrivedAt / this.#slotMs));
    const judgedAt = this.kinds.findIndex(({ name }) => name === judged);
    const nearest = nearestKind(this.kinds, { input, output });
    const truth = nearest === undefined ? 0 : this.kinds.indexOf(nearest);
    const kind = failed && judgedAt >= 0 ? judgedAt : truth;
    slot.requests[kind] = (slot.requests[kind] ?? 0) + 1;
    if (failed) return;
    const row = this.confusion[truth];
    if (row !== undefined && judgedAt >= 0) row[judgedAt] = (row[judgedAt] ?? 0) + 1;
    const cell = `${cellOf(input)},${cellOf(output)}`;
    this.#cells.set(cell, (this.#cells.get(cell) ?? 0) + 1);
    if (totalMs === undefined) return;
    slot.latency.add(totalMs);
    this.latency[kind]?.add(totalMs);
  }

  addUnserved(at: number, times: number): void {
    this.#slot(Math.floor(at / this.#slotMs)).unserved += times;
  }

  merge(state: KindState): void {
    for (const [number, { requests, unserved, latency }] of Object.entries(state.slots)) {
      const slot = this.#slot(Number(number));
      for (const [k, n] of requests.entries()) slot.requests[k] = (slot.requests[k] ?? 0) + n;
      slot.unserved += unserved;
      slot.latency.merge(latency);
    }
    for (const [t, row] of state.confusion.entries()) {
      const own = this.confusion[t];
      if (own !== undefined) for (const [j, n] of row.entries()) own[j] = (own[j] ?? 0) + n;
    }
    for (const [cell, n] of Object.entries(state.cells)) this.#cells.set(cell, (this.#cells.get(cell) ?? 0) + n);
    for (const [k, latency] of state.latency.entries()) this.latency[k]?.merge(latency);
  }

  state(model: string): KindState {
    const slots = [...this.slots].map(([number, { requests, unserved, latency }]) => {
      return [String(number), { requests, unserved, latency: latency.state() }] as const;
    });
    return {
      model,
      slots: Object.fromEntries(slots),
      confusion: this.confusion,
      cells: Object.fromEntries(this.#cells),
      latency: this.latency.map((one) => one.state()),
    };
  }

  /** Returns the center of each cell, and its number of requests. */
  lengths(): { input: number; output: number; requests: number }[] {
    return [...this.#cells].map(([cell, requests]) => {
      const [input = 0, output = 0] = cell.split(',').map(tokensOf);
      return { input, output, requests };
    });
  }
}

const cellOf = (tokens: number): number =>
  Math.round(Math.log(Math.min(TOKENS_MAX, Math.max(1, tokens))) * CELLS_PER_E);
const tokensOf = (cell: string): number => Math.round(Math.exp(Number(cell) / CELLS_PER_E));
