/**
 * A mock of a gateway's side of `POST /factory/exchange`: the test sets demand and nodes. It delays answers as a
 * gateway does.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import {
  EXCHANGE_MAX_BYTES,
  EXCHANGE_PATH,
  type ExchangeAnswer,
  type FactoryReport,
  type ModelDemand,
  parseReport,
  type ServingNode,
} from '../../../shared/factory/factory-exchange.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { atEnd } from '../processes.ts';

export const TOKEN = `otf_${'t'.repeat(43)}`;

export class MockExchange {
  readonly url: string;
  readonly reports: FactoryReport[] = [];
  /** If set, the status of every answer. */
  status: number | undefined;
  #demand: ModelDemand[] = [];
  #nodes: ServingNode[] = [];
  #revision = 1;
  readonly #changed = new Set<() => void>();

  private constructor(url: string) {
    this.url = url;
  }

  static async open(): Promise<MockExchange> {
    const server = createServer((request, response) => neverRejects(standIn.#handle(request, response)));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const standIn = new MockExchange(`http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`);
    atEnd(() => {
      server.close();
      server.closeAllConnections();
    });
    return standIn;
  }

  /** The newest report. */
  get report(): FactoryReport | undefined {
    return this.reports.at(-1);
  }

  /** Sets the demand of models; absent fields are 0. */
  demand(...demand: (Partial<ModelDemand> & { model: string })[]): void {
    const none = { waiting: 0, oldest_wait_ms: 0, queued: 0, in_flight: 0, busy: 0, ready_replicas: 0 };
    this.#demand = demand.map((one) => ({ ...none, ...one }));
    this.#news();
  }

  nodes(...nodes: ServingNode[]): void {
    if (JSON.stringify(nodes) === JSON.stringify(this.#nodes)) return;
    this.#nodes = nodes;
    this.#news();
  }

  #news(): void {
    this.#revision += 1;
    for (const one of this.#changed) one();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const say = (status: number, body: unknown) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    try {
      if (this.status !== undefined) return say(this.status, { error: { message: 'the stand-in was told to' } });
      if (request.url !== EXCHANGE_PATH || request.method !== 'POST') return say(404, {});
      if (request.headers.authorization !== `Bearer ${TOKEN}`) return say(401, { error: { message: 'no such token' } });
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(Buffer.from(piece));
      const text = Buffer.concat(pieces).toString();
      if (text.length > EXCHANGE_MAX_BYTES) return say(413, {});
      const report = parseReport(JSON.parse(text));
      this.reports.push(report);
      if (report.after === String(this.#revision)) await this.#change(report.wait_ms, response);
      const answer: ExchangeAnswer = {
        version: 1,
        revision: String(this.#revision),
        demand: this.#demand,
        nodes: this.#nodes,
      };
      say(200, answer);
    } catch (error) {
      say(400, { error: { message: String(error) } });
    }
  }

  #change(withinMs: number, response: ServerResponse): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#changed.delete(end);
        resolve();
      };
      const timer = setTimeout(end, withinMs);
      this.#changed.add(end);
      response.on('close', end);
    });
  }
}
