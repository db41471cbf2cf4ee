/** Reads the engine's command line: the command to run, and facts about the engine. */
import { engineKind } from './engine-kinds.ts';

/** A single argument with spaces is a command line for a shell, as in `--process "vllm serve NAME --port 8001"`. */
export function shellWrapped(command: readonly string[]): string[] {
  const [only] = command;
  return command.length === 1 && only !== undefined && /\s/.test(only.trim()) ? ['sh', '-c', only] : [...command];
}

/**
 * The words of a command, as far as they are known without running it. `sh -c` lines are split on blanks, so `apptainer
 * exec x.sif bash -c "vllm serve NAME --port 8001"` still shows its port.
 */
export function commandWords(command: readonly string[]): string[] {
  return command.flatMap((argument) => argument.split(/\s+/).filter((word) => word !== ''));
}

/** The value of the last `--name VALUE` or `--name=VALUE`, as argparse reads it, without quotes. */
export function flagValue(words: readonly string[], ...names: string[]): string | undefined {
  let found: string | undefined;
  for (const [index, word] of words.entries()) {
    for (const name of names) {
      if (word === name) found = words[index + 1] ?? found;
      if (word.startsWith(`${name}=`)) found = word.slice(name.length + 1);
    }
  }
  return found?.replace(/^["']|["']$/g, '');
}

/**
 * Environment variables that an engine gets unless the user sets them. By default, SGLang checks only every 4 s whether
 * the client of a non-streaming response is still connected, and the request keeps its place in the engine until then.
 * SGLang 0.5.17 dropped such a request after 3.8 s, and with this variable after 0.9 s.
 */
export function engineDefaults(command: readonly string[]): Record<string, string> {
  return engineKind(commandWords(command))?.name === 'sglang' ? { SGLANG_REQUEST_STATE_WAIT_TIMEOUT: '1' } : {};
}
