/** `GET` routes outside the admin API and their responses for `/openapi.json`: health, models, registry. */
import { LIFECYCLE } from '../../../shared/lattice/node.ts';
import { REGISTRY_VIEWS, type RegistryViewName } from '../../../shared/routing/registry-view.ts';
import { ERROR, JSON_TYPE, type Operation, pathParameters } from './operation.ts';

const TEXT = { type: 'string' };
const COUNT = { type: 'integer', minimum: 0 };
const YES_OR_NO = { type: 'boolean' };
const INFERENCE = 'scope inference';
const JSON_OBJECT = { type: 'object' };

const listOf = (items: object, more: Readonly<Record<string, object>> = {}) => ({
  type: 'object',
  required: ['object', 'data', ...Object.keys(more)],
  properties: { object: { const: 'list' }, data: { type: 'array', items }, ...more },
});

const objectOf = (properties: Readonly<Record<string, object>>, optional: Readonly<Record<string, object>> = {}) => ({
  type: 'object',
  required: Object.keys(properties),
  properties: { ...properties, ...optional },
});

/** Fields that only `state=all` returns are optional. */
const MODEL = objectOf(
  { id: TEXT, object: { const: 'model' }, created: { type: 'integer' }, owned_by: TEXT },
  {
    state: { type: 'string', enum: ['ready', 'loading', 'cold', 'queued', 'starting', 'resting'] },
    ready_in_ms: { type: ['number', 'null'], description: 'By the starts before; null: not known.' },
    loading_ms: { type: 'number' },
    loaded_percent: { type: ['number', 'null'] },
    may_start: { type: 'boolean', description: 'A request of this key starts it.' },
  },
);

const NODE = objectOf(
  {
    session: TEXT,
    issuer: TEXT,
    provider: TEXT,
    cluster: TEXT,
    state: { type: 'string', enum: LIFECYCLE },
    connected: YES_OR_NO,
    suspected: YES_OR_NO,
    tier: { type: 'string', enum: ['stable', 'volatile'] },
    models: { type: 'array', items: objectOf({ id: TEXT, state: TEXT }, { context_length: COUNT }) },
    hardware: JSON_OBJECT,
  },
  { region: TEXT, job: JSON_OBJECT },
);

const VIEWS: Readonly<Record<RegistryViewName, object>> = {
  nodes: NODE,
  models: objectOf({ id: TEXT, replicas: COUNT, serving: COUNT, providers: { type: 'array', items: TEXT } }),
  providers: objectOf({ id: TEXT, nodes: COUNT, serving: COUNT }),
};

const SEALING_NODE = objectOf(
  {
    session: TEXT,
    provider: TEXT,
    v: { const: 1 },
    key: TEXT,
    kid: TEXT,
    until: { type: 'integer' },
  },
  { vouch: TEXT },
);

interface Read {
  tag: string;
  needs?: string;
  query?: object[];
  /** Absent: server-sent events. */
  answer?: object;
}

function read(path: string, summary: string, { tag, needs = INFERENCE, query = [], answer }: Read): Operation {
  const content = answer === undefined ? { 'text/event-stream': {} } : { [JSON_TYPE]: { schema: answer } };
  return {
    method: 'get',
    path,
    tag,
    summary,
    needs,
    operation: {
      parameters: [...pathParameters(path), ...query],
      ...(tag === 'health' && { security: [] }),
      responses: { '200': { description: 'Done.', content }, default: ERROR },
    },
  };
}

const asked = (name: string, description: string, schema: object, required = false) => ({
  name,
  in: 'query',
  required,
  description,
  schema,
});

function registryOperations(name: RegistryViewName): Operation[] {
  const of = { tag: 'registry', needs: 'scope registry' };
  const query = [asked('state', 'Nodes in this state alone.', { type: 'string', enum: LIFECYCLE })];
  const load = asked('load', '"1": also what the engines of each model do.', { type: 'string', enum: ['1'] });
  return [
    read(`/v1/registry/${name}`, `The registry: ${name}.`, { ...of, query, answer: listOf(VIEWS[name]) }),
    read(`/v1/registry/${name}/stream`, `The registry: ${name}, and each change, as events.`, { ...of, query: [load] }),
  ];
}

export function readOperations(): Operation[] {
  const health = { tag: 'health', needs: 'nothing' };
  const models = { tag: 'models' };
  const all = asked('state', '"all": also models that are being loaded, and those that a request starts.', {
    type: 'string',
    enum: ['all'],
  });
  const model = asked('model', 'A model, or another name of one.', TEXT, true);
  const provider = asked('provider', 'Nodes of this provider alone; may stand there several times.', TEXT);
  return [
    read('/healthz', 'The process answers.', { ...health, answer: HEALTH }),
    read(
      '/readyz',
      'What it needs answers too: 200, else 503 with what does not; whose keys it signs with, and whether agents must be of a signed release.',
      { ...health, answer: HEALTH },
    ),
    read('/v1/models', 'Models that this key may use and that a node it trusts serves now.', {
      ...models,
      query: [all],
      answer: listOf(MODEL),
    }),
    read('/v1/models/{id}', 'One of them.', { ...models, answer: MODEL }),
    // See docs/design/sealed-wire.md.
    read(
      '/v1/otela/seal',
      'Nodes that open sealed requests for a model, in the order in which a request of now would try them.',
      { ...models, query: [model, provider], answer: listOf(SEALING_NODE, { model: TEXT }) },
    ),
    ...REGISTRY_VIEWS.flatMap(registryOperations),
  ];
}

const HEALTH = objectOf({ status: TEXT });
