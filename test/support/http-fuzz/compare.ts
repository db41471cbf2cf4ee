/** Checks that a server read the same requests as the judge, up to the point at which one of the two stops. */
import type { Answer } from '../../conformance/http/connection.ts';
import { type Case, markOf, type Target } from './cases.ts';
import { isOffer, type Reading, readRequests } from './rfc9112.ts';

/** Data received on the connection of a case. */
export interface Heard {
  answers: readonly Answer[];
  /** True if the server ended the connection. */
  ended: boolean;
  /** Received data that is not a complete response. */
  unread: string;
}

export interface Comparison {
  /** One sentence per disagreement. */
  disagreements: readonly string[];
  /** True if the server refused a request that the judge accepts. That harms no other request. */
  stricter: boolean;
  reading: Reading;
}

/** The server's messages if its parser refuses a request, before any handler. */
const REFUSALS =
  /this is not valid HTTP|(?:more than one|no) Host header|names no host|not allow Transfer-Encoding|The only supported|HTTP\/\S+ is not supported|this server is not a proxy/;

/** True if the server's parser, or a check before its handlers, refused the request: the connection then ends. */
export function isRefusal({ status, body }: Answer): boolean {
  return status >= 400 && REFUSALS.test(body);
}

export function compare({ bytes, mutations }: Case, heard: Heard, target: Target): Comparison {
  const reading = readRequests(bytes);
  const { requests, rest, restHead, reason } = reading;
  const disagreements: string[] = [];
  const refusedAt = heard.answers.findIndex(isRefusal);
  const answered = refusedAt < 0 ? heard.answers : heard.answers.slice(0, refusedAt);
  // A response may arrive before its request's body is complete.
  const most = requests.length + (restHead === undefined ? 0 : 1);
  if (answered.length > most)
    disagreements.push(
      `it answers ${answered.length} requests, and there are ${most}${reason ? ` before ${reason}` : ''}`,
    );
  for (const [at, answer] of answered.entries()) {
    const request = requests[at];
    const mark = request && markOf(request, target);
    if (mark !== undefined && (answer.status !== 404 || !answer.body.includes(`'${mark}'`)))
      disagreements.push(
        `answer ${at + 1} is ${answer.status} and does not name ${mark}: ${answer.body.slice(0, 120)}`,
      );
  }
  if (refusedAt >= 0 && refusedAt < heard.answers.length - 1) disagreements.push('an answer follows a refusal');
  if (refusedAt >= 0 && !heard.ended) disagreements.push('a connection stays open after a refusal');
  // After an offer of another protocol, node:http reports no error: the body stalls, and is given up like other stalled
  // bodies.
  if (rest === 'refused' && !heard.ended && !(restHead && isOffer(restHead)))
    disagreements.push(`it waits for more behind what is no request: ${reason}`);
  if (!heard.ended && answered.length < requests.length)
    disagreements.push(`it waits for more after ${answered.length} answers, and ${requests.length} requests are whole`);
  if (heard.unread !== '' && !heard.ended) disagreements.push(`half an answer: ${heard.unread.slice(0, 120)}`);
  const stricter = answered.length < requests.length;
  if (mutations.length === 0 && (stricter || refusedAt >= 0 || rest !== 'nothing'))
    disagreements.push(`of ${requests.length} good requests it answers ${answered.length}`);
  return { disagreements, stricter, reading };
}
