/** Counts the numbers of the paper's summary of its trace: the span, models, users, requests and tokens. */
import type { TraceLine } from './trace-stats.ts';

const DAY_MS = 86_400_000;
/** Maximum users and models that are counted. */
const NAMES_MAX = 1_000_000;

export class TraceSummary {
  readonly #models = new Set<string>();
  readonly #users = new Set<string>();
  #span: { first: number; last: number } | undefined;
  #requests = 0;
  #refused = 0;
  #failed = 0;
  #input = 0;
  #output = 0;

  add(line: TraceLine): void {
    const at = Date.parse(line.timestamp);
    const { first, last } = this.#span ?? { first: at, last: at };
    this.#span = { first: Math.min(first, at), last: Math.max(last, at) };
    if (this.#models.size < NAMES_MAX) this.#models.add(line.model);
    if (typeof line.user === 'string' && line.user !== '' && this.#users.size < NAMES_MAX) this.#users.add(line.user);
    this.#requests += line.requests;
    if (line.attempt === 0) this.#refused += line.requests;
    else if (line.status !== null && (line.status < 200 || line.status >= 400)) this.#failed++;
    this.#input += line.input_tokens;
    this.#output += line.output_tokens;
  }

  /** Returns undefined if there was no line. */
  facts(): Record<string, number> | undefined {
    if (this.#span === undefined) return undefined;
    return {
      days: (this.#span.last - this.#span.first) / DAY_MS,
      models: this.#models.size,
      // A published trace has no users.
      ...(this.#users.size === 0 ? {} : { users: this.#users.size }),
      requests: this.#requests,
      'requests that no engine received': this.#refused,
      'failed requests': this.#failed,
      'input tokens': this.#input,
      'output tokens': this.#output,
      'tokens in all': this.#input + this.#output,
    };
  }
}
