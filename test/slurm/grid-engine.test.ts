/** The launcher's five calls on a real Grid Engine, and how an unreachable one is distinguished from an answer. */
import { chmod, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import type { RunTool } from '../../agent/host/run-tool.ts';
import type { Launcher, Submission } from '../../factory/launchers/launcher.ts';
import { gridEngineJob } from '../../node/batch-systems/grid-engine.ts';
import { endAll, eventually } from '../support/processes.ts';
import { GPUS, GridEngine, noGridEngine } from './grid-engine.ts';
import { launcherCase, PREFIX } from './launcher-case.ts';

afterEach(endAll);

const MINUTES = 10;
const TIME_MS = MINUTES * 60_000;

/** As an agent in a job runs programs. */
const toolOf =
  (engine: GridEngine): RunTool =>
  async (file, args) => {
    const done = await engine.run(file, args);
    return done.kind === 'done' && done.code === 0
      ? { ok: true, stdout: done.out }
      : { ok: false, reason: done.errors, absent: false };
  };

async function open(engine: GridEngine): Promise<{ launcher: Launcher; submission: Submission; logs: string }> {
  const logs = join(engine.directory, 'logs');
  await mkdir(logs);
  await chmod(logs, 0o777);
  const log = join(logs, 'crc-%j.log');
  return { logs, ...launcherCase({ launcher: 'grid-engine', run: engine.run, minutes: MINUTES, log }) };
}

it('submits, lists, counts idle GPUs, cancels and checks on a real Grid Engine', async ({ skip }) => {
  const reason = noGridEngine();
  if (reason !== undefined) skip(reason);
  const engine = await GridEngine.up();
  const { launcher, submission, logs } = await open(engine);
  const states = async () =>
    Object.fromEntries((await launcher.list(PREFIX)).map(({ id, name, state }) => [id, [name, state]]));
  const idle = async (count: number) =>
    eventually(`${count} idle GPUs`, 30_000, async () =>
      (await launcher.capacity())?.[0]?.idle === count ? true : undefined,
    );

  expect(await launcher.list(PREFIX)).toEqual([]);
  expect(await launcher.check(submission)).toMatchObject({ ok: true });
  const elsewhere = { ...submission, pool: { ...submission.pool, name: 'nowhere' } };
  expect(await launcher.check(elsewhere)).toMatchObject({ ok: false, text: expect.stringContaining('nowhere') });
  await expect(launcher.submit(elsewhere)).rejects.toMatchObject({
    code: 'refused',
    message: expect.stringContaining('nowhere'),
  });
  await idle(GPUS);

  // One more than there are GPUs.
  const ids = await launcher.submit({ ...submission, count: GPUS + 1 });
  expect(ids).toHaveLength(GPUS + 1);
  await eventually('all but one begin', 60_000, async () =>
    Object.values(await states()).filter(([, state]) => state === 'running').length === GPUS ? true : undefined,
  );
  const now = await states();
  expect(
    Object.values(now)
      .map(([name, state]) => [name, state])
      .sort(),
  ).toEqual([
    [submission.name, 'pending'],
    [submission.name, 'running'],
    [submission.name, 'running'],
  ]);
  await idle(0);
  const [first = ''] = ids.filter((id) => now[id]?.[1] === 'running');
  await eventually('its output', 30_000, async () => {
    const text = await readFile(join(logs, `crc-${first}.log`), 'utf8').catch(() => '');
    return text.includes(`job ${first} begins`) ? true : undefined;
  });

  const job = gridEngineJob({ JOB_ID: first, SGE_ROOT: '/opt/sge' });
  const end = await job?.askEnd?.(toolOf(engine));
  const leftMs = end?.kind === 'known' ? (end.ends?.getTime() ?? 0) - Date.now() : Number.NaN;
  expect(leftMs, JSON.stringify(end)).toBeGreaterThan(TIME_MS - 180_000);
  expect(leftMs).toBeLessThan(TIME_MS + 60_000);
  expect(await job?.askFate(toolOf(engine))).toBeUndefined();

  await launcher.cancel(ids);
  await eventually('none is left', 60_000, async () => ((await launcher.list(PREFIX)).length === 0 ? true : undefined));
  // Canceling an ended job is not an error.
  await launcher.cancel(ids);
  await idle(GPUS);

  await engine.stopMaster();
  await expect(launcher.list(PREFIX)).rejects.toMatchObject({ code: 'unreachable' });
  await expect(launcher.submit(submission)).rejects.toMatchObject({ code: 'unclear' });
  await engine.startMaster();
  expect(await launcher.list(PREFIX)).toEqual([]);
});
