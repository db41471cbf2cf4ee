/** A gateway with agents, each with its own bench engine, and OpenAI's client. */
import OpenAI, { toFile } from 'openai';
import { Pool } from 'undici';
import { startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { freePort, type Managed } from '../../test/support/processes.ts';
import { chat, PATH, startEngine } from '../bench-cluster.ts';
import { MODEL } from '../engine-answers.ts';

const READY_MS = 60_000;

export interface BatchCluster {
  gateway: Gateway;
  client: OpenAI;
  key: string;
  token: string;
  urls: string[];
  agents: Managed[];
  engines: Managed[];
}

export async function openBatchCluster(nodes: number, agentArgs: string[] = []): Promise<BatchCluster> {
  const gateway = await Gateway.start({ port: await freePort() });
  const [key, token] = await Promise.all([gateway.createKey('bench'), gateway.createJoinToken()]);
  const cluster: BatchCluster = {
    gateway,
    key,
    token,
    client: new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0, timeout: 300_000 }),
    urls: [],
    agents: [],
    engines: [],
  };
  for (let i = 0; i < nodes; i++) await startNode(cluster, agentArgs);
  return cluster;
}

/** Adds an agent with its own engine. */
export async function startNode(cluster: BatchCluster, args: string[] = []): Promise<void> {
  const { gateway, token } = cluster;
  const { url, process } = await startEngine();
  cluster.urls.push(url);
  cluster.engines.push(process);
  cluster.agents.push(await startAgent({ gateways: [gateway.url], token, engineUrl: url, args }));
  await gateway.serving(cluster.agents.length, READY_MS, MODEL);
}

/** @param bench what the engine must do; see bench/engine.ts */
export function linesOf(count: number, bench: string): string {
  const body = chat(bench);
  const line = (i: number) => JSON.stringify({ custom_id: `line-${i}`, method: 'POST', url: PATH, body });
  return Array.from({ length: count }, (_, i) => line(i)).join('\n');
}

export async function upload(client: OpenAI, text: string): Promise<string> {
  return (await client.files.create({ file: await toFile(Buffer.from(text), 'bench.jsonl'), purpose: 'batch' })).id;
}

export async function begin(client: OpenAI, file: string): Promise<string> {
  return (await client.batches.create({ input_file_id: file, endpoint: PATH, completion_window: '24h' })).id;
}

/** Resolves with the batch when `enough` returns true. @throws Error if the batch failed */
export async function watch(
  client: OpenAI,
  id: string,
  enough: (batch: OpenAI.Batch) => boolean,
): Promise<OpenAI.Batch> {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (enough(batch)) return batch;
    if (batch.status === 'failed') throw new Error(JSON.stringify(batch.errors));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export const isOver = ({ status }: OpenAI.Batch) => ['completed', 'cancelled', 'expired'].includes(status);

/** Lines per second of a batch, from its creation to its files. */
export async function through(client: OpenAI, file: string, lines: number): Promise<number> {
  const startedAt = performance.now();
  const batch = await watch(client, await begin(client, file), isOver);
  if (batch.request_counts?.completed !== lines) throw new Error(`not all lines: ${JSON.stringify(batch)}`);
  return lines / ((performance.now() - startedAt) / 1_000);
}

/** Lines per second if a client sends them directly to the engines. `inFlight`: concurrent lines at each engine. */
export async function direct(
  urls: readonly string[],
  lines: number,
  { bench, inFlight }: { bench: string; inFlight: number },
): Promise<number> {
  const text = JSON.stringify(chat(bench));
  const headers = { 'content-type': 'application/json' };
  const pools = urls.map((url) => new Pool(url, { connections: inFlight, pipelining: 1 }));
  let next = 0;
  const worker = async (pool: Pool) => {
    while (next++ < lines) {
      const answer = await pool.request({ method: 'POST', path: PATH, headers, body: text });
      JSON.parse(await answer.body.text());
    }
  };
  const startedAt = performance.now();
  await Promise.all(pools.flatMap((pool) => Array.from({ length: inFlight }, () => worker(pool))));
  const tookS = (performance.now() - startedAt) / 1_000;
  await Promise.all(pools.map((pool) => pool.destroy()));
  return lines / tookS;
}

/** The gateway's memory while something runs, in MiB. */
export async function memoryDuring<T>(
  gateway: Gateway,
  run: () => Promise<T>,
): Promise<{ result: T; before: number; most: number }> {
  const before = gateway.memoryMib();
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, gateway.memoryMib());
  }, 200);
  const result = await run().finally(() => clearInterval(timer));
  return { result, before, most: Math.max(most, gateway.memoryMib()) };
}
