/**
 * Sends JSON that `JSON.parse` accepts but recursive readers overflow on, to every route of the gateway that reads
 * JSON.
 */
import type { Gateway } from '../support/gateway.ts';
import type { Fault } from './faults.ts';

const DEPTH = 9_000;
const ARRAYS = `${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`;
const OBJECTS = `${'{"a":'.repeat(DEPTH)}1${'}'.repeat(DEPTH)}`;
/** The gateway shares two cores with all agents and engines. */
const ANSWER_MS = 60_000;

/** No engine has the model: a valid request must not reach one. */
const inference = (value: string) => `{"model":"none","messages":${value},"input":${value},"prompt":${value}}`;

interface Route {
  path: string;
  body(value: string): string;
  /** Sent with the operator's key. */
  operator?: true;
}

const ROUTES: readonly Route[] = [
  { path: '/v1/chat/completions', body: inference },
  { path: '/v1/responses', body: inference },
  { path: '/v1/messages', body: inference },
  { path: '/v1/embeddings', body: inference },
  { path: '/v1/batches', body: (value) => `{"input_file_id":${value},"metadata":${value}}` },
  { path: '/v1/uploads', body: (value) => `{"filename":${value},"bytes":1}` },
  { path: '/login/key', body: (value) => `{"key":${value}}` },
  { path: '/agent/admit', body: (value) => `{"protocol":2,"public_key":${value}}` },
  { path: '/agent/batch/lease', body: (value) => value },
  { path: '/admin/keys', body: (value) => `{"name":"x","limits":${value}}`, operator: true },
  { path: '/admin/projects', body: (value) => value, operator: true },
];

/** @throws if the gateway accepts the body, or answers with an internal error */
async function post({ url, adminKey }: Gateway, key: string, { path, body, operator }: Route, value: string) {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${operator ? adminKey : key}`, 'content-type': 'application/json' },
    body: body(value),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const text = await answer.text();
  // 502 and above come from other faults: a full disk, or no node.
  if (answer.status < 400 || answer.status === 500)
    throw new Error(`${path} answered ${answer.status}: ${text.slice(0, 200)}`);
}

/** Strikes the gateway, whichever node is drawn. */
export function deepJson(gateway: Gateway, key: string): Fault {
  return {
    name: 'deep JSON',
    weight: 2,
    outOfReach: false,
    suits: () => true,
    strike: async () => {
      for (const value of [ARRAYS, OBJECTS]) for (const route of ROUTES) await post(gateway, key, route, value);
    },
  };
}
