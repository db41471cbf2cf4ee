/**
 * The statement of a month between this institution and a peer institution, as a stream: it has any number of records,
 * and is read at the pace of its reader.
 */
import { GPU_MS_MAX, TOKENS_MAX } from '../../shared/usage/ingress-usage.ts';
import { PEER_PROJECT_PATTERN } from '../../shared/usage/readable-receipt.ts';
import {
  type SignedHead,
  type StatementFacts,
  type StatementHead,
  StatementWriter,
} from '../../shared/usage/signed-statement.ts';
import type { StatementRecord } from '../../shared/usage/statement-record.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { isReportedByAgent, NO_SESSION, peerKey, shardsBetween, type UsageRow } from './usage-row.ts';

const PAGE = 500;
/** Time after a month in which records may still arrive. Agents deliver records for seven days. */
const LATE_MS = 8 * 86_400_000;

type Side = StatementHead['side'];

interface PeerStatement {
  /** Name of the peer institution here. */
  peer: string;
  facts: StatementFacts;
  /** First millisecond of the month, and of the next month. */
  from: number;
  to: number;
  sign(statement: StatementHead): Promise<SignedHead>;
}

/** Returns the first millisecond of a month such as 2026-11 and of the next one, UTC. */
export function monthBounds(month: string): { from: number; to: number } {
  const from = new Date(`${month}-01T00:00:00Z`);
  return { from: from.getTime(), to: Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + 1) };
}

/** True if no records of a month that ended at `to` can arrive any more. */
export function isFinal(to: number, now: number): boolean {
  return now >= to + LATE_MS;
}

const encoder = new TextEncoder();

export function peerStatementStream(env: Pick<Env, 'USAGE'>, statement: PeerStatement): ReadableStream<Uint8Array> {
  const { peer, facts, from, to, sign } = statement;
  const writer = new StatementWriter(workerdCrypto);
  const shards = shardsBetween(from, to - 1);
  let after = 0;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          const [shard] = shards;
          if (shard === undefined) {
            controller.enqueue(encoder.encode(`${JSON.stringify(await sign(writer.head(facts)))}\n`));
            return controller.close();
          }
          const page = await env.USAGE.getByName(shard).page(after, PAGE, false);
          const last = page.at(-1);
          if (last === undefined || page.length < PAGE) {
            shards.shift();
            after = 0;
          } else after = last.n;
          for (const { row } of page) if (isUntracked(row, facts.side, peer)) writer.untracked(countsOf(row));
          const records = page.flatMap(({ row }) => statementRecord(row, facts.side, peer) ?? []);
          if (records.length === 0) continue;
          controller.enqueue(encoder.encode(records.map((record) => `${writer.record(record)}\n`).join('')));
          return;
        }
      },
    },
    { highWaterMark: 0 },
  );
}

/** Returns the record of a row; undefined: the row is not part of the statement. */
export function statementRecord(row: UsageRow, side: Side, peer: string): StatementRecord | undefined {
  const suffix = `@${peer}`;
  const { session, provider } = side === 'served' ? row : usedAt(row);
  if (side === 'served' ? row.key !== peerKey(peer) || row.untracked === true : !provider.endsWith(suffix))
    return undefined;
  const project = side === 'served' ? without(suffix, row.project) : row.project;
  return {
    at: new Date(row.at).toISOString(),
    request: row.request,
    attempt: row.attempt,
    session,
    provider: without(suffix, provider),
    model: row.model,
    project: PEER_PROJECT_PATTERN.test(project) ? project : null,
    ...countsOf(row),
    estimated: row.estimated,
  };
}

function countsOf({ prompt, completion, cached, reasoning, gpuMs }: UsageRow) {
  const count = (tokens: number) => Math.min(TOKENS_MAX, Math.max(0, Math.round(tokens)));
  return {
    prompt: count(prompt),
    completion: count(completion),
    cached: count(cached),
    reasoning: count(reasoning),
    gpu_ms: gpuMs === undefined ? null : Math.min(GPU_MS_MAX, Math.max(0, Math.round(gpuMs))),
  };
}

function isUntracked(row: UsageRow, side: Side, peer: string): boolean {
  return side === 'served' && row.untracked === true && row.key === peerKey(peer);
}

/**
 * Returns the node that served a request of this institution's users, and its provider. An agent's ingress reports both;
 * the row itself has the agent's own. Empty if no node served it.
 */
function usedAt(row: UsageRow): { session: string; provider: string } {
  const none = { session: NO_SESSION, provider: '' };
  if (!isReportedByAgent(row)) return row.session === NO_SESSION ? none : row;
  // A reporter of another institution could claim that we used its nodes.
  return row.provider.includes('@') || row.served === undefined ? none : row.served;
}

function without(suffix: string, text: string): string {
  return text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
}
