/** The Python client: the ten lines of its example, by a real agent. */
import { execFile } from 'node:child_process';
import { createServer, type RequestListener } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { atEnd, endAll } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';

afterEach(endAll);

it('the client’s example runs on the nodes, and its module is not needed there', async () => {
  const gateway = await Gateway.start();
  const project = await gateway.createProject('claims');
  const key = await gateway.createKey('claims', { project_id: project });
  const token = await gateway.createJoinToken();
  await startAgent({ gateways: [gateway.url], token, args: ['--allow-functions', project] });
  const { stdout } = await promisify(execFile)('python3', [join(ROOT, 'clients/python/example.py')], {
    env: { PATH: process.env.PATH ?? '', OTELA_GATEWAY: gateway.url, OTELA_API_KEY: key },
    timeout: patience(120_000),
  });
  expect(stdout.trim()).toBe("['SUPPORTED', 'REFUTED']");
});

/** The address of a server of this test. */
async function serve(answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  atEnd(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
}

it('the client takes its key to no other address, whatever an answer points to', async () => {
  const heard: unknown[] = [];
  const elsewhere = await serve(({ headers }, response) => {
    heard.push(headers.authorization);
    response.end('{}');
  });
  const gateway = await serve((_, response) => void response.writeHead(302, { location: elsewhere }).end());
  const ask = 'import opentela; opentela.Client().request("GET", "/files")';
  const env = { PATH: process.env.PATH ?? '', OTELA_GATEWAY: gateway, OTELA_API_KEY: 'sk-secret' };
  const asked = promisify(execFile)('python3', ['-c', ask], {
    env: { ...env, PYTHONPATH: join(ROOT, 'clients/python') },
    timeout: 60_000,
  });
  await expect(asked).rejects.toThrow('302');
  expect(heard).toEqual([]);
});
