/** Two gateways of one institution, an agent that knows only the primary, and a key. */
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { z } from 'zod';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { limitSince, patience } from '../../support/patience.ts';
import { atEnd, freePort, type Managed, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

export interface Pair {
  first: Gateway;
  follower: Gateway;
  token: string;
  key: string;
  engine: Engine;
  agent: Managed;
}

export const cli = (...args: string[]): string =>
  execFileSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });

interface PairOptions {
  followerArgs?: string[];
  followerEnv?: Record<string, string>;
  /** Whether the agent joins before or after the follower starts. Default: after. */
  agent?: 'before' | 'after';
  /** The address at which the follower reaches the primary. Default: the public one. */
  through?: (first: Gateway) => Promise<string>;
}

export async function openPair(options: PairOptions = {}): Promise<Pair> {
  const firstPort = await freePort();
  const first = await Gateway.start({ port: firstPort, args: ['--url', `http://127.0.0.1:${firstPort}`] });
  const [key, token] = await Promise.all([first.createKey(), first.createJoinToken()]);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const join_ = () => startAgent({ gateways: [first.url], token, engineUrl: engine.url });
  const early = options.agent === 'before' ? await join_() : undefined;
  if (early !== undefined) await first.serving(1);
  const follow = await options.through?.(first);
  const follower = await startFollower(first, options.followerArgs, {
    ...(follow === undefined ? {} : { follow }),
    ...(options.followerEnv === undefined ? {} : { env: options.followerEnv }),
  });
  const agent = early ?? (await join_());
  await first.serving(1);
  await follower.serving(1, 45_000);
  return { first, follower, token, key, engine, agent };
}

export async function startFollower(
  first: Gateway,
  args: string[] = [],
  { follow = first.url, ...more }: { follow?: string; env?: Record<string, string>; main?: string } = {},
): Promise<Gateway> {
  const directory = await temporaryDirectory('otela-identity');
  const identity = join(directory, 'gw2.json');
  await writeFile(identity, cli('issuer', 'delegate', '--data', first.data), { mode: 0o600 });
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  return Gateway.start({ port, args: ['--follow', follow, '--url', url, '--identity', identity, ...args], ...more });
}

export function chat(gateway: Gateway, key: string, standIn: object = {}): Promise<Response> {
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody(standIn)),
  });
}

/** Sends a request and resolves with its status when the whole response was read. */
export async function asked(gateway: Gateway, key: string): Promise<number> {
  const response = await chat(gateway, key, { tokens: 2 });
  await response.text();
  return response.status;
}

const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number(), completion_tokens: z.number() })) });

/** Requests that a gateway has on record today. */
export async function booked(gateway: Gateway): Promise<number> {
  const { data } = totalsSchema.parse(await gateway.admin('GET', 'usage'));
  return data.reduce((sum, { requests }) => sum + requests, 0);
}

/** Asserts that about as many requests since `askedAt` were allowed as a limit of `limit` a minute allows. */
export function requireLimit(statuses: readonly number[], limit: number, askedAt: number): void {
  const passed = statuses.filter((status) => status === 200).length;
  expect(passed).toBeGreaterThanOrEqual(limit);
  expect(passed).toBeLessThanOrEqual(limitSince(limit, askedAt));
}
