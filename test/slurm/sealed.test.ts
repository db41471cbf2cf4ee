/**
 * Sealed requests to an agent in a real Slurm job: its delegate key is a file of the job's user, and its provider's
 * root key is nowhere in the cluster.
 */
import { readFile } from 'node:fs/promises';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type SealNode, sealedFetch } from '../../clients/seal/index.ts';
import { text as wordsOf } from '../support/engine/words.ts';
import { endAll, eventually } from '../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../support/provider-root.ts';
import { MODEL, type TestCluster } from '../support/test-cluster.ts';
import type { Cluster, Job } from './cluster.ts';
import { openPlace } from './place.ts';

const WORD = 'canary-slurm-5f02';
const user = [{ role: 'user' as const, content: WORD }];
const weather = {
  type: 'function' as const,
  function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
};

let house: TestCluster;
let cluster: Cluster;
let root: ProviderRoot;
const jobs: Job[] = [];
const answered: SealNode[] = [];

beforeAll(async () => {
  const place = await openPlace();
  ({ house, cluster } = place);
  root = await providerRoot('hpc');
  const delegate = await cluster.secret('delegate.key', await readFile(root.delegateFile, 'utf8'));
  const flags = `--delegate-file ${delegate}`;
  for (let n = 0; n < 2; n++) {
    const script = await cluster.agentLine(
      'exec',
      house.gateway.url,
      place.token,
      MODEL,
      flags,
      '--tokens 300 --rate 100',
    );
    jobs.push(await cluster.submit({ sbatch: ['--partition=normal', '--gres=gpu:a100:1', '-w n1'], script }));
  }
  await eventually('both jobs serve', 60_000, async () => {
    const serving = (await house.gateway.nodes()).filter(({ job, state }) => job !== undefined && state === 'SERVING');
    return serving.length === 2 || undefined;
  });
  await eventually('the gateway lists both keys', 20_000, async () => {
    const listed = await house.ask(`/v1/otela/seal?model=${MODEL}`);
    return (await listed.text()).split('"vouch"').length > 2 || undefined;
  });
});
afterAll(endAll);

const client = (maxRetries = 0, resume = false) =>
  new OpenAI({
    baseURL: house.base,
    apiKey: house.key,
    maxRetries,
    // The replica outside Slurm belongs to no pinned provider, so nothing is sealed to it.
    fetch: sealedFetch({ pins: { hpc: root.pin }, resume, onAnswer: (node) => void answered.push(node) }),
  });

describe('the openai SDK, sealed to jobs of Slurm', () => {
  it('gets chats, streams with usage, tool calls and structured output', async () => {
    const chat = await client().chat.completions.create({ model: MODEL, messages: user, max_tokens: 5 });
    expect(chat.choices[0]?.message.content).toBe(wordsOf(5));
    let [words, tokens] = ['', 0];
    const options = { stream: true, stream_options: { include_usage: true } } as const;
    for await (const chunk of await client().chat.completions.create({
      model: MODEL,
      messages: user,
      max_tokens: 5,
      ...options,
    })) {
      words += chunk.choices[0]?.delta.content ?? '';
      tokens += chunk.usage?.completion_tokens ?? 0;
    }
    expect([words, tokens]).toEqual([wordsOf(5), 5]);
    const called = await client().chat.completions.create({ model: MODEL, messages: user, tools: [weather] });
    expect(called.choices[0]?.message.tool_calls?.[0]).toMatchObject({ function: { name: 'weather' } });
    const schema = { name: 'place', schema: { type: 'object', properties: { city: { type: 'string' } } } };
    const format = { type: 'json_schema' as const, json_schema: schema };
    const formed = await client().chat.completions.create({
      model: MODEL,
      messages: user,
      response_format: format,
      max_tokens: 5,
    });
    expect(formed.choices[0]?.message.content).toBe(wordsOf(5));
  });

  it('gets errors as they are, and retries by itself', async () => {
    const refused = client().chat.completions.create({
      model: MODEL,
      messages: user,
      ...{ stand_in: { status: 400 } },
    });
    await expect(refused).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    const unknown = client().chat.completions.create({ model: 'nobody/serves-this', messages: user });
    await expect(unknown).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    const busy = client(1).chat.completions.create({ model: MODEL, messages: user, ...{ stand_in: { status: 503 } } });
    await expect(busy).rejects.toMatchObject({ status: 503 });
  });

  it('aborts, and goes on at the other job where one is cancelled', async () => {
    const options = { model: MODEL, messages: user, stream: true } as const;
    const stream = await client().chat.completions.create({ ...options, max_tokens: 300 });
    let seen = 0;
    for await (const _ of stream) if (++seen === 5) stream.controller.abort();
    expect(seen).toBeLessThan(50);
    const long = await client(0, true).chat.completions.create({ ...options, max_tokens: 300 });
    let [text, cancelled] = ['', false];
    for await (const chunk of long) {
      text += chunk.choices[0]?.delta.content ?? '';
      if (cancelled || text.length < 40) continue;
      cancelled = true;
      const session = answered.at(-1)?.session;
      const id = (await house.gateway.nodes()).find((node) => node.session === session)?.job?.id;
      // Like a node that dies: no drain.
      cluster.command('scancel', '--signal=KILL', '--full', id ?? '');
    }
    expect([text, cancelled]).toEqual([wordsOf(300), true]);
    expect(new Set(answered.slice(-2).map(({ session }) => session)).size).toBe(2);
  });

  it('leaves no word of a prompt in the output of gateway or jobs', async () => {
    expect(new Set(answered.map(({ provider, mode }) => `${provider} ${mode}`))).toEqual(new Set(['hpc pinned']));
    expect(house.gateway.process.output).not.toContain(WORD);
    for (const job of jobs) expect(await job.output()).not.toContain(WORD);
  });
});
