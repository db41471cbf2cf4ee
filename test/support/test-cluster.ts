/** A test cluster: a gateway, engines and agents, connected. Most end-to-end tests begin with it. */
import { startAgent } from './agent.ts';
import { type Engine, type EngineOptions, startEngine } from './engine.ts';
import { Gateway, type GatewayOptions } from './gateway.ts';
import { atEnd, type Managed } from './processes.ts';

export const MODEL = 'stand-in/model-1';

interface TestClusterOptions {
  /** Number of nodes, each with its own engine. Default 1. */
  nodes?: number;
  engine?: EngineOptions;
  gateway?: GatewayOptions;
  agentArgs?: string[];
  agentEnv?: Record<string, string>;
}

export interface TestCluster {
  gateway: Gateway;
  /** API key of a user. */
  key: string;
  /** A join token of provider `lab`. */
  token: string;
  engines: Engine[];
  agents: Managed[];
  /** The first engine, for clusters with one. */
  engine: Engine;
  /** The gateway's URL with `/v1`. */
  base: string;
  /** Sends a request to the gateway with the consumer's key; `body` is sent as JSON if it is an object. */
  ask(path: string, body?: unknown, init?: RequestInit): Promise<Response>;
}

export async function openTestCluster(options: TestClusterOptions = {}): Promise<TestCluster> {
  const gateway = await Gateway.start(options.gateway);
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const engines: Engine[] = [];
  const agents: Managed[] = [];
  for (let n = 0; n < (options.nodes ?? 1); n++) {
    const engine = await startEngine({ models: [MODEL], ...options.engine });
    atEnd(() => engine.close());
    engines.push(engine);
    agents.push(
      await startAgent({
        gateways: [gateway.url],
        token,
        engineUrl: engine.url,
        args: options.agentArgs ?? [],
        ...(options.agentEnv === undefined ? {} : { env: options.agentEnv }),
      }),
    );
  }
  await gateway.serving(engines.length);
  const [engine] = engines;
  if (engine === undefined) throw new Error('a test cluster needs at least one node');
  const ask = (path: string, body?: unknown, init: RequestInit = {}) =>
    fetch(`${gateway.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      ...init,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        ...Object.fromEntries(new Headers(init.headers)),
      },
    });
  return { gateway, key, token, engines, agents, engine, base: `${gateway.url}/v1`, ask };
}

/**
 * Sends a good request, after resetting the engine's behavior. Returns 200 if the break did no harm to others,
 * otherwise the response.
 */
export async function stillServes(cluster: TestCluster): Promise<number | string> {
  cluster.engine.control({}, 1);
  const good = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
  const text = await good.text();
  return good.status === 200 ? 200 : `${good.status} ${text}`;
}

/** A chat request's body; `standIn` sets the engine's behavior. */
export function chatBody(standIn: object = {}, more: object = {}): Record<string, unknown> {
  return { model: MODEL, messages: [{ role: 'user', content: 'Say something.' }], stand_in: standIn, ...more };
}

interface ErrorEnvelope {
  message: string;
  type: string;
  param: unknown;
  code: string;
}

/** Reads OpenAI's error envelope; throws if the body has another form. */
export async function envelopeOf(response: Response): Promise<ErrorEnvelope> {
  const text = await response.text();
  const body: unknown = JSON.parse(text);
  if (typeof body !== 'object' || body === null || !('error' in body)) throw new Error(`no envelope: ${text}`);
  const error = body.error;
  if (typeof error !== 'object' || error === null) throw new Error(`no envelope: ${text}`);
  if (!('message' in error && 'type' in error && 'param' in error && 'code' in error))
    throw new Error(`no envelope: ${text}`);
  const { message, type, param, code } = error;
  if (typeof message !== 'string' || typeof type !== 'string' || typeof code !== 'string')
    throw new Error(`no envelope: ${text}`);
  return { message, type, param, code };
}
