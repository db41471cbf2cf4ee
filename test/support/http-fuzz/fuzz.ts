/** Runs cases against a server's socket, several concurrently, each on a separate connection. */
import { createHash } from 'node:crypto';
import { Connection } from '../../conformance/http/connection.ts';
import { seeded } from '../random.ts';
import { type Case, caseOf, isForEngine, type Target } from './cases.ts';
import { compare, type Heard, isRefusal } from './compare.ts';
import { readRequests } from './rfc9112.ts';

/** Concurrent connections: enough that connections which wait for silence cost no time. */
const AT_ONCE = 24;
/** A server that has sent nothing for this long is waiting for more bytes. */
const QUIET_MS = 400;
const LOOK_MS = 10;
/**
 * A server that must still respond or close, and has sent nothing for this long, counts as failed. A busy machine gets
 * more time at the second try.
 */
const OWING_MS = 2_000;
const PATIENT_MS = 20_000;
/** Maximum number of reported findings; more of one kind add nothing. */
const TOLD_MAX = 10;

export interface Fuzzed {
  cases: number;
  /** Complete requests in the cases. */
  requests: number;
  /** Cases in which the server refused a request that the judge accepts. */
  stricter: number;
  /** The disagreements, each with the seed, the number and the bytes of its case. */
  disagreements: readonly string[];
  /** SHA-256, in hex, of the bodies that an engine may receive. */
  bodies: ReadonlySet<string>;
}

async function hear(url: string, { bytes, cuts }: Case, owingMs = OWING_MS): Promise<Heard> {
  const connection = await Connection.open(url);
  let from = 0;
  for (const cut of [...cuts, bytes.length]) {
    if (cut === from && cut !== bytes.length) continue;
    connection.send(bytes.slice(from, cut));
    from = cut;
    await new Promise((resolve) => setImmediate(resolve));
  }
  const wanted = readRequests(bytes);
  for (
    let length = -1, since = Date.now();
    !connection.ended;
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
  ) {
    const { answers } = connection;
    const ends = wanted.rest === 'refused' || wanted.rest === 'last' || answers.some(isRefusal);
    const owes = ends || answers.length < wanted.requests.length;
    if (connection.text.length !== length) [length, since] = [connection.text.length, Date.now()];
    else if (Date.now() - since > (owes ? owingMs : QUIET_MS)) break;
    if (!owes && wanted.rest === 'nothing') break;
  }
  const heard = { answers: connection.answers, ended: connection.ended, unread: connection.unread };
  connection.close();
  return heard;
}

/**
 * Runs until `untilMs` (of Date.now()) or for this many `cases`, beginning with case `from`. A finding is tried again
 * with `patientMs` before it counts.
 */
export async function fuzz(
  url: string,
  target: Target,
  {
    seed,
    untilMs = Number.POSITIVE_INFINITY,
    cases = Number.POSITIVE_INFINITY,
    from = 0,
    patientMs = PATIENT_MS,
  }: { seed: number; untilMs?: number; cases?: number; from?: number; patientMs?: number },
): Promise<Fuzzed> {
  const bodies = new Set<string>();
  const disagreements: string[] = [];
  const sum = { requests: 0, stricter: 0 };
  let next = from;
  const one = async () => {
    while (Date.now() < untilMs && next < from + cases && disagreements.length < TOLD_MAX) {
      const number = next++;
      // A case depends only on its number, not on concurrent cases.
      const made = caseOf(seeded(seed * 1_000_003 + number), target, number);
      for (const request of readRequests(made.bytes).requests)
        if (isForEngine(request)) bodies.add(createHash('sha256').update(request.body, 'latin1').digest('hex'));
      let compared = compare(made, await hear(url, made), target);
      if (compared.disagreements.length > 0) compared = compare(made, await hear(url, made, patientMs), target);
      const { disagreements: found, stricter, reading } = compared;
      sum.requests += reading.requests.length;
      if (stricter) sum.stricter++;
      for (const what of found)
        disagreements.push(
          `seed ${seed}, case ${number} (${made.mutations.join(', ') || 'whole'}): ${what}\n${JSON.stringify(made.bytes)}`,
        );
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return { cases: next - from, ...sum, disagreements, bodies };
}
