/** `GET` routes outside the admin API and their responses for `/openapi.json`: health, models, registry. */
import { SESSION_STATES } from '../../../shared/lattice/node-record.ts';
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

const TEXTS = { type: 'array', items: TEXT };
const KINDS = {
  type: 'array',
  description: 'Replicas by precision and context, the most frequent first.',
  items: objectOf(
    {
      nodes: COUNT,
      engines: TEXTS,
      require: { type: 'string', description: 'Value of x-otela-require that selects these replicas.' },
    },
    { precision: TEXT, context_length: COUNT },
  ),
};
const DIFFER = { ...TEXTS, description: 'Facts in which replicas differ: precision, context_length. Absent: none.' };

/** Fields that only `state=all` returns, and facts that no node publishes, are optional. */
const MODEL = objectOf(
  { id: TEXT, object: { const: 'model' }, created: { type: 'integer' }, owned_by: TEXT },
  {
    max_model_len: { ...COUNT, description: 'Least context of the replicas that the key may use, in tokens.' },
    context_length: { ...COUNT, description: 'The same as max_model_len.' },
    max_input_tokens: { ...COUNT, description: 'The same as max_model_len.' },
    display_name: TEXT,
    architecture: objectOf({ input_modalities: TEXTS, output_modalities: TEXTS }),
    x_otela: objectOf(
      { kinds: KINDS },
      { parameters: COUNT, tool_parsers: TEXTS, reasoning_parsers: TEXTS, differ: DIFFER },
    ),
    state: { type: 'string', enum: ['ready', 'loading', 'cold', 'queued', 'starting', 'resting', 'asleep', 'on-disk'] },
    ready_in_ms: { type: ['number', 'null'], description: 'Estimated from previous starts; null: unknown.' },
    loading_ms: { type: 'number' },
    loaded_percent: { type: ['number', 'null'] },
    may_start: { type: 'boolean', description: 'True if a request with this key starts the model.' },
  },
);

const NODE = objectOf(
  {
    session: TEXT,
    issuer: TEXT,
    provider: TEXT,
    cluster: TEXT,
    state: { type: 'string', enum: SESSION_STATES },
    connected: YES_OR_NO,
    suspected: YES_OR_NO,
    tier: { type: 'string', enum: ['stable', 'volatile'] },
    models: {
      type: 'array',
      items: objectOf(
        { id: TEXT, state: TEXT },
        {
          context_length: COUNT,
          quantization: { type: 'string', description: 'Format of the weights, such as bfloat16 or Q4_K_M.' },
          engine: TEXT,
          engine_version: TEXT,
          revision: TEXT,
          parameters: COUNT,
          input_modalities: TEXTS,
          output_modalities: TEXTS,
          tool_parser: TEXT,
          reasoning_parser: TEXT,
          max_batch: { ...COUNT, description: 'Requests that the engine runs at the same time.' },
          kv_tokens: { ...COUNT, description: 'Tokens that fit into the KV cache.' },
        },
      ),
    },
    hardware: JSON_OBJECT,
  },
  {
    region: TEXT,
    job: JSON_OBJECT,
    gpu_state: {
      ...JSON_OBJECT,
      description: 'Measured GPUs, at most once in ten minutes: use, memory_used_mib, power_w, temperature_c.',
    },
  },
);

const VIEWS: Readonly<Record<RegistryViewName, object>> = {
  nodes: NODE,
  models: objectOf({ id: TEXT, replicas: COUNT, serving: COUNT, providers: TEXTS, kinds: KINDS }, { differ: DIFFER }),
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
  /** Schema of the response; absent: the response is server-sent events. */
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
  const query = [asked('state', 'Only nodes in this state.', { type: 'string', enum: SESSION_STATES })];
  const load = asked('load', '"1": also the load of the engines of each model.', { type: 'string', enum: ['1'] });
  return [
    read(`/v1/registry/${name}`, `List the ${name} of the registry.`, { ...of, query, answer: listOf(VIEWS[name]) }),
    read(`/v1/registry/${name}/stream`, `Stream the ${name} of the registry, and each change, as events.`, {
      ...of,
      query: [load],
    }),
  ];
}

export function readOperations(): Operation[] {
  const health = { tag: 'health', needs: 'nothing' };
  const models = { tag: 'models' };
  const all = asked('state', '"all": also models that are loading, and models that a request starts.', {
    type: 'string',
    enum: ['all'],
  });
  const model = asked('model', 'A model or an alias.', TEXT, true);
  const provider = asked('provider', 'Only nodes of this provider; repeatable.', TEXT);
  return [
    read('/healthz', 'Return 200 if the process responds.', { ...health, answer: HEALTH }),
    read(
      '/readyz',
      'Return 200 if all dependencies respond, otherwise 503 with the failed dependencies. Also returns the issuer, and whether agents must be of a signed release.',
      { ...health, answer: HEALTH },
    ),
    read(
      '/v1/models',
      'List the models that this key may use and that a trusted node serves now. With the header anthropic-version, the list has the form of Anthropic; with client_version in the query, it has the member models, which Codex needs.',
      {
        ...models,
        query: [all],
        answer: listOf(MODEL),
      },
    ),
    read('/v1/models/{id}', 'Return one model.', { ...models, answer: MODEL }),
    // For the format see docs/design/sealed-wire.md.
    read(
      '/v1/otela/seal',
      'List the nodes that can decrypt requests for a model, in the order in which a request would try them now.',
      { ...models, query: [model, provider], answer: listOf(SEALING_NODE, { model: TEXT }) },
    ),
    ...REGISTRY_VIEWS.flatMap(registryOperations),
  ];
}

const HEALTH = objectOf({ status: TEXT });
