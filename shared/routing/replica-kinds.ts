/** Facts about a model that several nodes serve, perhaps in different precisions or with different contexts. */
import { MODALITIES, type Modality, type ServedModel } from '../lattice/node-record.ts';
import { precisionName } from './requirement-facts.ts';

/** Replicas with equal precision and context. A fact that they do not publish is absent. */
export interface ReplicaKind {
  precision?: string;
  context_length?: number;
  nodes: number;
  engines: string[];
  /** Value of `x-otela-require` that only these replicas satisfy. Empty: the replicas publish nothing to ask for. */
  require: string;
}

/** Maximum number of kinds, because providers choose the facts freely. Further kinds are not listed. */
const KINDS_MAX = 16;
const ENGINES_MAX = 8;

/** The kinds of replicas, the most frequent first. */
export function replicaKinds(replicas: readonly ServedModel[]): ReplicaKind[] {
  const kinds = new Map<string, ReplicaKind>();
  for (const replica of replicas) {
    const facts = kindFacts(replica);
    const key = JSON.stringify(facts);
    const kind = kinds.get(key) ?? { ...facts, nodes: 0, engines: [], require: requirementFor(facts) };
    kind.nodes++;
    const engine = [replica.engine, replica.engine_version].filter(Boolean).join(' ');
    if (engine !== '' && !kind.engines.includes(engine) && kind.engines.length < ENGINES_MAX) kind.engines.push(engine);
    if (kinds.has(key) || kinds.size < KINDS_MAX) kinds.set(key, kind);
  }
  return [...kinds.values()].sort((a, b) => b.nodes - a.nodes);
}

/** The facts in which replicas differ. A fact that only some of them publish does not count. */
export function differingFacts(kinds: readonly ReplicaKind[]): ('precision' | 'context_length')[] {
  return (['precision', 'context_length'] as const).filter(
    (name) => new Set(kinds.flatMap((kind) => kind[name] ?? [])).size > 1,
  );
}

function kindFacts({
  quantization,
  context_length: context,
}: ServedModel): Pick<ReplicaKind, 'precision' | 'context_length'> {
  return {
    ...(quantization === undefined ? {} : { precision: precisionName(quantization) }),
    ...(context === undefined ? {} : { context_length: context }),
  };
}

function requirementFor({
  precision,
  context_length: context,
}: Pick<ReplicaKind, 'precision' | 'context_length'>): string {
  return [
    // A name with these characters cannot be written into the header.
    precision === undefined || /[;,]/.test(precision) ? '' : `precision=${precision}`,
    context === undefined ? '' : `context=${context}`,
  ]
    .filter(Boolean)
    .join('; ');
}

/** The members of a model in `/v1/models` beside OpenAI's. Members without a known value are absent. */
export interface ModelDetails {
  /** The least context of all replicas, under each of the names that clients read. */
  max_model_len?: number;
  context_length?: number;
  max_input_tokens?: number;
  display_name: string;
  /** The content that every replica reads and writes. */
  architecture?: { input_modalities: Modality[]; output_modalities: Modality[] };
  x_otela: {
    parameters?: number;
    tool_parsers?: string[];
    reasoning_parsers?: string[];
    kinds: ReplicaKind[];
    /** The facts in which replicas differ, so that a client may want to require one of the kinds. */
    differ?: ('precision' | 'context_length')[];
  };
}

/** @param replicas the models named `id` of all nodes that the client may use */
export function modelDetails(id: string, replicas: readonly ServedModel[]): ModelDetails {
  const contexts = replicas.flatMap((replica) => replica.context_length ?? []);
  const context = contexts.length === 0 ? undefined : contexts.reduce((a, b) => Math.min(a, b));
  const [reads, writes] = [common(replicas, 'input_modalities'), common(replicas, 'output_modalities')];
  const kinds = replicaKinds(replicas);
  const differ = differingFacts(kinds);
  const sizes = new Set(replicas.flatMap((replica) => replica.parameters ?? []));
  const [size] = sizes;
  const tools = distinct(replicas, 'tool_parser');
  const reasoning = distinct(replicas, 'reasoning_parser');
  return {
    ...(context === undefined ? {} : { max_model_len: context, context_length: context, max_input_tokens: context }),
    display_name: displayName(id),
    ...(reads && writes ? { architecture: { input_modalities: reads, output_modalities: writes } } : {}),
    x_otela: {
      ...(size !== undefined && sizes.size === 1 ? { parameters: size } : {}),
      ...(tools.length > 0 ? { tool_parsers: tools } : {}),
      ...(reasoning.length > 0 ? { reasoning_parsers: reasoning } : {}),
      kinds,
      ...(differ.length > 0 ? { differ } : {}),
    },
  };
}

/** The last part of names such as `Qwen/Qwen3-8B`, or of a path. */
function displayName(id: string): string {
  return id.split('/').findLast((part) => part !== '') ?? id;
}

/** Undefined if no replica publishes the fact. A replica that does not publish it does not count. */
function common(
  replicas: readonly ServedModel[],
  name: 'input_modalities' | 'output_modalities',
): Modality[] | undefined {
  const lists = replicas.flatMap((replica) => (replica[name] === undefined ? [] : [replica[name]]));
  if (lists.length === 0) return undefined;
  return MODALITIES.filter((one) => lists.every((list) => list.includes(one)));
}

const VALUES_MAX = 8;

function distinct(replicas: readonly ServedModel[], name: 'tool_parser' | 'reasoning_parser'): string[] {
  return [...new Set(replicas.flatMap((replica) => replica[name] ?? []))].sort().slice(0, VALUES_MAX);
}
