/**
 * Where a request may be sent: a body that the gateway does not parse could name any model of the node that gets it.
 */
import { env } from 'cloudflare:workers';
import { afterEach, expect, test, vi } from 'vitest';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import type { Env } from '../../../gateway/env.ts';
import { resolveModelRoute } from '../../../gateway/openai/resolve-route.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../../../gateway/registry/isolate-snapshot.ts';
import { opaqueFields, type ParsedRequest } from '../../../shared/attempts/parsed-request.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { entry } from '../../shared/routing/support.ts';

afterEach(() => vi.restoreAllMocks());

const ready = (id: string) => ({ id, state: 'ready' as const });
const settings = { ...NO_SETTINGS, known: true, catalogue: { kept: { access: ['proj_other'] } } };

function opaque(): ParsedRequest {
  const endpoint = endpointById(1);
  if (endpoint === undefined) throw new Error('no such endpoint');
  const body = { kind: 'kept' as const, bytes: new Uint8Array() };
  return { ...opaqueFields(endpoint, 'm', null), body, release: () => {} };
}

test('it goes to no node with a model that is kept for others, though its path is lost or it came while the request waited', async () => {
  const nodes = new NodeIndex();
  nodes.put(entry('lost', { suspected: true, models: [ready('m'), ready('kept')] }));
  nodes.put(entry('open', { models: [ready('m')] }));
  const view = { nodes, settings, gateway: 'g', issuers: new Map() } as unknown as RegistrySnapshot;
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue(view);
  const caller = {
    account: { ...BOOTSTRAP_ACCOUNT, role: 'consumer' as const, keyId: 'key_1' },
    settings,
    untracked: false,
  };
  const ctx = { waitUntil: () => {} };
  const request = new Request('https://gateway.test/v1/chat/completions');
  const route = await resolveModelRoute(request, caller, opaque(), { env, ctx });
  nodes.put(entry('came', { models: [ready('m'), ready('kept')] }));
  const may = (session: string) => route.only?.({ session } as Candidate) ?? true;
  expect(['open', 'lost', 'came'].map(may)).toEqual([true, false, false]);
});

test('it goes to no node with another model that has its own limits, because it would count as the model in the header', async () => {
  const nodes = new NodeIndex();
  nodes.put(entry('open', { models: [ready('m'), ready('free')] }));
  const open = { ...settings, catalogue: {} };
  const view = { nodes, settings: open, gateway: 'g', issuers: new Map() } as unknown as RegistrySnapshot;
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue(view);
  const project = { models: { m: { tokens_per_month: 1 }, dear: { tokens_per_month: 1 } } };
  const limits = { subject: 'proj_1', key: undefined, project };
  const account = { ...BOOTSTRAP_ACCOUNT, role: 'consumer' as const, keyId: 'key_1', limits };
  const ask = () => {
    const caller = { account, settings: open, untracked: false };
    const request = new Request('https://gateway.test/v1/chat/completions');
    return resolveModelRoute(request, caller, opaque(), { env, ctx: { waitUntil: () => {} } });
  };
  const route = await ask();
  nodes.put(entry('dear', { models: [ready('m'), ready('dear')] }));
  const may = (session: string) => route.only?.({ session } as Candidate) ?? true;
  expect(['open', 'dear'].map(may)).toEqual([true, false]);
  expect(ask).toThrow('omit x-otela-model');
});

test('a factory’s provider gives out no name of a model that it was not given, as its nodes do not', async () => {
  const model = (id: string, provider: string) => ({ id, provider, state: 'cold' as const });
  const startable = async () => [model('m', 'lab'), model('n', 'lab'), model('n', 'other')];
  const host = { ...env, FACTORY: { getByName: () => ({ startable }) } } as unknown as Env;
  const provider = { trusted_by_default: true, deleted: false };
  const providers = { lab: { ...provider, models: ['org/*'] }, other: provider };
  const view = { nodes: new NodeIndex(), settings: { ...NO_SETTINGS, known: true, providers }, issuers: new Map() };
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue(view as unknown as RegistrySnapshot);
  const caller = { account: BOOTSTRAP_ACCOUNT, settings: view.settings, untracked: false };
  const ctx = { waitUntil: () => {} };
  const route = await resolveModelRoute(new Request('https://gateway.test/'), caller, opaque(), { env: host, ctx });
  expect(['m', 'n'].map((id) => route.cold?.find(id)?.state)).toEqual([undefined, 'cold']);
});
