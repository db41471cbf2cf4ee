import { expect, test } from 'vitest';
import { type Account, BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { type GatewaySettings, NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import { lifecycleHeaders } from '../../../gateway/accounts/model-access.ts';
import { aliasesOf, fallbackChain as chainAt } from '../../../gateway/routing/aliases-and-fallbacks.ts';
import { opaqueFields, parseBody } from '../../../shared/attempts/parsed-request.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';

function chat() {
  const endpoint = endpointById(1);
  if (endpoint === undefined) throw new Error('no such endpoint');
  return endpoint;
}

/** A request's body as the gateway knows it, with `model` last as in the Python SDK. */
function asking(model: string) {
  const bytes = new TextEncoder().encode(JSON.stringify({ messages: [], model }));
  return { ...parseBody(bytes, 'application/json', chat()), body: { kind: 'kept' as const, bytes }, release: () => {} };
}

const NOW = Date.parse('2026-11-20T10:00:00Z');
const chainOf = (by: Account, given: GatewaySettings, parsed: ReturnType<typeof asking>) =>
  chainAt(by, given, parsed, NOW);

const settings = (models: GatewaySettings['models']): GatewaySettings => ({ ...NO_SETTINGS, known: true, models });
const account = (models: string[] | undefined, more: Partial<Account> = {}): Account => ({
  ...BOOTSTRAP_ACCOUNT,
  restrictions: [{ models, endpoints: undefined, trustedProviders: undefined, data: undefined }],
  ...more,
});
const ALIASED = settings({ big: { aliases: ['gpt'], fallbacks: ['small', 'tiny'] } });

test('a name of the operator’s stands for its model, whose fallbacks come after it', () => {
  expect(chainOf(account(undefined), ALIASED, asking('gpt'))).toEqual({ model: 'big', fallbacks: ['small', 'tiny'] });
  expect(chainOf(account(undefined), ALIASED, asking('big')).model).toBe('big');
  expect(chainOf(account(undefined), ALIASED, asking('else'))).toEqual({ model: 'else', fallbacks: [] });
});

test('a key that may use the alias or the model may use the alias; a key that may use neither learns of neither', () => {
  expect(chainOf(account(['gpt']), ALIASED, asking('gpt')).model).toBe('big');
  expect(chainOf(account(['big']), ALIASED, asking('gpt')).model).toBe('big');
  expect(() => chainOf(account(['small']), ALIASED, asking('gpt'))).toThrow("may not use the model 'gpt'");
});

test('a fallback is used only by keys that may use it', () => {
  expect(chainOf(account(['big', 'tiny']), ALIASED, asking('big')).fallbacks).toEqual(['tiny']);
});

test('a key’s own word counts first, and opens nothing that its list does not', () => {
  const routing = [{ aliases: { gpt: 'mine', best: 'secret' }, fallbacks: { mine: ['secret', 'other'] } }];
  expect(chainOf(account(['mine', 'other'], { routing }), ALIASED, asking('gpt'))).toEqual({
    model: 'mine',
    fallbacks: ['other'],
  });
  expect(() => chainOf(account(['best'], { routing }), ALIASED, asking('best'))).toThrow('may not use');
  const project = { aliases: { gpt: 'of the project' } };
  expect(chainOf(account(undefined, { routing: [...routing, project] }), ALIASED, asking('gpt')).model).toBe('mine');
});

test('a key’s own fallbacks lead to no model that its person or project has limits for: it would count as another', () => {
  const own = { routing: [{ fallbacks: { none: ['big', 'other'] } }] };
  const limited = (models: Record<string, { tokens_per_month: number }>): Partial<Account> => ({
    ...own,
    limits: { subject: 'user:u', key: undefined, project: undefined, user: { models }, userId: 'u' },
  });
  const asked = (more: Partial<Account>) => chainOf(account(undefined, more), ALIASED, asking('none')).fallbacks;
  expect(asked(own)).toEqual(['big', 'other']);
  expect(asked(limited({ big: { tokens_per_month: 1 } }))).toEqual(['other']);
  expect(asked(limited({ '*': { tokens_per_month: 1 } }))).toEqual([]);
  // The operator's fallbacks stay as configured.
  const { limits } = limited({ small: { tokens_per_month: 1 } });
  expect(chainOf(account(undefined, { limits }), ALIASED, asking('big')).fallbacks).toEqual(['small', 'tiny']);
});

test('a body that was not read must name the model itself, and has no fallbacks', () => {
  const opaque = (model: string) => ({ ...asking(model), ...opaqueFields(chat(), model, null), modelAt: undefined });
  const { modelAt: _, ...gpt } = opaque('gpt');
  const { modelAt: __, ...big } = opaque('big');
  expect(() => chainOf(account(undefined), ALIASED, gpt)).toThrow("'gpt' is an alias of 'big'");
  expect(chainOf(account(undefined), ALIASED, big)).toEqual({ model: 'big', fallbacks: [] });
});

test('words that every object knows are no aliases', () => {
  for (const name of ['constructor', '__proto__', 'toString']) {
    expect(chainOf(account(undefined, { routing: [{ aliases: {} }] }), ALIASED, asking(name))).toEqual({
      model: name,
      fallbacks: [],
    });
  }
});

test('the names that a key has are those that it may use', () => {
  const routing = [{ aliases: { mine: 'big', closed: 'secret' } }];
  expect([...aliasesOf(account(['big'], { routing }), ALIASED)].sort()).toEqual([
    ['gpt', 'big'],
    ['mine', 'big'],
  ]);
  expect([...aliasesOf(account(['small']), ALIASED)]).toEqual([]);
});

const consumer = (projectId?: string): Account => ({
  ...account(undefined),
  role: 'consumer',
  keyId: 'key_1',
  projectId,
});

test('a model that the key may not use does not exist, under any name and as a fallback', () => {
  const kept: GatewaySettings = { ...ALIASED, catalogue: { big: { access: ['proj_1', 'user_1'] } } };
  const unknown = expect.objectContaining({ code: 'model_not_found' });
  for (const name of ['big', 'gpt']) expect(() => chainOf(consumer('proj_2'), kept, asking(name))).toThrow(unknown);
  // A key's own alias for it.
  const own = { ...consumer(), routing: [{ aliases: { mine: 'big' } }] };
  expect(() => chainOf(own, kept, asking('mine'))).toThrow(unknown);
  expect(chainOf(consumer('proj_1'), kept, asking('gpt')).model).toBe('big');
  expect(chainOf({ ...consumer(), userId: 'user_1' }, kept, asking('big')).model).toBe('big');
  const behind: GatewaySettings = { ...ALIASED, catalogue: { small: { access: [] } } };
  expect(chainOf(consumer(), behind, asking('big')).fallbacks).toEqual(['tiny']);
});

test('a model past its date is gone and names its successor; an alias of its name leads on', () => {
  const life = { deprecated_at: NOW - 2_000, sunset_at: NOW, successor: 'big' };
  const over: GatewaySettings = { ...ALIASED, catalogue: { small: life } };
  const message = expect.stringMatching(/'small'.*2026-11-20.*'big'/);
  const gone = expect.objectContaining({ code: 'model_not_found', message });
  expect(() => chainOf(consumer(), over, asking('small'))).toThrow(gone);
  expect(chainAt(consumer(), over, asking('small'), NOW - 1).model).toBe('small');
  expect(chainOf(consumer(), over, asking('big')).fallbacks).toEqual(['tiny']);
  const led: GatewaySettings = { ...over, models: { big: { aliases: ['small'] } } };
  expect(chainOf(consumer(), led, asking('small')).model).toBe('big');
  expect(lifecycleHeaders(over, 'small')).toEqual({
    deprecation: '@1795168798',
    sunset: 'Fri, 20 Nov 2026 10:00:00 GMT',
    link: '</v1/models/big>; rel="successor-version"',
  });
});
