/** Agents as processes with an ingress each, as their user sees them: by `otela-agent status` and the key in a file. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { networkRowSchema, statusSchema } from '../../agent/host/control-protocol.ts';
import { AGENT_MAIN, startAgent } from './agent.ts';
import type { Gateway } from './gateway.ts';
import { eventually, type Managed, temporaryDirectory } from './processes.ts';
import { NODE } from './where.ts';

const statusesSchema = z.array(statusSchema.extend({ network: z.array(networkRowSchema) }));
export type Status = z.infer<typeof statusesSchema>[number];

export interface IngressAgentOptions {
  gateway: Gateway;
  token: string;
  engineUrl?: string;
  /** The first agent of the mesh needs none. */
  peer?: IngressAgent;
  args?: string[];
}

export class IngressAgent {
  readonly process: Managed;
  readonly #env: Record<string, string>;

  private constructor(process: Managed, env: Record<string, string>) {
    this.process = process;
    this.#env = env;
  }

  static async start({ gateway, token, engineUrl, peer, args = [] }: IngressAgentOptions): Promise<IngressAgent> {
    const env = { XDG_RUNTIME_DIR: await temporaryDirectory('otela-ingress') };
    const address = await peer?.address();
    const process = await startAgent({
      gateways: [gateway.url],
      token,
      args: ['--mesh', '127.0.0.1', '--ingress', '127.0.0.1:0', ...(address ? ['--peer', address] : []), ...args],
      env,
      ...(engineUrl === undefined ? {} : { engineUrl }),
    });
    const agent = new IngressAgent(process, env);
    await eventually('the agent to be admitted', 20_000, () => agent.status().session);
    return agent;
  }

  status(): Status {
    const { stdout } = spawnSync(NODE, [AGENT_MAIN, 'status', '--json'], { env: this.#env, encoding: 'utf8' });
    const [status] = statusesSchema.parse(JSON.parse(stdout));
    if (status === undefined) throw this.process.failure('has no status');
    return status;
  }

  get #ingress(): NonNullable<Status['ingress']> {
    const { ingress } = this.status();
    if (ingress === undefined) throw this.process.failure('has no ingress');
    return ingress;
  }

  /** `…/v1` and its key. */
  get door(): { url: string; key: string } {
    const { url, key_file } = this.#ingress;
    return { url, key: readFileSync(key_file, 'utf8').trim() };
  }

  get usageWaiting(): number {
    return this.#ingress.usage_waiting;
  }

  address(): Promise<string> {
    return eventually('an address of the mesh', 20_000, () => this.status().mesh?.addresses[0]);
  }

  /** Waits until it knows of so many live nodes that serve. */
  async knows(serving: number): Promise<void> {
    await eventually(`${serving} nodes that serve`, 20_000, () => {
      const { network } = this.status();
      const live = network.filter(({ state, liveness }) => state === 'SERVING' && liveness === 'alive');
      return live.length === serving ? true : undefined;
    });
  }
}

export function askIngress(
  { url, key }: { url: string; key: string },
  path: string,
  body: unknown,
  init: RequestInit = {},
): Promise<Response> {
  return fetch(`${url}${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    ...init,
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      ...Object.fromEntries(new Headers(init.headers)),
    },
  });
}
