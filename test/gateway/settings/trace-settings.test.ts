/** Which requests are in the workload trace. */
import { expect, test } from 'vitest';
import { traceSchema, traceSettingsOf, tracingOf } from '../../../gateway/settings/trace-settings.ts';

const key = { keyId: 'key_1', userId: 'user_1', project: null };
const project = (trace: boolean, tracePrefixes = false) => ({ id: 'proj_1', trace, tracePrefixes });
const settings = (more: object) => traceSchema.parse(more);

test('by default only the requests of projects that enabled the trace are in it', () => {
  const of = (one: ReturnType<typeof project> | null) => tracingOf(settings({}), { ...key, project: one });
  expect(of(null)).toEqual({ traced: false, prefixes: false });
  expect(of(project(false, true))).toEqual({ traced: false, prefixes: false });
  expect(of(project(true))).toEqual({ traced: true, prefixes: false });
  expect(of(project(true, true))).toEqual({ traced: true, prefixes: true });
});

test('a trace of all requests includes keys without a project, and prefixes only if the setting says so', () => {
  expect(tracingOf(settings({ all: true }), key)).toEqual({ traced: true, prefixes: false });
  expect(tracingOf(settings({ all: true, prefixes: true }), key)).toEqual({ traced: true, prefixes: true });
  expect(tracingOf(settings({ all: true }), { ...key, project: project(true, true) }).prefixes).toBe(true);
  expect(tracingOf(settings({ prefixes: true }), key)).toEqual({ traced: false, prefixes: false });
});

test.each([
  ['key', { keys: ['key_1'] }],
  ['user', { users: ['user_1'] }],
  ['project', { projects: ['proj_1'] }],
])('an excepted %s is in no trace, not even in that of its project', (_, except) => {
  const traced = { ...key, project: project(true, true) };
  expect(tracingOf(settings({ all: true, prefixes: true, except }), traced)).toEqual({
    traced: false,
    prefixes: false,
  });
  expect(tracingOf(settings({ all: true, except: { keys: ['key_2'] } }), traced).traced).toBe(true);
});

test.each([[undefined], [7], ['all'], [{ all: 'yes' }], [{ all: true, more: 1 }]])(
  'a stored setting that cannot be read, %j, traces nothing',
  (stored) => {
    expect(tracingOf(traceSettingsOf(stored), key)).toEqual({ traced: false, prefixes: false });
  },
);

test('lists of exceptions are bounded', () => {
  const ids = Array.from({ length: 1_001 }, (_, n) => `key_${n}`);
  expect(traceSchema.safeParse({ except: { keys: ids } }).success).toBe(false);
  expect(traceSchema.safeParse({ except: { keys: ids.slice(1) } }).success).toBe(true);
});
