/**
 * Three replicas under arbitrary commands: given updates, partly synchronized, killed, restored from an old copy,
 * absent for a long time.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { decodeUpdate, encodeUpdate, type Update } from '../../../shared/lattice/registry-update.ts';
import { decodeDigest, encodeDigest } from '../../../shared/lattice/replica-digest.ts';
import { aForgery, anUpdate, crypto, lab } from './domain.ts';
import { holdings } from './laws.ts';
import { expected } from './oracle.ts';

const { issuer } = lab;
const COUNT = 3;
const fresh = () => new RegistryReplica({ crypto, accepts: (id) => id === issuer });

interface Place {
  replica: RegistryReplica;
  /** The last copy that it wrote to disk, encoded. */
  stored: Uint8Array[];
}

/** The real replicas. */
type World = Place[];

/** What each place must know: every update that it received and has not lost in a crash. */
interface Model {
  told: Update[][];
  stored: Update[][];
}

type Step = fc.Command<Model, World>;

const at = <T>(list: readonly T[], index: number): T => {
  const found = list[index];
  if (found === undefined) throw new Error(`nothing at ${index}`);
  return found;
};

/** A command that is always possible: `run` changes model and world, and the place is compared with the model. */
function step(name: string, where: number, run: (model: Model, world: World) => void): Step {
  return {
    check: () => true,
    run(model, world) {
      run(model, world);
      const { replica } = at(world, where);
      expect(holdings(replica)).toEqual(expected(at(model.told, where)));
      for (const entry of replica.entries()) expect(replica.ticketState(entry.ticket)).not.toBe('collected');
    },
    toString: () => `${name}(${where})`,
  };
}

const place = fc.nat({ max: COUNT - 1 });

const tell = fc.tuple(place, anUpdate).map(([where, update]) =>
  step('tell', where, (model, world) => {
    at(world, where).replica.merge(encodeUpdate(update));
    at(model.told, where).push(update);
  }),
);

const deceive = fc.tuple(place, aForgery).map(([where, forgery]) =>
  step('deceive', where, (_model, world) => {
    expect(at(world, where).replica.merge(forgery).outcome).not.toBe('merged');
  }),
);

/** In one direction, completely: `to` then knows what `from` knows. */
const sync = fc.tuple(place, place).map(([from, to]) =>
  step('sync', to, (model, world) => {
    exchange(at(world, from).replica, at(world, to).replica, Number.POSITIVE_INFINITY);
    at(model.told, to).push(...at(model.told, from));
  }),
);

const store = place.map((where) =>
  step('store', where, (model, world) => {
    const here = at(world, where);
    here.stored = here.replica.updates(issuer).map(encodeUpdate);
    model.stored[where] = [...at(model.told, where)];
  }),
);

const die = place.map((where) =>
  step('die', where, (model, world) => {
    const here = at(world, where);
    here.replica = fresh();
    for (const bytes of here.stored) expect(here.replica.load(bytes).outcome).toBe('merged');
    model.told[where] = [...at(model.stored, where)];
  }),
);

/** Another place becomes a copy of this one, as simulators do, and the two diverge. */
const fork = fc.tuple(place, anUpdate).map(([where, update]) =>
  step('fork', where, (_model, world) => {
    const { replica } = at(world, where);
    const before = holdings(replica);
    const copy = replica.fork();
    copy.merge(update);
    expect(holdings(replica)).toEqual(before);
    expect(copy.fingerprint(issuer)).toEqual(rebuilt(copy).fingerprint(issuer));
  }),
);

function rebuilt(replica: RegistryReplica): RegistryReplica {
  const copy = fresh();
  for (const update of replica.updates(issuer)) copy.merge(update);
  return copy;
}

function exchange(from: RegistryReplica, to: RegistryReplica, maxBytes: number): boolean {
  const digest = decodeDigest(encodeDigest(to.digest({ issuer })));
  const { updates, complete } = from.delta(digest, maxBytes);
  for (const update of updates) to.merge(decodeUpdate(encodeUpdate(update)));
  return complete;
}

test('Replicas that are told, deceived, killed and restored hold what they were told; all are equal once they talk', () => {
  const steps = fc.commands([tell, tell, deceive, sync, store, die, fork], { maxCommands: 60, size: 'max' });
  const check = fc.property(steps, fc.integer({ min: 0, max: 1500 }), (commands, maxBytes) => {
    const world: World = Array.from({ length: COUNT }, () => ({ replica: fresh(), stored: [] }));
    const model: Model = { told: world.map(() => []), stored: world.map(() => []) };
    fc.modelRun(() => ({ model, real: world }), commands);
    // Healing: a ring, with a few bytes at a time, brings the knowledge of each replica to all.
    const replicas = world.map(({ replica }) => replica);
    for (let round = 0, done = false; !done; round++) {
      expect(round).toBeLessThan(60);
      done = true;
      replicas.forEach((replica, i) => {
        for (const next of [1, 2]) done = exchange(replica, at(replicas, (i + next) % COUNT), maxBytes) && done;
      });
      const sums = replicas.map((replica) => replica.fingerprint(issuer));
      done &&= sums.every((sum) => sum.live === sums[0]?.live && sum.left === sums[0]?.left);
    }
    for (const replica of replicas) expect(holdings(replica)).toEqual(expected(model.told.flat()));
  });
  fc.assert(check, { numRuns: 150 });
});
