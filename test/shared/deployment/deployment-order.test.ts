/** Orders to deploy, as an agent reads them: from any sender, with any content. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { nodeCrypto, nodeSigner } from '../../../agent/host/node-crypto.ts';
import { DeploymentError } from '../../../shared/deployment/deployment-error.ts';
import {
  type DeploymentRequest,
  ORDER_LIFE_MAX_S,
  type OrderFields,
  openOrder,
  signOrder,
} from '../../../shared/deployment/deployment-order.ts';
import { keyName, signCertificate } from '../../../shared/lattice/gateway-certificate.ts';
import { DAY_S, institution, NOW_S, node } from '../lattice/house.ts';

const lab = institution();
const gateway = lab.gateway();
const { ticket, session } = node(gateway);
const wish: DeploymentRequest = {
  action: 'start',
  id: 'dep-1',
  template: 'vllm',
  parameters: { model: 'org/model', tp: 4 },
};
const fields: OrderFields = {
  certificate: gateway.certificate,
  session,
  nonce: new Uint8Array(16).fill(7),
  notAfter: NOW_S + 120,
  wish,
};
const order = (more: Partial<OrderFields> = {}, by = gateway) =>
  signOrder({ ...fields, certificate: by.certificate, ...more }, by.signer);
const receiver = { session, issuer: ticket.issuer, nowS: NOW_S, revoked: (_key: string) => false, crypto: nodeCrypto };

function refusal(bytes: Uint8Array, context: Partial<typeof receiver> = {}): string {
  try {
    openOrder(bytes, { ...receiver, ...context });
    return 'accepted';
  } catch (error) {
    if (error instanceof DeploymentError) return `${error.code}: ${error.message}`;
    throw error;
  }
}

describe('an order', () => {
  test('is read as it was signed, from any gateway of the institution that admitted the session', () => {
    for (const by of [gateway, lab.gateway()]) {
      expect(openOrder(order({}, by), receiver)).toEqual({ nonce: '07'.repeat(16), notAfter: NOW_S + 120, wish });
    }
  });

  test('of another institution is refused as that, though its signature is good', () => {
    const other = institution().gateway();
    expect(refusal(order({}, other))).toMatch(/^foreign_issuer/);
    // Our certificate does not help a signer that lacks its key.
    expect(refusal(signOrder(fields, other.signer))).toMatch(/^bad_signature/);
  });

  test('of a key that the institution never certified is refused, though its certificate names the root', () => {
    const stranger = nodeSigner();
    const validity = { notBefore: NOW_S - 1, notAfter: NOW_S + DAY_S };
    const root = { publicKey: lab.root.publicKey, sign: (message: Uint8Array) => stranger.sign(message) };
    const certificate = signCertificate({ key: stranger.publicKey, ...validity }, root);
    expect(refusal(signOrder({ ...fields, certificate }, stranger))).toMatch(/^bad_signature/);
  });

  test('counts for its session and for a moment', () => {
    const late = node(gateway).session;
    expect(refusal(order({ session: late }))).toMatch(new RegExp(`^wrong_session: .*${late}.*${session}`));
    expect(refusal(order(), { nowS: NOW_S + 119 })).toBe('accepted');
    expect(refusal(order(), { nowS: NOW_S + 120 })).toMatch(/^expired: .*0 s ago/);
    expect(refusal(order({ notAfter: NOW_S + ORDER_LIFE_MAX_S + 1 }))).toMatch(/^expired: .*clock/);
  });

  test('of a key that is not valid now, or was taken back, is refused', () => {
    const former = lab.gateway({ notAfter: NOW_S });
    expect(refusal(order({}, former))).toMatch(/^expired: .*certificate/);
    const gone = keyName(gateway.signer.publicKey);
    expect(refusal(order(), { revoked: (key) => key === gone })).toMatch(/^revoked_key/);
    const root = keyName(lab.root.publicKey);
    expect(refusal(order(), { revoked: (key) => key === root })).toMatch(/^revoked_key/);
  });

  test('with any bit of it changed is refused, and anything at all is refused without another error', () => {
    const good = order();
    fc.assert(
      fc.property(fc.nat({ max: good.length * 8 - 1 }), (bit) => {
        const bad = good.slice();
        bad[bit >> 3] = (bad[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        expect(refusal(bad)).not.toBe('accepted');
      }),
      { numRuns: 300 },
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
        expect(refusal(bytes)).toMatch(/^malformed/);
      }),
    );
    expect(refusal(new Uint8Array(20_000))).toMatch(/^malformed: .*20000 bytes/);
  });

  test('of a newer gateway is called that', () => {
    const newer = { ...wish, action: 'migrate' };
    expect(() => order({ wish: JSON.parse(JSON.stringify(newer)) })).toThrow();
    expect(() => order({ wish: { action: 'stop', id: '../x', drain_ms: 0 } })).toThrow();
  });

  test('signed for another purpose by the same key is not an order', () => {
    const bytes = order();
    const evicted = gateway.evict(session).eviction ?? new Uint8Array();
    const forged = bytes.slice();
    forged.set(evicted.slice(-64), forged.length - 64);
    expect(refusal(forged)).toMatch(/^bad_signature/);
    // A session's own key is not its gateway's.
    expect(refusal(signOrder(fields, nodeSigner()))).toMatch(/^bad_signature/);
    expect(refusal(order(), { nowS: NOW_S - 91 * DAY_S })).toMatch(/^expired: .*certificate/);
  });
});
