/** Leaves an engine's last output with a gateway: the node is gone a moment later. */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Signer } from '../../shared/lattice/crypto.ts';
import { logTailMessage } from '../../shared/lattice/session.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { LOG_TAIL_MAX_BYTES, PROTOCOL_VERSION } from '../../shared/wire/limits.ts';
import { nodeCrypto } from '../host/crypto.ts';
import { messageOf, postToGateway } from './gateway-request.ts';

export interface LogTailOptions {
  /** Asked in this order until one takes it. */
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
export async function leaveLogTail(options: LogTailOptions): Promise<void> {
  const { gateways, ticket, key, proxy, env, signal, log } = options;
  const tail = options.tail.subarray(-LOG_TAIL_MAX_BYTES);
  const headers = {
    'content-type': 'application/octet-stream',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(ticket.bytes),
    'x-otela-signature': toBase64url(key.sign(logTailMessage(ticket.session, nodeCrypto.sha256(tail)))),
  };
  for (const gateway of gateways) {
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
      if (answer.status < 300) return log(`the engine's last ${tail.length} bytes of output are at ${gateway.host}`);
      log(`${gateway.host} does not take the engine's last output: ${answer.status} ${messageOf(answer)}`);
    } catch (error) {
      log(`${gateway.host} does not take the engine's last output: ${error instanceof Error ? error.message : error}`);
    }
    if (signal.aborted) return;
  }
}
