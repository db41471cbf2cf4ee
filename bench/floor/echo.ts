/** Answers each message of a WebSocket with 300 bytes: `echo.ts URL`. Stands where agent and engine would. */
import { WebSocket } from 'ws';

const ANSWER = Buffer.alloc(300, 'a');
const socket = new WebSocket(process.argv[2] ?? '', { perMessageDeflate: false });
socket.on('open', () => console.log('bare echo ready'));
socket.on('message', () => socket.send(ANSWER));
socket.on('close', () => process.exit(0));
