/**
 * `node bench/required/raw-relay.ts --to URL`: copies bytes between each client and a connection to URL. Two of them in a
 * row wake as many processes per request as a gateway and an agent, and do nothing else: the lower bound of any gateway
 * with a tunnel on Node.
 */
import { connect, createServer } from 'node:net';
import { parseArgs } from 'node:util';

const { values } = parseArgs({ options: { to: { type: 'string', default: '' } } });
const { hostname, port } = new URL(values.to);
const server = createServer({ noDelay: true }, (client) => {
  const origin = connect({ host: hostname, port: Number(port), noDelay: true });
  for (const [from, to] of [
    [client, origin],
    [origin, client],
  ] as const) {
    from.on('data', (piece) => to.write(piece));
    from.on('error', () => to.destroy());
    from.on('close', () => to.destroy());
  }
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(`raw relay ready http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`);
});
process.once('SIGTERM', () => process.exit(0));
