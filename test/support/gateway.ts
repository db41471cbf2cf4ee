/** A gateway as a process: `node gateway/standalone/node/main.ts serve`, spoken to as its operators do. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { commandOf, descendants, eventually, freePort, Managed, temporaryDirectory } from './processes.ts';
import { NODE, ROOT } from './where.ts';

const READY_MS = 30_000;

export interface GatewayOptions {
  /** Default: a temporary directory. */
  data?: string;
  host?: string;
  /** Default: a free one. */
  port?: number;
  /** More flags of `serve`. */
  args?: string[];
  env?: Record<string, string>;
  /** Default: the program in this clone. */
  main?: string;
  /** How long requests wait for a node, as its settings have it; `false`: not at all. Default: as shipped. */
  queue?: false | Record<string, unknown>;
  /** Before the command, e.g. `ip netns exec gateway`. */
  prefix?: string[];
  /** Where clients reach it, when that is not what it prints. */
  publicHost?: string;
}

const keySchema = z.object({ key: z.string().min(8) });
const tokenSchema = z.object({ token: z.string().min(8) });
const gpuSchema = z.object({ class: z.string(), name: z.string(), vram_mib: z.number() });
const nodeSchema = z.object({
  session: z.string(),
  state: z.string(),
  suspected: z.boolean(),
  provider: z.string(),
  cluster: z.string(),
  tier: z.string(),
  labels: z.record(z.string(), z.string()).optional(),
  models: z.array(z.object({ id: z.string(), state: z.string() })),
  hardware: z.object({ gpus: z.array(gpuSchema), cpus: z.number(), memory_mib: z.number() }),
  job: z.object({ id: z.string(), partition: z.string().optional(), ends_at: z.string().optional() }).optional(),
});
const nodesSchema = z.object({ object: z.literal('list'), data: z.array(nodeSchema) });
export type RegisteredNode = z.infer<typeof nodeSchema>;

export class Gateway {
  readonly #options: GatewayOptions;
  readonly data: string;
  readonly port: number;
  process: Managed;
  url: string;
  adminKey = '';

  private constructor(options: GatewayOptions, data: string, port: number) {
    this.#options = options;
    this.data = data;
    this.port = port;
    this.url = `http://${options.publicHost ?? options.host ?? '127.0.0.1'}:${port}`;
    this.process = this.#spawn();
  }

  static async start(options: GatewayOptions = {}): Promise<Gateway> {
    const data = options.data ?? (await temporaryDirectory('otela-gateway'));
    const port = options.port || (await freePort(options.prefix === undefined ? options.host : '127.0.0.1'));
    const gateway = new Gateway(options, data, port);
    await gateway.#ready();
    const { queue } = options;
    if (queue !== undefined)
      await gateway.admin('PATCH', 'settings', { queue: queue || { unary_ms: 0, stream_ms: 0 } });
    return gateway;
  }

  #spawn(): Managed {
    const { prefix = [], host = '127.0.0.1', args = [], env, main } = this.#options;
    const serve = [main ?? join(ROOT, 'gateway/standalone/node/main.ts'), 'serve'];
    const command = [
      ...prefix,
      NODE,
      ...serve,
      '--port',
      String(this.port),
      '--host',
      host,
      '--data',
      this.data,
      ...args,
    ];
    return new Managed(command, { label: 'gateway', cwd: ROOT, ...(env === undefined ? {} : { env }) });
  }

  async #ready(): Promise<void> {
    const [, scheme = 'http'] = await this.process.line(/otela-gateway ready (https?):\/\/\S+/, READY_MS);
    this.url = this.url.replace(/^https?/, scheme);
    this.adminKey = (await readFile(join(this.data, 'admin.key'), 'utf8')).trim();
  }

  /** Starts it again on the same port and data, after it ended. */
  async restart(): Promise<void> {
    this.process = this.#spawn();
    await this.#ready();
  }

  /** KILL to the whole group: launcher, public socket and workerd at once, as an out-of-memory or a power cut would. */
  async kill9(): Promise<void> {
    this.process.signal('SIGKILL', 'group');
    await this.process.end(5_000);
  }

  /** Process id of the runtime that the Worker runs in. */
  workerd(): number {
    const found = descendants(this.process.pid).find((pid) => /workerd[^ ]* serve/.test(commandOf(pid)));
    if (found === undefined) throw this.process.failure('has no workerd');
    return found;
  }

  async admin(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(`${this.url}/admin/${path}`, {
      method,
      headers: { authorization: `Bearer ${this.adminKey}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} /admin/${path}: ${response.status} ${text}`);
    return text === '' ? undefined : JSON.parse(text);
  }

  async createKey(name = 'test', more: Record<string, unknown> = {}): Promise<string> {
    return keySchema.parse(await this.admin('POST', 'keys', { name, ...more })).key;
  }

  async createProject(name: string): Promise<string> {
    return z.object({ id: z.string() }).parse(await this.admin('POST', 'projects', { name })).id;
  }

  async createJoinToken(provider = 'lab', cluster = 'testbed'): Promise<string> {
    return tokenSchema.parse(await this.admin('POST', 'join-tokens', { provider, cluster })).token;
  }

  async nodes(): Promise<RegisteredNode[]> {
    const headers = { authorization: `Bearer ${this.adminKey}` };
    const response = await fetch(`${this.url}/v1/registry/nodes`, { headers });
    if (!response.ok) throw new Error(`registry: ${response.status} ${await response.text()}`);
    return nodesSchema.parse(await response.json()).data;
  }

  /** Waits until exactly `count` nodes can be routed to (with `model`, if given). */
  serving(count: number, withinMs = 15_000, model?: string): Promise<RegisteredNode[]> {
    return eventually(`${count} serving nodes`, withinMs, async () => {
      const ready = (node: RegisteredNode) =>
        node.state === 'SERVING' &&
        !node.suspected &&
        node.models.some((served) => served.state === 'ready' && (model === undefined || served.id === model));
      const serving = (await this.nodes()).filter(ready);
      return serving.length === count ? serving : undefined;
    });
  }

  /** Sum of a metric's samples, of those whose labels begin so: `{gen_ai_request_model="m"`. */
  async metric(name: string, labels = ''): Promise<number> {
    const response = await fetch(`${this.url}/metrics`, { headers: { authorization: `Bearer ${this.adminKey}` } });
    if (!response.ok) throw new Error(`metrics: ${response.status} ${await response.text()}`);
    return (await response.text())
      .split('\n')
      .filter((line) => line.startsWith(`${name}${labels}`) && /^[{ ]/.test(line.slice(name.length)))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  }

  /** Waits until exactly `count` requests for `model` are in its queue. */
  async queued(count: number, model: string, withinMs = 10_000): Promise<void> {
    const waiting = () => this.metric('otela_queue_waiting', `{gen_ai_request_model="${model}"`);
    await eventually(`${count} in the queue of ${model}`, withinMs, async () =>
      (await waiting()) === count ? true : undefined,
    );
  }

  async stop(): Promise<void> {
    await this.process.stop();
  }
}
