import { modelSchema, type ServedModel } from '../../shared/lattice/node-record.ts';
import { commandWords, flagValue } from './engine-command.ts';
import { engineKind } from './engine-kinds.ts';

/**
 * The models that an engine will serve after loading, from its command line; empty if it does not show them. Loading
 * takes up to half an hour. Without this list, gateways would answer during that time that the model does not exist.
 */
export function announcedModels(command: readonly string[] | undefined): ServedModel[] {
  const words = commandWords(command ?? []);
  const kind = engineKind(words);
  if (kind === undefined) return [];
  const served = kind.nameFlags.flatMap((flag) => namesBehind(words, flag));
  const path = kind.namedByCheckpoint ? modelPath(words) : undefined;
  const names = served.length > 0 ? served : path === undefined ? [] : [path];
  const models = names.map((id): ServedModel => ({ id: unquoted(id), state: 'loading' }));
  // Shell variables are not resolved here, so names with `$` are unknown.
  return models.filter((model) => !model.id.includes('$') && modelSchema.safeParse(model).success);
}

/** The checkpoint's directory or name on the hub, from the words of a known engine's command line. */
export function modelPath(words: readonly string[]): string | undefined {
  const kind = engineKind(words);
  if (kind === undefined) return undefined;
  const path = flagValue(words, ...kind.modelFlags) ?? positional(words, kind.modelAfter);
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
 * @param after the word before it, such as `serve`
 */
function positional(words: readonly string[], after: string | undefined): string | undefined {
  const at = after === undefined ? -1 : words.indexOf(after);
  if (at < 0) return undefined;
  const behind = words.slice(at + 1);
  const free = behind.filter((word, n) => {
    const before = behind[n - 1];
    return !word.startsWith('-') && (before === undefined || !before.startsWith('-') || before.includes('='));
  });
  // If several words remain, some of them may belong to a flag that takes several values. Only a word directly after
  // `after` is then certainly the model.
  return free[0] === behind[0] || free.length === 1 ? free[0] : undefined;
}

function unquoted(word: string): string {
  return word.replace(/^["']|["']$/g, '');
}
