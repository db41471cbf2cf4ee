import { existsSync } from 'node:fs';
import { researchData } from '../../data-path.ts';
import { smoothed } from '../../regions/macro/forecast.ts';
import { GuaranteeProbe } from '../../regions/macro/ppo/guarantee.ts';
import { readPolicy } from '../../regions/macro/ppo/policy-file.ts';
import { torta } from '../../regions/micro/torta.ts';
import { TOPOLOGY_IDS } from '../../regions/world/topology.ts';
import type { Row } from '../rows.ts';
import { claim } from './claims.ts';
import { BASELINES, type MakePolicy, PAPER_BASELINES, Simulations } from './experiment.ts';

const [SLOTS, SEED] = [120, 1];

/** The paper's gain condition on each topology, with S_0 from the reactive baselines in the simulator. */
export async function guaranteeRows(simulations: Simulations): Promise<Row[]> {
  const path = researchData('regions/policy.json');
  if (!existsSync(path)) return [];
  const policy = readPolicy(path);
  const rows: Row[] = [];
  for (const topology of TOPOLOGY_IDS) {
    const changes: number[] = [];
    for (const name of PAPER_BASELINES) {
      const make = BASELINES[name];
      if (make !== undefined)
        changes.push((await simulations.run(name, topology, SEED, make, { slots: SLOTS })).shareChange);
    }
    const s0 = changes.reduce((sum, one) => sum + one, 0) / changes.length;
    const found = await simulations.kept.get({ guarantee: topology, seed: SEED, slots: SLOTS, s0 }, async () => {
      const probe = new GuaranteeProbe(policy);
      const make: MakePolicy = (world) => torta({ name: 'PPO', macro: probe.planner(), forecast: smoothed(world) });
      // Not kept: the probe sees only a run that takes place.
      const run = await new Simulations(simulations.catalogue).run('PPO', topology, SEED, make, { slots: SLOTS });
      return probe.result(run, s0);
    });
    rows.push(
      claim(
        'Theorem 2: change of shares of the trained policy against the reactive baselines',
        `${topology}: ${found.sRl.toFixed(2)} of ${s0.toFixed(2)}`,
        '%',
        100 * (found.sRl / s0 - 1),
        { band: [-100, 0] },
      ),
      claim(
        'Theorem 3: the gain condition of the trained policy holds',
        `${topology}: S_0 ${s0.toFixed(2)}, S_RL ${found.sRl.toFixed(2)}, L_T ${found.lipschitzResponse.toFixed(0)} s, ε ${found.epsilon.toFixed(2)}`,
        'yes = 1',
        found.holds ? 1 : 0,
        { paper: 1, band: [1, 1] },
      ),
    );
  }
  return rows;
}
