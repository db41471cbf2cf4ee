/** Asks a relay from which address it sees this agent: that of its NAT, if it is behind one. */
import type { ProvenConnection } from '../channel/accept-channel.ts';
import { ChannelError } from '../channel/channel-error.ts';
import { withDeadline } from '../channel/handshake-reads.ts';
import { MESSAGE_MS, receiveMessage, sendMessage } from '../circuit/circuit-messages.ts';
import type { ObservedPort } from './hole-puncher.ts';
import { outsideAddress } from './punch-messages.ts';

/**
 * Keeps the connection until `end`, because a NAT forgets a mapping without a connection.
 * @param dial opens a connection for circuits from the port in question
 * @throws ChannelError
 */
export async function observeAt(dial: () => Promise<ProvenConnection>, signal: AbortSignal): Promise<ObservedPort> {
  const { socket } = await dial();
  const end = () => {
    signal.removeEventListener('abort', end);
    socket.destroy();
  };
  socket.on('error', end);
  signal.addEventListener('abort', end, { once: true });
  try {
    if (signal.aborted) throw new ChannelError('broken', 'the agent is shutting down');
    sendMessage(socket, { type: 'observe' });
    const message = await withDeadline(socket, MESSAGE_MS, 'timeout', () => receiveMessage(socket));
    const address = message.type === 'observed' ? outsideAddress(message.address) : undefined;
    if (address === undefined) throw new ChannelError('unreachable', 'the relay does not see an outside address');
    return { address, end };
  } catch (error) {
    end();
    throw error;
  }
}
