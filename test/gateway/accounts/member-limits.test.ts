import { expect, test } from 'vitest';
import { limitAboveProject, personLimits } from '../../../gateway/accounts/limits/member-limits.ts';
import type { Limits } from '../../../gateway/settings/limits-schema.ts';

const NONE = { own: null, ofAll: undefined, ofMember: null, project: null };
const rpm = (requests_per_minute: number): Limits => ({ requests_per_minute });

test.each<[string, Parameters<typeof personLimits>[0], Limits | undefined]>([
  ['nothing is said', NONE, undefined],
  ['operators speak of everybody', { ...NONE, ofAll: rpm(60) }, rpm(60)],
  ['operators speak of the person', { ...NONE, own: rpm(600), ofAll: rpm(60) }, rpm(600)],
  ['operators say none for the person', { ...NONE, own: {}, ofAll: rpm(60) }, {}],
  ['a lead narrows what everybody has', { ...NONE, ofAll: rpm(60), ofMember: rpm(6) }, rpm(6)],
  [
    'a lead says more than everybody has, and the project has no such limit',
    { ...NONE, ofAll: rpm(60), ofMember: rpm(90) },
    rpm(60),
  ],
  [
    'a lead says more than everybody has, within the project',
    { ...NONE, ofAll: rpm(60), ofMember: rpm(90), project: rpm(600) },
    rpm(90),
  ],
  [
    'a lead says more than operators gave the person',
    { ...NONE, own: rpm(60), ofMember: rpm(90), project: rpm(600) },
    rpm(60),
  ],
  ['a lead says less than operators gave the person', { ...NONE, own: rpm(60), ofMember: rpm(9) }, rpm(9)],
  [
    'each speaks of other limits',
    { ...NONE, ofAll: rpm(60), ofMember: { tokens_per_month: 5 }, project: rpm(9) },
    { ...rpm(60), tokens_per_month: 5 },
  ],
  [
    'both speak of models',
    { ...NONE, own: { models: { '*': rpm(5), a: rpm(9) } }, ofMember: { models: { a: rpm(7), b: rpm(50) } } },
    { models: { '*': rpm(5), a: rpm(7), b: rpm(5) } },
  ],
])('where %s', (_, words, expected) => {
  expect(personLimits(words)).toEqual(expected);
});

test.each<[Limits, Limits | null, string | undefined]>([
  [rpm(1_000), null, undefined],
  [rpm(600), rpm(600), undefined],
  [rpm(601), rpm(600), 'requests_per_minute'],
  [{ models: { a: rpm(601) } }, rpm(600), 'models.a.requests_per_minute'],
  [{ models: { a: rpm(6) } }, { models: { '*': rpm(5) } }, 'models.a.requests_per_minute'],
  [{ models: { a: rpm(6) } }, { models: { '*': rpm(5), a: rpm(6) } }, undefined],
])('of %j the first limit above those of a project with %j is %s', (limits, project, path) => {
  expect(limitAboveProject(limits, project)?.path).toBe(path);
});
