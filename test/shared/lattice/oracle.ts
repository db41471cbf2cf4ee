/**
 * What a replica must hold after some updates, stated as a set: no order, no merging, and only the decoders are shared
 * with the implementation.
 */

import { decodeEviction } from '../../../shared/lattice/eviction.ts';
import { keyName } from '../../../shared/lattice/gateway-certificate.ts';
import { decodeGcWatermark, decodeRevocation } from '../../../shared/lattice/gateway-key-statements.ts';
import { SESSION_STATES } from '../../../shared/lattice/node-record.ts';
import type { Update } from '../../../shared/lattice/registry-update.ts';
import { decodeRecord } from '../../../shared/lattice/signed-record.ts';
import { decodeTicket, type Ticket } from '../../../shared/lattice/ticket.ts';
import { crypto, lab } from './domain.ts';

/** In the form of `holdings`. All updates must be complete. */
export function expected(updates: readonly Update[]): string[] {
  const floors = new Map<string, number>();
  const revoked = new Set<string>();
  const tickets = new Map<string, Ticket>();
  for (const update of updates) {
    if (update.kind === 'floor') {
      const { certificate, at } = decodeGcWatermark(update.floor);
      floors.set(certificate.keyName, Math.max(at, floors.get(certificate.keyName) ?? 0));
    } else if (update.kind === 'revocation') revoked.add(decodeRevocation(update.revocation).keyName);
    else if (update.ticket !== undefined) {
      const ticket = decodeTicket(update.ticket, crypto);
      tickets.set(ticket.session, ticket);
    }
  }
  const stays = ({ certificate, expires }: Ticket) =>
    expires >= (floors.get(certificate.keyName) ?? 0) &&
    !revoked.has(certificate.keyName) &&
    !revoked.has(keyName(lab.root.publicKey));
  const entries = [...tickets.values()].filter(stays).map((ticket) => entryOf(ticket.session, updates));
  return [
    ...entries,
    ...[...floors].map(([key, at]) => `floor ${key} ${at}`),
    ...[...revoked].map((key) => `revoked ${key}`),
  ].sort();
}

function entryOf(session: string, updates: readonly Update[]): string {
  const said: { order: string; state: string; hash: string; payload: string }[] = [];
  const evicted: string[] = [];
  for (const update of updates) {
    if (update.kind !== 'entry') continue;
    const record = update.record === undefined ? undefined : decodeRecord(update.record, crypto);
    if (record?.session === session) {
      const order = `${SESSION_STATES.indexOf(record.state)} ${record.version} ${record.hash}`;
      const payload = Buffer.from(update.payload ?? []).toString();
      said.push({ order, state: record.state, hash: record.hash, payload });
    }
    const eviction = update.eviction === undefined ? undefined : decodeEviction(update.eviction, crypto);
    if (eviction?.session === session) evicted.push(eviction.hash);
  }
  const last = said.sort((a, b) => (a.order < b.order ? -1 : 1)).at(-1);
  const eviction = evicted.sort().at(-1);
  const state = last === undefined || eviction !== undefined ? 'LEFT' : last.state;
  const payload = last === undefined || state === 'LEFT' ? '-' : last.payload;
  return `${session} ${state} ${last?.hash ?? '-'} ${eviction ?? '-'} ${payload}`;
}
