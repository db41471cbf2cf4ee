/** Hosts on which starts fail while the recipe serves elsewhere. */
import { expect, it } from 'vitest';
import {
  blockedHosts,
  EXCLUDED_MAX,
  forgetHosts,
  isHostName,
  recordHostFailure,
  recordHostRecovery,
} from '../../../factory/decisions/blocked-hosts.ts';
import { emptyMemory, memorySchema } from '../../../factory/decisions/persisted-state.ts';

const HOUR_MS = 3_600_000;

it('a host gets no jobs after two failed starts in a row, for longer each time, until a job serves there', () => {
  const memory = emptyMemory(0);
  expect(recordHostFailure(memory, 'alps', 'nid1', 0)).toBeUndefined();
  expect(blockedHosts(memory, 'alps', 1)).toEqual([]);
  expect(recordHostFailure(memory, 'alps', 'nid1', 0)).toContain('nid1 gets no jobs for 1h');
  expect(blockedHosts(memory, 'alps', 1)).toEqual(['nid1']);
  expect(blockedHosts(memory, 'todi', 1), 'another cluster').toEqual([]);
  expect(blockedHosts(memory, 'alps', HOUR_MS), 'one job tries it again').toEqual([]);
  recordHostFailure(memory, 'alps', 'nid1', HOUR_MS);
  expect(blockedHosts(memory, 'alps', 3 * HOUR_MS - 1)).toEqual(['nid1']);
  for (let n = 0; n < 20; n++) recordHostFailure(memory, 'alps', 'nid1', HOUR_MS);
  expect(blockedHosts(memory, 'alps', 25 * HOUR_MS), 'never for more than a day').toEqual([]);
  recordHostRecovery(memory, 'alps', 'nid1');
  expect(recordHostFailure(memory, 'alps', 'nid1', 0)).toBeUndefined();
});

it('what is remembered is bounded, stored, and of a cluster that refuses the names nothing is left', () => {
  const memory = emptyMemory(0);
  for (let n = 0; n < 1_000; n++) for (const time of [n, n]) recordHostFailure(memory, 'alps', `nid${n}`, time);
  expect(Object.keys(memory.hosts)).toHaveLength(256);
  expect(blockedHosts(memory, 'alps', 1_000)).toHaveLength(EXCLUDED_MAX);
  expect(blockedHosts(memory, 'alps', 1_000)).toContain('nid999');
  expect(memorySchema.parse(memory)).toEqual(memory);
  const { hosts: _, ...older } = memory;
  expect(memorySchema.parse(older).hosts).toEqual({});
  forgetHosts(memory, 'alps');
  expect(memory.hosts).toEqual({});
});

it.each(['nid001,nid002', 'nid[001-002]', 'a b', '$(reboot)', '-x', '', undefined])('%j is not one host', (text) => {
  expect(isHostName(text)).toBe(false);
});
