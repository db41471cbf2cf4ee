import { existsSync } from 'node:fs';
import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { researchData } from '../../data-path.ts';
import { trace } from '../../regions/macro/ppo/environment.ts';
import { guarantee } from '../../regions/macro/ppo/guarantee.ts';
import { readPolicy } from '../../regions/macro/ppo/policy-file.ts';
import { TOPOLOGY_IDS } from '../../regions/world/topology.ts';
import { buildWorld } from '../../regions/world/world.ts';
import { type Row, row } from '../rows.ts';
import { BASELINES, PAPER_BASELINES, runOne } from './experiment.ts';

const [SLOTS, SEED] = [120, 1];

/** The paper's gain condition for each trained policy, with S_0 from the reactive baselines in the simulator. */
export async function guaranteeRows(catalogue: HardwareCatalogue): Promise<Row[]> {
  const rows: Row[] = [];
  for (const topology of TOPOLOGY_IDS) {
    const path = researchData(`regions/policy-${topology}.json`);
    if (!existsSync(path)) continue;
    const changes: number[] = [];
    for (const name of PAPER_BASELINES) {
      const make = BASELINES[name];
      if (make !== undefined)
        changes.push((await runOne(catalogue, topology, SEED, make, { slots: SLOTS })).shareChange);
    }
    const world = buildWorld(topology, SEED, catalogue);
    const s0 = changes.reduce((sum, one) => sum + one, 0) / changes.length;
    const found = guarantee(world, readPolicy(path, world.topology), await trace(world, SEED, SLOTS), s0, 0);
    rows.push(
      row(`${topology}: S_0, change of shares of the reactive baselines`, '‖ΔA‖²', s0),
      row(`${topology}: S_RL of the trained policy`, '‖ΔA‖²', found.sRl),
      row(`${topology}: Lipschitz constant of the response`, 's', found.lipschitzResponse),
      row(`${topology}: distance to the teacher`, '‖A − A*‖', found.epsilon),
      row(`${topology}: the paper's gain condition holds`, 'yes = 1', found.holds ? 1 : 0, {
        paper: 1,
        band: [1, 1],
        miss: { band: [0, 0], reason: 'the trained policy stays too far from its teacher: ε is 1' },
      }),
    );
  }
  return rows;
}
