#!/usr/bin/env node
import { isSea } from 'node:sea';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { EXIT_DONE, runProgram } from '../../shared/command-line/index.ts';
/** `otela-agent`: serves a model engine of this machine to gateways, over outgoing connections only. */
import { neverRejects } from '../../shared/timing/in-background.ts';
import { EXIT_ENGINE } from '../config/exit-codes.ts';
import type { Env } from '../config/setting.ts';
import { settlesWithin } from '../life/settles-within.ts';
import { deliverLastWill } from '../tunnel/last-will-message.ts';
import { makeAgentIo, waitForFlush } from './agent-io.ts';
import type { AgentDependencies } from './command-context.ts';
import { AGENT_PROGRAM } from './commands.ts';
import { neverBlocking } from './nonblocking-output.ts';

/**
 * Internal command that delivers a killed agent's last message (LEFT) to gateways. It reads the message from standard
 * input.
 */
const LAST_WILL = 'last-will';

/** Replaced in tests; in production the process provides them. */
export interface MainOptions extends Partial<AgentDependencies> {
  stdout?: Writable;
  stderr?: Writable;
}

/** `argv` begins after the program's name. Resolves with the exit code and never rejects. */
export async function main(argv: readonly string[], env: Env, options: MainOptions = {}): Promise<number> {
  const io = makeAgentIo(options.stdout ?? process.stdout, options.stderr ?? process.stderr, env);
  const ends = {
    out: io.out,
    complain: (text: string) => void io.stderr.write(`${text}\n`),
    exitOf: () => undefined,
    failed: EXIT_ENGINE,
  };
  if (argv[0] !== LAST_WILL) return runProgram(AGENT_PROGRAM, argv, { env, io, outside: options }, ends);
  try {
    await deliverLastWill(await text(process.stdin), env);
    return EXIT_DONE;
  } catch (error) {
    ends.complain(error instanceof Error ? `${error.stack}` : String(error));
    return EXIT_ENGINE;
  }
}

/** Maximum wait at the end for a reader that has stopped reading. */
const OUTPUT_WAIT_MS = 2000;

/** A pipe takes 64 KiB at a time. The rest waits in this process, and process.exit would drop it. */
async function run(argv: readonly string[]): Promise<void> {
  const program = isSea() ? [process.execPath] : [process.execPath, ...process.argv.slice(1, 2)];
  const streams =
    argv[0] === 'start' ? { stdout: neverBlocking(process.stdout), stderr: neverBlocking(process.stderr) } : {};
  const code = await main(argv, process.env, { willCommand: [...program, LAST_WILL], ...streams });
  const taken = Promise.all([waitForFlush(process.stdout), waitForFlush(process.stderr)]);
  if (argv[0] === 'start') await settlesWithin(OUTPUT_WAIT_MS, taken);
  else await taken;
  process.exit(code);
}

// `run` is not awaited, because the single-file program is a CommonJS script without top-level await.
if (import.meta.main) neverRejects(run(process.argv.slice(2)));
