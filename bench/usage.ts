/** `node bench/usage.ts [SECONDS]`: 64 connections ask as fast as they are answered; then every answer must be in the totals, once. */
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { endAll } from '../test/support/processes.ts';
import { Client } from './client.ts';
import { openHouse, request, warm } from './house.ts';

const CONNECTIONS = 64;
const SETTLE_MS = 60_000;
const seconds = Number(process.argv[2] ?? 20);

const house = await openHouse();
await warm(house.through, 200);
const made = z
  .object({ id: z.string(), key: z.string() })
  .parse(await house.gateway.admin('POST', 'keys', { name: 'b' }));
const bytes = request({ url: house.gateway.url, key: made.key }, 'unary');
const until = performance.now() + seconds * 1000;
let answered = 0;
await Promise.all(
  Array.from({ length: CONNECTIONS }, async () => {
    const client = new Client(house.through);
    await client.open();
    while (performance.now() < until) {
      const { status } = await client.ask(bytes);
      if (status !== 200) throw new Error(`status ${status}`);
      answered++;
    }
    client.close();
  }),
);
console.log(`${answered} answers in ${seconds} s: ${Math.round(answered / seconds)} /s`);
const totals = z.object({ data: z.array(z.object({ requests: z.number(), estimated: z.number() })) });
const startedAt = performance.now();
for (let counted = 0; counted !== answered; ) {
  if (performance.now() - startedAt > SETTLE_MS) throw new Error(`${counted} of ${answered} are in the totals`);
  await delay(250);
  const { data } = totals.parse(await house.gateway.admin('GET', `usage?key=${made.id}&group_by=key`));
  counted = data[0]?.requests ?? 0;
}
console.log(`all of them in the totals ${((performance.now() - startedAt) / 1000).toFixed(1)} s later, none twice`);
await endAll();
