/** An operator's requests to a running gateway over HTTP, on any host. */
import { z } from 'zod';
import { eventually } from './processes.ts';

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

export class GatewayClient {
  url: string;
  adminKey: string;

  constructor(url: string, adminKey: string) {
    this.url = url;
    this.adminKey = adminKey;
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

  /** Waits until exactly `count` nodes are routable (with `model`, if given). */
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

  /** Sum of a metric's samples with labels that begin with `labels`: `{gen_ai_request_model="m"`. */
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
}
