/** A real engine that the checks start, an agent that gets only its URL, and a gateway. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { descendants } from '../../support/process-table.ts';
import { eventually, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { providerRoot } from '../../support/provider-root.ts';
import type { Place } from '../place.ts';
import type { RealEngine } from './real-engine.ts';

/** Time in which an agent finds an engine that is ready. */
const SERVING_MS = 60_000;
/** An agent has read all facts within this time. It reads some facts a minute after the first. */
export const FACTS_MS = 90_000;

export interface EnginePlace extends Place {
  engine: RealEngine;
  /** The engine's port, also of its next process. */
  port: number;
  /** The engine's process; changes with `restart`. */
  process: Managed;
  /** The agent's metrics page. */
  agentMetrics(): Promise<string>;
}

export async function openEnginePlace(engine: RealEngine): Promise<EnginePlace> {
  const port = await freePort();
  const started = performance.now();
  const process = await startEngine(engine, port);
  const gateway = await Gateway.start({ queue: false });
  const metricsUrl = `http://127.0.0.1:${await freePort()}/metrics`;
  const metricsKey = join(await temporaryDirectory('otela-metrics'), 'key');
  await writeFile(metricsKey, 'a-key-of-32-letters-for-this-test', { mode: 0o600 });
  const url = `http://127.0.0.1:${port}`;
  const agent = await startAgent({
    gateways: [gateway.url],
    token: await gateway.createJoinToken(),
    engineUrl: url,
    args: [
      ...['--metrics', new URL(metricsUrl).host, '--metrics-token-file', metricsKey],
      ...(engine.hears ? ['--engine-model', engine.model] : []),
    ],
  });
  await gateway.serving(1, SERVING_MS, engine.model);
  return {
    engine,
    port,
    process,
    gateway,
    replicas: [{ agent, url }],
    root: await providerRoot('lab'),
    model: engine.model,
    talks: engine.hears !== true,
    servingAfterMs: performance.now() - started,
    agentMetrics: async () => {
      const headers = { authorization: 'Bearer a-key-of-32-letters-for-this-test' };
      return await (await fetch(metricsUrl, { headers })).text();
    },
  };
}

/** Starts the engine, and waits until it answers one request, because some engines load their model for the first one. */
async function startEngine(engine: RealEngine, port: number): Promise<Managed> {
  const { argv, env } = await engine.command(port);
  const process = new Managed(argv, { label: engine.name, env: { ...env, ...quiet } });
  const url = `http://127.0.0.1:${port}`;
  await eventually(`${engine.name} at ${url}`, engine.readyMs, async () => {
    if (!process.running) throw process.failure('ended');
    const answered = await fetch(`${url}${engine.hears ? '/health' : '/v1/models'}`).then(
      ({ ok }) => ok,
      () => false,
    );
    return answered ? true : undefined;
  });
  await engine.prepare?.(url);
  if (engine.hears) return process; // its health page waits for the model
  await eventually(`an answer of ${engine.name}`, engine.readyMs, async () => {
    const body = { model: engine.model, messages: [{ role: 'user', content: 'hi' }], max_tokens: 1 };
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    await response.text();
    return true;
  });
  return process;
}

/** Engines load nothing from outside, and send nothing. */
const quiet = { HF_HUB_OFFLINE: '1', TRANSFORMERS_OFFLINE: '1', VLLM_NO_USAGE_STATS: '1', DO_NOT_TRACK: '1' };

/** Kills the engine with all its processes. */
export async function killEngine({ process }: EnginePlace): Promise<void> {
  const family = [process.pid, ...descendants(process.pid)];
  for (const pid of family) {
    try {
      globalThis.process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended with its parent.
    }
  }
  await process.exited;
}

export async function restartEngine(place: EnginePlace): Promise<void> {
  place.process = await startEngine(place.engine, place.port);
}

const recordSchema = z.object({ models: z.array(z.looseObject({ id: z.string() })) });

/** The model as the registry has it, with all its facts. */
export async function registered({ gateway, model }: EnginePlace): Promise<Record<string, unknown> | undefined> {
  const headers = { authorization: `Bearer ${gateway.adminKey}` };
  const response = await fetch(`${gateway.url}/v1/registry/nodes`, { headers });
  const { data } = z.object({ data: z.array(recordSchema) }).parse(await response.json());
  return data.flatMap(({ models }) => models).find(({ id }) => id === model);
}
