/** A gateway, and agents that each run the engine under test; responses of both have one form. */
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { freePort, type Managed } from '../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../support/provider-root.ts';

export interface Replica {
  agent: Managed;
  /** The engine itself, for direct requests. */
  url: string;
}

export interface Place {
  gateway: Gateway;
  replicas: Replica[];
  /** Certifies the keys that prompts are sealed to. */
  root: ProviderRoot;
  model: string;
  /** True if the model supports chat; false if it embeds or ranks. */
  talks: boolean;
  /** Milliseconds from the agents' start until a node can be called, including the engine's loading time. */
  servingAfterMs: number;
}

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  /** Milliseconds to the first byte of the body. */
  firstMs: number;
  endMs: number;
}

export interface Target {
  url: string;
  key?: string;
}

/** The engine itself, and the gateway. */
export function targets({ gateway, replicas }: Place, key: string): { direct: Target; through: Target } {
  return { direct: { url: replicas[0]?.url ?? '' }, through: { url: gateway.url, key } };
}

const modelsSchema = z.object({ data: z.array(z.object({ id: z.string() })).min(1) });

/** @param command the engine's command line, with `{port}` in place of its port */
export async function openPlace(command: readonly string[], count: number, readyMs: number): Promise<Place> {
  const gateway = await Gateway.start();
  const root = await providerRoot('lab');
  const started = performance.now();
  const replicas: Replica[] = [];
  // The environment configures much of an engine: threads, caches, devices.
  const env = Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
  for (let n = 0; n < count; n++) {
    const port = await freePort();
    const agent = await startAgent({
      gateways: [gateway.url],
      token: await gateway.createJoinToken(),
      command: command.map((word) => word.replaceAll('{port}', String(port))),
      args: ['--engine-port', String(port), '--delegate-file', root.delegateFile],
      env,
    });
    const ended = agent.exited.then(({ code, signal }) => {
      console.error(`agent ${agent.pid} ended: ${signal ?? code}`);
      throw new Error(`an engine did not come up\n${agent.output}`);
    });
    ended.catch(() => undefined);
    replicas.push({ agent, url: `http://127.0.0.1:${port}` });
    // One after the other, because engines that load together would each claim the GPU's memory.
    await Promise.race([gateway.serving(n + 1, readyMs), ended]);
  }
  const { data } = modelsSchema.parse(await (await fetch(`${replicas[0]?.url}/v1/models`)).json());
  const model = data[0]?.id ?? '';
  const servingAfterMs = performance.now() - started;
  const { status } = await ask({ url: replicas[0]?.url ?? '' }, '/v1/chat/completions', { model, messages: [] });
  return { gateway, replicas, root, model, talks: status !== 404, servingAfterMs };
}

/** A separate key, and the id to query its usage with, so that no other requests are counted. */
export async function newKey(gateway: Gateway): Promise<{ id: string; key: string }> {
  return z
    .object({ id: z.string(), key: z.string() })
    .parse(await gateway.admin('POST', 'keys', { name: 'real engine' }));
}

const totalsSchema = z.object({
  data: z.array(
    z.object({
      requests: z.number(),
      aborted: z.number(),
      estimated: z.number(),
      prompt_tokens: z.number(),
      completion_tokens: z.number(),
    }),
  ),
});

export async function usageOf(gateway: Gateway, keyId: string) {
  return totalsSchema.parse(await gateway.admin('GET', `usage?group_by=key&key=${keyId}`)).data[0];
}

export interface AskOptions {
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Called with the text until now, as it arrives. */
  onText?: (text: string) => void;
}

export async function ask(target: Target, path: string, body: object, options: AskOptions = {}): Promise<Answer> {
  const started = performance.now();
  const response = await fetch(target.url + path, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(target.key === undefined ? {} : { authorization: `Bearer ${target.key}` }),
      ...options.headers,
    },
    body: JSON.stringify(body),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  let text = '';
  let firstMs: number | undefined;
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    firstMs ??= performance.now() - started;
    text += decoder.decode(piece, { stream: true });
    options.onText?.(text);
  }
  const endMs = performance.now() - started;
  return { status: response.status, headers: response.headers, text, firstMs: firstMs ?? endMs, endMs };
}

/** Running requests of the engine, by its own metrics. */
export async function running(url: string): Promise<number> {
  const count = await metric(url, '(?:vllm:num_requests_running|sglang:num_running_reqs|llamacpp:requests_processing)');
  if (Number.isNaN(count)) throw new Error('its /metrics does not say how many requests run');
  return count;
}

/** Sum over all engines behind one port; NaN if there is no metric of that name. */
export async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const found = [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})?[ \\t]+(\\S+)`, 'gm'))];
  return found.length === 0 ? Number.NaN : found.reduce((sum, [, value]) => sum + Number(value), 0);
}
