import { createServer, type Server } from 'node:http';

/**
 * A mock gateway: `/v1/registry/nodes` and `/admin/workload` with a gateway's responses; requests to
 * `/admin/routing/{model}` are only recorded.
 */
export class StandInGateway {
  nodes: object[] = [];
  workload: object[] = [];
  windowMs: number | undefined;
  weights: { path: string; body: unknown }[] = [];
  down = false;
  url = '';
  readonly #server: Server = createServer((request, response) => {
    const answer = (status: number, body: unknown) =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (this.down) return answer(503, { error: {} });
    if (request.headers.authorization !== 'Bearer operator-key') return answer(401, { error: {} });
    if (request.url === '/v1/registry/nodes') return answer(200, { object: 'list', data: this.nodes });
    if (request.url?.startsWith('/admin/workload?window=') === true)
      return answer(200, { object: 'list', window_ms: this.windowMs, data: this.workload });
    if (request.method === 'PUT' && request.url?.startsWith('/admin/routing/')) {
      let text = '';
      request.on('data', (chunk: Buffer) => (text += chunk.toString()));
      request.on('end', () => {
        this.weights.push({ path: request.url ?? '', body: JSON.parse(text) });
        answer(200, {});
      });
      return;
    }
    answer(404, {});
  });

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const address = this.#server.address();
    this.url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** A row of `/v1/registry/nodes`: four A100 that serve nothing. */
export const node = (session: string, changes: object = {}) => ({
  session,
  issuer: 'local',
  state: 'SERVING',
  suspected: false,
  provider: 'p',
  cluster: 'c',
  tier: 'volatile',
  labels: {},
  models: [] as object[],
  hardware: {
    gpus: Array.from({ length: 4 }, () => ({ class: 'A100', name: 'NVIDIA A100-SXM4-80GB', vram_mib: 81_920 })),
    cpus: 64,
    memory_mib: 1,
  },
  joined_at: '2026-01-01T00:00:00Z',
  updated_at: '2026-01-01T00:00:00Z',
  ...changes,
});

/** A node that has one model ready; `job`: the Slurm job in which it claims to run. */
export const serving = (session: string, model: string, job?: string) =>
  node(session, { models: [{ id: model, state: 'ready' }], ...(job === undefined ? {} : { job: { id: job } }) });
