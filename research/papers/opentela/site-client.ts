/** A client at one site: `node site-client.ts URL KEY MODEL REQUESTS`. Prints its measurements as JSON, times in ms. */
import { median, stagesOf } from './stages.ts';

const [url = '', key = '', model = '', requests = '9'] = process.argv.slice(2);
const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
const WARM = 2;
/** Words of the mock engine, 5 bytes each: enough to fill the window of a channel. */
const STREAM_TOKENS = 4_000;

async function ask(body: object): Promise<Response> {
  const whole = JSON.stringify({ model, messages: [{ role: 'user', content: 'how far?' }], ...body });
  const answer = await fetch(`${url}/chat/completions`, { method: 'POST', headers, body: whole });
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer;
}

const [totals, stages]: [number[], Record<string, number>[]] = [[], []];
for (let n = 0; n < Number(requests) + WARM; n++) {
  const startedAt = performance.now();
  const answer = await ask({ stand_in: { tokens: 1 } });
  await answer.text();
  if (n < WARM) continue;
  totals.push(performance.now() - startedAt);
  stages.push(stagesOf(answer.headers.get('server-timing') ?? ''));
}
const names = Object.keys(stages[0] ?? {});
const stream = await ask({ stream: true, stand_in: { tokens: STREAM_TOKENS } });
let [firstAt, bytes] = [0, 0];
for await (const piece of stream.body ?? []) {
  firstAt ||= performance.now();
  bytes += piece.length;
}
const streamedS = (performance.now() - firstAt) / 1000;
console.log(
  JSON.stringify({
    ms: median(totals),
    stages: Object.fromEntries(names.map((name) => [name, median(stages.map((one) => one[name] ?? 0))])),
    tokensPerS: STREAM_TOKENS / streamedS,
    mibPerS: bytes / 2 ** 20 / streamedS,
  }),
);
