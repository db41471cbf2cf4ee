/** Evidence of nodes, for clients with a verifier. Each node is asked once for each of its keys; the question is sealed to that node alone. */
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

/** Keys that were judged; the oldest is judged again. */
const JUDGED_MAX = 256;
/** JSON around base64. */
const ANSWER_MAX_BYTES = 2 * EVIDENCE_MAX_BYTES;
const ASK_MS = 45_000;

const UNPROVEN = 'The verifier took the evidence of no node that serves the model; nothing was sent.';

interface Verdict {
  good: boolean;
  /** What failed. Undefined where the verifier said no. */
  cause: unknown;
}

interface Asking {
  /** The gateway, up to `/v1`. */
  base: string;
  model: string;
  headers: Record<string, string>;
}

export class JudgedNodes {
  readonly #verifier: EvidenceVerifier;
  readonly #fetch: typeof globalThis.fetch;
  readonly #now: () => number;
  /** By `kid`. */
  readonly #verdicts = new Map<string, Promise<Verdict>>();

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
      const verdict = await this.#judged(node, asking);
      if (verdict.good) good.push(node);
      else cause = verdict.cause;
      if (good.length === count) break;
    }
    if (good.length === 0) throw new SealClientError('no_candidate', UNPROVEN, { cause });
    return good;
  }

  #judged(node: SealNode, asking: Asking): Promise<Verdict> {
    const known = this.#verdicts.get(node.kid);
    if (known !== undefined) return known;
    const judged = this.#judge(node, asking).then(
      (good): Verdict => ({ good, cause: undefined }),
      (cause: unknown): Verdict => ({ good: false, cause }),
    );
    this.#verdicts.set(node.kid, judged);
    const oldest = this.#verdicts.keys().next().value;
    if (this.#verdicts.size > JUDGED_MAX && oldest !== undefined) this.#verdicts.delete(oldest);
    // A node that could not answer may answer later.
    void judged.then(({ good }) => good || this.#verdicts.delete(node.kid));
    return judged;
  }

  async #judge(node: SealNode, { base, model, headers }: Asking): Promise<boolean> {
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
      return false;
    }
    const answer = readEvidenceAnswer(JSON.parse(await wholeOf(new AnswerOpener(response.body, sealed))));
    if (answer === undefined) return false;
    const reportData = new Uint8Array(
      await globalThis.crypto.subtle.digest('SHA-512', evidenceMessage(node.key, nonce)),
    );
    const bytes = Uint8Array.from(atob(answer.evidence), (char) => char.charCodeAt(0));
    return (await this.#verifier.verify({ node, kinds: answer.kinds, bytes, reportData })) === true;
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
