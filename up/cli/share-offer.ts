/** `otela share --gateway`: offers the models of this machine at an institution's gateway until a signal. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import type { LocalGateway, SharedKey } from '../gateway/local-gateway.ts';
import { offerToGateway } from '../gateway/offer-to-gateway.ts';
import { takeRunLock } from '../state/run-lock.ts';
import { stateDirectory } from '../state/state-directory.ts';
import { UpError } from '../up-error.ts';

interface Offered {
  /** URL of the institution's gateway. */
  to: string;
  /** File with its join token. */
  tokenFile: string;
}

interface OfferFlags {
  gateway: string | undefined;
  'token-file': string | undefined;
  with: string | undefined;
  listen: string | undefined;
  revoke: boolean;
  nodes: boolean;
}

/** Undefined if nothing is offered to a gateway. @throws UsageError */
export function offerOf(flags: OfferFlags): Offered | undefined {
  const { gateway, 'token-file': tokenFile, revoke, nodes } = flags;
  if (gateway === undefined && tokenFile === undefined) {
    if (nodes) throw new UsageError('--nodes needs --gateway URL and --token-file FILE');
    return undefined;
  }
  if (gateway === undefined || tokenFile === undefined)
    throw new UsageError('give both --gateway URL and --token-file FILE');
  if (flags.with !== undefined || flags.listen !== undefined || (revoke && !nodes))
    throw new UsageError('--gateway does not combine with --with, --listen and --revoke');
  const url = URL.parse(gateway);
  if (url === null || !/^https?:$/.test(url.protocol)) throw new UsageError(`--gateway: "${gateway}" is not a URL`);
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '')
    throw new UsageError('--gateway: only a path may follow the address');
  if (url.protocol === 'http:' && !/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(url.hostname))
    throw new UsageError(`--gateway: ${gateway} is not encrypted, so others could read the join token: use https://`);
  return { to: url.href.replace(/\/(?:v1\/?)?$/, ''), tokenFile };
}

/** Offers the models until a signal. The key of the offer ends with it. @throws UpError */
export async function offerModels(
  offer: Offered & { from: string; limits: SharedKey },
  gateway: LocalGateway,
  out: Output,
): Promise<void> {
  const ends = new AbortController();
  const end = () => ends.abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, end);
  // A second offer would replace the key of the first.
  const name = `offer-${createHash('sha256').update(offer.to).digest('hex').slice(0, 16)}.sock`;
  const lock = await takeRunLock(join(stateDirectory(), name), end);
  if (lock === undefined)
    throw new UpError(`Another process of this machine offers the models at ${offer.to}.`, 'End it with Ctrl-C there.');
  try {
    await gateway.revokeSharedKeys(offer.limits.name);
    const key = await gateway.createSharedKey(offer.limits);
    const onJoined = (session: string) =>
      out.print(`The models of this machine are offered at ${offer.to} as node ${session}. Ctrl-C ends this.`);
    await offerToGateway({ ...offer, key, onJoined, log: out.complain, signal: ends.signal });
  } finally {
    // If this machine's gateway has ended, the key ends after --for.
    await gateway.revokeSharedKeys(offer.limits.name).catch(() => 0);
    lock.release();
  }
}
