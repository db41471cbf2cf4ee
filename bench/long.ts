/**
 * `npm run bench:long -- --minutes 20`: one stream with a token per second and one with 50 through the gateway for that
 * long. It shows that none of our time-outs limits the total duration. Exit code 1 if either did not end complete, with
 * every token.
 */
import { parseArgs } from 'node:util';
import { openBenchCluster, request, resident } from './bench-cluster.ts';
import { Client } from './client.ts';
import { run } from './run.ts';

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '20' } } });
const seconds = Number(values.minutes) * 60;
const RATES = [1, 50];

async function main(): Promise<number> {
  const cluster = await openBenchCluster();
  console.log(`resident MiB before: ${JSON.stringify(resident(cluster))}`);
  const results = await Promise.all(
    RATES.map(async (rate) => {
      const client = new Client(cluster.through, (seconds + 120) * 1000);
      let tokens = 0;
      const bytes = request(cluster.through, `stream ${seconds * rate} ${rate}`, { stream: true });
      const timing = await client.ask(bytes, (piece) => {
        tokens += piece.toString('latin1').split('"content"').length - 1;
      });
      client.close();
      const whole = timing.status === 200 && timing.complete;
      console.log(
        `${rate} tokens/s: ${whole ? 'complete' : 'BROKEN'} after ${(timing.endMs / 60_000).toFixed(1)} minutes, ${tokens} tokens, ${timing.bodyBytes} bytes`,
      );
      return whole;
    }),
  );
  console.log(`resident MiB after: ${JSON.stringify(resident(cluster))}`);
  return results.every(Boolean) ? 0 : 1;
}

await run(main);
