import { expect, test } from 'vitest';
import { newSeed, workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { certifyKey, createIssuer, GatewayIssuer, IssuerError, issuerOf } from '../../../gateway/issuer/issuer.ts';
import { fromBase64url, toBase64url } from '../../../shared/lattice/base64url.ts';
import { signRevocation } from '../../../shared/lattice/gateway-key-statements.ts';
import { encodePayload } from '../../../shared/lattice/node-payload.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { openTicket } from '../../../shared/lattice/ticket.ts';

const NOW_S = 1_795_000_000;
const DAY_S = 86_400;
const { root, gateway } = createIssuer(NOW_S);
const issuer = new GatewayIssuer(gateway);
const newcomer = { sessionKey: workerdSigner().publicKey, provider: 'lab', cluster: 'alps' };
const replica = () => new RegistryReplica({ crypto: workerdCrypto, accepts: (id) => id === issuer.issuer });

test('A node is admitted, speaks, is evicted, and is collected once its ticket has been over for a day', () => {
  const a = replica();
  const signer = workerdSigner();
  const bytes = issuer.ticket({ ...newcomer, sessionKey: signer.publicKey }, NOW_S);
  const ticket = openTicket(bytes, workerdCrypto);
  const { session, expires } = ticket;
  expect(expires).toBe(NOW_S + 7 * DAY_S);
  const hardware = { gpus: [], cpus: 1, memory_mib: 1 };
  const payload = encodePayload({
    tier: 'stable',
    labels: {},
    models: [],
    hardware,
    addresses: [],
    agent_version: '1',
  });
  const record = signRecord({ session, state: 'SERVING', version: 1, payload }, signer, workerdCrypto);
  expect(a.merge({ kind: 'entry', ticket: bytes, record, payload }).outcome).toBe('merged');
  const evicted = issuer.eviction(ticket, 'silent');
  expect(evicted && a.merge(evicted).outcome).toBe('merged');
  expect(a.get(session)?.state).toBe('LEFT');
  for (const floor of issuer.watermarks(expires + DAY_S)) expect(a.merge(floor).outcome).toBe('merged');
  expect(a.size).toBe(1);
  for (const floor of issuer.watermarks(expires + DAY_S + 1))
    expect(a.merge(floor)).toMatchObject({ sessions: [session] });
});

test('A ticket lasts an hour longer than its job, 30 days at most, and longer than a floor that a wrong clock left', () => {
  const life = (jobEndsAt: number | undefined, floor?: number) =>
    openTicket(issuer.ticket({ ...newcomer, jobEndsAt }, NOW_S, floor), workerdCrypto).expires - NOW_S;
  expect(life(NOW_S + 2 * DAY_S)).toBe(2 * DAY_S + 3600);
  expect(life(NOW_S + 90 * DAY_S)).toBe(30 * DAY_S);
  expect(life(NOW_S - 5)).toBe(3600);
  expect(life(undefined, NOW_S + 9 * DAY_S)).toBe(9 * DAY_S + 3600);
});

test('After a rotation the former key still evicts and collects what it admitted', () => {
  const next = certifyKey(root, toBase64url(newSeed()), NOW_S);
  const rotated = issuerOf({
    OTELA_GATEWAY_KEY: next.key,
    OTELA_GATEWAY_CERT: next.certificate,
    OTELA_RETIRED_KEYS: `${gateway.key}:${gateway.certificate}`,
  });
  expect(rotated?.issuer).toBe(issuer.issuer);
  expect(rotated?.id).not.toBe(issuer.id);
  const a = replica();
  for (const floor of rotated?.watermarks(NOW_S) ?? []) a.merge(floor);
  const floored = a.watermarks(issuer.issuer).map((floor) => `gw:${floor.certificate.keyName}`);
  const former = openTicket(issuer.ticket(newcomer, NOW_S), workerdCrypto);
  expect(rotated?.eviction(former, 'silent')).toEqual(issuer.eviction(former, 'silent'));
  expect(new GatewayIssuer(next).eviction(former, 'silent')).toBeUndefined();
  expect(floored.sort()).toEqual([issuer.id, rotated?.id].sort());
});

test('An environment that is half set, damaged, or of two different keys is refused with a reason', () => {
  const other = certifyKey(root, toBase64url(newSeed()), NOW_S);
  expect(issuerOf({})).toBeUndefined();
  expect(() => issuerOf({ OTELA_GATEWAY_KEY: gateway.key })).toThrow(IssuerError);
  expect(() => issuerOf({ OTELA_GATEWAY_KEY: 'x', OTELA_GATEWAY_CERT: gateway.certificate })).toThrow(/32 bytes/);
  expect(() => issuerOf({ OTELA_GATEWAY_KEY: gateway.key, OTELA_GATEWAY_CERT: 'AAAA' })).toThrow(/damaged/);
  expect(() => issuerOf({ OTELA_GATEWAY_KEY: gateway.key, OTELA_GATEWAY_CERT: other.certificate })).toThrow(
    /does not belong to the key/,
  );
});

test('An issuer that its root key revoked admits no agent, and continues to say so', () => {
  const owner = workerdSigner(fromBase64url(root, 32) ?? new Uint8Array());
  const revocation = toBase64url(signRevocation(owner.publicKey, owner));
  const over = new GatewayIssuer(gateway, { revocations: [revocation] });
  expect(() => over.ticket(newcomer, NOW_S)).toThrow(IssuerError);
  const a = replica();
  for (const update of over.revocations) expect(a.merge(update).outcome).toBe('merged');
  const foreign = workerdSigner();
  const others = toBase64url(signRevocation(gatewayKey(), foreign));
  expect(() => new GatewayIssuer(gateway, { revocations: [others] })).toThrow(/another issuer/);
  expect(() => new GatewayIssuer(gateway, { revocations: ['AAAA'] })).toThrow(/damaged/);
});

function gatewayKey(): Uint8Array {
  return issuer.certificate.key;
}
