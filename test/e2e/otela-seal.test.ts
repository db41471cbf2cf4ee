/** `otela seal`: the local endpoint for curl and for tools that cannot replace fetch. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { main } from '../../agent/cli/main.ts';
import { main as otela } from '../../clients/otela/main.ts';
import { sealCommand } from '../../clients/otela/seal-command.ts';
import { evidenceArgs } from '../support/evidence-helper.ts';
import { atEnd, endAll, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { program } from '../support/program.ts';
import { providerRoot } from '../support/provider-root.ts';
import { chatBody, MODEL, openTestCluster } from '../support/test-cluster.ts';
import { AGENT_MAIN, NODE, ROOT } from '../support/where.ts';

afterAll(endAll);

it('seals what it gets on loopback, says who vouches, and is for no page of another site', async () => {
  const directory = await temporaryDirectory('otela-vouch');
  const [root, delegate] = [join(directory, 'lab.root'), join(directory, 'delegate.key')];
  expect(await main(['vouch', '--provider', 'lab', '--new-root', root], {})).toBe(0);
  expect(await main(['vouch', '--provider', 'lab', '--root', root, '--out', delegate], {})).toBe(0);
  expect(await main(['vouch', '--provider', 'lab', '--root', root, '--out', delegate], {}), 'over a key').toBe(2);
  const cluster = await openTestCluster({ agentArgs: ['--delegate-file', delegate] });
  const shown = new Managed([NODE, AGENT_MAIN, 'vouch', '--provider', 'lab', '--root', root, '--out', `${delegate}2`], {
    label: 'vouch',
  });
  const [, pin = ''] = await shown.line(/clients pin: (lab=\S+)/, 20_000);
  const proxy = new Managed(
    [NODE, join(ROOT, 'clients/otela/main.ts'), 'seal', '--gateway', cluster.gateway.url, '--pin', pin, '--port', '0'],
    { label: 'otela seal' },
  );
  const [, url = ''] = await proxy.line(/otela seal ready (http:\S+)/, 20_000);
  const ask = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    fetch(url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const whole = await ask('/chat/completions', chatBody({ tokens: 3 }));
  expect([whole.status, whole.headers.get('x-otela-sealed')]).toEqual([200, 'pinned']);
  expect(await whole.text()).toContain('"choices"');
  const streamed = await ask('/chat/completions', chatBody({ tokens: 3 }, { stream: true }));
  expect((await streamed.text()).trim().endsWith('data: [DONE]')).toBe(true);
  await proxy.line(/sealed to \S+ of lab, key \S+: signed by the pinned root key of its provider/, 5_000);
  const models = await fetch(`${url}/models`, { headers: { authorization: `Bearer ${cluster.key}` } });
  expect(await models.text()).toContain(MODEL);
  expect((await ask('/batches', {})).status).toBe(400);
  expect((await ask('/chat/completions', chatBody(), { origin: 'https://evil.example' })).status).toBe(403);
  const { origin } = new URL(url);
  expect((await ask('/chat/completions', chatBody({ tokens: 1 }), { origin })).status).toBe(200);
  const page = await fetch(`${origin}/`);
  expect([page.status, page.headers.get('content-security-policy')?.includes("default-src 'none'")]).toEqual([
    200,
    true,
  ]);
  expect(await page.text()).toContain('Only nodes of lab can decrypt the chat');
});

it('seals to nodes alone whose evidence the user’s own program takes, and says what that said', async () => {
  const root = await providerRoot('lab');
  const cluster = await openTestCluster({
    agentArgs: ['--delegate-file', root.delegateFile, ...(await evidenceArgs())],
  });
  const directory = await temporaryDirectory('verifier');
  const takes = `#!${NODE}
const { evidence, report_data } = JSON.parse(require('node:fs').readFileSync(0, 'utf8'));
const report = Buffer.from(evidence, 'base64').toString();
console.log('\\u001b[31mmeasured 41c7');
process.exit(report === 'stand-in report over ' + report_data ? 0 : 1);
`;
  const verifiers = {
    takes: program(join(directory, 'takes'), takes),
    refuses: program(join(directory, 'refuses'), '#!/bin/sh\necho an old firmware; exit 3\n'),
  };
  for (const [name, file] of Object.entries(verifiers)) {
    const args = [
      'seal',
      '--gateway',
      cluster.gateway.url,
      '--pin',
      `lab=${root.pin}`,
      '--port',
      '0',
      '--verifier',
      file,
    ];
    const proxy = new Managed([NODE, join(ROOT, 'clients/otela/main.ts'), ...args], { label: 'otela seal' });
    const [, url = ''] = await proxy.line(/otela seal ready (http:\S+)/, 20_000);
    const answer = await fetch(`${url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({ tokens: 1 })),
    });
    const text = await answer.text();
    if (name === 'takes') {
      expect(answer.status, text).toBe(200);
      await proxy.line(/\S+ of lab \(tdx, nvidia\): the verifier accepted its evidence: \[31mmeasured 41c7/, 5_000);
    } else {
      expect([answer.status, text]).toEqual([
        400,
        expect.stringContaining('The verifier rejected the evidence of all nodes'),
      ]);
      await proxy.line(/not used: the verifier rejected its evidence: an old firmware/, 5_000);
    }
  }
  expect(cluster.engine.requests.filter(({ url }) => url.endsWith('/completions')).length).toBe(1);
  const complaints: string[] = [];
  const out = { print: () => {}, complain: (line: string) => void complaints.push(line) };
  expect(await otela(['seal', '--gateway', cluster.gateway.url, '--verifier', join(directory, 'none')], out)).toBe(2);
  expect(complaints.join()).toContain('is not an executable program');
});

it('what a gateway answers is no page here: its script would read what is written in ours', async () => {
  const server = createServer((_, response) =>
    response
      .writeHead(200, { 'content-type': 'text/html', 'content-security-policy': "script-src 'unsafe-inline'" })
      .end('<script>opener.document</script>'),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  const gateway = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const seal = await sealCommand({ gateway, pins: undefined, port: 0 }, { print: () => {}, complain: () => {} });
  const answer = await fetch(`http://127.0.0.1:${seal.port}/docs`);
  await answer.text();
  seal.close();
  expect(answer.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
  expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
});

it('says which gateway cannot be reached, and why', async () => {
  const gateway = `http://127.0.0.1:${await freePort()}`;
  const seal = await sealCommand({ gateway, pins: undefined, port: 0 }, { print: () => {}, complain: () => {} });
  const answer = await fetch(`http://127.0.0.1:${seal.port}/v1/models`);
  const said = await answer.text();
  seal.close();
  expect([answer.status, said]).toEqual([502, expect.stringContaining(`${gateway} cannot be reached: connect ECONN`)]);
});
