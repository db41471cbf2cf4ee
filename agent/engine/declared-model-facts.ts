/** Facts about models that the engine does not report: from `--fact`, the engine's command line, and their names. */
import { MODALITIES, type Modality, modelSchema, type ServedModel } from '../../shared/lattice/node-record.ts';
import { commandWords, flagValue } from './engine-command.ts';
import { engineKind } from './engine-kinds.ts';
import { acceptedFacts, type ModelFacts } from './facts/model-facts.ts';

export interface ModelFact {
  /** Undefined: the fact applies to every model. */
  model: string | undefined;
  key: FactKey;
  value: string;
}

const FACT_KEYS = ['context', 'quantization', 'engine', 'revision', 'input', 'output'] as const;
type FactKey = (typeof FACT_KEYS)[number];

/** Parses `quantization=fp8` or `meta/Llama-3:8b:context=32768`. @throws Error with a message for the user */
export function parseFact(text: string): ModelFact {
  const equals = text.indexOf('=');
  if (equals < 1) throw new Error(`--fact: "${text}" is not [MODEL:]KEY=VALUE`);
  // Model names may contain colons (`llama3:8b`), keys may not.
  const colon = text.lastIndexOf(':', equals);
  const name = text.slice(colon + 1, equals);
  const key = FACT_KEYS.find((known) => known === (name === 'context_length' ? 'context' : name));
  if (!key) throw new Error(`--fact: unknown key "${name}"; the keys are ${FACT_KEYS.join(', ')}`);
  const fact: ModelFact = {
    model: colon < 0 ? undefined : text.slice(0, colon),
    key,
    value: text.slice(equals + 1).trim(),
  };
  if (fact.model === '') throw new Error(`--fact: "${text}" has no model before the colon`);
  const checked = modelSchema.safeParse(applied({ id: 'any', state: 'ready' }, fact));
  const isModalities = key === 'input' || key === 'output';
  if (fact.value === '' || !checked.success || (isModalities && modalitiesIn(fact.value) === undefined))
    throw new Error(`--fact: "${fact.value}" is not a value for ${key}`);
  return fact;
}

/** Facts from the command line of a known engine. */
export function commandFacts(command: readonly string[] | undefined): ModelFacts {
  const words = commandWords(command ?? []);
  const kind = engineKind(words);
  if (kind === undefined) return {};
  const declared = Object.entries(kind.facts).map(([key, flags]) => {
    const value = flagValue(words, ...flags);
    // Shell variables are not resolved here, so values with `$` are unknown.
    const known = value === undefined || value.includes('$') ? undefined : value;
    const isNumber = key === 'context_length' || key === 'max_batch';
    return [key, isNumber && known !== undefined ? digits(known) : known] as const;
  });
  return acceptedFacts({ engine: kind.name, ...Object.fromEntries(declared) });
}

/** Undefined for other forms, such as vLLM's `32k`. */
function digits(text: string): number | undefined {
  return /^\d{1,12}$/.test(text) ? Number(text) : undefined;
}

/**
 * Later facts take precedence. The order is: the name, facts from the command line, flags without a model, flags that
 * name a model.
 */
export function applyFacts(
  models: readonly ServedModel[],
  command: ModelFacts,
  flags: readonly ModelFact[],
): ServedModel[] {
  const general = flags.filter(({ model }) => model === undefined);
  const particular = flags.filter(({ model }) => model !== undefined);
  return models.map((model) => {
    // The engine's report takes precedence over its command line. The user's statements take precedence over both.
    let declared: ServedModel = { ...command, ...model };
    const named = declared.quantization === undefined ? namedPrecision(model.id) : undefined;
    if (named !== undefined) declared = { ...declared, quantization: named };
    for (const fact of [...general, ...particular]) {
      if (fact.model === undefined || fact.model === model.id) declared = applied(declared, fact);
    }
    return declared;
  });
}

/** Names of quantized checkpoints end like `-FP8-dynamic`, `-AWQ`, `-GPTQ-Int4`, `.w4a16`, `-Q4_K_M.gguf`. */
const NAMED = /[-_.](fp8|awq|int[48]|nvfp4|mxfp4|w[48]a(?:4|8|16)|i?q[1-8]_[0-9a-z]+(?:_[0-9a-z]+)?)(?=$|[-_.])/gi;

/** The precision in a model's name; undefined if it names none or several. */
function namedPrecision(id: string): string | undefined {
  const named = new Set([...id.matchAll(NAMED)].map(([, name = '']) => name.toLowerCase()));
  return named.size === 1 ? [...named][0] : undefined;
}

function applied(model: ServedModel, { key, value }: ModelFact): ServedModel {
  switch (key) {
    case 'context':
      return { ...model, context_length: Number(value) };
    case 'quantization':
      return { ...model, quantization: value };
    case 'engine':
      return { ...model, engine: value };
    case 'revision':
      return { ...model, revision: value };
    case 'input':
      return { ...model, input_modalities: modalitiesIn(value) };
    case 'output':
      return { ...model, output_modalities: modalitiesIn(value) };
  }
}

/** `text,audio`; undefined if a word is unknown. */
function modalitiesIn(value: string): Modality[] | undefined {
  const words = value.split(',').map((word) => MODALITIES.find((known) => known === word.trim()));
  const known = words.filter((word) => word !== undefined);
  return known.length === words.length ? known : undefined;
}
