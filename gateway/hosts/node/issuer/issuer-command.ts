/**
 * `otela-gateway issuer …`: works only on the key files, so it can also be used if the gateway runs on another machine.
 */
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { toBase64url } from '../../../../shared/lattice/base64url.ts';
import { issuerId, keyName } from '../../../../shared/lattice/gateway-certificate.ts';
import { workerdCrypto } from '../../../issuer/ed25519.ts';
import { IssuerError } from '../../../issuer/issuer.ts';
import { type IssuerFiles, keyNames, openIssuer, revoke, rotate, workerSecrets } from './issuer-files.ts';

const FLAGS = {
  data: { default: './data', value: 'DIR', takes: 'directory', help: 'the data directory' },
  ...JSON_FLAG,
} as const satisfies Flags;
const VERBS = ['show', 'init', 'rotate', 'revoke', 'secrets'];

export const ISSUER_COMMAND: Command = {
  summary: 'manage the keys with which this gateway admits nodes',
  examples: `show | init | rotate | revoke KEY | secrets

  otela-gateway issuer show                                    prints root_key, which other institutions add as a peer
  otela-gateway issuer rotate                                  creates a new gateway key; restart the gateway to use it
  otela-gateway issuer revoke KEY                              revokes a leaked key and ends its sessions
  otela-gateway issuer secrets | npx wrangler secret bulk      for a gateway on Cloudflare`,
  verbs: VERBS,
  flags: FLAGS,
  run: issuerCommand,
};

async function issuerCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 2 });
  const [verb, key] = words;
  const wanted = (verb === 'revoke') === (key !== undefined);
  if (!wanted || !VERBS.includes(verb ?? ''))
    throw new UsageError('usage: otela-gateway issuer show | init | rotate | revoke KEY | secrets');
  const nowS = Math.floor(Date.now() / 1000);
  const dir = join(values.data, 'issuer');
  if (verb !== 'init') await existing(dir);
  const before = await openIssuer(dir, nowS);
  if (verb === 'secrets') {
    // This is input for `wrangler secret bulk`. It contains the gateway's key, so operators should pipe it and not
    // store it.
    console.log(JSON.stringify(workerSecrets(before)));
    return EXIT_DONE;
  }
  const after = await change(verb, before, key, nowS);
  if (after !== before) console.error('Restart the gateway for this to take effect.');
  show(after, values.json);
  return EXIT_DONE;
}

function change(verb: string | undefined, files: IssuerFiles, key: string | undefined, nowS: number) {
  if (verb === 'rotate') return rotate(files, nowS);
  if (verb === 'revoke' && key !== undefined) return revoke(files, key, nowS);
  return files;
}

async function existing(dir: string): Promise<void> {
  await access(dir).catch((cause: unknown) => {
    throw new IssuerError(
      `There is no issuer in ${dir}. The first start of the gateway creates one, as does \`issuer init\`.`,
      { cause },
    );
  });
}

function show(files: IssuerFiles, json: boolean): void {
  const { certificate, root } = files;
  const seen = {
    issuer: issuerId(certificate.root, workerdCrypto),
    root_key: toBase64url(certificate.root),
    root_key_name: keyName(certificate.root),
    root_key_here: root !== undefined,
    gateway_key: certificate.keyName,
    valid_from: rfc3339(certificate.notBefore),
    valid_until: rfc3339(certificate.notAfter),
    retired: keyNames(files).retired,
    revoked: keyNames(files).revoked,
  };
  if (json) return console.log(JSON.stringify(seen));
  for (const [name, value] of Object.entries(seen)) {
    for (const one of Array.isArray(value) ? value : [value]) console.log(`${name.padEnd(14)} ${one}`);
  }
  console.log(`\nOther gateways trust it with: otela-gateway peers add NAME ${seen.root_key} URL`);
}

function rfc3339(seconds: number): string {
  return new Date(seconds * 1000).toISOString();
}
