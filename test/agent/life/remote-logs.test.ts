/** Which parts of its logs an agent shows, and which it keeps private. */
import { readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { RemoteLogs } from '../../../agent/life/remote-logs.ts';
import {
  AGENT_LOG_MAX_BYTES,
  INSPECTED_LOG_MAX_BYTES,
  inspectedSchema,
} from '../../../shared/deployment/order-reply.ts';
import { LOG_TAIL_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { scratch } from '../support/harness.ts';

function logsOf(printed: string, more: Partial<ConstructorParameters<typeof RemoteLogs>[0]> = {}) {
  const told: string[] = [];
  const logs = new RemoteLogs({
    engine: () => ({ text: (max: number) => printed.slice(-max) }),
    allowed: true,
    sealed: () => false,
    redact: (text) => text.replaceAll('secret', '[redacted]'),
    directory: undefined,
    log: (line) => told.push(line),
    ...more,
  });
  return { logs, told };
}
const gpus = { read: async () => null } as unknown as Parameters<RemoteLogs['inspect']>[0];

it('shows the engine’s and its own, without secrets', async () => {
  const { logs } = logsOf('the secret\n');
  logs.line('a secret, too');
  const { log, agent_log } = await logs.inspect(gpus);
  expect(log).toBe('the [redacted]\n');
  expect(agent_log).toMatch(/^\d{4}-.*Z a \[redacted\], too\n$/);
});

it('is bounded, whatever is printed, and begins with a whole line', async () => {
  const { logs } = logsOf('\u20ac"\\ line of an engine\n'.repeat(50_000));
  for (let n = 0; n < 20_000; n++) logs.line('x'.repeat(100));
  const told = await logs.inspect(gpus);
  expect(() => inspectedSchema.parse(told)).not.toThrow();
  expect(Buffer.byteLength(told.log)).toBeLessThanOrEqual(INSPECTED_LOG_MAX_BYTES);
  expect(Buffer.byteLength(told.agent_log ?? 'x'.repeat(AGENT_LOG_MAX_BYTES + 1))).toBeLessThanOrEqual(
    AGENT_LOG_MAX_BYTES,
  );
  expect(logs.atEnd('s1').tail?.length).toBeLessThanOrEqual(LOG_TAIL_MAX_BYTES);
});

it('a line whose beginning was cut off is not shown: it may end in half a secret', async () => {
  const { logs } = logsOf(`a token is half-of-it${'y'.repeat(INSPECTED_LOG_MAX_BYTES - 20)}\nthe end\n`);
  expect((await logs.inspect(gpus)).log).toBe('the end\n');
});

it.each([
  ['forbidden', { allowed: false }],
  ['sealed', { sealed: () => true }],
] as const)('where it is %s nothing leaves, now or at the end', async (withheld, more) => {
  const { logs, told } = logsOf('words of a prompt', more);
  logs.line('words');
  expect(await logs.inspect(gpus)).toEqual({ kind: 'inspected', log: '', gpus: null, withheld });
  expect(logs.atEnd('s1').tail).toBeUndefined();
  expect(told.join()).toContain('not sent to gateways');
});

it('keeps the newest hundred in a directory, for its owner alone, and nothing else there is touched', async () => {
  const directory = join(scratch(), 'logs');
  const { logs } = logsOf('the secret', { directory, allowed: false });
  await logs.atEnd('first').kept;
  writeFileSync(join(directory, 'notes.log'), 'mine');
  utimesSync(join(directory, 'otela-first.log'), 1, 1);
  utimesSync(join(directory, 'notes.log'), 1, 1);
  for (let n = 0; n < 99; n++) writeFileSync(join(directory, `otela-s${n}.log`), '', { mode: 0o600 });
  await logs.atEnd('s99').kept;
  const kept = readdirSync(directory);
  expect(kept).toHaveLength(101);
  expect(kept).toContain('notes.log');
  expect(kept).not.toContain('otela-first.log');
  expect(readFileSync(join(directory, 'otela-s99.log'), 'utf8')).toMatch(/^the \[redacted\]\n--- the agent:\n/);
  expect(statSync(join(directory, 'otela-s99.log')).mode & 0o777).toBe(0o600);
});

it('a directory that cannot be written is told, and the end goes on', async () => {
  const { logs, told } = logsOf('x', { directory: '/proc/no/such' });
  const { tail, kept } = logs.atEnd('s1');
  expect(tail?.toString()).toContain('x\n--- the agent:');
  await kept;
  expect(told.join()).toContain('cannot be saved');
});
