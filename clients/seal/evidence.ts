/**
 * Evidence of nodes, for clients with a verifier. A node that the verifier takes is asked once for each of its keys, others again after a
 * while; the question is sealed to that node alone.
 */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import {
  EVIDENCE_MAX_BYTES,
  EVIDENCE_NONCE_BYTES,
  EVIDENCE_PATH,
  evidenceMessage,
  readEvidenceAnswer,
} from '../../shared/seal/evidence.ts';
import { isSealedType } from '../../shared/seal/suite.ts';
import type { SealNode } from './candidates.ts';
import { SealClientError } from './error.ts';
import { AnswerOpener } from './open.ts';
import { seal } from './seal.ts';

export interface Evidence {
  node: SealNode;
  /** As the node calls them: `tdx`, `snp`, `nvidia`. */
  kinds: readonly string[];
  /** What the site's helper printed. */
  bytes: Uint8Array;
  /** 64 bytes that a report must have been made over: they are of this node's key and of a nonce that no one knew before. */
  reportData: Uint8Array;
}

/** Judges a machine. Whether its manufacturer's signatures, its measurements and its GPUs are good enough is the verifier's to say. */
export interface EvidenceVerifier {
  /** False, or a rejection: nothing is sealed to the node. */
  verify(evidence: Evidence): boolean | Promise<boolean>;
}

/** Keys that were judged, and nodes that gave no evidence; the oldest is judged again. */
const JUDGED_MAX = 256;
/** How long the verifier's no holds: a report takes a machine seconds. */
const REFUSED_MS = 5 * 60_000;
/** How long a node is left alone that gave no evidence, or whose evidence the verifier failed to judge. */
const FAILED_MS = 10_000;
/** JSON around base64. */
const ANSWER_MAX_BYTES = 2 * EVIDENCE_MAX_BYTES;
const ASK_MS = 45_000;

const UNPROVEN = 'The verifier took the evidence of no node that serves the model; nothing was sent.';

type Verdict = { kind: 'good' | 'refused' } | { kind: 'failed'; cause: unknown };

/** A yes holds as long as the key that it is about. */
const HOLDS_MS = { good: Number.POSITIVE_INFINITY, refused: REFUSED_MS, failed: FAILED_MS };

interface Judged {
  verdict: Verdict;
  /** Milliseconds since 1970. */
  until: number;
}

/** Headers that identify a caller. */
const WHO = ['authorization', 'x-api-key'];

interface Asking {
  /** The gateway, up to `/v1`. */
  base: string;
  model: string;
  headers: Record<string, string>;
}

export class VerdictCache {
  readonly #verifier: EvidenceVerifier;
  readonly #fetch: typeof globalThis.fetch;
  readonly #now: () => number;
  /** What the verifier said, by `kid`; failures by key and caller, since a wrong key of one caller is no fault of the node. */
  readonly #judged = new Map<string, Judged>();
  /** By caller: no more than requests that wait. */
  readonly #asked = new Map<string, Promise<Verdict>>();

  constructor(verifier: EvidenceVerifier, fetch: typeof globalThis.fetch, now: () => number) {
    this.#verifier = verifier;
    this.#fetch = fetch;
    this.#now = now;
  }

  /** The first `count` of the nodes that the verifier takes. @throws SealClientError no_candidate, with the last failure as its cause */
  async among(nodes: readonly SealNode[], count: number, asking: Asking): Promise<SealNode[]> {
    const good: SealNode[] = [];
    let cause: unknown;
    for (const node of nodes) {
      if (node.evidence === undefined) continue;
      const verdict = await this.#verdict(node, asking);
      if (verdict.kind === 'good') good.push(node);
      if (verdict.kind === 'failed') ({ cause } = verdict);
      if (good.length === count) break;
    }
    if (good.length === 0) throw new SealClientError('no_candidate', UNPROVEN, { cause });
    return good;
  }

  async #verdict(node: SealNode, asking: Asking): Promise<Verdict> {
    const mine = JSON.stringify([node.kid, asking.base, asking.model, ...WHO.map((name) => asking.headers[name])]);
    const known = this.#known(node.kid) ?? this.#known(mine);
    if (known !== undefined) return known;
    const asked = this.#asked.get(mine);
    if (asked !== undefined) return asked;
    const judging = this.#judge(node, asking).then(
      (kind): Verdict => ({ kind }),
      (cause: unknown): Verdict => ({ kind: 'failed', cause }),
    );
    this.#asked.set(mine, judging);
    const verdict = await judging;
    this.#asked.delete(mine);
    this.#keep(verdict.kind === 'failed' ? mine : node.kid, verdict);
    return verdict;
  }

  #known(name: string): Verdict | undefined {
    const judged = this.#judged.get(name);
    return judged !== undefined && this.#now() < judged.until ? judged.verdict : undefined;
  }

  #keep(name: string, verdict: Verdict): void {
    this.#judged.delete(name);
    this.#judged.set(name, { verdict, until: this.#now() + HOLDS_MS[verdict.kind] });
    const oldest = this.#judged.keys().next().value;
    if (this.#judged.size > JUDGED_MAX && oldest !== undefined) this.#judged.delete(oldest);
  }

  /** @throws where the node gave no evidence; what the verifier throws */
  async #judge(node: SealNode, { base, model, headers }: Asking): Promise<'good' | 'refused'> {
    const nonce = globalThis.crypto.getRandomValues(new Uint8Array(EVIDENCE_NONCE_BYTES));
    const body = new TextEncoder().encode(JSON.stringify({ model, nonce: toBase64url(nonce) }));
    const inside: [string, string][] = [['content-type', 'application/json']];
    const clear = { path: EVIDENCE_PATH, model, stream: false, headers: inside, body };
    const sealed = await seal(clear, [node], this.#now() / 1000);
    const response = await this.#fetch(base + EVIDENCE_PATH, {
      method: 'POST',
      headers: { ...headers, ...sealed.headers },
      body: sealed.body,
      signal: AbortSignal.timeout(ASK_MS),
      redirect: 'error',
    });
    if (!isSealedType(response.headers.get('content-type')) || response.body === null) {
      await response.body?.cancel();
      throw new SealClientError('no_candidate', `The node ${node.session} gave no evidence: HTTP ${response.status}.`);
    }
    const answer = readEvidenceAnswer(JSON.parse(await wholeOf(new AnswerOpener(response.body, sealed))));
    if (answer === undefined) throw new SealClientError('no_candidate', `The node ${node.session} gave no evidence.`);
    const reportData = new Uint8Array(
      await globalThis.crypto.subtle.digest('SHA-512', evidenceMessage(node.key, nonce)),
    );
    const bytes = Uint8Array.from(atob(answer.evidence), (char) => char.charCodeAt(0));
    return (await this.#verifier.verify({ node, kinds: answer.kinds, bytes, reportData })) === true
      ? 'good'
      : 'refused';
  }
}

/** @throws what the opener throws; RangeError above the bound */
async function wholeOf(opener: AnswerOpener): Promise<string> {
  const decoder = new TextDecoder();
  let [text, bytes] = ['', 0];
  for (let next = await opener.next(); next.kind !== 'end'; next = await opener.next()) {
    if (next.kind === 'head' && next.head.status !== 200) throw new RangeError(`status ${next.head.status}`);
    if (next.kind !== 'data') continue;
    bytes += next.bytes.length;
    if (bytes > ANSWER_MAX_BYTES) {
      await opener.cancel();
      throw new RangeError('too much evidence');
    }
    text += decoder.decode(next.bytes, { stream: true });
  }
  return text + decoder.decode();
}
