/** A running autoscaler: its file, its lease, its memory; batch system and gateway are mocks. */
import { mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { readFactoryConfig } from '../../../factory/config/read-config.ts';
import { placedModels } from '../../../factory/decisions/factory-world.ts';
import { emptyMemory, startKey } from '../../../factory/decisions/persisted-state.ts';
import { noDemand } from '../../../factory/demand/demand-source.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { FactorySite } from '../../support/factory/factory-site.ts';
import { MockLauncher } from '../../support/factory/mock-launcher.ts';
import { endAll, eventually } from '../../support/processes.ts';

const LLAMA = 'meta-llama/Llama-3.1-8B-Instruct';
const QWEN = 'Qwen/Qwen3-8B';
const KEPT = CONFIG.replace('max = 4', 'max = 4\nmin = 1').replace('[clusters.alps]', '[guest]\nevery = "1s"\n\n$&');

afterEach(endAll);

const says = (lines: readonly string[], word: string) =>
  eventually(`"${word}"`, 20_000, () => (lines.some((line) => line.includes(word)) ? true : undefined));

it('a gateway that has news all the time makes no storm of squeue', async () => {
  const site = new FactorySite(CONFIG);
  const { gateway } = site.start();
  await eventually('a first round', 10_000, () => (site.launcher.lists > 0 ? true : undefined));
  const from = Date.now();
  for (let news = 0; news < 200; news++) {
    gateway.news();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  // One per second, plus the first and the last.
  expect(site.launcher.lists).toBeLessThanOrEqual(2 + Math.ceil((Date.now() - from) / 1_000));
});

it('an old log that cannot be deleted does not end the factory', async () => {
  const site = new FactorySite(KEPT);
  const old = join(site.state, 'logs/old.log');
  mkdirSync(old, { recursive: true });
  utimesSync(old, 0, 0);
  const { lines } = site.start();
  await says(lines, 'old logs cannot be deleted');
  const asked = site.launcher.lists;
  await eventually('another round', 10_000, () => (site.launcher.lists > asked ? true : undefined));
});

it('two factories with one file: the second one waits, asks no scheduler, and goes on with the same jobs', async () => {
  const site = new FactorySite(KEPT);
  const first = site.start();
  await eventually('a job', 20_000, () => (site.launcher.submissions.length > 0 ? true : undefined));
  const asked = site.launcher.lists;
  const idle = new MockLauncher();
  const second = site.start(idle);
  await says(second.lines, 'waits: the factory pool runs on');
  await eventually('more rounds of the first', 10_000, () => (site.launcher.lists > asked + 2 ? true : undefined));
  expect(idle.lists).toBe(0);
  idle.jobs.push(...site.launcher.jobs);
  await first.stop();
  await eventually('rounds of the second', 20_000, () => (idle.lists > 1 ? true : undefined));
  expect(idle.submissions).toEqual([]);
});

it('a file that changes counts from the next round, also one that changed while a second factory waited; a wrong one changes nothing', async () => {
  const site = new FactorySite(KEPT);
  const first = site.start();
  const submitted = (launcher = site.launcher) => launcher.submissions.map(({ gpus }) => gpus);
  await eventually('the first model', 20_000, () => (submitted().length === 1 ? true : undefined));
  const more = KEPT.replace('max = 2', 'max = 2\nmin = 1');
  writeFileSync(site.configPath, more.slice(0, 400));
  await says(first.lines, 'continues with the earlier file');
  expect(submitted()).toEqual([1]);
  writeFileSync(site.configPath, more);
  await eventually('the second model', 20_000, () => (submitted().length === 2 ? true : undefined));
  expect(submitted()).toEqual([1, 2]);

  const next = new MockLauncher();
  const second = site.start(next);
  await says(second.lines, 'waits:');
  writeFileSync(site.configPath, more.replace('min = 1\nidle = "10m"', 'min = 3\nidle = "10m"'));
  await says(first.lines, 'read its file again');
  next.jobs.push(...site.launcher.jobs);
  await first.stop();
  await eventually('a round by the new file', 20_000, () =>
    second.gateway.reports.some(({ models }) => models.some(({ min }) => min === 3)) ? true : undefined,
  );
});

it('why a model rests, and what its engine printed last, is in status for as long as it rests: after a restart and many decisions, too', async () => {
  const site = new FactorySite(KEPT);
  const first = site.start();
  await eventually('a job', 20_000, () => (site.launcher.submissions.length > 0 ? true : undefined));
  await first.stop();
  site.launcher.jobs.length = 0;
  const [placed] = placedModels(readFactoryConfig(site.configPath));
  const reason = 'job 7 on alps failed (FAILED) after 3s';
  const log_tail = 'loading weights\ntorch.OutOfMemoryError: CUDA out of memory';
  site.remember((memory) => {
    const now = Date.now();
    Object.assign(memory, { ...emptyMemory(now), next: memory.next });
    const rest = { failed: 3, short: 0, refused: 0, rests: 1, until: now + 3_600_000, resting: true, reason, log_tail };
    for (const { context } of placed?.places ?? [])
      memory.back_offs[startKey(LLAMA, 'alps', context)] = { context, ...rest };
    memory.failed = [{ cluster: 'alps', id: '7', model: LLAMA, gpus: 1, at: now, reason, log_tail: 'out of memory' }];
  });
  // The last ten are shown.
  const at = new Date().toISOString();
  const decisions = Array.from({ length: 200 }, (_, n) => ({ at, model: QWEN, text: `decision ${n}` }));
  writeFileSync(join(site.state, 'status.json'), JSON.stringify({ decisions, day: [] }));
  const second = site.start();
  await eventually('a report', 20_000, () => (second.gateway.reports.length > 0 ? true : undefined));
  const report = second.gateway.reports.at(-1);
  expect(report?.models.find(({ id }) => id === LLAMA)).toMatchObject({ state: 'resting', reason });
  expect(report?.jobs).toContainEqual(expect.objectContaining({ id: '7', state: 'failed', log_tail: 'out of memory' }));
  expect(site.status()).toMatch(/Llama-3\.1-8B-Instruct +resting .*job 7 on alps failed/);
  expect(site.status()).toContain('torch.OutOfMemoryError: CUDA out of memory');
});

it('idle GPUs are reported by class if the batch system knows them, and left out otherwise', async () => {
  const second = '[[clusters.alps.pools]]\nname = "more"\ngpu = "v100"\ngpus_per_node = 2\ntime = "08:00:00"\n\n';
  const site = new FactorySite(CONFIG.replace('[recipes.llama]', `${second}$&`));
  site.launcher.idle = [
    { pool: 'normal', idle: 3 },
    { pool: 'old', idle: 2 },
    { pool: 'more', idle: 4 },
  ];
  const { gateway } = site.start();
  const cluster = () => gateway.reports.at(-1)?.clusters[0];
  const known = await eventually('a report', 20_000, () =>
    cluster()?.idle_gpus === undefined ? undefined : cluster(),
  );
  expect(known).toMatchObject({ idle_gpus: 9, idle_gpus_by_class: { H100: 3, V100: 6 } });
  site.launcher.idle = undefined;
  gateway.news();
  await eventually('an unknown number', 20_000, () => (cluster()?.idle_gpus === undefined ? true : undefined));
  expect(cluster()).not.toHaveProperty('idle_gpus_by_class');
});

it('a factory whose disk is full submits nothing that it could not remember, and goes on when there is room', async () => {
  const site = new FactorySite(KEPT.replace('\nmin = 1', ''));
  const { gateway, lines } = site.start();
  await eventually('a round', 20_000, () => (gateway.reports.length > 0 ? true : undefined));
  // A file cannot replace a directory.
  const memory = join(site.state, 'memory.json');
  rmSync(memory);
  mkdirSync(memory);
  const lists = site.launcher.lists;
  gateway.heard = { demand: new Map([[LLAMA, { ...noDemand(LLAMA), waiting: 1 }]]), nodes: [] };
  gateway.news();
  await says(lines, 'this round failed');
  await eventually('more rounds', 20_000, () => (site.launcher.lists > lists + 2 ? true : undefined));
  expect(site.launcher.submissions).toEqual([]);
  rmSync(memory, { recursive: true });
  await eventually('a job', 20_000, () => (site.launcher.submissions.length === 1 ? true : undefined));
});
