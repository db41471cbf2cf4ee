import { isRecent } from '../../shared/timing/is-recent.ts';

/** Rates are computed over this time. The counts are only in memory, so rates are measured again after a restart. */
const SPAN_MS = 60_000;
const STEP_MS = 5_000;

export class BatchRates {
  /** Counts over time. At most SPAN_MS / STEP_MS + 1 entries. */
  readonly #steps: { at: number; lines: number; tokens: number }[] = [];

  add(now: number, lines: number, tokens: number): void {
    const last = this.#steps.at(-1);
    if (last !== undefined && isRecent(STEP_MS, last.at, now)) {
      last.lines += lines;
      last.tokens += tokens;
    } else this.#steps.push({ at: now, lines, tokens });
    while (this.#steps[0] !== undefined && !isRecent(SPAN_MS, this.#steps[0].at, now)) this.#steps.shift();
  }

  linesPerS(now: number): number {
    return this.#rate(now, 'lines');
  }

  /** Returns the rates and the estimated end. `open`: number of lines without a result. */
  shown(now: number, open: number) {
    const linesPerS = this.#rate(now, 'lines');
    const estimatedEnd = linesPerS > 0 && open > 0 ? Math.ceil(now / 1_000 + open / linesPerS) : null;
    return { linesPerS: round(linesPerS), tokensPerS: round(this.#rate(now, 'tokens')), estimatedEnd };
  }

  #rate(now: number, what: 'lines' | 'tokens'): number {
    const recent = this.#steps.filter(({ at }) => isRecent(SPAN_MS, at, now));
    const [first] = recent;
    if (first === undefined) return 0;
    return recent.reduce((sum, step) => sum + step[what], 0) / (Math.max(1_000, now - first.at) / 1_000);
  }
}

const round = (value: number) => Math.round(value * 10) / 10;
