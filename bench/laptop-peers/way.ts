import { MODEL } from '../../test/slurm/laptop.ts';
import type { Lab } from './lab.ts';

/** A way from a command on the laptop to a model in a job of the cluster. */
export interface Way {
  name: string;
  /** Commands that a person types once, after the installation of the program. */
  once: readonly string[];
  /** Commands for each model until its first token. A command that is repeated counts once. */
  each: readonly string[];
  /** Commands that end it. */
  end: readonly string[];
  /** Runs `once`, and provides the mock engine in place of images and weights. */
  prepare(lab: Lab): Promise<void>;
  /** A shell script of `each` and `end`. It prints `first token` between them. `port` and its successor are free. */
  script(port: number): string;
}

const ASK = JSON.stringify({ model: MODEL, max_tokens: 1, messages: [{ role: 'user', content: 'Hello' }] });

/** The request for the first token. URL and key may be variables of the shell. */
export const ask = (url: string, key = '') =>
  `curl -sf "${url}/chat/completions" -H "authorization: Bearer ${key}" -H 'content-type: application/json' -d '${ASK}' >/dev/null
echo "first token"`;

/** Waits until the engine answers at a forwarded port. */
export const forwarded = (port: number, everySeconds: number) =>
  `until curl -sf -o /dev/null http://127.0.0.1:${port}/v1/models; do sleep ${everySeconds}; done`;
