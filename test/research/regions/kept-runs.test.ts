import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OURS, ours, Simulations } from '../../../research/papers/torta/experiment.ts';
import { KeptRuns, resultSources } from '../../../research/papers/torta/kept-runs.ts';
import { catalogue } from './support.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'otela-kept-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const once = async <T>(kept: KeptRuns, key: Record<string, unknown>, value: T) => {
  let made = 0;
  const got = await kept.get(key, async () => {
    made++;
    return value;
  });
  return { got, made };
};

describe('kept runs', () => {
  it('return in a later process what was simulated, to the digit', async () => {
    const options = { slots: 4 };
    const first = await new Simulations(catalogue, new KeptRuns(folder)).run(OURS, 'abilene', 1, ours, options);
    const never = () => {
      throw new Error('simulated again');
    };
    const again = await new Simulations(catalogue, new KeptRuns(folder)).run(OURS, 'abilene', 1, never, options);
    expect(again).toEqual(first);
    const other = new Simulations(catalogue, new KeptRuns(folder)).run(OURS, 'abilene', 2, never, options);
    await expect(other).rejects.toThrow('simulated again');
  });

  it('differ by each part of the key, and nothing is kept without a folder', async () => {
    const kept = new KeptRuns(folder);
    expect(await once(kept, { name: 'a', seed: 1 }, 1)).toEqual({ got: 1, made: 1 });
    expect(await once(kept, { name: 'a', seed: 1 }, 2)).toEqual({ got: 1, made: 0 });
    expect(await once(kept, { name: 'a', seed: 2 }, 2)).toEqual({ got: 2, made: 1 });
    expect(await once(new KeptRuns(), { name: 'a', seed: 1 }, 3)).toEqual({ got: 3, made: 1 });
  });

  it('are made again if the file of a result was not finished or is of another key', async () => {
    await once(new KeptRuns(folder), { name: 'a' }, 1);
    const [digest = ''] = readdirSync(folder);
    const [file = ''] = readdirSync(join(folder, digest));
    for (const broken of ['{"key": "{\\"na', '{"key": "{\\"name\\":\\"b\\"}", "value": 9}', '7', '']) {
      writeFileSync(join(folder, digest, file), broken);
      expect(await once(new KeptRuns(folder), { name: 'a' }, 2), broken).toEqual({ got: 2, made: 1 });
    }
  });

  it('depend on all sources and data that a simulation uses, and not on what prints it', () => {
    const sources = resultSources();
    expect(sources).toEqual(
      expect.arrayContaining([
        'scheduler/catalogue/catalogue.ts',
        'scheduler/data/models.json',
        'scheduler/simulator/random.ts',
        'scheduler/solver/highs.ts',
        'shared/routing/policies/score.ts',
        'research/data/regions/hardware.json',
      ]),
    );
    expect(sources).not.toContain('research/papers/torta/milp.ts');
    expect(sources).not.toContain('research/papers/torta/pictures.ts');
  });

  it('keep nothing of a run that failed', async () => {
    const kept = new KeptRuns(folder);
    await expect(kept.get({ name: 'a' }, () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    expect(await once(kept, { name: 'a' }, 1)).toEqual({ got: 1, made: 1 });
  });
});
