/**
 * Offers the models of this machine's gateway at the gateway of an institution. An agent on this machine joins that
 * gateway, with this machine's gateway as its engine. So the compute nodes need no way to the institution, and its
 * requests are counted and limited here by their own API key.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { printable } from '../../shared/terminal/printable.ts';
import { agentBundle } from '../install/program-files.ts';
import { UpError } from '../up-error.ts';

/** The agent's exit code if every gateway refused it. */
const REFUSED = 69;
/** The agent's line after a gateway admitted it. */
const JOINED = /(?:^|\s)session ([\w-]+), state in /;
/** A longer line of the agent is cut. */
const LINE_MAX_CHARS = 500;

interface Offer {
  /** URL of the institution's gateway. */
  to: string;
  /** File with its join token. Only its path is passed on. */
  tokenFile: string;
  /** URL of the gateway on this machine. */
  from: string;
  /** API key with which the agent asks it. */
  key: string;
  /** Called each time the agent has joined. */
  onJoined(session: string): void;
  log(line: string): void;
  /** Ends the offer: the agent finishes its running requests. */
  signal: AbortSignal;
}

/** Offers the models until the signal. @throws UpError if the gateway refuses, or the agent fails */
export async function offerToGateway(offer: Offer): Promise<void> {
  const child = spawn(process.execPath, [await agentBundle(), ...agentArguments(offer)], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: agentEnvironment(process.env, offer.key),
  });
  let last = '';
  createInterface({ input: child.stderr }).on('line', (line) => {
    last = printable(line.slice(0, LINE_MAX_CHARS));
    offer.log(last);
    const [, session] = JOINED.exec(last) ?? [];
    if (session !== undefined) offer.onJoined(session);
  });
  const code = await ended(child, offer.signal);
  if (offer.signal.aborted) return;
  throw code === REFUSED
    ? new UpError(
        `${offer.to} refuses this machine: ${last}`,
        'Ask its operator for a join token of your provider, and give the file with --token-file.',
      )
    : new UpError(`The agent for ${offer.to} ended: ${last}`, 'Run the same command again.');
}

function agentArguments({ to, tokenFile, from }: Offer): string[] {
  return ['start', '--gateway', to, '--token-file', tokenFile, '--engine-url', from];
}

/** Settings of other agents of the user do not count. The key is not an argument, because all users can read arguments. */
function agentEnvironment(env: NodeJS.ProcessEnv, key: string): NodeJS.ProcessEnv {
  const others = Object.entries(env).filter(([name]) => !name.startsWith('OTELA_'));
  // No other agent calls this one, so it does not listen.
  return { ...Object.fromEntries(others), OTELA_ENGINE_KEY: key, OTELA_MESH: 'off' };
}

function ended(child: ChildProcess, signal: AbortSignal): Promise<number | null> {
  const end = () => child.kill('SIGTERM');
  signal.addEventListener('abort', end, { once: true });
  return new Promise((resolve, reject) => {
    child.once('error', reject).once('close', resolve);
    if (signal.aborted) end();
  });
}
