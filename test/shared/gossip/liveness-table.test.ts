import { describe, expect, it } from 'vitest';
import { nodeCrypto, nodeSigner } from '../../../agent/host/node-crypto.ts';
import { encodeMessagePart, suspicionMessage } from '../../../shared/gossip/gossip-messages.ts';
import { createGossip, livenessOf, step } from '../../../shared/gossip/index.ts';
import type { Signer } from '../../../shared/lattice/crypto-interface.ts';
import { signCertificate } from '../../../shared/lattice/gateway-certificate.ts';
import { encodePayload } from '../../../shared/lattice/node-payload.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { decodeTicket, signTicket } from '../../../shared/lattice/ticket.ts';
import { EPOCH_S, payload } from '../../sim/issuer.ts';
import { liveness, One, ofType, partsTo } from './one.ts';

function among(size = 8): One {
  const one = new One('agent', [size]);
  one.open(...Array.from({ length: size - 1 }, (_, i) => i + 1));
  return one;
}

describe('a suspicion', () => {
  it('is believed once and passed on; said again by the same observer it changes nothing', () => {
    const one = among();
    const first = one.say(1, one.suspicion(3, 2));
    expect(liveness(first)).toEqual(['suspected']);
    expect(ofType(partsTo(first), 'suspicion').length).toBeGreaterThan(1);
    const again = one.say(4, one.suspicion(3, 2));
    expect(liveness(again)).toEqual([]);
    expect(ofType(partsTo(again), 'suspicion')).toEqual([]);
  });

  it('reaches the accused itself', () => {
    const one = among();
    const actions = one.say(1, one.suspicion(3, 2));
    expect(ofType(partsTo(actions, one.id(3)), 'suspicion')).not.toEqual([]);
  });

  it('of an incarnation that was refuted is old: it stays refuted when any peer repeats it', () => {
    const one = among();
    one.say(1, one.suspicion(3, 2));
    expect(liveness(one.say(1, one.refutation(3, 1)))).toEqual(['alive']);
    expect(liveness(one.say(4, one.suspicion(3, 2)))).toEqual([]);
    const old = one.say(4, one.suspicion(3, 5));
    expect(liveness(old)).toEqual([]);
    // A member that passed it on would keep it circulating forever.
    expect(ofType(partsTo(old), 'suspicion')).toEqual([]);
    expect(livenessOf(one.state, one.id(3))).toBe('alive');
  });

  it('of a later incarnation than known needs the accused’s own signature under it', () => {
    const one = among();
    const forged = one.say(4, one.suspicion(3, 2, 7, new Uint8Array(64)));
    expect(forged).toContainEqual(expect.objectContaining({ type: 'hangUp', peer: one.id(4), reason: 'broken' }));
    const { signature } = one.refutation(3, 7).refutation;
    expect(liveness(one.say(1, one.suspicion(3, 2, 7, signature)))).toEqual(['suspected']);
    expect(liveness(one.say(1, one.refutation(3, 7)))).toEqual([]);
    expect(liveness(one.say(1, one.refutation(3, 8)))).toEqual(['alive']);
  });

  it('is passed on for three observers and not for a fourth', () => {
    const one = among(10);
    const passed = [2, 4, 5, 6].map((observer) => partsTo(one.say(1, one.suspicion(3, observer))).length > 0);
    expect(passed).toEqual([true, true, true, false]);
  });

  it('by a node of another cluster, a node that left or an unknown one is ignored', () => {
    const one = new One('agent', [6, 2]);
    one.open(1, 2, 3, 4, 5);
    expect(liveness(one.say(1, one.suspicion(3, 6)))).toEqual([]);
    one.say(1, { type: 'news', update: one.member(5).say('LEFT') });
    expect(liveness(one.say(1, one.suspicion(3, 5)))).toEqual([]);
    expect(liveness(one.say(1, one.suspicion(3, 3)))).toEqual([]);
  });

  it('of the same observer is heard again only after a while', () => {
    const one = among();
    one.say(1, one.suspicion(3, 2));
    const { signature } = one.refutation(3, 1).refutation;
    one.say(1, one.refutation(3, 1));
    expect(liveness(one.say(1, one.suspicion(3, 2, 1, signature)))).toEqual([]);
    one.pass(6000);
    expect(liveness(one.say(1, one.suspicion(3, 2, 1, signature)))).toEqual(['suspected']);
  });
});

describe('an accusation of this node', () => {
  it('is refuted at once, by one incarnation more, to all', () => {
    const one = among();
    const actions = one.say(1, one.suspicion(0, 2));
    const words = ofType(partsTo(actions), 'refutation').map(({ refutation }) => refutation);
    expect(new Set(words.map(({ incarnation }) => incarnation))).toEqual(new Set([1]));
    expect(words.length).toBeGreaterThanOrEqual(7);
    expect(one.crypto.verify(one.member(0).signer.publicKey, new Uint8Array(), new Uint8Array(64))).toBe(false);
  });

  it('that comes late is answered with the same word, not with another incarnation', () => {
    const one = among();
    one.say(1, one.suspicion(0, 2));
    const late = ofType(partsTo(one.say(4, one.suspicion(0, 5)), one.id(4)), 'refutation');
    expect(late.map(({ refutation }) => refutation.incarnation)).toEqual([1]);
  });

  it('by a node that has left meanwhile is answered, because others may have believed it', () => {
    const one = among();
    const accusation = one.suspicion(0, 2);
    one.say(1, { type: 'news', update: one.member(2).say('LEFT') });
    expect(ofType(partsTo(one.say(1, accusation)), 'refutation').length).toBeGreaterThan(1);
  });

  it('without a signature is not answered', () => {
    const one = among();
    const part = one.suspicion(0, 2);
    part.suspicion.signature[0] = (part.suspicion.signature[0] ?? 0) ^ 1;
    const actions = one.say(1, part);
    expect(ofType(partsTo(actions), 'refutation')).toEqual([]);
    expect(actions).toContainEqual(expect.objectContaining({ type: 'hangUp', reason: 'broken' }));
  });
});

describe('a refutation', () => {
  it('is passed on once', () => {
    const one = among();
    one.say(1, one.suspicion(3, 2));
    expect(ofType(partsTo(one.say(1, one.refutation(3, 1))), 'refutation').length).toBeGreaterThan(1);
    expect(partsTo(one.say(4, one.refutation(3, 1)))).toEqual([]);
  });

  it('counts although the suspicion comes after it', () => {
    const one = among();
    one.say(1, one.refutation(3, 1));
    expect(liveness(one.say(1, one.suspicion(3, 2)))).toEqual([]);
  });

  it('of a node that is suspected repeatedly is believed, but trusted only after a while', () => {
    const one = among();
    one.say(1, one.suspicion(3, 2));
    expect(liveness(one.say(1, one.refutation(3, 1)))).toEqual(['alive']);
    const { signature } = one.refutation(3, 1).refutation;
    expect(liveness(one.say(1, one.suspicion(3, 4, 1, signature)))).toEqual(['suspected']);
    expect(liveness(one.say(1, one.refutation(3, 2)))).toEqual([]);
    expect(livenessOf(one.state, one.id(3))).toBe('suspected');
    expect(liveness(one.pass(10_500))).toContain('alive');
  });
});

describe('liveness tables that differ', () => {
  it('are told with the answer to a ping, and end equal', () => {
    const knowing = among();
    knowing.say(1, knowing.suspicion(3, 2));
    knowing.pass(200);
    const ping = { type: 'ping', seq: 9, root: new Uint8Array(8), livenessHash: 0 } as const;
    const told = ofType(partsTo(knowing.say(5, ping), knowing.id(5)), 'suspicion');
    expect(told.map(({ suspicion }) => suspicion.target)).toEqual([knowing.id(3)]);
    const ack = ofType(partsTo(knowing.say(5, ping), knowing.id(5)), 'ack')[0];
    const other = among();
    other.say(1, ...told);
    const mine = ofType(partsTo(other.say(5, ping), other.id(5)), 'ack')[0];
    expect(mine?.livenessHash).toBe(ack?.livenessHash);
    expect(mine?.livenessHash).not.toBe(0);
  });
});

describe('with real keys', () => {
  it('suspicions and refutations of one node are good at another, and at no other incarnation', () => {
    const keys = [nodeSigner(), nodeSigner(), nodeSigner()];
    const { replica, sessions } = realWorld(keys);
    const core = (i: number) =>
      createGossip({
        self: { kind: 'agent', session: sessions[i] ?? '', cluster: 'c0', host: `host-${i}` },
        replica: replica.fork(),
        crypto: nodeCrypto,
        ...(keys[i] === undefined ? {} : { signer: keys[i] }),
      });
    const [accuser, accused, witness] = [core(0), core(1), core(2)];
    if (accuser === undefined || accused === undefined || witness === undefined) throw new Error('three were made');
    const [first = '', second = '', third = ''] = sessions;
    for (const state of [accuser, accused, witness]) step(state, { type: 'start' }, 0, () => 0.5);
    for (const [state, peer] of [
      [accused, first],
      [witness, first],
      [witness, second],
    ] as const)
      step(state, { type: 'opened', peer, inbound: true }, 1, () => 0.5);
    const signature = keys[0]?.sign(suspicionMessage(second, 0, first)) ?? new Uint8Array(64);
    const suspicion = { target: second, incarnation: 0, observer: first, signature, proof: undefined };
    const bytes = encodeMessagePart({ type: 'suspicion', suspicion });
    expect(liveness(step(witness, { type: 'message', peer: first, bytes }, 2, () => 0.5))).toEqual(['suspected']);
    const answer = ofType(
      partsTo(step(accused, { type: 'message', peer: first, bytes }, 2, () => 0.5)),
      'refutation',
    )[0];
    if (answer === undefined) throw new Error('it did not answer');
    const raised = { ...answer.refutation, incarnation: 2 };
    const forged = encodeMessagePart({ type: 'refutation', refutation: raised });
    expect(liveness(step(witness, { type: 'message', peer: first, bytes: forged }, 3, () => 0.5))).toEqual([]);
    expect(livenessOf(witness, second)).toBe('suspected');
    expect(
      liveness(step(witness, { type: 'message', peer: second, bytes: encodeMessagePart(answer) }, 4, () => 0.5)),
    ).toEqual(['alive']);
    expect(third).toMatch(/^[a-z2-7]{26}$/);
  });
});

/** Three members with an issuer, tickets and records that are signed with Ed25519. */
function realWorld(keys: readonly Signer[]) {
  const root = nodeSigner();
  const gateway = nodeSigner();
  const certificate = signCertificate({ key: gateway.publicKey, notBefore: 0, notAfter: 4_000_000_000 }, root);
  const replica = new RegistryReplica({ crypto: nodeCrypto, accepts: () => true });
  const sessions = keys.map((signer, i) => {
    const fields = {
      certificate,
      sessionKey: signer.publicKey,
      birth: EPOCH_S,
      expires: EPOCH_S + 3600,
      provider: 'lab',
      cluster: 'c0',
    };
    const ticket = signTicket(fields, gateway, nodeCrypto);
    const { session } = decodeTicket(ticket, nodeCrypto);
    const bytes = encodePayload(payload(`host-${i}`, 0));
    const record = signRecord({ session, state: 'SERVING', version: 1, payload: bytes }, signer, nodeCrypto);
    expect(replica.merge({ kind: 'entry', ticket, record, payload: bytes }).outcome).toBe('merged');
    return session;
  });
  return { replica, sessions };
}
