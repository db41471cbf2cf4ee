/**
 * Programs of the test of direct paths, each for one host: `serve PORT` is the third host, which sends two others the
 * addresses that it sees; `open HOST:PORT` is one of the two. It prints `open MS` or `closed`.
 */
import { randomInt } from 'node:crypto';
import { connect, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { outsideAddress } from '../../agent/mesh/punch/punch-messages.ts';
import { SimultaneousOpen } from '../../agent/mesh/punch/simultaneous-open.ts';

/** As the agents' own limit. */
const OPEN_MS = 4_000;
const HELLO = 'hello';

function serve(port: number): void {
  let waiting: Socket | undefined;
  createServer((socket) => {
    socket.on('error', () => {});
    const first = waiting?.destroyed === false ? waiting : undefined;
    if (first === undefined) {
      waiting = socket;
      return;
    }
    waiting = undefined;
    const seen = ({ remoteAddress, remotePort }: Socket) => `${remoteAddress?.replace('::ffff:', '')}:${remotePort}`;
    first.write(`${seen(socket)}\n`);
    socket.write(`${seen(first)}\n`);
  }).listen(port, () => console.log('ready'));
}

function open(rendezvous: string): void {
  const [host = '', port] = rendezvous.split(':');
  const localPort = randomInt(32_768, 61_000);
  const third = connect({ host, port: Number(port), localPort });
  third.on('error', (error) => end(`closed: ${error.message}`));
  const end = (result: string) => {
    console.log(result);
    process.exit(0);
  };
  createInterface({ input: third }).once('line', (line) => {
    const remote = outsideAddress(line);
    if (remote === undefined) return end(`closed: ${line}`);
    const begunAt = performance.now();
    setTimeout(() => end('closed'), OPEN_MS);
    new SimultaneousOpen({
      localPort,
      remote,
      onSocket: (socket) => {
        socket.on('error', () => {});
        socket.write(HELLO);
        socket.once('data', (data) => {
          // The other end needs a moment to read our hello.
          if (data.toString() === HELLO) setTimeout(() => end(`open ${(performance.now() - begunAt).toFixed(0)}`), 300);
        });
      },
    });
  });
}

const [verb = '', argument = ''] = process.argv.slice(2);
if (verb === 'serve') serve(Number(argument));
else open(argument);
