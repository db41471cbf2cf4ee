import { createServer, type Server } from 'node:http';
import * as z from 'zod';

/** One session of an agent, as the registry shows it, and its reaction to orders. */
interface Node {
  session: string;
  state: string;
  suspected: boolean;
  labels: Record<string, string>;
  model?: string;
  /** Models that its templates allow. */
  allow: string[];
  refuses?: string;
  /** True: the agent obeys, but its answer is lost. */
  deaf?: boolean;
  /** True: its running requests take long, so it serves until `drained`. */
  drains?: boolean;
  /** True: the agent was ordered to end, and has not ended yet. */
  leaving?: boolean;
}

const orderSchema = z.object({
  id: z.string(),
  template: z.literal('vllm'),
  parameters: z.object({ model: z.string(), tp: z.number().optional() }),
});
const id = (n: number) => `n${String.fromCharCode(97 + n)}`.padEnd(26, 'x');

/**
 * A mock gateway with agents that wait for deployments: it passes orders to them, and they obey, refuse or do not
 * answer.
 */
export class StandInAgents {
  nodes: Node[] = [];
  workload: object[] = [];
  readonly weights: string[] = [];
  /** Kinds of requests that the gateway publishes for every model. */
  kinds: object[] = [];
  readonly asked: string[] = [];
  readonly drainsMs: number[] = [];
  url = '';
  down = false;
  /** If set, every request to end a deployment gets status 404 and this body. */
  notFound: string | undefined;
  #sessions = 0;
  /** Received values of the header `authorization`. */
  readonly keys = new Set<string>();
  readonly #server: Server = createServer((request, response) => {
    let text = '';
    this.keys.add(request.headers.authorization ?? '');
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      if (request.method === 'DELETE' && this.notFound !== undefined)
        return void response.writeHead(404).end(this.notFound);
      const [status, body] = this.#answer(request.method ?? '', request.url ?? '', text);
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const address = this.#server.address();
    this.url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  idle(...allow: string[]): Node {
    const node: Node = {
      session: id(this.#sessions++),
      state: 'JOIN',
      suspected: false,
      labels: { 'otela.accepts': 'vllm' },
      allow,
    };
    this.nodes.push(node);
    return node;
  }

  #answer(method: string, url: string, text: string): [number, object] {
    if (this.down) return [503, { error: {} }];
    if (url === '/v1/registry/nodes') return [200, { data: this.nodes.map(shown) }];
    if (url.startsWith('/admin/workload')) return [200, { window_ms: 600_000, data: this.workload }];
    if (url.startsWith('/admin/routing/')) {
      if (method === 'GET') return this.kinds.length === 0 ? [404, {}] : [200, { weights: [], kinds: this.kinds }];
      this.weights.push(text);
      return [200, {}];
    }
    const [, session, drainMs] = /^\/admin\/nodes\/(\w+)\/deployment(?:\?drain_ms=(\d+))?$/.exec(url) ?? [];
    const node = this.nodes.find((one) => one.session === session);
    if (node === undefined) return [404, {}];
    if (method === 'GET') {
      const model = { type: 'string', allow: node.allow };
      return [200, { offers: [{ template: 'vllm', parameters: { model } }] }];
    }
    if (method === 'DELETE') {
      this.drainsMs.push(Number(drainMs));
      if (node.drains === true) node.leaving = true;
      else this.drained(node);
      return [202, {}];
    }
    return this.#order(node, text);
  }

  drained(node: Node): void {
    this.#follow(node, { labels: { 'otela.accepts': 'vllm' } });
  }

  #order(node: Node, text: string): [number, object] {
    const { id: deployment, parameters } = orderSchema.parse(JSON.parse(text));
    this.asked.push(parameters.model);
    const fits = (pattern: string) => new RegExp(`^${pattern.replace('*', '.*')}$`).test(parameters.model);
    if (!node.allow.some(fits)) return [422, { error: { message: `${parameters.model} is not allowed here` } }];
    if (node.refuses !== undefined)
      return [409, { error: { message: `The agent refused the order (busy): ${node.refuses}.` } }];
    this.#follow(node, { labels: { 'otela.deployment': deployment }, model: parameters.model, state: 'SERVING' });
    return node.deaf ? [504, { error: { message: 'did not answer' } }] : [202, {}];
  }

  #follow(node: Node, next: Partial<Node>): void {
    const { model: _, refuses: __, ...rest } = node;
    node.state = 'LEFT';
    this.nodes.push({ ...rest, session: id(this.#sessions++), state: 'JOIN', ...next });
  }

  /** The models that agents serve because of orders. */
  get running(): string[] {
    return this.nodes.flatMap(({ state, model }) => (state === 'SERVING' && model !== undefined ? [model] : []));
  }
}

const shown = ({ session, state, suspected, labels, model }: Node) => ({
  session,
  state,
  suspected,
  labels,
  provider: 'p',
  cluster: 'c',
  models: model === undefined ? [] : [{ id: model, state: 'ready' }],
  hardware: { gpus: [{ class: 'A100', vram_mib: 81_920, count: 1 }], cpus: 1, memory_mib: 1 },
});
