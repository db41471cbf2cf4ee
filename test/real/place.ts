/** A gateway, and agents that each run the engine that is tried; what is asked of either comes back in one form. */
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { freePort, type Managed } from '../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../support/provider-root.ts';

export interface Replica {
  agent: Managed;
  /** The engine itself, for asking it directly. */
  url: string;
}

export interface Place {
  gateway: Gateway;
  replicas: Replica[];
  /** Vouches for the keys that prompts are sealed to. */
  root: ProviderRoot;
  model: string;
  /** It knows chat; a model that embeds or ranks does not. */
  talks: boolean;
  /** Milliseconds from the agents' start to a node that can be asked, the engine's own loading in it. */
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

/** @param command the engine's, with `{port}` where its port goes */
export async function openPlace(command: readonly string[], count: number, readyMs: number): Promise<Place> {
  const gateway = await Gateway.start();
  const root = await providerRoot('lab');
  const started = performance.now();
  const replicas: Replica[] = [];
  // Engines are told much by their environment: threads, caches, devices.
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
    // One after the other: engines that load together each take the memory of the GPU for theirs.
    await Promise.race([gateway.serving(n + 1, readyMs), ended]);
  }
  const { data } = modelsSchema.parse(await (await fetch(`${replicas[0]?.url}/v1/models`)).json());
  const model = data[0]?.id ?? '';
  const servingAfterMs = performance.now() - started;
  const { status } = await ask({ url: replicas[0]?.url ?? '' }, '/v1/chat/completions', { model, messages: [] });
  return { gateway, replicas, root, model, talks: status !== 404, servingAfterMs };
}

/** A key of its own with what its usage is asked by, so that nobody else's requests are in the count. */
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
  /** Called with the text so far, as it arrives. */
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

/** Requests that the engine works at, by its own metrics. */
export async function running(url: string): Promise<number> {
  const count = await metric(url, '(?:vllm:num_requests_running|sglang:num_running_reqs|llamacpp:requests_processing)');
  if (Number.isNaN(count)) throw new Error('its /metrics does not say how many requests run');
  return count;
}

/** Of all engines behind one port; NaN where there is none of that name. */
export async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const found = [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})?[ \\t]+(\\S+)`, 'gm'))];
  return found.length === 0 ? Number.NaN : found.reduce((sum, [, value]) => sum + Number(value), 0);
}
