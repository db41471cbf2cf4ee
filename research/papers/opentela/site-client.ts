/**
 * A client at one site: `node site-client.ts URL KEY MODEL REQUESTS [CLIENTS,…]`. Prints its measurements as JSON, times
 * in ms: one request at a time, one stream, and then as many concurrent requests and streams as each number says.
 */
import { median, stagesOf } from './stages.ts';

const [url = '', key = '', model = '', requests = '9', crowds = ''] = process.argv.slice(2);
const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
const WARM = 2;
/** Words of the mock engine, 5 bytes each: enough to fill the window of a channel. */
const STREAM_TOKENS = 4_000;
/** Requests of each of several concurrent clients. */
const REQUESTS_EACH = 6;

async function ask(body: object): Promise<Response> {
  const whole = JSON.stringify({ model, messages: [{ role: 'user', content: 'how far?' }], ...body });
  const answer = await fetch(`${url}/chat/completions`, { method: 'POST', headers, body: whole });
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer;
}

async function unary(): Promise<{ ms: number; stages: Record<string, number> }> {
  const startedAt = performance.now();
  const answer = await ask({ stand_in: { tokens: 1 } });
  await answer.text();
  return { ms: performance.now() - startedAt, stages: stagesOf(answer.headers.get('server-timing') ?? '') };
}

/** Returns the stream's bytes, and when its first and last ones arrived. */
async function streamed(): Promise<{ bytes: number; firstAt: number; lastAt: number }> {
  const stream = await ask({ stream: true, stand_in: { tokens: STREAM_TOKENS } });
  let [firstAt, bytes] = [0, 0];
  for await (const piece of stream.body ?? []) {
    firstAt ||= performance.now();
    bytes += piece.length;
  }
  return { bytes, firstAt, lastAt: performance.now() };
}

function ratesOf(streams: Awaited<ReturnType<typeof streamed>>[]): { tokensPerS: number; mibPerS: number } {
  const seconds =
    (Math.max(...streams.map(({ lastAt }) => lastAt)) - Math.min(...streams.map(({ firstAt }) => firstAt))) / 1000;
  const bytes = streams.reduce((sum, one) => sum + one.bytes, 0);
  return { tokensPerS: (streams.length * STREAM_TOKENS) / seconds, mibPerS: bytes / 2 ** 20 / seconds };
}

async function crowd(clients: number): Promise<object> {
  const times: number[] = [];
  const startedAt = performance.now();
  const client = async () => {
    for (let n = 0; n < REQUESTS_EACH; n++) times.push((await unary()).ms);
  };
  await Promise.all(Array.from({ length: clients }, client));
  const requestsPerS = times.length / ((performance.now() - startedAt) / 1000);
  const streams = await Promise.all(Array.from({ length: clients }, streamed));
  return { clients, ms: median(times), requestsPerS, ...ratesOf(streams) };
}

const answers: Awaited<ReturnType<typeof unary>>[] = [];
for (let n = 0; n < Number(requests) + WARM; n++) answers.push(await unary());
const measured = answers.slice(WARM);
const names = Object.keys(measured[0]?.stages ?? {});
const one = await streamed();
const concurrent: object[] = [];
for (const clients of crowds.split(',').filter((word) => word !== '')) concurrent.push(await crowd(Number(clients)));
console.log(
  JSON.stringify({
    ms: median(measured.map(({ ms }) => ms)),
    stages: Object.fromEntries(names.map((name) => [name, median(measured.map(({ stages }) => stages[name] ?? 0))])),
    ...ratesOf([one]),
    concurrent,
  }),
);
