/**
 * A factory follows the plans of `watch --forecast`: eight idle agents, mock engines of two shapes, and a mix of
 * requests that flips in the middle. Two models get the same requests: the deployment of one is pinned to the best for
 * the mean of both halves, the other's follows. A "minute" is 3 s. `npm run soak -- follow` lets the planner record the
 * earlier days itself, instead of reading them from a file.
 */

import { readFileSync } from 'node:fs';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import type { SlotRecord } from '../../scheduler/follow/slot-records.ts';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { patience } from '../support/patience.ts';
import { endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { FACTORY_MAIN, NODE, PLAN_MAIN, ROOT } from '../support/where.ts';

afterEach(endAll);

const FOLLOWED = 'Qwen/Qwen3-8B';
const PINNED = 'meta-llama/Llama-3.1-8B-Instruct';
const MODELS = [FOLLOWED, PINNED];
const GPU = (n: number) => `${n}, GPU-${n}, NVIDIA A100-SXM4-80GB, 81920`;

const SLOT_S = 3;
/** Numbers of slots without requests, with the first mix, and with the second mix. Earlier days had the same slots. */
const [NIGHT, BEFORE, AFTER] = [4, 15, 15];
const SEASON = NIGHT + BEFORE + AFTER;
/** Number of earlier days in the history file. */
const SEASONS_SEEN = 3;
/** Number of earlier days that pass before the measured one; 0: the history file has them. */
const DAYS_BEFORE = Number(process.env.OTELA_FOLLOW_DAYS ?? 0);
/**
 * Requests per second of one model. The frequent kind has 3.26/s of them. Two replicas that suit that kind serve
 * 2.67/s, so with the deployment for the mean, requests wait 10 s at the end of a half. Three such replicas have a load
 * of 0.81, and one replica serves the rare kind.
 */
const RATE = 3.7;
const OFTEN = 0.88;

/** Tokens per second: a request that takes 0.75 s in one shape takes ten times as long in the other. */
const SHAPES = [
  { name: 'prompts', tp: 2, pp: 1, prompt: 4_000, answer: 32 },
  { name: 'answers', tp: 1, pp: 2, prompt: 270, answer: 345 },
] as const;
const KINDS = {
  prompts: { content: 'word '.repeat(1_600), tokens: 8 },
  answers: { content: 'Say something long.', tokens: 240 },
} as const;
type Kind = keyof typeof KINDS;
const KIND_LIST: readonly Kind[] = ['prompts', 'answers'];
/** Names of the kinds, in the order in which the fit numbers them. */
const KIND_NAMES = ['short prompt, long answer', 'long prompt, short answer'];

const template = ({ tp, pp, prompt, answer }: (typeof SHAPES)[number]) => ({
  argv: [
    NODE,
    ENGINE_MAIN,
    '--port',
    '{{port}}',
    '--model',
    '{{model}}',
    '--slots',
    '1',
    '--prompt-rate',
    String(prompt),
  ].concat(['--rate', String(answer), '--tp', '{{tp}}', '--pp', '{{pp}}']),
  parameters: {
    model: { type: 'string', allow: MODELS },
    tp: { type: 'integer', allow: [tp] },
    pp: { type: 'integer', allow: [pp], default: pp },
  },
});

const recipe = (model: string, n: number) => `
[recipes.r${n}]
weights = "${model}"
${SHAPES.map(
  ({ name, tp, pp }) => `[[recipes.r${n}.engines]]
gpu = ["A100"]
gpus = 2
template = "${name}"
parameters = { tp = ${tp}, pp = ${pp} }
`,
).join('')}
[models."${model}"]
recipe = "r${n}"
max = 8
idle = "1h"
`;

it(
  're-plans ahead of the flip, loses nothing, and its 99th percentile beats the plan that stays',
  async () => {
    const gateway = await Gateway.start();
    const [token, key] = [await gateway.createJoinToken(), await gateway.createKey()];
    const directory = await temporaryDirectory('otela-follow');
    const file = async (name: string, content: unknown, mode = 0o600) => {
      const path = join(directory, name);
      await mkdir(join(path, '..'), { recursive: true, mode: 0o755 });
      await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content), { mode });
      return path;
    };
    for (const shape of SHAPES) await file(`templates/${shape.name}.json`, template(shape), 0o644);
    await chmod(await file('bin/nvidia-smi', `#!/bin/sh\necho '${GPU(0)}'\necho '${GPU(1)}'\n`), 0o755);
    const env = { PATH: `${join(directory, 'bin')}:${process.env.PATH}` };
    // Requests queue at the engine to which the plan sent them.
    const args = ['--accept-deployments', join(directory, 'templates'), '--max-waiting', 'none'];
    await Promise.all(Array.from({ length: 8 }, () => startAgent({ gateways: [gateway.url], token, args, env })));
    await eventually('eight idle agents', 60_000, async () => {
      const idle = (await gateway.nodes()).filter(({ labels }) => labels?.['otela.accepts'] !== undefined);
      return idle.length === 8 || undefined;
    });

    const history = join(directory, 'history.jsonl');
    const rates = SHAPES.map(({ tp, pp, prompt, answer }) => ({
      tp,
      pp,
      prompt_tokens_per_s: prompt,
      answer_tokens_per_s: answer,
    }));
    const argv = ['watch', '--forecast', '--gateway', gateway.url, '--key-file', await file('key', gateway.adminKey)];
    const plan = join(directory, 'plan.json');
    argv.push('--publish', '--plan', plan, '--slot', String(SLOT_S), '--season', String(SEASON));
    argv.push(
      '--rates',
      await file('rates.json', { rates: MODELS.flatMap((model) => rates.map((one) => ({ model, ...one }))) }),
    );
    argv.push('--switch-s', '6', '--history', history, '--pin', `${PINNED}=2xtp2,2xtp1pp2`);
    const watch = (...more: string[]) =>
      new Managed([NODE, PLAN_MAIN, ...argv, ...more], { label: 'watch', cwd: ROOT });

    const ask = async (model: string, kind: Kind, behaviour: object = {}) => {
      const { content, tokens } = KINDS[kind];
      const began = performance.now();
      const response = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model, messages: [{ role: 'user', content }], stand_in: { tokens, ...behaviour } }),
      });
      const text = await response.text();
      return { model, kind, status: response.status, text, seconds: (performance.now() - began) / 1e3 };
    };

    // Requests the models while no node serves them, so that they are planned. Both models begin with pins.
    await gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0, stream_ms: 0 } });
    for (const model of MODELS) await gateway.admin('PUT', `models/${model}`, {});
    for (const model of MODELS) await ask(model, 'answers');
    const pinned = watch('--pin', `${FOLLOWED}=3xtp2,1xtp1pp2`);
    const made = z
      .object({ token: z.string() })
      .parse(await gateway.admin('POST', 'factory-tokens', { provider: 'lab', name: 'f' }));
    const config = `factory = "pool"
gateway = "${gateway.url}"
token_file = "${await file('factory-token', made.token)}"
state = "${join(directory, 'state')}"
[guest]
every = "1s"
short_lived = "1s"
submissions_per_minute = 1000
[plan]
file = "${plan}"
[clusters.idle]
launcher = "agents"
key_file = "${join(directory, 'key')}"
max_pending = 8
[[clusters.idle.pools]]
name = "a100"
gpu = "A100"
gpus_per_node = 2
${MODELS.map(recipe).join('')}`;
    new Managed([NODE, FACTORY_MAIN, 'run', '--config', await file('factory.toml', config)], { label: 'factory' });
    await gateway.serving(8, 90_000);
    pinned.signal('SIGTERM');
    await pinned.exited;
    await gateway.admin('PATCH', 'settings', { queue: { unary_ms: 60_000, stream_ms: 60_000 } });

    // Kinds are learned from the lengths in the records, not from the times.
    const quick = { delayMs: 0, tokensPerSecond: 0 };
    for (let n = 0; n < 3; n++) {
      const some = Array.from({ length: 10 }, () =>
        KIND_LIST.flatMap((kind) => MODELS.map((model) => ask(model, kind, quick))),
      );
      await Promise.all(some.flat());
    }
    await eventually('records to learn kinds from', 30_000, async () => {
      const { data } = (await gateway.admin('GET', 'workload?window=10m')) as { data: { requests: number }[] };
      return data.filter((row) => row.requests >= 60).length === 2 || undefined;
    });
    // Some quiet slots, like the previous nights: the recent requests do not predict the next slots.
    const first = Math.floor(Date.now() / (SLOT_S * 1e3)) + 1 + NIGHT;
    await sleep((first - NIGHT) * SLOT_S * 1e3 - Date.now());
    if (DAYS_BEFORE === 0) await writeFile(history, earlier(first - NIGHT), { mode: 0o600 });
    const second = watch();

    const random = seededRandom(7);
    const day = async (start: number) => {
      const requests: ReturnType<typeof ask>[] = [];
      for (let n = 0; ; n++) {
        // Requests are sent evenly with some jitter, so that only the deployment can cause a queue.
        const due = 1e3 * (start * SLOT_S + (n + 0.8 * random()) / RATE);
        if (due >= (start + BEFORE + AFTER) * SLOT_S * 1e3) return Promise.all(requests);
        await sleep(Math.max(0, due - Date.now()));
        const isBefore = due < (start + BEFORE) * SLOT_S * 1e3;
        const [often, rare]: Kind[] = isBefore ? ['prompts', 'answers'] : ['answers', 'prompts'];
        const kind = (random() < OFTEN ? often : rare) ?? 'prompts';
        for (const model of MODELS) requests.push(ask(model, kind));
      }
    };
    for (let n = 0; n < DAYS_BEFORE; n++) await day(first + n * SEASON);
    const start = first + DAYS_BEFORE * SEASON;
    const flip = start + BEFORE;
    const answers = await day(start);
    const orders = second.output.split('\n').filter((line) => / switch: /.test(line));
    process.stdout.write(`${orders.join('\n')}\n`);
    expect(answers.filter(({ status }) => status !== 200).slice(0, 3)).toEqual([]);

    const records = readFileSync(history, 'utf8')
      .trim()
      .split('\n')
      .map((line): SlotRecord => JSON.parse(line));
    const switched = records
      .filter(({ model, decision, changes }) => model === FOLLOWED && decision === 'switch' && changes.length > 0)
      .map(({ expected }) => Date.parse(expected.from) / (SLOT_S * 1e3))
      // Recorded days end with the other deployment, which is changed back before the measured one.
      .filter((slot) => slot >= start + BEFORE / 2);
    expect(switched.length).toBeGreaterThan(0);
    const ordered = switched[0] ?? Number.NaN;
    const p99 = (model: string) => {
      const sorted = answers
        .filter((one) => one.model === model)
        .map(({ seconds }) => seconds)
        .sort((a, b) => a - b);
      return sorted[Math.ceil(0.99 * sorted.length) - 1] ?? 0;
    };
    const report = `switch ordered ${flip - ordered} slots before the flip; P99 ${p99(FOLLOWED).toFixed(2)} s, of the static plan ${p99(PINNED).toFixed(2)} s; ${answers.length} answers`;
    process.stdout.write(`${report}\n`);
    expect(ordered).toBeLessThan(flip);
    expect(p99(FOLLOWED)).toBeLessThan(0.8 * p99(PINNED));
  },
  patience(300_000 + DAYS_BEFORE * SEASON * SLOT_S * 1e3),
);

/** Makes the days before a slot, in the form of the history file of a previous run. */
function earlier(before: number): string {
  const lines: string[] = [];
  const random = seededRandom(11);
  for (let slot = before - SEASONS_SEEN * SEASON; slot < before; slot++) {
    const at = (slot - before + SEASONS_SEEN * SEASON) % SEASON;
    const all = at < NIGHT ? 0 : Math.round(RATE * SLOT_S);
    const prompts = Math.max(
      0,
      Math.round(all * (at < NIGHT + BEFORE ? OFTEN : 1 - OFTEN) + (all / 6) * (random() - 0.5)),
    );
    const line = { at: new Date(slot * SLOT_S * 1e3).toISOString(), slot_s: SLOT_S, kinds: KIND_NAMES };
    for (const model of MODELS) lines.push(JSON.stringify({ ...line, model, requests: [all - prompts, prompts] }));
  }
  return `${lines.join('\n')}\n`;
}
