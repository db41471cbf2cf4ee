/**
 * The part of a gateway's receipt that the serving node can read. A receipt has three lines: the encrypted payer, facts,
 * and the model. The facts begin with `+`, or with `-` if the request must leave no record. To a node of a peer
 * institution the gateway also sends the payer's project, after a tab at the end of the facts.
 */

/** Facts of a request at a node of another institution. */
export interface ReadableReceipt {
  model: string;
  /** Id of the project at the institution that sent the request. Undefined: the key has no project. */
  project: string | undefined;
  /** True if the request must leave no record. */
  untracked: boolean;
}

/** Ids of projects are ASCII and short. Any other text is ignored, because the peer institution chooses it. */
export const PEER_PROJECT_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;

/** The proof that a gateway puts in front of a receipt; see gateway/accounts/attempt-opening-proof.ts. */
const PROOF = /^1\.(?:[0-9a-z]+\.){5}[A-Za-z0-9_-]{22}$/;

/** Adds the payer's project to a receipt. A receipt of a request without a record stays as it is. */
export function withPayerProject(receipt: string, project: string): string {
  const [payer, facts = '', ...model] = receipt.split('\n');
  if (!facts.startsWith('+') || !PEER_PROJECT_PATTERN.test(project)) return receipt;
  return [payer, `${facts}\t${project}`, ...model].join('\n');
}

/** Returns the facts of a receipt without the payer's project. */
export function withoutPayerProject(facts: string): string {
  const tab = facts.indexOf('\t');
  return tab < 0 ? facts : facts.slice(0, tab);
}

/** Reads a receipt that a gateway sent, with or without its proof. Undefined if it has another form. */
export function readableReceipt(sent: string): ReadableReceipt | undefined {
  const lines = sent.split('\n');
  const [, facts, ...model] = PROOF.test(lines[0] ?? '') ? lines.slice(1) : lines;
  if (facts === undefined || model.length === 0 || !/^[+-]/.test(facts)) return undefined;
  const project = facts.includes('\t') ? facts.slice(facts.indexOf('\t') + 1) : '';
  return {
    model: model.join('\n'),
    project: PEER_PROJECT_PATTERN.test(project) ? project : undefined,
    untracked: facts.startsWith('-'),
  };
}
