/**
 * `otela canary` sends known prompts, sealed, to one node after the other. It compares the usage that engines report
 * inside the seal between nodes, and with the gateway's usage records. It finds mistakes, but not a careful liar: a
 * node may know these prompts, and the gateway sees requests that only one node can open.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import type { Output } from '../../shared/terminal/command-output.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { type Pins, type SaidUsage, SealClientError, sealedFetch } from '../seal/index.ts';
import { fetchOrExplain, responseText } from './fetch-or-explain.ts';

interface CanaryOptions {
  gateway: string;
  pins: Pins | undefined;
  /** A user's API key. No other program may use it during the run, because its usage totals are compared. */
  key: string;
  model: string;
  /** Number of prompts per node. */
  times: number;
  /** How long to wait for usage records, in milliseconds. */
  withinMs?: number;
}

export const EXIT_DIFFERS = 1;
const BOOKED_WITHIN_MS = 90_000;
const POLL_MS = 1_000;
const ANSWER_TOKENS = 32;
/**
 * Prompts of different lengths, the same for each node and run, because their token counts are compared. An engine's
 * prefix cache does not change these counts, and a gateway cannot cache answers to sealed requests.
 */
const PROMPTS = [
  'Count to ten.',
  'Name the months of the year, one a line.',
  'Say the alphabet backwards, with commas.',
];

const listSchema = z.looseObject({ data: z.array(z.looseObject({ session: z.string(), provider: z.string() })) });
const totalsSchema = z.object({
  data: z.array(z.object({ requests: z.number(), prompt_tokens: z.number(), completion_tokens: z.number() })),
});

interface Sum {
  requests: number;
  prompt: number;
  completion: number;
}

type ListedNode = z.infer<typeof listSchema>['data'][number];

/** The reports of the nodes so far. */
interface Reports {
  sum: Sum;
  /** Token counts of each prompt, by session. */
  prompts: Map<string, Map<string, number>>;
  complain(line: string): void;
}

/** Resolves with the exit code. @throws Error if a request fails */
export async function canaryCommand(options: CanaryOptions, out: Output): Promise<number> {
  const nodes = await listNodes(options);
  const before = await booked(options);
  const complaints: string[] = [];
  const complain = (line: string) => {
    complaints.push(line);
    out.complain(line);
  };
  const sum: Sum = { requests: 0, prompt: 0, completion: 0 };
  const prompts: Reports['prompts'] = new Map();
  for (const node of nodes) await askNode(node, options, { sum, prompts, complain });
  for (const [prompt, counts] of prompts) {
    if (new Set(counts.values()).size < 2) continue;
    complain(`nodes count different tokens for "${prompt}": ${[...counts].map((pair) => pair.join(' ')).join(', ')}`);
  }
  const after = await settled(options, before, sum.requests);
  const got: Sum = {
    requests: after.requests - before.requests,
    prompt: after.prompt - before.prompt,
    completion: after.completion - before.completion,
  };
  const text = ({ requests, prompt, completion }: Sum) => `${requests} requests, ${prompt} + ${completion} tokens`;
  out.print(`${nodes.length} nodes reported ${text(sum)}; recorded ${text(got)}`);
  const differs = complaints.length > 0 || text(got) !== text(sum);
  if (differs) out.complain('the reported and the recorded usage differ, or the nodes differ');
  return differs || nodes.length === 0 ? EXIT_DIFFERS : 0;
}

async function listNodes({ gateway, model, key, pins }: CanaryOptions): Promise<ListedNode[]> {
  const query = new URLSearchParams({ model });
  for (const provider of Object.keys(pins ?? {})) query.append('provider', provider);
  const headers = { authorization: `Bearer ${key}` };
  const listed = await fetchOrExplain(`${gateway}/v1/otela/seal?${query}`, { headers });
  if (!listed.ok)
    throw new Error(
      `the gateway returned no list of nodes: ${listed.status} ${(await responseText(listed)).slice(0, 300)}`,
    );
  return listSchema.parse(parseJson(await responseText(listed))).data;
}

/** Asks a node `options.times` times, and adds up the usage that it reports. */
async function askNode({ session, provider }: ListedNode, options: CanaryOptions, reports: Reports): Promise<void> {
  const complain = (problem: string) => reports.complain(`${session} of ${provider}: ${problem}`);
  const asks = askOf(session, options);
  for (let n = 0; n < options.times; n++) {
    const prompt = PROMPTS[n % PROMPTS.length] ?? '';
    let usage: SaidUsage | undefined;
    try {
      usage = await asks(prompt);
    } catch (error) {
      if (!(error instanceof SealClientError)) throw error;
      return complain(error.message);
    }
    if (usage?.prompt === undefined || usage.completion === undefined) {
      complain('its response has no usage');
      continue;
    }
    reports.sum.requests++;
    reports.sum.prompt += usage.prompt;
    reports.sum.completion += usage.completion;
    const known = reports.prompts.get(prompt) ?? new Map<string, number>();
    reports.prompts.set(prompt, known.set(session, usage.prompt));
    if (usage.completion > ANSWER_TOKENS) complain(`${usage.completion} tokens, but ${ANSWER_TOKENS} were requested`);
  }
}

/** A fetch that reaches one node only: the list of candidates is reduced to that node before it is verified. */
function askOf(session: string, { gateway, pins, key, model }: CanaryOptions) {
  let said: SaidUsage | undefined;
  const one: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    const url = input instanceof Request ? input.url : String(input);
    if (!response.ok || !url.startsWith(`${gateway}/v1/otela/seal?`)) return response;
    const list = listSchema.parse(await response.json());
    return Response.json({ ...list, data: list.data.filter((node) => node.session === session) });
  };
  const onUsage = (usage: SaidUsage) => {
    said = usage;
  };
  const asks = sealedFetch({ pins, fetch: one, candidates: 1, onUsage });
  return async (content: string): Promise<SaidUsage | undefined> => {
    said = undefined;
    const answer = await asks(`${gateway}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: [{ role: 'user', content }], max_tokens: ANSWER_TOKENS, temperature: 0 }),
    });
    const text = await responseText(answer);
    if (!answer.ok) throw new Error(`${session} answered ${answer.status}: ${text.slice(0, 300)}`);
    return said;
  };
}

/** The usage total of the key's owner for the model, today and yesterday, so that a run across midnight counts. */
async function booked({ gateway, key, model }: CanaryOptions): Promise<Sum> {
  const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
  const query = new URLSearchParams({ from: day(-1), to: day(0), group_by: 'model', model });
  const response = await fetchOrExplain(`${gateway}/admin/usage?${query}`, {
    headers: { authorization: `Bearer ${key}` },
  });
  if (!response.ok)
    throw new Error(
      `the key cannot read its usage: ${response.status} ${(await responseText(response)).slice(0, 300)}`,
    );
  const [row] = totalsSchema.parse(parseJson(await responseText(response))).data;
  return { requests: row?.requests ?? 0, prompt: row?.prompt_tokens ?? 0, completion: row?.completion_tokens ?? 0 };
}

/** Waits for the usage records, which are stored seconds after a response. */
async function settled(options: CanaryOptions, before: Sum, requests: number): Promise<Sum> {
  const until = Date.now() + (options.withinMs ?? BOOKED_WITHIN_MS);
  for (;;) {
    const now = await booked(options);
    if (now.requests - before.requests >= requests || Date.now() >= until) return now;
    await sleep(POLL_MS);
  }
}
