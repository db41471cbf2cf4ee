/**
 * examples/batches/claims.py against a gateway, agents and mock engines that answer by a rule, so that the test knows
 * the result.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import * as z from 'zod';
import { pythonWith } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';

const PYTHON = pythonWith(ROOT, 'openai');
if (PYTHON === undefined)
  console.log('skipped: no Python with openai: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv');
const EXAMPLE = join(ROOT, 'examples/batches');

afterAll(endAll);

/** A mock engine. `answers` gives its response to a prompt. */
async function engine(model: string, answers: (prompt: string) => string): Promise<string> {
  const server = createServer(async (asked, answer) => {
    let text = '';
    for await (const piece of asked) text += piece;
    const json = (body: unknown) => answer.setHeader('content-type', 'application/json').end(JSON.stringify(body));
    if (asked.url === '/v1/models') return json({ object: 'list', data: [{ id: model, object: 'model' }] });
    if (asked.method !== 'POST') return answer.writeHead(404).end();
    const { messages } = JSON.parse(text) as { messages: { content: string }[] };
    const content = answers(messages[0]?.content ?? '');
    json({
      id: 'x',
      object: 'chat.completion',
      created: 0,
      model,
      choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The label of a prompt with a claim and its own evidence; the evidence of another claim says nothing. */
function labelOf(prompt: string): string {
  const [, ...rows] = readFileSync(join(EXAMPLE, 'claims.csv'), 'utf8').trim().split('\n');
  const cells = rows.map((row) => /^(.+?),([A-Z ]+),"?(.+?)"?$/.exec(row) ?? []);
  const own = cells.find(([, claim = '?', , evidence = '?']) => prompt.includes(claim) && prompt.includes(evidence));
  return own?.[2] ?? 'NOT ENOUGH INFO';
}

it.skipIf(PYTHON === undefined)(
  'models × prompt templates over labeled claims in several batches: accuracy as a table, with a control group',
  async () => {
    const gateway = await Gateway.start();
    const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
    // The first engine always says SUPPORTED. The second engine reads the evidence, but says nothing useful if it is
    // asked to reason.
    const engines = [
      await engine('lab/credulous', () => 'It is not refuted but SUPPORTED.'),
      await engine('lab/careful', (prompt) => (prompt.startsWith('Think') ? 'I am not sure.' : labelOf(prompt))),
    ];
    for (const engineUrl of engines) await startAgent({ gateways: [gateway.url], token, engineUrl });
    await gateway.serving(2);
    const models = 'lab/careful,lab/credulous';
    const options = ['--every', '0.2', '--control', '0.01', '--lines', '15'];
    const args = ['claims.py', '--models', models, ...options, 'claims.csv'];
    const env = { ...process.env, OPENAI_BASE_URL: `${gateway.url}/v1`, OPENAI_API_KEY: key };
    const { stdout } = await promisify(execFile)(PYTHON ?? '', args, { cwd: EXAMPLE, env });
    expect(stdout.trimEnd().split('\n')).toEqual([
      '| model | plain | fact-checker | reason | control |',
      '| --- | --- | --- | --- | --- |',
      '| lab/careful | 100% | 100% | 0% | 67% |',
      '| lab/credulous | 33% | 33% | 33% | 0% |',
    ]);
    const listed = await fetch(`${gateway.url}/v1/batches?limit=100`, { headers: { authorization: `Bearer ${key}` } });
    // 13 claims in three templates for each model, at most 15 lines in a batch.
    expect(z.object({ data: z.array(z.unknown()) }).parse(await listed.json()).data).toHaveLength(6);
  },
  120_000,
);
