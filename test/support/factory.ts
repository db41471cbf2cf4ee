/** A mock of the autoscaler (`otela-factory`): it speaks the exchange protocol, but starts nothing. */
import { type ExchangeAnswer, type FactoryReport, parseExchangeAnswer } from '../../shared/factory/factory-exchange.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { patience } from './patience.ts';

type Model = FactoryReport['models'][number];

export const coldModel = (id: string, more: Partial<Model> = {}): Model => ({
  id,
  state: 'cold',
  min: 0,
  max: 2,
  pending: 0,
  running: 0,
  ready: 0,
  ...more,
});

export interface MockFactoryOptions {
  url: string;
  token: string;
  name?: string;
  models: Model[];
}

export class MockFactory {
  readonly #options: MockFactoryOptions;
  readonly name: string;
  /** The next report, which tests change. */
  report: Partial<FactoryReport>;
  #after: string | undefined;
  #ended = false;
  readonly #abort = new AbortController();
  #answer: ExchangeAnswer | undefined;
  #listeners = new Set<() => void>();

  constructor(options: MockFactoryOptions) {
    this.#options = options;
    this.name = options.name ?? 'stand-in';
    this.report = { models: options.models };
  }

  /** Sends one exchange with any body. */
  async post(body: unknown, signal: AbortSignal = this.#abort.signal): Promise<Response> {
    const { url, token } = this.#options;
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const init = { method: 'POST', headers, signal };
    return fetch(`${url}/factory/exchange`, { ...init, body: typeof body === 'string' ? body : JSON.stringify(body) });
  }

  whole(more: Partial<FactoryReport> = {}): FactoryReport {
    const empty = { models: [], jobs: [], clusters: [], decisions: [], drain: [] };
    const fixed = { version: 1 as const, factory: this.name, config_revision: 'c0ffee', wait_ms: 0 };
    return { ...empty, ...fixed, ...this.report, ...more };
  }

  /** Sends a report and returns the answer immediately. */
  async tell(more: Partial<FactoryReport> = {}): Promise<ExchangeAnswer> {
    const response = await this.post(this.whole(more));
    if (!response.ok) throw new Error(`exchange: ${response.status} ${await response.text()}`);
    this.#hear(parseExchangeAnswer(await response.json()));
    if (this.#answer === undefined) throw new Error('no answer');
    return this.#answer;
  }

  /** Exchanges reports for demand until `close`. */
  async open(): Promise<this> {
    await this.tell();
    neverRejects(this.#run());
    return this;
  }

  async #run(): Promise<void> {
    while (!this.#ended) {
      try {
        await this.tell({ wait_ms: 20_000, ...(this.#after !== undefined && { after: this.#after }) });
      } catch {
        if (this.#ended) return;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  #hear(answer: ExchangeAnswer): void {
    this.#answer = answer;
    this.#after = answer.revision;
    for (const listener of this.#listeners) listener();
  }

  demandFor(model: string): ExchangeAnswer['demand'][number] | undefined {
    return this.#answer?.demand.find((one) => one.model === model);
  }

  get nodes(): ExchangeAnswer['nodes'] {
    return this.#answer?.nodes ?? [];
  }

  /** Resolves when the last answer of the gateway satisfies `met`. */
  heard(what: string, met: (factory: this) => boolean, withinMs = 10_000): Promise<void> {
    if (met(this)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#listeners.delete(look);
        reject(new Error(`the factory never heard of ${what}; last: ${JSON.stringify(this.#answer)}`));
      }, patience(withinMs));
      const look = () => {
        if (!met(this)) return;
        clearTimeout(timer);
        this.#listeners.delete(look);
        resolve();
      };
      this.#listeners.add(look);
    });
  }

  close(): void {
    this.#ended = true;
    this.#abort.abort();
  }
}
