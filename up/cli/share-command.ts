/** `otela share`: an API key with a budget for a colleague, or an offer to an institution's gateway. */
import { once } from 'node:events';
import { isPrivateAddress } from '../../node/private-address.ts';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { durationMs } from '../../shared/text/duration.ts';
import { LocalGateway } from '../gateway/local-gateway.ts';
import { openShareListener } from '../gateway/share-listener.ts';
import { stateDirectory } from '../state/state-directory.ts';
import { UpError } from '../up-error.ts';
import { offerByNodes } from './share-nodes.ts';
import { offerModels, offerOf } from './share-offer.ts';

const FLAGS = {
  with: { value: 'NAME', help: 'name of the colleague; a second key for the same name replaces the first' },
  tokens: { value: 'N', help: 'tokens per calendar month (UTC): 500k, 1M', otherwise: 'no limit' },
  for: { value: 'DURATION', default: '30d', help: 'the key ends after this time' },
  listen: {
    value: 'ADDRESS',
    help: 'pass requests under /v1 from this private address of this machine, until Ctrl-C',
    otherwise: 'only programs of this machine reach the gateway',
  },
  revoke: { help: 'end the key of this name' },
  gateway: { value: 'URL', help: "offer the models at an institution's gateway, until Ctrl-C" },
  'token-file': { value: 'FILE', takes: 'file', help: 'file with the join token of that gateway (chmod 600)' },
  nodes: { help: "with --gateway: let the jobs' own nodes join it, so that they serve while this machine sleeps" },
} as const satisfies Flags;

/** Longest life of a key for a colleague. */
const FOR_MAX_MS = 366 * 86_400_000;
const UNITS: Readonly<Record<string, number>> = { '': 1, k: 1e3, M: 1e6, G: 1e9 };

export const SHARE_COMMAND: Command<Output> = {
  summary: "create an API key with a budget for a colleague, or offer the models at an institution's gateway",
  examples: `--with NAME [--tokens N] [--for DURATION] [--listen ADDRESS]
  otela share --gateway URL --token-file FILE [--tokens N | --nodes] [--for DURATION]

The key may use the models that otela up serves, and nothing else. The gateway itself listens on 127.0.0.1 only.
With --gateway, an agent on this machine joins that gateway. Its users' requests reach the models through this machine, which counts and
limits them. With --nodes, an agent in each job joins it: the compute nodes must reach that gateway, and only the gateway counts and limits.
  otela share --with ada --tokens 1M
  otela share --with ada --tokens 1M --listen 192.168.1.5
  otela share --with ada --revoke
  otela share --gateway https://gw.example.org --token-file ~/.otela-token --tokens 1M
  otela share --gateway https://gw.example.org --token-file ~/.otela-token --nodes`,
  flags: FLAGS,
  run: shareCommand,
};

async function shareCommand(args: readonly string[], out: Output): Promise<number> {
  const { values } = parseLine(args, FLAGS, { words: 0 });
  const offer = offerOf(values);
  const name = offer === undefined ? values.with : `the gateway ${new URL(offer.to).host}`;
  if (name === undefined || (offer === undefined && !/^[\w.@ -]{1,64}$/.test(name)))
    throw new UsageError('give the name of your colleague: --with ada');
  const tokens = values.tokens === undefined ? undefined : tokenCount(values.tokens);
  const forMs = durationMs(values.for);
  if (forMs === undefined || forMs <= 0 || forMs > FOR_MAX_MS)
    throw new UsageError(`--for: "${values.for}" is not a duration such as 12h or 30d, at most 366d`);
  const { listen } = values;
  if (listen !== undefined && !isPrivateAddress(listen))
    throw new UsageError(`--listen: "${listen}" is not an address of a private network`);
  if (offer !== undefined && values.nodes) {
    if (values.tokens !== undefined)
      throw new UsageError('--nodes and --tokens exclude each other: that gateway limits');
    await offerByNodes({ ...offer, endsAt: new Date(Date.now() + forMs), ends: values.revoke }, out);
    return EXIT_DONE;
  }
  const gateway = new LocalGateway(stateDirectory());
  const url = await gateway.runningUrl();
  if (url === undefined) throw new UpError('No model is up.', 'Start one: otela up MODEL --host me@login.example.org');
  const limits = { name, tokens, endsAt: new Date(Date.now() + forMs) };
  if (offer !== undefined) {
    await offerModels({ ...offer, from: url, limits }, gateway, out);
    return EXIT_DONE;
  }
  const ended = await gateway.revokeSharedKeys(name);
  if (values.revoke) {
    if (ended === 0) throw new UpError(`There is no key for ${name}.`, 'The name is that of --with.');
    out.print(`the key of ${name} is revoked`);
    return EXIT_DONE;
  }
  const key = await gateway.createSharedKey(limits);
  const budget = tokens === undefined ? '' : `, ${tokens} tokens a month`;
  if (listen === undefined) {
    out.print(shareText(`key for ${name}, for ${values.for}${budget}`, `${url}/v1`, key));
    out.complain('Only programs of this machine reach this URL. For others, give --listen ADDRESS.');
    return EXIT_DONE;
  }
  await serveShared(listen, gateway, (at) => {
    out.print(shareText(`key for ${name}, for ${values.for}${budget}`, `${at}/v1`, key));
    out.complain('The connection is not encrypted: share only in a network that you trust, such as a VPN.');
  });
  return EXIT_DONE;
}

/** Serves until a signal. */
async function serveShared(address: string, gateway: LocalGateway, ready: (url: string) => void): Promise<void> {
  const server = await openShareListener({ address, port: gateway.port, gatewayPort: () => gateway.port });
  ready(server.url);
  await Promise.race((['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map((signal) => once(process, signal)));
  server.close();
}

function shareText(what: string, url: string, key: string): string {
  return `${what}

  URL      ${url}
  API key  ${key}

  export OPENAI_BASE_URL=${url} OPENAI_API_KEY=${key}
`;
}

/** @throws UsageError */
function tokenCount(text: string): number {
  const [, digits, unit = ''] = /^(\d{1,9}(?:\.\d{1,3})?)([kMG]?)$/.exec(text) ?? [];
  const count = Math.round(Number(digits) * (UNITS[unit] ?? Number.NaN));
  if (!Number.isSafeInteger(count) || count < 1)
    throw new UsageError(`--tokens: "${text}" is not a number such as 500k or 1M`);
  return count;
}
