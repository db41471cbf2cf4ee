/**
 * `node --expose-gc --initial-old-space-size=1024 churn.ts Map|TransientMap` prints how many MiB entered the old
 * generation while entries passed through the map. That generation is not collected meanwhile.
 */
import { getHeapSpaceStatistics } from 'node:v8';
import { TransientMap } from '../../../shared/collections/transient-map.ts';

const PASSING = 50_000;
const AT_ONCE = 64;
const MIB = 2 ** 20;

const old = () => getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? 0;

const map: Pick<Map<number, number[]>, 'set' | 'delete'> | TransientMap<number, number[]> =
  process.argv[2] === 'Map' ? new Map() : new TransientMap();
map.set(-1, []);
globalThis.gc?.(); // the live objects are in the old generation now, including the table
const before = old();
for (let n = 0; n < PASSING; n++) {
  map.set(n, new Array(200).fill(n));
  map.delete(n - AT_ONCE);
}
console.log(Math.max(0, old() - before) / MIB);
