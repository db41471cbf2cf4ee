/**
 * Agents as processes, each with an ingress, used as by their users: through `otela-agent status` and the key in a
 * file.
 */
import { readFileSync } from 'node:fs';
import { askNetwork, localAgents } from '../../agent/host/control-client.ts';
import type { AgentStatus, NetworkRow } from '../../agent/host/control-protocol.ts';
import { startAgent } from './agent.ts';
import type { Gateway } from './gateway.ts';
import { eventually, type Managed, temporaryDirectory } from './processes.ts';

export interface Status extends AgentStatus {
  network: NetworkRow[];
}

interface IngressAgentOptions {
  gateway: Gateway;
  token: string;
  engineUrl?: string;
  /** An agent of the mesh that it joins; absent: it is the first agent. */
  peer?: IngressAgent;
  args?: string[];
  /** The agent's state directory. After an agent ended, the next agent may use its directory. */
  state?: string;
}

export class IngressAgent {
  readonly process: Managed;
  readonly #env: Record<string, string>;

  private constructor(process: Managed, env: Record<string, string>) {
    this.process = process;
    this.#env = env;
  }

  static async start(options: IngressAgentOptions): Promise<IngressAgent> {
    const { gateway, token, engineUrl, peer, args = [], state } = options;
    const env = { XDG_RUNTIME_DIR: state ?? (await temporaryDirectory('otela-ingress')) };
    const address = await peer?.address();
    const process = await startAgent({
      gateways: [gateway.url],
      token,
      args: ['--mesh', '127.0.0.1', '--ingress', '127.0.0.1:0', ...(address ? ['--peer', address] : []), ...args],
      env,
      ...(engineUrl === undefined ? {} : { engineUrl }),
    });
    const agent = new IngressAgent(process, env);
    await eventually('the agent to be admitted', 20_000, async () => (await agent.status()).admitted || undefined);
    return agent;
  }

  async status(): Promise<Status> {
    const [agent] = await localAgents(this.#env);
    if (agent === undefined) throw this.process.failure('has no status');
    return { ...agent.status, network: await askNetwork(agent) };
  }

  /** Returns the URL of its endpoint, which ends in `/v1`, and the key. */
  async door(): Promise<{ url: string; key: string }> {
    const { ingress } = await this.status();
    if (ingress === undefined) throw this.process.failure('has no ingress');
    return { url: ingress.url, key: readFileSync(ingress.key_file, 'utf8').trim() };
  }

  async usageWaiting(): Promise<number> {
    return (await this.status()).ingress?.usage_waiting ?? 0;
  }

  address(): Promise<string> {
    return eventually('an address of the mesh', 20_000, async () => (await this.status()).mesh?.addresses[0]);
  }

  /** Waits until the agent knows this many serving nodes. */
  async knows(serving: number): Promise<void> {
    await eventually(`${serving} nodes that serve`, 20_000, async () => {
      const { network } = await this.status();
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
