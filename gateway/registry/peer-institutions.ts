/** Reads from D1 the issuers of the peer institutions that the operator listed. */
import { asc } from 'drizzle-orm';
import { peers } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { type ListedIssuer, listedIssuer } from './listed-issuers.ts';

/** Maximum peer institutions. This bounds the size of each snapshot, and of the list that each agent stores. */
export const PEERS_MAX = 64;

/** Rejects with ApiError 503 if D1 cannot be reached. */
export async function readGatewayPeers(env: Pick<Env, 'DB'>): Promise<ListedIssuer[]> {
  const rows = await queryOrUnavailable(database(env).select().from(peers).orderBy(asc(peers.name)).limit(PEERS_MAX));
  return rows.flatMap(({ name, root, url }) => listedIssuer(name, root, url ?? undefined, workerdCrypto) ?? []);
}
