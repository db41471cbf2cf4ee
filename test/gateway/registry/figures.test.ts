/** How many nodes the registry can send to a new isolate: its whole copy is one message between objects. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { RegistryObject } from '../../../gateway/registry/registry-object.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { seedToken, TestAgent } from './agent.ts';

const registry = () => env.REGISTRY.getByName('registry');
/** The number that README.md and docs/design/gossip.md promise. */
const NODES = 30_000;

test('thirty thousand nodes, each with all that an agent tells, fit one message to a new isolate', async () => {
  const { token } = await seedToken();
  const gpu = { class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 4 };
  const agent = await TestAgent.join(token);
  await agent.publish(
    agent.words('SERVING', {
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
    }),
  );
  const one = await registry().snapshot(null);
  const [entry] = one?.entries ?? [];
  if (one === null || entry === undefined) throw new Error('the registry tells of no node');
  expect(entry.state).toBe('SERVING');
  // Each is a separate object, like thirty thousand sessions: a repeated object would be sent as a reference.
  const copyOf = (n: number): RegistryEntry => ({
    ...structuredClone(entry),
    session: `${'a'.repeat(20)}${100_000 + n}`,
  });
  const told = RegistryObject.prototype.snapshot;
  RegistryObject.prototype.snapshot = async () => ({
    ...one,
    entries: Array.from({ length: NODES }, (_, n) => copyOf(n)),
  });
  try {
    const whole = await registry().snapshot(null);
    expect(new Set(whole?.entries.map(({ session }) => session)).size).toBe(NODES);
  } finally {
    RegistryObject.prototype.snapshot = told;
  }
});
