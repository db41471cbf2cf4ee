/** What the registry object costs with a thousand nodes; docs/registry.md multiplies these. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { evictDurableObject, runInDurableObject } from '../support/durable.ts';
import { seedToken, TestAgent } from './agent.ts';

const registry = () => env.REGISTRY.getByName('registry');
const NODES = 1000;

async function took<T>(act: () => Promise<T>): Promise<{ ms: number; result: T }> {
  const startedAt = Date.now();
  const result = await act();
  return { ms: Date.now() - startedAt, result };
}

test('a thousand nodes: what they weigh and what they cost', async () => {
  const { token } = await seedToken();
  const gpu = { class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 4 };
  const said = {
    region: 'eu-central',
    host: 'nid001234',
    addresses: ['10.0.12.34:41235'],
    models: [
      {
        id: 'swiss-ai/Apertus-70B-Instruct-2509',
        state: 'ready' as const,
        context_length: 65_536,
        engine: 'vLLM 0.21.0',
      },
    ],
    hardware: { gpus: [gpu], cpus: 288, memory_mib: 875_000 },
    job: { id: '1234567', partition: 'normal', ends_at: '2026-11-21T10:00:00Z' },
  };
  const agents = await Promise.all(Array.from({ length: NODES }, () => TestAgent.join(token)));
  const words = agents.map((agent) => agent.words('SERVING', said));
  const joining = await took(async () => {
    for (const [n, agent] of agents.entries()) await agent.publish(words[n]);
  });
  const whole = await took(() => registry().snapshot(null));
  const entries = whole.result?.entries ?? [];
  expect(entries.length).toBe(NODES);
  const tag = whole.result?.tag ?? null;
  await agents[0]?.publish(agents[0].words('SERVING', { ...said, region: 'eu-north' }));
  const delta = await took(() => registry().snapshot(tag));
  expect(delta.result?.entries.length).toBe(1);
  await new Promise((resolve) => setTimeout(resolve, 500));
  const stored = await runInDurableObject(registry(), (_, { storage }) => storage.sql.databaseSize);
  await evictDurableObject(registry());
  const reload = await took(() => registry().ready());
  expect(reload.result.sessions).toBe(NODES);
  const entry = JSON.stringify(entries[0]).length;
  const ticket = toBase64url(agents[0]?.ticket.bytes ?? new Uint8Array()).length;
  console.log(
    [
      `words of a session ${words[0]?.length} B + ticket ${agents[0]?.ticket.bytes.length} B (${ticket} in a header), shown ${entry} B`,
      `join ${(joining.ms / NODES).toFixed(2)} ms each, one after the other`,
      `whole snapshot ${whole.ms} ms, ${((entry * NODES) / 1e6).toFixed(2)} MB; a change ${delta.ms} ms, ${entry} B`,
      `on disk ${((stored ?? 0) / NODES / 1000).toFixed(2)} KB each; woken with them in ${reload.ms} ms`,
    ].join('\n'),
  );
  expect(reload.ms).toBeLessThan(5_000);
});
