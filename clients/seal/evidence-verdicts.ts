/**
 * Checks evidence of nodes, for clients with a verifier. A node with an accepted key is not asked again for it; any
 * other node is asked again after a while. The request for evidence is sealed to the node itself.
 */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import {
  EVIDENCE_MAX_BYTES,
  EVIDENCE_NONCE_BYTES,
  EVIDENCE_PATH,
  evidenceMessage,
  readEvidenceAnswer,
} from '../../shared/seal/attestation-evidence.ts';
import { isSealedType } from '../../shared/seal/hpke-suite.ts';
import { AnswerOpener } from './answer-opener.ts';
import type { SealNode } from './pinned-candidates.ts';
import { SealClientError } from './seal-client-error.ts';
import { seal } from './seal-request.ts';

export interface Evidence {
  node: SealNode;
  /** Kinds of evidence in the node's notation: `tdx`, `snp`, `nvidia`. */
  kinds: readonly string[];
  /** The output of the provider's helper program. */
  bytes: Uint8Array;
  /** 64 bytes that the report must contain, derived from the node's key and a fresh nonce. */
  reportData: Uint8Array;
}

/** Judges a machine: whether the manufacturer's signatures, the measurements and the GPUs are good enough. */
export interface EvidenceVerifier {
  /** If it returns false or rejects, nothing is sealed to the node. */
  verify(evidence: Evidence): boolean | Promise<boolean>;
}

/** Maximum number of cached verdicts. The oldest is dropped, and its node is then judged again. */
const JUDGED_MAX = 256;
/** How long a refused node is not asked again. A report takes the node's machine several seconds. */
const REFUSED_MS = 5 * 60_000;
/** How long a node is skipped if it gave no evidence or the verifier failed. */
const FAILED_MS = 10_000;
/** Maximum length of an answer: twice the evidence, because the answer has it as base64 in JSON. */
const ANSWER_MAX_BYTES = 2 * EVIDENCE_MAX_BYTES;
const EVIDENCE_TIMEOUT_MS = 45_000;

const UNPROVEN = 'The verifier rejected the evidence of all nodes that serve the model. Nothing was sent.';

type Verdict = { kind: 'good' | 'refused' } | { kind: 'failed'; cause: unknown };

/** How long each verdict holds. A good verdict holds without end, because it is stored under the node's key. */
const HOLDS_MS = { good: Number.POSITIVE_INFINITY, refused: REFUSED_MS, failed: FAILED_MS };

interface Judged {
  verdict: Verdict;
  /** When the verdict ends, in milliseconds since 1970. */
  until: number;
}

/** Headers that identify a caller. */
const CALLER_HEADERS = ['authorization', 'x-api-key'];

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
  /**
   * Verdicts by `kid`. A failure is stored by `kid` and caller, because it may be due to the caller's wrong API key.
   */
  readonly #judged = new Map<string, Judged>();
  /** Running judgments, by `kid` and caller. At most one for each request that waits. */
  readonly #asked = new Map<string, Promise<Verdict>>();

  constructor(verifier: EvidenceVerifier, fetch: typeof globalThis.fetch, now: () => number) {
    this.#verifier = verifier;
    this.#fetch = fetch;
    this.#now = now;
  }

  /**
   * The first `count` nodes that the verifier accepts.
   * @throws SealClientError no_candidate, with the last failure as its cause
   */
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
    const mine = JSON.stringify([
      node.kid,
      asking.base,
      asking.model,
      ...CALLER_HEADERS.map((name) => asking.headers[name]),
    ]);
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

  /** @throws if the node gives no evidence, or the verifier throws */
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
      signal: AbortSignal.timeout(EVIDENCE_TIMEOUT_MS),
      redirect: 'error',
    });
    if (!isSealedType(response.headers.get('content-type')) || response.body === null) {
      await response.body?.cancel();
      throw new SealClientError(
        'no_candidate',
        `The node ${node.session} returned no evidence: HTTP ${response.status}.`,
      );
    }
    const answer = readEvidenceAnswer(JSON.parse(await wholeOf(new AnswerOpener(response.body, sealed))));
    if (answer === undefined)
      throw new SealClientError('no_candidate', `The node ${node.session} returned no evidence.`);
    const reportData = new Uint8Array(
      await globalThis.crypto.subtle.digest('SHA-512', evidenceMessage(node.key, nonce)),
    );
    const bytes = Uint8Array.from(atob(answer.evidence), (char) => char.charCodeAt(0));
    return (await this.#verifier.verify({ node, kinds: answer.kinds, bytes, reportData })) === true
      ? 'good'
      : 'refused';
  }
}

/**
 * Reads the whole response as text.
 * @throws RangeError if its status is not 200 or it is too long, and the errors of `opener`
 */
async function wholeOf(opener: AnswerOpener): Promise<string> {
  const decoder = new TextDecoder();
  let [text, bytes] = ['', 0];
  for (let next = await opener.next(); next.kind !== 'end'; next = await opener.next()) {
    if (next.kind === 'head' && next.head.status !== 200) throw new RangeError(`status ${next.head.status}`);
    if (next.kind !== 'data') continue;
    bytes += next.bytes.length;
    if (bytes > ANSWER_MAX_BYTES) {
      await opener.cancel();
      throw new RangeError('the evidence is too long');
    }
    text += decoder.decode(next.bytes, { stream: true });
  }
  return text + decoder.decode();
}
