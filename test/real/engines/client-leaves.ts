/** A client disconnects from a stream: the engine stops computing, as the states of its threads show. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { descendants } from '../../support/process-table.ts';
import { hear } from '../../support/streams.ts';
import { ask, newKey, type Target, targets } from '../place.ts';
import { chat } from '../questions.ts';
import type { EnginePlace } from './engine-place.ts';

/** Time that gateway and agent may add to the engine's own. */
const ADDED_MS = 1_500;
const SETTLED_MS = 20_000;
const LOOKS = 15;
const LOOK_MS = 20;
/** Share of looks in which an idle engine may have a thread that runs: some poll their queues. */
const IDLE_SHARE = 0.3;

export async function leaving(place: EnginePlace): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const alone = await letGo(place, direct);
  const ms = await letGo(place, through);
  assert.ok(ms <= alone + ADDED_MS, `idle after ${ms} ms; asked directly after ${alone} ms`);
  return `idle after ${ms.toFixed(0)} ms, asked directly after ${alone.toFixed(0)} ms`;
}

/** Milliseconds until no thread of the engine runs any more. */
async function letGo({ process, model, engine }: EnginePlace, target: Target): Promise<number> {
  const control = new AbortController();
  const body = chat(model, { stream: true, max_tokens: 4_000, ...engine.long });
  let leftAt: number | undefined;
  let watched: Promise<void> | undefined;
  const leave = async () => {
    const busy = await runningShare(process.pid);
    leftAt = performance.now();
    control.abort();
    assert.ok(busy >= IDLE_SHARE, `the engine seems idle while it streams: ${busy}`);
  };
  const onText = (text: string) => {
    if (watched === undefined && hear(text).textChunks >= 5) watched = leave();
  };
  const end = await ask(target, '/v1/chat/completions', body, { signal: control.signal, onText }).then(
    ({ status, text }) => `${status} ${text.slice(-300)}`,
    () => 'left',
  );
  await watched;
  assert.equal(end, 'left', 'it was over before the client left');
  assert.ok(leftAt !== undefined);
  while (performance.now() - leftAt < SETTLED_MS) {
    const begun = performance.now();
    if ((await runningShare(process.pid)) < IDLE_SHARE) return begun - leftAt;
  }
  throw new Error(`the engine still computes ${SETTLED_MS} ms after its client left`);
}

/** Share of looks in which a thread of the process or its children ran, or waited for a processor. */
async function runningShare(root: number): Promise<number> {
  let seen = 0;
  for (let n = 0; n < LOOKS; n++) {
    if (await hasRunningThread([root, ...descendants(root)])) seen++;
    await delay(LOOK_MS);
  }
  return seen / LOOKS;
}

async function hasRunningThread(pids: readonly number[]): Promise<boolean> {
  for (const pid of pids) {
    for (const thread of await readdir(`/proc/${pid}/task`).catch(() => [])) {
      const text = await readFile(`/proc/${pid}/task/${thread}/stat`, 'utf8').catch(() => '');
      if (text.slice(text.lastIndexOf(')') + 2).startsWith('R')) return true;
    }
  }
  return false;
}
