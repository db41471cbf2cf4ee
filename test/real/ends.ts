/** Requests that end early: clients that disconnect, engines that are killed, agents that drain. */
import assert from 'node:assert/strict';
import { descendants } from '../support/process-table.ts';
import { eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { ask, newKey, type Place, running, type Target, targets } from './place.ts';
import { GREEDY, LONG, MESSAGES } from './questions.ts';

/** Exit code of a program that ended on SIGTERM. */
const TERMINATED = 128 + 15;
const LEFT_MS = 1_000;
const SETTLED_MS = 10_000;
/** Characters. */
const STRUCK_AFTER = 500;

/** A client disconnects: the engine stops within a second, or about as soon as after a direct disconnect. */
export async function leaving(place: Place, more: object): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const alone = await letGo(place, direct, more);
  const ms = await letGo(place, through, more);
  assert.ok(ms <= Math.max(LEFT_MS, alone + LEFT_MS / 2), `let go after ${ms} ms; asked directly after ${alone} ms`);
  return `let go after ${ms.toFixed(0)} ms, asked directly after ${alone.toFixed(0)} ms, as its own metrics tell it`;
}

/** Milliseconds until the engine reports that it is idle. */
async function letGo(place: Place, target: Target, more: object): Promise<number> {
  const total = async () =>
    (await Promise.all(place.replicas.map(({ url }) => running(url)))).reduce((sum, count) => sum + count, 0);
  await eventually('an idle engine', SETTLED_MS, async () => ((await total()) === 0 ? true : undefined));
  const control = new AbortController();
  const body = { model: place.model, messages: MESSAGES, ...LONG, ...more };
  const asked = ask(target, '/v1/chat/completions', body, { signal: control.signal }).then(
    () => 'ended',
    () => 'left',
  );
  await eventually('the engine at work', SETTLED_MS, async () => ((await total()) > 0 ? true : undefined));
  const leftAt = performance.now();
  control.abort();
  await eventually('idle again', SETTLED_MS, async () => ((await total()) === 0 ? true : undefined));
  assert.equal(await asked, 'left', 'it was over before the client left');
  return performance.now() - leftAt;
}

/** The node of a stream is killed mid-stream: the other one continues, and the client has one complete response. */
export async function resumed(place: Place, path: string, body: object): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  await place.gateway.serving(place.replicas.length, 300_000);
  const whole = hear((await ask(direct, path, { ...body, stream: true })).text);
  const before = await Promise.all(place.replicas.map(({ url }) => running(url)));
  assert.ok(before.every((count) => count === 0));
  let struck: Promise<void> | undefined;
  const strike = async () => {
    const busy = await Promise.all(place.replicas.map(({ url }) => running(url)));
    const victim = place.replicas[busy.findIndex((count) => count > 0)];
    assert.ok(victim !== undefined, 'no engine was at work');
    for (const pid of descendants(victim.agent.pid)) process.kill(pid, 'SIGKILL');
    place.replicas.splice(place.replicas.indexOf(victim), 1);
  };
  const answer = await ask(
    through,
    path,
    { ...body, stream: true },
    {
      headers: { 'x-otela-resume': '1' },
      onText: (text) => {
        if (struck === undefined && hear(text).text.length > STRUCK_AFTER) struck = strike();
      },
    },
  );
  await struck;
  const heard = hear(answer.text);
  assert.ok(struck !== undefined, 'it was over before it could be struck');
  assert.deepEqual(
    [heard.errors, heard.dones, heard.ids.size, heard.roles <= 1],
    [[], 1, 1, true],
    answer.text.slice(-500),
  );
  const agree = commonPrefix(heard.text, whole.text) / whole.text.length;
  const said = heard.comments.find((comment) => comment.includes('continued')) ?? 'nothing said';
  assert.match(said, /continued/);
  return `one id, one [DONE]; ${heard.text.length} characters, ${(agree * 100).toFixed(0)} % of them as without the break; ": ${said}"`;
}

function commonPrefix(a: string, b: string): number {
  let n = 0;
  while (n < a.length && a[n] === b[n]) n++;
  return n;
}

export async function drained(place: Place): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  const [replica] = place.replicas;
  assert.ok(replica !== undefined);
  let told = false;
  const answer = await ask(
    through,
    '/v1/chat/completions',
    { model: place.model, messages: MESSAGES, ...GREEDY, max_tokens: 1_500, ignore_eos: true, stream: true },
    {
      onText: () => {
        if (!told) for (const { agent } of place.replicas) agent.signal('SIGTERM');
        told = true;
      },
    },
  );
  const heard = hear(answer.text);
  assert.deepEqual([heard.dones, heard.errors, heard.finishes], [1, [], ['length']]);
  const { code } = await replica.agent.end(60_000);
  assert.equal(code, TERMINATED);
  await assert.rejects(fetch(`${replica.url}/v1/models`), 'the engine still answers');
  return `the stream that ran came to its end, the agent ended with ${code}, the engine answers no more`;
}
