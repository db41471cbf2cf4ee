/** The far end of a plain TCP connection, to measure the line itself: `far-end.ts HOST PORT echo|source|sink BYTES`. */
import { connect } from 'node:net';
import { neverRejects } from '../shared/timing/in-background.ts';

const [host = '', port = '', role = '', size = '0'] = process.argv.slice(2);
const socket = connect({ host, port: Number(port), noDelay: true });
socket.on('error', () => process.exit(1));
socket.on('close', () => process.exit(0));
let left = Number(size);

async function send(): Promise<void> {
  const block = Buffer.alloc(256 * 1024);
  for (; left > 0; left -= block.length) {
    if (!socket.write(left >= block.length ? block : block.subarray(0, left)))
      await new Promise((resolve) => socket.once('drain', resolve));
  }
}

socket.on('data', (piece) => {
  switch (role) {
    case 'echo':
      return void socket.write(piece);
    case 'source':
      return neverRejects(send());
    default:
      left -= piece.length;
      if (left <= 0) socket.write('.');
  }
});
