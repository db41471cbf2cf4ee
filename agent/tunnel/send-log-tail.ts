/** Uploads the last output of engine and agent to the gateways, because the node is about to end. */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Signer } from '../../shared/lattice/crypto-interface.ts';
import { logTailMessage } from '../../shared/lattice/session-id.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { LOG_TAIL_MAX_BYTES, PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { nodeCrypto } from '../host/node-crypto.ts';
import { errorMessageOf, postToGateway } from './gateway-request.ts';

export interface LogTailOptions {
  /** All of these gateways get the log, because an operator may ask any of them for it, and one of them may be lost. */
  gateways: readonly URL[];
  ticket: Ticket;
  key: Signer;
  tail: Uint8Array;
  proxy?: ((gateway: URL) => URL | undefined) | undefined;
  env: NodeJS.ProcessEnv;
  signal: AbortSignal;
  log(line: string): void;
}

/** Never rejects. */
export async function sendLogTail(options: LogTailOptions): Promise<void> {
  const { gateways, ticket, key, proxy, env, signal, log } = options;
  const tail = options.tail.subarray(-LOG_TAIL_MAX_BYTES);
  const headers = {
    'content-type': 'application/octet-stream',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(ticket.bytes),
    'x-otela-signature': toBase64url(key.sign(logTailMessage(ticket.session, nodeCrypto.sha256(tail)))),
  };
  const give = async (gateway: URL): Promise<string[]> => {
    try {
      const answer = await postToGateway({
        gateway,
        path: '/agent/logs',
        headers,
        body: tail,
        env,
        proxy: proxy?.(gateway),
        signal,
      });
      if (answer.status < 300) return [gateway.host];
      log(`${gateway.host} rejected this node's log: ${answer.status} ${errorMessageOf(answer)}`);
    } catch (error) {
      log(`cannot send this node's log to ${gateway.host}: ${errorText(error)}`);
    }
    return [];
  };
  const kept = (await Promise.all(gateways.map(give))).flat();
  if (kept.length > 0) log(`this node's log (${tail.length} bytes) is stored at ${kept.join(', ')}`);
}
