import { modelSchema, type ServedModel } from '../../shared/lattice/node-record.ts';
import { commandWords, type EngineName, engineName, flagValue } from './engine-command.ts';

/** Flag after which vLLM and SGLang take one or more model names. */
const NAMES = '--served-model-name';

const MODEL_FLAGS: Record<EngineName, readonly string[]> = {
  vllm: ['--model', '--model-tag'],
  sglang: ['--model-path', '--model'],
};

/**
 * The models that an engine will serve after loading, from its command line; empty if it does not show them. Loading
 * takes up to half an hour. Without this list, gateways would answer during that time that the model does not exist.
 */
export function announcedModels(command: readonly string[] | undefined): ServedModel[] {
  const words = commandWords(command ?? []);
  const engine = engineName(words);
  if (engine === undefined) return [];
  const served = namesBehind(words, NAMES);
  const path = modelPath(words);
  const names = served.length > 0 ? served : path === undefined ? [] : [path];
  const models = names.map((id): ServedModel => ({ id: unquoted(id), state: 'loading' }));
  // Shell variables are not resolved here, so names with `$` are unknown.
  return models.filter((model) => !model.id.includes('$') && modelSchema.safeParse(model).success);
}

/** The checkpoint's directory or name on the hub, from the words of a known engine's command line. */
export function modelPath(words: readonly string[]): string | undefined {
  const engine = engineName(words);
  if (engine === undefined) return undefined;
  const path = flagValue(words, ...MODEL_FLAGS[engine]) ?? positional(words);
  return path === undefined ? undefined : unquoted(path);
}

function namesBehind(words: readonly string[], flag: string): string[] {
  const assigned = words.findLast((word) => word.startsWith(`${flag}=`));
  if (assigned !== undefined) return [assigned.slice(flag.length + 1)];
  const at = words.lastIndexOf(flag);
  if (at < 0) return [];
  const behind = words.slice(at + 1);
  const end = behind.findIndex((word) => word.startsWith('-'));
  return end < 0 ? behind : behind.slice(0, end);
}

/**
 * The model's name in `vllm serve NAME …` or `vllm serve --port 8001 NAME`: the only word that cannot be a flag's
 * value.
 */
function positional(words: readonly string[]): string | undefined {
  const at = words.indexOf('serve');
  if (at < 0) return undefined;
  const behind = words.slice(at + 1);
  const free = behind.filter((word, n) => {
    const before = behind[n - 1];
    return !word.startsWith('-') && (before === undefined || !before.startsWith('-') || before.includes('='));
  });
  // If several words remain, some of them may belong to a flag that takes several values. Only a word directly after
  // `serve` is then certainly the model.
  return free[0] === behind[0] || free.length === 1 ? free[0] : undefined;
}

function unquoted(word: string): string {
  return word.replace(/^["']|["']$/g, '');
}
