/** A plan of `otela-plan` becomes jobs of the autoscaler. */
import { rmSync, utimesSync, writeFileSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { PlanFile } from '../../../factory/demand/plan-file.ts';
import { main } from '../../../scheduler/cli/main.ts';
import { writePlan } from '../../../scheduler/live/plan-file.ts';
import { MODEL as FOLLOWED, World } from '../../scheduler/follow/world.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { FactorySite } from '../../support/factory/factory-site.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';

const LLAMA = 'meta-llama/Llama-3.1-8B-Instruct';
const QWEN = 'Qwen/Qwen3-8B';

afterEach(endAll);

async function plan(directory: string): Promise<string> {
  const file = (name: string, content: unknown) => {
    writeFileSync(`${directory}/${name}`, JSON.stringify(content));
    return `${directory}/${name}`;
  };
  const inventory = file('inventory.json', { pools: [{ id: 'alps', gpu: 'H100-SXM', nodes: 2, gpus_per_node: 4 }] });
  const workload = file('workload.json', {
    models: [
      { model: LLAMA, rate: 30, input: 500, output: 200, tp: [1] },
      { model: QWEN, rate: 5, input: 500, output: 200, tp: [1] },
    ],
  });
  const out: string[] = [];
  const argv = ['plan', '--inventory', inventory, '--workload', workload, '--json'];
  const code = await main(argv, { out: (text) => void out.push(text), log: () => {} });
  expect(code).toBe(0);
  return out.join('\n');
}

it('replicas of a plan are submitted and kept without a request, and end when the file is gone', async () => {
  const directory = await temporaryDirectory('otela-plan');
  const text = await plan(directory);
  const { placements } = z
    .object({ placements: z.array(z.object({ model: z.string(), replicas: z.number() })) })
    .parse(JSON.parse(text));
  const replicas = (model: string) =>
    placements.filter((one) => one.model === model).reduce((sum, one) => sum + one.replicas, 0);
  expect(replicas(LLAMA)).toBeGreaterThan(0);
  writeFileSync(`${directory}/plan.json`, text);
  const site = new FactorySite(
    `${CONFIG.replace('[clusters.alps]', `[guest]\nevery = "1s"\n\n[plan]\nfile = "${directory}/plan.json"\n\n$&`)}`,
  );
  const { gateway } = site.start();
  const wanted = () => Math.min(4, replicas(LLAMA)) + Math.min(2, replicas(QWEN));
  const count = () => site.launcher.jobs.filter(({ state }) => state === 'pending').length;
  // At most two wait at a time: jobs that begin free a slot.
  await eventually('all replicas', 60_000, () => {
    for (const job of site.launcher.jobs) if (job.state === 'pending' && count() === 2) job.state = 'running';
    return site.launcher.jobs.length === wanted() ? true : undefined;
  });
  expect(gateway.reports.at(-1)?.models.map(({ id, reason }) => [id, reason])).toEqual(
    expect.arrayContaining([[LLAMA, expect.any(String)]]),
  );
  expect(site.status()).toContain('the plan wants');
  rmSync(`${directory}/plan.json`);
  await eventually('jobs that wait are cancelled', 30_000, () => (count() === 0 ? true : undefined));
});

it('replicas are summed by model; a file that is broken or too old is told, once', async () => {
  const directory = await temporaryDirectory('otela-plan');
  const path = `${directory}/plan.json`;
  const notes: string[] = [];
  const file = new PlanFile({ path, maxAge: 3_600_000, models: [LLAMA, QWEN], note: (text) => void notes.push(text) });
  const wanted = (now = Date.now()) =>
    [...file.latest(now).demand].map(([model, { wanted: all }]) => [model, all?.map(({ replicas }) => replicas)]);
  expect(wanted()).toEqual([]);
  expect(notes).toEqual([expect.stringContaining('cannot be read')]);
  const place = { pool: 'alps', tp: 1 };
  writePlan(path, [
    { model: LLAMA, ...place, replicas: 1 },
    { model: LLAMA, pool: 'old', tp: 2, replicas: 2 },
    { model: 'of/another', ...place, replicas: 5 },
  ]);
  expect(wanted()).toEqual([[LLAMA, [3]]]);
  expect(wanted(Date.now() + 3_601_000)).toEqual([]);
  writeFileSync(path, '{"placements": [{"model": "x", "replicas": -1}]}');
  utimesSync(path, new Date(), new Date(Date.now() + 1_000));
  expect([wanted(), wanted()]).toEqual([[[LLAMA, [3]]], [[LLAMA, [3]]]]);
  expect(notes.slice(1)).toEqual([
    expect.stringContaining('too old'),
    expect.stringContaining('not a plan of otela-plan'),
  ]);
  // The file is still broken, and then the last plan becomes too old.
  const later = Date.now() + 3_602_000;
  expect([wanted(later), wanted(later)]).toEqual([[], []]);
  expect(notes.slice(3)).toEqual([expect.stringContaining('too old')]);
});

it('what watch --forecast writes is what the factory wants, also after the mix has changed the layout', async () => {
  const directory = await temporaryDirectory('otela-plan');
  const path = `${directory}/plan.json`;
  const file = new PlanFile({ path, maxAge: 3_600_000, models: [FOLLOWED], note: () => {} });
  const world = new World();
  const start = Math.floor(world.now / 60_000);
  const wanted = async (slots: number) => {
    await world.run(slots);
    writePlan(path, world.plan);
    utimesSync(path, new Date(), new Date(world.now));
    return file
      .latest(world.now)
      .demand.get(FOLLOWED)
      ?.wanted?.map(({ replicas }) => replicas);
  };
  world.arrivals = (slot) => (slot < start + 12 ? [12, 120] : [1_200, 120]);
  const before = await wanted(8);
  const small = world.network.deployed.length;
  expect(before).toEqual([small]);
  expect(await wanted(16)).toEqual([world.network.deployed.length]);
  expect(world.network.deployed.length).toBeGreaterThan(small);
});
