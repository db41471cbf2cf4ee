/** Circuits on Cloudflare's runtime; test/e2e/circuit.test.ts has the same object in the Node host. */
import { exports } from 'cloudflare:workers';
import { expect, onTestFinished, test, vi } from 'vitest';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { helloMessage } from '../../shared/lattice/session-id.ts';
import { encodeFrame, readFrames } from '../../shared/wire/frame-codec.ts';
import { CIRCUIT_FRAME, PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { connect, newAgent } from './admin/obedient-agent.ts';
import type { TestAgent } from './registry/agent.ts';

/** One end: the agent proves its session, and keeps what it gets. */
async function openEnd(agent: TestAgent, to: string, signer = agent.signer) {
  const headers = {
    upgrade: 'websocket',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(agent.ticket.bytes),
  };
  const response = await exports.default.fetch(new Request(`https://gateway.test/agent/circuit/${to}`, { headers }));
  const socket = response.webSocket;
  if (socket === null) return { status: response.status };
  const texts: string[] = [];
  const received: number[] = [];
  const closed: string[] = [];
  socket.binaryType = 'arraybuffer';
  let proven = false;
  socket.addEventListener('message', ({ data }) => {
    if (typeof data === 'string') return void texts.push(data);
    const bytes = new Uint8Array(data as ArrayBuffer);
    if (proven) return void received.push(...bytes);
    proven = true;
    readFrames(bytes, (frame) => {
      if (frame.type !== 'challenge') throw new Error(frame.type);
      const message = helloMessage(agent.session, 0, frame.nonce, 'circuit:gateway.test');
      const hello = { publicKey: signer.publicKey, signature: signer.sign(message), generation: 0, window: 0 };
      socket.send(encodeFrame({ type: 'hello', ...hello }));
    });
  });
  socket.addEventListener('close', ({ reason }) => void closed.push(reason));
  socket.accept();
  onTestFinished(() => socket.close());
  return { status: 101, socket, texts, received, closed };
}

async function called() {
  const [caller, callee] = [await newAgent('lab'), await newAgent('lab')];
  const tunnel = await connect(callee, String(CIRCUIT_FRAME), { kind: 'draining', running: 0 });
  const near = await openEnd(caller, callee.session);
  const name = await vi.waitFor(() => {
    const [first] = tunnel.circuits;
    if (first === undefined) throw new Error('the callee was not called');
    return first;
  }, 10_000);
  return { caller, callee, near, name };
}

test('bytes pass both ways between two agents, and the circuit ends for both', async () => {
  const { callee, near, name } = await called();
  const far = await openEnd(callee, name);
  await vi.waitFor(() => expect([near.texts, far.texts]).toEqual([['connected'], ['connected']]), 10_000);
  near.socket?.send(new Uint8Array([1, 2, 3]));
  far.socket?.send(new Uint8Array([4]));
  await vi.waitFor(() => expect([near.received, far.received]).toEqual([[4], [1, 2, 3]]), 10_000);
  near.socket?.close(1000);
  await vi.waitFor(() => expect(far.closed).toEqual(['the other end has disconnected']), 10_000);
});

test('a stranger cannot take the place of the callee, and a caller must prove its session', async () => {
  const { caller, callee, name } = await called();
  expect((await openEnd(caller, name)).status).toBe(404);
  expect((await openEnd(callee, '0'.repeat(32))).status).toBe(404);
  const liar = await openEnd(caller, callee.session, callee.signer);
  await vi.waitFor(() => expect(liar.closed?.[0]).toContain('not signed'), 10_000);
  const alone = await openEnd(caller, caller.session);
  await vi.waitFor(() => expect(alone.closed?.[0]).toContain('is not connected here'), 10_000);
});
