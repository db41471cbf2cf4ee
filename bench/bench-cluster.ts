/**
 * The processes of a benchmark: engine, gateway, and an agent whose tunnel runs through a splice that counts its bytes.
 */
import { join } from 'node:path';
import { startAgent } from '../test/support/agent.ts';
import { Gateway, type GatewayOptions } from '../test/support/gateway.ts';
import { memoryOf } from '../test/support/process-table.ts';
import { freePort, Managed } from '../test/support/processes.ts';
import { NODE, ROOT } from '../test/support/where.ts';
import { Client, post, type Target } from './client.ts';
import { MODEL } from './engine-answers.ts';

const READY_MS = 15_000;

export interface BenchCluster {
  gateway: Gateway;
  agent: Managed;
  key: string;
  direct: Target;
  through: Target;
}

export async function startEngine(
  prefix: string[] = [],
  host = '127.0.0.1',
  port = 0,
): Promise<{ process: Managed; url: string }> {
  const command = [...prefix, NODE, join(ROOT, 'bench/engine.ts'), '--host', host, '--port', String(port)];
  const engine = new Managed(command, { label: 'bench engine' });
  const [, url = ''] = await engine.line(/bench engine ready (\S+)/, READY_MS);
  return { process: engine, url };
}

/** `tunnel`: the address to which the agent connects instead of the gateway's. `options.env` is for both. */
export async function openBenchCluster(
  tunnel?: (gatewayPort: number) => Promise<string>,
  options: GatewayOptions = {},
): Promise<BenchCluster> {
  const { url } = await startEngine();
  const gateway = await Gateway.start({ ...options, port: await freePort() });
  const [key, token] = await Promise.all([gateway.createKey('bench'), gateway.createJoinToken()]);
  const dialled = tunnel === undefined ? gateway.url : await tunnel(gateway.port);
  const { env = {} } = options;
  const agent = await startAgent({ gateways: [dialled], token, engineUrl: url, env });
  await gateway.serving(1, READY_MS, MODEL);
  return { gateway, agent, key, direct: { url }, through: { url: gateway.url, key } };
}

export const PATH = '/v1/chat/completions';

/** A chat request's body, about as long as a short question. `bench`: what the engine must do; see engine.ts. */
export function chat(bench: string, more: object = {}): Record<string, unknown> {
  const content = `What is the boiling point of water at the top of the Matterhorn? [bench ${bench}]`;
  return { model: MODEL, messages: [{ role: 'user', content }], ...more };
}

export function request(target: Target, bench: string, more: object = {}): Buffer {
  return post(target, PATH, chat(bench, more));
}

/** Fills caches and compiles code, so that the steady state is measured afterwards. */
export async function warm(target: Target, requests: number): Promise<void> {
  const unary = request(target, 'unary');
  const stream = request(target, 'stream 16 0', { stream: true });
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      const client = new Client(target);
      for (let n = 0; n < requests / 8; n++) {
        const timing = await client.ask(n % 4 === 0 ? stream : unary);
        if (timing.status !== 200) throw new Error(`${target.url} answers ${timing.status}`);
      }
      client.close();
    }),
  );
}

export interface Memory {
  gateway: number;
  agent: number;
}

/** Resident memory of gateway and agent, in MiB. */
export function resident(cluster: BenchCluster): Memory {
  return {
    gateway: memoryOf(cluster.gateway.process.pid).rssMib,
    agent: memoryOf(cluster.agent.pid).rssMib,
  };
}

/** Maximum resident memory of gateway and agent while `act` runs, in MiB. */
export async function peak(cluster: BenchCluster, act: () => Promise<void>): Promise<Memory> {
  const most = resident(cluster);
  const look = () => {
    const now = resident(cluster);
    for (const name of ['gateway', 'agent'] as const) most[name] = Math.max(most[name], now[name]);
  };
  const timer = setInterval(look, 100);
  await act();
  clearInterval(timer);
  look();
  return most;
}
