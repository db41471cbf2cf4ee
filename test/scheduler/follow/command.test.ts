/**
 * `otela-plan watch --forecast` against an in-memory gateway: two models on GPUs of two kinds, and its output about
 * them.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import { watchCommand } from '../../../scheduler/cli/watch-command.ts';
import { StandInNetwork } from '../support/stand-in-network.ts';

const SLOT_MS = 60_000;
const MODELS = { large: 'meta-llama/Llama-2-13b-hf', small: 'Qwen/Qwen3-8B' };
const KINDS = [
  { name: 'answers', input: 50, output: 1_000, share: 0.5 },
  { name: 'prompts', input: 4_000, output: 10, share: 0.5 },
];
const planSchema = z.object({
  wave: z.number(),
  placements: z.array(
    z.object({
      model: z.string(),
      replicas: z.number(),
      gpu: z.string(),
      tp: z.number(),
      spread: z.object({ tp: z.number(), pp: z.number() }).exactOptional(),
    }),
  ),
});
type Plan = z.infer<typeof planSchema>;

/** Requests of a slot by model and kind, the same for every slot. */
class MemoryGateway {
  readonly network = new StandInNetwork(['A100', 'A100', 'H100', 'H100']);
  readonly told: unknown[] = [];
  readonly requests: Record<string, readonly number[]>;
  readonly #kinds = new Map<string, unknown>();
  readonly #now: () => number;

  constructor(requests: Record<string, readonly number[]>, now: () => number) {
    this.requests = requests;
    this.#now = now;
  }

  readonly fetch: typeof fetch = async (input, init = {}) => {
    const { pathname, searchParams } = new URL(String(input));
    const body: unknown = typeof init.body === 'string' ? JSON.parse(init.body) : undefined;
    const shown = this.network.answer(pathname);
    if (shown !== undefined) return Response.json(shown);
    if (pathname === '/admin/workload') return Response.json(this.#workload(searchParams.get('window') ?? ''));
    if (pathname === '/admin/timeline') this.told.push(body);
    const model = decodeURIComponent(/^\/admin\/routing\/(.*)$/.exec(pathname)?.[1] ?? '');
    if (model !== '' && typeof body === 'object' && body !== null && 'kinds' in body)
      this.#kinds.set(model, body.kinds);
    return Response.json({});
  };

  #workload(window: string): object {
    const end = Math.floor(this.#now() / SLOT_MS);
    const slots = Math.min(30, Number.parseInt(window, 10) / 60);
    const data = Object.entries(this.requests).map(([model, requests]) => ({
      model,
      kinds: this.#kinds.get(model) ?? KINDS,
      slots: Array.from({ length: slots }, (_, i) => ({
        at: new Date((end - slots + i) * SLOT_MS).toISOString(),
        requests,
        unserved: 0,
        p50_ms: 900,
        p99_ms: 2_000,
      })),
      latency_ms: KINDS.map(() => ({ mean: 900, p95: 2_000 })),
      misjudged: { requests: 100, wrong: 4 },
      lengths: KINDS.map(({ input, output }) => ({ input, output, requests: 500 })),
    }));
    return { slot_ms: SLOT_MS, data };
  }
}

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'otela-follow-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (name: string, content: unknown): string => {
  const path = join(folder, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content), { mode: 0o600 });
  return path;
};

/** Runs `slots` slots; returns what it printed and what it left. */
async function watch(requests: Record<string, readonly number[]>, slots: number) {
  let now = Date.parse('2026-01-01T10:00:01Z');
  const gateway = new MemoryGateway(requests, () => now);
  const over = new AbortController();
  const lines: string[] = [];
  const history = join(folder, 'history.jsonl');
  const path = join(folder, 'plan.json');
  const plan = (): Plan => planSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
  // The large model is ten times as fast on H100, the small one equally fast on both. TP 2 suits prompts, TP 1 × PP 2
  // suits answers.
  const rates = Object.values(MODELS).flatMap((model) =>
    ['A100-80-SXM', 'H100-SXM'].flatMap((gpu) => {
      const times = model === MODELS.large && gpu === 'A100-80-SXM' ? 0.1 : 1;
      const of = (tp: number, pp: number, prompts: number, answers: number) => {
        const each = { prompt_tokens_per_s: times * prompts, answer_tokens_per_s: times * answers };
        return { model, gpu, tp, pp, ...each };
      };
      return [of(2, 1, 44_000, 1_000), of(1, 2, 4_400, 11_000)];
    }),
  );
  const argv = ['--forecast', '--publish', '--gateway', 'http://gateway', '--key-file', write('key', 'operator-key\n')];
  argv.push('--plan', path, '--history', history, '--wave', '2');
  argv.push('--rates', write('rates.json', { rates }));
  let looks = 0;
  const wait = async (ms: number) => {
    now += ms;
    gateway.network.follow(plan().placements);
    if (++looks >= slots) over.abort();
  };
  const io = { out: (text: string) => void lines.push(text), log: (line: string) => void lines.push(line) };
  const { fetch, network } = gateway;
  const code = await watchCommand(argv, io, { fetch, now: () => now, signal: over.signal, wait });
  expect(code, lines.join('\n')).toBe(0);
  return { text: lines.join('\n'), told: gateway.told, network, plan: plan(), history };
}

it('gives each of two models the kind of GPUs that it needs', async () => {
  const { network, plan, text } = await watch({ [MODELS.large]: [240, 240], [MODELS.small]: [240, 240] }, 4);
  const gpusOf = (model: string) =>
    new Set(network.deployed.filter((one) => one.model === model).map(({ gpuClass }) => gpuClass));
  expect(gpusOf(MODELS.large), text).toEqual(new Set(['H100']));
  expect(gpusOf(MODELS.small)).toEqual(new Set(['A100']));
  expect(plan.wave).toBe(2);
  const planned = (model: string) =>
    new Set(plan.placements.filter((one) => one.model === model).map(({ gpu }) => gpu));
  expect(planned(MODELS.large)).toEqual(new Set(['H100']));
});

it('says which replicas are full, which have room and what more of them would do: in its output, its history and the timeline', async () => {
  const { text, told, history } = await watch({ [MODELS.large]: [60, 900] }, 4);
  const words =
    /\d × TP 2 on agents: H100\S* x2 \S+ \d+ % full \(.*prompts \d+\.\d\d\/s\).*they can do \d+\.\d\d times that.*bottleneck is TP 2 on agents: H100\S* x2 \S+: with one more \d+\.\d\d times/;
  expect(text).toMatch(words);
  expect(text).toMatch(/switch: .*\n.*nothing serves it\. After the change: \d × /);
  const [first, ...later] = readFileSync(history, 'utf8')
    .trim()
    .split('\n')
    .map((line): { why: string } => JSON.parse(line));
  expect(first?.why).toMatch(/including the switch.*nothing serves it/);
  expect(later.at(-1)?.why).toMatch(words);
  expect(JSON.stringify(told.at(-1))).toMatch(words);
});
