/**
 * `otela-agent vouch`: creates a provider's root key, which is kept offline, and the delegate keys with which the
 * provider's agents vouch for their encryption keys.
 */
import { randomBytes } from 'node:crypto';
import { createPrivateFile, readPrivateFile } from '../../node/private-file.ts';
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../shared/command-line/index.ts';
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { KEY_BYTES } from '../../shared/lattice/crypto-interface.ts';
import { ID_PATTERN } from '../../shared/lattice/node-record.ts';
import { DELEGATE_LIFE_MAX_S } from '../../shared/seal/key-vouch.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { nodeSigner } from '../host/node-crypto.ts';
import { DelegateKey } from '../seal/delegate-key.ts';
import type { AgentIo } from './agent-io.ts';
import type { CommandContext } from './command-context.ts';

const FLAGS = {
  provider: { value: 'NAME', help: 'name of the provider, as at the gateway' },
  'new-root': { value: 'FILE', takes: 'file', help: 'create the root key in this file; never store it on a cluster' },
  root: { value: 'FILE', takes: 'file', help: 'file of the root key, to sign a delegate key' },
  out: { value: 'FILE', takes: 'file', help: 'file to write the delegate key to, for --delegate-file' },
  days: { value: 'N', help: 'days until the delegate key expires, at most 90' },
  ...JSON_FLAG,
} as const satisfies Flags;

export const VOUCH_COMMAND: Command<CommandContext> = {
  summary: 'create the keys with which clients verify your nodes',
  examples: `--provider NAME --new-root FILE | --provider NAME --root FILE --out FILE [--days 90] [--json]

Clients that use end-to-end encryption pin your root key; keep its file offline. The root key signs delegate keys. With a delegate key,
your agents sign their own encryption keys. No gateway has either key.
  otela-agent vouch --provider eth --new-root eth.root                    # once, on your own machine
  otela-agent vouch --provider eth --root eth.root --out delegate.key     # at least every 90 days`,
  flags: FLAGS,
  run: (args, { io }) => vouchCommand(args, io),
};

const DAY_S = 86_400;
const DAYS_MAX = DELEGATE_LIFE_MAX_S / DAY_S;

/** @throws UsageError */
function vouchCommand(argv: readonly string[], io: AgentIo): number {
  const { values } = parseLine(argv, FLAGS);
  const one = (name: Exclude<keyof typeof FLAGS, 'json'>) => values[name]?.trim();
  const provider = one('provider') ?? '';
  if (!ID_PATTERN.test(provider))
    throw new UsageError('a provider is missing: give --provider NAME, the name at the gateway');
  const [made, root, out] = [one('new-root'), one('root'), one('out')];
  if ((made === undefined) === (root === undefined))
    throw new UsageError(
      'give --new-root FILE to create a root key, or --root FILE --out FILE to create a delegate key',
    );
  if (made !== undefined) return printKeyFile({ pin: newRoot(made), provider, file: made }, values.json === true, io);
  if (out === undefined) throw new UsageError('the output file is missing: give --out FILE');
  const signer = nodeSigner(readRoot(root ?? ''));
  const life = daysOf(one('days')) * DAY_S;
  const now = Math.floor(Date.now() / 1000);
  write(out, DelegateKey.make(provider, signer, randomBytes(KEY_BYTES), { now, life }));
  const until = new Date((now + life) * 1000).toISOString();
  return printKeyFile({ pin: toBase64url(signer.publicKey), provider, file: out, until }, values.json === true, io);
}

function printKeyFile(
  made: { pin: string; provider: string; file: string; until?: string },
  json: boolean,
  io: AgentIo,
): number {
  const { pin, provider, file, until } = made;
  if (json) io.out(JSON.stringify(made));
  else {
    io.out(
      `${file}: ${until === undefined ? 'the root key; move it offline' : `a delegate key, valid until ${until}`}`,
    );
    io.out(`clients pin: ${provider}=${pin}`);
  }
  return EXIT_DONE;
}

function newRoot(file: string): string {
  const seed = randomBytes(KEY_BYTES);
  write(file, `${toBase64url(seed)}\n`);
  return toBase64url(nodeSigner(seed).publicKey);
}

/** Never overwrites a key, because everything that the old key signed would become invalid. */
function write(file: string, text: string): void {
  try {
    createPrivateFile(file, text);
  } catch (error) {
    throw new UsageError(`${file}: ${errorText(error)}`);
  }
}

function readRoot(file: string): Uint8Array {
  try {
    const seed = fromBase64url(readPrivateFile(file).trim(), KEY_BYTES);
    if (seed?.length === KEY_BYTES) return seed;
  } catch (error) {
    throw new UsageError(`--root: ${errorText(error)}`);
  }
  throw new UsageError(`--root: ${file} is not a key that otela-agent vouch --new-root created`);
}

function daysOf(text = String(DAYS_MAX)): number {
  const days = Number(text);
  if (!Number.isInteger(days) || days < 1 || days > DAYS_MAX)
    throw new UsageError(`--days must be a whole number from 1 to ${DAYS_MAX}`);
  return days;
}
