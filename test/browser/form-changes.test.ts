/** A form writes only what the user changed. */
import { expect, test } from 'vitest';
import { emptyRule, ruleOf, written } from '../../dashboard/pages/admin/weight-rules.ts';
import { limitsFromForm, restrictionsFrom } from '../../dashboard/parts/key-restrictions.ts';
import { FilledFields } from '../../dashboard/ui/form-values.ts';

function formOf(fields: Readonly<Record<string, string>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return form;
}

const bodyOf = (filled: FilledFields) => ({
  name: filled.text('name'),
  ...restrictionsFrom(filled),
  ...limitsFromForm(filled, undefined),
  expires_at: filled.text('expires') === '' ? null : `${filled.text('expires')}T23:59:59Z`,
});

/** A dialog's values for a key that may use nothing and expires at eight in the morning. */
const SHOWN = { name: 'ada', models: '', models_nothing: 'on', tiers: 'none', expires: '2026-12-01' };
const changed = (more: Readonly<Record<string, string>>, shown: Readonly<Record<string, string>> = SHOWN) =>
  new FilledFields(formOf({ ...shown, ...more }), formOf(shown)).changes(bodyOf);

test('a form that is saved as it was loaded writes nothing', () => {
  expect(changed({})).toEqual({});
});

test('a new name opens no key that may use nothing, and moves no end to the last second of its day', () => {
  expect(changed({ name: 'eve' })).toEqual({ name: 'eve' });
});

test('the box for nothing allows nothing, and everything once it is cleared', () => {
  expect(bodyOf(new FilledFields(formOf(SHOWN)))).toMatchObject({ models: [], tiers: [], trusted_providers: null });
  const { models_nothing: _, ...cleared } = SHOWN;
  expect(new FilledFields(formOf(cleared), formOf(SHOWN)).changes(bodyOf)).toEqual({ models: null });
  expect(changed({ tiers: '' })).toEqual({ tiers: null });
});

test('both tiers stay both', () => {
  expect(restrictionsFrom(new FilledFields(formOf({ tiers: 'stable volatile' })))).toMatchObject({
    tiers: ['stable', 'volatile'],
  });
});

test('two windows change two fields of one key, and neither takes the other back', () => {
  expect([changed({ name: 'eve' }), changed({ requests_per_minute: '5' })]).toEqual([
    { name: 'eve' },
    { limits: { requests_per_minute: 5 } },
  ]);
});

test('a rule of weights keeps what no field shows', () => {
  const rules = [
    { cluster: 'alps', kind: 'long', class: 'interactive' as const, weight: 0.25 },
    { gpu: 'H100', weight: 2 },
  ];
  expect(rules.map((rule, key) => ruleOf({ ...emptyRule(key), ...written(rule) }))).toEqual(rules);
});

const over = (now: Readonly<Record<string, string>>, stored: object, shown: Readonly<Record<string, string>> = SHOWN) =>
  new FilledFields(formOf({ ...shown, ...now }), formOf(shown)).changesOver(bodyOf, async () => stored);

test('two windows change two limits of one key, and both hold', async () => {
  const shown = { ...SHOWN, requests_per_minute: '5', tokens_per_minute: '9' };
  // The other window added a limit and removed another.
  const limits = { tokens_per_minute: 9, concurrent_requests: 3, models: { m: { requests_per_minute: 1 } } };
  expect(await over({ tokens_per_minute: '10' }, { limits }, shown)).toEqual({
    limits: { ...limits, tokens_per_minute: 10 },
  });
  expect(await over({ requests_per_minute: '', tokens_per_minute: '' }, { limits: null }, shown)).toEqual({
    limits: null,
  });
});

test('two windows add two models to one list, and both are in it', async () => {
  const shown = { name: 'ada', models: 'a\nb' };
  expect(await over({ models: 'a\nb\nc' }, { models: ['b', 'd'] }, shown)).toEqual({ models: ['b', 'd', 'c'] });
  expect(await over({ models: 'b\na' }, { models: ['a', 'b'] }, shown)).toEqual({ models: ['b', 'a'] });
});

test('nothing is asked of the gateway where nothing changed', async () => {
  const filled = new FilledFields(formOf(SHOWN), formOf(SHOWN));
  expect(await filled.changesOver(bodyOf, () => Promise.reject(new Error('asked')))).toEqual({});
});

test('a group by its LDAP name stays what it is', () => {
  const pairs = 'cn=ml,dc=eth = ml\nchem = chemistry\nbio=biology';
  expect(new FilledFields(formOf({ groups: pairs })).pairs('groups')).toEqual([
    ['cn=ml,dc=eth', 'ml'],
    ['chem', 'chemistry'],
    ['bio', 'biology'],
  ]);
});
