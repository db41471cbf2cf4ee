/**
 * The Worker on Cloudflare's local runtime with objects that a test can evict, and with real agents' tunnels in this
 * process.
 */
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { createTestHarness, unstable_readConfig } from 'wrangler';
import { z } from 'zod';
import { openTunnel } from '../../../agent/tunnel/tunnel.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal } from '../../../agent/tunnel/tunnel-types.ts';
import type { NodeRecord, ServedModel } from '../../../shared/lattice/node-record.ts';
import type { Ticket } from '../../../shared/lattice/ticket.ts';
import { type Engine, type EngineOptions, startEngine } from '../engine.ts';
import { atEnd, eventually } from '../processes.ts';
import { MODEL } from '../test-cluster.ts';
import { ROOT } from '../where.ts';
import { TestIssuer, wordsOf } from './identities.ts';
import { Path } from './path.ts';

/** How lines about requests and nodes begin in the log, inside a message that is a JSON string. */
const EVENT_LINES = ['request', 'node_left', 'cluster_'].map((event) => `{\\"event\\":\\"${event}`);

const usageSchema = z.object({
  requestId: z.string(),
  attempt: z.number(),
  stream: z.number(),
  prompt: z.number(),
  completion: z.number(),
  estimated: z.boolean(),
  complete: z.boolean(),
  aborted: z.boolean(),
  receipt: z.string(),
});
type StoredUsage = z.infer<typeof usageSchema>;

const nodesSchema = z.object({ data: z.array(z.object({ session: z.string(), suspected: z.boolean() })) });
const createdSchema = z.object({ key: z.string().optional(), token: z.string().optional() });

/** One node: an engine, a tunnel in this process, and the path between tunnel and gateway. */
export interface Bench {
  session: string;
  ticket: Ticket;
  engine: Engine;
  tunnel: Tunnel;
  path: Path;
  log: string[];
  refusals: TunnelRefusal[];
  record: NodeRecord;
  /** Ends the agent's side; idempotent. */
  close(): Promise<void>;
}

export interface TunnelBench {
  url: URL;
  key: string;
  token: string;
  /** The issuer with the gateway's keys. */
  issuer: TestIssuer;
  admin(method: string, path: string, body?: unknown): Promise<unknown>;
  ask(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  /**
   * Like `ask`, but without the proxy that wrangler puts in front of its runtime. For some clients that disconnect,
   * this proxy only sends a FIN to the runtime and keeps its end open without reading, so that the Worker writes into a
   * connection that looks healthy.
   */
  askStraight(path: string, body: unknown, signal: AbortSignal): Promise<Pick<Response, 'status' | 'body'>>;
  /** `facts`: the node's claims about its models. */
  addNode(options?: EngineOptions, tunnel?: Partial<TunnelOptions>, facts?: Partial<ServedModel>): Promise<Bench>;
  /** Evicts the object from memory; waits until it is idle. */
  evict(bench: Bench, webSockets: 'hibernate' | 'close'): Promise<void>;
  /** Ends the object immediately, even in the middle of its work. */
  crash(bench: Bench): Promise<void>;
  /** The usage records that the session's object has stored, newest first. */
  usage(node: Pick<Bench, 'session'>): Promise<StoredUsage[]>;
  /** Queries the database of the session's object. */
  rows(node: Pick<Bench, 'session'>, query: string): Promise<unknown[]>;
  /** Waits until this many records are stored. */
  settled(node: Pick<Bench, 'session'>, count: number, withinMs?: number): Promise<StoredUsage[]>;
  /** Waits until the object has nothing open and nothing to settle, because only then it can be evicted. */
  rest(bench: Bench): Promise<void>;
  restOf(session: string): Promise<void>;
  /** One sample of /metrics, by its name and labels as they are written there; undefined: it is not on the page. */
  metric(sample: string): Promise<number | undefined>;
  /** Returns the sessions that the registry suspects. */
  suspected(): Promise<string[]>;
  /** Waits until the Worker has a newer view of the registry than now. */
  refreshed(): Promise<void>;
  /** Returns the log without the lines about requests, nodes that left, and clusters. */
  logs(): string[];
}

export function nodeRecord(models: string[] = [MODEL], facts: Partial<ServedModel> = {}): NodeRecord {
  return {
    state: 'SERVING',
    version: 1,
    tier: 'stable',
    labels: {},
    models: models.map((id) => ({ state: 'ready', ...facts, id })),
    hardware: { gpus: [], cpus: 2, memory_mib: 1024 },
    agent_version: 'test',
  };
}

/** wrangler.toml with another entry point, a file of test/gateway/support. */
async function configuration(vars: Record<string, string>, main: string) {
  const config = unstable_readConfig({ config: join(ROOT, 'wrangler.toml') });
  const {
    name,
    compatibility_date = '',
    compatibility_flags,
    durable_objects,
    migrations,
    d1_databases,
    r2_buckets,
  } = config;
  return {
    name: name ?? 'gateway',
    main: join(ROOT, 'test/gateway/support', main),
    compatibility_date,
    compatibility_flags,
    durable_objects,
    migrations,
    r2_buckets,
    d1_databases: d1_databases.map((database: object) => ({ ...database, migrations_dir: join(ROOT, 'migrations') })),
    vars,
  };
}

export async function openTunnelBench(
  vars: Record<string, string> = {},
  main = 'crashable-worker.ts',
): Promise<TunnelBench> {
  process.env.CLOUDFLARE_CF_FETCH_ENABLED = 'false';
  process.env.WRANGLER_SEND_METRICS = 'false';
  process.env.WRANGLER_SEND_ERROR_REPORTS = 'false';
  process.env.WRANGLER_HIDE_BANNER = 'true';
  const adminKey = `sk-otela-${randomBytes(24).toString('hex')}`;
  const hash = createHash('sha256').update(adminKey).digest('hex');
  const issuer = new TestIssuer();
  const server = createTestHarness({
    root: ROOT,
    workers: [{ config: await configuration({ ADMIN_KEY_SHA256: hash, ...issuer.vars, ...vars }, main) }],
  });
  const { url } = await server.listen();
  atEnd(() => server.close());
  const worker = server.getWorker();
  // Miniflare may send on a connection that workerd just closed; applied migrations are not applied again.
  await eventually('the migrations', 30_000, async () => {
    await worker.applyD1Migrations('DB');
    return true;
  });
  const admin = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(new URL(`/admin/${path}`, url), {
      method,
      headers: { authorization: `Bearer ${adminKey}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  await admin('PATCH', 'settings', { queue: { unary_ms: 0, stream_ms: 0 } }); // a request without a node is refused immediately
  const { key = '' } = createdSchema.parse(await admin('POST', 'keys', { name: 'test' }));
  const { token = '' } = createdSchema.parse(
    await admin('POST', 'join-tokens', { provider: 'lab', cluster: 'testbed' }),
  );
  const posted = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'accept-encoding': 'identity' };
  const ask = (path: string, body: unknown, init: RequestInit = {}) =>
    fetch(new URL(path, url), {
      method: 'POST',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...init,
      headers: { ...posted, ...Object.fromEntries(new Headers(init.headers)) },
    });
  const rows = async ({ session }: Pick<Bench, 'session'>, query: string): Promise<unknown[]> => {
    const storage = await worker.getDurableObjectStorage('TUNNEL', { name: session });
    return storage.exec(query);
  };
  const usage = async (node: Pick<Bench, 'session'>): Promise<StoredUsage[]> => {
    const stored = await rows(node, 'SELECT record FROM usage ORDER BY stream DESC');
    return stored.map((row) => usageSchema.parse(JSON.parse(String(Object(row).record))));
  };
  return {
    url,
    key,
    token,
    issuer,
    admin,
    ask,
    askStraight: (path, body, signal) =>
      worker.fetch(new URL(path, url), { method: 'POST', body: JSON.stringify(body), headers: posted, signal }),
    addNode: (options, tunnel, facts) => addNode(url, issuer, key, options, tunnel, facts),
    rows,
    evict: (bench, webSockets) => worker.evictDurableObject('TUNNEL', { name: bench.session, webSockets }),
    crash: async (bench) => {
      await fetch(new URL(`/__crash/${bench.session}`, url), { method: 'POST' });
    },
    usage,
    settled: (node, count, withinMs = 5_000) =>
      eventually(`${count} usage records`, withinMs, async () => {
        const stored = await usage(node);
        return stored.length >= count ? stored : undefined;
      }),
    rest: (bench) => worker.evictDurableObject('TUNNEL', { name: bench.session, webSockets: 'hibernate' }),
    restOf: (session) => worker.evictDurableObject('TUNNEL', { name: session, webSockets: 'hibernate' }),
    metric: async (sample) => {
      const response = await fetch(new URL('/metrics', url), { headers: { authorization: `Bearer ${adminKey}` } });
      const line = (await response.text()).split('\n').find((one) => one.startsWith(`${sample} `));
      return line === undefined ? undefined : Number(line.slice(sample.length + 1));
    },
    suspected: async () => {
      const response = await fetch(new URL('/v1/registry/nodes', url), { headers: { authorization: `Bearer ${key}` } });
      const { data } = nodesSchema.parse(await response.json());
      return data.filter(({ suspected }) => suspected).map(({ session }) => session);
    },
    refreshed: async () => {
      const headers = { authorization: `Bearer ${key}` };
      for (const pauseMs of [600, 300]) {
        await fetch(new URL('/v1/registry/nodes', url), { headers });
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    },
    logs: () =>
      server
        .getLogs()
        .map((log) => JSON.stringify(log))
        .filter((line) => !EVENT_LINES.some((begin) => line.includes(begin))),
  };
}

async function addNode(
  url: URL,
  issuer: TestIssuer,
  key: string,
  options: EngineOptions = {},
  more: Partial<TunnelOptions> = {},
  facts: Partial<ServedModel> = {},
): Promise<Bench> {
  const engine = await startEngine({ models: [MODEL], ...options });
  const path = await Path.open(url);
  const identity = issuer.identity({ cluster: 'testbed' });
  const log: string[] = [];
  const refusals: TunnelRefusal[] = [];
  const record = nodeRecord(options.models, facts);
  const tunnel = openTunnel({
    gateway: path.url,
    ticket: identity.ticket.bytes,
    identity,
    update: () => wordsOf(identity, record),
    engine: () => ({ origin: engine.url, pathPrefix: '' }),
    log: (line) => log.push(line),
    onRefused: (refusal) => refusals.push(refusal),
    ...more,
  });
  let closed: Promise<void> | undefined;
  const close = () => {
    closed ??= (async () => {
      await tunnel.close();
      await path.close();
      await engine.close();
    })();
    return closed;
  };
  atEnd(close);
  await eventually('the node is registered', 10_000, async () => {
    const response = await fetch(new URL('/v1/registry/nodes', url), { headers: { authorization: `Bearer ${key}` } });
    return (await response.text()).includes(identity.session) ? true : undefined;
  });
  return { session: identity.session, ticket: identity.ticket, engine, tunnel, path, log, refusals, record, close };
}
