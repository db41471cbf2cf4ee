/** Compares signed statements of two institutions, and proves that a request is part of one. Works on files only. */
import { createReadStream } from 'node:fs';
import { readBoundedFile } from '../../node/bounded-file.ts';
import { EXIT_DONE, UsageError } from '../../shared/command-line/index.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { type Dispute, requireCounterparts, StatementComparison } from '../../shared/usage/compare-statements.ts';
import { inclusionProof, leafHash } from '../../shared/usage/merkle-tree.ts';
import {
  PROOF_MAX_CHARS,
  type SignedHead,
  StatementError,
  type StatementHead,
  StatementReader,
  verifyProof,
} from '../../shared/usage/signed-statement.ts';
import type { StatementRecord } from '../../shared/usage/statement-record.ts';
import { EXIT_FAILED } from '../command-error.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { ClientError } from './api-client.ts';
import { Table } from './table.ts';

/** Disputes that are printed. All of them are counted. */
const SHOWN_MAX = 1_000;

/** Prints what two statements dispute. The exit code is 1 if they dispute something. */
export async function compareCommand(ours: string, theirs: string, json: boolean): Promise<number> {
  const comparison = new StatementComparison();
  const own = await readStatement(ours, (record) => comparison.add('ours', record));
  const other = await readStatement(theirs, (record) => comparison.add('theirs', record));
  explained(ours, () => requireCounterparts(own.statement, other.statement));
  const table = new Table(['request', 'attempt', 'dispute', 'members', 'ours', 'theirs']);
  const counts: Record<Dispute['kind'], number> = { ours: 0, theirs: 0, twice: 0, different: 0 };
  let disputed = 0;
  for (const dispute of comparison.disputes()) {
    counts[dispute.kind]++;
    if (++disputed > SHOWN_MAX) continue;
    if (json) console.log(JSON.stringify(dispute));
    else table.add(rowOf(dispute));
  }
  const { agreed } = comparison;
  const isFinal = own.statement.final && other.statement.final;
  if (json) {
    const { untracked } = servedSide(own.statement, other.statement);
    console.log(JSON.stringify({ agreed, disputed, ...counts, untracked, final: isFinal }));
  } else {
    if (disputed > 0) table.flush();
    console.log(`${agreed} requests agree, ${disputed} are disputed`);
    if (disputed > SHOWN_MAX) console.log(`the first ${SHOWN_MAX} disputes are shown`);
    const { requests, prompt, completion } = servedSide(own.statement, other.statement).untracked;
    if (requests > 0)
      console.log(
        `without records: ${requests} requests, ${prompt}+${completion} tokens, as the nodes' institution states`,
      );
    if (!isFinal) console.log('a statement was made before its month was complete: make it again later');
  }
  return disputed === 0 ? EXIT_DONE : EXIT_FAILED;
}

function servedSide(a: StatementHead, b: StatementHead): StatementHead {
  return a.side === 'served' ? a : b;
}

function rowOf({ request, attempt, kind, members, estimated, ours, theirs }: Dispute): string[] {
  const tokens = (records: readonly StatementRecord[]) =>
    records.map(({ prompt, completion }) => `${prompt}+${completion}`).join(', ') || '–';
  const why = { ours: 'only ours', theirs: 'only theirs', twice: 'several records', different: 'different' }[kind];
  return [
    request,
    String(attempt),
    estimated ? `${why}, estimated` : why,
    members.join(', '),
    tokens(ours),
    tokens(theirs),
  ];
}

interface ProveOptions {
  file: string | undefined;
  request: string | undefined;
  attempt: string | undefined;
  check: string | undefined;
}

/** Prints the proof that a request is part of a statement, or checks one. */
export async function proveCommand({ file, request, attempt, check }: ProveOptions): Promise<number> {
  if (check !== undefined && file === undefined) return checkProof(check);
  if (file === undefined || request === undefined || check !== undefined)
    throw new UsageError('usage: otela-gateway usage prove FILE REQUEST [--attempt N] | prove --check PROOF');
  const hashes: Uint8Array[] = [];
  const found: { index: number; line: string }[] = [];
  const signed = await readStatement(file, (record, line) => {
    if (record.request === request && (attempt === undefined || String(record.attempt) === attempt))
      found.push({ index: hashes.length, line });
    hashes.push(leafHash(encoder.encode(line), workerdCrypto));
  });
  const [one, ...others] = found;
  if (one === undefined) throw new ClientError(`${file}: has no record of this request`);
  if (others.length > 0)
    throw new ClientError(`${file}: has ${found.length} records of this request; choose one with --attempt`);
  const proof = inclusionProof(hashes, one.index, workerdCrypto).map(toBase64url);
  console.log(JSON.stringify({ record: one.line, index: one.index, proof, signed }));
  return EXIT_DONE;
}

const encoder = new TextEncoder();

function checkProof(path: string): number {
  const { record, statement } = explained(path, () =>
    verifyProof(readBoundedFile(path, PROOF_MAX_CHARS).trim(), workerdCrypto),
  );
  const { month, side, issuer, peer } = statement;
  console.log(JSON.stringify({ month, side, issuer, peer, record }));
  return EXIT_DONE;
}

/** Reads and checks a statement. @throws ClientError with the reason why it is not valid */
async function readStatement(path: string, take: (record: StatementRecord, line: string) => void): Promise<SignedHead> {
  const reader = new StatementReader(workerdCrypto);
  try {
    for await (const line of boundedLines(path)) {
      const record = reader.line(line);
      if (record !== undefined) take(record, line);
    }
    return reader.end();
  } catch (error) {
    throw failure(path, error);
  }
}

/** Reads the lines of a file. A longer line than a statement can have ends it. */
async function* boundedLines(path: string): AsyncIterable<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  let rest = '';
  for await (const chunk of createReadStream(path)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > PROOF_MAX_CHARS) throw new StatementError('malformed', 'it has a line that is too long');
    yield* lines;
  }
  rest += decoder.decode();
  if (rest !== '') yield rest;
}

function explained<T>(path: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw failure(path, error);
  }
}

function failure(path: string, error: unknown): ClientError {
  return new ClientError(`${path}: is not a valid statement: ${errorText(error)}`);
}
