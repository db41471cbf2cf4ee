/**
 * A session's LEFT record, signed while its agent lives, and delivered if the agent was killed; see
 * host/last-will-process.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { fromBase64url, toBase64url } from '../../shared/lattice/base64url.ts';
import { REGISTRY_RECORD_MAX_BYTES } from '../../shared/lattice/signed-record.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { isRefusal, postToGateway } from './gateway-request.ts';

/**
 * Pauses before each delivery. After the last one the message is not needed any more, because the gateway then notices
 * itself that the node has ended.
 */
const PAUSES_MS = [0, 500, 2_000];
const TIMEOUT_MS = 5_000;

const willSchema = z.object({
  gateways: z.array(z.object({ url: z.url(), proxy: z.url().optional() })).max(64),
  headers: z.record(z.string(), z.string()),
  record: z.string(),
});

interface Testament {
  gateways: readonly URL[];
  proxy?: ((gateway: URL) => URL | undefined) | undefined;
  ticket: Pick<Ticket, 'bytes'>;
  /** The session's LEFT record. */
  record: Uint8Array;
}

/** The message as one line of text. */
export function lastWillOf({ gateways, proxy, ticket, record }: Testament): string {
  const will: z.infer<typeof willSchema> = {
    gateways: gateways.map((gateway) => ({ url: gateway.href, proxy: proxy?.(gateway)?.href })),
    headers: { 'x-otela-protocol': String(PROTOCOL_VERSION), 'x-otela-ticket': toBase64url(ticket.bytes) },
    record: toBase64url(record),
  };
  return JSON.stringify(will);
}

/**
 * Delivers the record to each gateway, with a few tries if a gateway does not answer.
 * @throws Error if `text` is not a last will
 */
export async function deliverLastWill(text: string, env: NodeJS.ProcessEnv): Promise<void> {
  const { gateways, headers, record } = willSchema.parse(JSON.parse(text));
  const body = fromBase64url(record, REGISTRY_RECORD_MAX_BYTES) ?? new Uint8Array();
  await Promise.all(
    gateways.map(async ({ url, proxy }) => {
      for (const pause of PAUSES_MS) {
        await sleep(pause);
        const signal = AbortSignal.timeout(TIMEOUT_MS);
        const to = { gateway: new URL(url), proxy: proxy === undefined ? undefined : new URL(proxy) };
        const answer = await postToGateway({ ...to, path: '/agent/left', headers, body, env, signal }).catch(
          () => undefined,
        );
        if (answer !== undefined && (answer.status < 300 || isRefusal(answer))) return;
      }
    }),
  );
}
