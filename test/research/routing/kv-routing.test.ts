import { expect, it } from 'vitest';
import { ROUTERS, replay } from '../../../research/routing/kv-routing.ts';
import { readMooncake } from '../../../research/routing/mooncake-trace.ts';
import { seeded } from '../../sim/random.ts';

/** Lines of `conversations` with six turns each, all with the same system prompt of a block. */
function trace(conversations: number): string {
  const lines: string[] = [];
  for (let turn = 0; turn < 6; turn++)
    for (let n = 0; n < conversations; n++) {
      const blocks = Array.from({ length: 3 * (turn + 1) }, (_, block) => 1_000 * (n + 1) + block);
      const line = { timestamp: 1_000 * (turn * conversations + n), input_length: 512 * (blocks.length + 1) };
      lines.push(JSON.stringify({ ...line, output_length: 50, hash_ids: [0, ...blocks] }));
    }
  return lines.join('\n');
}

it('conversations are told apart by the blocks that they share beyond the system prompt', () => {
  const requests = readMooncake(trace(20));
  expect(new Set(requests.map(({ conversation }) => conversation)).size).toBe(20);
  expect(() => readMooncake('{"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[]}')).toThrow();
});

it('recognized prompts find their caches as named conversations do, and far more often than by load', () => {
  const fleet = { nodes: 8, blocks: 2_000, blockTokens: 512, prefillRate: 8_000, tokenSeconds: 0.03, speed: 1 };
  const requests = readMooncake(trace(40));
  const cached = Object.fromEntries(
    ROUTERS.map((router) => [router, replay(requests, fleet, router, seeded(1)).cached]),
  );
  const [recognized = 0, named = 0, byLoad = 1] = [
    cached['prefix-affinity, prompts recognized'],
    cached['prefix-affinity, conversations named'],
    cached['least-load'],
  ];
  expect(recognized).toBeGreaterThan(0.9 * named);
  expect(recognized).toBeGreaterThan(2 * byLoad);
});
