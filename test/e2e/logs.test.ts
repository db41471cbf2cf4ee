/** `otela-gateway logs`: of a running node and of an ended one, without its secrets. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

afterEach(endAll);

/** A mock engine: lists one model, prints its key and then a line each second. */
const engine = (port: number) => [
  NODE,
  '-e',
  `console.log('key', process.env.VLLM_API_KEY); let n = 0; setInterval(() => console.log('line', n++), 1000);
   process.on('SIGTERM', () => process.exit(0));
   require('node:http').createServer((q, a) => { a.setHeader('content-type', 'application/json'); a.end('{"data":[{"id":"m"}]}'); }).listen(${port}, '127.0.0.1')`,
  '--',
  '--port',
  String(port),
];

async function place(...flags: string[]) {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const port = await freePort();
  const agent = await startAgent({
    gateways: [gateway.url],
    token,
    args: flags,
    command: engine(port),
    env: { VLLM_API_KEY: 'key-of-the-engine-1234' },
  });
  await gateway.serving(1);
  const session = (await gateway.nodes())[0]?.session ?? '';
  const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  const command = (...args: string[]) => [GATEWAY_MAIN, 'logs', ...args, ...door];
  const logs = (...args: string[]) => promisify(execFile)(NODE, command(...args));
  return { gateway, agent, token, session, logs, command };
}

it('is told live, followed, and kept after a drain: in the gateway and in a directory', async () => {
  const directory = await temporaryDirectory('otela-logs');
  const { agent, token, session, logs, command } = await place('--log-dir', directory);
  const stdout = await eventually('the first line', 30_000, async () => {
    const told = (await logs(session.slice(0, 10))).stdout;
    return told.includes('line 0') ? told : undefined;
  });
  expect(stdout).toContain('key [redacted]');
  expect((await logs(session, '--agent')).stdout).toContain(`session ${session}`);
  const following = new Managed([NODE, ...command(session, '--follow')], { label: 'logs' });
  await following.line(/line 2\n/, 60_000);
  await agent.stop();
  expect(await following.exited).toMatchObject({ code: 0 });
  const last = (await logs(session)).stdout;
  expect(last).toContain('line 2');
  expect(last).toContain('--- the agent:');
  expect(last).toContain('SIGTERM: draining');
  expect(last).not.toContain('key-of-the-engine');
  expect(last).not.toContain(token);
  expect(await readFile(join(directory, `otela-${session}.log`), 'utf8')).toContain('SIGTERM: draining');
});

it('a provider may forbid it: nothing is told, live or at the end', async () => {
  const { gateway, agent, session, logs } = await place('--no-remote-logs');
  await expect(logs(session)).rejects.toThrow('--no-remote-logs');
  await agent.stop();
  await eventually('it has left', 30_000, async () =>
    (await gateway.nodes()).every((node) => node.session !== session || node.state === 'LEFT') ? true : undefined,
  );
  await expect(logs(session)).rejects.toThrow('has no log of session');
});
