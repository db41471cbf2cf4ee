/**
 * Nodes of another provider that give their cluster the same name as ours: what they may coordinate, and what their
 * lies cost.
 */
import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import type { CoordinatorAnswer, CoordinatorQuestion } from '../../../shared/weights/blob-coordinator.ts';
import { endAll } from '../../support/processes.ts';
import { Cluster, hubFolder, type Node, PIECE, plainFolder, QUICK, sha256 } from './cluster.ts';

afterEach(endAll);

const SIZE = PIECE * 2 + 100;

/** A source with lists of public models, like the hub's. */
const openPublic: typeof openSource = (source, env) => {
  const opened = openSource(source, env);
  return {
    list: async (signal) => ({ ...(await opened.list(signal)), public: true }),
    read: (...args) => opened.read(...args),
  };
};

/** Nodes of `mallory`, and the questions that they were asked about blobs that a node wants. */
async function mallory(cluster: Cluster, count: number, answer: (node: Node) => CoordinatorAnswer, holds?: string) {
  const asked: CoordinatorQuestion[] = [];
  const nodes = await cluster.of(count, { provider: 'mallory', weights: { openSource: openPublic } });
  // While they are honest.
  if (holds !== undefined) for (const { weights } of nodes) await weights.pull(holds);
  for (const node of nodes) {
    const { coordination } = node.weights.parts;
    const honest = coordination.answer.bind(coordination);
    coordination.answer = (session, questions, own) => {
      // They answer each other honestly.
      if (own) return honest(session, questions, own);
      asked.push(...questions.filter(({ role }) => role === 'wants'));
      return questions.map(() => answer(node));
    };
  }
  return { nodes, asked };
}

const files = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`f${n}`, randomBytes(SIZE)]));

it('lists and blobs that only the own provider may have are coordinated by its own nodes', async () => {
  const cluster = new Cluster();
  const { asked } = await mallory(cluster, 6, () => ({ kind: 'wait' }));
  const [first, second] = [await cluster.add(), await cluster.add()];
  const source = `dir:${await plainFolder(files(6))}`;
  await first.weights.pull(source);
  const { status } = await second.weights.pull(source);
  expect(status).toMatchObject({ state: 'done', from_source: 0 });
  expect(asked).toEqual([]);
});

it('a node of another provider cannot say that it reads such a blob: the own nodes would wait for it', async () => {
  const cluster = new Cluster();
  const [evil] = (await mallory(cluster, 1, () => ({ kind: 'wait' }))).nodes;
  const own = await cluster.add();
  const question: CoordinatorQuestion = { blob: 'a'.repeat(64), role: 'reads' };
  const { client } = evil?.weights.parts ?? own.weights.parts;
  const ask = (kind: boolean) => client.coordinate(own.name.session, [question], kind, AbortSignal.timeout(10_000));
  await expect(ask(true)).rejects.toMatchObject({ code: 'refused' });
  expect(await ask(false)).toEqual([{ kind: 'known' }]);
  const answer = () => own.weights.parts.coordination.answer(own.name.session, [{ ...question, role: 'wants' }], true);
  await expect.poll(answer, { timeout: 20_000 }).toEqual([{ kind: 'read' }]);
});

it('a coordinator of another provider that only says to wait is waited for once, not for each blob', async () => {
  const cluster = new Cluster();
  const { asked } = await mallory(cluster, 1, () => ({ kind: 'wait' }));
  const node = await cluster.add({ weights: { openSource: openPublic, limits: QUICK } });
  const { status } = await node.weights.pull(`dir:${await hubFolder(files(24))}`);
  expect(status).toMatchObject({ state: 'done', from_source: 24 * SIZE });
  expect(new Set(asked.map(({ blob }) => blob)).size).toBeLessThanOrEqual(3);
});

it('false bytes of a public blob cost two restarts, whichever sender is named repeatedly', async () => {
  const cluster = new Cluster();
  const content = files(1);
  const source = `dir:${await hubFolder(content)}`;
  const { nodes } = await mallory(cluster, 3, (node) => ({ kind: 'peer', session: node.name.session }), source);
  const [real = Buffer.alloc(0)] = Object.values(content);
  const bytes = Buffer.from(real);
  bytes[0] = (bytes[0] ?? 0) ^ 1;
  const digests: Buffer[] = [];
  for (let at = 0; at < SIZE; at += PIECE) digests.push(Buffer.from(sha256(bytes.subarray(at, at + PIECE)), 'hex'));
  for (const { weights } of nodes) {
    const { path, digestsPath } = weights.store.placeOf(sha256(real));
    await writeFile(path, bytes);
    await writeFile(digestsPath, Buffer.concat(digests));
  }
  const node = await cluster.add({ weights: { openSource: openPublic, limits: QUICK } });
  // Any coordinator's answer names a liar.
  const [liar] = nodes;
  const coordination = node.weights.parts.coordination;
  const { ask } = coordination;
  coordination.ask = async (question, own) => {
    const answer = await ask.call(coordination, question, own);
    const named: CoordinatorAnswer = { kind: 'peer', session: liar?.name.session ?? '' };
    return !own && question.role !== 'reads' ? named : answer;
  };
  const { path, status } = await node.weights.pull(source);
  expect((await readFile(join(path, 'f0'))).equals(real)).toBe(true);
  expect(status.from_source).toBeGreaterThanOrEqual(SIZE);
  const falseOnes = node.log.filter((line) => line.includes('the wrong SHA-256')).length;
  expect(falseOnes).toBeGreaterThan(0);
  expect(falseOnes).toBeLessThanOrEqual(2);
});
