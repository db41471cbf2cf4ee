/**
 * The grammar of `x-otela-require`, of `metadata.otela_require` and of the registry's filters: the properties that a
 * request or a registry query demands of a node, e.g. `gpu=GH200,H100; quantization>=8; time_left>=30m`.
 */
import { findGpuClass } from '../hardware/gpu-classes.ts';
import type { RegistryEntry, ServedModel } from '../lattice/node-record.ts';
import { durationMs } from '../text/duration.ts';
import { modelFacts, nodeFacts, precisionName, quantizationBits } from './requirement-facts.ts';

/** Maximum number of clauses. It bounds the comparisons that one header can cause per candidate. */
const REQUIREMENTS_MAX = 16;
const VALUES_MAX = 16;
const TEXT_MAX_CHARS = 2048;

export class RequirementError extends Error {
  readonly code = 'invalid_requirement';
}

type Operator = '=' | '>=';
type Kind = 'text' | 'number';

/** How the values of each key are parsed. Only numeric keys allow `>=`. */
const KEYS = {
  gpu: { kind: 'text', read: (value: string) => findGpuClass(value)?.name ?? value.toUpperCase() },
  vram: { kind: 'number', read: number },
  quantization: { kind: 'number', read: (value: string) => number(value) ?? quantizationBits(value) },
  /** The format's name. Formats with equally many bits have different names. */
  precision: { kind: 'text', read: precisionName },
  context: { kind: 'number', read: number },
  engine: { kind: 'text', read: (value: string) => value.toLowerCase() },
  tier: { kind: 'text', read: (value: string) => value.toLowerCase() },
  region: { kind: 'text', read: (value: string) => value.toLowerCase() },
  time_left: { kind: 'number', read: (value: string) => durationMs(value.toLowerCase()) },
  /** Name of the engine parameter that limits reasoning tokens; `none` if the node's models do not reason. */
  reasoning_budget: { kind: 'text', read: (value: string) => value.toLowerCase() },
} as const satisfies Record<string, { kind: Kind; read(value: string): string | number | undefined }>;

export type RequirementKey = keyof typeof KEYS;
const REQUIREMENT_KEYS: readonly string[] = Object.keys(KEYS);

/**
 * One clause of a requirements text, satisfied if any of `values` matches. Numbers are GiB (vram), bits (quantization),
 * tokens (context) or milliseconds (time_left).
 */
export interface Requirement {
  key: RequirementKey;
  operator: Operator;
  values: readonly (string | number)[];
}

/**
 * Parses `key=a,b; key>=n; …`. A node must satisfy every clause; an empty text demands nothing.
 * @throws RequirementError
 */
export function parseRequirements(text: string): Requirement[] {
  if (text.length > TEXT_MAX_CHARS)
    throw new RequirementError(`requirements may have at most ${TEXT_MAX_CHARS} characters`);
  const clauses = text.split(';').filter((clause) => clause.trim() !== '');
  if (clauses.length > REQUIREMENTS_MAX)
    throw new RequirementError(`at most ${REQUIREMENTS_MAX} requirements are allowed`);
  return clauses.map((clause) => {
    const parts = /^\s*([a-z_]+)\s*(>=|=)(.*)$/is.exec(clause);
    const [, key, operator, values] = parts ?? [];
    if (key === undefined || operator === undefined || values === undefined) {
      throw new RequirementError(`"${clip(clause.trim())}" is not key=value or key>=value`);
    }
    return buildRequirement(key.toLowerCase(), operator === '=' ? '=' : '>=', values);
  });
}

/** Builds one requirement from its parts, e.g. of a query string. @throws RequirementError */
export function buildRequirement(key: string, operator: Operator, text: string): Requirement {
  if (!isKey(key)) {
    throw new RequirementError(
      `"${clip(key)}" is not a requirement; the requirements are ${REQUIREMENT_KEYS.join(', ')}`,
    );
  }
  const { kind, read } = KEYS[key];
  const words = text.split(',').map((word) => word.trim());
  if (operator === '>=' && (kind !== 'number' || words.length > 1)) {
    throw new RequirementError(`${key}>= needs one number${kind === 'number' ? '' : `: ${key} is compared with =`}`);
  }
  if (words.length > VALUES_MAX) throw new RequirementError(`${key}: at most ${VALUES_MAX} values are allowed`);
  const values = words.map((word) => {
    const value = word === '' ? undefined : read(word);
    if (value === undefined) throw new RequirementError(`${key}: "${clip(word)}" is not a valid value`);
    return value;
  });
  return { key, operator, values };
}

/**
 * True if the node satisfies all requirements with `model`; without `model`, if one of its models satisfies them. A
 * requirement on a fact that the node does not publish is not satisfied. `now`, in milliseconds since the epoch, is
 * needed for `time_left`.
 */
export function satisfies(
  entry: RegistryEntry,
  requirements: readonly Requirement[],
  model: string | undefined,
  now: number,
): boolean {
  const ofModel = requirements.filter(({ key }) => MODEL_KEYS.has(key));
  const facts = nodeFacts(entry, now);
  for (const one of requirements) if (!MODEL_KEYS.has(one.key) && !holds(one, facts[one.key])) return false;
  const holdsFor = (served: ServedModel) => {
    const known = modelFacts(served);
    return ofModel.every((one) => holds(one, known[one.key]));
  };
  if (model === undefined) return ofModel.length === 0 || entry.models.some(holdsFor);
  const served = entry.models.find(({ id }) => id === model);
  return served !== undefined && holdsFor(served);
}

/** Counts the satisfied requirements. Used for preferences, which need not all be satisfied. */
export function countSatisfied(
  entry: RegistryEntry,
  wanted: readonly Requirement[],
  model: string,
  now: number,
): number {
  return wanted.filter((one) => satisfies(entry, [one], model, now)).length;
}

const MODEL_KEYS: ReadonlySet<RequirementKey> = new Set(['quantization', 'precision', 'context', 'engine']);

/** True if the node publishes the fact, and all of its values (one per device) satisfy the requirement. */
function holds({ operator, values }: Requirement, facts: readonly (string | number)[] | undefined): boolean {
  if (facts === undefined || facts.length === 0) return false;
  const least = values[0];
  return facts.every((fact) => {
    if (operator === '=') return values.includes(fact);
    return typeof fact === 'number' && typeof least === 'number' && fact >= least;
  });
}

function isKey(key: string): key is RequirementKey {
  return Object.hasOwn(KEYS, key);
}

function number(text: string): number | undefined {
  return /^\d{1,12}(\.\d{1,6})?$/.test(text) ? Number(text) : undefined;
}

function clip(text: string): string {
  return text.slice(0, 64);
}
