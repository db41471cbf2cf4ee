/** An agent with an open tunnel that answers orders. */
import { exports } from 'cloudflare:workers';
import { onTestFinished } from 'vitest';
import { workerdCrypto } from '../../../gateway/issuer/ed25519.ts';
import { type DeploymentRequest, openOrder } from '../../../shared/deployment/deployment-order.ts';
import type { DeploymentAnswer } from '../../../shared/deployment/order-reply.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { helloMessage } from '../../../shared/lattice/session-id.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import { seedToken, TestAgent } from '../registry/agent.ts';

/** The answer to each order. A function gets the order; undefined is the question for the description. */
type Answer = DeploymentAnswer | ((wish: DeploymentRequest | undefined) => DeploymentAnswer);

/**
 * The agent's tunnel; `wishes` has the orders that it got, and `circuits` the circuits at which callers wait. `frames`: what it announces at the upgrade. `words`: its
 * first record.
 */
export async function connect(agent: TestAgent, frames: string | undefined, answer: Answer, words = agent.words()) {
  const headers = {
    upgrade: 'websocket',
    'x-otela-protocol': '2',
    'x-otela-ticket': toBase64url(agent.ticket.bytes),
    ...(frames === undefined ? {} : { 'x-otela-frames': frames }),
  };
  const response = await exports.default.fetch(new Request('https://gateway.test/agent/connect', { headers }));
  const socket = response.webSocket;
  if (socket === null) throw new Error(`${response.status} ${await response.text()}`);
  const wishes: DeploymentRequest[] = [];
  const circuits: string[] = [];
  const { session, issuer } = agent.ticket;
  const context = { session, issuer, nowS: Math.floor(Date.now() / 1000), revoked: () => false, crypto: workerdCrypto };
  const welcomed = new Promise<void>((resolve) => {
    socket.addEventListener('message', async ({ data }) => {
      const bytes = data instanceof Blob ? await data.arrayBuffer() : data;
      if (typeof bytes === 'string') return;
      readFrames(new Uint8Array(bytes), (frame) => {
        if (frame.type === 'challenge') {
          const signature = agent.signer.sign(helloMessage(session, 1, frame.nonce, 'gateway.test'));
          const { publicKey } = agent.signer;
          socket.send(encodeFrame({ type: 'hello', publicKey, signature, generation: 1, window: 1_000_000 }));
        } else if (frame.type === 'welcome') resolve();
        else if (frame.type === 'circuit') circuits.push(frame.name);
        else if (frame.type === 'deploy') {
          const wish = frame.order.length === 0 ? undefined : openOrder(frame.order, context).wish;
          if (wish !== undefined) wishes.push(wish);
          const json = JSON.stringify(typeof answer === 'function' ? answer(wish) : answer);
          socket.send(encodeFrame({ type: 'deployed', sequence: frame.sequence, json }));
        }
      });
    });
  });
  socket.accept();
  onTestFinished(() => socket.close());
  await welcomed;
  await agent.publish(words);
  return { wishes, circuits, reads: response.headers.get('x-otela-frames') };
}

export async function newAgent(provider: string): Promise<TestAgent> {
  return TestAgent.join((await seedToken({ provider })).token);
}
