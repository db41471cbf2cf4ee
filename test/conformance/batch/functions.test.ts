/** Users' own Python functions as contexts of batches: on both hosts, with a real agent and a real Python. */
import OpenAI, { toFile } from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { endAll, eventually, type Managed } from '../../support/processes.ts';

afterEach(endAll);

const ENDPOINT = '/v1/otela/functions';
const OVER = ['completed', 'failed', 'expired', 'cancelled'];
const LONG_MS = 30_000;

interface Place {
  gateway: Gateway;
  client: OpenAI;
  token: string;
  owner: string;
}

async function open(): Promise<Place> {
  const gateway = await Gateway.start();
  const project = await gateway.createProject('claims');
  const key = await gateway.createKey('claims', { project_id: project });
  return {
    gateway,
    client: new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0 }),
    token: await gateway.createJoinToken(),
    owner: project,
  };
}

/** An agent without an engine: it only runs functions. */
const agentOf = ({ gateway, token, owner }: Place, ...more: string[]): Promise<Managed> =>
  startAgent({ gateways: [gateway.url], token, args: ['--allow-functions', owner, ...more] });

async function begin({ client }: Place, code: string, inputs: readonly unknown[], name?: string): Promise<string> {
  const file = await client.files.create({ file: await toFile(Buffer.from(code), 'verify.py'), purpose: 'user_data' });
  const model = `function:${file.id}${name === undefined ? '' : `:${name}`}`;
  const lines = inputs.map((input, i) =>
    JSON.stringify({ custom_id: `line-${i}`, method: 'POST', url: ENDPOINT, body: { model, input } }),
  );
  const input = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  const batch = await client.batches.create({
    input_file_id: input.id,
    endpoint: ENDPOINT as '/v1/completions',
    completion_window: '24h',
  });
  return batch.id;
}

const ended = ({ client }: Place, id: string) =>
  eventually('the batch has ended', LONG_MS, async () => {
    const batch = await client.batches.retrieve(id);
    return OVER.includes(batch.status) ? batch : undefined;
  });

interface OutputLine {
  custom_id: string;
  response: { status_code: number; body: { output?: unknown; error?: { message: string; code: string } } } | null;
  error: { code: string; message: string } | null;
}

async function linesOf({ client }: Place, file: string | null | undefined): Promise<OutputLine[]> {
  if (file === null || file === undefined) return [];
  const text = await (await client.files.content(file)).text();
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as OutputLine);
}

const LOADS_ONCE = `
import os
def load():
    print("loading")
    return {"pid": os.getpid()}
def infer(state, lines):
    print("noise on stdout", lines)
    return [[line * 2, state["pid"]] for line in lines]
`;

describe('a function', () => {
  it('is loaded once and runs each line of its batch, at a node without an engine; what it prints disturbs nothing', async () => {
    const place = await open();
    await agentOf(place);
    const inputs = Array.from({ length: 250 }, (_, i) => i);
    const batch = await ended(place, await begin(place, LOADS_ONCE, inputs));
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 250, completed: 250, failed: 0 } });
    const outputs = (await linesOf(place, batch.output_file_id)).map(({ response }) => response?.body.output);
    expect(outputs.map((one) => (one as number[])[0])).toEqual(inputs.map((one) => one * 2));
    const processes = new Set(outputs.map((one) => (one as number[])[1]));
    expect(processes.size).toBe(1);
    // The same file finds the existing process, and another upload of the same bytes is the same context.
    const again = await ended(place, await begin(place, LOADS_ONCE, [21]));
    const [line] = await linesOf(place, again.output_file_id);
    expect(line?.response?.body.output).toEqual([42, [...processes][0]]);
  });

  it('that raises on one line fails that line with what it said, and answers all others', async () => {
    const place = await open();
    await agentOf(place);
    const code = 'def infer(state, lines):\n    return [10 // line for line in lines]\n';
    const batch = await ended(place, await begin(place, code, [1, 2, 0, 5]));
    expect(batch.request_counts).toEqual({ total: 4, completed: 3, failed: 1 });
    const [bad] = await linesOf(place, batch.error_file_id);
    expect(bad).toMatchObject({ custom_id: 'line-2', response: { status_code: 400 } });
    expect(bad?.response?.body.error).toMatchObject({ code: 'function_failed' });
    expect(bad?.response?.body.error?.message).toContain('ZeroDivisionError');
  });

  it('whose load() fails ends its batch with the reason on every line', async () => {
    const place = await open();
    await agentOf(place);
    const code = 'def load():\n    raise RuntimeError("no such weights")\ndef infer(state, lines):\n    return lines\n';
    const batch = await ended(
      place,
      await begin(
        place,
        code,
        Array.from({ length: 150 }, (_, i) => i),
      ),
    );
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 150, completed: 0, failed: 150 } });
    const lines = await linesOf(place, batch.error_file_id);
    expect(new Set(lines.map(({ custom_id }) => custom_id)).size).toBe(150);
    for (const { error } of lines) {
      expect(error?.code).toBe('function_load_failed');
      expect(error?.message).toContain('RuntimeError: no such weights');
    }
  });

  it('that kills its process on one line costs that line alone, after three attempts', async () => {
    const place = await open();
    await agentOf(place);
    const code = `
import os, sys
def infer(state, lines):
    if 7 in lines:
        print("about to fall over", file=sys.stderr, flush=True)
        os._exit(3)
    return lines
`;
    const batch = await ended(
      place,
      await begin(
        place,
        code,
        Array.from({ length: 20 }, (_, i) => i),
      ),
    );
    expect(batch.request_counts).toEqual({ total: 20, completed: 19, failed: 1 });
    const [bad] = await linesOf(place, batch.error_file_id);
    expect(bad).toMatchObject({ custom_id: 'line-7', error: { code: 'engine_failed' } });
    expect(bad?.error?.message).toContain('code 3');
    expect(bad?.error?.message).toContain('about to fall over');
  });

  it('runs where its project is allowed, and nowhere else', async () => {
    const place = await open();
    await startAgent({ gateways: [place.gateway.url], token: place.token, args: ['--allow-functions', 'another'] });
    const id = await begin(place, 'def infer(state, lines):\n    return lines\n', ['a']);
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect((await place.client.batches.retrieve(id)).request_counts?.completed).toBe(0);
    await agentOf(place);
    expect((await ended(place, id)).request_counts?.completed).toBe(1);
  });

  it('of another project is not there for this one, and a model that is no function fails the batch', async () => {
    const place = await open();
    const other = await open();
    const theirs = await other.client.files.create({
      file: await toFile(Buffer.from('def infer(state, lines):\n    return lines\n'), 'f.py'),
      purpose: 'user_data',
    });
    for (const model of [`function:${theirs.id}`, 'llama', 'function:file-none']) {
      const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: ENDPOINT, body: { model, input: 1 } });
      const input = await place.client.files.create({
        file: await toFile(Buffer.from(line), 'in.jsonl'),
        purpose: 'batch',
      });
      const made = await place.client.batches.create({
        input_file_id: input.id,
        endpoint: ENDPOINT as '/v1/completions',
        completion_window: '24h',
      });
      const batch = await ended(place, made.id);
      expect(batch).toMatchObject({ status: 'failed', errors: { data: [{ code: 'model_not_found' }] } });
    }
  });
});
