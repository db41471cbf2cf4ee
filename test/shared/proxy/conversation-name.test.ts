import { expect, it } from 'vitest';
import { parseBody, type RequestFields } from '../../../shared/attempts/parsed-request.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { conversationId } from '../../../shared/proxy/conversation-name.ts';

const [chat] = [endpointById(1)];
const fieldsOf = (body: object): RequestFields => {
  if (chat === undefined) throw new Error('no endpoint');
  return parseBody(new TextEncoder().encode(JSON.stringify({ model: 'm', ...body })), 'application/json', chat);
};
const idOf = (headers: Record<string, string>, body: object = {}, project = 'p') =>
  conversationId((name) => headers[name], fieldsOf(body), project);

/** What each client sends with a turn of conversation `id`. */
const CLIENTS: Readonly<Record<string, (id: string) => [headers: Record<string, string>, body: object]>> = {
  'our own header': (id) => [{ 'x-otela-session': id }, {}],
  'Claude Code': (id) => [
    { 'x-claude-code-session-id': id },
    { metadata: { user_id: JSON.stringify({ device_id: 'd', account_uuid: 'a', session_id: id }) } },
  ],
  'Claude Code behind a proxy that drops its header': (id) => [
    {},
    { metadata: { user_id: JSON.stringify({ extra: 'e'.repeat(600), device_id: 'd', session_id: id }) } },
  ],
  'Claude Code before 2026': (id) => [{}, { metadata: { user_id: `user_abc_account_def_session_${id}` } }],
  Codex: (id) => [{ 'session-id': 'shared by its agents', 'thread-id': id }, { prompt_cache_key: id }],
  'Codex before 2026': (id) => [{ session_id: id }, {}],
  opencode: (id) => [{ 'x-session-affinity': id, 'x-session-id': id }, {}],
  'Open WebUI': (id) => [{ 'x-openwebui-user-id': 'someone', 'x-openwebui-chat-id': id }, {}],
  LibreChat: (id) => [{}, { user: id }],
};

it.each(Object.entries(CLIENTS))(
  '%s: turns of a conversation have one id, and other conversations have others',
  (_, turn) => {
    const id = idOf(...turn('11111111-aaaa'));
    expect(id).toMatch(/^p [0-9a-f]{1,8}-[0-9a-f]{1,8}$/);
    expect(idOf(...turn('11111111-aaaa'))).toBe(id);
    expect(idOf(...turn('11111111-aaab'))).not.toBe(id);
    expect(idOf(...turn('11111111-aaaa'), 'other')).not.toBe(id);
  },
);

it('our header counts before all others, and a conversation before a user', () => {
  const own = idOf({ 'x-otela-session': 'own' });
  const all = { 'x-claude-code-session-id': 'b', 'session-id': 'c', 'x-otela-session': 'own' };
  expect(idOf(all, { prompt_cache_key: 'd', user: 'e' })).toBe(own);
  expect(idOf({ 'x-openwebui-chat-id': 'chat' }, { user: 'e' })).toBe(idOf({ 'x-openwebui-chat-id': 'chat' }));
});

it('an empty name is none', () => {
  expect(idOf({})).toBeUndefined();
  expect(idOf({ 'x-otela-session': '', 'session-id': '' }, { user: '', metadata: { user_id: '' } })).toBeUndefined();
  expect(idOf({ 'x-otela-session': '' }, { user: 'someone' })).toBe(idOf({}, { user: 'someone' }));
});

it('a name of any length or content gives a short id of the own project', () => {
  const names = ['x'.repeat(60_000), 'p 1-1', 'other 811c9dc5-811c9dc5', '\u0000', '😀', '__proto__', 'a b\tc'];
  const ids = names.map((name) => idOf({ 'x-otela-session': name }) ?? '');
  expect(new Set(ids).size).toBe(names.length);
  for (const id of ids) expect(id).toMatch(/^p [0-9a-f]{1,8}-[0-9a-f]{1,8}$/);
});

it('ten thousand names have ten thousand ids', () => {
  const ids = new Set(Array.from({ length: 10_000 }, (_, n) => idOf({ 'x-otela-session': `chat-${n}` })));
  expect(ids.size).toBe(10_000);
});
